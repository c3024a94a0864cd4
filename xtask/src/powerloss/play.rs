//! One play: commands of the program on logged disks, with the states that are allowed after each of them.

use super::device::{Disk, Recorder};
use super::log::Event;
use crate::bounded::Ended;
use crate::random::Random;
use crate::tree::{Content, Tree};
use crate::world::World;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A moment of the play at which a command has ended.
#[derive(Debug)]
pub struct Stage {
    /// The command that has ended.
    pub name: String,
    /// The number of events before this moment.
    pub position: usize,
    /// The states of the workspace that are allowed from now on.
    pub trees: Vec<Tree>,
    /// More states that are allowed on the way here.
    pub on_way: Vec<Tree>,
    /// Set when every change of the play is in the workspace or waits for a decision from now on.
    pub holds: bool,
}

/// A play in progress.
pub struct Play {
    /// Directories and program of the play.
    pub world: World,
    recorder: Recorder,
    /// The choices of the play.
    pub random: Random,
    /// The moments so far; the first is the beginning.
    pub stages: Vec<Stage>,
}

/// A play that is over: everything that judging a crash needs.
pub struct Played {
    /// The disks at the beginning.
    pub disks: Vec<Vec<u8>>,
    /// Writes and flushes of the disks.
    pub events: Vec<Event>,
    /// Moments of the play.
    pub stages: Vec<Stage>,
    /// The workspace after every change was accepted.
    pub last: Tree,
}

/// A play by name.
pub struct Scenario {
    /// Name of the play.
    pub name: &'static str,
    /// Makes the files of the workspace.
    pub setup: fn(&World) -> std::io::Result<()>,
    /// Runs the commands.
    pub act: fn(&mut Play) -> Result<(), String>,
}

impl Play {
    /// Plays a scenario from its first file to its last command.
    pub fn perform(world: &World, scenario: &Scenario, size: usize, random: &mut Random) -> Result<Played, String> {
        let failed = |error: std::io::Error| format!("the play {} cannot be prepared: {error}", scenario.name);
        let recorder = Recorder::default();
        let mut disks = Vec::new();
        for (number, target) in world.disks.iter().enumerate() {
            let place = world.base.join(format!("served{number}"));
            fs::write(&place, "").map_err(failed)?;
            disks.push(Disk::make(number, size, &place, target, &recorder).map_err(failed)?);
        }
        world.populate().map_err(failed)?;
        (scenario.setup)(world).map_err(failed)?;
        // The state directory and its keys are there before the power may go.
        world.must(&world.workspace(), &["run", "--", "true"])?;
        for target in &world.disks {
            sync(target).map_err(failed)?;
        }
        drop(recorder.take());
        let bytes: Vec<Vec<u8>> = disks.iter().map(Disk::bytes).collect();
        let mut play = Self { world: world.clone(), recorder, random: Random::new(random.next()), stages: Vec::new() };
        play.stages.push(Stage {
            name: "the beginning".to_owned(),
            position: 0,
            trees: vec![world.tree()?],
            on_way: Vec::new(),
            holds: false,
        });
        let neighbour = Neighbour::start(world, random);
        let acted = (scenario.act)(&mut play);
        neighbour.stop();
        acted.map_err(|why| format!("the play {} itself failed: {why}", scenario.name))?;
        for run in world.waiting()? {
            world.must(&world.workspace(), &["changes", "accept", "--protected", "--run", &run])?;
        }
        let last = world.tree()?;
        let Self { recorder, stages, .. } = play;
        let events = recorder.take();
        for disk in disks {
            disk.close().map_err(failed)?;
        }
        Ok(Played { disks: bytes, events, stages, last })
    }

    /// Runs `nexus` in the workspace and demands exit code 0.
    pub fn nexus(&mut self, words: &[&str]) -> Result<Ended, String> {
        self.answer(words, "")
    }

    /// [`Self::nexus`] with answers from a pipe.
    pub fn answer(&mut self, words: &[&str], input: &str) -> Result<Ended, String> {
        let ended = self.world.start(&[], words, input)?.wait().map_err(|error| error.to_string())?;
        if ended.code == Some(0) {
            Ok(ended)
        } else {
            Err(format!("`nexus {}`: {}", words.join(" "), ended.describe()))
        }
    }

    /// Records that a command has ended: the workspace is as it is now, and `holds` as in [`Stage`].
    pub fn stage(&mut self, name: &str, holds: bool) -> Result<Tree, String> {
        let tree = self.world.tree()?;
        self.stage_of(name, vec![tree.clone()], Vec::new(), holds)?;
        Ok(tree)
    }

    /// Records that a command has ended, with other states than the present one.
    pub fn stage_of(&mut self, name: &str, trees: Vec<Tree>, on_way: Vec<Tree>, holds: bool) -> Result<(), String> {
        self.stages.push(Stage { name: name.to_owned(), position: self.recorder.position(), trees, on_way, holds });
        // Others use the disk afterwards, so that moments between this command and the next one are met.
        for _ in 0..2 {
            self.world.disks.iter().try_for_each(|disk| touch(disk)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Demands that a file of the tree has this text, so that a play that does nothing is noticed.
pub fn demand(tree: &Tree, name: &str, text: &str) -> Result<(), String> {
    match tree.get(name).map(|entry| &entry.content) {
        Some(Content::File(bytes)) if bytes == text.as_bytes() => Ok(()),
        other => Err(format!("{name} is {other:?} and should be {text:?}")),
    }
}

/// Demands that there is no such path.
pub fn demand_gone(tree: &Tree, name: &str) -> Result<(), String> {
    if tree.contains_key(name) { Err(format!("{name} is still there")) } else { Ok(()) }
}

/// A process of another user that syncs files of its own on the same disks: this brings the directory entries of all
/// processes to the disk, and not their bytes.
struct Neighbour {
    ended: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Neighbour {
    fn start(world: &World, random: &mut Random) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (seen, disks) = (Arc::clone(&ended), world.disks.clone());
        // Never, now and then, or all the time.
        let pause = [0, 40, 4][random.index(3)];
        let mut random = random.clone();
        let thread = std::thread::spawn(move || {
            while pause > 0 && !seen.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(random.below(pause)));
                for disk in &disks {
                    if let Err(error) = touch(disk) {
                        eprintln!("powerloss: the neighbour cannot write: {error}");
                        return;
                    }
                }
            }
        });
        Self { ended, thread }
    }

    fn stop(self) {
        self.ended.store(true, Ordering::SeqCst);
        if self.thread.join().is_err() {
            eprintln!("powerloss: the neighbour panicked");
        }
    }
}

fn touch(disk: &Path) -> std::io::Result<()> {
    let mut file = fs::File::create(disk.join("neighbour/file"))?;
    file.write_all(b"of another user")?;
    file.sync_all()
}

fn sync(mounted: &Path) -> std::io::Result<()> {
    rustix::fs::syncfs(fs::File::open(mounted)?)?;
    Ok(())
}
