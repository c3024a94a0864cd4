//! Enrolment tokens, territories and their certificates.

use super::audit;
use super::values::{Id, json as read_json, named, optional, text};
use crate::identity::Texts;
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{Account, Certificate, Enrolment, NewTerritory, SecretHash, Territory};
use nexus_api::Labels;
use nexus_api::conduits::TerritoryKind;
use nexus_model::ids::{AccountId, TerritoryId};
use serde_json::json;

const HOUR_MS: i64 = 3_600_000;
/// Time in which the same token with the same key gets the same answer.
const REPEAT_MS: i64 = 600_000;

/// Stores the hash of an enrolment token.
pub fn create_enroll_token(
    connection: &Connection<'_>,
    account: Account,
    hash: &SecretHash,
    kind: Option<TerritoryKind>,
    labels: &Labels,
    [expires_at, now]: [i64; 2],
) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO enroll_token (hash, account_id, kind, labels, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![hash, account.id.as_bytes(), kind.map(TerritoryKind::name), text(labels)?, expires_at],
    )?;
    let detail = json!({"expires_at": nexus_api::Timestamp(expires_at)});
    audit::note(connection, account, "enrollment_token.create", "enrollment_token", &detail, now)
}

/// Spends a token and stores the territory.
pub fn enroll(connection: &Connection<'_>, new: &NewTerritory, now: i64) -> Result<Enrolment, StoreError> {
    let outcome = spend(connection, new, now)?;
    // A token has 200 random bits: its holder has not guessed, and the guesses of others keep no machine out.
    if matches!(outcome, Enrolment::BadToken)
        && let Some(retry_after) = count_try(connection, &new.source, new.max_tries, now)?
    {
        return Ok(Enrolment::TooMany { retry_after });
    }
    Ok(outcome)
}

fn spend(connection: &Connection<'_>, new: &NewTerritory, now: i64) -> Result<Enrolment, StoreError> {
    let locked = connection.locked();
    let found = connection
        .prepare_cached(&format!(
            "SELECT account_id, kind, labels, expires_at, used_at, territory_id, csr_key FROM enroll_token
               WHERE hash = ?1{locked}"
        ))?
        .query_row(params![new.token], |row| {
            Ok((
                row.get::<_, Id>(0)?,
                row.get::<_, Option<String>>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, i64>(3)?,
                row.get::<_, Option<i64>>(4)?,
                row.get::<_, Option<Id>>(5)?,
                row.get::<_, Option<SecretHash>>(6)?,
            ))
        });
    let Some((account, token_kind, token_labels, expires_at, used_at, used_by, csr_key)) = optional(found)? else {
        return Ok(Enrolment::BadToken);
    };
    let account = AccountId::from_bytes(account);
    if let Some(used_at) = used_at {
        return repeated(connection, account, new, used_at, used_by, csr_key, now);
    }
    if now >= expires_at {
        return Ok(Enrolment::BadToken);
    }
    let kind = match token_kind {
        Some(name) => named(&name)?,
        None => new.kind.unwrap_or_default(),
    };
    let id = TerritoryId::new();
    // A label of the token stands above one that the machine names: the operator wrote the token.
    let mut labels = new.labels.clone();
    labels.0.extend(read_json::<Labels>(&token_labels)?.0);
    connection.execute(
        "UPDATE enroll_token SET used_at = ?2, territory_id = ?3, csr_key = ?4 WHERE hash = ?1",
        params![new.token, now, id.as_bytes(), new.csr_key],
    )?;
    connection.execute(
        "INSERT INTO territory (id, account_id, state, kind, name, display_name, platform, created_at) VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7)",
        params![
            id.as_bytes(),
            account.as_bytes(),
            kind.name(),
            new.name,
            new.display_name,
            new.platform.as_ref().map(serde_json::Value::to_string),
            now
        ],
    )?;
    connection.execute(
        "INSERT INTO presence (territory_id, last_seen, labels, capacity, guarantees, profiles) VALUES (?1, NULL, ?2, ?3, '[]', '[\"untrusted\"]')",
        params![id.as_bytes(), text(&labels)?, text(&new.capacity)?],
    )?;
    trail(connection, account, id, "enrolled", "enrolment token", now)?;
    Ok(Enrolment::Enrolled { territory: Territory { id, account }, kind })
}

/// Returns the seconds until the next try, when the address has used up its tries.
fn count_try(connection: &Connection<'_>, source: &str, max: u32, now: i64) -> Result<Option<u32>, StoreError> {
    let hour = now / HOUR_MS;
    connection.execute("DELETE FROM enroll_rate WHERE hour < ?1", params![hour])?;
    let tries: i64 = connection.query_row(
        "INSERT INTO enroll_rate (source, hour, tries) VALUES (?1, ?2, 1)
           ON CONFLICT (source, hour) DO UPDATE SET tries = enroll_rate.tries + 1 RETURNING tries",
        params![source, hour],
        |row| row.get(0),
    )?;
    // The longest Retry-After of the contract is 300 seconds.
    Ok((tries > i64::from(max)).then(|| (((hour + 1) * HOUR_MS - now) / 1000 + 1).clamp(1, 300) as u32))
}

/// The answer to the first enrolment was lost: the holder of the same key gets it again.
fn repeated(
    connection: &Connection<'_>,
    account: AccountId,
    new: &NewTerritory,
    used_at: i64,
    used_by: Option<Id>,
    csr_key: Option<SecretHash>,
    now: i64,
) -> Result<Enrolment, StoreError> {
    let same_key = csr_key.is_some() && csr_key == new.csr_key;
    let Some(id) = used_by.filter(|_| same_key && now - used_at < REPEAT_MS) else {
        return Ok(Enrolment::BadToken);
    };
    let kind: Option<String> = optional(
        connection
            .prepare_cached("SELECT kind FROM territory WHERE id = ?1 AND account_id = ?2 AND state < 3")?
            .query_row(params![id, account.as_bytes()], |row| row.get(0)),
    )?;
    match kind {
        Some(kind) => Ok(Enrolment::Enrolled {
            territory: Territory { id: TerritoryId::from_bytes(id), account },
            kind: named(&kind)?,
        }),
        None => Ok(Enrolment::BadToken),
    }
}

/// Stores a certificate that was signed for the territory. The key that it replaces ends when it is used. A key that belongs to
/// another territory, or has ended, gets none; the same key may have several.
pub fn add_certificate(
    connection: &Connection<'_>,
    territory: Territory,
    fingerprint: &SecretHash,
    spki: &SecretHash,
    replaces: Option<&SecretHash>,
) -> Result<bool, StoreError> {
    let is_refused: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM certificate WHERE spki = ?1 AND (revoked OR territory_id <> ?2))",
        params![spki, territory.id.as_bytes()],
        |row| row.get(0),
    )?;
    if is_refused {
        return Ok(false);
    }
    connection.execute(
        "INSERT INTO certificate (fingerprint, spki, territory_id, account_id, replaces) VALUES (?1, ?2, ?3, ?4, ?5)
           ON CONFLICT DO NOTHING",
        params![
            fingerprint,
            spki,
            territory.id.as_bytes(),
            territory.account.as_bytes(),
            replaces.filter(|before| *before != spki)
        ],
    )?;
    Ok(true)
}

/// Returns a certificate that is not revoked, by its fingerprint or by its public key.
pub fn certificate(
    connection: &Connection<'_>,
    fingerprint: Option<&SecretHash>,
    spki: Option<&SecretHash>,
) -> Result<Option<Certificate>, StoreError> {
    let row = connection
        .prepare_cached(
            "SELECT c.territory_id, c.account_id, c.spki, c.replaces FROM certificate c JOIN territory t ON t.id = c.territory_id
               WHERE (c.fingerprint = ?1 OR (?1 IS NULL AND c.spki = ?2)) AND NOT c.revoked AND t.state < 3
               ORDER BY c.replaces IS NULL LIMIT 1",
        )?
        .query_row(params![fingerprint, spki], |row| {
            let (id, account) = (row.get::<_, Id>(0)?, row.get::<_, Id>(1)?);
            let territory = Territory { id: TerritoryId::from_bytes(id), account: AccountId::from_bytes(account) };
            Ok(Certificate { territory, key: row.get(2)?, replaces: row.get(3)? })
        });
    optional(row)
}

/// A certificate was used: the key in whose place it has come ends, and with it every other certificate that was to replace it.
pub fn end_replaced(connection: &Connection<'_>, used: &Certificate) -> Result<(), StoreError> {
    let Some(before) = &used.replaces else { return Ok(()) };
    let territory = used.territory.id;
    connection.execute(
        "UPDATE certificate SET revoked = TRUE WHERE territory_id = ?1 AND (spki = ?2 OR (replaces = ?2 AND spki <> ?3))",
        params![territory.as_bytes(), before, used.key],
    )?;
    connection.execute(
        "UPDATE certificate SET replaces = NULL WHERE territory_id = ?1 AND spki = ?2",
        params![territory.as_bytes(), used.key],
    )?;
    Ok(())
}

/// Returns certificates and keys of the authorities.
pub fn authorities(connection: &Connection<'_>) -> Result<Texts, StoreError> {
    connection.query_row("SELECT ca_cert, ca_key FROM store WHERE id = 1", params![], |row| {
        Ok(Texts { certificates: row.get(0)?, keys: row.get(1)? })
    })
}

/// Replaces certificates and keys of the authorities. `false` when they are not what they were.
pub fn set_authorities(connection: &Connection<'_>, before: &Texts, after: &Texts) -> Result<bool, StoreError> {
    let changed = connection.execute(
        "UPDATE store SET ca_cert = ?3, ca_key = ?4 WHERE id = 1 AND ca_cert = ?1 AND ca_key = ?2",
        params![before.certificates, before.keys, after.certificates, after.keys],
    )?;
    Ok(changed == 1)
}

/// Records a change of a territory with its cause.
pub fn trail(
    connection: &Connection<'_>,
    account: AccountId,
    territory: TerritoryId,
    event: &str,
    cause: &str,
    now: i64,
) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT INTO trail (account_id, territory_id, at, event, cause) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![account.as_bytes(), territory.as_bytes(), now, event, cause])?;
    // What a user asked for is the user's act, and is noted there.
    if !matches!(event, "draining" | "revoked") {
        let (action, object) = (format!("territory.{event}"), format!("territory/{territory}"));
        let detail = json!({"cause": cause});
        audit::note_of_territory(connection, account, territory, &action, &object, &detail, now)?;
    }
    Ok(())
}
