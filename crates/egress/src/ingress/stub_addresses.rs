//! Translates the addresses that the DNS stub made up back into names.

use crate::decide::denials;
use crate::decide::facts::synthetic::Found;
use crate::decide::state::Shared;
use nexus_policy::net::{Denial, Host, Target};
use std::sync::PoisonError;

/// Returns the name for which a synthetic address was given out, in every way in; any other target unchanged.
pub(crate) fn meant(shared: &Shared, target: Target) -> Result<Target, Denial> {
    let Host::Address(ip) = target.host else { return Ok(target) };
    let found = shared.synthetic.lock().unwrap_or_else(PoisonError::into_inner).name_of(ip);
    match found {
        Found::NotOurs => Ok(target),
        Found::Name(name) => Ok(Target { host: Host::Name(name), port: target.port }),
        Found::Forgotten => Err(denials::malformed(format!("{target} stands for no name any more: resolve it again"))),
    }
}
