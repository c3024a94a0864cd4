//! The program that connects, compared with rules for one program.

use crate::net::rules::rule::{Program, Rule};
use crate::net::rules::target::Port;

/// Program that wants to connect, as far as rules for one program need it.
#[derive(Debug, Clone, Copy)]
pub(in crate::net) enum Who<'a> {
    /// This program; `None` is not known.
    Program(Option<&'a Program>),
    /// Any program that some rule is for.
    AnyProgram,
}

impl Who<'_> {
    /// Reports whether `rule` allows this program. A rule for one program allows only the program that is known to be
    /// it.
    pub(super) fn is_allowed_by(self, rule: &Rule) -> bool {
        match (self, &rule.program) {
            (_, None) | (Self::AnyProgram, Some(_)) => true,
            (Self::Program(known), Some(only)) => known == Some(only),
        }
    }

    /// Returns the suffix that limits a flag to this program; `None` where the program is not known, or cannot stand in
    /// a flag.
    pub(super) fn suffix(self) -> Option<String> {
        match self {
            Self::Program(known) => known.and_then(Program::suffix),
            Self::AnyProgram => None,
        }
    }

    /// Reports whether `rule` denies this program. A rule for one program denies all that are not known to be another
    /// one.
    pub(super) fn is_denied_by(self, rule: &Rule) -> bool {
        match (self, &rule.program) {
            (_, None) => true,
            (Self::AnyProgram, Some(_)) => false,
            (Self::Program(known), Some(only)) => known.is_none_or(|known| known == only),
        }
    }
}

/// Returns the rules that allow the program on the port.
pub(super) fn allowing<'a>(rules: impl Iterator<Item = &'a Rule>, port: Port, who: Who<'_>) -> Vec<&'a Rule> {
    rules.filter(|rule| rule.ports.contains(port) && who.is_allowed_by(rule)).collect()
}
