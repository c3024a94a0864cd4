//! The rules of a policy as lines, for a receipt.

use crate::net::policy::Policy;
use crate::net::rules::rule::{AddressRule, Rule};

impl Policy {
    /// Lists every rule as `allow HOST:PORTS[/tcp|/tls]`, `allow-private …`, `allow-host-port PORT` or `deny …`, and the
    /// narrower list of a ceiling as `only …`, in canonical order.
    pub fn listed(&self) -> Vec<String> {
        let name = |word: &str, rule: &Rule| {
            let program = rule.program.as_ref().map(|program| format!("@{program}")).unwrap_or_default();
            format!("{word} {}{program}", rule.place())
        };
        let address = |word: &str, rule: &AddressRule| {
            let (open, close) = if rule.net.addr().is_ipv6() { ("[", "]") } else { ("", "") };
            format!("{word} {open}{}{close}:{}", rule.net, rule.ports)
        };
        let allow = |rule: &Rule| if rule.private { "allow-private" } else { "allow" };
        let mut all: Vec<String> = self.allow.rules().iter().map(|rule| name(allow(rule), rule)).collect();
        all.extend(self.allow_addresses.iter().map(|rule| address("allow-private", rule)));
        all.extend(self.host_ports.iter().map(ToString::to_string));
        all.extend(self.deny.rules().iter().map(|rule| name("deny", rule)));
        all.extend(self.deny_addresses.iter().map(|rule| address("deny", rule)));
        for ceiling in &self.ceilings {
            all.extend(ceiling.allow.rules().iter().map(|rule| name("only", rule)));
        }
        all.dedup();
        all
    }
}
