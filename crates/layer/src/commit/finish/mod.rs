//! After the last step of a commit: removes what it displaced and what it brought, and leaves the rest readable.
//!
//! * `clean_up`: removes displaced and committed entries after a commit; the rest can still be read
//! * `displaced`: removes the entries that a commit displaced, after the commit is done
//! * `prune`: removes committed entries from a layer that stays parked in part

pub(crate) mod clean_up;
pub(crate) mod displaced;
pub(crate) mod prune;
