//! The JSON form of a seccomp profile: the `seccomp` object of the OCI runtime
//! specification, plus the `comment` key that container engines add to entries.
//!
//! The shapes here mirror the file; [`read`] checks them and turns them into
//! [`SeccompProfile`], [`write`] goes back. Reading fails closed, see
//! [`SeccompProfile::from_json`].

use serde::{Deserialize, Serialize};

use super::profile::{Action, Condition, Rule, SeccompProfile, Test};
use super::table;

/// The greatest errno that the kernel passes on from a filter (MAX_ERRNO).
const MAX_ERRNO: u16 = 4095;

/// Architectures of the specification. x86_64 has to be among those named.
const ARCHITECTURES: &[&str] = &[
    "SCMP_ARCH_X86_64",
    "SCMP_ARCH_X86",
    "SCMP_ARCH_X32",
    "SCMP_ARCH_ARM",
    "SCMP_ARCH_AARCH64",
    "SCMP_ARCH_MIPS",
    "SCMP_ARCH_MIPS64",
    "SCMP_ARCH_MIPS64N32",
    "SCMP_ARCH_MIPSEL",
    "SCMP_ARCH_MIPSEL64",
    "SCMP_ARCH_MIPSEL64N32",
    "SCMP_ARCH_PPC",
    "SCMP_ARCH_PPC64",
    "SCMP_ARCH_PPC64LE",
    "SCMP_ARCH_S390",
    "SCMP_ARCH_S390X",
    "SCMP_ARCH_PARISC",
    "SCMP_ARCH_PARISC64",
    "SCMP_ARCH_RISCV64",
    "SCMP_ARCH_LOONGARCH64",
];

/// Reason for which a seccomp profile could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not JSON, or a key, action or operator that is not understood.
    #[error("the seccomp profile is not valid OCI JSON")]
    Json {
        /// Error of the JSON reader, with line and column.
        #[source]
        source: serde_json::Error,
    },
    /// A system call that exists on no known architecture.
    #[error("the seccomp profile names the unknown system call {name:?}")]
    UnknownCall {
        /// The name as written.
        name: String,
    },
    /// An architecture that the specification does not have.
    #[error("the seccomp profile names the unknown architecture {name:?}")]
    UnknownArchitecture {
        /// The name as written.
        name: String,
    },
    /// The list of architectures leaves out the one this program runs on.
    #[error("the seccomp profile is not for x86_64")]
    OtherArchitecture,
    /// An entry without names.
    #[error("entry {entry} of the seccomp profile names no system call")]
    NoNames {
        /// Position in `syscalls`, from 0.
        entry: usize,
    },
    /// An errno outside 1 to 4095, or beside an action that has none.
    #[error("{place} of the seccomp profile has an errno that cannot be: {errno}")]
    BadErrno {
        /// "defaultErrnoRet" or the entry.
        place: String,
        /// The errno as written.
        errno: u16,
    },
    /// An argument number above 5.
    #[error("entry {entry} of the seccomp profile has a condition on argument {index}")]
    BadArgument {
        /// Position in `syscalls`, from 0.
        entry: usize,
        /// The argument as written.
        index: u8,
    },
    /// Two conditions on one argument in one entry.
    #[error("entry {entry} of the seccomp profile has two conditions on argument {index}")]
    DoubledArgument {
        /// Position in `syscalls`, from 0.
        entry: usize,
        /// Number of the argument.
        index: u8,
    },
    /// `valueTwo` without MASKED_EQ, or with bits that the mask does not have.
    #[error("entry {entry} of the seccomp profile has the impossible valueTwo {value_two:#x}")]
    BadSecondValue {
        /// Position in `syscalls`, from 0.
        entry: usize,
        /// The value as written.
        value_two: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProfileForm {
    default_action: ActionForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default_errno_ret: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    architectures: Vec<String>,
    #[serde(default)]
    syscalls: Vec<RuleForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleForm {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    names: Vec<String>,
    action: ActionForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    errno_ret: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<ArgumentForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ArgumentForm {
    index: u8,
    value: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_two: Option<u64>,
    op: OperatorForm,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
enum ActionForm {
    #[serde(rename = "SCMP_ACT_ALLOW")]
    Allow,
    #[serde(rename = "SCMP_ACT_LOG")]
    Log,
    #[serde(rename = "SCMP_ACT_ERRNO")]
    Errno,
    #[serde(rename = "SCMP_ACT_KILL_PROCESS")]
    KillProcess,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
enum OperatorForm {
    #[serde(rename = "SCMP_CMP_EQ")]
    Eq,
    #[serde(rename = "SCMP_CMP_NE")]
    Ne,
    #[serde(rename = "SCMP_CMP_LT")]
    Lt,
    #[serde(rename = "SCMP_CMP_LE")]
    Le,
    #[serde(rename = "SCMP_CMP_GT")]
    Gt,
    #[serde(rename = "SCMP_CMP_GE")]
    Ge,
    #[serde(rename = "SCMP_CMP_MASKED_EQ")]
    MaskedEq,
}

impl SeccompProfile {
    /// Reads the seccomp object of the OCI runtime specification.
    ///
    /// Everything that is not understood is an error: unknown keys, actions,
    /// operators, architectures and system calls, a list of architectures
    /// without x86_64, two conditions on one argument in one entry (engines
    /// disagree on whether that means "and" or "or"), and an errno of 0, which
    /// would report success for a call that never ran.
    pub fn from_json(json: &str) -> Result<Self, ProfileError> {
        read(json, 1)
    }

    /// Writes the seccomp object of the OCI runtime specification, indented.
    pub fn to_json(&self) -> Result<String, ProfileError> {
        write(self)
    }
}

/// Reads a profile. `least_errno` is 0 where a rule may answer success for a call that is not made, and otherwise 1.
pub(super) fn read(json: &str, least_errno: u16) -> Result<SeccompProfile, ProfileError> {
    let form: ProfileForm = serde_json::from_str(json).map_err(|source| ProfileError::Json { source })?;
    for name in &form.architectures {
        if !ARCHITECTURES.contains(&name.as_str()) {
            return Err(ProfileError::UnknownArchitecture { name: name.clone() });
        }
    }
    // An empty list means the architecture of the machine.
    if !form.architectures.is_empty() && !form.architectures.iter().any(|name| name == ARCHITECTURES[0]) {
        return Err(ProfileError::OtherArchitecture);
    }
    // Never for the default answer: a program would go on as if every unknown call had been made.
    let default_action = action_of(form.default_action, form.default_errno_ret, 1, || "defaultErrnoRet".to_owned())?;
    let rules = form.syscalls.into_iter().enumerate();
    let rules = rules.map(|(entry, form)| rule_of(entry, form, least_errno)).collect::<Result<_, _>>()?;
    Ok(SeccompProfile { default_action, architectures: form.architectures, rules })
}

fn rule_of(entry: usize, form: RuleForm, least_errno: u16) -> Result<Rule, ProfileError> {
    if form.names.is_empty() {
        return Err(ProfileError::NoNames { entry });
    }
    for name in &form.names {
        if table::number(name).is_none() && !table::is_elsewhere(name) {
            return Err(ProfileError::UnknownCall { name: name.clone() });
        }
    }
    let mut conditions: Vec<Condition> = Vec::with_capacity(form.args.len());
    for argument in &form.args {
        let condition = condition_of(entry, argument)?;
        if conditions.iter().any(|other| other.argument == condition.argument) {
            return Err(ProfileError::DoubledArgument { entry, index: argument.index });
        }
        conditions.push(condition);
    }
    let action = action_of(form.action, form.errno_ret, least_errno, || format!("entry {entry}"))?;
    Ok(Rule { names: form.names, action, conditions, comment: form.comment })
}

fn condition_of(entry: usize, form: &ArgumentForm) -> Result<Condition, ProfileError> {
    if form.index > 5 {
        return Err(ProfileError::BadArgument { entry, index: form.index });
    }
    let value = form.value;
    let second = form.value_two.unwrap_or(0);
    // Engines write valueTwo 0 beside every operator; anything else there has
    // no meaning, and a value outside the mask could never be met.
    let unused = match form.op {
        OperatorForm::MaskedEq => second & !value,
        _ => second,
    };
    if unused != 0 {
        return Err(ProfileError::BadSecondValue { entry, value_two: second });
    }
    let test = match form.op {
        OperatorForm::Eq => Test::Eq(value),
        OperatorForm::Ne => Test::Ne(value),
        OperatorForm::Lt => Test::Lt(value),
        OperatorForm::Le => Test::Le(value),
        OperatorForm::Gt => Test::Gt(value),
        OperatorForm::Ge => Test::Ge(value),
        OperatorForm::MaskedEq => Test::MaskedEq { mask: value, value: second },
    };
    Ok(Condition { argument: form.index, test })
}

fn action_of(
    form: ActionForm,
    errno: Option<u16>,
    least_errno: u16,
    place: impl Fn() -> String,
) -> Result<Action, ProfileError> {
    match (form, errno) {
        (ActionForm::Allow, None) => Ok(Action::Allow),
        (ActionForm::Log, None) => Ok(Action::Log),
        (ActionForm::KillProcess, None) => Ok(Action::KillProcess),
        // The specification's answer when no errno is given.
        (ActionForm::Errno, None) => Ok(Action::Errno(libc::EPERM as u16)),
        (ActionForm::Errno, Some(errno)) if (least_errno..=MAX_ERRNO).contains(&errno) => Ok(Action::Errno(errno)),
        (_, Some(errno)) => Err(ProfileError::BadErrno { place: place(), errno }),
    }
}

pub(super) fn write(profile: &SeccompProfile) -> Result<String, ProfileError> {
    let (default_action, default_errno_ret) = action_form(profile.default_action);
    let form = ProfileForm {
        default_action,
        default_errno_ret,
        architectures: profile.architectures.clone(),
        syscalls: profile.rules.iter().map(rule_form).collect(),
    };
    serde_json::to_string_pretty(&form).map_err(|source| ProfileError::Json { source })
}

fn rule_form(rule: &Rule) -> RuleForm {
    let (action, errno_ret) = action_form(rule.action);
    RuleForm {
        comment: rule.comment.clone(),
        names: rule.names.clone(),
        action,
        errno_ret,
        args: rule.conditions.iter().map(argument_form).collect(),
    }
}

fn argument_form(condition: &Condition) -> ArgumentForm {
    let (op, value, value_two) = match condition.test {
        Test::Eq(value) => (OperatorForm::Eq, value, None),
        Test::Ne(value) => (OperatorForm::Ne, value, None),
        Test::Lt(value) => (OperatorForm::Lt, value, None),
        Test::Le(value) => (OperatorForm::Le, value, None),
        Test::Gt(value) => (OperatorForm::Gt, value, None),
        Test::Ge(value) => (OperatorForm::Ge, value, None),
        Test::MaskedEq { mask, value } => (OperatorForm::MaskedEq, mask, Some(value)),
    };
    ArgumentForm { index: condition.argument, value, value_two, op }
}

fn action_form(action: Action) -> (ActionForm, Option<u16>) {
    match action {
        Action::Allow => (ActionForm::Allow, None),
        Action::Log => (ActionForm::Log, None),
        Action::Errno(errno) => (ActionForm::Errno, Some(errno)),
        Action::KillProcess => (ActionForm::KillProcess, None),
    }
}
