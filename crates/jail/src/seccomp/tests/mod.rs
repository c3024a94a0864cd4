//! Tests of the seccomp module. `interpret.rs` runs filter programs as the
//! kernel would, `meaning.rs` says what a profile means without compiling it.

mod builtin;
mod calls;
mod generated;
mod interpret;
mod json;
mod live;
mod meaning;
mod properties;

use super::{Action, Permissions, Program, SeccompProfile, compile};
use interpret::{SeccompData, run};

/// Compiles a profile that is known to fit.
fn compiled(profile: &SeccompProfile) -> Program {
    compile(profile).expect("the profile is short enough")
}

/// The profile that most tests look at.
fn default_profile() -> SeccompProfile {
    SeccompProfile::builtin(Permissions::default()).expect("the embedded profile is valid")
}

/// Returns the answer of a program to a native call.
fn answer(program: &[libc::sock_filter], call: &str, arguments: &[u64]) -> Action {
    let number = super::table::number(call).unwrap_or_else(|| panic!("no call is named {call}"));
    run(program, &SeccompData::native(number, arguments)).action
}
