//! The commands at which faults are injected, and the states of the workspace that they may leave.

use crate::bounded::Ended;
use crate::tree::Tree;
use crate::world::World;
use std::fs;
use std::io;
use std::path::Path;

/// Changes, deletes, makes and links files; says so at its end.
pub const SCRIPT: &str = "for i in 1 2; do echo new $i > f$i; done; echo new 3 > f; mv f f3; rm f4; rm -r gone; rm dir/a; mkdir made; \
    echo made > made/file; ln -s f1 link; echo DONE";

/// One command of the program at which faults are injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// `nexus run --changes commit`: run, settle and commit.
    Commit,
    /// `nexus run --changes review`: run, settle and park.
    Park,
    /// `nexus changes accept`.
    Accept,
    /// `nexus changes reject`.
    Reject,
    /// The first command after a commit that was killed half-way.
    Recover,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Commit, Self::Park, Self::Accept, Self::Reject, Self::Recover];

    /// Returns the name for reports and `--only`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Park => "park",
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::Recover => "recover",
        }
    }

    /// Returns the command.
    pub fn words(self, has_recover: bool) -> &'static [&'static str] {
        match self {
            Self::Commit => &["run", "--changes", "commit", "--", "sh", "-c", SCRIPT],
            Self::Park => &["run", "--changes", "review", "--", "sh", "-c", SCRIPT],
            Self::Accept => &["changes", "accept"],
            Self::Reject => &["changes", "reject"],
            Self::Recover if has_recover => &["changes", "recover"],
            Self::Recover => &["changes", "list"],
        }
    }

    /// Makes the files of the workspace and runs what comes before the command; a commit that is to be recovered is killed
    /// at its rename of the number `half`.
    pub fn prepare(self, world: &World, half: u32) -> Result<(), String> {
        let failed = |error: io::Error| format!("the workspace cannot be prepared: {error}");
        setup(world).map_err(failed)?;
        let workspace = world.workspace();
        world.must(&workspace, &["run", "--", "true"])?;
        match self {
            Self::Commit | Self::Park => {}
            Self::Accept | Self::Reject => {
                world.must(&workspace, Self::Park.words(false))?;
            }
            Self::Recover => kill_half_way(world, half)?,
        }
        Ok(())
    }

    /// Tells whether finished work exists when the command ended like this: it must be in the workspace or wait.
    pub fn has_work(self, ended: &Ended) -> bool {
        match self {
            Self::Commit | Self::Park => ended.stdout.contains("DONE"),
            Self::Accept | Self::Recover => true,
            Self::Reject => false,
        }
    }
}

fn setup(world: &World) -> io::Result<()> {
    world.populate()?;
    for number in 1..=6 {
        world.write(&format!("f{number}"), &format!("old {number}\n"))?;
    }
    ["dir/a", "dir/b", "gone/a", "gone/b/c"].iter().try_for_each(|name| world.write(name, "old\n"))
}

/// Kills a commit at one of its renames.
fn kill_half_way(world: &World, number: u32) -> Result<(), String> {
    let calls = "renameat,renameat2,rename";
    let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:signal=KILL:when={number}"));
    let strace = ["strace", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let running = world.start(&strace, Phase::Commit.words(false), "")?;
    running.wait().map(drop).map_err(|error| error.to_string())
}

/// The two versions of the workspace.
#[derive(Debug, Clone)]
pub struct Versions {
    /// Before the command.
    pub old: Tree,
    /// With the changes of the run.
    pub new: Tree,
    /// The rename at which a commit has to be killed so that it is half done.
    pub half: u32,
}

/// Plays a commit without a fault and reads both versions.
pub fn versions(base: &Path, program: &Path, user: bool) -> Result<Versions, String> {
    let world = World::make(base, program, user, 0).map_err(|error| format!("{}: {error}", base.display()))?;
    Phase::Commit.prepare(&world, 0)?;
    let old = world.tree()?;
    world.must(&world.workspace(), Phase::Commit.words(false))?;
    let new = world.tree()?;
    if old == new {
        return Err("a commit without a fault changed nothing".to_owned());
    }
    fs::remove_dir_all(base).map_err(|error| error.to_string())?;
    for half in 2..20 {
        let world = World::make(base, program, user, 0).map_err(|error| format!("{}: {error}", base.display()))?;
        Phase::Recover.prepare(&world, half)?;
        let found = world.tree()?;
        fs::remove_dir_all(base).map_err(|error| error.to_string())?;
        if found != old && found != new {
            // One further, so that more than one file is new.
            return Ok(Versions { old, new, half: half + 1 });
        }
    }
    // A program whose commits are never half done by a kill at a rename: the recovery has what was not decided.
    Ok(Versions { old, new, half: 4 })
}
