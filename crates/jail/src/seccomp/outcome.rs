//! The outcome of a call, and shorter checks with the same meaning.
//!
//! An OCI rule cannot say "any value but these" about the low 32 bits of an
//! argument. A profile that allows every ioctl but two therefore lists one
//! entry for each bit in which a number can differ from them; turned round,
//! that is two comparisons. It pays because the kernel translates the filter at
//! every start of a sandbox, at some 0.2 microseconds for each instruction.

use super::profile::{Action, Condition, Test};

/// Outcome of a call: the first check whose conditions all hold answers, otherwise `otherwise` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub checks: Vec<(Vec<Condition>, Action)>,
    pub otherwise: Action,
}

/// A set of 32-bit words: those whose bits under `mask` equal `value`.
#[derive(Debug, Clone, Copy)]
struct Words {
    mask: u32,
    value: u32,
}

impl Words {
    /// Returns the rest of these words without those of `other`, in disjoint sets.
    fn without(self, other: Self) -> Vec<Self> {
        if (self.value ^ other.value) & self.mask & other.mask != 0 {
            return vec![self];
        }
        let mut left = Vec::new();
        let Self { mut mask, mut value } = self;
        for bit in (0..32).map(|shift| 1_u32 << shift).filter(|bit| other.mask & !self.mask & bit != 0) {
            mask |= bit;
            left.push(Self { mask, value: value | (!other.value & bit) });
            value |= other.value & bit;
        }
        left
    }
}

/// Turns the outcome round when all its checks are about one word and give one
/// answer, and there are fewer words that miss them all.
pub(super) fn simplified(outcome: Outcome) -> Outcome {
    let Some((argument, action)) = outcome.checks.first().and_then(|(conditions, action)| {
        let first = conditions.first()?;
        Some((first.argument, *action))
    }) else {
        return outcome;
    };
    let mut left = vec![Words { mask: 0, value: 0 }];
    for (conditions, other) in &outcome.checks {
        let [Condition { argument: index, test: Test::MaskedEq { mask, value } }] = conditions[..] else {
            return outcome;
        };
        let (Ok(mask), Ok(value)) = (u32::try_from(mask), u32::try_from(value)) else {
            return outcome;
        };
        if index != argument || *other != action {
            return outcome;
        }
        left = left.into_iter().flat_map(|words| words.without(Words { mask, value })).collect();
        // The sets can double at each step; a profile must not cost the earth.
        if left.len() > outcome.checks.len() {
            return outcome;
        }
    }
    if left.len() == outcome.checks.len() {
        return outcome;
    }
    let turned = left.into_iter().map(|Words { mask, value }| {
        let test = Test::MaskedEq { mask: mask.into(), value: value.into() };
        (vec![Condition { argument, test }], outcome.otherwise)
    });
    Outcome { checks: turned.collect(), otherwise: action }
}
