//! The limits that a profile, the operator or a flag can set.

use super::origin::Sourced;
use nexus_model::units::{self, ParseUnitError};
use std::collections::BTreeMap;

/// Kind of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKind {
    /// Bytes of memory.
    Memory,
    /// Millicores of CPU time.
    Cpus,
    /// Processes and threads.
    Pids,
    /// Bytes that may be added to the workspace.
    Disk,
    /// Milliseconds until the timeout.
    Timeout,
    /// Bytes of output that are kept.
    MaxOutput,
}

/// Limits by kind; what is missing is not limited.
pub type LimitValues = BTreeMap<LimitKind, Sourced<u64>>;

impl LimitKind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Memory, Self::Cpus, Self::Pids, Self::Disk, Self::Timeout, Self::MaxOutput];

    /// Returns the key in a document.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Timeout => "timeout",
            Self::MaxOutput => "max_output",
        }
    }

    /// Returns the flag that sets it.
    #[must_use]
    pub fn flag(self) -> &'static str {
        match self {
            Self::Memory => "--memory",
            Self::Cpus => "--cpus",
            Self::Pids => "--pids",
            Self::Disk => "--disk",
            Self::Timeout => "--timeout",
            Self::MaxOutput => "--max-output",
        }
    }

    /// Returns the limit with this key.
    #[must_use]
    pub fn by_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.key() == key)
    }

    /// Reads its value as the flag does. Zero is refused, since no command could run with it.
    pub fn read(self, text: &str) -> Result<u64, String> {
        let reported = |error: ParseUnitError| error.to_string();
        let value = match self {
            Self::Memory | Self::Disk | Self::MaxOutput => units::parse_size(text).map_err(reported)?,
            Self::Cpus => units::parse_cpus(text).map_err(reported)?.into(),
            Self::Timeout => units::parse_duration_ms(text).map_err(reported)?,
            Self::Pids => text
                .parse::<u64>()
                .ok()
                .filter(|pids| *pids <= 1_000_000)
                .ok_or_else(|| format!("{text:?} is not a number of processes from 1 to 1000000"))?,
        };
        match (self, value) {
            (Self::MaxOutput, value) => Ok(value),
            (_, 0) => Err(format!("{} 0 leaves nothing to run with", self.key())),
            (_, value) => Ok(value),
        }
    }
}

/// Returns a limit for people, as a document would spell it.
#[must_use]
pub fn format_limit(kind: LimitKind, value: u64) -> String {
    match kind {
        LimitKind::Memory | LimitKind::Disk | LimitKind::MaxOutput => {
            let unit = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
            match unit.into_iter().find(|(size, _)| value != 0 && value.is_multiple_of(*size)) {
                Some((size, letter)) => format!("{}{letter}", value / size),
                None => value.to_string(),
            }
        }
        LimitKind::Cpus if value.is_multiple_of(1000) => (value / 1000).to_string(),
        LimitKind::Cpus => {
            let fraction = format!("{:03}", value % 1000);
            format!("{}.{}", value / 1000, fraction.trim_end_matches('0'))
        }
        LimitKind::Pids => value.to_string(),
        LimitKind::Timeout => {
            let unit = [(3_600_000, "h"), (60_000, "m"), (1000, "s")];
            match unit.into_iter().find(|(size, _)| value.is_multiple_of(*size)) {
                Some((size, letter)) => format!("{}{letter}", value / size),
                None => format!("{value}ms"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_printed_as_it_is_read() {
        for (kind, text) in [
            (LimitKind::Memory, "2G"),
            (LimitKind::Memory, "1500M"),
            (LimitKind::Disk, "1000"),
            (LimitKind::Cpus, "1.5"),
            (LimitKind::Cpus, "2"),
            (LimitKind::Cpus, "0.05"),
            (LimitKind::Pids, "512"),
            (LimitKind::Timeout, "10m"),
            (LimitKind::Timeout, "250ms"),
            (LimitKind::MaxOutput, "0"),
        ] {
            assert_eq!(format_limit(kind, kind.read(text).unwrap()), text, "{kind:?}");
        }
        for (kind, bad) in
            [(LimitKind::Memory, "0"), (LimitKind::Pids, "0"), (LimitKind::Pids, "1e9"), (LimitKind::Cpus, "x")]
        {
            assert!(kind.read(bad).is_err(), "{kind:?} {bad}");
        }
    }
}
