//! Ends a commit of this very run that was decided and stopped half-way.

use crate::causes::chain;
use crate::notices::{Notice, Notify, tell_leftovers};
use crate::plan::resolve::ResolvedRun;
use crate::recover::interrupted::Interrupted;
use crate::recover::kept::{kept_back, left_out};
use crate::settle::frontend::Frontend;
use crate::settle::parking::Parking;
use crate::settle::problem::SettleProblem;
use crate::settle::settled::{ChangesState, Settled};
use nexus_layer::{ChangeSet, Layer, LayerOrigin, OpenLayerError, Recovered, Rules};

/// Repeats the steps of a commit that was decided and interrupted; the steps are idempotent. If that fails, rolls the
/// commit back, and the changes stay parked.
pub fn finish(
    run: &ResolvedRun,
    rules: &Rules,
    origin: &LayerOrigin,
    why: &str,
    frontend: &dyn Frontend,
) -> Result<Settled, SettleProblem> {
    let id = run.plan.run_id.to_string();
    let layers = &run.site.places.layers;
    let path = run.plan.workspace.source.as_path();
    let back = |why: String| {
        take_back(run, rules, origin, &why, frontend).unwrap_or_else(|| {
            let ending = Interrupted::new(&run.site.places, id.clone(), None).ending;
            Err(SettleProblem::Interrupted { run: id.clone(), why, ending })
        })
    };
    let mut unwatched = 0;
    let left_behind = match nexus_layer::recover(layers, &id, &run.site.directory) {
        Ok(Recovered::TakenBack(_)) => return back(format!("the commit stopped half-way: {why}")),
        Ok(recovered) => {
            if let Recovered::RolledForward(done) = &recovered {
                unwatched = done.unwatched;
                let tell: Notify<'_> = &|notice| frontend.tell(notice);
                tell_leftovers(tell, &done.left);
                done.stashes.iter().for_each(|stash| tell(&Notice::Stash(stash.clone())));
            }
            left_out(&id, path, &recovered)
        }
        Err(error) => return back(format!("the commit stopped half-way: {why}; and again: {}", chain(&error))),
    };
    let parked = match Layer::open(layers, &id) {
        Ok(layer) => layer.changes(&run.site.directory, rules).map_err(|error| chain(&error)),
        Err(OpenLayerError::NotParked { .. }) => Ok(ChangeSet::default()),
        Err(error) => Err(chain(&error)),
    };
    let parked = parked.map_err(|why| SettleProblem::RestUnreadable { run: id.clone(), why })?;
    let problem = left_behind.map(|what| SettleProblem::LeftOut { what });
    Ok(Settled { state: ChangesState::Committed, parked: parked.changes, unwatched, problem, ..Settled::default() })
}

/// Takes back a commit that cannot go on. `None` where that fails too.
fn take_back(
    run: &ResolvedRun,
    rules: &Rules,
    origin: &LayerOrigin,
    why: &str,
    frontend: &dyn Frontend,
) -> Option<Result<Settled, SettleProblem>> {
    let id = run.plan.run_id.to_string();
    let layers = &run.site.places.layers;
    let conflicts = nexus_layer::roll_back(layers, &id, &run.site.directory).ok()?;
    let layer = Layer::adopt(layers, &id, origin).ok()?;
    let kept = kept_back(&id, run.plan.workspace.source.as_path(), &conflicts);
    let kept = kept.map(|text| format!(" ({text})")).unwrap_or_default();
    let parking = Parking { run, layer, from_memory: false, rules, frontend };
    Some(parking.instead(&format!("{why}; it was taken back{kept}")))
}
