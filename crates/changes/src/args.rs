//! The arguments of `nexus changes`.

use crate::run_name::RunName;
use clap::{Args, Subcommand};
use nexus_model::units;
use std::path::PathBuf;

/// Arguments of `nexus changes`.
#[derive(Debug, Args)]
pub struct ChangesArgs {
    /// Action on changes.
    #[command(subcommand)]
    pub action: ChangesAction,
}

/// The commands of `nexus changes`.
#[derive(Debug, Subcommand)]
pub enum ChangesAction {
    /// List runs with parked changes
    List {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the parked changes of a run
    Show {
        /// The run: its id, the start of it, or latest [default: the latest of this workspace]
        #[arg(long, value_name = "ID")]
        run: Option<RunName>,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show them as one diff that `git apply` accepts
    Diff(DiffArgs),
    /// Bring changes to the workspace
    Accept(AcceptArgs),
    /// Throw changes away: of these paths, or all of a run
    Reject {
        /// The run: its id, the start of it, or latest [default: the only one that waits for this directory]
        #[arg(long, value_name = "ID")]
        run: Option<RunName>,
        /// If an interrupted commit cannot be taken back, keep what it displaced in the state directory
        #[arg(long, conflicts_with = "paths")]
        set_aside: bool,
        /// Only these paths and what is below them
        paths: Vec<PathBuf>,
    },
    /// Bring a workspace back to its state before a live run
    Undo(UndoArgs),
    /// Remove the kept states of a live run, which cannot be undone any more then
    Forget {
        /// The run: its id, or the start of it
        #[arg(long, value_name = "ID")]
        run: RunName,
    },
    /// Finish commits that were interrupted
    Recover {
        /// The run: its id, the start of it, or latest [default: all]
        #[arg(long, value_name = "ID")]
        run: Option<RunName>,
    },
}

/// `nexus changes undo`.
#[derive(Debug, Args)]
#[command(after_help = "\
The state before the undo is kept, and the answer names it: --to brings it back. An undo that was cut off is finished by the
next one. Paths that were changed since the run ended stay as they are and are named.

Examples:
  nexus changes undo
  nexus changes undo src/main.rs docs
  nexus changes undo --to 3f9a1c0b77de")]
pub struct UndoArgs {
    /// The live run: its id, the start of it, or latest [default: the latest of this directory]
    #[arg(long, value_name = "ID")]
    pub run: Option<RunName>,
    /// Another kept state of the run, by the beginning of its hash, as it is
    #[arg(long, value_name = "HASH")]
    pub to: Option<String>,
    /// Also what was changed since the run ended
    #[arg(long)]
    pub overwrite: bool,
    /// Give up an undo that was cut off and cannot come to its end; everything stays as it left it
    #[arg(long, conflicts_with_all = ["to", "overwrite", "live_size", "paths"])]
    pub abandon: bool,
    /// Read up to so many new bytes, and any number of files [default: 2G and 100,000 files]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub live_size: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Only these paths and what is below them
    pub paths: Vec<PathBuf>,
}

/// `nexus changes diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The run: its id, the start of it, or latest [default: the latest of this workspace]
    #[arg(long, value_name = "ID")]
    pub run: Option<RunName>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Most bytes; a longer diff is cut in the middle [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = parse_usize)]
    pub max_bytes: Option<usize>,
    /// Only these paths and what is below them
    pub paths: Vec<PathBuf>,
}

fn parse_usize(text: &str) -> Result<usize, units::ParseUnitError> {
    let size = units::parse_size(text)?;
    usize::try_from(size).map_err(|_| units::ParseUnitError::Size { text: text.to_owned() })
}

/// `nexus changes accept`.
#[derive(Debug, Args)]
pub struct AcceptArgs {
    /// The run: its id, the start of it, or latest [default: the only one that waits for this directory]
    #[arg(long, value_name = "ID")]
    pub run: Option<RunName>,
    /// Everything that is protected too (a protected name is when it is named itself)
    #[arg(long)]
    pub protected: bool,
    /// Ask for each hunk
    #[arg(short, long)]
    pub patch: bool,
    /// Leave what is in conflict waiting, and accept the rest
    #[arg(long, conflicts_with = "patch")]
    pub rest: bool,
    /// Keep your version where both changed: reject what is in conflict, and accept the rest
    #[arg(long, conflicts_with_all = ["patch", "rest"])]
    pub ours: bool,
    /// Take the run's version of files that both changed; yours stay beside as NAME.yours-RUN
    #[arg(long, conflicts_with_all = ["patch", "rest", "ours"])]
    pub theirs: bool,
    /// Merge files that both changed, where git knows what they were; both versions stay beside as NAME.yours-RUN and
    /// NAME.theirs-RUN
    #[arg(long, conflicts_with_all = ["patch", "rest", "ours", "theirs"])]
    pub merge: bool,
    /// Only these paths and what is below them
    pub paths: Vec<PathBuf>,
}
