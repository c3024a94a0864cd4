//! The effect of a workspace's `nexus.yaml` that is not trusted yet: it only takes permissions away.
//!
//! The file comes with the code, so the author of the code wrote it, and a command that runs inside may have changed it
//! in an earlier run. It may hide more, protect more names, lower limits, choose a stricter treatment of changes, close
//! the network or leave it to reading, and drop variables. Everything else is a [`Widening`]: the run is refused and
//! the line is named, rather than passed over, so that the user does not rely on a permission that does not hold.
//!
//! A flag is the user's last word for one run: where a limit or mode of the file is wider than a *flag*, the smaller
//! one counts and nothing is refused.

use super::chain::Loaded;
use super::document::{At, ChangesMode, NetMode};
use super::grants::{Grants, NetGrants, OnlyThese};
use super::origin::{Place, Sourced};
use crate::net::{Port, Ports, Rule, Source, parse_allow};

/// Permission that an untrusted file may not add on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widening {
    /// The place in the file.
    pub place: Place,
    /// The permission that it would add, for people.
    pub what: String,
}

/// The grants after narrowing, or everything that would have widened them, in the order of the text.
pub type Narrowed = Result<Grants, Vec<Widening>>;

/// Applies an untrusted document to what the user's own profiles and flags allow.
pub fn narrow(base: &Grants, file: &Loaded) -> Narrowed {
    let mut walk = Walk { base, file, out: base.clone(), wider: Vec::new() };
    walk.run();
    walk.wider.sort_by_key(|widening| widening.place);
    if walk.wider.is_empty() { Ok(walk.out) } else { Err(walk.wider) }
}

struct Walk<'a> {
    base: &'a Grants,
    file: &'a Loaded,
    out: Grants,
    wider: Vec<Widening>,
}

impl Walk<'_> {
    fn refuse(&mut self, place: Place, what: String) {
        self.wider.push(Widening { place, what });
    }

    /// Refuses what the base does not have already.
    fn only_known<T: PartialEq>(&mut self, asked: &[At<T>], known: &[Sourced<T>], what: impl Fn(&T) -> String) {
        for (value, place) in asked {
            if !known.iter().any(|entry| entry.value == *value) {
                self.refuse(*place, what(value));
            }
        }
    }

    fn run(&mut self) {
        let (base, document) = (self.base, &self.file.document);
        for (name, place) in &document.extends {
            if !base.profiles.iter().any(|profile| profile.name == *name) {
                self.refuse(*place, format!("use the profile {name}"));
            }
        }
        self.only_known(&document.toolchains, &base.toolchains, |tool| format!("show the toolchain {}", tool.word()));
        self.only_known(&document.fs.ro, &base.ro, |rule| format!("show {}", rule.src));
        self.only_known(&document.fs.rw, &base.rw, |rule| format!("write {}", rule.src));
        self.only_known(&document.etc, &base.etc, |name| format!("show /etc/{name}"));
        self.only_known(&document.path, &base.path, |directory| format!("run programs from {directory}"));
        for (pattern, place) in &document.fs.hide {
            if !base.hide.iter().any(|known| known.value == *pattern) {
                self.out.hide.push(Sourced::new(pattern.clone(), self.file.origin(*place)));
            }
        }
        for (name, place) in &document.protect {
            self.out.add_protected([Sourced::new(name.clone(), self.file.origin(*place))]);
        }
        self.environment();
        self.network();
        self.limits();
        self.changes();
        self.debug();
        self.auto();
        self.cache();
    }

    fn environment(&mut self) {
        let (base, env) = (self.base, &self.file.document.env);
        for (name, place) in &env.pass {
            if !base.env_pass.contains_key(name) {
                self.refuse(*place, format!("pass on the variable {name}"));
            }
        }
        for ((name, place), (value, _)) in &env.set {
            if base.env_set.get(name).is_none_or(|known| known.value != *value) {
                self.refuse(*place, format!("set the variable {name} to {}", shown(value)));
            }
        }
        for (name, place) in &env.drop {
            self.out.drop_variable(name, self.file.origin(*place));
        }
    }

    fn network(&mut self) {
        let (base, part) = (&self.base.net, &self.file.document.net);
        let has = base.effective_mode();
        // A flag that closes the network has the last word; the lists of the file open nothing then.
        let closed = has == NetMode::None && base.mode.as_ref().is_some_and(|mode| mode.from.is_flag());
        if has != NetMode::Unrestricted && !closed {
            let open = if has == NetMode::Allowlist { base } else { &NetGrants::default() };
            for (rule, place) in &part.allow {
                if !is_within(rule, &open.allow) {
                    self.refuse(*place, format!("reach {rule}"));
                }
            }
        }
        // In every mode: for a group the user's own package clients are asked, and their settings are shown inside.
        let groups = if has == NetMode::None { &[][..] } else { &base.groups };
        if !closed {
            self.only_known(&part.groups, groups, |group| format!("reach the group {group}"));
        }
        if let Some((methods, place)) = part.methods {
            if methods >= base.effective_methods() {
                self.out.net.restrict_methods(Sourced::new(methods, self.file.origin(place)));
            } else if !base.methods.as_ref().is_some_and(|methods| methods.from.is_flag()) {
                self.refuse(place, "use every HTTP method".to_owned());
            }
        }
        for (rule, place) in &part.deny {
            if !base.deny.iter().any(|known| known.value == *rule) {
                self.out.net.deny.push(Sourced::new(rule.clone(), self.file.origin(*place)));
            }
        }
        let lists = part.allow.first().or(part.groups.first()).map(|(_, place)| (NetMode::Allowlist, *place));
        let Some((wanted, place)) = part.mode.or(lists) else { return };
        if wanted == NetMode::None {
            self.out.net.host_ports.clear();
        }
        if wanted > has {
            let by_flag = base.mode.as_ref().is_some_and(|mode| mode.from.is_flag());
            if !by_flag {
                self.refuse(place, format!("open the network ({})", wanted.word()));
            }
            return;
        }
        if wanted == NetMode::None && has != NetMode::None {
            self.out.net.mode = Some(Sourced::new(wanted, self.file.origin(place)));
        }
        if wanted == NetMode::Allowlist && (lists.is_some() || has == NetMode::Unrestricted) {
            let sourced = |asked: &[At<String>]| -> Vec<Sourced<String>> {
                asked.iter().map(|(rule, place)| Sourced::new(rule.clone(), self.file.origin(*place))).collect()
            };
            // On top of the rules that are there, which also say what is denied and where TLS is required.
            let (allow, groups) = (sourced(&part.allow), sourced(&part.groups));
            self.out.net.only = Some(OnlyThese { from: self.file.origin(place), allow, groups });
            self.out.net.host_ports.clear();
        }
    }

    fn limits(&mut self) {
        for (kind, (value, place)) in &self.file.document.limits {
            match self.base.limits.get(kind) {
                Some(known) if *value > known.value && !known.from.is_flag() => {
                    self.refuse(*place, format!("raise the limit {} to {value}", kind.key()));
                }
                Some(known) if *value >= known.value => {}
                Some(_) | None => {
                    self.out.limits.insert(*kind, Sourced::new(*value, self.file.origin(*place)));
                }
            }
        }
    }

    fn debug(&mut self) {
        match self.file.document.debug {
            Some((true, place)) if !self.base.allows_debug() => {
                let by_flag = self.base.debug.as_ref().is_some_and(|debug| debug.from.is_flag());
                if !by_flag {
                    self.refuse(place, "let processes trace each other".to_owned());
                }
            }
            Some((false, place)) => self.out.debug = Some(Sourced::new(false, self.file.origin(place))),
            Some((true, _)) | None => {}
        }
    }

    fn auto(&mut self) {
        match self.file.document.auto {
            Some((true, place)) if !self.base.shows_auto() => {
                self.refuse(place, "show the toolchains that PATH leads to".to_owned());
            }
            Some((false, place)) => self.out.auto = Some(Sourced::new(false, self.file.origin(place))),
            Some((true, _)) | None => {}
        }
    }

    fn cache(&mut self) {
        match self.file.document.cache {
            Some((true, place)) if !self.base.keeps_caches() => {
                self.refuse(place, "keep the caches of build tools for later runs".to_owned());
            }
            Some((false, place)) => self.out.cache = Some(Sourced::new(false, self.file.origin(place))),
            Some((true, _)) | None => {}
        }
    }

    fn changes(&mut self) {
        let Some((wanted, place)) = self.file.document.changes else { return };
        let has = self.base.changes.as_ref();
        let mode = has.map_or(ChangesMode::Ask, |mode| mode.value);
        if wanted < mode {
            if !has.is_some_and(|mode| mode.from.is_flag()) {
                self.refuse(place, format!("let changes go with less care ({})", wanted.word()));
            }
        } else if wanted > mode || has.is_none() {
            self.out.changes = Some(Sourced::new(wanted, self.file.origin(place)));
        }
    }
}

/// Returns a value for a message: quoted, escaped and cut.
fn shown(value: &str) -> String {
    const MAX_CHARS: usize = 100;
    let cut = if value.chars().nth(MAX_CHARS).is_some() { "…" } else { "" };
    format!("{:?}{cut}", value.chars().take(MAX_CHARS).collect::<String>())
}

/// Reports whether all that a rule allows is allowed by these: the same names or names below, on ports that together
/// are as many, for this program or for all. Texts may differ: `a.example` is `a.example:443`.
fn is_within(rule: &str, known: &[Sourced<String>]) -> bool {
    if known.iter().any(|known| known.value == *rule) {
        return true;
    }
    let parse = |text: &str| parse_allow(text, Source::flag(text)).ok();
    let Some(asked) = parse(rule) else { return false };
    let wider = known.iter().filter_map(|known| parse(&known.value)).filter(|known| {
        let program = known.program.is_none() || known.program == asked.program;
        let tls = demands_tls(&asked) || known.tls == asked.tls || known.tls == Some(false);
        program && tls && known.pattern.covers(&asked.pattern)
    });
    wider
        .map(|known| known.ports)
        .reduce(|all, ports| all.union(&ports))
        .is_some_and(|all| all.contains_all(&asked.ports))
}

/// Reports whether a rule requires TLS on each of its ports.
fn demands_tls(rule: &Rule) -> bool {
    rule.tls.unwrap_or(rule.ports == Ports::one(Port::HTTPS))
}

#[cfg(test)]
#[path = "narrow_tests.rs"]
mod tests;
