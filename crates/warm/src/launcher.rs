//! Makes the driver of a run, which asks the user's warm launcher first, and lists the settings that both must share.

use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::warm::WarmDriver;
use nexus_runner::state::directory::StateDir;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Returns the driver of a run in the foreground: with the user's launcher where there is one for this process.
pub fn driver_of(local: Namespace, uid_base: u32, places: &StateDir) -> WarmDriver {
    WarmDriver::new(local, &directory(places), sandboxes(uid_base))
}

/// The directory of the sockets.
pub fn directory(places: &StateDir) -> PathBuf {
    places.state.join("warm")
}

/// Returns the settings of every sandbox, by name. Programs for tests add what their variables change.
pub fn sandboxes(uid_base: u32) -> BTreeMap<&'static str, String> {
    #[allow(unused_mut, reason = "changed only with the feature inject")]
    let mut said = BTreeMap::from([("uid_base", uid_base.to_string())]);
    #[cfg(feature = "inject")]
    for name in INJECTED {
        said.extend(std::env::var(name).ok().map(|value| (*name, value)));
    }
    said
}

/// Variables that make a test program launch in another way.
#[cfg(feature = "inject")]
pub const INJECTED: &[&str] = &[
    "NEXUS_INJECT",
    "NEXUS_INJECT_STOP",
    "NEXUS_INJECT_DRAWN",
    "NEXUS_INJECT_CORE_PATTERN",
    nexus_driver_namespace::LEAVE_OUT,
];
