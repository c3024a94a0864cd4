//! Chooses and makes the driver of this program. This is the one place that says which driver it is: the commands, the recovery
//! and the daemon of a territory name [`Local`]. What a second driver takes is in ARCHITECTURE.md.

use nexus_driver_namespace::Namespace;

pub use nexus_driver_namespace::DEFAULT_UID_BASE;

/// The driver of this program.
pub type Local = Namespace;

/// Returns the driver for this process's user with the standard ids.
pub fn local() -> Local {
    with_uid_base(DEFAULT_UID_BASE)
}

/// Returns the driver for this process's user. Root's sandboxes get host ids from `uid_base` on.
pub fn with_uid_base(uid_base: u32) -> Local {
    #[allow(unused_mut, reason = "changed only with the feature inject")]
    let mut driver = Namespace::new(uid_base);
    #[cfg(feature = "inject")]
    if let Some(drawn) = std::env::var("NEXUS_INJECT_DRAWN").ok().and_then(|drawn| drawn.parse().ok()) {
        // Tests that look for traces on the host know their sandboxes by the id.
        driver = Namespace::with_drawn(uid_base, Ok(drawn));
    }
    #[cfg(feature = "inject")]
    if let Some(name) = std::env::var_os("NEXUS_INJECT")
        && let Some(step) = name.to_str().and_then(nexus_driver_namespace::Step::by_name)
    {
        driver.faults = nexus_driver_namespace::Faults::failing(step);
    }
    #[cfg(feature = "inject")]
    if let Ok(name) = std::env::var("NEXUS_INJECT_STOP")
        && let Some(step) = nexus_driver_namespace::Step::by_name(&name)
    {
        driver.faults = nexus_driver_namespace::Faults::stopping(step);
    }
    #[cfg(feature = "inject")]
    if let Some(file) = std::env::var_os("NEXUS_INJECT_CORE_PATTERN") {
        driver.core_pattern = file.into();
    }
    #[cfg(feature = "inject")]
    if let Ok(names) = std::env::var(nexus_driver_namespace::LEAVE_OUT)
        && let Err(problem) = nexus_driver_namespace::leave_out(&names)
    {
        crate::notices::tell(&problem);
        // Nothing is launched for a test that names a wall wrongly.
        driver.faults = nexus_driver_namespace::Faults::failing(nexus_driver_namespace::Step::Identity);
    }
    driver
}
