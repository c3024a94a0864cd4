//! The parts of one document that allow at most something, as they answer questions.

use super::form::{Entry, FsPart, NetPart};
use super::path_pattern::PathPattern;
use super::question::Destination;
use crate::net::{AddressRule, AnyRule, Methods, MissingSni, PolicyBound, Ports, Rule};
use crate::profile::{NetMode, Place};
use nexus_model::capability::NetMode as Mode;

/// Place of the part that forbids something, and the reason.
pub(super) type Refusal = (Place, String);

/// The network that a document allows at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetCeiling {
    pub(super) mode: Option<(NetMode, Place)>,
    pub(super) allow: Vec<Entry<Rule>>,
    pub(super) deny: Vec<Entry<AnyRule>>,
    pub(super) methods: Option<(Methods, Place)>,
}

impl NetCeiling {
    pub(super) fn of(part: &NetPart) -> Self {
        Self {
            mode: part.mode,
            allow: part.allow.clone().unwrap_or_default(),
            deny: part.deny.clone(),
            methods: part.methods,
        }
    }

    /// Reports whether a network of this mode is within the ceiling.
    pub(super) fn mode(&self, asked: NetMode) -> Result<(), Refusal> {
        match self.mode {
            Some((max, place)) if asked > max => Err((place, format!("the most open network is {}", max.word()))),
            Some(_) | None => Ok(()),
        }
    }

    /// Reports whether these methods are within the ceiling.
    pub(super) fn methods(&self, asked: Methods) -> Result<(), Refusal> {
        match self.methods {
            Some((max, place)) if asked < max => Err((place, format!("the HTTP methods are {}", max.word()))),
            Some(_) | None => Ok(()),
        }
    }

    /// Reports whether all of a destination is within the ceiling. A destination of which a part is denied is refused as
    /// a whole: what is granted in part would be a silent limit.
    pub(super) fn reach(&self, asked: &Destination) -> Result<(), Refusal> {
        self.denies_none(asked)?;
        match (self.mode, asked) {
            (Some((NetMode::None, place)), _) => Err((place, "there is no network".to_owned())),
            (Some((NetMode::Allowlist, place)), Destination::Address(..)) => {
                Err((place, "the list holds names and no addresses".to_owned()))
            }
            (Some((NetMode::Allowlist, place)), Destination::Names(rule)) => {
                let wider = self.allow.iter().filter(|entry| admits(&entry.rule, rule));
                let ports = wider.map(|entry| entry.rule.ports.clone()).reduce(|all, ports| all.union(&ports));
                match ports {
                    Some(ports) if ports.contains_all(&rule.ports) => Ok(()),
                    Some(ports) => Err((place, format!("it is listed with the ports {ports}"))),
                    None => Err((place, "it is not listed".to_owned())),
                }
            }
            (Some((NetMode::Unrestricted, _)) | None, _) => Ok(()),
        }
    }

    /// Reports whether no rule denies some of a destination.
    pub(super) fn denies_none(&self, asked: &Destination) -> Result<(), Refusal> {
        match self.deny.iter().find(|entry| denies(&entry.rule, asked)) {
            Some(entry) => Err((entry.place, format!("{} is denied", entry.text))),
            None => Ok(()),
        }
    }

    /// Returns the ceiling for the policy that decides about connections.
    pub(super) fn narrower(&self) -> PolicyBound {
        let (mut deny, mut deny_addresses): (Vec<Rule>, Vec<AddressRule>) = (Vec::new(), Vec::new());
        for entry in &self.deny {
            match &entry.rule {
                AnyRule::Name(rule) => deny.push(rule.clone()),
                AnyRule::Address(rule) => deny_addresses.push(rule.clone()),
            }
        }
        let mode = self.mode.map(|(mode, _)| match mode {
            NetMode::None => Mode::None,
            NetMode::Allowlist => Mode::Allowlist,
            NetMode::Unrestricted => Mode::Unrestricted,
        });
        PolicyBound {
            mode,
            allow: self.allow.iter().map(|entry| entry.rule.clone()).collect(),
            deny,
            deny_addresses,
            refuse_given_private: mode.is_some_and(|mode| mode != Mode::Unrestricted),
            list_missing_sni: if mode == Some(Mode::Allowlist) { MissingSni::Refuse } else { MissingSni::Allow },
            methods: self.methods.map_or(Methods::Any, |(methods, _)| methods),
            ..PolicyBound::default()
        }
    }
}

/// Reports whether a rule lists the names of another one, apart from ports.
pub(super) fn admits(rule: &Rule, asked: &Rule) -> bool {
    rule.pattern.covers(&asked.pattern) && (rule.program.is_none() || rule.program == asked.program)
}

/// Reports whether a rule lists all of a destination.
pub(super) fn lists(rule: &Rule, asked: &Destination) -> bool {
    match asked {
        Destination::Names(asked) => admits(rule, asked) && rule.ports.contains_all(&asked.ports),
        Destination::Address(..) => false,
    }
}

/// Reports whether a rule denies some of a destination.
pub(super) fn denies(rule: &AnyRule, asked: &Destination) -> bool {
    match (rule, asked) {
        (AnyRule::Name(rule), Destination::Names(asked)) => {
            rule.pattern.overlaps(&asked.pattern) && rule.ports.overlaps(&asked.ports)
        }
        (AnyRule::Address(rule), Destination::Address(address, port)) => {
            rule.net.contains(&address.to_canonical()) && rule.ports.overlaps(&Ports::one(*port))
        }
        (AnyRule::Name(_), Destination::Address(..)) | (AnyRule::Address(_), Destination::Names(_)) => false,
    }
}

/// The paths that a document allows at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FsCeiling {
    read: Option<Vec<Entry<PathPattern>>>,
    write: Option<Vec<Entry<PathPattern>>>,
    deny: Vec<Entry<PathPattern>>,
    top: Place,
}

impl FsCeiling {
    pub(super) fn of(part: &FsPart) -> Self {
        let lists = [part.read.as_ref(), part.write.as_ref(), Some(&part.deny)];
        let top = lists.into_iter().flatten().flatten().map(|entry| entry.place).min().unwrap_or_default();
        Self { read: part.read.clone(), write: part.write.clone(), deny: part.deny.clone(), top }
    }

    pub(super) fn read(&self, asked: &PathPattern) -> Result<(), Refusal> {
        self.not_denied(asked)?;
        self.read_apart_from_denied(asked)
    }

    pub(super) fn write(&self, asked: &PathPattern) -> Result<(), Refusal> {
        self.not_denied(asked)?;
        self.write_apart_from_denied(asked)
    }

    pub(super) fn read_apart_from_denied(&self, asked: &PathPattern) -> Result<(), Refusal> {
        self.in_list(self.read.as_deref(), asked, "read")
    }

    pub(super) fn write_apart_from_denied(&self, asked: &PathPattern) -> Result<(), Refusal> {
        self.in_list(self.write.as_deref(), asked, "written")
    }

    pub(super) fn denied(&self) -> impl Iterator<Item = &Entry<PathPattern>> {
        self.deny.iter()
    }

    fn not_denied(&self, asked: &PathPattern) -> Result<(), Refusal> {
        match self.deny.iter().find(|entry| entry.rule.overlaps(asked)) {
            Some(entry) => Err((entry.place, format!("{} is denied", entry.text))),
            None => Ok(()),
        }
    }

    fn in_list(&self, list: Option<&[Entry<PathPattern>]>, asked: &PathPattern, what: &str) -> Result<(), Refusal> {
        match list {
            Some(list) if !list.iter().any(|entry| entry.rule.covers(asked)) => {
                let place = list.first().map_or(self.top, |entry| entry.place);
                Err((place, format!("it is not among the paths that may be {what}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Hands each value with its place to `row`.
    pub(super) fn rows(&self, row: &mut dyn FnMut(String, Place)) {
        for (what, list) in [("read", &self.read), ("write", &self.write)] {
            match list {
                Some(list) if list.is_empty() => row(format!("{what} nothing"), self.top),
                Some(list) => list.iter().for_each(|entry| row(format!("{what} only {}", entry.text), entry.place)),
                None => {}
            }
        }
        self.deny.iter().for_each(|entry| row(format!("never read or write {}", entry.text), entry.place));
    }
}
