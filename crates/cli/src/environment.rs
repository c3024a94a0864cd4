//! The command's whole environment: an allow-list, never the caller's own.

use crate::failure::Failure;
use nexus_model::ByteText;
use nexus_model::plan::HOME;
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
/// Passed on from the caller when set.
const PASSED: &[&str] = &["TZ", "COLUMNS"];

/// Puts it together; `caller` looks a variable of the caller up.
pub fn build(
    flags: &[OsString],
    caller: impl Fn(&OsStr) -> Option<OsString>,
) -> Result<Vec<(ByteText, ByteText)>, Failure> {
    let mut all: BTreeMap<ByteText, ByteText> =
        STANDARD.iter().map(|(name, value)| (ByteText::from(*name), ByteText::from(*value))).collect();
    for name in PASSED {
        if let Some(value) = caller(OsStr::new(name)) {
            all.insert(ByteText::from(*name), value.into());
        }
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
            all.insert(ByteText(name.to_vec()), ByteText(value));
        }
    }
    Ok(all.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(flags: &[&str]) -> BTreeMap<ByteText, ByteText> {
        let flags: Vec<OsString> = flags.iter().map(Into::into).collect();
        let caller = |name: &OsStr| match name.to_str() {
            Some("TZ") => Some("Europe/Paris".into()),
            Some("AWS_SECRET_ACCESS_KEY") => Some("hunter2".into()),
            _ => None,
        };
        build(&flags, caller).unwrap().into_iter().collect()
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
        assert!(build(&["=x".into()], |_| None).is_err());
    }
}
