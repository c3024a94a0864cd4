//! The named promises that a driver can give. `Driver::probe` reports them with reasons, a run may require any,
//! and the launch proves the confinement behind most of them (limits are not proved).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

macro_rules! guarantees {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// One named promise.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Guarantee {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }
        impl Guarantee {
            /// All of them, in the order in which they are shown.
            pub const ALL: &'static [Guarantee] = &[$(Guarantee::$name,)*];
            /// The name that people and protocols use.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Guarantee::$name => $text,)* }
            }
        }
    };
}

guarantees! {
    /// The workspace is the only writable host directory, and apart from the system view the command sees nothing else
    /// of the host.
    FsWorkspaceOnly = "fs.workspace_only",
    /// The system view cannot be written.
    FsReadOnlySystem = "fs.read_only_system",
    /// No network but the sandbox's own loopback.
    NetNone = "net.none",
    /// Every connection goes through the policy.
    NetDestinationChecked = "net.destination_checked",
    /// The sandbox has a kernel of its own.
    KernelSeparate = "kernel.separate",
    /// Memory limits hold.
    LimitsMemory = "limits.memory",
    /// Process limits hold.
    LimitsPids = "limits.pids",
    /// Processor limits hold.
    LimitsCpu = "limits.cpu",
    /// Disk limits hold.
    LimitsDisk = "limits.disk",
    /// When a run ends, everything that it started is dead.
    KillComplete = "kill.complete",
    /// System calls are filtered.
    SeccompFiltered = "seccomp.filtered",
    /// SysV IPC, message queues and abstract sockets of the host are out of reach.
    IpcIsolated = "ipc.isolated",
    /// Keys of the host are out of reach.
    KeyringIsolated = "keyring.isolated",
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A guarantee's name was not known.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown guarantee {name:?}; known are: {}", Guarantee::ALL.iter().map(|g| g.name()).collect::<Vec<_>>().join(", "))]
pub struct UnknownGuarantee {
    /// Name that is not a guarantee.
    pub name: String,
}

impl FromStr for Guarantee {
    type Err = UnknownGuarantee;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|g| g.name() == name).ok_or_else(|| UnknownGuarantee { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_in_text_and_in_json() {
        for guarantee in Guarantee::ALL {
            assert_eq!(guarantee.name().parse(), Ok(*guarantee));
            let json = serde_json::to_string(guarantee).unwrap();
            assert_eq!(json, format!("{:?}", guarantee.name()));
        }
        assert!("fs.everything".parse::<Guarantee>().is_err());
    }
}
