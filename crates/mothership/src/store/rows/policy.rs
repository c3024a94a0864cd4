//! The policy documents of accounts: a row for each generation, the latest of which counts.

use super::audit;
use super::values::{Id, optional};
use crate::decide::{Generation, Policies, PolicyRefusal};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{Account, NewPolicy, StoredPolicy};
use nexus_model::digest::Digest;
use nexus_model::ids::AccountId;
use nexus_policy::document::PolicySet;
use serde_json::json;
use std::sync::Arc;

/// Generations of an account that are kept.
const MAX_KEPT: i64 = 100;

fn read_hash(text: Option<String>) -> Result<Option<Digest>, StoreError> {
    let hash = text.map(|text| text.parse().map_err(|_| StoreError::corrupt("the hash of a policy")));
    hash.transpose()
}

impl From<PolicyRefusal> for StoreError {
    fn from(refusal: PolicyRefusal) -> Self {
        Self::Policy { why: refusal.to_string() }
    }
}

/// Returns what counts for an account at this moment.
pub fn in_force(
    connection: &Connection<'_>,
    account: AccountId,
    policies: &Policies,
) -> Result<Arc<PolicySet>, StoreError> {
    let latest = connection
        .prepare_cached(
            "SELECT generation, hash FROM account_policy WHERE account_id = ?1 ORDER BY generation DESC LIMIT 1",
        )?
        .query_row(params![account.as_bytes()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?)));
    let Some((number, hash)) = optional(latest)? else { return Ok(policies.operator()) };
    let generation = Generation { number: number as u64, hash: read_hash(hash)? };
    policies.of(account, &generation, || {
        connection
            .prepare_cached("SELECT document FROM account_policy WHERE account_id = ?1 AND generation = ?2")?
            .query_row(params![account.as_bytes(), number], |row| row.get(0))
    })
}

/// Returns the document of the account, as it is stored.
pub fn stored(connection: &Connection<'_>, account: AccountId) -> Result<Option<StoredPolicy>, StoreError> {
    let latest = connection
        .prepare_cached(
            "SELECT generation, hash, document, key_id, at FROM account_policy WHERE account_id = ?1
               ORDER BY generation DESC LIMIT 1",
        )?
        .query_row(params![account.as_bytes()], |row| {
            Ok(StoredPolicy {
                generation: row.get::<_, i64>(0)? as u64,
                hash: read_hash(row.get(1)?)?,
                document: row.get(2)?,
                key: row.get::<_, Id>(3)?,
                at: row.get(4)?,
            })
        });
    optional(latest)
}

/// Stores a document that was tested, or the removal of the one before, as the next generation. `false` when another generation counts
/// than the caller has seen. What is there already makes no new one.
pub fn put(connection: &Connection<'_>, account: Account, new: &NewPolicy, now: i64) -> Result<bool, StoreError> {
    // Two changes at once come one after the other.
    let locked = connection.locked();
    connection
        .prepare_cached(&format!("SELECT id FROM account WHERE id = ?1{locked}"))?
        .query_row(params![account.id.as_bytes()], |row| row.get::<_, Id>(0))?;
    let before = stored(connection, account.id)?;
    let number = before.as_ref().map_or(0, |before| before.generation);
    if new.if_generation.is_some_and(|seen| seen != number) {
        return Ok(false);
    }
    let hash = new.document.as_ref().map(|(_, hash)| *hash);
    if before.as_ref().and_then(|before| before.hash) == hash {
        return Ok(true);
    }
    let next = number as i64 + 1;
    connection
        .prepare_cached(
            "INSERT INTO account_policy (account_id, generation, hash, document, key_id, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            account.id.as_bytes(),
            next,
            hash.map(|hash| hash.to_string()),
            new.document.as_ref().map(|(text, _)| text.as_str()),
            account.key,
            now,
        ])?;
    connection
        .prepare_cached("DELETE FROM account_policy WHERE account_id = ?1 AND generation <= ?2")?
        .execute(params![account.id.as_bytes(), next - MAX_KEPT])?;
    let action = if hash.is_some() { "policy.apply" } else { "policy.remove" };
    let detail = json!({
        "generation": next, "hash": hash, "before": before.and_then(|before| before.hash),
    });
    audit::note(connection, account, action, &format!("policy/account@{next}"), &detail, now)?;
    Ok(true)
}
