//! The phases of a layer's life by name, so that a test can make each of them fail or die.
//!
//! Without the feature `inject` a [`Faults`] has no fields and its checks vanish. The feature also lets a test leave
//! out one sync, take the flags of renameat2(2) away, and act between every two calls.

use std::io;

macro_rules! phases {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// One phase of creating, committing, discarding or recovering a layer. The steps of a journal are
        /// [`Step`](crate::journal::step::Step).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Phase {
            $($(#[$doc])* $name,)*
        }
        impl Phase {
            /// All of them, in the order in which they happen.
            pub const ALL: &'static [Phase] = &[$(Phase::$name,)*];
            /// Returns the name in messages.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Phase::$name => $text,)* }
            }
            /// Returns the phase of this name.
            #[must_use]
            pub fn by_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|phase| phase.name() == name)
            }
        }
    };
}

phases! {
    /// The layer's directories are made.
    CreateLayer = "create_layer",
    /// An upper directory that is only a descriptor is copied into the layer's directory.
    Materialise = "materialise",
    /// The upper directory is read.
    ReadLayer = "read_layer",
    /// The plan is made and checked for conflicts.
    PlanCommit = "plan_commit",
    /// The bytes in the layer reach the disk.
    SyncLayer = "sync_layer",
    /// Entries that have to be copied are copied next to the workspace's entries.
    Stage = "stage",
    /// The journal is written; its rename is the commit point.
    WriteJournal = "write_journal",
    /// The commit point itself reaches the disk.
    SyncJournal = "sync_journal",
    /// The workspace changes.
    Apply = "apply",
    /// The changed workspace reaches the disk.
    SyncWorkspace = "sync_workspace",
    /// The journal is marked done; nothing is applied again from here on.
    MarkDone = "mark_done",
    /// Committed changes leave the layer.
    Finish = "finish",
    /// The layer is kept for a review.
    Park = "park",
    /// The layer's directories are removed.
    Discard = "discard",
}

/// One comparison of a commit, by name, so that a test can leave it out and see what then goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// The entry that a put is about to displace, before the exchange.
    BeforePut,
    /// The entry that came out of the workspace at a put.
    AfterPut,
    /// The entry that is about to be taken out, before the rename.
    BeforeTake,
    /// The entry that came out of the workspace at a taking out.
    AfterTake,
    /// The identity of the directory that a step works in.
    Parent,
    /// A displaced file, before it is removed.
    BeforeRemoval,
    /// An entry of a displaced directory, before it is removed.
    InsideRemoval,
    /// The files that a commit would displace and that a process has open for writing, at the decision.
    OpenElsewhere,
    /// The entry that a commit brought, before and after it is withdrawn from the workspace.
    AsPut,
    /// The entries to which a process may still write after they were withdrawn.
    Doubt,
    /// The entries that a commit brings or puts back together or not at all, before the first one.
    Unit,
}

/// Faults that a test injects. Cloning shares the counter.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    #[cfg(feature = "inject")]
    fail: Option<Phase>,
    #[cfg(feature = "inject")]
    abort_at: Option<u64>,
    #[cfg(feature = "inject")]
    seen: std::sync::Arc<std::sync::atomic::AtomicU64>,
    #[cfg(feature = "inject")]
    skip_sync: Option<u64>,
    #[cfg(feature = "inject")]
    syncs: std::sync::Arc<std::sync::atomic::AtomicU64>,
    #[cfg(feature = "inject")]
    no_rename_flags: bool,
    #[cfg(feature = "inject")]
    left_out: Vec<Comparison>,
    #[cfg(feature = "inject")]
    between: Between,
}

/// A function of a test that runs between every two calls of a commit that touch the workspace.
#[cfg(feature = "inject")]
#[derive(Clone, Default)]
struct Between(Option<std::sync::Arc<dyn Fn(u64) + Send + Sync>>);

#[cfg(feature = "inject")]
impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Between").field(&self.0.is_some()).finish()
    }
}

#[cfg(feature = "inject")]
impl Faults {
    /// Lets one phase fail.
    #[must_use]
    pub fn failing(phase: Phase) -> Self {
        Self { fail: Some(phase), ..Self::default() }
    }

    /// Kills this process with SIGKILL just before the `nth` (from 1) phase or pause between calls.
    #[must_use]
    pub fn aborting_at(nth: u64) -> Self {
        Self { abort_at: Some(nth), ..Self::default() }
    }

    /// Behaves as on a file system without the flags of renameat2(2).
    #[must_use]
    pub fn without_rename_flags(self) -> Self {
        Self { no_rename_flags: true, ..self }
    }

    /// Leaves these comparisons out.
    #[must_use]
    pub fn without_comparisons(self, left_out: &[Comparison]) -> Self {
        Self { left_out: left_out.to_vec(), ..self }
    }

    /// Calls a function between every two calls, with their number from 1.
    #[must_use]
    pub fn between(self, call: std::sync::Arc<dyn Fn(u64) + Send + Sync>) -> Self {
        Self { between: Between(Some(call)), ..self }
    }

    /// Reads `NEXUS_LAYER_FAIL` (the name of a phase) and `NEXUS_LAYER_ABORT_AT` (a number), and
    /// `NEXUS_LAYER_SKIP_SYNC` (the number of a sync that is left out).
    #[must_use]
    pub fn from_env() -> Self {
        Self {
            fail: std::env::var("NEXUS_LAYER_FAIL").ok().and_then(|name| Phase::by_name(&name)),
            abort_at: std::env::var("NEXUS_LAYER_ABORT_AT").ok().and_then(|number| number.parse().ok()),
            skip_sync: std::env::var("NEXUS_LAYER_SKIP_SYNC").ok().and_then(|number| number.parse().ok()),
            ..Self::default()
        }
    }

    /// Returns the number of phases and of pauses between calls that were passed.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.seen.load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl Faults {
    /// Runs before each phase.
    #[cfg_attr(
        not(feature = "inject"),
        allow(clippy::unnecessary_wraps, unused_variables, reason = "it fails only under inject")
    )]
    pub(crate) fn check(&self, phase: Phase) -> io::Result<()> {
        self.between_calls();
        #[cfg(feature = "inject")]
        if self.fail == Some(phase) {
            return Err(io::Error::other(format!("phase {} made to fail by a test", phase.name())));
        }
        Ok(())
    }

    /// Makes something durable.
    #[cfg_attr(not(feature = "inject"), allow(clippy::unused_self, reason = "the fields exist only under inject"))]
    pub(crate) fn sync(&self, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        #[cfg(feature = "inject")]
        {
            let passed = self.syncs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            if self.skip_sync == Some(passed) {
                return Ok(());
            }
        }
        call()
    }

    /// Reports whether a comparison counts, as far as a test is concerned.
    #[cfg_attr(
        not(feature = "inject"),
        allow(clippy::unused_self, unused_variables, reason = "the fields exist only under inject")
    )]
    pub(crate) fn compares(&self, one: Comparison) -> bool {
        #[cfg(feature = "inject")]
        if self.left_out.contains(&one) {
            return false;
        }
        true
    }

    /// Reports whether renameat2(2) has flags here, as far as a test is concerned.
    #[cfg_attr(not(feature = "inject"), allow(clippy::unused_self, reason = "the fields exist only under inject"))]
    pub(crate) fn has_rename_flags(&self) -> bool {
        #[cfg(feature = "inject")]
        if self.no_rename_flags {
            return false;
        }
        true
    }

    /// Runs before each single change to the disk.
    #[cfg_attr(not(feature = "inject"), allow(clippy::unused_self, reason = "the fields exist only under inject"))]
    pub(crate) fn between_calls(&self) {
        #[cfg(feature = "inject")]
        {
            let passed = self.seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            if let Some(between) = &self.between.0 {
                between(passed);
            }
            if self.abort_at == Some(passed) {
                // The kernel's own kill: no destructor, no flush, as in a power cut or an OOM kill.
                match rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL) {
                    Ok(()) => std::thread::park(),
                    Err(_) => std::process::abort(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Phase;

    #[test]
    fn every_phase_is_found_by_its_name() {
        for phase in Phase::ALL {
            assert_eq!(Phase::by_name(phase.name()), Some(*phase));
        }
    }
}
