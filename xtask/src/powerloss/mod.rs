//! `powerloss`: the power goes at random moments of commits, and nothing may be lost, mixed or stuck afterwards.
//!
//! Workspace and state directory lie on ext4 on loop devices whose writes and flushes this program logs ([`device`]). A
//! play ([`scenarios`]) runs the program there; then images of the disks are built as a power loss could have left them
//! ([`log`]), mounted, and evaluated by the program's own commands ([`verdict`]).

mod device;
mod fuse;
mod log;
mod play;
mod scenarios;
mod skip;
mod verdict;

use crate::failure::Failure;
use crate::random::{Random, any_seed};
use crate::workspace::Workspace;
use crate::world::{Base, Skip, World};
use device::{Loop, leave, mount_ext4};
use log::Crash;
use play::{Play, Played, Scenario};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

const USAGE: &str = "cargo xtask powerloss [--images N] [--seed N] [--root|--user|--both] [--only PLAY] \
    [--program PATH] [--skip-sync N] [--each-sync] [--keep]";
const SIZE: usize = 96 << 20;
/// The images of the step of `ci`.
const CI_IMAGES: usize = 72;

/// The words of the command line.
#[derive(Debug, Clone)]
struct Options {
    images: usize,
    seed: u64,
    identities: &'static [bool],
    only: Option<String>,
    program: PathBuf,
    skip: Option<Skip>,
    keep: bool,
    each_sync: bool,
    /// Ends a play at the first image that fails.
    first_only: bool,
}

/// Runs the plays that the options choose.
pub fn run(workspace: &Workspace, words: &[String]) -> Result<(), Failure> {
    let options = options(workspace, words).map_err(|why| Failure::new(why, USAGE))?;
    all(workspace, &options)
}

/// The step of `ci`; an ordinary user's `ci` goes on without it and says so.
pub fn bounded(workspace: &Workspace) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        println!("powerloss: NOTHING WAS TESTED: it needs root, for loop devices and mounts");
        return Ok(());
    }
    run(workspace, &[])
}

/// The long version, against the program of `soak`.
pub fn long(workspace: &Workspace, program: &Path) -> Result<(), Failure> {
    let program = program.display().to_string();
    run(workspace, &["--images", "2000", "--program", &program].map(str::to_owned))
}

fn options(workspace: &Workspace, words: &[String]) -> Result<Options, String> {
    let mut options = Options {
        images: CI_IMAGES,
        seed: any_seed(),
        identities: &[false, true],
        only: None,
        program: workspace.target.join("debug/nexus"),
        skip: None,
        keep: false,
        each_sync: false,
        first_only: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let bad = |error: std::num::ParseIntError| format!("{word}: {error}");
        match word.as_str() {
            "--images" => options.images = value()?.parse().map_err(bad)?,
            "--seed" => options.seed = value()?.parse().map_err(bad)?,
            "--root" => options.identities = &[false],
            "--user" => options.identities = &[true],
            "--both" => options.identities = &[false, true],
            "--only" => options.only = Some(value()?.clone()),
            "--program" => options.program = PathBuf::from(value()?),
            "--skip-sync" => options.skip = Some(Skip::Process(value()?.parse().map_err(bad)?)),
            "--each-sync" => options.each_sync = true,
            "--keep" => options.keep = true,
            other => return Err(format!("{other} is not known")),
        }
    }
    Ok(options)
}

/// One play and where it happens.
struct Case {
    scenario: &'static Scenario,
    user: bool,
    disks: usize,
}

fn all(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        let advice = "run it as root: it makes loop devices and mounts";
        return Err(Failure::new("NOTHING WAS TESTED: powerloss was started by an ordinary user", advice));
    }
    let mut random = Random::new(options.seed);
    let cases = cases(options, &mut random);
    if cases.is_empty() {
        let names: Vec<&str> = scenarios::ALL.iter().map(|scenario| scenario.name).collect();
        return Err(Failure::new("there is no such play", format!("--only takes one of {}", names.join(", "))));
    }
    let path = PathBuf::from(format!("/var/tmp/nexus-powerloss-{}", options.seed));
    let base = Base::make(path, &options.program)
        .map_err(|error| Failure::new(format!("the plays have no directory: {error}"), "look at what is named"))?;
    println!("powerloss: seed {}, {} images of {} plays", options.seed, options.images, cases.len());
    if options.each_sync {
        return each_sync(workspace, options, &base, &cases);
    }
    let mut failures: Vec<String> = Vec::new();
    let began = Instant::now();
    let count = cases.len();
    for (number, case) in cases.iter().enumerate() {
        let share = (options.images * (number + 1)) / count - (options.images * number) / count;
        let place = base.path.join(number.to_string());
        failures.extend(one(workspace, options, case, (&place, &base.program), share, &mut random)?);
    }
    let (count, seconds) = (failures.len(), began.elapsed().as_secs_f64());
    println!("powerloss: {count} failed of {} images, {seconds:.0} s", options.images);
    if failures.is_empty() {
        return Ok(());
    }
    let what = format!("{count} images failed, with seed {}:\n  {}", options.seed, failures.join("\n  "));
    let advice = format!("play them again: cargo xtask powerloss --seed {} --only PLAY --keep", options.seed);
    Err(Failure::new(what, advice))
}

/// Plays each case once for each of its syncs, without that sync, until an image shows it.
fn each_sync(workspace: &Workspace, options: &Options, base: &Base, cases: &[Case]) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(why, "look at what is named; nothing of the program was tested");
    let mut useless = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let place = base.path.join(format!("record{number}"));
        let mut world = World::make(&place, &base.program, case.user, case.disks).map_err(|e| failed(e.to_string()))?;
        let record = world.own_file("syncs").map_err(|error| failed(error.to_string()))?;
        world.skip = Some(Skip::Recorded(record.clone()));
        Play::perform(&world, case.scenario, SIZE, &mut Random::new(options.seed)).map_err(failed)?;
        let text = std::fs::read_to_string(&record).map_err(|error| failed(error.to_string()))?;
        for (at, sync) in skip::read(&text, &place.display().to_string()).iter().enumerate() {
            let skip = Some(Skip::Call(sync.call.clone(), sync.number));
            let options = Options { skip, first_only: true, ..options.clone() };
            let place = base.path.join(format!("{number}-{at}"));
            let mut random = skip::seed(options.seed, at);
            let found = one(workspace, &options, case, (&place, &base.program), options.images, &mut random)?;
            let name = format!("{} without {}", case.scenario.name, skip::describe(sync));
            if let Some(why) = found.first() {
                println!("powerloss: {name}: shown: {why}");
            } else {
                println!("powerloss: {name}: NOT SHOWN by {} images", options.images);
                useless.push(name);
            }
        }
    }
    if useless.is_empty() {
        return Ok(());
    }
    let what = format!("no image shows that these syncs are left out:\n  {}", useless.join("\n  "));
    Err(Failure::new(what, "remove the sync, or find the moment at which it matters: --images N, --only PLAY"))
}

/// Each play as each identity on one disk and on two. With fewer images than plays a random choice of them, in which each
/// scenario has its turn before any has a second one.
fn cases(options: &Options, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for disks in [1, 2] {
        for user in options.identities {
            for scenario in scenarios::ALL {
                if options.only.as_deref().is_none_or(|only| only == scenario.name) {
                    cases.push(Case { scenario, user: *user, disks });
                }
            }
        }
    }
    // Three images are worth the cost of one play.
    let affordable = (options.images / 3).max(1);
    if options.each_sync || cases.len() <= affordable {
        return cases;
    }
    let kinds = cases.iter().map(|case| case.scenario.name).collect::<BTreeSet<_>>().len();
    let variants = cases.len() / kinds;
    let begin = random.index(kinds);
    let chosen: BTreeSet<usize> =
        (0..affordable).map(|number| (begin + number) % kinds + kinds * random.index(variants)).collect();
    cases.into_iter().enumerate().filter(|(number, _)| chosen.contains(number)).map(|(_, case)| case).collect()
}

/// Plays one case and evaluates its images; returns a sentence for each that failed.
fn one(
    workspace: &Workspace,
    options: &Options,
    case: &Case,
    (base, program): (&Path, &Path),
    images: usize,
    random: &mut Random,
) -> Result<Vec<String>, Failure> {
    let failed = |why: String| Failure::new(why, "look at what is named; nothing of the program was tested");
    let broken = |error: std::io::Error| failed(format!("{}: {error}", base.display()));
    let mut world = World::make(base, program, case.user, case.disks).map_err(broken)?;
    world.skip.clone_from(&options.skip);
    let reported = format!("{} ({})", case.scenario.name, world.describe());
    let mut failures = Vec::new();
    let began = Instant::now();
    let played = match Play::perform(&world, case.scenario, SIZE, random) {
        Ok(played) => played,
        Err(why) => {
            failures.push(format!("{reported}: {why}"));
            std::fs::remove_dir_all(base).map_err(broken)?;
            return Ok(failures);
        }
    };
    let time = began.elapsed().as_secs_f64();
    for _ in 0..images {
        let last = played.events.len();
        let crash = log::choose(&played.events, 0, last, random);
        if let Err(why) = image(&world, &played, &crash).map_err(broken)? {
            let moment = verdict::moment(&played.stages, crash.position);
            let kept = keep(workspace, options, &played, &crash, failures.len()).map_err(broken)?;
            failures.push(format!("{reported}, event {} of {last}, {moment}: {why}{kept}", crash.position));
            if options.first_only {
                break;
            }
        }
    }
    println!(
        "powerloss: {reported}: {} events, {images} images, {} failed; play {time:.1} s, all {:.1} s",
        played.events.len(),
        failures.len(),
        began.elapsed().as_secs_f64()
    );
    std::fs::remove_dir_all(base).map_err(broken)?;
    Ok(failures)
}

/// Builds the disks after a crash, mounts them where they were, and evaluates them.
fn image(world: &World, played: &Played, crash: &Crash) -> std::io::Result<Result<(), String>> {
    let memory = PathBuf::from("/dev/shm");
    let beside = if memory.is_dir() { &memory } else { &world.base };
    let mut mounted = Vec::new();
    for (number, disk) in played.disks.iter().enumerate() {
        let file = beside.join(format!("nexus-powerloss-{}-{number}.img", std::process::id()));
        write_image(&file, disk, number, played, crash)?;
        let attached = Loop::attach(&file)?;
        // The device keeps the file; the name is not needed any more.
        std::fs::remove_file(&file)?;
        let target = world.disks.get(number).ok_or(std::io::ErrorKind::NotFound)?;
        mount_ext4(&attached.0, target)?;
        mounted.push(Mounted { target: target.clone(), _attached: attached });
    }
    let verdict = verdict::evaluate(world, played, crash.position);
    drop(mounted);
    Ok(verdict)
}

/// A mounted image; goes in the order mount, device.
struct Mounted {
    target: PathBuf,
    _attached: Loop,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        leave(&self.target);
    }
}

fn write_image(file: &Path, disk: &[u8], number: usize, played: &Played, crash: &Crash) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = disk.to_vec();
    log::apply(&mut bytes, number, &played.events, crash);
    let out = std::fs::File::create(file)?;
    out.set_len(bytes.len() as u64)?;
    let zeros = [0; 4096];
    for (block, piece) in bytes.chunks(4096).enumerate() {
        if piece != zeros {
            out.write_all_at(piece, block as u64 * 4096)?;
        }
    }
    Ok(())
}

/// Keeps the disks of a failure when that was asked for, and names them.
fn keep(
    workspace: &Workspace,
    options: &Options,
    played: &Played,
    crash: &Crash,
    number: usize,
) -> std::io::Result<String> {
    if !options.keep {
        return Ok(String::new());
    }
    let place = workspace.target.join("powerloss").join(options.seed.to_string());
    std::fs::create_dir_all(&place)?;
    for (disk, bytes) in played.disks.iter().enumerate() {
        write_image(&place.join(format!("{number}-disk{disk}.img")), bytes, disk, played, crash)?;
    }
    Ok(format!(" (mount -o loop {}/{number}-disk0.img)", place.display()))
}
