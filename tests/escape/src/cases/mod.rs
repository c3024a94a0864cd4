//! The table: every case, what the real driver must answer, and how it is run.
//!
//! A malicious case must answer something *else* without a sandbox and on the leaky driver, or the probe cannot see
//! the hole; a harmless one must answer the same everywhere, or a dead feature would pass as a refusal.

mod a;
mod b;
mod case;
mod e;
mod host;

pub use case::{Case, How, Kind, Limit, Stage};

/// Returns every row.
pub fn all() -> impl Iterator<Item = &'static Case> {
    a::CASES
        .iter()
        .chain(a::SYSCALLS)
        .chain(a::TRACING)
        .chain(b::CASES)
        .chain(b::MODES)
        .chain(e::CASES)
        .chain(host::CASES)
}

/// One numbered attack.
#[derive(Debug, Clone, Copy)]
pub struct Vector {
    /// Its number, such as `A05`.
    pub id: &'static str,
    /// Subject of the attack, in a few words.
    pub title: &'static str,
}

const fn vector(id: &'static str, title: &'static str) -> Vector {
    Vector { id, title }
}

/// The vectors that must have rows. B12 (tenants) comes with the facility.
pub const VECTORS: &[Vector] = &[
    vector("A01", "rights, capabilities, no_new_privs"),
    vector("A02", "namespaces of the host"),
    vector("A03", "processes of the host"),
    vector("A04", "root of the host through the id map"),
    vector("A05", "rare socket families"),
    vector("A06", "user namespaces of its own"),
    vector("A07", "mounts"),
    vector("A08", "rare system calls"),
    vector("A09", "system calls of foreign ABIs"),
    vector("A10", "typing into the operator's terminal"),
    vector("A11", "outliving nexus"),
    vector("A12", "abstract sockets of the host"),
    vector("A13", "sockets, agents and environment of the caller"),
    vector("A14", "starting although a wall is missing"),
    vector("A15", "inherited descriptors"),
    vector("A16", "IPC objects of the host"),
    vector("A17", "core files"),
    vector("A18", "tracing where it is allowed"),
    vector("B01", "files of the host"),
    vector("B02", "writing to system directories"),
    vector("B03", "leaving by symbolic links"),
    vector("B04", "leaving by hard links"),
    vector("B05", "writing to a read-only directory"),
    vector("B06", "planting hooks and settings"),
    vector("B07", "planting through links"),
    vector("B08", "switches in /proc and /sys"),
    vector("B09", "setuid files and devices"),
    vector("B10", "devices of the host"),
    vector("B11", "leaving data for the next run"),
    vector("B13", "working directory outside"),
    vector("B14", "hidden paths of the workspace"),
    vector("E01", "fork bomb"),
    vector("E02", "memory"),
    vector("E03", "disk"),
    vector("E04", "number of files"),
    vector("E05", "processor time"),
    vector("E06", "time limit"),
    vector("E07", "processes that stay behind"),
    vector("E08", "holding the output open"),
    vector("E09", "cancelling"),
    vector("E10", "leftovers of many runs"),
    vector("E11", "flood of output"),
    vector("E12", "forged results"),
    vector("E13", "pseudo-terminals of the host"),
    vector("G01", "secrets in the caller's environment"),
    vector("N04", "control sequences on the operator's terminal"),
];

/// Returns whether `id` is the number of a vector.
#[must_use]
pub fn is_vector(id: &str) -> bool {
    VECTORS.iter().any(|vector| vector.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_required_vector_has_a_malicious_case_and_a_harmless_twin() {
        for Vector { id, .. } in VECTORS {
            for kind in [Kind::Malicious, Kind::Harmless] {
                assert!(all().any(|case| case.id == *id && case.kind == kind), "{id} has no {kind:?} case");
            }
        }
    }

    #[test]
    fn every_row_belongs_to_a_required_vector_and_has_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for case in all() {
            assert!(is_vector(case.id), "{} is not required", case.id);
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
