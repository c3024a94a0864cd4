//! The guest's own walls, and the switches by which a test leaves them out (feature `inject`).

#[cfg(all(feature = "inject", not(debug_assertions)))]
compile_error!("the feature inject leaves walls out of sandboxes: a release build must not have it");

/// The walls of the guest that stand.
#[derive(Debug, Clone, Copy)]
pub struct Walls {
    /// A command starts only after a proof that holds.
    pub proof: bool,
    /// A command gets none of the guest's descriptors.
    pub descriptors: bool,
}

#[cfg(feature = "inject")]
static LEFT_OUT: std::sync::Mutex<Walls> = std::sync::Mutex::new(Walls { proof: true, descriptors: true });

/// Sets which walls stand in every guest that becomes one from this process.
#[cfg(feature = "inject")]
pub fn set(walls: Walls) {
    *LEFT_OUT.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = walls;
}

/// Returns which walls stand.
#[cfg(feature = "inject")]
pub(crate) fn walls() -> Walls {
    *LEFT_OUT.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns which walls stand: without the feature `inject` each does.
#[cfg(not(feature = "inject"))]
pub(crate) const fn walls() -> Walls {
    Walls { proof: true, descriptors: true }
}
