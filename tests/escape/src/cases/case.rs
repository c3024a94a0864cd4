//! One row of the table.

use crate::answer::Answer;
use crate::context::Context;

/// Side of the pair on which a case is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Must be refused.
    Malicious,
    /// A harmless twin, which must work.
    Harmless,
}

impl Kind {
    /// Returns the word for it in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malicious => "malicious",
            Self::Harmless => "harmless",
        }
    }
}

/// The sandbox a probe runs in. Probes of one stage share one run, except where `alone` says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// `--changes commit --ro DIR`, extra descriptors open in the caller.
    Layered,
    /// Runs with `--direct`.
    Direct,
    /// Runs with `--allow-ptrace`.
    Tracing,
    /// Runs with `--pids 64`.
    Pids,
    /// Runs with `--memory 64M`.
    Memory,
    /// Runs with `--disk 32M`.
    Disk,
    /// Runs with `--disk 16M`.
    Inodes,
    /// `--cpus 0.1`, beside busy loops of the suite.
    Cpu,
}

impl Stage {
    /// Every stage, in the order they run.
    pub const ALL: &'static [Self] =
        &[Self::Layered, Self::Direct, Self::Tracing, Self::Pids, Self::Memory, Self::Disk, Self::Inodes, Self::Cpu];

    /// Returns the flags that `nexus run` is given.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Layered => &["--changes", "commit"],
            Self::Direct => &["--direct"],
            Self::Tracing => &["--changes", "discard", "--allow-ptrace"],
            Self::Pids => &["--changes", "discard", "--json", "--pids", "64"],
            Self::Memory => &["--changes", "discard", "--json", "--memory", "64M"],
            Self::Disk => &["--changes", "discard", "--json", "--disk", "32M"],
            Self::Inodes => &["--changes", "discard", "--json", "--disk", "16M"],
            Self::Cpu => &["--changes", "discard", "--json", "--cpus", "0.1"],
        }
    }

    /// The limit without which this stage cannot be played.
    pub fn needs(self) -> Option<Limit> {
        match self {
            Self::Memory => Some(Limit::Memory),
            Self::Cpu => Some(Limit::Cpu),
            Self::Layered | Self::Direct | Self::Tracing | Self::Pids | Self::Disk | Self::Inodes => None,
        }
    }

    /// Returns whether each case needs a sandbox of its own, because a limit may end the whole run.
    pub fn alone(self) -> bool {
        !matches!(self, Self::Layered | Self::Direct | Self::Tracing)
    }
}

/// A limit that not every machine can hold for every user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Needs the limit of `--memory`.
    Memory,
    /// Needs the limit of `--cpus`.
    Cpu,
}

impl Limit {
    /// The flag of `nexus run`.
    #[must_use]
    pub fn flag(self) -> &'static str {
        match self {
            Self::Memory => "--memory",
            Self::Cpu => "--cpus",
        }
    }
}

/// Way in which a case is run.
#[derive(Debug, Clone, Copy)]
pub enum How {
    /// A function inside the sandbox.
    Probe(Stage, fn(&Context) -> Answer),
    /// A scene of the suite, played from the host.
    Scene,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The vector, such as `A05`.
    pub id: &'static str,
    /// The case within the vector.
    pub name: &'static str,
    /// Harmless or malicious.
    pub kind: Kind,
    /// Way in which it is run.
    pub how: How,
    /// The answers that are right on the real driver.
    pub expect: &'static [&'static str],
    /// Only played with `--inject`: the binary needs a test-only hook.
    pub needs_inject: bool,
}

impl Case {
    /// The limit without which this case cannot be played.
    pub fn needs(&self) -> Option<Limit> {
        match self.how {
            How::Probe(stage, _) => stage.needs(),
            How::Scene => None,
        }
    }

    /// Returns whether `answer` is right for the real driver.
    pub fn accepts(&self, answer: &str) -> bool {
        self.expect.contains(&answer)
    }

    pub(super) const fn with_inject(mut self) -> Self {
        self.needs_inject = true;
        self
    }
}

pub(super) const fn row(
    id: &'static str,
    name: &'static str,
    kind: Kind,
    how: How,
    expect: &'static [&'static str],
) -> Case {
    Case { id, name, kind, how, expect, needs_inject: false }
}

pub(super) const OK: &[&str] = &["ok"];

/// A malicious probe in the layered sandbox.
pub(super) const fn bad(
    id: &'static str,
    name: &'static str,
    probe: fn(&Context) -> Answer,
    expect: &'static [&'static str],
) -> Case {
    row(id, name, Kind::Malicious, How::Probe(Stage::Layered, probe), expect)
}

/// A harmless probe in the layered sandbox.
pub(super) const fn good(id: &'static str, name: &'static str, probe: fn(&Context) -> Answer) -> Case {
    row(id, name, Kind::Harmless, How::Probe(Stage::Layered, probe), OK)
}

/// A malicious case that the suite plays from the host.
pub(super) const fn scene_bad(id: &'static str, name: &'static str, expect: &'static [&'static str]) -> Case {
    row(id, name, Kind::Malicious, How::Scene, expect)
}

/// A harmless case that the suite plays from the host.
pub(super) const fn scene_good(id: &'static str, name: &'static str, expect: &'static [&'static str]) -> Case {
    row(id, name, Kind::Harmless, How::Scene, expect)
}
