//! A reject of an interrupted commit: takes it back, or keeps what it displaced where no command touches it.
//!
//! ```text
//!  journal and directory are there ─▶ taken back: the old version
//!  the directory is away           ─▶ refused; with --set-aside ─┐
//!  the journal cannot be followed  ──────────────────────────────┴▶ the layer moves to STATE/kept/RUN
//! ```
//! Until it is taken back, the layer of an interrupted commit has the only copy of what the commit displaced.

use crate::causes::chain;
use crate::notices::{Notice, Notify};
use crate::recover::finish::forget;
use crate::recover::interrupted::Interrupted;
use crate::recover::report::report_lines;
use crate::recover::retry::{is_busy, patiently};
use crate::recover::unsaid::KEPT;
use crate::state::commit_lock;
use crate::state::directory::StateDir;
use crate::state::identity::{DirectoryId, OpenSameError};
use nexus_layer::{Conflict, LayerStage, RecoverError, Workspace};
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};

/// Holds off the signals that would end the process, until the result is dropped.
pub type Hold<'a> = &'a dyn Fn() -> io::Result<Box<dyn Any>>;

/// Result of taking a commit back.
#[derive(Debug)]
pub enum TakenBack {
    /// The directory has the old version, and the layer can be removed.
    Back {
        /// The directory of the commit.
        path: PathBuf,
        /// The paths that were left as they are.
        conflicts: Vec<Conflict>,
    },
    /// The layer is out of the way, and the directory is as it was.
    Aside(Aside),
    /// Another command ended the commit meanwhile.
    Over,
}

/// A layer that was moved where no command touches it.
#[derive(Debug)]
pub struct Aside {
    /// The reason why the commit could not be taken back.
    pub why: String,
    /// The directory of the layer now.
    pub layer: PathBuf,
    /// A directory with more of the layer.
    pub staging: Option<PathBuf>,
    /// The directory of the commit, where that is known.
    pub path: Option<PathBuf>,
    /// True if the directory of the commit was there.
    pub is_there: bool,
}

/// Error: a commit was not taken back.
#[derive(Debug, thiserror::Error)]
pub enum TakeBackError {
    /// A step failed.
    #[error("the interrupted commit of the run {run} cannot be taken back: {why}")]
    Failed {
        /// The run of the commit.
        run: String,
        /// The error of the step.
        why: String,
    },
    /// The directory of the commit is not where it was.
    #[error(
        "the commit of the run {run} into {} was interrupted, and that directory cannot be used: {why}; its files may be \
         half old and half new, and only the layer has their old versions", path.display()
    )]
    Away {
        /// The run of the commit.
        run: String,
        /// The path of the directory.
        path: PathBuf,
        /// The reason why the directory cannot be used.
        why: OpenSameError,
        /// The directory to which the layer can be moved.
        kept: PathBuf,
    },
    /// All of the commit was applied, so that it was finished instead.
    #[error("the commit of the run {run} had been applied already, and is finished now")]
    Applied {
        /// The run of the commit.
        run: String,
    },
    /// Signals cannot be held off.
    #[error("signals cannot be held off: {source}")]
    Signals {
        /// The error of the system.
        source: io::Error,
    },
}

impl TakeBackError {
    /// Returns a stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Failed { .. } | Self::Away { .. } | Self::Applied { .. } => "recover",
            Self::Signals { .. } => "signals",
        }
    }
}

/// Takes the commit back. `may_leave` allows to leave the directory as it is where that is not possible.
pub fn take_back(
    places: &StateDir,
    of: &Interrupted,
    may_leave: bool,
    hold: Hold<'_>,
    tell: Notify<'_>,
) -> Result<TakenBack, TakeBackError> {
    let (run, layers) = (&of.run, &places.layers);
    let stage = || patiently(|| nexus_layer::stage(layers, run), is_busy).map_err(|error| failed(run, &chain(&error)));
    let LayerStage::Decided(home) = stage()? else { return Ok(TakenBack::Over) };
    let is_known = home.is_some();
    let home = home.map(|home| (home.path.as_path().to_owned(), DirectoryId::from(home.id)));
    let Some((path, id)) = home.or_else(|| of.directory.clone()) else {
        return leave(places, run, None, None, "what it had decided cannot be read");
    };
    let directory = match id.open_at(&path) {
        Ok(directory) => directory,
        Err(why) if may_leave || !is_known => return leave(places, run, Some(&path), None, &open_error(&why)),
        Err(why) => return Err(TakeBackError::Away { run: run.clone(), path, why, kept: kept(places) }),
    };
    let _alone = commit_lock::lock(places, id).map_err(|error| failed(run, &error.to_string()))?;
    let _held = hold().map_err(|source| TakeBackError::Signals { source })?;
    // The command that had the lock before may have ended the commit.
    if !matches!(stage()?, LayerStage::Decided(_)) {
        return Ok(TakenBack::Over);
    }
    let error = match patiently(|| nexus_layer::roll_back(layers, run, &directory), is_busy) {
        Ok(conflicts) => return Ok(TakenBack::Back { path, conflicts }),
        Err(RecoverError::Applied { .. }) => match nexus_layer::recover(layers, run, &directory) {
            Ok(recovered) => {
                // The answer is an error; what was done, and where versions are, is reported before it.
                for line in report_lines(run, &path, &recovered) {
                    tell(&Notice::Recovered(line));
                }
                forget(places, run).map_err(|why| failed(run, &why))?;
                return Err(TakeBackError::Applied { run: run.clone() });
            }
            Err(error) => error,
        },
        Err(error) => error,
    };
    if may_leave || cannot_be_followed(&error) {
        return leave(places, run, Some(&path), Some(&directory), &chain(&error));
    }
    Err(failed(run, &chain(&error)))
}

/// Reports whether a journal holds nothing that this version can carry out in this directory.
fn cannot_be_followed(error: &RecoverError) -> bool {
    let source = match error {
        RecoverError::Version { .. } | RecoverError::Foreign { .. } | RecoverError::HalfAside { .. } => return true,
        RecoverError::Io { source, .. } => source,
        _ => return false,
    };
    let is_decision = ["journal", "journal.done", "outcome"].iter().any(|name| source.path.0 == name.as_bytes());
    // An error of the system may be gone at the next try.
    let is_content = source.source.raw_os_error().is_none_or(|errno| errno == rustix::io::Errno::LOOP.raw_os_error());
    is_decision && is_content
}

fn open_error(why: &OpenSameError) -> String {
    match why {
        OpenSameError::Gone | OpenSameError::Other => format!("the directory is away: {why}"),
        OpenSameError::Io(error) => chain(error),
    }
}

fn failed(run: &str, why: &str) -> TakeBackError {
    TakeBackError::Failed { run: run.to_owned(), why: why.to_owned() }
}

/// Returns the directory of layers that were set aside.
fn kept(places: &StateDir) -> PathBuf {
    places.state.join(KEPT)
}

/// Leaves the directory as it is, and keeps the layer where no command touches it.
fn leave(
    places: &StateDir,
    run: &str,
    path: Option<&Path>,
    directory: Option<&Workspace>,
    why: &str,
) -> Result<TakenBack, TakeBackError> {
    let set_aside = || nexus_layer::set_aside(&places.layers, run, &kept(places), directory);
    let aside = patiently(set_aside, is_busy).map_err(|error| failed(run, &chain(&error)))?;
    let Some(aside) = aside else { return Ok(TakenBack::Over) };
    forget(places, run).map_err(|why| failed(run, &why))?;
    Ok(TakenBack::Aside(Aside {
        why: why.to_owned(),
        layer: aside.layer,
        staging: aside.staging,
        path: path.map(Path::to_owned),
        is_there: directory.is_some(),
    }))
}
