//! The programs that run alone, and those that run first.

use super::program::TestProgram;

/// Programs that run without a neighbour, each with the reason.
pub const ALONE: &[(&str, &str)] = &[
    ("nexus-cli hold", "keeps every processor busy, and measures the end of each run to a second"),
    ("nexus-cli crowd", "counts the keys of the kernel, and has as many sandboxes as the machine carries"),
    ("nexus-cli quotas", "uses up what the kernel counts for root over all its processes"),
    ("nexus-cli calls", "counts system calls, and a run that waits for a processor makes more"),
    ("nexus-driver-namespace launch_calls", "counts system calls, and a launch that waits for a processor makes more"),
];

/// The slowest of the others. They run first, in this order: the last program to end should be a short one. Most of them wait, and
/// those that compute (the suites, the real tools) stand between them.
const FIRST: &[&str] = &[
    "nexus-cli leftovers",
    "nexusd directives",
    "nexus-cli suites",
    "nexus-cli console",
    "nexus-layer git_lost",
    "nexus-cli clients",
    "nexus-cli real_tools",
    "nexus-cli changes_interrupted",
    "nexus-mothership on_postgres",
    "nexus-cli fleet_live",
    "nexus-cli lingers",
    "nexus-cli run",
    "nexus-cli fleet_history",
    "nexus-mothership schemathesis",
    "nexus-cli sessions",
    "nexus-cli upstream",
    "nexus-cli memory",
    "nexus-cli ending",
    "nexus-cli net",
    "nexus-cli faults",
    "nexus-cli bad_input",
    "nexus-cli changes_reject",
    "nexus-cli guide",
];

/// Divides the programs into those that run beside each other, in their order, and those that run alone after them.
pub fn split(programs: Vec<TestProgram>) -> (Vec<TestProgram>, Vec<TestProgram>) {
    let is_alone = |program: &TestProgram| ALONE.iter().any(|(label, _)| *label == program.label);
    let (alone, mut beside): (Vec<_>, Vec<_>) = programs.into_iter().partition(is_alone);
    // The sort is stable: all others keep the order of cargo.
    beside.sort_by_key(|program| FIRST.iter().position(|label| *label == program.label).unwrap_or(FIRST.len()));
    (beside, alone)
}

/// Returns the names of this file that no program has: a name that does not fit would run its program beside others.
pub fn unknown(programs: &[TestProgram]) -> Vec<&'static str> {
    let names = ALONE.iter().map(|(label, _)| *label).chain(FIRST.iter().copied());
    names.filter(|name| programs.iter().all(|program| program.label != *name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    fn program(label: &str) -> TestProgram {
        let path = PathBuf::from("/bin/true");
        TestProgram { label: label.to_owned(), path, arguments: Vec::new(), directory: PathBuf::from("/") }
    }

    fn labels(programs: &[TestProgram]) -> Vec<&str> {
        programs.iter().map(|program| program.label.as_str()).collect()
    }

    #[test]
    fn a_program_that_counts_the_machine_runs_after_all_others() {
        let (beside, alone) = split(vec![program(ALONE[0].0), program("nexus-x a"), program("nexus-x b")]);
        assert_eq!((labels(&beside), labels(&alone)), (vec!["nexus-x a", "nexus-x b"], vec![ALONE[0].0]));
    }

    #[test]
    fn the_slowest_programs_run_first_and_the_others_in_their_order() {
        let (last, first) = (FIRST[FIRST.len() - 1], FIRST[0]);
        let (beside, _) = split(["nexus-x z", last, "nexus-x a", first].map(program).into());
        assert_eq!(labels(&beside), [first, last, "nexus-x z", "nexus-x a"]);
    }

    #[test]
    fn a_name_without_its_program_is_reported() {
        let mut programs: Vec<_> =
            ALONE.iter().map(|(label, _)| *label).chain(FIRST.iter().copied()).map(program).collect();
        assert_eq!(unknown(&programs), [""; 0]);
        programs.pop();
        assert_eq!(unknown(&programs), [*FIRST.last().unwrap()]);
        let names: BTreeSet<_> = labels(&programs).into_iter().collect();
        assert_eq!(names.len(), programs.len(), "a program stands in both lists");
    }
}
