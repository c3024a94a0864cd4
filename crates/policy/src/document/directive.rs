//! A directive under policy documents: the same questions at its creation and at its claim.

use super::effective::{Effective, RunRights, Verdict};
use super::form::{Act, Answer};
use super::path_pattern::PathPattern;
use super::question::{Destination, Question};
use crate::command::{self, Commands, classify};
use crate::profile::{LimitKind, NetMode, Sourced};
use nexus_model::capability::{Capabilities, FsCapability, NetMode as Mode};
use nexus_model::spec::{DirectiveChanges, DirectiveSpec};

const MIB: u64 = 1 << 20;

/// Reason why a directive is not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirectiveRefusal {
    /// It asks for something that a document forbids.
    #[error("the directive asks for {asked:?}, and a policy forbids it: {why}")]
    Forbidden {
        /// The question that was answered with a refusal.
        asked: String,
        /// The document and the reason.
        why: String,
    },
    /// It asks for something that no policy can be asked about.
    #[error("the directive asks for {asked:?}, which cannot be held against the policies: {why}")]
    Unreadable {
        /// The part as written, shortened.
        asked: String,
        /// Reason for which it cannot be read.
        why: String,
    },
    /// No approval lets the command through.
    #[error("no approval lets this command through: {why}")]
    Command {
        /// Reason for which none does.
        why: String,
    },
    /// A document forbids the act.
    #[error("a policy says {answer} about {act} ({from})")]
    Act {
        /// Act that the policy answers about.
        act: &'static str,
        /// The answer of the policy.
        answer: &'static str,
        /// The document and line.
        from: String,
    },
}

impl DirectiveRefusal {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "policy"
    }
}

/// A directive that the documents do not refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may start.
    Free,
    /// It may start once a person has approved it.
    NeedsApproval {
        /// The reasons, for people. What the command chose stands in them quoted and escaped.
        reasons: Vec<String>,
        /// Number of users who must approve it.
        quorum: u32,
    },
}

/// Holds a directive against the documents. A part that it asks for and may not have refuses all of it.
pub fn check_directive(policies: &Effective, spec: &DirectiveSpec) -> Result<Admission, DirectiveRefusal> {
    if policies.is_empty() {
        return Ok(Admission::Free);
    }
    let answered = |asked: &dyn std::fmt::Display, verdict: &Verdict| match verdict.forbidden.first() {
        None => Ok(()),
        Some(why) => Err(DirectiveRefusal::Forbidden { asked: asked.to_string(), why: why.to_string() }),
    };
    let ask = |question: Question| answered(&question, &policies.ask(&question));
    let unreadable = |asked: &str, why: &dyn std::fmt::Display| DirectiveRefusal::Unreadable {
        asked: asked.chars().take(200).collect(),
        why: why.to_string(),
    };
    ask(Question::Sandbox(spec.sandbox_profile))?;
    let net = &spec.capabilities.net;
    ask(Question::Mode(match net.mode {
        Mode::None => NetMode::None,
        Mode::Allowlist => NetMode::Allowlist,
        Mode::Unrestricted => NetMode::Unrestricted,
    }))?;
    if net.ask_seconds().map_err(|error| unreadable("x_ask_seconds", &error))?.is_some() {
        // Another user answers in any case: only where no user may be asked is there something to refuse.
        let forbids = policies.answer(Act::Egress).filter(|answer| answer.value == Answer::Forbidden);
        act(forbids, "egress")?;
    }
    for text in net.allow.iter().flatten() {
        let asked = Destination::parse(text).map_err(|error| unreadable(text, &error))?;
        ask(Question::Reach(asked))?;
    }
    let fs = &spec.capabilities.fs;
    let path = |text: &String| PathPattern::parse(text).map_err(|error| unreadable(text, &error));
    let host = |text: &String| path(&format!("host:{text}"));
    // A directive gets the whole workspace or nothing: paths in it that are denied could be neither hidden nor kept back there.
    for text in &fs.read {
        ask(Question::Read(path(text)?))?;
    }
    let writable: Vec<PathPattern> =
        fs.write.iter().map(path).chain(fs.writable_roots.iter().map(host)).collect::<Result<_, _>>()?;
    for written in writable {
        ask(Question::Read(written.clone()))?;
        // What is thrown away afterwards is written to a layer alone.
        if spec.changes.unwrap_or_default() == DirectiveChanges::Commit || !written.is_in_workspace() {
            ask(Question::Write(written))?;
        }
    }
    if fs.read.is_empty() && fs.write.is_empty() {
        ask(Question::Read(PathPattern::workspace()))?;
        if spec.changes.unwrap_or_default() == DirectiveChanges::Commit {
            ask(Question::Write(PathPattern::workspace()))?;
        }
    }
    for name in &spec.capabilities.secrets {
        ask(Question::Secret(name.clone()))?;
    }
    for (kind, value) in limits(spec) {
        ask(Question::Limit(kind, value))?;
    }
    if spec.changes.unwrap_or_default() == DirectiveChanges::Commit {
        act(policies.answer(Act::Changes), "changes")?;
    }
    exec(policies, spec)
}

/// Asks the documents about the start of the command.
fn exec(policies: &Effective, spec: &DirectiveSpec) -> Result<Admission, DirectiveRefusal> {
    let words = [spec.shell.clone(), "-c".to_owned(), spec.command.clone()];
    let Some(answer) = policies.exec_answer(&Commands::of_words(&words), rights(&spec.capabilities)) else {
        return Ok(Admission::Free);
    };
    match answer.value {
        Answer::Skip => Ok(Admission::Free),
        Answer::Forbidden => act(Some(&answer), "exec").map(|()| Admission::Free),
        Answer::NeedsApproval => {
            let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
            let found = classify(&quoted.join(" "));
            if found.verdict == command::Verdict::Forbidden {
                return Err(DirectiveRefusal::Command { why: found.reasons.join("; ") });
            }
            let mut reasons = vec![format!("a policy asks for it ({})", answer.from)];
            reasons.extend(found.reasons);
            Ok(Admission::NeedsApproval { reasons, quorum: policies.quorum().map_or(1, |users| users.value) })
        }
    }
}

/// Returns whether a directive has more than its workspace. It is compared as a whole: a part that comes later is more.
fn rights(asked: &Capabilities) -> RunRights {
    let FsCapability { read, write, .. } = &asked.fs;
    let fs = FsCapability { read: read.clone(), write: write.clone(), ..FsCapability::default() };
    let of_workspace = |text: &String| PathPattern::parse(text).is_ok_and(|path| path.is_in_workspace());
    let is_plain =
        *asked == Capabilities { fs, ..Capabilities::default() } && read.iter().chain(write).all(of_workspace);
    if is_plain { RunRights::Plain } else { RunRights::Other }
}

fn act(answer: Option<&Sourced<Answer>>, act: &'static str) -> Result<(), DirectiveRefusal> {
    match answer.filter(|answer| answer.value != Answer::Skip) {
        None => Ok(()),
        Some(answer) => Err(DirectiveRefusal::Act { act, answer: answer.value.word(), from: answer.from.to_string() }),
    }
}

/// Returns the limits that a directive names.
fn limits(spec: &DirectiveSpec) -> impl Iterator<Item = (LimitKind, u64)> {
    let asked = &spec.limits;
    [
        (LimitKind::Memory, asked.memory_mb.map(|mb| mb.saturating_mul(MIB))),
        (LimitKind::Disk, asked.disk_mb.map(|mb| mb.saturating_mul(MIB))),
        (LimitKind::Cpus, asked.cpu.map(u64::from)),
        (LimitKind::MaxOutput, asked.max_output_bytes),
        (LimitKind::Timeout, spec.timeout_seconds.map(|seconds| seconds.saturating_mul(1000))),
    ]
    .into_iter()
    .filter_map(|(kind, value)| Some((kind, value?)))
}

/// Gives a directive the limits of the documents where it names none. A limit that is less than the unit of the directive
/// is rounded down, and never to nothing.
pub fn lower_limits(policies: &Effective, spec: &mut DirectiveSpec) {
    for (kind, max) in policies.limits() {
        let in_mib = || Some((max.value / MIB).max(1));
        let limits = &mut spec.limits;
        match kind {
            LimitKind::Memory => limits.memory_mb = limits.memory_mb.or_else(in_mib),
            LimitKind::Disk => limits.disk_mb = limits.disk_mb.or_else(in_mib),
            LimitKind::Cpus => limits.cpu = limits.cpu.or(Some(u32::try_from(max.value).unwrap_or(u32::MAX))),
            LimitKind::MaxOutput => limits.max_output_bytes = limits.max_output_bytes.or(Some(max.value)),
            LimitKind::Timeout => {
                spec.timeout_seconds = spec.timeout_seconds.or(Some((max.value / 1000).max(1)));
            }
            // A directive has no such limit: the territory's own holds.
            LimitKind::Pids => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::loaded::LoadedPolicy;
    use super::*;
    use serde_json::{Value, json};

    fn effective(rest: &Value) -> Effective {
        let mut all = json!({"policy": "nexus.policy/1", "id": "a", "level": "global"});
        all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        Effective::of(&[LoadedPolicy::read("p.yaml", &all.to_string()).unwrap()])
    }

    fn spec(change: &Value) -> DirectiveSpec {
        let mut all = json!({
            "directive_id": nexus_model::ids::DirectiveId::new(),
            "facility": {"id": nexus_model::ids::FacilityId::new()},
            "command": "true",
            "capabilities": {"net": {"mode": "none"}, "fs": {"read": ["workspace:**"], "write": ["workspace:**"]}},
        });
        for (key, value) in change.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_directive_that_asks_for_more_than_a_policy_allows_is_refused_as_a_whole() {
        let policies = effective(&json!({
            "net": {"allow": ["*.a.test:443"]}, "limits": {"memory": "1G", "timeout": "10m"}, "secrets": ["ONE"],
            "sandbox": ["untrusted"],
        }));
        let net = |mode: &str, allow: &[&str]| {
            let net = json!({"mode": mode, "allow": (mode == "allowlist").then_some(allow)});
            json!({"capabilities": {"net": net, "fs": {"read": [], "write": []}}})
        };
        let check = |change: Value| check_directive(&policies, &spec(&change)).map_err(|refused| refused.to_string());
        check(json!({})).unwrap();
        check(net("allowlist", &["x.a.test:443"])).unwrap();
        check(json!({"timeout_seconds": 600, "limits": {"memory_mb": 1024}})).unwrap();
        for (change, said) in [
            (net("unrestricted", &[]), "\"mode unrestricted\""),
            (net("allowlist", &["x.a.test:443", "b.test:443"]), "\"net b.test:443\""),
            (json!({"timeout_seconds": 601}), "\"limit timeout="),
            (json!({"limits": {"memory_mb": 1025}}), "\"limit memory=1025M\""),
            (json!({"sandbox_profile": "trusted"}), "\"sandbox trusted\""),
        ] {
            let refused = check(change).unwrap_err();
            assert!(refused.contains(said) && refused.contains("global policy a, p.yaml:"), "{refused}");
        }
        assert!(check_directive(&Effective::default(), &spec(&net("unrestricted", &[]))).is_ok());
    }

    #[test]
    fn a_policy_about_paths_and_acts_holds_for_a_directive() {
        let part = effective(&json!({"fs": {"write": ["workspace:/src/**"]}}));
        assert!(check_directive(&part, &spec(&json!({}))).is_err());
        assert!(check_directive(&part, &spec(&json!({"changes": "discard"}))).is_ok());
        let nothing = json!({"capabilities": {"net": {"mode": "none"}, "fs": {"read": [], "write": []}}});
        assert!(check_directive(&part, &spec(&nothing)).is_err(), "no rules are the whole workspace");
        let denied = effective(&json!({"fs": {"deny": ["workspace:/keys/**"]}}));
        assert!(check_directive(&denied, &spec(&json!({"changes": "discard"}))).is_err());
        let changes = effective(&json!({"approval": {"changes": "needs_approval"}}));
        assert!(check_directive(&changes, &spec(&json!({}))).is_err());
        assert!(check_directive(&changes, &spec(&json!({"changes": "discard"}))).is_ok());
        let exec = effective(&json!({"approval": {"exec": "forbidden"}}));
        let refused = check_directive(&exec, &spec(&json!({"changes": "discard"}))).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a policy says forbidden about exec (p.yaml:1:19)".replace("1:19", &place(&exec))
        );
    }

    #[test]
    fn a_command_that_needs_an_approval_is_admitted_with_its_reasons_unless_none_can_let_it_through() {
        let asks = effective(&json!({"approval": {"exec": "needs_approval"}, "commands": {"skip": ["true"]}}));
        let check = |command: &str| check_directive(&asks, &spec(&json!({"command": command, "changes": "discard"})));
        assert_eq!(check("true"), Ok(Admission::Free));
        let Ok(Admission::NeedsApproval { reasons, quorum: 1 }) = check("make it's") else { panic!() };
        assert!(reasons[0].starts_with("a policy asks for it (p.yaml:"), "{reasons:?}");
        let refused = check("rm -rf /").unwrap_err();
        assert!(matches!(refused, DirectiveRefusal::Command { .. }), "{refused}");
        assert_eq!(check_directive(&Effective::default(), &spec(&json!({}))), Ok(Admission::Free));
    }

    fn place(policies: &Effective) -> String {
        let from = policies.answer(Act::Exec).unwrap().from.to_string();
        from.strip_prefix("p.yaml:").unwrap().to_owned()
    }

    #[test]
    fn a_directive_without_limits_gets_those_of_the_policy() {
        let policies = effective(&json!({"limits": {"memory": "1G", "timeout": "30s", "cpus": 2, "disk": "1000"}}));
        let mut low = spec(&json!({"limits": {"memory_mb": 5}}));
        lower_limits(&policies, &mut low);
        assert_eq!((low.limits.memory_mb, low.limits.cpu, low.timeout_seconds), (Some(5), Some(2000), Some(30)));
        assert_eq!(low.limits.disk_mb, Some(1));
    }
}
