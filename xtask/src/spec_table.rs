//! The table rows of SPECIFICATION.md, and the test functions of a source file: pure parsers.
//!
//! A promise is one line, so that a reader can find it by its number and a tool can hold it to its tests:
//!
//! ```text
//! | S-012 | what is promised | `a_test_function`, `escape:A01`, `vm:a_case` |
//! | S-013 | what is promised | pending: issue "title of the issue" |
//! ```

use crate::rust_text::code_only;
use std::collections::BTreeSet;

/// Evidence for a promise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// The name of a Rust test function.
    Test(String),
    /// The number of a vector of the escape suite, such as `A01`.
    Escape(String),
    /// The name of a case that runs in the virtual machine.
    Machine(String),
}

/// One numbered promise.
#[derive(Debug, PartialEq, Eq)]
pub struct Promise {
    /// `S-` and three digits, or four from 1000 on.
    pub id: String,
    /// Evidence for the promise; empty only when `pending` is set.
    pub evidence: Vec<Evidence>,
    /// The issue that will bring the test.
    pub pending: Option<String>,
}

/// One file of the specification.
pub struct Document {
    /// The path from the root of the checkout, for messages.
    pub name: String,
    /// Everything that stands in the file.
    pub text: String,
}

/// Reads the rows of one document.
#[cfg(test)]
pub fn parse(text: &str) -> Result<Vec<Promise>, Vec<String>> {
    parse_all(&[Document { name: "SPECIFICATION.md".to_owned(), text: text.to_owned() }])
}

/// Reads every row that starts like a promise. The errors name the line; a row that cannot be read is never skipped,
/// because a skipped row is a promise that nothing holds. A number stands in all documents together once.
pub fn parse_all(documents: &[Document]) -> Result<Vec<Promise>, Vec<String>> {
    let mut promises: Vec<Promise> = Vec::new();
    let mut errors = Vec::new();
    let lines = documents.iter().flat_map(|document| {
        let lines = document.text.lines().enumerate();
        lines.map(move |(index, line)| (format!("{} line {}", document.name, index + 1), line))
    });
    for (place, line) in lines {
        if !line.replace(' ', "").to_uppercase().starts_with("|S-") {
            continue;
        }
        match parse_row(line) {
            Ok(promise) if promises.iter().any(|earlier| earlier.id == promise.id) => {
                errors.push(format!("{place}: {} stands there twice", promise.id));
            }
            Ok(promise) => promises.push(promise),
            Err(reason) => errors.push(format!("{place}: {reason}")),
        }
    }
    if promises.is_empty() && errors.is_empty() {
        errors.push("no promise of the form | S-NNN | promise | `test` | was found".to_owned());
    }
    if errors.is_empty() { Ok(promises) } else { Err(errors) }
}

/// Compares the pages with the table of areas in the first document: each page stands there once, with the number of its
/// promises, and has them in the order of their numbers.
pub fn misplaced(documents: &[Document]) -> Vec<String> {
    let Some((table, pages)) = documents.split_first() else { return Vec::new() };
    let mut errors = Vec::new();
    for page in pages {
        let numbers: Vec<(u32, &str)> = page
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(' ').next())
            .filter_map(|id| Some((id.strip_prefix("S-")?.parse().ok()?, id)))
            .collect();
        let swapped = numbers.iter().zip(numbers.iter().skip(1)).find(|(first, second)| first.0 > second.0);
        if let Some(((_, first), (_, second))) = swapped {
            errors.push(format!("{}: {first} stands before {second}", page.name));
        }
        let link = format!("]({}) | ", page.name);
        let rows: Vec<&str> = table.text.lines().filter_map(|line| Some(line.split_once(&link)?.1)).collect();
        let expected = format!("{} |", numbers.len());
        if rows != [expected.as_str()] {
            errors.push(format!("{}: wants one row for {} that ends with {expected}", table.name, page.name));
        }
    }
    errors
}

fn parse_row(line: &str) -> Result<Promise, String> {
    let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
    let [id, promise, held_by] = cells.as_slice() else {
        return Err(format!("has {} cells instead of three (a | in the text must be written &#124;)", cells.len()));
    };
    let digits = id.strip_prefix("S-").unwrap_or_default();
    let is_numbered = digits.len() == 3 || digits.len() == 4 && !digits.starts_with('0');
    if !is_numbered || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{id:?} is not S- and three digits, or four from 1000 on"));
    }
    if promise.is_empty() {
        return Err(format!("{id} promises nothing"));
    }
    let (names, pending) = match held_by.split_once("pending:") {
        Some((names, issue)) => (names, Some(parse_issue(id, issue)?)),
        None => (*held_by, None),
    };
    let evidence = parse_names(id, names)?;
    if evidence.is_empty() && pending.is_none() {
        return Err(format!("{id} names no test and is not pending"));
    }
    Ok(Promise { id: (*id).to_owned(), evidence, pending })
}

fn parse_issue(id: &str, text: &str) -> Result<String, String> {
    let title = text.trim().strip_prefix("issue \"").and_then(|rest| rest.strip_suffix('"'));
    match title {
        Some(title) if !title.is_empty() => Ok(title.to_owned()),
        _ => Err(format!("{id} is pending without an issue: write pending: issue \"title\"")),
    }
}

fn parse_names(id: &str, text: &str) -> Result<Vec<Evidence>, String> {
    let mut evidence = Vec::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 0 {
            // Between the names only commas: a name without backticks would otherwise be passed over.
            if part.chars().any(|character| character != ',' && !character.is_whitespace()) {
                return Err(format!("{id}: {:?} is neither a `test` nor pending", part.trim()));
            }
        } else if let Some(vector) = part.strip_prefix("escape:") {
            if !is_vector(vector) {
                return Err(format!("{id}: {part:?} is not a vector such as escape:A01"));
            }
            evidence.push(Evidence::Escape(vector.to_owned()));
        } else if let Some(case) = part.strip_prefix("vm:") {
            if !is_function(case) {
                return Err(format!("{id}: {part:?} is not a case such as vm:a_limit_holds"));
            }
            evidence.push(Evidence::Machine(case.to_owned()));
        } else if is_function(part) {
            evidence.push(Evidence::Test(part.to_owned()));
        } else {
            return Err(format!("{id}: {part:?} is not the name of a function"));
        }
    }
    Ok(evidence)
}

fn is_vector(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_uppercase()) && text.len() == 3 && bytes.all(|b| b.is_ascii_digit())
}

fn is_function(text: &str) -> bool {
    let first = text.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_lowercase())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The names of the functions in `source` that run as tests: marked `#[test]` or `#[tokio::test]` and not `#[ignore]`. A helper of the
/// same name, a test that never runs, or one in a comment or a string holds no promise.
pub fn test_functions(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let (mut is_test, mut is_ignored) = (false, false);
    for line in code_only(source).lines().map(str::trim_start) {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        is_ignored |= line.starts_with("#[ignore");
        if let Some(name) = function_name(line) {
            if is_test && !is_ignored {
                found.insert(name.to_owned());
            }
            (is_test, is_ignored) = (false, false);
        }
    }
    found
}

/// The names in a table of a test program that runs its tests itself: `("NAME", path::NAME)`. What the program prints tells
/// whether it ran them.
pub fn listed_tests(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (before, rest) in source.match_indices('"').map(|(at, _)| source.split_at(at)) {
        let Some((name, rest)) = rest[1..].split_once("\",") else { continue };
        let path: &str = rest.trim_start().split([',', ')']).next().unwrap_or_default();
        if before.trim_end().ends_with('(') && is_function(name) && path.rsplit("::").next() == Some(name) {
            found.insert(name.to_owned());
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("#[test]").map_or(line, str::trim_start);
    let rest = rest.strip_prefix("pub ").unwrap_or(rest);
    let rest = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
    rest.find(|character: char| !character.is_ascii_alphanumeric() && character != '_').map(|end| &rest[..end])
}

#[cfg(test)]
#[path = "spec_table_tests.rs"]
mod tests;
