//! Every step of setting a sandbox up, by name, and the error that names the step that failed.
//!
//! The list exists for two readers: a person who reads which step a kernel refused, and the test that makes each
//! step fail in turn and sees that the command never starts (feature `inject`).

use std::io;

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// One step of the set-up.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Step {
            $($(#[$doc])* $name,)*
        }
        impl Step {
            /// All of them, roughly in the order in which they happen.
            pub const ALL: &'static [Step] = &[$(Step::$name,)*];
            /// The name in messages and records.
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
    /// The launcher has one thread; a fork of a threaded process would copy locked locks.
    SingleThread = "single_thread",
    /// The ids that the sandbox gets.
    Identity = "identity",
    /// Leave the caller's session keyring.
    JoinKeyring = "join_keyring",
    /// Read which namespaces the host has, for the proof.
    HostNamespaces = "host_namespaces",
    /// The socket between host and guest.
    MakeChannel = "make_channel",
    /// The user namespace that maps file owners (root only).
    IdMapNamespace = "idmap_namespace",
    /// Host directories as idmapped mounts (root only).
    IdMappedMounts = "idmapped_mounts",
    /// The workspace's overlay, made by root.
    RootOverlay = "root_overlay",
    /// Layers that are attached nowhere. A kernel that refuses them gets attached ones, so no launch fails here.
    DetachedLayers = "detached_layers",
    /// Control groups for the limits.
    MakeCgroup = "make_cgroup",
    /// The system view that a launcher builds once (launcher only).
    Template = "template",
    /// A network namespace that is used again (launcher only).
    NetworkPool = "network_pool",
    /// The process with its namespaces.
    Clone = "clone",
    /// The child enters its control groups.
    EnterCgroup = "enter_cgroup",
    /// The map of user and group ids.
    WriteIdMap = "write_id_map",
    /// The child waits until its parent has done its part.
    AwaitParent = "await_parent",
    /// The child takes the ids that the command will have.
    BecomeInner = "become_inner",
    /// Own session, no controlling terminal.
    NewSession = "new_session",
    /// Everything above descriptor 2 but the channel is closed.
    CloseDescriptors = "close_descriptors",
    /// The caller's environment and arguments in the launcher's memory are wiped.
    WipeEnvironment = "wipe_environment",
    /// Own cgroup namespace, once inside the limits.
    CgroupNamespace = "cgroup_namespace",
    /// Own host name.
    HostName = "host_name",
    /// The loopback device goes up.
    Loopback = "loopback",
    /// Mounts of the host no longer propagate.
    PrivateMounts = "private_mounts",
    /// Host directories of the system view are opened.
    OpenSystem = "open_system",
    /// The workspace is opened.
    OpenWorkspace = "open_workspace",
    /// Bound host paths are opened.
    OpenBinds = "open_binds",
    /// The sockets on which the sandbox meets the egress.
    EgressListeners = "egress_listeners",
    /// Routes and rules that bring every connection there.
    Redirect = "redirect",
    /// The descriptors by which the host knows the sandbox's processes and their sockets.
    ShowProcesses = "show_processes",
    /// The sockets are handed to the host.
    SendListeners = "send_listeners",
    /// The socket at which a sandbox without an egress asks for names.
    NameSocket = "name_socket",
    /// The limits of the run's control group are shown inside.
    ShowLimits = "show_limits",
    /// The private root file system.
    MountRoot = "mount_root",
    /// Directories and links in the root.
    Skeleton = "skeleton",
    /// The synthesised `/etc`.
    EtcFiles = "etc_files",
    /// The read-only system view.
    MountSystem = "mount_system",
    /// Device nodes in `/dev`.
    MountDevices = "mount_devices",
    /// Pseudo-terminals of the sandbox's own.
    MountPts = "mount_pts",
    /// `/proc` of the sandbox's own.
    MountProc = "mount_proc",
    /// The sensitive files in it.
    MaskProc = "mask_proc",
    /// Private writable directories.
    MountScratch = "mount_scratch",
    /// The layer in memory.
    MountLayer = "mount_layer",
    /// The mount of the workspace.
    MountWorkspace = "mount_workspace",
    /// Protected names of a workspace without a layer.
    ProtectNames = "protect_names",
    /// Paths of the workspace that cannot be read inside.
    HidePaths = "hide_paths",
    /// Bound host paths.
    MountBinds = "mount_binds",
    /// The files of secrets.
    PlaceSecrets = "place_secrets",
    /// The root becomes read-only.
    ReadOnlyRoot = "read_only_root",
    /// The host's root is left.
    PivotRoot = "pivot_root",
    /// The host's root is dropped.
    DetachHost = "detach_host",
    /// The layer in memory is handed to the host.
    SendLayer = "send_layer",
    /// Resource limits of the process.
    ResourceLimits = "resource_limits",
    /// No gain of rights by exec.
    NoNewPrivileges = "no_new_privileges",
    /// All capability sets are emptied.
    DropCapabilities = "drop_capabilities",
    /// Not to be traced or read.
    NotDumpable = "not_dumpable",
    /// Dies with its parent.
    ParentDeath = "parent_death",
    /// The second wall around files.
    Landlock = "landlock",
    /// The system-call filter.
    Seccomp = "seccomp",
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}{}", step.name(), errno_text(*errno))]
pub struct StepError {
    /// Step that failed.
    pub step: Step,
    /// Error number of the kernel, or 0.
    pub errno: i32,
    /// Detail of the failure, for a person to read.
    pub detail: String,
}

fn errno_text(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(" ({})", io::Error::from_raw_os_error(errno)) }
}

impl StepError {
    /// A failure that no errno explains.
    pub fn new(step: Step, detail: impl Into<String>) -> Self {
        Self { step, errno: 0, detail: detail.into() }
    }

    /// A failure of a system call.
    pub fn os(step: Step, errno: impl Into<io::Error>, detail: impl Into<String>) -> Self {
        Self { step, errno: errno.into().raw_os_error().unwrap_or(0), detail: detail.into() }
    }
}

/// Step that a test makes fail. Without the feature `inject` it is nothing and costs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    #[cfg(feature = "inject")]
    fail: Option<Step>,
    #[cfg(feature = "inject")]
    stop: Option<Step>,
}

impl Faults {
    /// Lets one step fail.
    #[cfg(feature = "inject")]
    #[must_use]
    pub fn failing(step: Step) -> Self {
        Self { fail: Some(step), stop: None }
    }

    /// Lets one step never end.
    #[cfg(feature = "inject")]
    #[must_use]
    pub fn stopping(step: Step) -> Self {
        Self { fail: None, stop: Some(step) }
    }

    /// Runs before each step.
    #[cfg(feature = "inject")]
    pub fn check(self, step: Step) -> Result<(), StepError> {
        if self.fail == Some(step) {
            return Err(StepError::new(step, "made to fail by a test"));
        }
        while self.stop == Some(step) {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        Ok(())
    }

    /// Runs before each step.
    #[cfg(not(feature = "inject"))]
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "the same shape as with the feature inject")]
    pub fn check(self, _: Step) -> Result<(), StepError> {
        Ok(())
    }
}

/// Adds the step and the subject to the error of a system call.
pub(crate) trait AtStep<T> {
    fn at(self, step: Step, detail: &str) -> Result<T, StepError>;
}

impl<T, E: Into<io::Error>> AtStep<T> for Result<T, E> {
    fn at(self, step: Step, detail: &str) -> Result<T, StepError> {
        self.map_err(|error| {
            let error = error.into();
            // The innermost step is the one to name.
            match error.get_ref().and_then(|inner| inner.downcast_ref::<StepError>()) {
                Some(inner) => inner.clone(),
                None => StepError::os(step, error, detail),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_own_name() {
        let names: std::collections::BTreeSet<_> = Step::ALL.iter().map(|step| step.name()).collect();
        assert_eq!(names.len(), Step::ALL.len());
        for step in Step::ALL {
            assert_eq!(Step::by_name(step.name()), Some(*step));
        }
    }

    #[test]
    fn no_step_fails_unless_a_test_asks() {
        for step in Step::ALL {
            assert_eq!(Faults::default().check(*step), Ok(()));
        }
    }

    #[cfg(feature = "inject")]
    #[test]
    fn the_asked_step_fails_and_no_other() {
        let faults = Faults::failing(Step::Seccomp);
        assert!(faults.check(Step::Seccomp).is_err());
        assert!(faults.check(Step::Landlock).is_ok());
    }
}
