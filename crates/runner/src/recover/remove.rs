//! Removes a layer that is not needed any more.

use crate::causes::chain;
use crate::notices::{Notice, Notify, tell_leftovers};
use crate::state::note;
use nexus_layer::Layer;
use nexus_layer::disk::going::Going;
use std::path::Path;

/// Removes a layer so that no part of it is ever taken for the whole.
pub fn remove(layer: Layer, tell: Notify<'_>) -> Result<(), String> {
    note::mark_gone(layer.root()).map_err(|error| format!("{}: {error}", layer.root().display()))?;
    let layers = layer.root().parent().map(Path::to_owned);
    let left = layer.discard().map_err(|error| chain(&error))?;
    tell_leftovers(tell, left.iter());
    // An error says that again when the next command removes the rest.
    let going = layers.and_then(|layers| Going::open(&layers).ok().flatten());
    if going.is_some_and(|going| going.count().is_ok_and(|count| count > 0)) {
        tell(&Notice::RemovedLater);
    }
    Ok(())
}
