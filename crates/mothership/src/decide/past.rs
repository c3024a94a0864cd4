//! A directive as a run that policy documents can be asked about: for `nexus policy replay --fleet` and for the console.
//!
//! A directive says what it asked for and not what it reached: each destination of its list counts as tried.

use nexus_api::mothership::Directive;
use nexus_model::capability::{Capabilities, NetMode as Mode};
use nexus_policy::document::{Destination, PastAttempt, PastRun, PathPattern};
use nexus_policy::net::Port;
use nexus_policy::profile::NetMode;

/// Returns the run, or why documents cannot be asked about it.
pub fn past_run(one: &Directive) -> Result<PastRun, String> {
    let capabilities = one.effective_capabilities.clone().ok_or("the server does not say what it asked for")?;
    let Capabilities { net, fs, secrets, .. } =
        serde_json::from_value(capabilities).map_err(|error| format!("what it asked for cannot be read: {error}"))?;
    let unreadable = |text: &str, error: &dyn std::fmt::Display| format!("{text:?} cannot be read: {error}");
    let mut attempts = Vec::new();
    for text in net.allow.iter().flatten() {
        let to = Destination::parse(text).map_err(|error| unreadable(text, &error))?;
        attempts.push(PastAttempt { to, port: Port::HTTPS, addresses: Vec::new() });
    }
    let path = |text: &String| PathPattern::parse(text).map_err(|error| unreadable(text, &error));
    let mut paths = Vec::new();
    for (texts, writes) in [(&fs.read, false), (&fs.write, true)] {
        for text in texts {
            paths.push((path(text)?, writes));
        }
    }
    for root in &fs.writable_roots {
        paths.push((path(&format!("host:{root}"))?, true));
    }
    let mode = match net.mode {
        Mode::None => NetMode::None,
        Mode::Allowlist => NetMode::Allowlist,
        Mode::Unrestricted => NetMode::Unrestricted,
    };
    let run = PastRun {
        sandbox: one.sandbox_profile,
        words: Some(["sh", "-c", &one.command].map(str::to_owned).into()),
        changes: None,
        mode,
        attempts,
        paths,
        limits: Vec::new(),
        used: Vec::new(),
        secrets,
    };
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_policy::document::{Effective, LoadedPolicy, Outcome, differences};
    use serde_json::json;

    #[test]
    fn a_directive_is_asked_about_by_what_it_asked_for() {
        let id = nexus_model::ids::DirectiveId::new();
        let directive = json!({
            "directive_id": id, "facility_id": nexus_model::ids::FacilityId::new(), "state": "succeeded", "command": "ls; curl x",
            "sandbox_profile": "untrusted", "approval_reasons": [], "stdout_truncated": false, "stderr_truncated": false,
            "diff_truncated": false, "attempt": 1, "cancel_requested": false, "created_at": "2026-01-01T00:00:00Z",
            "effective_capabilities": {
                "net": {"mode": "allowlist", "allow": ["a.test:443", "*.b.test:80"]},
                "fs": {"read": ["workspace:**"], "write": ["workspace:/src/**"]}, "secrets": ["ONE"],
            },
        });
        let directive: Directive = serde_json::from_value(directive).unwrap();
        let run = past_run(&directive).unwrap();
        let document = json!({
            "policy": "nexus.policy/1", "id": "a", "level": "global", "net": {"allow": ["a.test:443"]}, "secrets": ["TWO"],
            "fs": {"deny": ["workspace:/src/keys/**"]}, "commands": {"forbidden": ["curl *"]},
        });
        let after = Effective::of(&[LoadedPolicy::read("p.yaml", &document.to_string()).unwrap()]);
        let found = differences(&Effective::default(), &after, &run);
        let refused: Vec<&str> = found.iter().map(|one| one.question.as_str()).collect();
        let expected = [
            "secret ONE",
            "read workspace:/**",
            "read workspace:/src/**",
            "write workspace:/src/**",
            "run sh -c ls; curl x",
            "net *.b.test:80",
            "read workspace:/src/keys/**",
        ];
        assert_eq!(refused, expected);
        assert!(found.iter().all(|one| one.after.outcome == Outcome::Refused));
        let unknown = Directive { effective_capabilities: None, ..directive };
        assert!(past_run(&unknown).is_err());
    }
}
