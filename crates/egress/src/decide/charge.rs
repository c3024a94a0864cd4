//! Charges for connections that are not open yet.

use crate::decide::state::Shared;
use nexus_policy::net::{Charge, Denial, Permit};
use std::sync::Arc;

/// Charge for a connection that is not open yet; given back when it is dropped.
pub(crate) struct Charged(Option<Arc<Shared>>);

impl Charged {
    pub(crate) fn take(shared: &Arc<Shared>) -> Result<Self, Denial> {
        shared.charge(Charge::Connection)?;
        Ok(Self(Some(Arc::clone(shared))))
    }

    /// Leaves the charge to a connection guard, which gives it back from now on.
    pub(crate) fn pass_on(mut self) {
        self.0 = None;
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.give_back();
        }
    }
}

/// Permit with the charge of its look-up and the time to live of the answer in seconds.
pub(crate) type Permitted = (Permit, Option<Charged>, Option<u32>);
