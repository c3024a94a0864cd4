//! Opens the layer of a run that ended before its commit was decided.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone};
use crate::disk::opened::close_again;
use crate::disk::started::Started;
use crate::disk::top_directory::{Top, TopAttrs};
use crate::disk::upper::is_bare;
use crate::entries::marks::LayerMode;
use crate::errors::OpenLayerError;
use crate::faults::Faults;
use crate::journal::file::{DONE, JOURNAL, PARKED, VERSION};
use crate::meta::FsTime;
use crate::notes::returned::with_stamps_of_a_way_back;
use crate::store::layer::Layer;
use crate::store::locked::{Locked, is_run_id};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Describes how a layer was created: the facts that are needed to read it after its run was killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerOrigin {
    /// The version of the format.
    pub version: u32,
    /// The user who mounted the layer.
    pub mode: LayerMode,
    /// The time at which the layer was made. Later changes in the workspace are conflicts.
    pub started: FsTime,
    /// By which clock that was; missing in layers of older versions.
    #[serde(default)]
    pub clock: Option<Started>,
    /// The attributes of the workspace's own directory then; missing in layers of older versions.
    #[serde(default)]
    pub top: Option<Top>,
}

impl LayerOrigin {
    /// Describes a layer whose description was not saved.
    #[must_use]
    pub fn guessed(mode: LayerMode, started: FsTime) -> Self {
        Self { version: VERSION, mode, started, clock: None, top: None }
    }
}

impl Layer {
    /// Describes how this layer was made.
    #[must_use]
    pub fn origin(&self) -> LayerOrigin {
        let (clock, top) = (self.clock.clone(), self.top.clone());
        LayerOrigin { version: VERSION, mode: self.mode, started: self.started, clock, top }
    }

    /// Opens an undecided layer. A layer that was parked is opened by [`Layer::open`].
    pub fn adopt(layers_dir: &Path, run: &str, origin: &LayerOrigin) -> Result<Self, OpenLayerError> {
        let name = || run.to_owned();
        let io = |source| OpenLayerError::Io { run: run.to_owned(), source };
        if !is_run_id(run) {
            return Err(OpenLayerError::NotParked { run: name() });
        }
        if !(1..=VERSION).contains(&origin.version) {
            return Err(OpenLayerError::Version { run: name(), version: origin.version });
        }
        let layers = Workspace::open(layers_dir).map_err(io)?;
        let root = match layers.readable_dir(run.as_bytes()) {
            Err(error) if is_gone(&error) => return Err(OpenLayerError::NotParked { run: name() }),
            other => Workspace::from_fd(other.doing("open", run.as_bytes()).map_err(io)?),
        };
        let Some(root) = Locked::new(root).doing("lock", run.as_bytes()).map_err(io)? else {
            return Err(OpenLayerError::Busy { run: name() });
        };
        for file in [JOURNAL, DONE, PARKED] {
            if root.stat(file.as_bytes()).doing("look at", file.as_bytes()).map_err(io)?.is_some() {
                return Err(OpenLayerError::Unfinished { run: name() });
            }
        }
        close_again(&root).map_err(io)?;
        let ours = with_stamps_of_a_way_back(&root, Vec::new()).map_err(io)?;
        Ok(Self {
            path: layers_dir.join(run),
            run: name(),
            layers,
            root,
            mode: origin.mode,
            started: origin.started,
            clock: origin.clock.clone(),
            top: origin.top.clone(),
            ours,
            recorded: crate::store::recorded::Recorded::default(),
            home: None,
            upper_fd: None,
            unreached: AtomicBool::new(false),
            copied: AtomicBool::new(false),
            is_part: false,
            pool: None,
            index_at_start: None,
            bases: None,
            faults: Faults::default(),
        })
    }

    /// Reports whether the layer's directory holds no change. A layer in memory is not looked at.
    pub fn is_bare(&self) -> Result<bool, IoFailure> {
        Ok(is_bare(&self.root)? && !self.is_top_changed()?)
    }

    /// Reports whether the run changed the attributes of the workspace's own directory.
    pub(crate) fn is_top_changed(&self) -> Result<bool, IoFailure> {
        let Some(top) = &self.top else { return Ok(false) };
        let upper = match self.root.dir(b"upper") {
            Err(error) if is_gone(&error) => return Ok(false),
            other => other.doing("open", b"upper")?,
        };
        let now = TopAttrs::read(self.mode, upper.as_fd()).doing("look at", b"upper")?;
        Ok(top.is_changed(self.mode, &now))
    }
}
