//! Makes the layer of a run, with the note about the run.

use crate::causes::chain;
use crate::host::Host;
use crate::notices::{Notify, tell_leftovers};
use crate::plan::resolve::ResolvedRun;
use crate::recover::remove::remove;
use crate::request::ChangeMode;
use crate::state::container::ContainerId;
use crate::state::note::{self, RunNote};
use nexus_layer::{Abandoned, Faults, Layer, LayerMode, LayerPool};
use nexus_model::plan::Writes;
use std::io;

/// Returns the faults that a test asked for by a variable of the host.
#[cfg_attr(not(feature = "inject"), expect(unused_variables, reason = "read only with the feature inject"))]
pub fn faults(host: &Host) -> Faults {
    #[cfg(feature = "inject")]
    if let Some(name) = host.variable("NEXUS_INJECT").and_then(|name| name.to_str()) {
        if let Some(step) = nexus_layer::Phase::by_name(name) {
            return Faults::failing(step);
        }
        if let Some(nth) = name.strip_prefix("abort:").and_then(|nth| nth.parse().ok()) {
            return Faults::aborting_at(nth);
        }
    }
    Faults::default()
}

/// Makes the layer of a run, with the note about it. On an error nothing of it is left, or the error says so.
pub fn create(run: &ResolvedRun, host: &Host, tell: Notify<'_>) -> Result<Layer, String> {
    let mode = if host.uid == 0 { LayerMode::Root } else { LayerMode::User };
    let id = run.plan.run_id.to_string();
    let places = &run.site.places;
    let cleared = |why: String, cleared: Result<(), String>| match cleared {
        Ok(()) => why,
        Err(second) => format!("{why}; and then: {second}"),
    };
    let pool = LayerPool::open(&places.pool).map_err(|error| chain(&error))?;
    let made = Layer::create_with(Some(pool), &places.layers, &id, &run.site.directory, mode, faults(host));
    let mut layer = made.map_err(|error| {
        // On a full disk some of its directories may be there.
        let gone = match nexus_layer::abandon(&places.layers, &id, || Ok(())) {
            Ok(Abandoned::Removed(left)) => {
                tell_leftovers(tell, left.iter());
                Ok(())
            }
            Ok(Abandoned::Nothing) => Ok(()),
            Err(error) => Err(chain(&error)),
        };
        let pool = LayerPool::open(&places.pool).and_then(|pool| pool.clear());
        cleared(chain(&error), gone.and(pool.map_err(|error| chain(&error))))
    })?;
    layer.set_home(run.plan.workspace.source.clone(), run.site.id);
    match note_run(&layer, run) {
        Ok(()) => Ok(layer),
        Err(error) => Err(cleared(error.to_string(), remove(layer, tell))),
    }
}

fn note_run(layer: &Layer, run: &ResolvedRun) -> io::Result<()> {
    let note = RunNote {
        workspace: run.plan.workspace.source.clone(),
        directory: run.site.identity,
        argv: run.plan.argv.clone(),
        origin: Some(layer.origin()),
        boot: note::boot_id(),
        container: ContainerId::here().ok(),
        in_memory: matches!(run.plan.workspace.writes, Writes::MemoryLayer { .. }),
        discards: run.changes == ChangeMode::Discard,
        cut_short: None,
        protect: run.protect.clone(),
    };
    note.write_first(layer.root())
}
