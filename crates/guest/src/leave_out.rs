//! Confinement of the guest's own, and the switches by which a test leaves parts of it out (feature `inject`).

#[cfg(all(feature = "inject", not(debug_assertions)))]
compile_error!("the feature inject leaves confinement out of sandboxes: a release build must not have it");

/// The parts of the guest's confinement that are in force.
#[derive(Debug, Clone, Copy)]
pub struct Confinement {
    /// A command starts only after a proof that holds.
    pub proof: bool,
    /// A command gets none of the guest's descriptors.
    pub descriptors: bool,
}

#[cfg(feature = "inject")]
static LEFT_OUT: std::sync::Mutex<Confinement> = std::sync::Mutex::new(Confinement { proof: true, descriptors: true });

/// Sets the confinement of every guest that this process becomes or forks.
#[cfg(feature = "inject")]
pub fn set(confinement: Confinement) {
    *LEFT_OUT.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = confinement;
}

/// Returns the confinement that is in force.
#[cfg(feature = "inject")]
pub(crate) fn confinement() -> Confinement {
    *LEFT_OUT.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns the confinement that is in force: all of it without the feature `inject`.
#[cfg(not(feature = "inject"))]
pub(crate) const fn confinement() -> Confinement {
    Confinement { proof: true, descriptors: true }
}
