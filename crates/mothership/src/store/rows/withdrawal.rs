//! The end of approvals whose directive or claim is over.

use super::values::{Id, json, optional, text};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use nexus_model::approval::{Approval, ApprovalEvent};

/// Ends the approval of a directive that is over: nothing of it can be used any more.
pub fn withdraw(connection: &Connection<'_>, directive: &Id, now: i64) -> Result<(), StoreError> {
    let locked = connection.locked();
    let question = format!("SELECT approval FROM approval WHERE directive_id = ?1{locked}");
    let row = connection.prepare_cached(&question)?.query_row(params![directive], |row| row.get::<_, String>(0));
    let Some(stored) = optional(row)? else { return Ok(()) };
    let before: Approval = json(&stored)?;
    if let Ok(next) = before.step(&ApprovalEvent::Withdraw, u64::try_from(now).unwrap_or(0))
        && next != before
    {
        connection
            .prepare_cached("UPDATE approval SET live = ?2, approval = ?3 WHERE directive_id = ?1")?
            .execute(params![directive, !next.state.is_over(), text(&next)?])?;
    }
    Ok(())
}

/// Ends the requests of connections of a claim that is over: nothing waits for them, and nothing of them can be used.
pub fn withdraw_connections(connection: &Connection<'_>, directive: &Id, now: i64) -> Result<(), StoreError> {
    let locked = connection.locked();
    let question = format!("SELECT id, approval FROM connection_approval WHERE directive_id = ?1 AND live{locked}");
    let live = connection
        .prepare_cached(&question)?
        .query_all(params![directive], |row| Ok((row.get::<_, Id>(0)?, row.get::<_, String>(1)?)))?;
    for (id, stored) in live {
        let before: Approval = json(&stored)?;
        if let Ok(next) = before.step(&ApprovalEvent::Withdraw, u64::try_from(now).unwrap_or(0)) {
            connection
                .prepare_cached("UPDATE connection_approval SET live = ?2, approval = ?3 WHERE id = ?1")?
                .execute(params![id, !next.state.is_over(), text(&next)?])?;
        }
    }
    Ok(())
}
