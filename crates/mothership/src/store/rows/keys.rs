//! Accounts and API keys.

use super::audit;
use super::values::{Id, named, optional};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{Account, SecretHash};
use nexus_api::Timestamp;
use nexus_api::mothership::{ApiKey, Role};
use nexus_model::ids::AccountId;
use serde_json::json;
use uuid::Uuid;

/// Makes the first account with its owner's key, when there is none. Returns whether it did.
pub fn first_account(connection: &Connection<'_>, hash: &SecretHash, now: i64) -> Result<bool, StoreError> {
    // Replicas that start together make one account.
    let locked = connection.locked();
    connection
        .query_row(&format!("SELECT id FROM store WHERE id = 1{locked}"), params![], |row| row.get::<_, i64>(0))?;
    let exists: bool = connection.query_row("SELECT EXISTS (SELECT 1 FROM account)", params![], |row| row.get(0))?;
    if exists {
        return Ok(false);
    }
    let account = AccountId::new();
    connection.execute(
        "INSERT INTO account (id, name, created_at) VALUES (?1, 'default', ?2)",
        params![account.as_bytes(), now],
    )?;
    let key = insert(connection, account, hash, Role::Owner, Some("first key"), now)?;
    let object = format!("api_key/{}", Uuid::from_bytes(key));
    audit::note_of_server(connection, account, "api_key.create", &object, &json!({"role": Role::Owner}), now)?;
    Ok(true)
}

fn insert(
    connection: &Connection<'_>,
    account: AccountId,
    hash: &SecretHash,
    role: Role,
    name: Option<&str>,
    now: i64,
) -> Result<Id, StoreError> {
    let id = *Uuid::now_v7().as_bytes();
    connection.execute(
        "INSERT INTO api_key (id, account_id, hash, role, name, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![id, account.as_bytes(), hash, role.name(), name, now],
    )?;
    Ok(id)
}

/// Stores the hash of a new key and returns the id of the key.
pub fn create_api_key(
    connection: &Connection<'_>,
    account: Account,
    hash: &SecretHash,
    role: Role,
    name: Option<&str>,
    now: i64,
) -> Result<String, StoreError> {
    let id = Uuid::from_bytes(insert(connection, account.id, hash, role, name, now)?).to_string();
    audit::note(connection, account, "api_key.create", &format!("api_key/{id}"), &json!({"role": role}), now)?;
    Ok(id)
}

/// Returns the account of a key.
pub fn key_by_hash(connection: &Connection<'_>, hash: &SecretHash) -> Result<Option<Account>, StoreError> {
    let row = connection
        .prepare_cached("SELECT id, account_id, role FROM api_key WHERE hash = ?1")?
        .query_row(params![hash], |row| Ok((row.get::<_, Id>(0)?, row.get::<_, Id>(1)?, row.get::<_, String>(2)?)));
    let Some((key, account, role)) = optional(row)? else { return Ok(None) };
    Ok(Some(Account { id: AccountId::from_bytes(account), key, role: named(&role)? }))
}

/// Returns the keys of an account.
pub fn api_keys(connection: &Connection<'_>, account: Account) -> Result<Vec<ApiKey>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, role, name, created_at FROM api_key WHERE account_id = ?1 ORDER BY id LIMIT 1000",
    )?;
    statement.query_all(params![account.id.as_bytes()], |row| {
        let api_key_id = Uuid::from_bytes(row.get(0)?).to_string();
        let role = named(&row.get::<_, String>(1)?)?;
        Ok(ApiKey { api_key_id, role, name: row.get(2)?, created_at: Timestamp(row.get(3)?) })
    })
}

/// Deletes a key of the account. A key cannot delete itself: an account must not lose its last owner by a slip.
pub fn delete_api_key(connection: &Connection<'_>, account: Account, id: &Id, now: i64) -> Result<bool, StoreError> {
    if *id == account.key {
        return Ok(false);
    }
    let changed = connection
        .execute("DELETE FROM api_key WHERE id = ?1 AND account_id = ?2", params![id, account.id.as_bytes()])?;
    if changed == 0 {
        return Err(StoreError::NotFound);
    }
    let object = format!("api_key/{}", Uuid::from_bytes(*id));
    audit::note(connection, account, "api_key.delete", &object, &json!({}), now)?;
    Ok(true)
}
