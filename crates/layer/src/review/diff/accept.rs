//! Accepts some hunks of a parked file, journaled like any commit.
//!
//! The workspace gets the old content with the chosen hunks; the layer keeps the run's version. What is left to review
//! is then simply their difference. It is the way in which the commit already brings a git configuration without its
//! dangerous keys ([`Verdict::Strip`]): the file is written with other bytes than the layer's, stays parked, and its
//! new time stamp is noted as our own write and no conflict.

use crate::beneath::{Doing as _, IoFailure, Workspace, open_file, split};
use crate::decide::plan::{CommitPlan, plan, report};
use crate::decide::report::Report;
use crate::decide::sources::is_edit_of_its_file;
use crate::entries::changes::{Change, Conflict};
use crate::entries::protected::Rules;
use crate::entries::tree::{LayerTree, Node, Role, Verdict};
use crate::entries::verdict::{change, hold};
use crate::journal::step::Step;
use crate::meta::{EntryType, stat};
use crate::review::diff::hunks::{ApplyError, apply_hunks};
use crate::review::diff::model::{Content, DiffKind, FileDiff};
use crate::review::diff::options::{DiffError, DiffOptions};
use crate::store::layer::{CommitError, CommitState, Committed, Layer, ReadLayerError};
use nexus_git::names::Names;
use nexus_model::ByteText;
use rustix::fs::OFlags;
use std::io::Read as _;
use std::os::fd::AsFd as _;

/// The hunks of one file that are to be accepted.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// The file, as in its [`FileDiff`].
    pub path: &'a ByteText,
    /// Numbers of its hunks, from 0.
    pub hunks: &'a [usize],
    /// [`FileDiff::digest`] of what was reviewed: another difference is refused. `None` trusts the numbers.
    pub seen: Option<&'a str>,
    /// The options that the reviewed diff was made with, on which the hunks depend.
    pub options: &'a DiffOptions,
}

/// Reason for which hunks were not accepted. Unless it is [`Self::Commit`], nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Its change cannot be split; it may be accepted as a whole.
    #[error("{path:?} can only be accepted as a whole: {why}")]
    Whole {
        /// Path of the file.
        path: ByteText,
        /// Reason for which the change cannot be split.
        why: &'static str,
    },
    /// The difference is no longer the reviewed one.
    #[error("the change of {path:?} is not the one that was reviewed")]
    Stale {
        /// Path of the file.
        path: ByteText,
    },
    /// There are fewer hunks, or the content does not fit them.
    #[error("cannot apply the chosen parts of {path:?}")]
    Hunks {
        /// Path of the file.
        path: ByteText,
        /// Reason for which the hunks do not fit.
        source: ApplyError,
    },
    /// It needs [`Rules::accepts_protected`].
    #[error("{path:?} needs an explicit accept: {why}")]
    Protected {
        /// Path of the file.
        path: ByteText,
        /// Reason for which the file is protected.
        why: String,
    },
    /// The layer's changes hang together.
    #[error("no part of this layer can be accepted alone: {why}")]
    Entangled {
        /// Reason for which the changes hang together.
        why: &'static str,
    },
    /// The difference cannot be found out.
    #[error(transparent)]
    Diff(#[from] DiffError),
    /// The content cannot be read.
    #[error("cannot read the old content")]
    Io {
        /// The call that failed.
        source: IoFailure,
    },
    /// The commit failed; see there for the state.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl From<ReadLayerError> for AcceptError {
    fn from(error: ReadLayerError) -> Self {
        Self::Diff(DiffError::Read(error))
    }
}

impl Layer {
    /// Commits the chosen hunks of one file to the workspace and keeps everything else parked. The file gets the
    /// owner, mode and attributes that it has in the layer. Choosing all hunks is the same as accepting the path.
    ///
    /// If there is a conflict (see [`Committed::conflicts`]), nothing is changed.
    pub fn accept_hunks(
        &self,
        workspace: &Workspace,
        rules: &Rules,
        choice: &Choice<'_>,
    ) -> Result<Committed, AcceptError> {
        let path = choice.path;
        let whole = |why| AcceptError::Whole { path: path.clone(), why };
        if self.upper_fd.is_some() {
            return Err(whole("its layer was not parked yet"));
        }
        self.part_directory().map_err(|source| AcceptError::Io { source })?;
        let only = Rules { only: Some(vec![path.clone()]), ..rules.clone() };
        let file = self.reviewed(workspace, &only, choice)?;
        if let Some(why) = file.protected.clone().filter(|_| !rules.accepts_protected(&path.0)) {
            return Err(AcceptError::Protected { path: path.clone(), why });
        }
        let Content::Text { hunks } = &file.content else { return Err(whole("it has no lines to choose from")) };
        if (0..hunks.len()).all(|hunk| choice.hunks.contains(&hunk)) && choice.hunks.iter().all(|at| *at < hunks.len())
        {
            return Ok(self.commit(workspace, &only)?);
        }
        if file.kind != DiffKind::Modified || file.file_type != EntryType::File {
            return Err(whole("it is new, gone, renamed or a link"));
        }
        let old = read_old(workspace, path, choice.options.max_text).map_err(|source| AcceptError::Io { source })?;
        let content = apply_hunks(&old, &file, choice.hunks)
            .map_err(|source| AcceptError::Hunks { path: path.clone(), source })?;
        // Read after the content: what changes outside from here on is seen as a conflict or as another time stamp.
        let Some(tree) = self.read(workspace, rules)? else { return Err(AcceptError::Stale { path: path.clone() }) };
        self.check_whole(&tree)?;
        let Partial { mut tree, part, mut plan } = partial(tree, rules, path, content)?;
        if !plan.conflicts.is_empty() || choice.hunks.is_empty() {
            let conflicts = std::mem::take(&mut plan.conflicts);
            return Ok(refused(&tree, &part, &plan, conflicts));
        }
        self.note_copies(workspace, &tree, &mut plan).map_err(|source| AcceptError::Io { source })?;
        let stashes = self.note_stashes(workspace, &tree, &mut plan).map_err(|source| AcceptError::Io { source })?;
        let needs = self.survey(workspace, &mut tree, (&part, &plan), false);
        let needs = needs.map_err(|source| AcceptError::Io { source })?;
        if !needs.in_the_way.is_empty() {
            return Ok(refused(&tree, &part, &plan, needs.in_the_way));
        }
        if !needs.written.contains(path) {
            let why = "directories were renamed in a way that only the whole layer can repeat";
            return Err(AcceptError::Entangled { why });
        }
        let done = self.carry_out(workspace, tree, &part, plan, &needs)?;
        Ok(done.naming(stashes))
    }

    /// Returns the file's difference now, if it is the one that was reviewed.
    fn reviewed(&self, workspace: &Workspace, only: &Rules, choice: &Choice<'_>) -> Result<FileDiff, AcceptError> {
        let stale = || AcceptError::Stale { path: choice.path.clone() };
        let diff = self.diff(workspace, only, choice.options)?;
        let mut found = diff.files.into_iter().filter(|file| file.path == *choice.path);
        let (file, more) = (found.next().ok_or_else(stale)?, found.next());
        if more.is_some() {
            let why = "it became something of another type";
            return Err(AcceptError::Whole { path: choice.path.clone(), why });
        }
        if choice.seen.is_some_and(|seen| seen != file.digest()) {
            return Err(stale());
        }
        Ok(file)
    }
}

fn read_old(workspace: &Workspace, path: &ByteText, max: u64) -> Result<Vec<u8>, IoFailure> {
    let (parent, name) = split(&path.0);
    let read = || {
        let dir = workspace.dir(parent)?;
        let file = open_file(dir.as_fd(), name, OFlags::RDONLY)?;
        let size = stat(file.as_fd(), b"")?.size;
        let mut content = Vec::new();
        std::fs::File::from(file).take(size.min(max)).read_to_end(&mut content)?;
        Ok::<_, std::io::Error>(content)
    };
    read().doing("read", &path.0)
}

/// The result of an accept with which nothing was changed.
fn refused(tree: &LayerTree, rules: &Rules, plan: &CommitPlan, conflicts: Vec<Conflict>) -> Committed {
    Committed {
        state: CommitState::Parked,
        changes: crate::ChangeSet::default(),
        parked: plan.parked.lines(tree, rules).collect(),
        conflicts,
        unwatched: 0,
        left: Vec::new(),
        stashes: Vec::new(),
    }
}

/// A plan for a part of one file, with what it was made from.
struct Partial {
    tree: LayerTree,
    part: Rules,
    plan: CommitPlan,
}

/// Plans to write `content` to `path` and nothing else. Pure.
fn partial(mut tree: LayerTree, rules: &Rules, path: &ByteText, content: Vec<u8>) -> Result<Partial, AcceptError> {
    let whole = |why| AcceptError::Whole { path: path.clone(), why };
    let found = tree.nodes.iter().position(|node| node.path == *path && node.role == Role::Entry);
    let at = found.ok_or_else(|| AcceptError::Stale { path: path.clone() })?;
    let before = report(&tree, rules);
    check(&tree, rules, &tree.nodes[at]).map_err(|error| match error {
        Refusal::Whole(why) => whole(why),
        Refusal::Protected(why) => AcceptError::Protected { path: path.clone(), why },
    })?;
    // A group without names in the layer is committed with any part, because only overlay's index has it.
    if tree.groups.iter().any(|group| group.members.is_empty() && !group.same && group.anchor.is_some()) {
        return Err(AcceptError::Entangled { why: "a file was changed through a name that is gone" });
    }
    let size = content.len() as u64;
    tree.nodes[at].rare.verdict = Some(Verdict::Strip(content));
    // What was said about the path was accepted (`check`). What remains to be held back is held back for ever.
    let part = Rules {
        only: Some(vec![path.clone()]),
        protected: Names::none(),
        accept_protected: false,
        named: Vec::new(),
        ..rules.clone()
    };
    let mut plan = plan(&tree, &part);
    plan.parked = Report::Lines(before);
    if !plan.conflicts.is_empty() {
        return Ok(Partial { tree, part, plan });
    }
    let committed = plan.committed.lines(&tree, &part).map(|change| Change { size, ..change });
    plan.committed = Report::Lines(committed.collect());
    // The written file is another one than the layer's was copied from; the mark would make that a conflict.
    let names: Vec<_> = tree.nodes[at].marks.all.names(tree.mode).map(ByteText).collect();
    if !names.is_empty() {
        let is_edit = is_edit_of_its_file(&tree, &tree.nodes[at]);
        plan.tail.push(Step::Strip { path: path.clone(), names, marks: Vec::new(), is_edit });
    }
    // The write changes its directory too, and perhaps the way to it.
    let mut up = tree.nodes[at].parent;
    while up != 0 {
        if tree.is_unchanged_directory(&tree.nodes[up]) {
            plan.rewritten.push(tree.nodes[up].path.text());
        }
        up = tree.nodes[up].parent;
    }
    Ok(Partial { tree, part, plan })
}

enum Refusal {
    Whole(&'static str),
    Protected(String),
}

fn check(tree: &LayerTree, rules: &Rules, node: &Node) -> Result<(), Refusal> {
    let covers = node.covers.as_ref().filter(|found| found.at == node.path && !node.claimed);
    if node.meta.kind != EntryType::File || covers.is_none_or(|found| found.meta.kind != EntryType::File) {
        return Err(Refusal::Whole("it is not a changed file at its old place"));
    }
    if node.group().is_some() {
        return Err(Refusal::Whole("it has several names"));
    }
    if let Some(why) = change(tree, node, rules).protected.filter(|_| !rules.accepts_protected(&node.path.0)) {
        return Err(Refusal::Protected(why));
    }
    // Bits and attributes come with the first part, and these are more than a reviewer of lines has seen.
    let bare = Rules { protected: Names::none(), ..rules.clone() };
    let mut classified = node.clone();
    classified.rare.verdict = Some(Verdict::Commit);
    match hold(&classified, &bare) {
        Some(_) => Err(Refusal::Whole("its mode or attributes need a look of their own")),
        None => Ok(()),
    }
}
