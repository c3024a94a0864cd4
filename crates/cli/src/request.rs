//! Turns the flags of `nexus run` into a request of the engine.

use crate::args::RunArgs;
use crate::bind_text::split;
use crate::environment::{no_name, only_warns, secret_name};
use crate::failure::Failure;
use crate::profile::resolution::Resolution;
use crate::run::ask;
use crate::run::secrets::secret_not_read;
use crate::terminal::raw::{self, USUAL_SIZE};
use nexus_driver::frames::TerminalSize;
use nexus_model::ByteText;
use nexus_model::limits::DEFAULT_GRACE_MS;
use nexus_model::plan::Access;
use nexus_policy::profile::{ChangesMode, Grants, Origin, Sourced};
use nexus_profiles::{Found, FoundSource as Source};
use nexus_runner::request::{
    BindRequest, ChangeMode, RunRequest, Shows, Streams, ToolBind, ToolHome, ToolSource, Tools, VariableRequest,
    WriteMode,
};
use nexus_runner::secrets::Request as SecretRequest;
use nexus_runner::state::project_cache;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Puts the request of a command line together.
pub fn of(args: &RunArgs, resolution: &Resolution) -> Result<RunRequest, Failure> {
    let image = resolution.image.as_ref();
    let argv = match (&args.shell, image) {
        (Some(text), _) => vec!["/bin/sh".into(), "-c".into(), text.clone().into()],
        (None, Some(image)) if args.command.is_empty() => {
            image.settings.command().iter().map(|word| word.as_str().into()).collect()
        }
        (None, _) => args.command.iter().cloned().map(ByteText::from).collect(),
    };
    let opens_git = args.direct_git || args.live_git;
    let writes = if args.is_direct() { WriteMode::Direct { opens_git } } else { WriteMode::Layer };
    let mut grants = resolution.grants.clone();
    if args.detach {
        // The cache would be held as long as the sandbox lives, which may be days.
        grants.cache = None;
    }
    let mut tools = tools(&resolution.found);
    if let Some(cache) = grants.cache.as_ref().filter(|cache| cache.value) {
        point_to_cache(&mut tools, &cache.from, resolution.network.is_some());
    }
    Ok(RunRequest {
        argv,
        image: image.map(|image| image.run.clone()),
        mount: args.facility.as_ref().map(|_| PathBuf::from(crate::run::facility::MOUNT)),
        cwd: args.cwd.clone(),
        // The caller does not stand in a facility.
        current_directory: if args.facility.is_some() { None } else { std::env::current_dir().ok() },
        grants,
        shows: shows(args, &resolution.settings.binds)?,
        variables: variables(&args.env, &args.env_secret)?,
        secrets: secrets(&args.secret)?,
        credentials_only_warn: only_warns(),
        hide_secrets: args.hide_secrets,
        tools,
        writes,
        required: args.require.iter().copied().collect(),
        network: resolution.network.clone(),
        changes: changes(&resolution.grants, args),
        names_readers: args.verbose,
        grace: Duration::from_millis(args.grace.unwrap_or(DEFAULT_GRACE_MS)),
        streams: Streams { terminal: terminal(args), input: args.stdin },
        profiles: resolution.documents.clone(),
    })
}

/// Returns the size of the command's own terminal.
fn terminal(args: &RunArgs) -> Option<TerminalSize> {
    args.tty.then(|| if args.detach { USUAL_SIZE } else { raw::size() })
}

/// Reads the flags for host paths: `--ro SRC[:DST]`, `--rw SRC[:DST]`, `--device PATH` and `--allow-socket PATH`.
fn shows(args: &RunArgs, opened: &[Sourced<String>]) -> Result<Shows, Failure> {
    let mut binds = Vec::new();
    for (texts, access, flag) in [(&args.ro, Access::ReadOnly, "--ro"), (&args.rw, Access::ReadWrite, "--rw")] {
        for text in texts {
            let (source, target) = split(text);
            if source.as_os_str().is_empty() {
                let hint = "write for example --ro /opt/tool or --ro /opt/tool:/tool";
                return Err(Failure::refused("bind", format!("{flag} needs a path"), hint));
            }
            binds.push(BindRequest { source, target, access, from: Origin::Flag(flag.to_owned()) });
        }
    }
    let flagged = |paths: &[PathBuf], flag: &str| {
        paths.iter().map(|path| Sourced::new(path.clone(), Origin::Flag(flag.to_owned()))).collect()
    };
    Ok(Shows {
        binds,
        devices: flagged(&args.device, "--device"),
        sockets: flagged(&args.allow_socket, "--allow-socket"),
        opened: opened.to_vec(),
    })
}

/// Reads the flags for variables: `--env NAME[=VALUE]` and `--env-secret NAME`.
fn variables(env: &[OsString], secret: &[OsString]) -> Result<Vec<VariableRequest>, Failure> {
    let mut all = Vec::new();
    for flag in env {
        let bytes = flag.as_bytes();
        let from = Origin::Flag("--env".to_owned());
        let end = bytes.iter().position(|byte| *byte == b'=');
        let name = ByteText(bytes[..end.unwrap_or(bytes.len())].to_vec());
        if name.0.is_empty() {
            return Err(no_name(flag));
        }
        all.push(match end {
            Some(at) => VariableRequest::Set { name, value: ByteText(bytes[at + 1..].to_vec()), from },
            None => VariableRequest::Pass { name, from },
        });
    }
    for flag in secret {
        let from = Origin::Flag("--env-secret".to_owned());
        all.push(VariableRequest::PassSecret { name: secret_name(flag)?, from });
    }
    Ok(all)
}

/// Reads the flags for secrets: `--secret NAME=PROVIDER:REFERENCE`.
fn secrets(flags: &[OsString]) -> Result<Vec<SecretRequest>, Failure> {
    let mut all: Vec<SecretRequest> = Vec::with_capacity(flags.len());
    for flag in flags {
        let request = SecretRequest::parse(flag).map_err(|error| secret_not_read(&error))?;
        if all.iter().any(|earlier| earlier.name == request.name) {
            let message = format!("--secret {} is there twice", request.name);
            return Err(Failure::usage("secret", message, "Give each secret a name of its own."));
        }
        all.push(request);
    }
    Ok(all)
}

/// The variables that point tools to the cache of the workspace, its part, and whether only a run with a network needs it: without
/// one, downloads of the caller are shown.
const CACHES: &[(&str, &str, bool)] = &[
    ("GOCACHE", "go-build", false),
    ("GOMODCACHE", "go-mod", true),
    ("PIP_CACHE_DIR", "pip", false),
    ("UV_CACHE_DIR", "uv", false),
    ("npm_config_cache", "npm", false),
];

/// Points tools to the cache of the workspace, where nothing else points them elsewhere.
fn point_to_cache(tools: &mut Tools, from: &Origin, has_network: bool) {
    for (name, part, _) in CACHES.iter().filter(|(_, _, needs_network)| has_network || !needs_network) {
        let value = Path::new(project_cache::INSIDE).join(part).into();
        tools.env.entry((*name).to_owned()).or_insert_with(|| Sourced::new(value, from.clone()));
    }
}

fn tools(found: &Found) -> Tools {
    let binds = found.binds.iter().map(|bind| ToolBind {
        source: match &bind.source {
            Source::Path(path) => ToolSource::Path(path.clone()),
            Source::Made(content) => ToolSource::Made(content.clone()),
        },
        target: bind.target.clone(),
        why: bind.why,
        from: bind.from.clone(),
    });
    let homes = found.homes.iter().map(|home| ToolHome { variable: home.variable, path: home.path.clone() });
    Tools { binds: binds.collect(), path: found.path.clone(), env: found.env.clone(), homes: homes.collect() }
}

/// Chooses the mode for the changes. If a file asks for `ask` and there is no terminal, the changes are parked for a
/// review: committing them would be less strict than the file.
pub fn changes(grants: &Grants, args: &RunArgs) -> ChangeMode {
    let can_ask = !args.json && !args.stdin && ask::is_possible();
    match grants.changes.as_ref().map(|changes| changes.value) {
        None | Some(ChangesMode::Ask) if can_ask => ChangeMode::Ask,
        None | Some(ChangesMode::Commit) => ChangeMode::Commit,
        Some(ChangesMode::Ask | ChangesMode::Review) => ChangeMode::Review,
        Some(ChangesMode::Discard) => ChangeMode::Discard,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_bind_has_a_source_and_perhaps_a_target() {
        assert_eq!(split(OsStr::new("/a")), ("/a".into(), None));
        assert_eq!(split(OsStr::new("/a:/b/")), ("/a".into(), Some("/b/".into())));
        assert_eq!(split(OsStr::new("/a:b")), ("/a:b".into(), None));
        assert_eq!(split(OsStr::new(":/b")), ("".into(), Some("/b".into())));
        let args = RunArgs { ro: vec![":/b".into()], ..RunArgs::default() };
        assert!(shows(&args, &[]).is_err());
    }

    #[test]
    fn a_variable_has_a_name() {
        let read = |env: &str| variables(&[env.into()], &[]);
        assert!(matches!(read("A=b=c").unwrap()[..], [VariableRequest::Set { ref value, .. }] if value.0 == b"b=c"));
        assert!(matches!(read("A").unwrap()[..], [VariableRequest::Pass { .. }]));
        for bad in ["", "=x"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        for bad in ["", "A=b"] {
            assert!(variables(&[], &[bad.into()]).is_err(), "{bad}");
        }
    }
}
