//! The life of an approval as one pure function, which the command line and the control plane share.
//!
//! ```text
//!  request ─▶ pending ─approve, some are missing─▶ pending
//!               │ └──approve, the last of the quorum─▶ granted ─use─▶ granted (a use less) ─the last use─▶ used
//!               ├─deny─▶ denied ◀─deny─────────────────┤
//!               ├─its time is over─▶ expired ◀─────────┤ its time is over
//!               └─its act is over──▶ withdrawn ◀───────┘ its act is over
//! ```
//! A terminal state never changes. An approval is for exactly one subject: a use that names another digest is refused. No user
//! answers with the credential that asked, and a quorum counts users, not credentials. A use has a name: the same use again
//! after a crash is the same use.

use crate::digest::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Largest number of uses of one approval.
pub const MAX_USES: u32 = 1000;

/// Act that is approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// The start of a command.
    Exec,
    /// A connection to the network.
    Egress,
    /// The use of a secret.
    SecretUse,
    /// A file that leaves the sandbox.
    FileOut,
    /// Changes that come into a workspace.
    Changes,
}

/// User who asks or answers, with the credential that was shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Actor {
    /// The user, such as a uid or the id of a user of the control plane.
    pub user: String,
    /// The credential, such as a session of a terminal or the id of an API key.
    pub credential: String,
}

/// State of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// A user has to answer.
    Pending,
    /// It can be used.
    Granted,
    /// Every use was taken.
    Used,
    /// A user refused it.
    Denied,
    /// Its time is over.
    Expired,
    /// The act that it was for cannot happen any more.
    Withdrawn,
}

impl ApprovalState {
    /// Reports whether the state never changes again.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Used | Self::Denied | Self::Expired | Self::Withdrawn)
    }

    /// Returns the word of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Granted => "granted",
            Self::Used => "used",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// An approval. Times are milliseconds of the clock of the process that keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Act that is approved.
    pub kind: ApprovalKind,
    /// Digest of exactly what is approved.
    pub subject: Digest,
    /// The one who asks.
    pub requester: Actor,
    /// The time after which it is neither answered nor used.
    pub expires_at: u64,
    /// The time by which it must be granted, if its act waits for the answer and no longer; a granted one is used after it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_by: Option<u64>,
    /// Number of uses that it has when it is granted.
    pub max_uses: u32,
    /// Number of users who must approve it.
    pub quorum: u32,
    /// State of the approval.
    pub state: ApprovalState,
    /// Those who approved it.
    pub approvers: BTreeSet<Actor>,
    /// The one who denied it.
    pub denied_by: Option<Actor>,
    /// Names of the uses that were taken.
    pub uses: BTreeSet<String>,
}

/// Event in the life of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalEvent {
    /// A user approves it.
    Approve {
        /// The one who answers.
        by: Actor,
        /// Number of uses, if the one who answers allows fewer than were asked for.
        max_uses: Option<u32>,
        /// Earlier end, if the one who answers sets one.
        expires_at: Option<u64>,
    },
    /// A user refuses it, or takes it back.
    Deny {
        /// The one who answers.
        by: Actor,
    },
    /// It is used.
    Use {
        /// Digest of what is about to happen.
        subject: Digest,
        /// Name of the use, such as the id of a run.
        name: String,
    },
    /// The act that it is for cannot happen any more.
    Withdraw,
    /// Time went by.
    Tick,
}

/// An event that cannot happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalRefusal {
    /// The approval is over.
    #[error("the approval is {}", state.name())]
    Over {
        /// State of the approval.
        state: ApprovalState,
    },
    /// No user approved it yet.
    #[error("the approval is pending")]
    Pending,
    /// It is granted already.
    #[error("the approval is granted already")]
    Granted,
    /// The credential that asked may not answer.
    #[error("who asks for an approval does not answer it")]
    OwnRequest,
    /// The user has answered.
    #[error("the user has approved it already")]
    Again,
    /// It is for something else.
    #[error("the approval is for something else")]
    OtherSubject,
    /// Numbers that an approval cannot have.
    #[error("an approval has 1 to {MAX_USES} uses, a quorum of at least 1, and an end")]
    Bounds,
}

impl ApprovalRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Over { .. } => "approval_over",
            Self::Pending => "approval_pending",
            Self::Granted => "approval_granted",
            Self::OwnRequest => "self_approval",
            Self::Again => "approved_already",
            Self::OtherSubject => "other_subject",
            Self::Bounds => "approval_bounds",
        }
    }
}

impl Approval {
    /// Returns a new approval that waits for an answer.
    pub fn request(
        kind: ApprovalKind,
        subject: Digest,
        requester: Actor,
        expires_at: u64,
        max_uses: u32,
        quorum: u32,
    ) -> Result<Self, ApprovalRefusal> {
        if !(1..=MAX_USES).contains(&max_uses) || quorum == 0 {
            return Err(ApprovalRefusal::Bounds);
        }
        Ok(Self {
            kind,
            subject,
            requester,
            expires_at,
            answer_by: None,
            max_uses,
            quorum,
            state: ApprovalState::Pending,
            approvers: BTreeSet::new(),
            denied_by: None,
            uses: BTreeSet::new(),
        })
    }

    /// Returns the approval with a time by which it must be granted.
    #[must_use]
    pub fn answered_by(self, end: u64) -> Self {
        Self { answer_by: Some(end), ..self }
    }

    /// Reports whether its time is over at `now`.
    fn is_late(&self, now: u64) -> bool {
        let unanswered = self.state == ApprovalState::Pending && self.answer_by.is_some_and(|end| now >= end);
        unanswered || now >= self.expires_at
    }

    /// Returns the number of uses that are left.
    #[must_use]
    pub fn uses_left(&self) -> u32 {
        self.max_uses.saturating_sub(u32::try_from(self.uses.len()).unwrap_or(u32::MAX))
    }

    /// Returns the approval after `event` at the time `now`. An approval whose time is over is expired, whatever the event
    /// wants: [`ApprovalEvent::Tick`] and [`ApprovalEvent::Withdraw`] return it so.
    pub fn step(&self, event: &ApprovalEvent, now: u64) -> Result<Self, ApprovalRefusal> {
        let mut next = self.clone();
        // A use that was taken stays taken: who repeats it after a crash learns so also when the approval is over.
        if let ApprovalEvent::Use { subject, name } = event
            && self.uses.contains(name)
        {
            return if *subject == self.subject { Ok(next) } else { Err(ApprovalRefusal::OtherSubject) };
        }
        if self.state.is_over() {
            return match event {
                ApprovalEvent::Tick | ApprovalEvent::Withdraw => Ok(next),
                _ => Err(ApprovalRefusal::Over { state: self.state }),
            };
        }
        if self.is_late(now) {
            next.state = ApprovalState::Expired;
            return match event {
                ApprovalEvent::Tick | ApprovalEvent::Withdraw => Ok(next),
                _ => Err(ApprovalRefusal::Over { state: ApprovalState::Expired }),
            };
        }
        match event {
            ApprovalEvent::Tick => {}
            ApprovalEvent::Withdraw => next.state = ApprovalState::Withdrawn,
            ApprovalEvent::Approve { by, max_uses, expires_at } => {
                if self.state == ApprovalState::Granted {
                    return Err(ApprovalRefusal::Granted);
                }
                if by.credential == self.requester.credential {
                    return Err(ApprovalRefusal::OwnRequest);
                }
                if self.approvers.iter().any(|known| known.user == by.user) {
                    return Err(ApprovalRefusal::Again);
                }
                if *max_uses == Some(0) || expires_at.is_some_and(|end| end <= now) {
                    return Err(ApprovalRefusal::Bounds);
                }
                // Each answer can only take away.
                next.max_uses = max_uses.map_or(self.max_uses, |uses| uses.min(self.max_uses));
                next.expires_at = expires_at.map_or(self.expires_at, |end| end.min(self.expires_at));
                next.approvers.insert(by.clone());
                if next.approvers.len() >= usize::try_from(self.quorum).unwrap_or(usize::MAX) {
                    next.state = ApprovalState::Granted;
                }
            }
            ApprovalEvent::Deny { by } => {
                next.denied_by = Some(by.clone());
                next.state = ApprovalState::Denied;
            }
            ApprovalEvent::Use { subject, name } => {
                if self.state == ApprovalState::Pending {
                    return Err(ApprovalRefusal::Pending);
                }
                if *subject != self.subject {
                    return Err(ApprovalRefusal::OtherSubject);
                }
                next.uses.insert(name.clone());
                if next.uses_left() == 0 {
                    next.state = ApprovalState::Used;
                }
            }
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn actor(user: &str, credential: &str) -> Actor {
        Actor { user: user.into(), credential: credential.into() }
    }

    fn approval(uses: u32, quorum: u32) -> Approval {
        let subject = Digest::of(b"a");
        Approval::request(ApprovalKind::Exec, subject, actor("u", "asks"), 100, uses, quorum).unwrap()
    }

    fn yes(user: &str, credential: &str) -> ApprovalEvent {
        ApprovalEvent::Approve { by: actor(user, credential), max_uses: None, expires_at: None }
    }

    fn used(name: &str, subject: &[u8]) -> ApprovalEvent {
        ApprovalEvent::Use { subject: Digest::of(subject), name: name.into() }
    }

    #[test]
    fn who_asks_does_not_answer_and_the_same_user_may_with_another_credential() {
        let asked = approval(1, 1);
        assert_eq!(asked.step(&yes("u", "asks"), 1), Err(ApprovalRefusal::OwnRequest));
        assert_eq!(asked.step(&yes("v", "asks"), 1), Err(ApprovalRefusal::OwnRequest));
        assert_eq!(asked.step(&yes("u", "terminal"), 1).unwrap().state, ApprovalState::Granted);
    }

    #[test]
    fn a_quorum_counts_users_and_not_credentials() {
        let one = approval(1, 2).step(&yes("v", "1"), 1).unwrap();
        assert_eq!(one.state, ApprovalState::Pending);
        assert_eq!(one.step(&used("r", b"a"), 1), Err(ApprovalRefusal::Pending));
        assert_eq!(one.step(&yes("v", "2"), 1), Err(ApprovalRefusal::Again));
        let both = one.step(&yes("w", "3"), 1).unwrap();
        assert_eq!(both.state, ApprovalState::Granted);
        assert_eq!(both.step(&yes("x", "4"), 1), Err(ApprovalRefusal::Granted), "the second of two answers is told");
    }

    #[test]
    fn a_use_is_for_the_same_subject_and_counts_once() {
        let granted = approval(2, 1).step(&yes("v", "1"), 1).unwrap();
        assert_eq!(granted.step(&used("r", b"b"), 1), Err(ApprovalRefusal::OtherSubject));
        let once = granted.step(&used("r", b"a"), 1).unwrap();
        assert_eq!((once.uses_left(), once.state), (1, ApprovalState::Granted));
        assert_eq!(once.step(&used("r", b"a"), 1).unwrap(), once, "the same use after a crash");
        assert_eq!(once.step(&used("r", b"b"), 1), Err(ApprovalRefusal::OtherSubject));
        let twice = once.step(&used("s", b"a"), 1).unwrap();
        assert_eq!(twice.state, ApprovalState::Used);
        assert_eq!(twice.step(&used("t", b"a"), 1), Err(ApprovalRefusal::Over { state: ApprovalState::Used }));
        assert_eq!(twice.step(&used("s", b"a"), 500).unwrap(), twice);
    }

    #[test]
    fn nothing_is_answered_or_used_after_its_time() {
        let over = Err(ApprovalRefusal::Over { state: ApprovalState::Expired });
        assert_eq!(approval(1, 1).step(&yes("v", "1"), 100), over);
        let granted = approval(1, 1).step(&yes("v", "1"), 99).unwrap();
        assert_eq!(granted.step(&used("r", b"a"), 100), over);
        assert_eq!(granted.step(&ApprovalEvent::Tick, 100).unwrap().state, ApprovalState::Expired);
        assert_eq!(granted.step(&ApprovalEvent::Tick, 99).unwrap(), granted);
    }

    #[test]
    fn an_act_that_waits_is_answered_in_its_time_and_used_after_it() {
        let waits = approval(2, 1).answered_by(10);
        let over = Err(ApprovalRefusal::Over { state: ApprovalState::Expired });
        assert_eq!(waits.step(&yes("v", "1"), 10), over);
        assert_eq!(waits.step(&ApprovalEvent::Tick, 10).unwrap().state, ApprovalState::Expired);
        let granted = waits.step(&yes("v", "1"), 9).unwrap();
        assert_eq!(granted.step(&used("r", b"a"), 50).unwrap().uses_left(), 1);
        assert_eq!(granted.step(&used("r", b"a"), 100), over);
        // The first of two answers does not keep it open.
        let half = approval(1, 2).answered_by(10).step(&yes("v", "1"), 9).unwrap();
        assert_eq!(half.step(&yes("w", "2"), 10), over);
    }

    #[test]
    fn an_approval_whose_act_is_over_is_neither_answered_nor_used() {
        let over = Err(ApprovalRefusal::Over { state: ApprovalState::Withdrawn });
        let asked = approval(2, 1);
        assert_eq!(asked.step(&ApprovalEvent::Withdraw, 1).unwrap().step(&yes("v", "1"), 2), over);
        let granted = asked.step(&yes("v", "1"), 1).unwrap();
        let once = granted.step(&used("r", b"a"), 1).unwrap();
        let gone = once.step(&ApprovalEvent::Withdraw, 2).unwrap();
        assert_eq!(gone.step(&used("s", b"a"), 3), over);
        assert_eq!(gone.step(&used("r", b"a"), 3).unwrap(), gone, "the use that was taken stays taken");
        assert_eq!(granted.step(&ApprovalEvent::Withdraw, 100).unwrap().state, ApprovalState::Expired);
        let used_up = once.step(&used("s", b"a"), 2).unwrap();
        assert_eq!(used_up.step(&ApprovalEvent::Withdraw, 3).unwrap().state, ApprovalState::Used);
    }

    #[test]
    fn an_answer_takes_away_and_never_adds() {
        let answer = |max_uses, expires_at| {
            let by = actor("v", "1");
            approval(5, 1).step(&ApprovalEvent::Approve { by, max_uses, expires_at }, 1)
        };
        let less = answer(Some(2), Some(50)).unwrap();
        assert_eq!((less.max_uses, less.expires_at), (2, 50));
        let more = answer(Some(9), Some(900)).unwrap();
        assert_eq!((more.max_uses, more.expires_at), (5, 100));
        assert_eq!(answer(Some(0), None), Err(ApprovalRefusal::Bounds));
        assert_eq!(answer(None, Some(1)), Err(ApprovalRefusal::Bounds));
        for (uses, quorum) in [(0, 1), (MAX_USES + 1, 1), (1, 0)] {
            let asked = Approval::request(ApprovalKind::Exec, Digest::of(b"a"), actor("u", "c"), 1, uses, quorum);
            assert_eq!(asked, Err(ApprovalRefusal::Bounds));
        }
    }

    fn event() -> impl Strategy<Value = ApprovalEvent> {
        let who = (0..3_u8, 0..4_u8).prop_map(|(user, credential)| {
            actor(&format!("u{user}"), &if credential == 0 { "asks".to_owned() } else { format!("{user}{credential}") })
        });
        prop_oneof![
            4 => (who.clone(), prop::option::of(1..4_u32), prop::option::of(1..90_u64))
                .prop_map(|(by, max_uses, expires_at)| ApprovalEvent::Approve { by, max_uses, expires_at }),
            1 => who.prop_map(|by| ApprovalEvent::Deny { by }),
            6 => (0..8_u8, 0..4_u8).prop_map(|(name, other)| used(&format!("r{name}"), if other == 0 { b"b" } else { b"a" })),
            1 => Just(ApprovalEvent::Tick),
            1 => Just(ApprovalEvent::Withdraw),
        ]
    }

    proptest! {
        #[test]
        fn no_history_uses_more_than_was_granted(
            uses in 1..4_u32, quorum in 1..3_u32, history in prop::collection::vec((event(), 0..3_u64), 0..60)
        ) {
            let (mut now, mut taken) = (1, BTreeSet::new());
            let mut state = approval(uses, quorum);
            for (event, later) in history {
                now += later;
                let before = state.clone();
                let Ok(next) = state.step(&event, now) else { continue };
                if let ApprovalEvent::Use { subject, name } = &event
                    && taken.insert(name.clone())
                {
                    prop_assert_eq!(before.state, ApprovalState::Granted);
                    prop_assert!(*subject == before.subject && now < before.expires_at);
                }
                if before.state.is_over() {
                    prop_assert_eq!(&next, &before);
                }
                prop_assert!(next.max_uses <= before.max_uses && next.expires_at <= before.expires_at);
                state = next;
            }
            prop_assert!(taken.len() <= uses as usize && taken.len() == state.uses.len());
            if !taken.is_empty() {
                let users: BTreeSet<&str> = state.approvers.iter().map(|one| one.user.as_str()).collect();
                prop_assert!(users.len() >= quorum as usize);
                prop_assert!(state.approvers.iter().all(|one| one.credential != "asks"));
            }
        }
    }
}
