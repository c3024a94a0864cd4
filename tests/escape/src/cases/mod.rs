//! The table: every case, what the real driver must answer, and how it is run.
//!
//! A malicious case must answer something *else* without a sandbox and on the leaky driver, or the probe cannot see
//! the hole; a harmless one must answer the same everywhere, or a dead feature would pass as a refusal.

mod a;
mod b;
mod e;
mod host;

use crate::answer::Answer;
use crate::context::Context;

/// Which side of the pair a case is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Must be refused.
    Malicious,
    /// Must work.
    Harmless,
}

/// The sandbox a probe runs in. Probes of one stage share one run, except where `alone` says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// `--changes commit --ro DIR`, extra descriptors open in the caller.
    Layered,
    /// `--direct`.
    Direct,
    /// `--pids 64`.
    Pids,
    /// `--memory 64M`.
    Memory,
    /// `--disk 32M`.
    Disk,
    /// `--disk 16M`.
    Inodes,
    /// `--cpus 0.5`.
    Cpu,
}

impl Stage {
    /// Every stage, in the order they run.
    pub const ALL: &'static [Self] =
        &[Self::Layered, Self::Direct, Self::Pids, Self::Memory, Self::Disk, Self::Inodes, Self::Cpu];

    /// What `nexus run` is given.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Layered => &["--changes", "commit"],
            Self::Direct => &["--direct"],
            Self::Pids => &["--changes", "discard", "--json", "--pids", "64"],
            Self::Memory => &["--changes", "discard", "--json", "--memory", "64M"],
            Self::Disk => &["--changes", "discard", "--json", "--disk", "32M"],
            Self::Inodes => &["--changes", "discard", "--json", "--disk", "16M"],
            Self::Cpu => &["--changes", "discard", "--json", "--cpus", "0.5"],
        }
    }

    /// Whether each case needs a sandbox of its own, because a limit may end the whole run.
    pub fn alone(self) -> bool {
        !matches!(self, Self::Layered | Self::Direct)
    }
}

/// How a case is run.
#[derive(Debug, Clone, Copy)]
pub enum How {
    /// A function inside the sandbox.
    Probe(Stage, fn(&Context) -> Answer),
    /// A scene of the suite, played from the host.
    Scene,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The vector, such as `A05`.
    pub id: &'static str,
    /// The case within the vector.
    pub name: &'static str,
    /// Harmless or malicious.
    pub kind: Kind,
    /// How it is run.
    pub how: How,
    /// The answers that are right on the real driver.
    pub expect: &'static [&'static str],
    /// Only played with `--inject`: the binary needs a test-only hook.
    pub needs_inject: bool,
}

impl Case {
    /// Whether `answer` is right for the real driver.
    pub fn accepts(&self, answer: &str) -> bool {
        self.expect.contains(&answer)
    }

    const fn with_inject(mut self) -> Self {
        self.needs_inject = true;
        self
    }
}

const fn row(id: &'static str, name: &'static str, kind: Kind, how: How, expect: &'static [&'static str]) -> Case {
    Case { id, name, kind, how, expect, needs_inject: false }
}

const OK: &[&str] = &["ok"];

/// A malicious probe in the layered sandbox.
const fn bad(
    id: &'static str,
    name: &'static str,
    probe: fn(&Context) -> Answer,
    expect: &'static [&'static str],
) -> Case {
    row(id, name, Kind::Malicious, How::Probe(Stage::Layered, probe), expect)
}

/// A harmless probe in the layered sandbox.
const fn good(id: &'static str, name: &'static str, probe: fn(&Context) -> Answer) -> Case {
    row(id, name, Kind::Harmless, How::Probe(Stage::Layered, probe), OK)
}

/// A malicious case that the suite plays from the host.
const fn scene_bad(id: &'static str, name: &'static str, expect: &'static [&'static str]) -> Case {
    row(id, name, Kind::Malicious, How::Scene, expect)
}

/// A harmless case that the suite plays from the host.
const fn scene_good(id: &'static str, name: &'static str, expect: &'static [&'static str]) -> Case {
    row(id, name, Kind::Harmless, How::Scene, expect)
}

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Case> {
    a::CASES.iter().chain(a::SYSCALLS).chain(b::CASES).chain(b::MODES).chain(e::CASES).chain(host::CASES)
}

/// The vectors that must have rows. A10 (TIOCSTI) and B12 (tenants) come with the terminal and the facility.
pub const REQUIRED: &[&str] = &[
    "A01", "A02", "A03", "A04", "A05", "A06", "A07", "A08", "A09", "A11", "A12", "A13", "A14", "A15", "A16", "A17",
    "B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B09", "B10", "B11", "B13", "E01", "E02", "E03", "E04",
    "E05", "E06", "E07", "E08", "E09", "E10", "E11", "E12",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_required_vector_has_a_malicious_case_and_a_harmless_twin() {
        for id in REQUIRED {
            for kind in [Kind::Malicious, Kind::Harmless] {
                assert!(all().any(|case| case.id == *id && case.kind == kind), "{id} has no {kind:?} case");
            }
        }
    }

    #[test]
    fn every_row_belongs_to_a_required_vector_and_has_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for case in all() {
            assert!(REQUIRED.contains(&case.id), "{} is not required", case.id);
            assert!(names.insert((case.id, case.name)), "{}/{} is there twice", case.id, case.name);
        }
    }

    #[test]
    fn every_row_expects_something_and_no_malicious_row_expects_success() {
        for case in all() {
            assert!(!case.expect.is_empty(), "{}/{} expects nothing", case.id, case.name);
            // A refusal to start says nothing about a malicious probe unless the row is about refusing to start.
            assert!(
                case.kind == Kind::Harmless || !case.accepts("ok"),
                "{}/{} takes success for a refusal",
                case.id,
                case.name
            );
            for word in ["hung", "no-answer", "no-pipe", "no-fork", "panicked", "no-file", "no-link", "host-unknown"] {
                assert!(!case.accepts(word), "{}/{} takes {word} for a refusal", case.id, case.name);
            }
        }
    }

    #[test]
    fn every_skip_names_a_row_that_exists() {
        for skip in crate::skips::list().expect("the list parses") {
            assert!(
                all().any(|case| case.id == skip.id && case.name == skip.case),
                "{}/{} is skipped but does not exist",
                skip.id,
                skip.case
            );
        }
    }
}
