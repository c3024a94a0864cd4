//! Decisions by the ceilings of a policy: what their lists close, and what they demand of a connection.

use super::speech::{Speech, plain_http};
use super::who::{Who, allowing};
use crate::net::cause::Cause;
use crate::net::permit::Denial;
use crate::net::policy::Policy;
use crate::net::policy::ceiling::Ceiling;
use crate::net::rules::name::Name;
use crate::net::rules::target::Port;
use nexus_model::capability::NetMode;

/// Demands of a policy's ceilings on a connection that none of them closes.
#[derive(Debug, Default)]
pub(in crate::net) struct Demands {
    pub(in crate::net) tls: bool,
    pub(in crate::net) http: bool,
    pub(in crate::net) named: bool,
    /// The question for a person, where a list that may grow has no rule for it.
    pub(in crate::net) question: Option<Denial>,
}

/// Decides about a name by the ceilings alone.
pub(super) fn demands(policy: &Policy, name: &Name, port: Port, who: Who<'_>) -> Result<Demands, Denial> {
    let mut all = Demands::default();
    for ceiling in &policy.ceilings {
        match ceiling.mode {
            NetMode::Unrestricted => {}
            NetMode::None => return Err(closed(&format!("{name}:{port}"), ceiling)),
            NetMode::Allowlist => {
                let rules = allowing(ceiling.allow.matching(name), port, who);
                if rules.is_empty() {
                    let denial = closed(&format!("{name}:{port}"), ceiling);
                    if !(ceiling.asks && policy.ask && policy.mode == NetMode::Allowlist) {
                        return Err(denial);
                    }
                    let explanation = format!("{}; a person can be asked", denial.explanation);
                    let cause = Cause::MayAsk;
                    all.question = Some(Denial { cause, code: cause.code(), explanation, ..denial });
                    continue;
                }
                let speech = Speech::of(&rules, port);
                let http = plain_http(port, speech);
                all.tls |= speech == Speech::Tls;
                all.http |= http;
                all.named |= ceiling.refuse_unnamed && (http || speech == Speech::Tls);
            }
        }
    }
    Ok(all)
}

/// Returns the denial of what the lists of the ceilings do not have.
pub(super) fn narrowed(policy: &Policy, shown: &str) -> Denial {
    let ceiling = policy.ceilings.iter().find(|ceiling| ceiling.mode != NetMode::Unrestricted);
    ceiling.map_or_else(
        || Denial::new(Cause::Narrowed, format!("{shown} is closed by a narrower policy on top")),
        |ceiling| closed(shown, ceiling),
    )
}

/// Returns the denial of a port on which one list demands TLS and another one HTTP whose requests are read: whichever
/// was dropped, one of the two would open what it closes.
pub(super) fn contradiction(policy: &Policy, shown: &str) -> Denial {
    let file =
        policy.ceilings.iter().flat_map(|ceiling| ceiling.allow.rules()).find_map(|rule| rule.source.file.as_deref());
    let with =
        file.map_or_else(|| "a narrower policy on top".to_owned(), |file| format!("the narrower list of {file}"));
    let why = format!("{shown} is for TLS or for plain HTTP, and the rules and {with} disagree which of them");
    Denial::new(Cause::Narrowed, why)
}

fn closed(shown: &str, ceiling: &Ceiling) -> Denial {
    let file = ceiling.allow.rules().iter().find_map(|rule| rule.source.file.as_deref());
    Denial::new(
        Cause::Narrowed,
        match file {
            Some(file) => format!("{shown} is not in the narrower list of {file}"),
            None => format!("{shown} is not in a narrower policy on top"),
        },
    )
}

#[cfg(test)]
#[path = "demands_tests.rs"]
mod tests;
