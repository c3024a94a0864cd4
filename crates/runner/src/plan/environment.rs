//! The command's whole environment: an allow-list, never the caller's own.

use crate::host::Host;
use crate::plan::binds::{NoHome, in_home};
use crate::plan::credential;
use crate::request::{RunImage, RunRequest, Tools, VariableRequest};
use nexus_model::ByteText;
use nexus_model::plan::HOME;
use nexus_policy::profile::{Grants, Origin};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Set unless the user says otherwise: no colours, no pagers, no prompts that wait for an answer.
const STANDARD: &[(&str, &str)] = &[
    ("CYBROS_NEXUS", "1"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("HOME", HOME),
    ("LANG", "C.UTF-8"),
    ("LC_ALL", "C.UTF-8"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("PATH", PATH),
    ("TERM", "dumb"),
    ("TMPDIR", "/tmp"),
];
/// Names that a profile or a workspace cannot take away: without them nothing inside would find its place.
const ALWAYS: &[&str] = &["CYBROS_NEXUS", "HOME", "PATH", "TMPDIR"];

/// One variable, with the flag or file that asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The name of the variable.
    pub name: ByteText,
    /// The value of the variable.
    pub value: ByteText,
    /// True if the value is the caller's own, which may be a secret and is not printed.
    pub passed: bool,
    /// True if it holds a credential, as far as can be recognized.
    pub secret: bool,
    /// The flag or file that asked for it.
    pub from: Origin,
}

/// A variable of the caller would be passed on, looks like a credential, and is not named as one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{from} would pass on {}, and it looks like a credential: {why}", name.as_os_str().display())]
pub struct PassedCredential {
    /// The flag or file that passes it on.
    pub from: Origin,
    /// The name of the variable.
    pub name: ByteText,
    /// The reason for the guess.
    pub why: String,
}

impl PassedCredential {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "env_secret"
    }
}

/// The environment cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A variable looks like a credential.
    #[error(transparent)]
    Credential(#[from] PassedCredential),
    /// A directory of PATH is below the home of a caller who has none.
    #[error(transparent)]
    NoHome(#[from] NoHome),
    /// A directory of PATH has the separator in its name.
    #[error("{from}: {} has a colon in it and cannot be on the PATH", directory.display())]
    ColonInPath {
        /// The flag or file that asked for it.
        from: Origin,
        /// The path of the directory.
        directory: PathBuf,
    },
}

impl EnvironmentError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Credential(inner) => inner.code(),
            Self::NoHome(_) => "bind",
            Self::ColonInPath { .. } => "path",
        }
    }
}

/// The environment of a command.
#[derive(Debug, Default)]
pub struct Environment {
    /// All variables, in the order of their names.
    pub variables: Vec<Variable>,
    /// Variables that are passed on although they look like credentials.
    pub notices: Vec<PassedCredential>,
}

/// Puts the environment of a request together.
pub fn build(request: &RunRequest, host: &Host) -> Result<Environment, EnvironmentError> {
    let RunRequest { variables, grants, tools, credentials_only_warn, .. } = request;
    put_together(request.image.as_ref(), variables, grants, tools, host, *credentials_only_warn)
}

/// Takes the standard variables, then what an image suggests beside them, then those that profiles pass and set, then those of toolchains, then
/// those of the request. Variables that are dropped go last, since a workspace's file narrows a request too.
///
/// With `only_warns` a variable that looks like a credential is a notice instead of a refusal.
fn put_together(
    image: Option<&RunImage>,
    asked: &[VariableRequest],
    grants: &Grants,
    tools: &Tools,
    host: &Host,
    only_warns: bool,
) -> Result<Environment, EnvironmentError> {
    let of_caller = |name: &OsStr| host.variables.get(name).cloned();
    let mut all: BTreeMap<ByteText, Variable> = BTreeMap::new();
    let mut insert = |name: ByteText, value: ByteText, passed: bool, secret: bool, from: &Origin| {
        let variable = Variable { name: name.clone(), value, passed, secret, from: from.clone() };
        all.insert(name, variable);
    };
    for (name, value) in STANDARD {
        insert((*name).into(), (*value).into(), false, false, &Origin::Standard);
    }
    // It may say where its programs are. What Nexus sets so that nothing waits or draws stays.
    let taken = |name: &str| name == "PATH" || !STANDARD.iter().any(|(known, _)| *known == name);
    let suggested = image.into_iter().flat_map(|image| image.variables.iter().map(move |one| (image, one)));
    for (image, (name, value)) in suggested.filter(|(_, (name, _))| taken(name)) {
        let from = Origin::Flag(format!("--image {}", image.reference));
        insert(name.as_str().into(), value.as_str().into(), false, false, &from);
    }
    for (name, other) in [("USER", "LOGNAME"), ("LOGNAME", "USER")] {
        let value = of_caller(OsStr::new(name)).or_else(|| of_caller(OsStr::new(other)));
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            insert(name.into(), value.into(), false, false, &Origin::Standard);
        }
    }
    for (name, from) in &grants.env_pass {
        if let Some(value) = of_caller(OsStr::new(name)) {
            insert(name.as_str().into(), value.into(), true, false, from);
        }
    }
    let usual = image.and_then(|image| image.variables.iter().rev().find(|(name, _)| name == "PATH"));
    let usual = usual.map_or(PATH, |(_, value)| value);
    if let Some((value, from)) = path(grants, tools, host, usual)? {
        insert("PATH".into(), value.into(), false, false, &from);
    }
    for (name, set) in &tools.env {
        insert(name.as_str().into(), set.value.clone().into(), false, false, &set.from);
    }
    for (name, set) in &grants.env_set {
        insert(name.as_str().into(), set.value.as_str().into(), false, false, &set.from);
    }
    for variable in asked {
        // A variable that the caller does not have is not set inside either.
        match variable {
            VariableRequest::Set { name, value, from } => insert(name.clone(), value.clone(), false, false, from),
            VariableRequest::Pass { name, from } => {
                if let Some(value) = of_caller(name.as_os_str()) {
                    insert(name.clone(), value.into(), true, false, from);
                }
            }
            VariableRequest::PassSecret { name, from } => {
                if let Some(value) = of_caller(name.as_os_str()) {
                    insert(name.clone(), value.into(), true, true, from);
                }
            }
        }
    }
    for name in grants.env_drop.keys().filter(|name| !ALWAYS.contains(&name.as_str())) {
        all.remove(&ByteText::from(name.as_str()));
    }
    let mut environment = Environment { variables: all.into_values().collect(), notices: Vec::new() };
    for variable in environment.variables.iter_mut().filter(|variable| variable.passed && !variable.secret) {
        match passed_credential(&variable.name, &variable.value, &variable.from) {
            None => {}
            Some(found) if only_warns => {
                variable.secret = true;
                environment.notices.push(found);
            }
            Some(found) => return Err(found.into()),
        }
    }
    Ok(environment)
}

/// Recognizes a credential in a variable that is passed on without being named as one.
pub fn passed_credential(name: &ByteText, value: &ByteText, from: &Origin) -> Option<PassedCredential> {
    let why = credential::reason(&name.0, &value.0)?;
    Some(PassedCredential { from: from.clone(), name: name.clone(), why })
}

/// Returns the directories of profiles, then those of toolchains, then the system's. `None` when only the system's are there.
fn path(
    grants: &Grants,
    tools: &Tools,
    host: &Host,
    usual: &str,
) -> Result<Option<(OsString, Origin)>, EnvironmentError> {
    let mut directories = Vec::new();
    for entry in &grants.path {
        directories.push((in_home(host, &entry.value, &entry.from)?, entry.from.clone()));
    }
    directories.extend(tools.path.iter().map(|entry| (entry.value.clone(), entry.from.clone())));
    let Some(first) = directories.first().map(|(_, from)| from.clone()) else { return Ok(None) };
    let mut text = OsString::new();
    for (directory, from) in directories {
        if directory.as_os_str().as_bytes().contains(&b':') {
            return Err(EnvironmentError::ColonInPath { from, directory });
        }
        text.push(directory);
        text.push(":");
    }
    text.push(usual);
    Ok(Some((text, first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(variables: &[(&str, &str)]) -> Host {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Host { variables, home: None, uid: 1000 }
    }

    fn flag() -> Origin {
        Origin::Flag("--env".to_owned())
    }

    fn set(name: &str, value: &str) -> VariableRequest {
        VariableRequest::Set { name: name.into(), value: value.into(), from: flag() }
    }

    fn pass(name: &str) -> VariableRequest {
        VariableRequest::Pass { name: name.into(), from: flag() }
    }

    fn default_grants() -> Grants {
        let mut grants = Grants::default();
        for name in ["TZ", "COLUMNS"] {
            grants.env_pass.insert(name.to_owned(), Origin::Standard);
        }
        grants
    }

    fn with(asked: &[VariableRequest], grants: &Grants, host: &Host) -> Result<Environment, EnvironmentError> {
        put_together(None, asked, grants, &Tools::default(), host, false)
    }

    fn built(asked: &[VariableRequest]) -> BTreeMap<ByteText, ByteText> {
        let host = host(&[("TZ", "Europe/Paris"), ("AWS_SECRET_ACCESS_KEY", "hunter2")]);
        let all = with(asked, &default_grants(), &host).unwrap().variables;
        all.into_iter().map(|one| (one.name, one.value)).collect()
    }

    #[test]
    fn only_the_allow_list_comes_from_the_caller() {
        let env = built(&[]);
        assert_eq!(env.get(&"TZ".into()), Some(&"Europe/Paris".into()));
        assert_eq!(env.get(&"AWS_SECRET_ACCESS_KEY".into()), None);
        assert_eq!(env.get(&"HOME".into()), Some(&"/home/nexus".into()));
    }

    #[test]
    fn a_request_sets_passes_or_leaves_out() {
        let env = built(&[set("A", "b=c"), pass("TZ"), pass("NOT_THERE"), set("PATH", "/x")]);
        assert_eq!(env.get(&"A".into()), Some(&"b=c".into()));
        assert_eq!(env.get(&"TZ".into()), Some(&"Europe/Paris".into()));
        assert_eq!(env.get(&"NOT_THERE".into()), None);
        assert_eq!(env.get(&"PATH".into()), Some(&"/x".into()));
    }

    #[test]
    fn a_credential_is_passed_on_only_where_it_is_named_as_one() {
        const NAME: &str = "AWS_SECRET_ACCESS_KEY";
        let host = host(&[(NAME, "hunter2")]);
        let by_profile = || {
            let mut grants = default_grants();
            grants.env_pass.insert(NAME.to_owned(), Origin::Standard);
            grants
        };
        for (mut asked, grants) in [(vec![pass(NAME)], default_grants()), (vec![], by_profile())] {
            let refused = with(&asked, &grants, &host).unwrap_err();
            assert!(refused.code() == "env_secret" && !refused.to_string().contains("hunter2"), "{refused}");
            asked.push(VariableRequest::PassSecret { name: NAME.into(), from: flag() });
            let allowed = with(&asked, &grants, &host).unwrap();
            let secret: Vec<_> = allowed.variables.iter().filter(|one| one.secret).collect();
            assert!(secret.len() == 1 && secret[0].value == "hunter2".into(), "{secret:?}");
        }
        // A dropped variable is not passed on, and nothing more has to be named.
        let mut dropped = by_profile();
        dropped.drop_variable(NAME, Origin::Standard);
        assert!(with(&[], &dropped, &host).is_ok());
        // A value that the request has was written there on purpose.
        assert!(with(&[set("API_TOKEN", "x7Kq")], &default_grants(), &host).is_ok());
    }

    #[test]
    fn an_image_suggests_variables_and_replaces_none_that_nexus_or_the_caller_sets() {
        let variables = [
            ("PATH", "/opt/bin:/bin"),
            ("HOME", "/root"),
            ("GIT_TERMINAL_PROMPT", "1"),
            ("A", "image"),
            ("B", "image"),
        ];
        let image = RunImage {
            root: nexus_model::plan::ImageRoot { path: "/x".into(), digest: String::new() },
            reference: "x".to_owned(),
            variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        let of = |tools: &Tools| {
            let asked = [set("B", "flag")];
            let all =
                put_together(Some(&image), &asked, &default_grants(), tools, &host(&[]), false).unwrap().variables;
            all.into_iter().map(|one| (one.name, one.value)).collect::<BTreeMap<ByteText, ByteText>>()
        };
        let env = of(&Tools::default());
        for (name, value) in
            [("PATH", "/opt/bin:/bin"), ("HOME", HOME), ("GIT_TERMINAL_PROMPT", "0"), ("A", "image"), ("B", "flag")]
        {
            assert_eq!(env.get(&name.into()), Some(&value.into()), "{name}");
        }
        let tools = Tools {
            path: vec![nexus_policy::profile::Sourced::new("/tool".into(), Origin::Standard)],
            ..Tools::default()
        };
        assert_eq!(of(&tools).get(&"PATH".into()), Some(&"/tool:/opt/bin:/bin".into()));
    }

    #[test]
    fn a_setting_makes_the_refusal_a_notice() {
        let host = host(&[("GITHUB_TOKEN", "x7Kq")]);
        let all =
            put_together(None, &[pass("GITHUB_TOKEN")], &default_grants(), &Tools::default(), &host, true).unwrap();
        assert!(all.variables.iter().any(|one| one.secret && one.name == "GITHUB_TOKEN".into()));
        assert_eq!(all.notices.len(), 1);
    }

    #[test]
    fn a_dropped_variable_is_gone_whatever_set_it_and_the_standard_ones_stay() {
        let mut grants = default_grants();
        for name in ["TZ", "A", "PATH"] {
            grants.drop_variable(name, Origin::Standard);
        }
        let host = host(&[("TZ", "y"), ("COLUMNS", "y")]);
        let all = with(&[set("A", "x")], &grants, &host).unwrap();
        let names: Vec<_> = all.variables.iter().map(|one| one.name.as_path().display().to_string()).collect();
        assert!(!names.contains(&"A".to_owned()) && !names.contains(&"TZ".to_owned()), "{names:?}");
        assert!(names.contains(&"PATH".to_owned()) && names.contains(&"COLUMNS".to_owned()));
    }
}
