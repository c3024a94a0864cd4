//! A small assembler for classic BPF that writes the program backwards.
//!
//! Classic BPF jumps forward only, by at most 255 instructions when the jump
//! is conditional. Writing from the end means that every target exists already
//! when a jump to it is written, and that its distance is known: when it is too
//! far, an answer is simply written a second time nearby, and any other target gets
//! an unconditional jump (32-bit distance) in between.

use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};

/// Offsets into `struct seccomp_data`.
pub(super) mod data {
    pub const NUMBER: u32 = 0;
    pub const ARCHITECTURE: u32 = 4;

    /// The low half of an argument (x86_64 is little-endian).
    pub const fn low(argument: u8) -> u32 {
        16 + 8 * argument as u32
    }

    /// The high half of an argument.
    pub const fn high(argument: u8) -> u32 {
        low(argument) + 4
    }
}

/// A place in the program, counted from its end: the number of instructions
/// from there on, so the next instruction written becomes `len + 1`.
type Place = usize;

/// Target of control flow.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    /// Return this value to the kernel.
    Answer(u32),
    /// Go on at this place.
    Code(Place),
    /// Go on at this place with the data word at `offset` in the accumulator. The load is written when control comes
    /// without that word.
    With { offset: u32, place: Place },
}

/// The accumulator holds the data word at this offset, unchanged.
type Held = Option<u32>;

#[derive(Default)]
pub(super) struct Assembler {
    /// The instructions, last first.
    backwards: Vec<sock_filter>,
    /// The latest place of each answer.
    answers: Vec<(u32, Place)>,
    /// The place of the load before each `Goal::With` that has one.
    loads: Vec<(Place, Place)>,
}

impl Assembler {
    /// The finished program, first instruction first.
    pub fn finish(mut self) -> Vec<sock_filter> {
        self.backwards.reverse();
        self.backwards
    }

    /// Writes `if accumulator <op> operand then yes else no`.
    pub fn branch(&mut self, op: u32, operand: u32, held: Held, yes: Goal, no: Goal) -> Goal {
        // What the second branch needs to have written can push the first out
        // of reach again; then it gets its own copy or relay in the next round.
        loop {
            let (to_yes, to_no) = (self.within_reach(yes, held), self.within_reach(no, held));
            if let (Some(jt), Some(jf)) = (self.short(to_yes), self.short(to_no)) {
                return self.write(BPF_JMP | op | BPF_K, jt, jf, operand);
            }
        }
    }

    /// Writes `accumulator &= mask` before `next`, which was written last.
    pub fn and(&mut self, mask: u32, next: Goal) -> Goal {
        debug_assert!(self.is_last(next));
        self.write(BPF_ALU | BPF_AND | BPF_K, 0, 0, mask)
    }

    /// Says that `next`, which was written last, wants a data word loaded.
    pub fn with(&self, offset: u32, next: Goal) -> Goal {
        debug_assert!(self.is_last(next));
        Goal::With { offset, place: self.backwards.len() }
    }

    /// Makes a place of a goal that is jumped to without its word loaded. Done
    /// at once where that is known, because a load that follows later cannot
    /// fall through to its goal.
    pub fn loaded(&mut self, goal: Goal) -> Goal {
        match goal {
            Goal::With { offset, place } => Goal::Code(self.load(offset, place)),
            Goal::Answer(_) | Goal::Code(_) => goal,
        }
    }

    fn write(&mut self, code: u32, jt: u8, jf: u8, k: u32) -> Goal {
        self.backwards.push(sock_filter { code: code as u16, jt, jf, k });
        Goal::Code(self.backwards.len())
    }

    /// Returns whether `goal` is the instruction that control falls into from the next one written.
    fn is_last(&self, goal: Goal) -> bool {
        matches!(goal, Goal::Code(place) if self.distance(place) == 0)
    }

    /// Instructions to jump over from the next one written.
    fn distance(&self, target: Place) -> usize {
        self.backwards.len() - target
    }

    /// The distance, if a conditional jump can go that far.
    fn short(&self, target: Place) -> Option<u8> {
        u8::try_from(self.distance(target)).ok()
    }

    fn within_reach(&mut self, goal: Goal, held: Held) -> Place {
        match goal {
            Goal::Answer(value) => {
                let known = self.answers.iter().rev().find(|answer| answer.0 == value);
                match known {
                    Some(&(_, place)) if self.short(place).is_some() => place,
                    _ => {
                        self.write(BPF_RET | BPF_K, 0, 0, value);
                        self.answers.push((value, self.backwards.len()));
                        self.backwards.len()
                    }
                }
            }
            Goal::Code(place) => self.relayed(place),
            Goal::With { offset, place } if held == Some(offset) => self.relayed(place),
            Goal::With { offset, place } => {
                let start = self.load(offset, place);
                self.relayed(start)
            }
        }
    }

    /// The place of a load that goes on at `place`.
    fn load(&mut self, offset: u32, place: Place) -> Place {
        if let Some((_, start)) = self.loads.iter().find(|load| load.0 == place) {
            return *start;
        }
        let distance = self.distance(place);
        if distance > 0 {
            self.write(BPF_JMP | BPF_JA, 0, 0, distance as u32);
        }
        self.write(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
        self.loads.push((place, self.backwards.len()));
        self.backwards.len()
    }

    fn relayed(&mut self, target: Place) -> Place {
        if self.short(target).is_none() {
            self.write(BPF_JMP | BPF_JA, 0, 0, self.distance(target) as u32);
            return self.backwards.len();
        }
        target
    }
}
