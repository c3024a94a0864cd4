//! `auto`: whether the toolchains that the caller's PATH and environment lead to are shown.
//!
//! They are unless a profile, `--profile none`, `NEXUS_PROFILE=none` or the operator says otherwise.

use crate::failure::Failure;
use nexus_policy::profile::{Grants, Origin, Sourced};
use nexus_policy::settings::Settings;
use nexus_profiles::Host;

/// The variable of scripts that want the same everywhere.
const VARIABLE: &str = "NEXUS_PROFILE";

/// Returns the profile that the caller's environment names. It may only choose between the two defaults: what else a
/// run may do is written on its command line.
pub fn of_environment(caller: &Host) -> Result<Option<(String, Origin)>, Failure> {
    let Some(value) = caller.variable(VARIABLE) else { return Ok(None) };
    if let Some(name @ ("none" | "auto")) = value.to_str() {
        return Ok(Some((name.to_owned(), Origin::Flag(format!("{VARIABLE}={name}")))));
    }
    let message = format!("{VARIABLE} is {}, and it can be none or auto", value.display());
    Err(Failure::usage("profile", message, "Name another profile with --profile."))
}

/// Applies the operator's setting: it refuses a run that asks for `auto`, and switches the default off.
pub fn obey(grants: &mut Grants, settings: &Settings) -> Result<(), Failure> {
    let Some(refused) = settings.allow_auto.as_ref().filter(|allowed| !allowed.value) else { return Ok(()) };
    match &grants.auto {
        Some(asked) if asked.value => {
            let message = format!("{} asks for auto, and {} refuses it", asked.from, refused.from);
            Err(Failure::refused("auto", message, "name the toolchains that the command needs, as in --profile rust"))
        }
        Some(_) => Ok(()),
        None => {
            grants.auto = Some(Sourced::new(false, refused.from.clone()));
            Ok(())
        }
    }
}
