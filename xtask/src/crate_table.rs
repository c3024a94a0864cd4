//! Compares the list of edges in ARCHITECTURE.md ("Who may depend on whom") with the one of [`crate::rules`]. Pure.
//!
//! A line of the page has one or more entries `CRATE, … ──▶ CRATE, …   (remark)`, with three spaces or more between them.

use std::collections::{BTreeMap, BTreeSet};

/// The line before the list.
const HEADING: &str = "Who may depend on whom:";
const ARROW: &str = "──▶";
/// Stands for an empty list.
const NOTHING: &str = "nothing of ours";
/// Crates of the page that are not members of the workspace.
const NO_MEMBERS: &[&str] = &["fuzz"];

type Edges = BTreeMap<String, BTreeSet<String>>;

/// Returns one sentence for each crate whose edges on the page are not those of `rules`.
pub fn differences(page: &str, rules: &[(&str, &[&str])]) -> Vec<String> {
    let on_page = edges(page);
    let owned = |used: &[&str]| used.iter().map(|one| (*one).to_owned()).collect::<BTreeSet<_>>();
    let in_rules: Edges = rules.iter().map(|(name, used)| ((*name).to_owned(), owned(used))).collect();
    let names: BTreeSet<&String> = on_page.keys().chain(in_rules.keys()).collect();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| !NO_MEMBERS.contains(&name.as_str())) {
        match (on_page.get(name), in_rules.get(name)) {
            (Some(page), Some(rules)) => {
                found.extend(
                    page.difference(rules).map(|used| format!("ARCHITECTURE.md: {name} ──▶ {used} is not in rules.rs")),
                );
                found.extend(
                    rules.difference(page).map(|used| format!("ARCHITECTURE.md: {name} ──▶ {used} is missing")),
                );
            }
            (None, _) => found.push(format!("ARCHITECTURE.md: {name} has no entry under \"{HEADING}\"")),
            (_, None) => found.push(format!("ARCHITECTURE.md: {name} is not in rules.rs")),
        }
    }
    found
}

fn edges(page: &str) -> Edges {
    let list = page.split_once(HEADING).and_then(|(_, rest)| rest.split("```").nth(1)).unwrap_or_default();
    let mut found = Edges::new();
    for entry in list.lines().map(without_remarks).flat_map(|line| entries(&line)) {
        let Some((from, to)) = entry.split_once(ARROW) else { continue };
        let to = if to.trim() == NOTHING { BTreeSet::new() } else { names(to).collect() };
        for from in names(from) {
            found.entry(from).or_default().extend(to.iter().cloned());
        }
    }
    found
}

fn without_remarks(line: &str) -> String {
    let mut depth = 0_usize;
    let mut kept = String::new();
    for letter in line.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(letter),
            _ => {}
        }
    }
    kept
}

fn entries(line: &str) -> Vec<String> {
    line.split("   ").map(|entry| entry.trim().to_owned()).filter(|entry| entry.contains(ARROW)).collect()
}

/// The short names of crates; the page has the directories of some.
fn names(list: &str) -> impl Iterator<Item = String> + '_ {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(|name| match name {
        "drivers/namespace" => "driver-namespace".to_owned(),
        other => other.trim_start_matches("tests/").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "Who may depend on whom:\n\n```\n   cli ──▶ model, drivers/namespace   (all, of course)\n   \
                        jail, guest ──▶ model      model ──▶ nothing of ours   (pure)\n   tests/escape ──▶ nothing of ours\n   \
                        fuzz ──▶ cli\n```\n";
    const RULES: &[(&str, &[&str])] = &[
        ("cli", &["driver-namespace", "model"]),
        ("jail", &["model"]),
        ("guest", &["model"]),
        ("model", &[]),
        ("escape", &[]),
    ];

    #[test]
    fn a_page_with_the_edges_of_the_rules_passes() {
        assert_eq!(differences(PAGE, RULES), Vec::<String>::new());
    }

    #[test]
    fn an_edge_or_a_crate_that_one_of_the_two_lacks_is_named() {
        let more = PAGE.replace("jail, guest ──▶ model", "jail, guest ──▶ model, cli");
        let named = |name| format!("ARCHITECTURE.md: {name} ──▶ cli is not in rules.rs");
        assert_eq!(differences(&more, RULES), [named("guest"), named("jail")]);
        let fewer = PAGE.replace("model, drivers/namespace", "model");
        assert_eq!(differences(&fewer, RULES), ["ARCHITECTURE.md: cli ──▶ driver-namespace is missing"]);
        assert_eq!(differences(PAGE, &RULES[1..]), ["ARCHITECTURE.md: cli is not in rules.rs"]);
        let none = PAGE.replace("   tests/escape ──▶ nothing of ours\n", "");
        assert_eq!(
            differences(&none, RULES),
            ["ARCHITECTURE.md: escape has no entry under \"Who may depend on whom:\""]
        );
        assert_eq!(differences("", RULES).len(), RULES.len());
    }
}
