//! `nexus changes reject`: the whole layer, or some paths of it.

use super::{Pending, accept, paths, rejected};
use crate::failure::Failure;
use crate::run::chain;
use nexus_model::RunId;
use std::path::PathBuf;

/// Rejects, and says what still waits.
pub fn command(run: Option<RunId>, named: &[PathBuf]) -> Result<String, Failure> {
    if named.is_empty() {
        return whole(run);
    }
    let pending = Pending::open(run)?;
    let Some(chosen) = paths::read(named, &pending.one.workspace)? else {
        drop(pending);
        return whole(run);
    };
    let before = pending.changes()?;
    paths::must_match(&chosen, &before)?;
    let mut all = pending.rules.except.clone();
    all.extend(chosen);
    rejected::write(pending.layer.root(), &all)?;
    let pending = Pending { rules: nexus_facility::Rules { except: all, ..pending.rules.clone() }, ..pending };
    let left = pending.finish()?;
    Ok(format!("rejected {}\n{}", count(before.len() - left), accept::waiting(left)))
}

fn whole(run: Option<RunId>) -> Result<String, Failure> {
    let places = super::places()?;
    let one = super::choose(&places, run)?;
    // Also what could be neither committed nor parked, and what was decided for a folder that is gone: it is thrown
    // away unread.
    let gone = nexus_facility::abandon(&places.layers, &one.run).map_err(|error| chain(&error));
    gone.map_err(|why| Failure::refused("discard", why, ""))?;
    Ok(format!("The changes of the run {} are gone.\n", one.run))
}

fn count(changes: usize) -> String {
    if changes == 1 { "1 change".to_owned() } else { format!("{changes} changes") }
}
