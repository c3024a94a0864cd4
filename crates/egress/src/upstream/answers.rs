//! Keeps valid answers of the name servers, bounded in number and size.
//!
//! The program inside can choose the name, and with it the name server and its whole answer. So only the addresses of
//! an answer are kept, and no answer with more of them than are used.

use crate::seams::MAX_ADDRESSES;
use hickory_proto::rr::RecordType;
use nexus_policy::net::Name;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of kept answers. With all their addresses they take less than 1 MiB.
const MAX_ANSWERS: usize = 512;
/// Maximum age of a kept answer, whatever its time to live.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Answer for one address family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) addrs: Vec<IpAddr>,
    /// Time at which the answer ends; `None` if the answer has no time to live.
    pub(crate) until: Option<Instant>,
    /// True if no answer came in time, which is remembered as long as the answer for the other family.
    pub(crate) silent: bool,
}

/// Table of kept answers.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<HashMap<(Name, RecordType), Family>>);

impl Answers {
    fn kept(&self) -> MutexGuard<'_, HashMap<(Name, RecordType), Family>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answer that holds at `now`.
    pub(crate) fn get(&self, name: &Name, kind: RecordType, now: Instant) -> Option<Family> {
        self.kept().get(&(name.clone(), kind)).filter(|family| holds(family, now)).cloned()
    }

    /// Keeps an answer until it ends. When the table is full, the answer that ends first is dropped.
    pub(crate) fn keep(&self, name: &Name, kind: RecordType, family: &Family, now: Instant) {
        if family.addrs.len() > MAX_ADDRESSES || !holds(family, now) {
            return;
        }
        let mut kept = self.kept();
        kept.retain(|_, family| holds(family, now));
        if kept.len() >= MAX_ANSWERS {
            let first = kept.iter().min_by_key(|(_, family)| family.until).map(|(key, _)| key.clone());
            first.and_then(|key| kept.remove(&key));
        }
        let until = family.until.map(|until| until.min(now + MAX_AGE));
        kept.insert((name.clone(), kind), Family { until, ..family.clone() });
    }
}

fn holds(family: &Family, now: Instant) -> bool {
    family.until.is_some_and(|until| until > now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_policy::net::Target;

    fn name(text: &str) -> Name {
        Target::parse(&format!("{text}:443")).unwrap().host.name().unwrap().clone()
    }

    fn answer(count: usize, until: Instant) -> Family {
        Family { addrs: vec![IpAddr::from([93, 184, 216, 34]); count], until: Some(until), silent: false }
    }

    #[test]
    fn an_answer_is_kept_while_it_holds() {
        let (answers, now) = (Answers::default(), Instant::now());
        let second = Duration::from_secs(1);
        let family = answer(MAX_ADDRESSES, now + second);
        answers.keep(&name("a.test"), RecordType::A, &family, now);
        assert_eq!(answers.get(&name("a.test"), RecordType::A, now), Some(family));
        assert_eq!(answers.get(&name("a.test"), RecordType::AAAA, now), None);
        assert_eq!(answers.get(&name("b.test"), RecordType::A, now), None);
        assert_eq!(answers.get(&name("a.test"), RecordType::A, now + second), None);
        // Neither one that says nothing nor one that is over.
        for until in [None, Some(now)] {
            answers.keep(&name("c.test"), RecordType::A, &Family { until, ..answer(1, now) }, now);
            assert_eq!(answers.get(&name("c.test"), RecordType::A, now), None);
        }
        answers.keep(&name("d.test"), RecordType::A, &answer(1, now + MAX_AGE * 9), now);
        assert_eq!(answers.get(&name("d.test"), RecordType::A, now + MAX_AGE), None);
    }

    #[test]
    fn kept_answers_are_bounded_in_number_and_size() {
        let (answers, now) = (Answers::default(), Instant::now());
        answers.keep(&name("large.test"), RecordType::A, &answer(MAX_ADDRESSES + 1, now + MAX_AGE), now);
        assert_eq!(answers.kept().len(), 0);
        answers.keep(&name("short.test"), RecordType::A, &answer(1, now + MAX_AGE / 2), now);
        for number in 0..MAX_ANSWERS * 2 {
            answers.keep(&name(&format!("n{number}.test")), RecordType::A, &answer(1, now + MAX_AGE), now);
            assert!(answers.kept().len() <= MAX_ANSWERS);
        }
        assert_eq!(answers.get(&name("short.test"), RecordType::A, now), None, "it ended first");
        let last = name(&format!("n{}.test", MAX_ANSWERS * 2 - 1));
        assert_eq!(answers.get(&last, RecordType::A, now), Some(answer(1, now + MAX_AGE)));
    }
}
