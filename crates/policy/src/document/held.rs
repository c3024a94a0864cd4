//! The parts of a document that a control plane cannot hold a directive to: it decides when a directive is created and claimed, and
//! sees none of its connections and processes.

use super::form::PolicyDocument;
use crate::net::{AnyRule, Methods};
use crate::profile::{LimitKind, NetMode, Place};

/// Returns each part of a document that [`super::check_directive`] does not decide, with its place. The documents of a territory
/// hold these parts.
#[must_use]
pub fn not_held(document: &PolicyDocument) -> Vec<(String, Place)> {
    let mut found = Vec::new();
    if let Some(net) = &document.net {
        // A directive with an open network names no single destinations.
        let is_list = matches!(net.mode, Some((NetMode::None | NetMode::Allowlist, _)));
        for entry in &net.deny {
            match &entry.rule {
                AnyRule::Address(_) => found.push((format!("net.deny {} (an address)", entry.text), entry.place)),
                AnyRule::Name(_) if !is_list => {
                    found.push((format!("net.deny {} (without net.mode: allowlist)", entry.text), entry.place));
                }
                AnyRule::Name(_) => {}
            }
        }
        if let Some((_, place)) = net.methods.filter(|(methods, _)| *methods != Methods::Any) {
            found.push(("net.methods".to_owned(), place));
        }
    }
    found.extend(document.budgets.iter().map(|(kind, (_, place))| (format!("budgets.{}", kind.key()), *place)));
    let pids = document.limits.iter().filter(|(kind, _)| *kind == LimitKind::Pids);
    found.extend(pids.map(|(kind, (_, place))| (format!("limits.{}", kind.key()), *place)));
    found
}

#[cfg(test)]
mod tests {
    use super::super::loaded::LoadedPolicy;
    use super::*;

    fn parts(rest: &str) -> Vec<String> {
        let text = format!("policy: nexus.policy/1\nid: a\nlevel: account\n{rest}");
        let loaded = LoadedPolicy::read("a.yaml", &text).unwrap();
        not_held(&loaded.document).into_iter().map(|(what, place)| format!("{}: {what}", place.line)).collect()
    }

    #[test]
    fn a_part_that_no_claim_asks_about_is_named_with_its_line() {
        let found = parts(
            "net: {allow: [a.test], deny: [b.a.test, 10.0.0.0/8], methods: read_only}\nbudgets: {connections: 1}\n\
             limits: {memory: 1G, pids: 5}\n",
        );
        let expected =
            ["4: net.deny 10.0.0.0/8 (an address)", "4: net.methods", "5: budgets.connections", "6: limits.pids"];
        assert_eq!(found, expected);
        assert_eq!(parts("net: {deny: [b.test]}\n"), ["4: net.deny b.test (without net.mode: allowlist)"]);
        assert_eq!(parts("net: {mode: unrestricted, deny: [b.test]}\n").len(), 1);
        let held = "net: {mode: none}\nfs: {deny: [\"workspace:/keys/**\"]}\nlimits: {memory: 1G, cpus: 1, disk: 1G, timeout: 1h}\n\
                    approval: {exec: needs_approval, changes: forbidden, egress: forbidden, quorum: 2}\n\
                    commands: {forbidden: [\"rm *\"]}\nsecrets: [A]\nsandbox: [untrusted]\n";
        assert_eq!(parts(held), Vec::<String>::new());
    }
}
