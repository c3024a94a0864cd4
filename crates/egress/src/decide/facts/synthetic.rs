//! Maps names to addresses that stand for them.
//!
//! The DNS stub resolves nothing: it hands out an address per name, and the transparent listener reads the name back
//! from it. So a program that knows no proxy still connects *by name*, and the name is what the policy decides about;
//! the real look-up happens after the decision.
//!
//! The ranges are [`SYNTHETIC_V4`] (benchmarking, RFC 2544: never routed) and [`SYNTHETIC_V6`] (unique local). They are
//! not reachable as themselves from a sandbox with redirected TCP.
//!
//! The map is bounded and belongs to one sandbox. The name that was unused for longest is forgotten when there are too
//! many, and no name by time: some programs look up a name once in their life. An address is given to another name only
//! after the whole range was used up, so that a stale address has no name rather than another one.

use nexus_model::network::{SYNTHETIC_V4, SYNTHETIC_V6};
use nexus_policy::net::Name;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Number of addresses in the IPv4 range; the first and last are left out.
const RANGE: u32 = 1 << 17;
/// Maximum number of names that are kept at one time.
const MAX: usize = 16 * 1024;

#[derive(Debug)]
struct Slot {
    name: Name,
    /// Key of the name in the order of use.
    turn: u64,
}

/// Map between names and synthetic addresses.
#[derive(Debug, Default)]
pub struct Synthetic {
    by_name: HashMap<Name, u32>,
    by_number: HashMap<u32, Slot>,
    /// Numbers in the order of their last use: the first is the one to forget.
    by_use: BTreeMap<u64, u32>,
    turns: u64,
    last: u32,
}

/// Meaning of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Address outside of the ranges.
    NotOurs,
    /// Address of this name.
    Name(Name),
    /// Address in the ranges, but of no name (any more).
    Forgotten,
}

impl Synthetic {
    /// Returns the addresses of a name, the same until it is forgotten.
    pub fn addresses(&mut self, name: &Name) -> (Ipv4Addr, Ipv6Addr) {
        if let Some(number) = self.by_name.get(name).copied() {
            self.touch(number);
            return of_number(number);
        }
        if self.by_name.len() >= MAX {
            self.forget_oldest();
        }
        let mut number = self.last;
        loop {
            number = if number + 1 >= RANGE - 1 { 1 } else { number + 1 };
            // The loop ends: there are more numbers than kept names.
            if !self.by_number.contains_key(&number) {
                break;
            }
        }
        self.last = number;
        self.turns += 1;
        self.by_name.insert(name.clone(), number);
        self.by_number.insert(number, Slot { name: name.clone(), turn: self.turns });
        self.by_use.insert(self.turns, number);
        of_number(number)
    }

    /// Returns the meaning of an address, and counts as a use of its name.
    pub fn name_of(&mut self, address: IpAddr) -> Found {
        let Some(number) = to_number(address) else { return Found::NotOurs };
        match self.by_number.get(&number) {
            Some(slot) => {
                let name = slot.name.clone();
                self.touch(number);
                Found::Name(name)
            }
            None => Found::Forgotten,
        }
    }

    /// Returns the number of kept names.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Reports whether no name is kept.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    fn touch(&mut self, number: u32) {
        if let Some(slot) = self.by_number.get_mut(&number) {
            self.by_use.remove(&slot.turn);
            self.turns += 1;
            slot.turn = self.turns;
            self.by_use.insert(self.turns, number);
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, number)) = self.by_use.pop_first()
            && let Some(slot) = self.by_number.remove(&number)
        {
            self.by_name.remove(&slot.name);
        }
    }
}

fn of_number(number: u32) -> (Ipv4Addr, Ipv6Addr) {
    let v4 = Ipv4Addr::from(u32::from(SYNTHETIC_V4.0) | number);
    let v6 = Ipv6Addr::from(u128::from(SYNTHETIC_V6.0) | u128::from(number));
    (v4, v6)
}

fn to_number(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => {
            let number = u32::from(address) ^ u32::from(SYNTHETIC_V4.0);
            (number < RANGE).then_some(number)
        }
        IpAddr::V6(address) => {
            let number = u128::from(address) ^ u128::from(SYNTHETIC_V6.0);
            u32::try_from(number).ok()
        }
    }
}
