//! Turns a directive into the request that `nexus run` makes of its flags.

use crate::decide::admit::Admitted;
use crate::run::attendant::GRACE;
use crate::run::network::{self, origin};
use nexus_model::ByteText;
use nexus_model::limits::DEFAULT_MAX_OUTPUT;
use nexus_model::spec::{DirectiveChanges, DirectiveSpec};
use nexus_policy::profile::{Grants, LimitKind, Sourced};
use nexus_policy::settings::EgressSettings;
use nexus_runner::net::variables;
use nexus_runner::request::{ChangeMode, RunRequest, Shows, Streams, Tools, VariableRequest, WriteMode};
use std::path::Path;

/// Command of a run.
pub enum Command<'a> {
    /// The directive's own.
    Directive,
    /// The clone of its repository.
    Clone(&'a str),
}

/// Returns the request for one run of a directive, whose facility has its workspace at `tree`.
pub fn request(
    spec: &DirectiveSpec,
    admitted: &Admitted,
    command: &Command<'_>,
    tree: &Path,
    settings: &EgressSettings,
) -> Result<RunRequest, String> {
    let network = network::network(&spec.capabilities.net, settings, matches!(command, Command::Directive))?;
    let from = origin();
    let mut grants = Grants { net: network::grants(&spec.capabilities.net), ..Grants::default() };
    let mut limit = |kind, value: Option<u64>| {
        if let Some(value) = value {
            grants.limits.insert(kind, Sourced::new(value, from.clone()));
        }
    };
    limit(LimitKind::Memory, spec.limits.memory_mb.map(|mb| mb.saturating_mul(1 << 20)));
    limit(LimitKind::Cpus, spec.limits.cpu.map(u64::from));
    limit(LimitKind::Disk, spec.limits.disk_mb.map(|mb| mb.saturating_mul(1 << 20)));
    limit(LimitKind::Timeout, Some(admitted.timeout_seconds.saturating_mul(1000)));
    let mut tools = Tools::default();
    if network.is_some() {
        variables::add(&mut tools.env, &from);
    }
    let set = |name: &str, value: &str| VariableRequest::Set {
        name: ByteText::from(name),
        value: ByteText::from(value),
        from: from.clone(),
    };
    let (argv, variables, cwd) = match command {
        Command::Directive => {
            let variables = spec.capabilities.env.iter().map(|(name, value)| set(name, value)).collect();
            let argv = vec![spec.shell.as_str().into(), "-c".into(), spec.command.as_str().into()];
            (argv, variables, tree.join(&admitted.cwd))
        }
        Command::Clone(url) => {
            let variables = CLONE_VARIABLES.iter().map(|(name, value)| set(name, value)).collect();
            (clone(url), variables, tree.to_owned())
        }
    };
    let changes = match (command, spec.changes.unwrap_or_default()) {
        (Command::Clone(_), _) | (Command::Directive, DirectiveChanges::Commit) => ChangeMode::Commit,
        (Command::Directive, DirectiveChanges::Discard) => ChangeMode::Discard,
    };
    Ok(RunRequest {
        argv,
        image: None,
        mount: Some(admitted.mount.clone()),
        cwd: Some(cwd),
        current_directory: None,
        grants,
        shows: Shows::default(),
        variables,
        secrets: Vec::new(),
        credentials_only_warn: false,
        hide_secrets: false,
        tools,
        writes: WriteMode::Layer,
        required: spec.requirements.iter().copied().collect(),
        network,
        changes,
        names_readers: false,
        grace: GRACE,
        streams: Streams::default(),
        profiles: Vec::new(),
    })
}

/// Returns the bound of the output, in bytes.
#[must_use]
pub fn max_output(spec: &DirectiveSpec) -> u64 {
    spec.limits.max_output_bytes.unwrap_or(DEFAULT_MAX_OUTPUT)
}

/// Settings of git that keep a clone to https, without hooks, helpers, templates and redirects to another host.
const CLONE_VARIABLES: &[(&str, &str)] = &[
    ("GIT_ALLOW_PROTOCOL", "https"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ASKPASS", "/bin/false"),
];

fn clone(url: &str) -> Vec<ByteText> {
    let words = [
        "git",
        "-c",
        "http.followRedirects=false",
        "-c",
        "credential.helper=",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "protocol.file.allow=never",
        "clone",
        "--depth=1",
        "--no-recurse-submodules",
        "--template=",
        "--",
        url,
        ".",
    ];
    words.iter().map(|word| ByteText::from(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::admit::{Bounds, admit};
    use nexus_model::capability::NetMode;

    fn spec() -> DirectiveSpec {
        serde_json::from_str(
            r#"{"directive_id": "01890a5d-ac96-774b-bcce-b302099a8057",
                "facility": {"id": "01890a5d-ac96-774b-bcce-b302099a8058", "repo_url": "https://example.test/x"},
                "command": "make", "cwd": "sub", "timeout_seconds": 60, "changes": "discard",
                "limits": {"cpu": 1500, "memory_mb": 512},
                "capabilities": {"net": {"mode": "none"}, "fs": {}, "env": {"CI": "1"}}}"#,
        )
        .unwrap()
    }

    #[test]
    fn a_directive_becomes_the_request_of_a_run() {
        let spec = spec();
        let admitted = admit(&spec, Bounds { max_net: NetMode::None, max_timeout_seconds: 100 }).unwrap();
        let tree = Path::new("/srv/f/tree");
        let made = request(&spec, &admitted, &Command::Directive, tree, &EgressSettings::default()).unwrap();
        assert_eq!(made.argv, ["/bin/sh", "-c", "make"].map(ByteText::from));
        assert_eq!(made.cwd.unwrap(), tree.join("sub"));
        assert_eq!(made.mount.unwrap(), Path::new("/workspace"));
        assert_eq!(made.changes, ChangeMode::Discard);
        let limit = |kind| made.grants.limits.get(&kind).map(|limit| limit.value);
        assert_eq!(limit(LimitKind::Memory), Some(512 << 20));
        assert_eq!((limit(LimitKind::Cpus), limit(LimitKind::Timeout)), (Some(1500), Some(60_000)));
        assert!(made.network.is_none() && made.writes == WriteMode::Layer && made.shows.binds.is_empty());
    }

    #[test]
    fn a_clone_takes_its_address_for_no_option_and_runs_no_hook() {
        let spec = spec();
        let admitted = admit(&spec, Bounds { max_net: NetMode::None, max_timeout_seconds: 100 }).unwrap();
        let url = "https://example.test/x";
        let made =
            request(&spec, &admitted, &Command::Clone(url), Path::new("/srv"), &EgressSettings::default()).unwrap();
        let words: Vec<_> = made.argv.iter().map(|word| String::from_utf8(word.0.clone()).unwrap()).collect();
        let end = words.iter().position(|word| word == "--").unwrap();
        assert_eq!(words[end + 1..], [url, "."]);
        assert!(words.contains(&"core.hooksPath=/dev/null".to_owned()));
        assert_eq!(made.changes, ChangeMode::Commit);
        assert!(!made.variables.iter().any(|one| matches!(one, VariableRequest::Set { name, .. } if name.0 == b"CI")));
    }
}
