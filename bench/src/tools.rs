//! The tools that are measured beside Nexus, and how each of them runs a command.

use crate::bundle;
use crate::failed;
use crate::failure::Failure;
use crate::report::Report;
use crate::runner::{Runner, State};
use crate::stats::Sample;
use std::path::{Path, PathBuf};

/// One way to run a command.
pub struct Tool {
    /// As it is shown.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// State directory that it is given.
    pub state: State,
    /// Measured times of the tool.
    pub sample: Sample,
}

impl Tool {
    /// Not yet measured.
    pub fn new(name: &str, argv: Vec<String>) -> Self {
        Self { name: name.to_owned(), argv, state: State::Usual, sample: Sample::default() }
    }
}

impl Tool {
    /// The same with a warm launcher.
    pub fn warm(self) -> Self {
        Self { state: State::Warm, ..self }
    }
}

/// Way in which a peer gets the command to run.
enum How {
    /// These words, then the command.
    Words(&'static str),
    /// An OCI bundle; these words, then its directory and a name.
    Bundle(&'static str),
}

struct Peer {
    name: &'static str,
    install: &'static str,
    how: How,
}

/// bubblewrap with all namespaces and the usual view of the system.
const BWRAP: &str = "--unshare-all --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib \
                     --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --die-with-parent";

const PEERS: &[Peer] = &[
    Peer { name: "bwrap", install: "apt-get install bubblewrap", how: How::Words(BWRAP) },
    Peer {
        name: "unshare",
        install: "apt-get install util-linux",
        how: How::Words("--user --map-current-user --mount --pid --net --ipc --uts --cgroup --fork"),
    },
    // Without a cgroup, since Nexus makes none unless a limit asks for it; runc cannot do without.
    Peer {
        name: "crun",
        install: "apt-get install crun",
        how: How::Bundle("--cgroup-manager=disabled --root STATE run --bundle"),
    },
    Peer { name: "runc", install: "apt-get install runc", how: How::Bundle("--root STATE run --bundle") },
    Peer { name: "firejail", install: "apt-get install firejail", how: How::Words("--quiet --noprofile --net=none") },
    Peer { name: "codex", install: "npm install --global @openai/codex", how: How::Words("sandbox linux --") },
    Peer { name: "srt", install: "npm install --global @anthropic-ai/sandbox-runtime", how: How::Words("") },
];

/// Every peer that is installed and can run `command` as this identity; the others are noted with the reason.
pub fn peers(runner: &mut Runner, command: &[String], report: &mut Report) -> Result<Vec<Tool>, Failure> {
    let mut found = Vec::new();
    for peer in PEERS {
        let Some(program) = find(peer.name) else {
            report.note(format!("{} is not installed; `{}` brings it", peer.name, peer.install));
            continue;
        };
        let argv = words(peer, &program, runner, command)?;
        match runner.explain(&argv)? {
            Ok(()) => found.push(Tool::new(peer.name, argv)),
            Err(reason) => report.note(format!("{} does not work here as {}: {reason}", peer.name, runner.who)),
        }
    }
    Ok(found)
}

/// Reason for a missing ratio to bubblewrap.
pub const NO_BWRAP: &str = "bwrap is not there to compare with";

fn words(peer: &Peer, program: &Path, runner: &Runner, command: &[String]) -> Result<Vec<String>, Failure> {
    let mut argv = vec![program.display().to_string()];
    match &peer.how {
        How::Words(words) => {
            argv.extend(split(words));
            argv.extend(command.iter().cloned());
        }
        How::Bundle(words) => {
            let directory = runner.directory.join(format!("{}-bundle", peer.name));
            bundle::make(&directory, runner.uid, command)
                .map_err(|error| failed(&format!("{}: {error}", directory.display())))?;
            let state = directory.join("state").display().to_string();
            argv.extend(split(words).map(|word| if word == "STATE" { state.clone() } else { word }));
            argv.push(directory.display().to_string());
            argv.push(format!("nexus-bench-{}-{}", runner.who, std::process::id()));
        }
    }
    Ok(argv)
}

fn split(words: &str) -> impl Iterator<Item = String> + '_ {
    words.split_whitespace().map(str::to_owned)
}

/// A program of PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Strings of words.
pub fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
