//! An interpreter of the classic BPF that seccomp takes (seccomp(2), bpf(4)).
//!
//! It panics where the kernel's checker would refuse the program: a jump out
//! of it, a load outside of the data, an unknown instruction.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W,
    sock_filter,
};

use crate::seccomp::Action;
use crate::seccomp::compile::ARCHITECTURE;

/// Data that the kernel shows to a filter (`struct seccomp_data`).
#[derive(Debug, Clone, Copy)]
pub struct SeccompData {
    pub number: u32,
    pub architecture: u32,
    pub arguments: [u64; 6],
}

impl SeccompData {
    /// A call of the machine's own architecture; missing arguments are 0.
    pub fn native(number: u32, given: &[u64]) -> Self {
        let mut arguments = [0; 6];
        arguments[..given.len()].copy_from_slice(given);
        Self { number, architecture: ARCHITECTURE, arguments }
    }

    fn word(&self, offset: u32) -> u32 {
        assert!(offset.is_multiple_of(4), "a load that is not aligned, at {offset}");
        match offset {
            0 => self.number,
            4 => self.architecture,
            8 | 12 => 0, // the instruction pointer
            _ => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                (if offset.is_multiple_of(8) { argument } else { argument >> 32 }) as u32
            }
        }
    }
}

/// Result of a run of the filter.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub action: Action,
    /// Instructions executed, the return included.
    pub steps: usize,
}

/// Runs a program to its return.
pub fn run(program: &[sock_filter], data: &SeccompData) -> Outcome {
    const LOAD: u32 = BPF_LD | BPF_W | BPF_ABS;
    const AND: u32 = BPF_ALU | BPF_AND | BPF_K;
    const ALWAYS: u32 = BPF_JMP | BPF_JA;
    const RETURN: u32 = BPF_RET | BPF_K;
    let (mut at, mut accumulator, mut steps) = (0_usize, 0_u32, 0);
    loop {
        let instruction = program[at];
        let k = instruction.k;
        steps += 1;
        at += 1;
        let condition = match u32::from(instruction.code) {
            LOAD => {
                accumulator = data.word(k);
                continue;
            }
            AND => {
                accumulator &= k;
                continue;
            }
            ALWAYS => {
                at += k as usize;
                continue;
            }
            RETURN => return Outcome { action: action(k), steps },
            code if code == BPF_JMP | BPF_JEQ | BPF_K => accumulator == k,
            code if code == BPF_JMP | BPF_JGT | BPF_K => accumulator > k,
            code if code == BPF_JMP | BPF_JGE | BPF_K => accumulator >= k,
            code if code == BPF_JMP | BPF_JSET | BPF_K => accumulator & k != 0,
            code => panic!("instruction {code:#x} at {} is not one seccomp takes", at - 1),
        };
        at += usize::from(if condition { instruction.jt } else { instruction.jf });
    }
}

fn action(value: u32) -> Action {
    match value & libc::SECCOMP_RET_ACTION_FULL {
        libc::SECCOMP_RET_ALLOW => Action::Allow,
        libc::SECCOMP_RET_LOG => Action::Log,
        libc::SECCOMP_RET_KILL_PROCESS => Action::KillProcess,
        libc::SECCOMP_RET_ERRNO => Action::Errno((value & libc::SECCOMP_RET_DATA) as u16),
        other => panic!("the program returned {other:#x}"),
    }
}
