//! Waits, up to a bound, for what a dying sandbox or another command still holds.

use nexus_layer::RecoverError;
use std::time::{Duration, Instant};

/// Time for which a dying sandbox may hold on to its layer.
const WITHIN: Duration = Duration::from_secs(5);

/// Time for which another command may recover runs.
const OTHERS_WITHIN: Duration = Duration::from_secs(30);

/// Reports whether the error says that another process works with the layer.
pub fn is_busy(error: &RecoverError) -> bool {
    matches!(error, RecoverError::Busy { .. })
}

/// Repeats what a sandbox that is just being killed may still hold up.
pub fn patiently<T, E>(act: impl FnMut() -> Result<T, E>, is_busy: impl Fn(&E) -> bool) -> Result<T, E> {
    repeated(WITHIN, act, is_busy)
}

/// Repeats what another command that recovers runs holds up. It may wait itself, for several runs.
pub fn after_others<T, E>(act: impl FnMut() -> Result<T, E>, is_busy: impl Fn(&E) -> bool) -> Result<T, E> {
    repeated(OTHERS_WITHIN, act, is_busy)
}

fn repeated<T, E>(
    within: Duration,
    mut act: impl FnMut() -> Result<T, E>,
    is_busy: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let deadline = Instant::now() + within;
    loop {
        match act() {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}
