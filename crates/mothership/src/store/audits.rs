//! The operations of the store on the audit chains.

use super::error::StoreError;
use super::operations::Store;
use super::rows::audit as rows;
use super::types::{Account, AuditPage};
use nexus_api::audit::{AuditHead, Fault};
use nexus_api::audit_head::SignedHead;
use nexus_model::ids::AccountId;

impl Store {
    /// Gives the events of all accounts their places. The server itself is the caller.
    pub async fn seal_audit(&self) -> Result<(), StoreError> {
        for account in self.read(rows::loose).await? {
            self.seal_account(account).await?;
        }
        Ok(())
    }

    /// Writes a signed head into each chain that has grown since its last one. The server itself is the caller.
    pub async fn note_heads(
        &self,
        sign: impl Fn(AuditHead) -> SignedHead + Send + 'static,
        now: i64,
    ) -> Result<(), StoreError> {
        self.write(move |tx| rows::note_heads(tx, &sign, now)).await
    }

    async fn seal_account(&self, account: AccountId) -> Result<(), StoreError> {
        while self.write(move |tx| rows::seal(tx, account)).await? {}
        Ok(())
    }

    /// Returns events of the account after a number in their order, or before a number in the reverse order.
    pub async fn audit_page(
        &self,
        account: Account,
        after: Option<u64>,
        before: Option<u64>,
        limit: u32,
    ) -> Result<AuditPage, StoreError> {
        // What was done before the question stands in the answer.
        self.seal_account(account.id).await?;
        self.read(move |tx| rows::page(tx, account.id, after, before, limit)).await
    }

    /// Checks the account's chain: the number of its events, and its faults.
    pub async fn verify_audit(&self, account: Account) -> Result<(u64, Vec<Fault>), StoreError> {
        self.seal_account(account.id).await?;
        self.read(move |tx| rows::verify(tx, account.id)).await
    }
}
