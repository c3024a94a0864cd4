//! The command's whole environment: an allow-list, never the caller's own.

use crate::binds::in_home;
use crate::failure::Failure;
use crate::profile::Found;
use crate::run::tell;
use nexus_model::ByteText;
use nexus_model::plan::HOME;
use nexus_policy::profile::{Grants, Origin};
use nexus_runner::plan::credential;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Set unless the user says otherwise: no colours, no pagers, no prompts that nobody answers.
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
const KEPT: &[&str] = &["CYBROS_NEXUS", "HOME", "PATH", "TMPDIR"];

/// One variable and who said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: ByteText,
    /// Its value.
    pub value: ByteText,
    /// Whether the value is the caller's own, which may be a secret and is not printed.
    pub passed: bool,
    /// Whether it holds a credential, as far as can be told.
    pub secret: bool,
    /// Who said so.
    pub from: Origin,
}

/// What the flags of a command line say about variables.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvFlags<'a> {
    /// `--env NAME[=VALUE]`.
    pub env: &'a [OsString],
    /// `--env-secret NAME`.
    pub secret: &'a [OsString],
}

/// The variable of the caller that makes a credential a warning instead of a refusal, for one version.
const SETTING: &str = "NEXUS_ENV_SECRET";

/// Puts it together: the standard ones, then what the profiles pass and set, then toolchains, then flags; what was
/// dropped goes last, since a workspace's file narrows flags too. `caller` looks a variable of the caller up.
pub fn build(
    flags: EnvFlags<'_>,
    grants: &Grants,
    found: &Found,
    caller: impl Fn(&OsStr) -> Option<OsString>,
) -> Result<Vec<Variable>, Failure> {
    let mut all: BTreeMap<ByteText, Variable> = BTreeMap::new();
    let mut insert = |name: ByteText, value: ByteText, passed: bool, from: &Origin| {
        let variable = Variable { name: name.clone(), value, passed, secret: false, from: from.clone() };
        all.insert(name, variable);
    };
    for (name, value) in STANDARD {
        insert((*name).into(), (*value).into(), false, &Origin::Standard);
    }
    for (name, from) in &grants.env_pass {
        if let Some(value) = caller(OsStr::new(name)) {
            insert(name.as_str().into(), value.into(), true, from);
        }
    }
    let path = path(grants, found)?;
    if let Some((value, from)) = path {
        insert("PATH".into(), value.into(), false, &from);
    }
    for (name, set) in &found.env {
        insert(name.as_str().into(), set.value.clone().into(), false, &set.from);
    }
    for (name, set) in &grants.env_set {
        insert(name.as_str().into(), set.value.as_str().into(), false, &set.from);
    }
    for flag in flags.env {
        let bytes = flag.as_bytes();
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => (&bytes[..at], Some(bytes[at + 1..].to_vec())),
            None => (bytes, caller(flag).map(|value| value.as_bytes().to_vec())),
        };
        if name.is_empty() {
            let message = format!("--env {} has no name", flag.display());
            return Err(Failure::usage(
                "env",
                message,
                "write --env NAME=VALUE, or --env NAME to pass the caller's value on",
            ));
        }
        // A variable that the caller does not have is not set inside either.
        if let Some(value) = value {
            let passed = !bytes.contains(&b'=');
            insert(ByteText(name.to_vec()), ByteText(value), passed, &Origin::Flag("--env".to_owned()));
        }
    }
    for flag in flags.secret {
        let name = secret_name(flag)?;
        if let Some(value) = caller(flag) {
            insert(name, value.into(), true, &Origin::Flag(SECRET_FLAG.to_owned()));
        }
    }
    for name in grants.env_drop.keys().filter(|name| !KEPT.contains(&name.as_str())) {
        all.remove(&ByteText::from(name.as_str()));
    }
    let only_warns = caller(OsStr::new(SETTING)).is_some_and(|setting| setting == "warn");
    let mut all: Vec<Variable> = all.into_values().collect();
    for variable in all.iter_mut().filter(|variable| variable.passed) {
        variable.secret = is_secret(&variable.name, &variable.value, &variable.from, only_warns)?;
    }
    Ok(all)
}

const SECRET_FLAG: &str = "--env-secret";

/// The name that `--env-secret` gives.
pub fn secret_name(flag: &OsStr) -> Result<ByteText, Failure> {
    let bytes = flag.as_bytes();
    if bytes.is_empty() || bytes.contains(&b'=') {
        // The name alone: a value may not stand in a message.
        let name = bytes.split(|byte| *byte == b'=').next().unwrap_or_default();
        let message = format!("--env-secret {} is not the name of a variable", OsStr::from_bytes(name).display());
        return Err(Failure::usage("env", message, "Write --env-secret NAME; the value is the caller's."));
    }
    Ok(ByteText(bytes.to_vec()))
}

/// Reports whether a variable that is passed on holds a credential, and refuses one that nobody called so.
pub fn is_secret(name: &ByteText, value: &ByteText, from: &Origin, only_warns: bool) -> Result<bool, Failure> {
    if matches!(from, Origin::Flag(flag) if flag == SECRET_FLAG) {
        return Ok(true);
    }
    let Some(why) = credential::reason(&name.0, &value.0) else { return Ok(false) };
    let name = name.as_os_str().display();
    let message = format!("{from} would pass on {name}, and it looks like a credential: {why}");
    if only_warns {
        tell(&format!("{message}. A later version refuses this: write --env-secret {name}."));
        return Ok(true);
    }
    let hint = format!(
        "Write --env-secret {name} if the command may have it, or leave it out; with {SETTING}=warn this version only warns."
    );
    Err(Failure::usage("env_secret", message, hint))
}

/// Whether the caller asked for warnings instead of refusals.
pub fn only_warns() -> bool {
    std::env::var_os(SETTING).is_some_and(|setting| setting == "warn")
}

/// The folders of profiles, then those of toolchains, then the system's. `None` when nobody adds any.
fn path(grants: &Grants, found: &Found) -> Result<Option<(OsString, Origin)>, Failure> {
    let mut folders = Vec::new();
    for entry in &grants.path {
        folders.push((in_home(&entry.value, &entry.from)?, entry.from.clone()));
    }
    folders.extend(found.path.iter().map(|entry| (entry.value.clone(), entry.from.clone())));
    let Some(first) = folders.first().map(|(_, from)| from.clone()) else { return Ok(None) };
    let mut text = OsString::new();
    for (folder, from) in &folders {
        if folder.as_os_str().as_bytes().contains(&b':') {
            let message = format!("{from}: {} has a colon in it and cannot be on the PATH", folder.display());
            return Err(Failure::refused("path", message, "name it by another path"));
        }
        text.push(folder);
        text.push(":");
    }
    text.push(PATH);
    Ok(Some((text, first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_grants() -> Grants {
        let mut grants = Grants::default();
        for name in ["TZ", "COLUMNS"] {
            grants.env_pass.insert(name.to_owned(), Origin::Standard);
        }
        grants
    }

    fn with(
        env: &[OsString],
        secret: &[OsString],
        grants: &Grants,
        caller: impl Fn(&OsStr) -> Option<OsString>,
    ) -> Result<Vec<Variable>, Failure> {
        build(EnvFlags { env, secret }, grants, &Found::default(), caller)
    }

    fn built(flags: &[&str]) -> BTreeMap<ByteText, ByteText> {
        let flags: Vec<OsString> = flags.iter().map(Into::into).collect();
        let caller = |name: &OsStr| match name.to_str() {
            Some("TZ") => Some("Europe/Paris".into()),
            Some("AWS_SECRET_ACCESS_KEY") => Some("hunter2".into()),
            _ => None,
        };
        let grants = default_grants();
        let all = with(&flags, &[], &grants, caller).unwrap();
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
    fn a_flag_sets_passes_or_leaves_out() {
        let env = built(&["A=b=c", "TZ", "NOT_THERE", "PATH=/x"]);
        assert_eq!(env.get(&"A".into()), Some(&"b=c".into()));
        assert_eq!(env.get(&"TZ".into()), Some(&"Europe/Paris".into()));
        assert_eq!(env.get(&"NOT_THERE".into()), None);
        assert_eq!(env.get(&"PATH".into()), Some(&"/x".into()));
        assert!(with(&["=x".into()], &[], &default_grants(), |_| None).is_err());
    }

    #[test]
    fn a_credential_is_passed_on_only_by_the_flag_for_it() {
        let name: OsString = "AWS_SECRET_ACCESS_KEY".into();
        let caller = |asked: &OsStr| (asked == "AWS_SECRET_ACCESS_KEY").then(|| "hunter2".into());
        let by_profile = || {
            let mut grants = default_grants();
            grants.env_pass.insert("AWS_SECRET_ACCESS_KEY".to_owned(), Origin::Standard);
            grants
        };
        for (flags, grants) in [(vec![name.clone()], default_grants()), (vec![], by_profile())] {
            let refused = with(&flags, &[], &grants, caller).unwrap_err();
            assert_eq!(refused.exit, nexus_model::exit::USAGE);
            assert!(refused.hint.contains("--env-secret AWS_SECRET_ACCESS_KEY"), "{refused}");
            assert!(!refused.to_string().contains("hunter2"), "{refused}");
            let told = with(&flags, std::slice::from_ref(&name), &grants, caller).unwrap();
            let secret: Vec<_> = told.iter().filter(|one| one.secret).collect();
            assert!(secret.len() == 1 && secret[0].value == "hunter2".into(), "{secret:?}");
        }
        // What is dropped is not passed on, and nobody has to say more.
        let mut dropped = by_profile();
        dropped.drop_variable("AWS_SECRET_ACCESS_KEY", Origin::Standard);
        assert!(with(&[], &[], &dropped, caller).is_ok());
        // A value that stands on the command line was written there on purpose.
        assert!(with(&["API_TOKEN=x7Kq".into()], &[], &default_grants(), caller).is_ok());
        for bad in ["", "A=b"] {
            assert!(with(&[], &[bad.into()], &default_grants(), caller).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_setting_makes_the_refusal_a_warning() {
        let caller = |asked: &OsStr| match asked.to_str() {
            Some("NEXUS_ENV_SECRET") => Some("warn".into()),
            Some("GITHUB_TOKEN") => Some("x7Kq".into()),
            _ => None,
        };
        let all = with(&["GITHUB_TOKEN".into()], &[], &default_grants(), caller).unwrap();
        assert!(all.iter().any(|one| one.secret && one.name == "GITHUB_TOKEN".into()));
    }

    #[test]
    fn a_dropped_variable_is_gone_whoever_gave_it_and_the_standard_ones_stay() {
        let mut grants = default_grants();
        for name in ["TZ", "A", "PATH"] {
            grants.drop_variable(name, Origin::Standard);
        }
        let all = with(&["A=x".into()], &[], &grants, |_| Some("y".into())).unwrap();
        let names: Vec<_> = all.iter().map(|one| one.name.as_path().display().to_string()).collect();
        assert!(!names.contains(&"A".to_owned()) && !names.contains(&"TZ".to_owned()), "{names:?}");
        assert!(names.contains(&"PATH".to_owned()) && names.contains(&"COLUMNS".to_owned()));
    }
}
