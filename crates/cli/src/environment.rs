//! The command's whole environment: an allow-list, never the caller's own.

use crate::binds::in_home;
use crate::failure::Failure;
use crate::profile::Found;
use nexus_model::ByteText;
use nexus_model::plan::HOME;
use nexus_policy::profile::{Grants, Origin};
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
    /// Who said so.
    pub from: Origin,
}

/// Puts it together: the standard ones, then what the profiles pass and set, then toolchains, then flags; what was
/// dropped goes last, since a workspace's file narrows flags too. `caller` looks a variable of the caller up.
pub fn build(
    flags: &[OsString],
    grants: &Grants,
    found: &Found,
    caller: impl Fn(&OsStr) -> Option<OsString>,
) -> Result<Vec<Variable>, Failure> {
    let mut all: BTreeMap<ByteText, Variable> = BTreeMap::new();
    let mut insert = |name: ByteText, value: ByteText, passed: bool, from: &Origin| {
        let variable = Variable { name: name.clone(), value, passed, from: from.clone() };
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
    for flag in flags {
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
    for name in grants.env_drop.keys().filter(|name| !KEPT.contains(&name.as_str())) {
        all.remove(&ByteText::from(name.as_str()));
    }
    Ok(all.into_values().collect())
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

    fn built(flags: &[&str]) -> BTreeMap<ByteText, ByteText> {
        let flags: Vec<OsString> = flags.iter().map(Into::into).collect();
        let caller = |name: &OsStr| match name.to_str() {
            Some("TZ") => Some("Europe/Paris".into()),
            Some("AWS_SECRET_ACCESS_KEY") => Some("hunter2".into()),
            _ => None,
        };
        let grants = default_grants();
        let all = build(&flags, &grants, &Found::default(), caller).unwrap();
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
        let env = built(&["A=b=c", "AWS_SECRET_ACCESS_KEY", "NOT_THERE", "PATH=/x"]);
        assert_eq!(env.get(&"A".into()), Some(&"b=c".into()));
        assert_eq!(env.get(&"AWS_SECRET_ACCESS_KEY".into()), Some(&"hunter2".into()));
        assert_eq!(env.get(&"NOT_THERE".into()), None);
        assert_eq!(env.get(&"PATH".into()), Some(&"/x".into()));
        assert!(build(&["=x".into()], &default_grants(), &Found::default(), |_| None).is_err());
    }

    #[test]
    fn a_dropped_variable_is_gone_whoever_gave_it_and_the_standard_ones_stay() {
        let mut grants = default_grants();
        for name in ["TZ", "A", "PATH"] {
            grants.drop_variable(name, Origin::Standard);
        }
        let all = build(&["A=x".into()], &grants, &Found::default(), |_| Some("y".into())).unwrap();
        let names: Vec<_> = all.iter().map(|one| one.name.as_path().display().to_string()).collect();
        assert!(!names.contains(&"A".to_owned()) && !names.contains(&"TZ".to_owned()), "{names:?}");
        assert!(names.contains(&"PATH".to_owned()) && names.contains(&"COLUMNS".to_owned()));
    }
}
