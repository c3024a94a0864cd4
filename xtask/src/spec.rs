//! `check-spec`: every test, vector and case that SPECIFICATION.md names exists. At the end, [`check_all_ran`]: it has run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::counts::Counts;
use crate::deps::read;
use crate::failure::Failure;
use crate::sources::{self, Source};
use crate::spec_table::{self, Document, Evidence, Promise};
use crate::workspace::Workspace;

/// Tests that a message names; the others are counted.
const MAX_SHOWN: usize = 20;
/// Directory with the page of each area of the specification.
const AREAS: &str = "docs/specification";
/// Directory with the vectors of the escape suite.
const ESCAPE_SOURCES: &str = "tests/escape/src";
/// Directory with the cases of the virtual machine.
const MACHINE_SOURCES: &str = "tests/vm/src/guest";

/// Compares the document with the sources; every gap is named.
pub fn check(workspace: &Workspace) -> Result<(), Failure> {
    let advice = "write the missing test, correct the name, or say pending: issue \"title\"";
    let promises = promises(workspace, advice)?;
    let misplaced = spec_table::misplaced(&documents(workspace)?);
    if !misplaced.is_empty() {
        return Err(Failure::new(
            format!("the specification:\n  {}", misplaced.join("\n  ")),
            "sort the rows, and count them",
        ));
    }
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
    spec_table::parse_all(&documents(workspace)?)
        .map_err(|errors| Failure::new(format!("the specification:\n  {}", errors.join("\n  ")), advice))
}

/// Reads SPECIFICATION.md and the page of each area.
fn documents(workspace: &Workspace) -> Result<Vec<Document>, Failure> {
    let mut paths = vec![PathBuf::from("SPECIFICATION.md")];
    let unreadable = |error| Failure::new(format!("{AREAS}: {error}"), "restore the directory from git");
    for entry in std::fs::read_dir(workspace.root.join(AREAS)).map_err(unreadable)? {
        paths.push(Path::new(AREAS).join(entry.map_err(unreadable)?.file_name()));
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| Ok(Document { text: read(&workspace.root.join(&path))?, name: path.display().to_string() }))
        .collect()
}

/// Compares the document with what ran in the steps before. A test may be in the sources and yet not be compiled (`cfg`), be
/// ignored on a condition, or stand in a file that no crate includes; a vector may be named in the suite and never be
/// played. The cases of the virtual machine are not part of the command.
pub fn check_ran(workspace: &Workspace, counts: &mut Counts) -> Result<(), Failure> {
    compare(workspace, counts, false)
}

/// The same where the virtual machine is part of the command.
pub fn check_all_ran(workspace: &Workspace, counts: &mut Counts) -> Result<(), Failure> {
    compare(workspace, counts, true)
}

fn compare(workspace: &Workspace, counts: &Counts, with_machine: bool) -> Result<(), Failure> {
    let advice = "look at the features, conditions and module of the test, or at the failure of the tests before";
    let promises = promises(workspace, advice)?;
    let Gaps { missing, skipped } = gaps(&promises, counts, with_machine);
    for line in &skipped {
        println!("check-spec: {line}");
    }
    if missing.is_empty() {
        let (tests, vectors, cases) = (counts.ran.len(), counts.vectors.len(), counts.cases.len());
        println!(
            "check-spec: {} promises, held by what ran: {tests} tests, {vectors} vectors, {cases} cases of the virtual \
             machine; {} names of evidence were skipped",
            promises.len(),
            skipped.len()
        );
        return Ok(());
    }
    let shown: Vec<&str> = missing.iter().take(MAX_SHOWN).map(String::as_str).collect();
    let more = missing.len() - shown.len();
    Err(Failure::new(format!("SPECIFICATION.md:\n  {}\n  and {more} more", shown.join("\n  ")), advice))
}

/// Evidence that is named and was not seen. One sentence for each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Gaps {
    /// It did not run, and nothing said why.
    missing: Vec<String>,
    /// It was skipped on this machine, and said so.
    skipped: Vec<String>,
}

fn gaps(promises: &[Promise], counts: &Counts, with_machine: bool) -> Gaps {
    let mut gaps = Gaps::default();
    let named = promises.iter().flat_map(|promise| promise.evidence.iter().map(|evidence| (&promise.id, evidence)));
    for (id, evidence) in named {
        let (name, ran, skipped) = match evidence {
            Evidence::Test(name) => {
                (name.clone(), counts.ran.contains(name), counts.idle.get(name).map(String::as_str))
            }
            Evidence::Escape(vector) => {
                let skipped = counts.skipped_rows.iter().find(|(id, _)| id == vector).map(|(_, row)| row.as_str());
                (format!("escape:{vector}"), counts.vectors.contains(vector), skipped)
            }
            Evidence::Machine(case) => {
                let elsewhere = (!with_machine).then_some("`cargo xtask ci` starts the virtual machine");
                let skipped = counts.no_machine.as_deref().or(elsewhere);
                (format!("vm:{case}"), counts.cases.contains(case), skipped)
            }
        };
        match (evidence, ran, skipped) {
            // Such a test ends as one that passed.
            (Evidence::Test(_), _, Some(reason)) | (_, false, Some(reason)) => {
                gaps.skipped.push(format!("{id}: {name} was skipped: {reason}"));
            }
            (_, false, None) => gaps.missing.push(format!("{id}: {name} did not run")),
            (_, true, _) => {}
        }
    }
    gaps
}

/// One sentence for each test or vector that a promise names and no source has.
fn missing_evidence(promises: &[Promise], sources: &[Source]) -> Vec<String> {
    let tests: BTreeSet<String> = sources
        .iter()
        .flat_map(|source| [spec_table::test_functions(&source.text), spec_table::listed_tests(&source.text)])
        .flatten()
        .collect();
    let named = |directory: &str, name: &str| {
        let mut below = sources.iter().filter(|source| source.path.starts_with(Path::new(directory)));
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
    use std::collections::BTreeMap;
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

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_promised_test_that_did_not_run_is_named() {
        let promises = spec_table::parse("| S-001 | x | `it_ran`, `it_did_not`, `escape:A01`, `vm:a_case` |").unwrap();
        let ran = Counts { ran: set(&["it_ran"]), ..Counts::default() };
        let missing = |counts: &Counts, with_machine| gaps(&promises, counts, with_machine).missing;
        assert_eq!(missing(&ran, false), ["S-001: it_did_not did not run", "S-001: escape:A01 did not run"]);
        assert_eq!(missing(&ran, true)[2..], ["S-001: vm:a_case did not run"]);
        let all =
            Counts { ran: set(&["it_ran", "it_did_not"]), vectors: set(&["A01"]), cases: set(&["a_case"]), ..ran };
        assert_eq!(gaps(&promises, &all, true), Gaps::default());
    }

    #[test]
    fn evidence_that_was_skipped_is_no_evidence() {
        let promises = spec_table::parse("| S-001 | x | `it_ran`, `escape:A01`, `vm:a_case` |").unwrap();
        let counts = Counts {
            ran: set(&["it_ran"]),
            idle: BTreeMap::from([("it_ran".to_owned(), "only root".to_owned())]),
            skipped_rows: vec![("A01".to_owned(), "x32: not in this kernel".to_owned())],
            no_machine: Some("no QEMU".to_owned()),
            ..Counts::default()
        };
        let Gaps { missing, skipped } = gaps(&promises, &counts, true);
        assert_eq!(missing, [] as [&str; 0]);
        let reported = [
            "S-001: it_ran was skipped: only root",
            "S-001: escape:A01 was skipped: x32: not in this kernel",
            "S-001: vm:a_case was skipped: no QEMU",
        ];
        assert_eq!(skipped, reported);
        // One attack of a vector that was played is enough, whatever became of the others.
        let played = Counts { vectors: set(&["A01"]), ..counts };
        assert_eq!(gaps(&promises, &played, true).skipped, [reported[0], reported[2]]);
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
        let machine = [source("tests/vm/src/guest/groups.rs", "(\"a_limit_holds\", limit)")];
        let elsewhere = [source("crates/jail/src/lib.rs", "\"a_limit_holds\"")];
        assert!(missing("| S-001 | x | `vm:a_limit_holds` |", &machine).is_empty());
        assert_eq!(missing("| S-001 | x | `vm:a_limit` |", &machine).len(), 1);
        assert_eq!(missing("| S-001 | x | `vm:a_limit_holds` |", &elsewhere).len(), 1);
    }
}
