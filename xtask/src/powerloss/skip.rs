//! `powerloss --each-sync`: every sync of a play is left out in turn, and the images must show it.
//!
//! A sync that nothing misses is either of no use or not tried hard enough; both are worth a look.

use crate::random::Random;
use crate::world::SYNCS;
use std::collections::{BTreeMap, BTreeSet};

/// One sync of the commands of a play.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    /// Name of the call.
    pub call: String,
    /// Number of the call within one command, from 1.
    pub number: u32,
    /// The paths that it was about, one for each command that comes so far.
    pub paths: BTreeSet<String>,
}

/// Reads the syncs of a play from what `strace -y` recorded of its commands, one after the other.
pub fn read(record: &str, base: &str) -> Vec<Sync> {
    let mut syncs: BTreeMap<(String, u32), BTreeSet<String>> = BTreeMap::new();
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for line in record.lines() {
        if line.starts_with("+++") {
            // The next command counts from 1 again.
            counts.clear();
            continue;
        }
        let Some((call, rest)) = line.split_once('(') else { continue };
        if !SYNCS.split(',').any(|known| known == call) {
            continue;
        }
        let number = counts.entry(call.to_owned()).or_default();
        *number += 1;
        let path = rest.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(path, _)| path);
        syncs.entry((call.to_owned(), *number)).or_default().insert(shorten(path, base));
    }
    syncs.into_iter().map(|((call, number), paths)| Sync { call, number, paths }).collect()
}

/// Makes a path the same in every play: relative, and without the ids of runs.
fn shorten(path: &str, base: &str) -> String {
    let parts = path.trim_start_matches(base).trim_start_matches('/').split('/');
    let is_id = |part: &str| part.len() == 36 && part.bytes().filter(|byte| *byte == b'-').count() == 4;
    parts.map(|part| if is_id(part) { "ID" } else { part }).collect::<Vec<_>>().join("/")
}

/// Names a sync for the report.
pub fn describe(sync: &Sync) -> String {
    let paths: Vec<&str> = sync.paths.iter().map(String::as_str).collect();
    format!("{} {} ({})", sync.call, sync.number, paths.join(", "))
}

/// Returns a seed of its own for each sync, so that one can be played again alone.
pub fn seed(seed: u64, number: usize) -> Random {
    Random::new(seed.wrapping_add(number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_counted_by_call_and_command() {
        let record = "fsync(3</b/disk0/state/layers/01a203a0-a928-7665-b800-72fd2c197459/journal.new>) = 0\n\
            fsync(4</b/disk0/ws>) = 0\nsyncfs(5</b/disk0>) = 0\n+++ exited with 0 +++\n\
            fsync(3</b/disk0/ws>) = 0\n+++ exited with 0 +++\n";
        let found: Vec<String> = read(record, "/b").iter().map(describe).collect();
        let wanted =
            ["fsync 1 (disk0/state/layers/ID/journal.new, disk0/ws)", "fsync 2 (disk0/ws)", "syncfs 1 (disk0)"];
        assert_eq!(found, wanted);
    }
}
