//! Turns what a call asks for into flags of `nexus run`, unless it is more than the server was started with. Pure.

use crate::params::Params;
use nexus_caller::failure::Failure;
use nexus_runner::request::ChangeMode;
use std::ffi::OsString;

/// Time limit of a command in the foreground, where neither the server nor the call has one.
const USUAL_TIMEOUT_MS: u64 = 600_000;

/// Bounds of every command of the server, from its flags, the profiles and the policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Milliseconds until the time limit.
    pub timeout_ms: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Largest number of processes.
    pub pids: Option<u64>,
    /// The treatment of changes.
    pub changes: ChangeMode,
}

/// Bounds that one call asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Knobs {
    /// Milliseconds until the time limit.
    pub timeout_ms: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Largest number of processes.
    pub pids: Option<u64>,
    /// True for no network at all.
    pub no_network: bool,
    /// The treatment of changes.
    pub changes: Option<String>,
    /// Patterns that are to be unreadable.
    pub hide: Vec<String>,
}

impl Knobs {
    /// Reads the bounds from the arguments of a call.
    pub fn read(params: &mut Params) -> Result<Self, Failure> {
        let network = params.text("network")?;
        if let Some(other) = network.as_deref().filter(|word| *word != "none") {
            let message = format!("A call may only take the network away with \"none\", not ask for {other:?}");
            return Err(widens(message));
        }
        Ok(Self {
            timeout_ms: params.number("timeout_ms")?,
            memory: params.number("memory_bytes")?,
            pids: params.number("max_processes")?,
            no_network: network.is_some(),
            changes: params.text("changes")?,
            hide: params.texts("hide")?.unwrap_or_default(),
        })
    }

    /// Reports whether the bounds of the server have to be known before the call can be decided about.
    pub fn need_bounds(&self) -> bool {
        *self != Self { no_network: self.no_network, hide: self.hide.clone(), ..Self::default() }
    }

    /// Returns the flags of `nexus run` for these bounds.
    pub fn flags(&self, bounds: &Bounds, has_limit: bool) -> Result<Vec<OsString>, Failure> {
        let mut flags = Vec::new();
        let timeout = within("timeout_ms", self.timeout_ms, bounds.timeout_ms)?;
        if let Some(ms) = timeout.or((has_limit && bounds.timeout_ms.is_none()).then_some(USUAL_TIMEOUT_MS)) {
            add(&mut flags, "--timeout", &format!("{ms}ms"));
        }
        if let Some(bytes) = within("memory_bytes", self.memory, bounds.memory)? {
            add(&mut flags, "--memory", &bytes.to_string());
        }
        if let Some(pids) = within("max_processes", self.pids, bounds.pids)? {
            add(&mut flags, "--pids", &pids.to_string());
        }
        if self.no_network {
            flags.push("--no-network".into());
        }
        if let Some(asked) = &self.changes {
            let Some(rank) = rank(asked) else {
                let message = format!("changes is \"commit\", \"review\" or \"discard\", not {asked:?}");
                return Err(Failure::usage("arguments", message, "See the schema of the tool."));
            };
            let has = match bounds.changes {
                ChangeMode::Commit => 0,
                ChangeMode::Ask | ChangeMode::Review => 1,
                ChangeMode::Discard => 2,
            };
            if rank < has {
                let message =
                    format!("The server's changes are to be {}, and a call asks for {asked}", word(bounds.changes));
                return Err(widens(message));
            }
            add(&mut flags, "--changes", asked);
        }
        for pattern in &self.hide {
            add(&mut flags, "--hide", pattern);
        }
        Ok(flags)
    }
}

fn add(flags: &mut Vec<OsString>, flag: &str, value: &str) {
    // In one word, so that no value can be taken for a flag.
    flags.push(format!("{flag}={value}").into());
}

fn within(name: &str, asked: Option<u64>, most: Option<u64>) -> Result<Option<u64>, Failure> {
    match (asked, most) {
        (Some(0), _) => Err(Failure::usage(
            "arguments",
            format!("{name} must be more than 0"),
            "Leave it out for no limit of its own.",
        )),
        (Some(asked), Some(most)) if asked > most => {
            Err(widens(format!("The call asks for {name} {asked}, and the server was started with {most}")))
        }
        _ => Ok(asked),
    }
}

fn widens(message: String) -> Failure {
    let hint = "A call may only ask for less. The person who starts the server can give it more: nexus mcp --help.";
    Failure::refused("widens", message, hint)
}

/// Orders the treatments of changes: the higher the number, the fewer changes reach the workspace without a decision.
fn rank(changes: &str) -> Option<u8> {
    ["commit", "review", "discard"].iter().position(|known| *known == changes).map(|rank| rank as u8)
}

fn word(changes: ChangeMode) -> &'static str {
    match changes {
        ChangeMode::Commit => "committed",
        ChangeMode::Ask | ChangeMode::Review => "reviewed",
        ChangeMode::Discard => "discarded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const BOUNDS: Bounds =
        Bounds { timeout_ms: Some(5000), memory: Some(1000), pids: Some(64), changes: ChangeMode::Review };

    fn flags(arguments: Value, bounds: &Bounds) -> Result<Vec<String>, Failure> {
        let mut params = Params::new(arguments)?;
        let flags = Knobs::read(&mut params)?.flags(bounds, true)?;
        params.end()?;
        Ok(flags.into_iter().map(|flag| flag.into_string().unwrap()).collect())
    }

    #[test]
    fn a_call_may_ask_for_as_much_or_less() {
        let all = json!({
            "timeout_ms": 5000, "memory_bytes": 999, "max_processes": 1, "network": "none", "changes": "discard",
            "hide": ["--rw=/"],
        });
        let expected =
            ["--timeout=5000ms", "--memory=999", "--pids=1", "--no-network", "--changes=discard", "--hide=--rw=/"];
        assert_eq!(flags(all, &BOUNDS).unwrap(), expected);
        assert_eq!(flags(json!({}), &BOUNDS).unwrap(), [""; 0]);
        let open = Bounds { timeout_ms: None, memory: None, pids: None, changes: ChangeMode::Commit };
        assert_eq!(flags(json!({}), &open).unwrap(), ["--timeout=600000ms"]);
        assert_eq!(flags(json!({"timeout_ms": 7_000_000}), &open).unwrap(), ["--timeout=7000000ms"]);
        assert_eq!(flags(json!({"changes": "commit"}), &open).unwrap().last().unwrap(), "--changes=commit");
    }

    #[test]
    fn a_call_that_asks_for_more_is_refused() {
        for more in [
            json!({"timeout_ms": 5001}),
            json!({"memory_bytes": 1001}),
            json!({"max_processes": 65}),
            json!({"changes": "commit"}),
            json!({"network": "unrestricted"}),
            json!({"network": "allowlist"}),
        ] {
            assert_eq!(flags(more.clone(), &BOUNDS).unwrap_err().code, "widens", "{more}");
        }
        for wrong in [json!({"timeout_ms": 0}), json!({"changes": "ask"}), json!({"rw": "/"}), json!({"allow": ["x"]})]
        {
            assert_eq!(flags(wrong.clone(), &BOUNDS).unwrap_err().code, "arguments", "{wrong}");
        }
    }
}
