//! `check-spec`: every test that SPECIFICATION.md names exists. After the tests, [`check_ran`]: it has run.

use std::collections::BTreeSet;
use std::path::Path;

use crate::counts::Counts;
use crate::deps::read;
use crate::failure::Failure;
use crate::sources::{self, Source};
use crate::spec_table::{self, Evidence, Promise};
use crate::workspace::Workspace;

/// Tests that a message names; the others are counted.
const MAX_SHOWN: usize = 20;
/// Where the vectors of the escape suite are named.
const ESCAPE_SOURCES: &str = "tests/escape/src";
/// Where the cases of the virtual machine are named.
const MACHINE_SOURCES: &str = "xtask/src/vm/guest";

/// Compares the document with the sources; every gap is named.
pub fn check(workspace: &Workspace) -> Result<(), Failure> {
    let advice = "write the missing test, correct the name, or say pending: issue \"title\"";
    let promises = promises(workspace, advice)?;
    let sources = sources::all(&workspace.root)?;
    let missing = missing_evidence(&promises, &sources);
    if !missing.is_empty() {
        return Err(Failure::new(format!("SPECIFICATION.md:\n  {}", missing.join("\n  ")), advice));
    }
    let pending = promises.iter().filter(|promise| promise.pending.is_some()).count();
    println!("check-spec: {} promises, {pending} of them pending in whole or in part", promises.len());
    Ok(())
}

fn promises(workspace: &Workspace, advice: &str) -> Result<Vec<Promise>, Failure> {
    let text = read(&workspace.root.join("SPECIFICATION.md"))?;
    spec_table::parse(&text)
        .map_err(|errors| Failure::new(format!("SPECIFICATION.md:\n  {}", errors.join("\n  ")), advice))
}

/// Compares the document with the tests that ran in the steps before: a test may be in the sources and yet not be
/// compiled (`cfg`), be ignored on a condition, or stand in a file that no crate includes.
pub fn check_ran(workspace: &Workspace, counts: &mut Counts) -> Result<(), Failure> {
    let advice = "look at the features, conditions and module of the test, or at the failure of the tests before";
    let idle = idle(&promises(workspace, advice)?, &counts.ran);
    if idle.is_empty() {
        println!("check-spec: every test that SPECIFICATION.md names is among the {} that ran", counts.ran.len());
        return Ok(());
    }
    let shown: Vec<&str> = idle.iter().take(MAX_SHOWN).map(String::as_str).collect();
    let more = idle.len() - shown.len();
    Err(Failure::new(format!("SPECIFICATION.md:\n  {}\n  and {more} more", shown.join("\n  ")), advice))
}

/// One sentence for each test function that a promise names and that did not run.
fn idle(promises: &[Promise], ran: &BTreeSet<String>) -> Vec<String> {
    let named = promises.iter().flat_map(|promise| promise.evidence.iter().map(|evidence| (&promise.id, evidence)));
    let missing = named.filter_map(|(id, evidence)| match evidence {
        Evidence::Test(name) if !ran.contains(name) => Some(format!("{id}: {name} did not run")),
        Evidence::Test(_) | Evidence::Escape(_) | Evidence::Machine(_) => None,
    });
    missing.collect()
}

/// One sentence for each test or vector that a promise names and no source has.
fn missing_evidence(promises: &[Promise], sources: &[Source]) -> Vec<String> {
    let tests: BTreeSet<String> = sources
        .iter()
        .flat_map(|source| [spec_table::test_functions(&source.text), spec_table::listed_tests(&source.text)])
        .flatten()
        .collect();
    let named = |folder: &str, name: &str| {
        let mut below = sources.iter().filter(|source| source.path.starts_with(Path::new(folder)));
        below.any(|source| source.text.contains(&format!("\"{name}\"")))
    };
    let mut missing = Vec::new();
    for promise in promises {
        for evidence in &promise.evidence {
            match evidence {
                Evidence::Test(name) if !tests.contains(name) => {
                    missing.push(format!("{}: no test function {name} runs", promise.id));
                }
                Evidence::Escape(vector) if !named(ESCAPE_SOURCES, vector) => {
                    missing.push(format!("{}: the escape suite has no vector {vector}", promise.id));
                }
                Evidence::Machine(case) if !named(MACHINE_SOURCES, case) => {
                    missing.push(format!("{}: the virtual machine has no case {case}", promise.id));
                }
                Evidence::Test(_) | Evidence::Escape(_) | Evidence::Machine(_) => {}
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn source(path: &str, text: &str) -> Source {
        Source { path: PathBuf::from(path), text: text.to_owned() }
    }

    fn missing(row: &str, sources: &[Source]) -> Vec<String> {
        missing_evidence(&spec_table::parse(row).unwrap(), sources)
    }

    #[test]
    fn a_test_that_exists_holds_its_promise_and_one_that_does_not_is_named() {
        let sources = [source("crates/model/src/lib.rs", "#[test]\nfn it_holds() {}")];
        assert!(missing("| S-001 | x | `it_holds` |", &sources).is_empty());
        assert_eq!(missing("| S-001 | x | `it_fails` |", &sources), ["S-001: no test function it_fails runs"]);
    }

    #[test]
    fn a_promised_test_that_did_not_run_is_named() {
        let promises = spec_table::parse("| S-001 | x | `it_ran`, `it_did_not`, `escape:A01` |").unwrap();
        let ran = BTreeSet::from(["it_ran".to_owned()]);
        assert_eq!(idle(&promises, &ran), ["S-001: it_did_not did not run"]);
    }

    #[test]
    fn a_vector_counts_only_where_the_escape_suite_has_it() {
        let suite = [source("tests/escape/src/cases.rs", "case(\"A01\")")];
        let elsewhere = [source("crates/jail/src/lib.rs", "\"A01\"")];
        assert!(missing("| S-001 | x | `escape:A01` |", &suite).is_empty());
        assert_eq!(missing("| S-001 | x | `escape:A02` |", &suite).len(), 1);
        assert_eq!(missing("| S-001 | x | `escape:A01` |", &elsewhere).len(), 1);
    }

    #[test]
    fn a_case_counts_only_where_the_virtual_machine_has_it() {
        let machine = [source("xtask/src/vm/guest/groups.rs", "(\"a_limit_holds\", limit)")];
        let elsewhere = [source("crates/jail/src/lib.rs", "\"a_limit_holds\"")];
        assert!(missing("| S-001 | x | `vm:a_limit_holds` |", &machine).is_empty());
        assert_eq!(missing("| S-001 | x | `vm:a_limit` |", &machine).len(), 1);
        assert_eq!(missing("| S-001 | x | `vm:a_limit_holds` |", &elsewhere).len(), 1);
    }
}
