//! Remembers the names that were not answered in time.

use nexus_policy::net::Name;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a name without an answer gets a shorter limit.
const SILENT: Duration = Duration::from_secs(30);
/// Divisor of the time limit for such a name.
const SHORT: u32 = 10;
/// Maximum number of silent names that are remembered. A forgotten name gets the full time limit.
const MAX_SILENT: usize = 256;

/// Names that were not answered in time, each with its own time: the program inside chooses names, and one that is
/// never answered must not shorten the wait for another.
#[derive(Debug, Default)]
pub(crate) struct Silence(Mutex<HashMap<Name, Instant>>);

impl Silence {
    fn since(&self) -> MutexGuard<'_, HashMap<Name, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time limit for `name`, of at most `most`.
    pub(crate) fn limit(&self, name: &Name, most: Duration) -> Duration {
        let silent = self.since().get(name).is_some_and(|since| since.elapsed() < SILENT);
        if silent { most / SHORT } else { most }
    }

    /// Records whether an answer came within `limit`, which is at most `most`.
    pub(crate) fn received(&self, name: &Name, answered: bool, limit: Duration, most: Duration) {
        let mut since = self.since();
        if answered {
            since.remove(name);
        } else if limit == most {
            since.retain(|_, since| since.elapsed() < SILENT);
            if since.len() >= MAX_SILENT {
                let oldest = since.iter().min_by_key(|(_, since)| **since).map(|(name, _)| name.clone());
                oldest.and_then(|name| since.remove(&name));
            }
            since.insert(name.clone(), Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_policy::net::Target;

    fn name(text: &str) -> Name {
        Target::parse(&format!("{text}:443")).unwrap().host.name().unwrap().clone()
    }

    #[test]
    fn each_silent_name_shortens_its_own_wait_alone() {
        let (silence, most) = (Silence::default(), Duration::from_secs(3));
        assert_eq!(silence.limit(&name("gone.test"), most), most);
        silence.received(&name("gone.test"), false, most, most);
        assert_eq!(silence.limit(&name("gone.test"), most), most / SHORT);
        assert_eq!(silence.limit(&name("slow.test"), most), most);
        silence.received(&name("gone.test"), true, most / SHORT, most);
        assert_eq!(silence.limit(&name("gone.test"), most), most);
        for number in 0..MAX_SILENT * 2 {
            silence.received(&name(&format!("n{number}.test")), false, most, most);
            assert!(silence.since().len() <= MAX_SILENT);
        }
        assert_eq!(silence.limit(&name("n0.test"), most), most, "the oldest one is forgotten");
    }
}
