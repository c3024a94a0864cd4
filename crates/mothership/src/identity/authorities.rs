//! All authorities of a store: the one that signs, and those whose certificates still hold.
//!
//! ```text
//!  new ──(every server knows it)──▶ signs ──(a newer one signs)──▶ only trusted, without its key ──(its last certificate is over)──▶ gone
//! ```
//! The store has their certificates and their keys as two texts of PEM blocks. When each step is due follows from the certificates
//! alone, so that servers that share a store agree without a word.

use super::authority::{AUTHORITY_LIFE, Authority, AuthorityError, SLOW_CLOCK, public_key, validity};
use rcgen::{KeyPair, PublicKeyData};
use std::time::Duration;

/// Time from which on every server of a store trusts a new authority. They look each second.
const KNOWN_AFTER: Duration = Duration::from_secs(30);
/// An authority is replaced when such a part of its life is left.
const REPLACED_AT: u32 = 10;
/// Largest number of authorities at one time.
const MAX_MEMBERS: usize = 8;

/// The authorities of a store.
pub struct Authorities {
    /// The oldest first.
    members: Vec<Member>,
    /// Texts of the store.
    texts: Texts,
}

/// Certificates and private keys, as PEM blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    pub certificates: String,
    pub keys: String,
}

struct Member {
    certificate: String,
    /// Time at which it was made, in milliseconds since 1970.
    made: i64,
    /// Time at which its own certificate ends.
    ends: i64,
    /// There as long as it signs, or is going to.
    signer: Option<Authority>,
}

impl Authorities {
    /// Reads the texts of a store.
    pub fn load(texts: Texts) -> Result<Self, AuthorityError> {
        let keys = blocks(&texts.keys)
            .map(|key| Ok((KeyPair::from_pem(&key)?.subject_public_key_info(), key)))
            .collect::<Result<Vec<_>, AuthorityError>>()?;
        let mut members = Vec::new();
        for certificate in blocks(&texts.certificates) {
            let unreadable = || AuthorityError::Unreadable;
            let valid = validity(&certificate).ok_or_else(unreadable)?;
            let own = public_key(&certificate).ok_or_else(unreadable)?;
            let key = keys.iter().find(|(public, _)| *public == own).map(|(_, key)| key);
            let signer = key.map(|key| Authority::load(&certificate, key)).transpose()?;
            let made = valid.not_before * 1000 + ms(SLOW_CLOCK);
            members.push(Member { certificate, made, ends: valid.not_after * 1000, signer });
        }
        members.sort_by_key(|member| member.made);
        if members.iter().all(|member| member.signer.is_none()) {
            return Err(AuthorityError::Unreadable);
        }
        Ok(Self { members, texts })
    }

    /// Returns the texts of the store.
    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    /// The certificates of all authorities: a certificate of any of them is trusted.
    pub fn bundle(&self) -> &str {
        &self.texts.certificates
    }

    /// Returns the authority that signs: the newest that every server knows.
    pub fn signer(&self, now: i64, life: Duration) -> Option<&Authority> {
        self.members.get(self.signing(now, life)).and_then(|member| member.signer.as_ref())
    }

    fn signing(&self, now: i64, life: Duration) -> usize {
        let with_key = |member: &&(usize, &Member)| member.1.signer.is_some();
        let all: Vec<_> = self.members.iter().enumerate().collect();
        let known = all.iter().filter(with_key).rfind(|(_, member)| member.made + ms(known_after(life)) <= now);
        known.or_else(|| all.iter().find(with_key)).map_or(0, |(place, _)| *place)
    }

    /// Returns the texts with a new authority, which signs when every server knows it.
    pub fn rotated(&self, now: i64) -> Result<Texts, AuthorityError> {
        if self.members.len() >= MAX_MEMBERS {
            return Err(AuthorityError::TooMany);
        }
        let new = Authority::create(now)?;
        let (certificate, key) = new.export();
        let Texts { certificates, keys } = &self.texts;
        Ok(Texts { certificates: format!("{certificates}{certificate}"), keys: format!("{keys}{key}") })
    }

    /// Returns the texts that the store should have, when that is something else. `life` is that of a territory's certificate. By a clock
    /// that is not trusted no authority is removed: territories whose certificates it signed would have to join again.
    pub fn due(&self, now: i64, life: Duration, may_remove: bool) -> Result<Option<Texts>, AuthorityError> {
        let newest_ends = self.members.last().map_or(0, |member| member.ends);
        if newest_ends - now < ms(AUTHORITY_LIFE / REPLACED_AT) {
            return self.rotated(now).map(Some);
        }
        let signing = self.signing(now, life);
        // The clock of a daemon may be slow, but hardly by more than a certificate's life.
        let last = known_after(life) + life + SLOW_CLOCK.min(life);
        let mut texts = Texts { certificates: String::new(), keys: String::new() };
        for (place, member) in self.members.iter().enumerate() {
            let next = self.members.get(place + 1);
            let is_over = may_remove && place < signing && next.is_some_and(|next| next.made + ms(last) <= now);
            if !is_over {
                texts.certificates.push_str(&member.certificate);
            }
            if let (Some(signer), true) = (&member.signer, place >= signing) {
                texts.keys.push_str(signer.export().1);
            }
        }
        let is_same = blocks(&self.texts.certificates).eq(blocks(&texts.certificates))
            && blocks(&self.texts.keys).count() == blocks(&texts.keys).count();
        Ok((!is_same).then_some(texts))
    }
}

/// A short life of certificates is for tests, which do not wait.
fn known_after(life: Duration) -> Duration {
    KNOWN_AFTER.min(life / 10)
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the PEM blocks of a text.
fn blocks(text: &str) -> impl Iterator<Item = String> {
    const BEGIN: &str = "-----BEGIN ";
    text.split(BEGIN).skip(1).map(|block| format!("{BEGIN}{}\n", block.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;
    const DAY: i64 = 86_400_000;
    const LIFE: Duration = Duration::from_secs(90 * 86_400);

    fn first() -> Authorities {
        let authority = Authority::create(NOW).unwrap();
        let (certificate, key) = authority.export();
        Authorities::load(Texts { certificates: certificate.to_owned(), keys: key.to_owned() }).unwrap()
    }

    fn counts(all: &Authorities) -> (usize, usize) {
        (blocks(&all.texts.certificates).count(), blocks(&all.texts.keys).count())
    }

    #[test]
    fn a_new_authority_signs_when_all_know_it_and_the_old_one_is_trusted_to_the_last_certificate() {
        let old = first();
        assert_eq!(old.due(NOW + DAY, LIFE, true).unwrap(), None);
        let at = NOW + 5 * DAY;
        let both = Authorities::load(old.rotated(at).unwrap()).unwrap();
        assert_eq!(counts(&both), (2, 2));
        let signer = |all: &Authorities, now| all.signer(now, LIFE).unwrap().export().0.to_owned();
        let known = at + ms(KNOWN_AFTER);
        assert_eq!(signer(&both, known - 1000), signer(&old, at), "not every server knows the new one");
        assert_ne!(signer(&both, known), signer(&old, at));
        assert_eq!(both.due(known - 1000, LIFE, true).unwrap(), None);
        // The old key signs no more, and is not kept.
        let trusted = Authorities::load(both.due(known, LIFE, true).unwrap().unwrap()).unwrap();
        assert_eq!((counts(&trusted), signer(&trusted, known)), ((2, 1), signer(&both, known)));
        let last = known + ms(LIFE) + ms(SLOW_CLOCK);
        assert_eq!(trusted.due(last - 1000, LIFE, true).unwrap(), None, "a certificate of the old one may still hold");
        let far = last + 100 * DAY;
        assert_eq!(trusted.due(far, LIFE, false).unwrap(), None, "a clock that is not trusted removes no authority");
        let alone = Authorities::load(trusted.due(last, LIFE, true).unwrap().unwrap()).unwrap();
        assert_eq!((counts(&alone), signer(&alone, last)), ((1, 1), signer(&both, known)));
        assert_eq!(alone.due(last + DAY, LIFE, true).unwrap(), None);
    }

    #[test]
    fn an_authority_is_replaced_long_before_it_ends() {
        let old = first();
        let late = NOW + ms(AUTHORITY_LIFE) - ms(AUTHORITY_LIFE / REPLACED_AT);
        assert_eq!(old.due(late - DAY, LIFE, true).unwrap(), None);
        let both = Authorities::load(old.due(late + DAY, LIFE, true).unwrap().unwrap()).unwrap();
        assert_eq!((counts(&both), both.due(late + DAY + 1, LIFE, true).unwrap()), ((2, 2), None));
    }

    #[test]
    fn rotations_have_a_bound_and_texts_without_a_signer_are_refused() {
        let mut all = first();
        for number in 1..MAX_MEMBERS as i64 {
            all = Authorities::load(all.rotated(NOW + number * 1000).unwrap()).unwrap();
        }
        assert!(matches!(all.rotated(NOW + DAY), Err(AuthorityError::TooMany)));
        let strange = Texts { keys: first().texts.keys, ..all.texts };
        assert!(Authorities::load(strange).is_err());
        let empty = Texts { certificates: String::new(), keys: String::new() };
        assert!(Authorities::load(empty).is_err());
    }
}
