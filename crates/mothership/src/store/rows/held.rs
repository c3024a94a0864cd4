//! Finds the directive that a territory says it holds.

use super::apply::over;
use super::work::{Load, Work};
use crate::store::error::StoreError;
use crate::store::sql::Connection;
use crate::store::types::{Holding, Territory};
use nexus_model::directive::{Fence, Refusal};

/// Returns the live directive of the territory, or the answer for one that the territory does not hold any more.
pub fn held(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    load: Load,
) -> Result<Result<Work, Refusal>, StoreError> {
    let Some(work) = load(connection, &holding.directive)? else {
        let over = over(connection, &holding.directive)?
            .filter(|over| over.account == territory.account)
            .ok_or(StoreError::NotFound)?;
        return Ok(Err(if over.fence == holding.fence.0 {
            Refusal::Over { state: over.state }
        } else {
            Refusal::StaleFence { given: holding.fence, present: Fence(over.fence) }
        }));
    };
    if work.account != territory.account {
        return Err(StoreError::NotFound);
    }
    if work.fence != holding.fence {
        return Ok(Err(Refusal::StaleFence { given: holding.fence, present: work.fence }));
    }
    if work.holder != Some(*territory.id.as_bytes()) {
        return Ok(Err(Refusal::WrongState { state: work.state() }));
    }
    Ok(Ok(work))
}
