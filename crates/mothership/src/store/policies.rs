//! The operations of the store on the policy documents of accounts.

use super::error::StoreError;
use super::operations::Store;
use super::rows::policy as rows;
use super::types::{Account, NewPolicy, StoredPolicy};
use crate::decide::Policies;
use nexus_model::ids::AccountId;
use nexus_policy::document::PolicySet;
use std::sync::Arc;

impl Store {
    /// Returns the documents that count for an account at this moment.
    pub async fn policies(&self, account: AccountId, policies: &Arc<Policies>) -> Result<Arc<PolicySet>, StoreError> {
        let policies = Arc::clone(policies);
        self.read(move |tx| rows::in_force(tx, account, &policies)).await
    }

    /// Returns the document of the account as it is stored, whether it can be used or not.
    pub async fn stored_policy(&self, account: Account) -> Result<Option<StoredPolicy>, StoreError> {
        self.read(move |tx| rows::stored(tx, account.id)).await
    }

    /// Stores a tested document of the account, or its removal; `false` when another generation counts than the caller has seen.
    pub async fn put_policy(&self, account: Account, new: NewPolicy, now: i64) -> Result<bool, StoreError> {
        self.write(move |tx| rows::put(tx, account, &new, now)).await
    }
}
