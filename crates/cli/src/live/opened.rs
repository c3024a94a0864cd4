//! Finds and opens the live run that a user means.

use super::failed;
use super::run::most;
use crate::failure::Failure;
use nexus_changes::run_name::RunName;
use nexus_facility::checkpoints::{Checkpoints, LiveRun, Present};
use nexus_layer::Workspace;
use nexus_runner::review::waiting;
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::identity::{self, DirectoryId};

/// A live run whose workspace is there.
pub struct Opened {
    /// The state directory.
    pub places: StateDir,
    /// Checkpoints of the state directory.
    pub checkpoints: Checkpoints,
    /// Record of the run.
    pub record: LiveRun,
    /// The open workspace.
    pub directory: Workspace,
    /// Identity of the workspace.
    pub id: DirectoryId,
}

impl Opened {
    /// Compares the workspace with the states of the run.
    pub fn present(&mut self) -> Result<Present, Failure> {
        let most = Some(most(None));
        let now = self.checkpoints.present(&self.record, self.directory.fd(), most, &mut |_, _| Ok(()));
        now.map_err(|error| failed(&error))
    }
}

/// Returns the live run that a name means; `None` where it means another run, or none. A name that is left out means the latest run of this
/// directory; with `beside_waiting` it means a live run only where no later one waits.
pub fn find(
    places: &StateDir,
    run: Option<&RunName>,
    beside_waiting: bool,
) -> Result<Option<(Checkpoints, LiveRun)>, Failure> {
    let Some(checkpoints) = Checkpoints::open(&places.state).map_err(|error| failed(&error))? else { return Ok(None) };
    let (all, _) = checkpoints.runs().map_err(|error| failed(&error))?;
    let found = match run {
        Some(RunName::Id(id)) => all.into_iter().find(|one| one.run == *id),
        Some(RunName::Start(start)) => {
            let mut found = all.into_iter().filter(|one| one.run.to_string().starts_with(start.as_str()));
            let first = found.next();
            if first.is_some() && found.next().is_some() {
                let message = format!("the ids of several live runs begin with {start}");
                return Err(Failure::usage("run", message, "write more of the id"));
            }
            first
        }
        None | Some(RunName::Latest) => {
            let here = std::env::current_dir().and_then(std::fs::canonicalize).unwrap_or_default();
            let mut found = all.into_iter().filter(|one| here.starts_with(one.workspace.as_path()));
            let last = found.next();
            if let (Some(one), true) = (&last, beside_waiting) {
                let interrupted = crate::recovery::inspect(places)?;
                let waits = waiting::all(places, &interrupted, &|_| {})?;
                let is_later = |waits: &str| waits > one.run.to_string().as_str();
                if waits.iter().any(|other| here.starts_with(&other.workspace) && is_later(&other.run)) {
                    return Ok(None);
                }
            }
            last
        }
    };
    Ok(found.map(|record| (checkpoints, record)))
}

/// Opens the live run that a name means, with its workspace.
pub fn meant(run: Option<&RunName>, beside_waiting: bool) -> Result<Option<Opened>, Failure> {
    let places = crate::host::ready_state_dir()?;
    let Some((checkpoints, record)) = find(&places, run, beside_waiting)? else { return Ok(None) };
    let path = record.workspace.as_path();
    let away = |why: String| {
        let message = format!("the directory {} of the live run {} cannot be used: {why}", path.display(), record.run);
        Failure::refused("workspace", message, "Bring it back to its place first.")
    };
    let directory = identity::open(path).map_err(|error| away(nexus_runner::causes::chain(&error)))?;
    let id = DirectoryId::of_open(&directory).map_err(|error| away(error.to_string()))?;
    if id.name() != record.directory {
        return Err(away("it was moved or replaced since the run".to_owned()));
    }
    Ok(Some(Opened { places, checkpoints, record, directory, id }))
}
