//! The operations of the store on sessions of the console.

use super::error::StoreError;
use super::operations::Store;
use super::rows::session as rows;
use super::types::{Account, ConsoleSession, SecretHash};

impl Store {
    /// Stores a session of the caller, whose secret has this hash.
    pub async fn create_session(&self, account: Account, hash: SecretHash, now: i64) -> Result<(), StoreError> {
        self.write(move |tx| rows::create_session(tx, account, &hash, now)).await
    }

    /// Returns the account of a session that is not over. The use keeps the session alive.
    pub async fn session(&self, hash: SecretHash, now: i64) -> Result<Option<Account>, StoreError> {
        let Some((account, stale)) = self.read(move |tx| rows::session(tx, &hash, now)).await? else { return Ok(None) };
        if stale {
            self.write(move |tx| rows::touch_session(tx, &hash, now)).await?;
        }
        Ok(Some(account))
    }

    /// Ends the session with this secret.
    pub async fn end_session(&self, account: Account, hash: SecretHash, now: i64) -> Result<(), StoreError> {
        self.write(move |tx| rows::end_session(tx, account, &hash, now)).await
    }

    /// Ends a session of the account.
    pub async fn revoke_session(&self, account: Account, id: [u8; 16], now: i64) -> Result<(), StoreError> {
        self.write(move |tx| rows::revoke_session(tx, account, &id, now)).await
    }

    /// Returns the sessions of the account.
    pub async fn sessions(&self, account: Account, now: i64) -> Result<Vec<ConsoleSession>, StoreError> {
        self.read(move |tx| rows::sessions(tx, account, now)).await
    }
}
