//! Parts of a sandbox's confinement by name, and the switch by which a test leaves single ones out (feature `inject`).
//!
//! The parts cover each other: an attack that meets two of them says nothing about either. The escape suite therefore
//! starts sandboxes in which all but one of the parts around a row are left out, and sees that the row is still refused.

#[cfg(all(feature = "inject", not(debug_assertions)))]
compile_error!("the feature inject leaves confinement out of sandboxes: a release build must not have it");

macro_rules! confinement {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// One part of the confinement.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Wall {
            $($(#[$doc])* $name,)*
        }
        impl Wall {
            /// All of them.
            pub const ALL: &'static [Wall] = &[$(Wall::$name,)*];
            /// Returns the name by which a test leaves it out.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Wall::$name => $text,)* }
            }
            /// Returns the wall of this name.
            #[must_use]
            pub fn by_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|wall| wall.name() == name)
            }
        }
    };
}

confinement! {
    /// Landlock allows writing below the workspace, the private directories and `--rw` alone.
    LandlockFiles = "landlock_files",
    /// Landlock refuses signals and abstract sockets across its border.
    LandlockScope = "landlock_scope",
    /// The filter of system calls.
    Seccomp = "seccomp",
    /// The flag that keeps an exec from gaining rights.
    NoNewPrivileges = "no_new_privileges",
    /// The locked securebits.
    Securebits = "securebits",
    /// The capabilities of PID 1 are given up.
    Capabilities = "capabilities",
    /// The bounding set is emptied.
    BoundingSet = "bounding_set",
    /// PID 1 cannot be traced or read.
    NotDumpable = "not_dumpable",
    /// The host's root is unmounted after the pivot.
    DetachHost = "detach_host",
    /// Sensitive files of `/proc` are covered.
    MaskedProc = "masked_proc",
    /// `/proc` is read-only.
    ReadOnlyProc = "read_only_proc",
    /// The root is read-only.
    ReadOnlyRoot = "read_only_root",
    /// The system directories are read-only.
    ReadOnlySystem = "read_only_system",
    /// `--ro` paths are read-only mounts.
    ReadOnlyBinds = "read_only_binds",
    /// The covers of hidden paths are read-only.
    HiddenCovers = "hidden_covers",
    /// No mount honours setuid bits.
    NoSuid = "nosuid",
    /// No mount honours device nodes.
    NoDev = "nodev",
    /// Root's supplementary groups are dropped.
    SupplementaryGroups = "supplementary_groups",
    /// The map of ids holds the sandbox's own id alone.
    IdMap = "id_map",
    /// Its own network namespace.
    NetworkNamespace = "network_namespace",
    /// The own network has no route.
    NoRoute = "no_route",
    /// Its own IPC namespace.
    IpcNamespace = "ipc_namespace",
    /// Its own UTS namespace.
    UtsNamespace = "uts_namespace",
    /// Its own cgroup namespace.
    CgroupNamespace = "cgroup_namespace",
    /// The caller's session keyring is left.
    Keyring = "keyring",
    /// The fixed limit on core files.
    CoreLimit = "core_limit",
    /// The bound of processes.
    ProcessLimit = "process_limit",
    /// The bound of pseudo-terminals.
    TerminalLimit = "terminal_limit",
    /// The size of the private directories.
    ScratchSize = "scratch_size",
    /// PID 1's copy of the caller's environment and arguments is overwritten.
    EnvironmentWipe = "environment_wipe",
    /// PID 1 closes the launcher's descriptors.
    LauncherDescriptors = "launcher_descriptors",
    /// A command gets none of the guest's descriptors.
    CommandDescriptors = "command_descriptors",
    /// PID 1 dies with its parent.
    ParentDeath = "parent_death",
    /// A command starts only after a proof that holds.
    Proof = "proof",
}

/// Environment variable with the names that a test build leaves out.
#[cfg(feature = "inject")]
pub const VARIABLE: &str = "NEXUS_LEAVE_OUT";

#[cfg(feature = "inject")]
static LEFT_OUT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Leaves parts of the confinement out of every sandbox that this process launches from now on.
#[cfg(feature = "inject")]
pub fn leave_out(parts: &[Wall]) {
    let bits = parts.iter().fold(0, |bits, wall| bits | 1 << (*wall as u64));
    LEFT_OUT.store(bits, std::sync::atomic::Ordering::Relaxed);
}

/// Returns whether a wall stands.
#[cfg(feature = "inject")]
#[must_use]
pub fn stands(wall: Wall) -> bool {
    LEFT_OUT.load(std::sync::atomic::Ordering::Relaxed) & 1 << (wall as u64) == 0
}

/// Returns whether a wall stands: without the feature `inject` each does.
#[cfg(not(feature = "inject"))]
#[must_use]
pub const fn stands(_: Wall) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wall_has_its_own_name_and_stands() {
        let names: std::collections::BTreeSet<_> = Wall::ALL.iter().map(|wall| wall.name()).collect();
        assert_eq!(names.len(), Wall::ALL.len());
        assert!(Wall::ALL.len() < 64, "each has a bit");
        for wall in Wall::ALL {
            assert_eq!(Wall::by_name(wall.name()), Some(*wall));
            assert!(stands(*wall), "{}", wall.name());
        }
    }
}
