//! Named groups of rules: code hosts from a dated data file; package managers from the user's own clients, see
//! [`crate::net::packages`].

use crate::net::rules::rule::{Origin, Rule, RuleError, Source, parse_allow};
use std::collections::BTreeMap;

/// Rules by group name, such as `code:github` or `pkg:pip`.
pub type Groups = BTreeMap<String, Vec<Rule>>;

const CODE_HOSTS: &str = include_str!("../../../data/code-hosts.txt");
const CODE_HOSTS_FILE: &str = "built-in code-hosts.txt";

/// Returns the groups that come with the program.
pub fn builtin_groups() -> Result<Groups, RuleError> {
    read_groups(CODE_HOSTS, CODE_HOSTS_FILE)
}

/// Reads lines `GROUP HOST[:PORTS]`; empty lines and those that begin with `#` are skipped.
pub fn read_groups(text: &str, file: &str) -> Result<Groups, RuleError> {
    let mut groups = Groups::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (group, rule) = line.split_once(' ').unwrap_or((line, ""));
        let source = Source { origin: Origin::Group, text: group.into(), file: Some(file.into()), line: Some(number) };
        groups.entry(group.into()).or_default().push(parse_allow(rule.trim(), source)?);
    }
    Ok(groups)
}
