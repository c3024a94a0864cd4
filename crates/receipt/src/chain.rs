//! Finds receipts that were taken out of a chain.
//!
//! ```text
//!  … ─▶ 7 ─▶ 8 ─▶ 9        each names the hash of the one before
//!  floor ▲                  what is below was pruned, and the later ones say so
//! ```
//! This check cannot see that the last receipts were removed together with the state directory's own note of the end.
//! It also cannot bind the holder of the signing key, who can sign a new chain.

use crate::form::ChainPlace;
use nexus_model::{Digest, RunId};
use std::collections::BTreeMap;

/// Place in a chain that one receipt claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    /// The run that the receipt is about.
    pub run_id: RunId,
    /// The hash of the receipt itself.
    pub hash: Digest,
    /// The receipt's place in its chain.
    pub place: ChainPlace,
}

/// End of a chain as the state directory itself notes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainEnd {
    /// The chain, named by the run that began it.
    pub chain: RunId,
    /// The number that the next receipt gets.
    pub next: u64,
    /// The lowest number that is kept.
    pub floor: u64,
}

/// Fault in a chain that honest use does not leave behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainProblem {
    /// Receipts are missing.
    #[error("receipts are missing: numbers {from} to {to} of the chain of {chain}")]
    Missing {
        /// The chain, named by the run that began it.
        chain: RunId,
        /// The first of them.
        from: u64,
        /// The last of them.
        to: u64,
    },
    /// The receipt names another predecessor than the one that is there.
    #[error("the receipt of the run {run_id} (number {seq}) follows another receipt than the one that is there")]
    Broken {
        /// The number of the receipt.
        seq: u64,
        /// The run of the receipt.
        run_id: RunId,
    },
    /// A second chain began without the first one being closed.
    #[error("the chain of {chain} was not continued: the note of its end was lost or removed")]
    NotContinued {
        /// The chain that has no successor.
        chain: RunId,
    },
}

/// Result of a check of all receipts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChainReport {
    /// Receipts that share their number with another one that the chain went on from: `nexus` was killed between
    /// writing and noting them.
    pub side_branches: Vec<RunId>,
    /// The problems found; empty for a whole chain.
    pub problems: Vec<ChainProblem>,
}

/// Checks all receipts of a state directory against its own note of the end, if there is one. `closed` holds the ends
/// of chains whose break a person has recorded: such a chain may lack a successor, but not receipts.
#[must_use]
pub fn check_chain(rings: &[Ring], end: Option<ChainEnd>, closed: &[ChainEnd]) -> ChainReport {
    let mut chains: BTreeMap<RunId, BTreeMap<u64, Vec<&Ring>>> = BTreeMap::new();
    for ring in rings {
        chains.entry(ring.place.chain).or_default().entry(ring.place.seq).or_default().push(ring);
    }
    for end in end.iter().chain(closed) {
        chains.entry(end.chain).or_default();
    }
    // Ids are ordered by time. Without a note the latest one is the chain that goes on.
    let is_open = |chain: &&RunId| closed.iter().all(|end| end.chain != **chain);
    let current = end.map(|end| end.chain).or_else(|| chains.keys().rev().find(is_open).copied());
    let mut report = ChainReport::default();
    for (chain, receipts) in &chains {
        let end = end.iter().chain(closed).find(|end| end.chain == *chain);
        if current != Some(*chain) && end.is_none() {
            report.problems.push(ChainProblem::NotContinued { chain: *chain });
        }
        one(*chain, receipts, end.copied(), &mut report);
    }
    report
}

fn one(chain: RunId, receipts: &BTreeMap<u64, Vec<&Ring>>, end: Option<ChainEnd>, report: &mut ChainReport) {
    let last = receipts.last_key_value();
    // The latest word about what was pruned.
    let recorded = last.iter().flat_map(|(_, here)| here.iter()).map(|ring| ring.place.floor);
    let mut wanted = recorded.chain(end.map(|end| end.floor)).max().unwrap_or(0);
    for (seq, here) in receipts {
        // Below the floor anything may be gone or still there.
        if *seq > wanted {
            report.problems.push(ChainProblem::Missing { chain, from: wanted, to: seq - 1 });
        }
        wanted = wanted.max(seq + 1);
        if let Some(before) = seq.checked_sub(1).and_then(|before| receipts.get(&before)) {
            let follows = |ring: &&&Ring| before.iter().any(|one| ring.place.previous == Some(one.hash));
            let broken = here.iter().filter(|ring| !follows(ring));
            report.problems.extend(broken.map(|ring| ChainProblem::Broken { seq: *seq, run_id: ring.run_id }));
        }
        if let Some(after) = receipts.get(&(seq + 1)).filter(|_| here.len() > 1) {
            let left = here.iter().filter(|ring| after.iter().all(|next| next.place.previous != Some(ring.hash)));
            report.side_branches.extend(left.map(|ring| ring.run_id));
        }
    }
    if let Some(end) = end.filter(|end| end.next > wanted) {
        report.problems.push(ChainProblem::Missing { chain, from: wanted, to: end.next - 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(length: u64) -> (Vec<Ring>, ChainEnd) {
        let first = RunId::new();
        let mut rings: Vec<Ring> = Vec::new();
        for seq in 0..length {
            let run_id = if seq == 0 { first } else { RunId::new() };
            let previous = rings.last().map(|ring| ring.hash);
            let place = ChainPlace { chain: first, seq, previous, floor: 0 };
            rings.push(Ring { run_id, hash: Digest::of(run_id.to_string().as_bytes()), place });
        }
        (rings, ChainEnd { chain: first, next: length, floor: 0 })
    }

    #[test]
    fn a_whole_chain_is_whole_in_any_order() {
        let (mut rings, end) = chain(5);
        rings.reverse();
        assert_eq!(check_chain(&rings, Some(end), &[]), ChainReport::default());
        assert_eq!(check_chain(&rings, None, &[]), ChainReport::default());
        assert_eq!(check_chain(&[], None, &[]), ChainReport::default());
    }

    #[test]
    fn any_receipt_that_was_taken_out_is_missed() {
        for gone in 0..5u64 {
            let (mut rings, end) = chain(5);
            rings.remove(gone as usize);
            let missing = ChainProblem::Missing { chain: end.chain, from: gone, to: gone };
            assert_eq!(check_chain(&rings, Some(end), &[]).problems, [missing], "{gone}");
        }
        let (_, end) = chain(3);
        assert_eq!(
            check_chain(&[], Some(end), &[]).problems,
            [ChainProblem::Missing { chain: end.chain, from: 0, to: 2 }]
        );
    }

    #[test]
    fn what_was_pruned_is_not_missed_and_what_was_taken_above_it_is() {
        let (mut rings, mut end) = chain(6);
        rings.drain(..3);
        end.floor = 3;
        assert_eq!(check_chain(&rings, Some(end), &[]), ChainReport::default());
        rings[2].place.floor = 3;
        assert_eq!(check_chain(&rings, None, &[]), ChainReport::default());
        rings.remove(0);
        assert_eq!(check_chain(&rings, None, &[]).problems.len(), 1);
        // A prune that was interrupted leaves some of what it wanted to remove.
        let (rings, mut end) = chain(6);
        end.floor = 3;
        let some: Vec<Ring> = [&rings[..1], &rings[2..]].concat();
        assert_eq!(check_chain(&some, Some(end), &[]), ChainReport::default());
    }

    #[test]
    fn a_receipt_put_in_place_of_another_breaks_the_chain() {
        let (mut rings, end) = chain(4);
        let run_id = rings[2].run_id;
        rings[1].hash = Digest::of(b"another");
        assert_eq!(check_chain(&rings, Some(end), &[]).problems, [ChainProblem::Broken { seq: 2, run_id }]);
    }

    #[test]
    fn a_receipt_that_was_written_and_not_noted_is_a_side_branch() {
        let (mut rings, end) = chain(4);
        let mut twin = rings[2];
        twin.run_id = RunId::new();
        twin.hash = Digest::of(b"twin");
        rings.push(twin);
        let report = check_chain(&rings, Some(end), &[]);
        assert_eq!((report.side_branches, report.problems), (vec![twin.run_id], vec![]));
    }

    #[test]
    fn a_chain_that_was_started_again_is_reported() {
        let (old, _) = chain(3);
        let (new, end) = chain(2);
        let all = [old.clone(), new].concat();
        let recorded = [ChainProblem::NotContinued { chain: old[0].place.chain }];
        assert_eq!(check_chain(&all, Some(end), &[]).problems, recorded);
        assert_eq!(check_chain(&all, None, &[]).problems, recorded);
    }

    #[test]
    fn a_closed_chain_is_checked_by_its_recorded_end() {
        let (old, closed) = chain(3);
        let (new, end) = chain(2);
        let all = [old.clone(), new.clone()].concat();
        assert_eq!(check_chain(&all, Some(end), &[closed]), ChainReport::default());
        // Without the note of the end the open chain is the one that goes on.
        assert_eq!(check_chain(&all, None, &[closed]), ChainReport::default());
        let (chain, missing) = (closed.chain, |from, to| ChainProblem::Missing { chain: closed.chain, from, to });
        let cut = [old[..2].to_vec(), new.clone()].concat();
        assert_eq!(check_chain(&cut, Some(end), &[closed]).problems, [missing(2, 2)]);
        assert_eq!(check_chain(&new, Some(end), &[closed]).problems, [missing(0, 2)]);
        let pruned = ChainEnd { chain, next: 3, floor: 3 };
        assert_eq!(check_chain(&new, Some(end), &[pruned]), ChainReport::default());
    }
}
