//! The flags for variables of a command: `--env NAME[=VALUE]` and `--env-secret NAME`.

use crate::advice::CREDENTIALS;
use crate::failure::Failure;
use nexus_model::ByteText;
use nexus_policy::profile::Origin;
use nexus_runner::plan::environment::{PassedCredential, passed_credential};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Refuses a value of `--env` without a name.
pub fn no_name(flag: &OsStr) -> Failure {
    let message = format!("--env {} has no name", flag.display());
    let hint = "write --env NAME=VALUE, or --env NAME to pass the caller's value on";
    Failure::usage("env", message, hint)
}

/// Reads the name that `--env-secret` gives.
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

/// Reports whether the caller asked for warnings instead of refusals.
pub fn only_warns() -> bool {
    std::env::var_os(CREDENTIALS).is_some_and(|setting| setting == "warn")
}

/// Refuses a variable that `--env` would pass on and that looks like a credential, or warns of it.
pub fn check_passed(name: &ByteText, value: &ByteText) -> Result<(), Failure> {
    match passed_credential(name, value, &Origin::Flag("--env".to_owned())) {
        None => Ok(()),
        Some(found) if only_warns() => {
            warn(&[found]);
            Ok(())
        }
        Some(found) => Err(found.into()),
    }
}

/// Warns of variables that are passed on although they look like credentials.
pub fn warn(passed: &[PassedCredential]) {
    for one in passed {
        let name = one.name.as_os_str().display();
        crate::notices::tell(&format!("{one}. A later version refuses this: write --env-secret {name}."));
    }
}
