//! Rights that the store has confirmed a moment ago, so that not each request asks again.
//!
//! ```text
//!  request ─▶ known for less than a second? ─yes─▶ identity
//!                 └─no─▶ store ─▶ noted, unless something was revoked meanwhile
//!  revocation in this server, or a hint of another one ─▶ all is forgotten, and polls that wait look again
//! ```
//! Only what the store said yes to is kept: a key that is made counts at once.

use crate::store::types::{Account, SecretHash, Territory};
use nexus_model::ids::TerritoryId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which an answer of the store counts.
const LIFE: Duration = Duration::from_secs(1);
/// Largest number of answers. More are not needed: a daemon and a user ask again and again.
const MAX_KNOWN: usize = 4_096;

/// Time for which a key that has read the counters reads them while the store does not answer.
const READER_LIFE: Duration = Duration::from_secs(600);
/// Largest number of such keys.
const MAX_READERS: usize = 64;

/// Proof of an identity that a request brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The public key of a client certificate.
    Key(SecretHash),
    /// The fingerprint of a client certificate, in the words of a proxy.
    Fingerprint(SecretHash),
    /// The id of a territory, where that is enough.
    Id(TerritoryId),
    /// An API key.
    ApiKey(SecretHash),
}

/// Identity that the store has confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The daemon of a territory.
    Territory(Territory),
    /// A user or a program.
    Account(Account),
}

/// Answer about a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// The store has confirmed it.
    Confirmed(Identity),
    /// The store has to be asked. The number is for [`Rights::note`].
    Nothing(u64),
}

/// Identities that the store has confirmed, by their proof.
#[derive(Debug, Default)]
pub struct Rights(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    identities: HashMap<Proof, (Identity, Instant)>,
    /// Keys that have read the counters, which say nothing of an account.
    readers: HashMap<SecretHash, Instant>,
    /// Number of revocations. An answer to a question that was asked before the latest one is not kept.
    revocations: u64,
}

impl Rights {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the identity that a proof was confirmed for a moment ago.
    pub fn find(&self, proof: &Proof) -> Known {
        let state = self.state();
        let fresh = state.identities.get(proof).filter(|(_, at)| at.elapsed() < LIFE);
        fresh.map_or(Known::Nothing(state.revocations), |(identity, _)| Known::Confirmed(*identity))
    }

    /// Keeps an answer of the store to a question that was asked after `asked`.
    pub fn note(&self, proof: Proof, identity: Identity, asked: (u64, Instant)) {
        let (revocations, at) = asked;
        let mut state = self.state();
        if state.revocations != revocations {
            return;
        }
        if state.identities.len() >= MAX_KNOWN {
            state.identities.clear();
        }
        state.identities.insert(proof, (identity, at));
    }

    /// Forgets everything: something was revoked.
    pub fn forget(&self) {
        let mut state = self.state();
        state.revocations += 1;
        state.identities.clear();
        state.readers.clear();
    }

    /// Notes that the store has confirmed a key that reads the counters.
    pub fn note_reader(&self, key: SecretHash) {
        let readers = &mut self.state().readers;
        if readers.len() >= MAX_READERS {
            readers.clear();
        }
        readers.insert(key, Instant::now());
    }

    /// Returns whether a key reads the counters also while the store does not answer. Without the store no user can revoke it.
    pub fn is_reader(&self, key: &SecretHash) -> bool {
        self.state().readers.get(key).is_some_and(|at| at.elapsed() < READER_LIFE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::ids::AccountId;

    #[test]
    fn an_answer_counts_for_a_second_and_not_after_a_revocation() {
        let rights = Rights::default();
        let id = TerritoryId::new();
        let (proof, identity) = (Proof::Id(id), Identity::Territory(Territory { id, account: AccountId::new() }));
        let Known::Nothing(asked) = rights.find(&proof) else { panic!("nothing was noted") };
        rights.note(proof, identity, (asked, Instant::now()));
        assert_eq!(rights.find(&proof), Known::Confirmed(identity));
        rights.forget();
        let Known::Nothing(again) = rights.find(&proof) else { panic!("it was forgotten") };
        // The question was asked before the revocation, and its answer came after it.
        rights.note(proof, identity, (asked, Instant::now()));
        assert_eq!(rights.find(&proof), Known::Nothing(again));
        let long_ago = Instant::now().checked_sub(LIFE).unwrap();
        rights.note(proof, identity, (again, long_ago));
        assert_eq!(rights.find(&proof), Known::Nothing(again), "the time counts from the question");
    }

    #[test]
    fn a_key_that_has_read_the_counters_is_known_until_something_is_revoked() {
        let rights = Rights::default();
        assert!(!rights.is_reader(&[1; 32]));
        rights.note_reader([1; 32]);
        assert!(rights.is_reader(&[1; 32]) && !rights.is_reader(&[2; 32]));
        rights.forget();
        assert!(!rights.is_reader(&[1; 32]));
        rights.state().readers.insert([3; 32], Instant::now().checked_sub(READER_LIFE).unwrap());
        assert!(!rights.is_reader(&[3; 32]), "the time is over");
        for number in 0..=MAX_READERS as u8 {
            rights.note_reader([number; 32]);
        }
        assert!(rights.state().readers.len() <= MAX_READERS);
    }

    #[test]
    fn the_number_of_answers_is_bounded() {
        let rights = Rights::default();
        let account = AccountId::new();
        for _ in 0..=MAX_KNOWN {
            let id = TerritoryId::new();
            rights.note(Proof::Id(id), Identity::Territory(Territory { id, account }), (0, Instant::now()));
        }
        assert_eq!(rights.state().identities.len(), 1);
    }
}
