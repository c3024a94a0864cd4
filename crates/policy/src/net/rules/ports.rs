//! Sets of ports as rules write them: `443`, `80,443`, `8000-8099`, `*`.

use crate::net::rules::target::{Port, TargetError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A set of ports, never empty; sorted ranges that neither touch nor overlap.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ports(Vec<(u16, u16)>);

/// Reason why a text cannot be read as a list of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortsError {
    /// A port in it.
    #[error(transparent)]
    Port(#[from] TargetError),
    /// The range runs from a higher to a lower port.
    #[error("the range {text:?} runs backwards")]
    Backwards {
        /// The range as written.
        text: String,
    },
    /// The list has more ranges than a person writes.
    #[error("{count} ranges of ports are too many (64 at most)")]
    TooMany {
        /// The number of ranges.
        count: usize,
    },
}

impl Ports {
    /// Returns the set of one port.
    pub fn one(port: Port) -> Self {
        Self(vec![(port.number(), port.number())])
    }

    /// Returns the set of every port.
    pub fn all() -> Self {
        Self(vec![(1, u16::MAX)])
    }

    /// Reads a comma-separated list of ports and ranges, or `*`.
    pub fn parse(text: &str) -> Result<Self, PortsError> {
        if text == "*" {
            return Ok(Self::all());
        }
        let count = text.split(',').count();
        if count > 64 {
            return Err(PortsError::TooMany { count });
        }
        let ranges = text.split(',').map(|item| match item.split_once('-') {
            None => Port::parse(item).map(|port| (port.number(), port.number())).map_err(PortsError::from),
            Some((low, high)) => {
                let (low, high) = (Port::parse(low)?.number(), Port::parse(high)?.number());
                if low <= high { Ok((low, high)) } else { Err(PortsError::Backwards { text: item.into() }) }
            }
        });
        Ok(Self(join(ranges.collect::<Result<_, _>>()?)))
    }

    /// Reports whether `port` is in the set.
    pub fn contains(&self, port: Port) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&port.number()))
    }

    /// Reports whether all ports of `other` are in the set.
    pub fn contains_all(&self, other: &Self) -> bool {
        other.0.iter().all(|(low, high)| self.0.iter().any(|(from, to)| from <= low && high <= to))
    }

    /// Reports whether some port is in both sets.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().any(|(low, high)| other.0.iter().any(|(from, to)| low <= to && from <= high))
    }

    /// Returns the ports of both sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(join(self.0.iter().chain(&other.0).copied().collect()))
    }

    /// Returns the ports at which membership changes: the first of each range and the one after it.
    pub(in crate::net) fn edges(&self) -> impl Iterator<Item = Port> {
        self.0.iter().flat_map(|(low, high)| [Some(*low), high.checked_add(1)]).flatten().flat_map(Port::new)
    }

    /// Reports whether the set has every port.
    pub fn is_all(&self) -> bool {
        self.0 == [(1, u16::MAX)]
    }
}

fn join(mut ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u16, u16)> = Vec::new();
    for (low, high) in ranges {
        match joined.last_mut() {
            Some((_, end)) if low <= end.saturating_add(1) => *end = (*end).max(high),
            Some(_) | None => joined.push((low, high)),
        }
    }
    joined
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("*");
        }
        for (place, (low, high)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            if low == high { write!(f, "{comma}{low}")? } else { write!(f, "{comma}{low}-{high}")? }
        }
        Ok(())
    }
}

impl Serialize for Ports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
