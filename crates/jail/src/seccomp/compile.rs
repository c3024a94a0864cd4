//! From a profile to a filter program in classic BPF.
//!
//! The program looks at the architecture first and kills foreign ones (the
//! numbers of i386 calls mean other calls here), then kills x32 calls, which
//! come with the same architecture and bit 30 of the number set
//! (CVE-2014-0038 was reachable through x32 alone). Then a balanced binary
//! search over the ranges of the plan finds the outcome in about seven
//! comparisons; a linear list as most libraries make it costs up to one for
//! each call, at every call and, because the kernel tries the filter on each
//! number to find the always-allowed ones, 500 times at installation.

use std::borrow::Cow;
use std::ops::Deref;

use libc::{BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JSET, sock_filter};

use super::assembler::{Assembler, Goal, data};
use super::outcome::Outcome;
use super::plan::{Plan, plan};
use super::profile::{Action, Condition, SeccompProfile, Test};

/// AUDIT_ARCH_X86_64 of linux/audit.h: EM_X86_64, 64 bits, little-endian.
pub(super) const ARCHITECTURE: u32 = 0xc000_003e;

/// __X32_SYSCALL_BIT of asm/unistd.h. Numbers with it, and all above, are not
/// native calls.
pub(super) const X32_BIT: u32 = 0x4000_0000;

/// BPF_MAXINSNS: the kernel refuses a longer program.
const MAX_INSTRUCTIONS: usize = 4096;

/// Reason for which a profile could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// More instructions than the kernel takes.
    #[error("the seccomp profile compiles to {instructions} instructions, the kernel takes 4096")]
    TooLong {
        /// The length of the program.
        instructions: usize,
    },
}

/// A compiled filter, ready for [`super::install`].
#[derive(Clone)]
pub struct Program(pub(super) Cow<'static, [sock_filter]>);

impl Deref for Program {
    type Target = [sock_filter];

    fn deref(&self) -> &[sock_filter] {
        &self.0
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("instructions", &self.len()).finish_non_exhaustive()
    }
}

/// Compiles a profile. The work is pure; nothing is installed.
pub fn compile(profile: &SeccompProfile) -> Result<Program, CompileError> {
    let Plan { ranges, outcomes } = plan(profile);
    let mut tree = Tree { assembler: Assembler::default(), written: vec![None; outcomes.len()], outcomes };
    let native = tree.search(&ranges);
    let kill = Goal::Answer(Action::KillProcess.return_value());

    let mut assembler = tree.assembler;
    let number = assembler.branch(BPF_JGE, X32_BIT, None, kill, native);
    let number = assembler.with(data::NUMBER, number);
    let start = assembler.branch(BPF_JEQ, ARCHITECTURE, None, number, kill);
    let start = assembler.with(data::ARCHITECTURE, start);
    assembler.loaded(start);

    let program = assembler.finish();
    if program.len() > MAX_INSTRUCTIONS {
        return Err(CompileError::TooLong { instructions: program.len() });
    }
    Ok(Program(Cow::Owned(program)))
}

struct Tree {
    assembler: Assembler,
    outcomes: Vec<Outcome>,
    /// Start of the code of each outcome, once it is written.
    written: Vec<Option<Goal>>,
}

impl Tree {
    /// Halves the ranges until one is left. The call number stays in the
    /// accumulator all the way.
    fn search(&mut self, ranges: &[(u32, usize)]) -> Goal {
        let (below, above) = ranges.split_at(ranges.len() / 2);
        match (below, above) {
            ([], [(_, outcome)]) => self.outcome(*outcome),
            (_, [(start, _), ..]) => {
                let (start, yes) = (*start, self.search(above));
                let no = self.search(below);
                self.assembler.branch(BPF_JGE, start, None, yes, no)
            }
            // A plan begins at number 0, so there is a range to find. Should
            // that ever break, nothing may pass.
            (_, []) => Goal::Answer(Action::KillProcess.return_value()),
        }
    }

    fn outcome(&mut self, id: usize) -> Goal {
        if let Some(goal) = self.written[id] {
            return goal;
        }
        let outcome = &self.outcomes[id];
        let otherwise = Goal::Answer(outcome.otherwise.return_value());
        let checks: Vec<Check> = outcome.checks.iter().map(|(conditions, action)| (&conditions[..], *action)).collect();
        let goal = first_match(&mut self.assembler, &checks, otherwise);
        let goal = self.assembler.loaded(goal);
        self.written[id] = Some(goal);
        goal
    }
}

/// The conditions of a rule that are still to be looked at, and its answer.
type Check<'a> = (&'a [Condition], Action);

/// Writes checks so that the first whose conditions all hold answers. A run of
/// checks that begin with the same condition looks at it once.
fn first_match(asm: &mut Assembler, checks: &[Check], otherwise: Goal) -> Goal {
    let mut goal = otherwise;
    for run in checks.chunk_by(|a, b| a.0.first() == b.0.first()).rev() {
        goal = match run {
            [([condition, ..], _), ..] => {
                let inner: Vec<Check> = run.iter().map(|(conditions, action)| (&conditions[1..], *action)).collect();
                let yes = first_match(asm, &inner, goal);
                check(asm, *condition, yes, goal)
            }
            [([], action), ..] => Goal::Answer(action.return_value()),
            [] => goal,
        };
    }
    goal
}

/// Writes one comparison of a 64-bit argument as comparisons of its halves.
fn check(asm: &mut Assembler, condition: Condition, yes: Goal, no: Goal) -> Goal {
    let argument = condition.argument;
    match condition.test {
        Test::Eq(value) => masked(asm, argument, u64::MAX, value, yes, no),
        Test::Ne(value) => masked(asm, argument, u64::MAX, value, no, yes),
        Test::MaskedEq { mask, value } => masked(asm, argument, mask, value, yes, no),
        Test::Gt(value) => ordered(asm, argument, BPF_JGT, value, yes, no),
        Test::Ge(value) => ordered(asm, argument, BPF_JGE, value, yes, no),
        Test::Lt(value) => ordered(asm, argument, BPF_JGE, value, no, yes),
        Test::Le(value) => ordered(asm, argument, BPF_JGT, value, no, yes),
    }
}

fn masked(asm: &mut Assembler, argument: u8, mask: u64, value: u64, yes: Goal, no: Goal) -> Goal {
    let low = masked_word(asm, data::low(argument), mask as u32, value as u32, yes, no);
    masked_word(asm, data::high(argument), (mask >> 32) as u32, (value >> 32) as u32, low, no)
}

fn masked_word(asm: &mut Assembler, offset: u32, mask: u32, value: u32, yes: Goal, no: Goal) -> Goal {
    let held = Some(offset);
    let first = if mask == 0 {
        return yes;
    } else if mask == u32::MAX {
        asm.branch(BPF_JEQ, value, held, yes, no)
    } else if value == 0 {
        asm.branch(BPF_JSET, mask, held, no, yes)
    } else if mask.is_power_of_two() {
        asm.branch(BPF_JSET, mask, held, yes, no)
    } else {
        let compare = asm.branch(BPF_JEQ, value, None, yes, no);
        asm.and(mask, compare)
    };
    asm.with(offset, first)
}

/// Writes `argument <op> value`, op being "above" or "at or above".
fn ordered(asm: &mut Assembler, argument: u8, op: u32, value: u64, yes: Goal, no: Goal) -> Goal {
    let (low, high) = (data::low(argument), data::high(argument));
    let compare = asm.branch(op, value as u32, Some(low), yes, no);
    let tie = asm.with(low, compare);
    let level = asm.branch(BPF_JEQ, (value >> 32) as u32, Some(high), tie, no);
    let above = asm.branch(BPF_JGT, (value >> 32) as u32, Some(high), yes, level);
    asm.with(high, above)
}
