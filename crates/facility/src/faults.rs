//! The steps of a layer's life by name, so that a test can make each of them fail or die.
//!
//! Without the feature `inject` a [`Faults`] has no fields and its checks vanish.

use std::io;

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// One step of creating, committing, discarding or recovering a layer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Step {
            $($(#[$doc])* $name,)*
        }
        impl Step {
            /// All of them, in the order in which they happen.
            pub const ALL: &'static [Step] = &[$(Step::$name,)*];
            /// The name in messages.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Step::$name => $text,)* }
            }
            /// The step of this name.
            #[must_use]
            pub fn by_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|step| step.name() == name)
            }
        }
    };
}

steps! {
    /// The layer's folders are made.
    CreateLayer = "create_layer",
    /// An upper directory that is only a descriptor is copied into the layer's folder.
    Materialise = "materialise",
    /// The upper directory is read.
    ReadLayer = "read_layer",
    /// The plan is made and checked for conflicts.
    PlanCommit = "plan_commit",
    /// The bytes that the plan refers to reach the disk.
    SyncLayer = "sync_layer",
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
    /// What was committed leaves the layer.
    Finish = "finish",
    /// The layer is kept for a review.
    Park = "park",
    /// The layer's folders are removed.
    Discard = "discard",
}

/// What a test wants to go wrong. Cloning shares the counter.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    #[cfg(feature = "inject")]
    fail: Option<Step>,
    #[cfg(feature = "inject")]
    abort_at: Option<u64>,
    #[cfg(feature = "inject")]
    seen: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

#[cfg(feature = "inject")]
impl Faults {
    /// Lets one step fail.
    #[must_use]
    pub fn failing(step: Step) -> Self {
        Self { fail: Some(step), ..Self::default() }
    }

    /// Kills this process with SIGKILL just before the `nth` (from 1) step or action.
    #[must_use]
    pub fn aborting_at(nth: u64) -> Self {
        Self { abort_at: Some(nth), ..Self::default() }
    }

    /// Reads `NEXUS_FACILITY_FAIL` (the name of a step) and `NEXUS_FACILITY_ABORT_AT` (a number).
    #[must_use]
    pub fn from_env() -> Self {
        Self {
            fail: std::env::var("NEXUS_FACILITY_FAIL").ok().and_then(|name| Step::by_name(&name)),
            abort_at: std::env::var("NEXUS_FACILITY_ABORT_AT").ok().and_then(|number| number.parse().ok()),
            ..Self::default()
        }
    }

    /// How many steps and actions were passed.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.seen.load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl Faults {
    /// Runs before each step.
    #[cfg_attr(
        not(feature = "inject"),
        allow(clippy::unnecessary_wraps, unused_variables, reason = "it fails only under inject")
    )]
    pub(crate) fn check(&self, step: Step) -> io::Result<()> {
        self.action();
        #[cfg(feature = "inject")]
        if self.fail == Some(step) {
            return Err(io::Error::other(format!("step {} made to fail by a test", step.name())));
        }
        Ok(())
    }

    /// Runs before each single change to the disk.
    #[cfg_attr(not(feature = "inject"), allow(clippy::unused_self, reason = "the fields exist only under inject"))]
    pub(crate) fn action(&self) {
        #[cfg(feature = "inject")]
        {
            let passed = self.seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
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
    use super::Step;

    #[test]
    fn every_step_is_found_by_its_name() {
        for step in Step::ALL {
            assert_eq!(Step::by_name(step.name()), Some(*step));
        }
    }
}
