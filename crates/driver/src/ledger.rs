//! Requests of the host to a guest and the answers that the guest may give; pure, so that every order can be tried.
//!
//! ```text
//!  ask ─▶ Asked ──terminal──▶ Shown ──started──▶ Running ──ended──▶ (gone)
//!           ├── without a terminal: started ───────┘
//!           └── not_started, also of one that is shown ─▶ (gone)
//!  ask_forward ─▶ waiting ──forwarded──▶ (gone)
//! ```
//! Each answer is given once. Its methods return `None` for one that does not belong here.

use std::collections::{BTreeMap, BTreeSet};

/// Number of the plan's own command, the main command. Execs have other ones.
pub const MAIN_COMMAND: u32 = 1;

/// Maximum number of unanswered requests of each kind: a host that asks without listening gets an error before the
/// guest stops reading and both wait for ever.
const MAX_UNANSWERED: usize = 32;

/// A request that may not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Each number is used once, forwards once at a time.
    #[error("the number {number} is in use")]
    Used {
        /// Number of the request.
        number: u32,
    },
    /// The guest has to answer first.
    #[error("{MAX_UNANSWERED} requests wait for an answer of the sandbox")]
    Busy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// With a terminal or without.
    Asked {
        terminal: bool,
    },
    Shown,
    Running,
}

/// The commands and forwards that are under way.
#[derive(Debug)]
pub struct Ledger {
    up: bool,
    layer: bool,
    listeners: bool,
    names: bool,
    commands: BTreeMap<u32, Phase>,
    highest: u32,
    forwards: BTreeSet<u32>,
}

impl Ledger {
    /// The main command is asked for; and, before the sandbox stands, what the plan makes it hand out.
    pub fn new(terminal: bool, layer: bool, listeners: bool) -> Self {
        Self {
            up: false,
            layer,
            listeners,
            names: !listeners,
            commands: BTreeMap::from([(MAIN_COMMAND, Phase::Asked { terminal })]),
            highest: MAIN_COMMAND,
            forwards: BTreeSet::new(),
        }
    }

    /// Returns whether the sandbox stands.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// It stands; it says so once, and after what it owes.
    pub fn up(&mut self) -> Option<()> {
        let first = !std::mem::replace(&mut self.up, true);
        (first && !self.layer && !self.listeners).then_some(())
    }

    /// Its layer in memory came: once, and before it stands.
    pub fn layer(&mut self) -> Option<()> {
        (!self.up && std::mem::take(&mut self.layer)).then_some(())
    }

    /// The listeners of its egress came: once, and before it stands.
    pub fn listeners(&mut self) -> Option<()> {
        (!self.up && std::mem::take(&mut self.listeners)).then_some(())
    }

    /// Takes the socket for names: at most once, before the sandbox stands, and only without an egress.
    pub fn names(&mut self) -> Option<()> {
        (!self.up && std::mem::take(&mut self.names)).then_some(())
    }

    /// Numbers must rise: so none is used twice without remembering all of them.
    pub fn ask(&mut self, exec: u32, terminal: bool) -> Result<(), Refused> {
        if exec <= self.highest {
            return Err(Refused::Used { number: exec });
        }
        let unanswered = self.commands.values().filter(|phase| **phase != Phase::Running).count();
        if unanswered >= MAX_UNANSWERED {
            return Err(Refused::Busy);
        }
        self.highest = exec;
        self.commands.insert(exec, Phase::Asked { terminal });
        Ok(())
    }

    /// Forgets a request that was never sent.
    pub fn withdraw(&mut self, exec: u32) {
        self.commands.remove(&exec);
    }

    /// A connection is asked for.
    pub fn ask_forward(&mut self, forward: u32) -> Result<(), Refused> {
        if self.forwards.len() >= MAX_UNANSWERED {
            return Err(Refused::Busy);
        }
        if self.forwards.insert(forward) { Ok(()) } else { Err(Refused::Used { number: forward }) }
    }

    fn phase(&mut self, exec: u32) -> Option<&mut Phase> {
        if self.up { self.commands.get_mut(&exec) } else { None }
    }

    /// A terminal came, before the command is said to run.
    pub fn terminal(&mut self, exec: u32) -> Option<()> {
        match self.phase(exec)? {
            phase @ Phase::Asked { terminal: true } => {
                *phase = Phase::Shown;
                Some(())
            }
            Phase::Asked { terminal: false } | Phase::Shown | Phase::Running => None,
        }
    }

    /// It runs, and has what it asked for.
    pub fn started(&mut self, exec: u32) -> Option<()> {
        match self.phase(exec)? {
            phase @ (Phase::Asked { terminal: false } | Phase::Shown) => {
                *phase = Phase::Running;
                Some(())
            }
            Phase::Asked { terminal: true } | Phase::Running => None,
        }
    }

    /// It was not started.
    pub fn not_started(&mut self, exec: u32) -> Option<()> {
        match self.phase(exec)? {
            Phase::Asked { .. } | Phase::Shown => self.commands.remove(&exec).map(drop),
            Phase::Running => None,
        }
    }

    /// Takes the end of a command.
    pub fn ended(&mut self, exec: u32) -> Option<()> {
        match self.phase(exec)? {
            Phase::Running => self.commands.remove(&exec).map(drop),
            Phase::Asked { .. } | Phase::Shown => None,
        }
    }

    /// A forward was answered.
    pub fn forwarded(&mut self, forward: u32) -> Option<()> {
        (self.up && self.forwards.remove(&forward)).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(terminal: bool) -> Ledger {
        let mut ledger = Ledger::new(terminal, false, false);
        ledger.up().unwrap();
        ledger
    }

    #[test]
    fn nothing_is_said_of_a_command_before_the_sandbox_stands() {
        let mut ledger = Ledger::new(false, false, false);
        assert_eq!(ledger.started(MAIN_COMMAND), None);
        assert_eq!(ledger.not_started(MAIN_COMMAND), None);
        assert_eq!((ledger.up(), ledger.up()), (Some(()), None));
        assert_eq!(ledger.started(MAIN_COMMAND), Some(()));
    }

    #[test]
    fn what_a_plan_makes_it_hand_out_comes_once_and_before_it_stands() {
        let mut ledger = Ledger::new(false, true, true);
        assert_eq!((ledger.layer(), ledger.layer()), (Some(()), None));
        assert_eq!((ledger.listeners(), ledger.listeners()), (Some(()), None));
        assert_eq!(ledger.up(), Some(()));
        let mut ledger = Ledger::new(false, false, false);
        assert_eq!((ledger.layer(), ledger.listeners()), (None, None), "nobody asked for them");
        let mut ledger = Ledger::new(false, false, true);
        assert_eq!(ledger.up(), None, "a network whose listeners nobody has is none");
        assert_eq!(ledger.listeners(), None, "too late");
        assert_eq!(Ledger::new(false, false, true).names(), None, "the egress answers for names");
        let mut ledger = Ledger::new(false, false, false);
        assert_eq!((ledger.names(), ledger.names()), (Some(()), None));
        let mut ledger = Ledger::new(false, false, false);
        assert_eq!((ledger.up(), ledger.names()), (Some(()), None), "it may be missing, and comes before");
    }

    #[test]
    fn a_command_starts_once_and_ends_once() {
        let mut ledger = standing(false);
        assert_eq!(ledger.ended(MAIN_COMMAND), None, "before it runs");
        assert_eq!((ledger.started(MAIN_COMMAND), ledger.started(MAIN_COMMAND)), (Some(()), None));
        assert_eq!(ledger.not_started(MAIN_COMMAND), None, "it runs already");
        assert_eq!((ledger.ended(MAIN_COMMAND), ledger.ended(MAIN_COMMAND)), (Some(()), None));
        assert_eq!(ledger.started(7), None, "nobody asked for it");
    }

    #[test]
    fn a_terminal_comes_when_asked_for_and_before_the_start() {
        let mut without = standing(false);
        assert_eq!(without.terminal(MAIN_COMMAND), None);
        let mut with = standing(true);
        assert_eq!(with.started(MAIN_COMMAND), None, "its terminal is missing");
        assert_eq!((with.terminal(MAIN_COMMAND), with.terminal(MAIN_COMMAND)), (Some(()), None));
        assert_eq!(with.started(MAIN_COMMAND), Some(()));
        let mut failing = standing(true);
        failing.terminal(MAIN_COMMAND).unwrap();
        assert_eq!((failing.not_started(MAIN_COMMAND), failing.started(MAIN_COMMAND)), (Some(()), None));
    }

    #[test]
    fn a_number_is_never_used_twice() {
        let mut ledger = standing(false);
        assert_eq!(ledger.ask(MAIN_COMMAND, false), Err(Refused::Used { number: MAIN_COMMAND }));
        ledger.ask(5, false).unwrap();
        assert_eq!(ledger.not_started(5), Some(()));
        assert_eq!(ledger.ask(5, false), Err(Refused::Used { number: 5 }));
        ledger.ask_forward(5).unwrap();
        assert_eq!(ledger.ask_forward(5), Err(Refused::Used { number: 5 }));
        assert_eq!((ledger.forwarded(5), ledger.forwarded(5)), (Some(()), None));
        ledger.ask_forward(5).unwrap();
    }

    #[test]
    fn what_is_unanswered_is_bounded() {
        let mut ledger = standing(false);
        let asked = (2..1000).take_while(|exec| ledger.ask(*exec, false).is_ok()).count();
        assert_eq!(asked, MAX_UNANSWERED - 1, "the leader is one of them");
        assert_eq!(ledger.ask(1000, false), Err(Refused::Busy));
        ledger.started(2).unwrap();
        ledger.ask(1000, false).unwrap();
        let forwards = (0..1000).take_while(|forward| ledger.ask_forward(*forward).is_ok()).count();
        assert_eq!(forwards, MAX_UNANSWERED);
    }
}
