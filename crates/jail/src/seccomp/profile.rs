//! A seccomp profile: a default answer and rules, as plain data.
//!
//! The meaning is that of the OCI runtime specification, made exact where the
//! specification leaves room:
//!
//! * a rule matches when **all** its conditions hold;
//! * when several rules match, **the most severe answer wins** (kill, then
//!   errno, then log, then allow; of two errnos the first in the file);
//! * when none matches, the default answer is given.
//!
//! libseccomp, which the common OCI runtimes use, lets a rule without
//! conditions swallow all others of the same call. The profiles of this crate
//! are therefore written so that rules with different answers never overlap,
//! and mean the same in every engine.

/// The answer of a filter to one system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The call is executed.
    Allow,
    /// The call is executed and a line goes to the kernel's audit log.
    Log,
    /// The call is not executed and fails with this errno (1 to 4095), or reports success (0, in built-in profiles alone).
    Errno(u16),
    /// The whole process dies with SIGSYS.
    KillProcess,
}

impl Action {
    /// Returns the severity of the answer; the most severe matching rule wins.
    pub(super) fn severity(self) -> u8 {
        match self {
            Self::Allow => 0,
            Self::Log => 1,
            Self::Errno(_) => 2,
            Self::KillProcess => 3,
        }
    }

    /// The value that a filter returns to the kernel for this answer.
    pub(super) fn return_value(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Log => libc::SECCOMP_RET_LOG,
            Self::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
            Self::KillProcess => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

/// A comparison of a whole 64-bit argument register, unsigned.
///
/// For an argument that the kernel reads as an `int`, only `MaskedEq` with a
/// mask inside the low 32 bits is right: the upper half of the register is the
/// caller's to choose, and a rule that looks at it can be walked around
/// (CVE-2019-10063: TIOCSTI with a bit above 31 set).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// The argument equals the value.
    Eq(u64),
    /// The argument differs from the value.
    Ne(u64),
    /// The argument is below the value.
    Lt(u64),
    /// The argument is the value or below.
    Le(u64),
    /// The argument is above the value.
    Gt(u64),
    /// The argument is the value or above.
    Ge(u64),
    /// The bits of the argument under `mask` equal `value`.
    MaskedEq {
        /// The bits that are looked at.
        mask: u64,
        /// Value of the bits in the mask; no bit outside the mask.
        value: u64,
    },
}

/// A condition on one argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Number of the argument, 0 to 5.
    pub argument: u8,
    /// Test that must hold for it.
    pub test: Test,
}

/// One entry of a profile: calls, conditions, and the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Names of system calls; at least one.
    pub names: Vec<String>,
    /// The answer when all conditions hold.
    pub action: Action,
    /// Conditions, at most one for an argument; none means always.
    pub conditions: Vec<Condition>,
    /// Reason for the rule and the caller that needs it.
    pub comment: Option<String>,
}

/// A seccomp profile, checked: every value of this type can be compiled unless
/// it is too large for the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeccompProfile {
    pub(super) default_action: Action,
    pub(super) architectures: Vec<String>,
    pub(super) rules: Vec<Rule>,
}

impl SeccompProfile {
    /// The answer to calls that no rule matches.
    pub fn default_action(&self) -> Action {
        self.default_action
    }

    /// The architectures that the file named. Only x86_64 is ever compiled;
    /// calls of any other kind kill the process, whatever is listed here.
    pub fn architectures(&self) -> &[String] {
        &self.architectures
    }

    /// The rules in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Takes every call that `other` has a rule for out of this profile and
    /// adds the rules of `other`.
    #[must_use]
    pub(super) fn replaced_by(mut self, other: Self) -> Self {
        for rule in &mut self.rules {
            rule.names.retain(|name| !other.rules.iter().any(|new| new.names.contains(name)));
        }
        self.rules.retain(|rule| !rule.names.is_empty());
        self.rules.extend(other.rules);
        self
    }
}
