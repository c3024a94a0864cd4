//! Combination of documents. A later document adds to lists and replaces single values:
//!
//! | part | a later document |
//! |---|---|
//! | `toolchains`, `fs.ro`, `fs.rw`, `fs.hide`, `etc`, `env.pass` | adds |
//! | `net.allow`, `net.deny`, `net.groups`, `protect` | adds |
//! | `path` | goes in front of the earlier ones |
//! | `env.set` | replaces the value of the same name |
//! | `env.drop` | takes away what earlier ones pass or set; a later one may give it again |
//! | each of `limits`, `changes`, `net.mode`, `debug`, `auto`, `cache` | replaces |
//! | `net.methods` | the stricter one holds |
//!
//! The same path in `ro` and `rw` counts as the later one said.

use super::chain::Loaded;
use super::document::{At, BindRule, ChangesMode, NetMode, NetPart, Toolchain};
use super::limits::LimitValues;
use super::origin::{Origin, Sourced};
use crate::net::Methods;
use nexus_model::Digest;
use serde::Serialize;
use std::collections::BTreeMap;

/// Permissions of a run, each with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants {
    /// The documents, in the order in which they counted: name and source.
    pub profiles: Vec<ProfileName>,
    /// Tools that must work.
    pub toolchains: Vec<Sourced<Toolchain>>,
    /// Host paths, read-only.
    pub ro: Vec<Sourced<BindRule>>,
    /// Host paths, written straight through.
    pub rw: Vec<Sourced<BindRule>>,
    /// Patterns that cannot be read inside.
    pub hide: Vec<Sourced<String>>,
    /// Names under `/etc` that are shown where they exist.
    pub etc: Vec<Sourced<String>>,
    /// Variables of the caller that are passed on.
    pub env_pass: BTreeMap<String, Origin>,
    /// Variables with a value.
    pub env_set: BTreeMap<String, Sourced<String>>,
    /// Variables that are taken away again.
    pub env_drop: BTreeMap<String, Origin>,
    /// Directories in front of PATH.
    pub path: Vec<Sourced<String>>,
    /// The network that is granted.
    pub net: NetGrants,
    /// The limits by kind.
    pub limits: LimitValues,
    /// The treatment of changes.
    pub changes: Option<Sourced<ChangesMode>>,
    /// Names whose changes wait for an accept, besides those that always do. No later document removes a name.
    pub protect: Vec<Sourced<String>>,
    /// True if processes inside may trace each other; `None` means that they may not.
    pub debug: Option<Sourced<bool>>,
    /// True if the toolchains that the caller's PATH and environment lead to are shown; `None` means that they are.
    pub auto: Option<Sourced<bool>>,
    /// True if build tools keep their caches for later runs in the same workspace; `None` means that they do not.
    pub cache: Option<Sourced<bool>>,
}

/// A document that counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileName {
    /// The name of the profile.
    pub name: String,
    /// The path of the profile, or `built-in profile NAME`.
    pub source: String,
    /// Hash of its text as it was read.
    pub hash: Digest,
}

impl ProfileName {
    /// Returns the name and source of a document that was read.
    #[must_use]
    pub fn of(loaded: &Loaded) -> Self {
        Self { name: loaded.name.clone(), source: loaded.source.clone(), hash: loaded.hash }
    }
}

/// Destinations that may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetGrants {
    /// The mode; `None` means no network.
    pub mode: Option<Sourced<NetMode>>,
    /// Destinations, as written.
    pub allow: Vec<Sourced<String>>,
    /// Destinations that stay closed.
    pub deny: Vec<Sourced<String>>,
    /// Named groups of destinations.
    pub groups: Vec<Sourced<String>>,
    /// Private destinations, as written; only flags give them.
    pub allow_private: Vec<Sourced<String>>,
    /// Ports of the host's loopback; only flags give them.
    pub host_ports: Vec<Sourced<u16>>,
    /// The HTTP methods; `None` means any.
    pub methods: Option<Sourced<Methods>>,
    /// The list of a workspace's file, on top of all that.
    pub only: Option<OnlyThese>,
}

/// A list on top of what is granted: a destination needs both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnlyThese {
    /// The place of the list.
    pub from: Origin,
    /// Destinations, as written.
    pub allow: Vec<Sourced<String>>,
    /// Named groups of destinations.
    pub groups: Vec<Sourced<String>>,
}

impl NetGrants {
    /// Returns the mode that is granted, apart from a list on top.
    #[must_use]
    pub fn granted_mode(&self) -> NetMode {
        self.mode.as_ref().map_or(NetMode::None, |mode| mode.value)
    }

    /// Returns the mode that holds.
    #[must_use]
    pub fn effective_mode(&self) -> NetMode {
        let most = self.only.as_ref().map_or(NetMode::Unrestricted, |_| NetMode::Allowlist);
        self.granted_mode().min(most)
    }

    /// Returns the origin of the mode that holds.
    #[must_use]
    pub fn mode_from(&self) -> Option<&Origin> {
        let only = self.only.as_ref().filter(|_| self.granted_mode() == NetMode::Unrestricted);
        only.map(|only| &only.from).or(self.mode.as_ref().map(|mode| &mode.from))
    }

    /// Returns the destinations, groups and private destinations that stay: those of a list on top where there is one.
    #[must_use]
    pub fn lists(&self) -> [&[Sourced<String>]; 3] {
        match &self.only {
            Some(only) => [&only.allow, &only.groups, &[]],
            None => [&self.allow, &self.groups, &self.allow_private],
        }
    }

    /// Returns the HTTP methods that hold.
    #[must_use]
    pub fn effective_methods(&self) -> Methods {
        self.methods.as_ref().map_or(Methods::Any, |methods| methods.value)
    }

    /// Replaces the methods by `methods` if those are stricter, or if there are none yet.
    pub fn restrict_methods(&mut self, methods: Sourced<Methods>) {
        if self.methods.is_none() || methods.value > self.effective_methods() {
            self.methods = Some(methods);
        }
    }

    fn add(&mut self, part: &NetPart, loaded: &Loaded) {
        if let Some((methods, place)) = part.methods {
            self.restrict_methods(Sourced::new(methods, loaded.origin(place)));
        }
        add_all(&mut self.allow, &part.allow, loaded);
        add_all(&mut self.deny, &part.deny, loaded);
        add_all(&mut self.groups, &part.groups, loaded);
        let implied = part.allow.first().or(part.groups.first()).map(|(_, place)| (NetMode::Allowlist, *place));
        let closed = self.effective_mode() == NetMode::None;
        if let Some((mode, place)) = part.mode.or(implied.filter(|_| closed)) {
            self.mode = Some(Sourced::new(mode, loaded.origin(place)));
        }
    }
}

impl Grants {
    /// Adds a document to what came before it.
    pub fn add(&mut self, loaded: &Loaded) {
        let document = &loaded.document;
        self.profiles.push(ProfileName::of(loaded));
        add_all(&mut self.toolchains, &document.toolchains, loaded);
        for (rule, _) in &document.fs.rw {
            self.ro.retain(|known| known.value != *rule);
        }
        for (rule, _) in &document.fs.ro {
            self.rw.retain(|known| known.value != *rule);
        }
        add_all(&mut self.ro, &document.fs.ro, loaded);
        add_all(&mut self.rw, &document.fs.rw, loaded);
        add_all(&mut self.hide, &document.fs.hide, loaded);
        add_all(&mut self.etc, &document.etc, loaded);
        for (name, place) in &document.env.drop {
            self.drop_variable(name, loaded.origin(*place));
        }
        for (name, place) in &document.env.pass {
            self.env_drop.remove(name);
            self.env_pass.entry(name.clone()).or_insert_with(|| loaded.origin(*place));
        }
        for ((name, place), (value, _)) in &document.env.set {
            self.env_drop.remove(name);
            self.env_set.insert(name.clone(), Sourced::new(value.clone(), loaded.origin(*place)));
        }
        let mut path = Vec::new();
        add_all(&mut path, &document.path, loaded);
        self.path.retain(|old| !path.iter().any(|new| new.value == old.value));
        path.append(&mut self.path);
        self.path = path;
        self.net.add(&document.net, loaded);
        for (kind, (value, place)) in &document.limits {
            self.limits.insert(*kind, Sourced::new(*value, loaded.origin(*place)));
        }
        if let Some((mode, place)) = document.changes {
            self.changes = Some(Sourced::new(mode, loaded.origin(place)));
        }
        add_all(&mut self.protect, &document.protect, loaded);
        if let Some((debug, place)) = document.debug {
            self.debug = Some(Sourced::new(debug, loaded.origin(place)));
        }
        if let Some((auto, place)) = document.auto {
            self.auto = Some(Sourced::new(auto, loaded.origin(place)));
        }
        if let Some((cache, place)) = document.cache {
            self.cache = Some(Sourced::new(cache, loaded.origin(place)));
        }
    }

    /// Reports whether build tools keep their caches for later runs in the same workspace.
    #[must_use]
    pub fn keeps_caches(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.value)
    }

    /// Reports whether the toolchains that the caller's PATH and environment lead to are shown.
    #[must_use]
    pub fn shows_auto(&self) -> bool {
        self.auto.as_ref().is_none_or(|auto| auto.value)
    }

    /// Reports whether processes inside may trace each other.
    #[must_use]
    pub fn allows_debug(&self) -> bool {
        self.debug.as_ref().is_some_and(|debug| debug.value)
    }

    /// Adds names that the operator or a flag protects.
    pub fn add_protected(&mut self, names: impl IntoIterator<Item = Sourced<String>>) {
        for name in names {
            if !self.protect.iter().any(|known| known.value == name.value) {
                self.protect.push(name);
            }
        }
    }

    /// Removes this variable from those that are passed or set.
    pub fn drop_variable(&mut self, name: &str, from: Origin) {
        self.env_pass.remove(name);
        self.env_set.remove(name);
        self.env_drop.insert(name.to_owned(), from);
    }
}

fn add_all<T: Clone + PartialEq>(to: &mut Vec<Sourced<T>>, from: &[At<T>], loaded: &Loaded) {
    for (value, place) in from {
        if !to.iter().any(|known| known.value == *value) {
            to.push(Sourced::new(value.clone(), loaded.origin(*place)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::LimitKind;
    use super::super::read::parse;
    use super::*;

    pub(crate) fn loaded(name: &str, text: &str) -> Loaded {
        Loaded {
            name: name.to_owned(),
            source: format!("{name}.yaml"),
            hash: Digest::of(text.as_bytes()),
            document: parse(text).unwrap(),
        }
    }

    fn merged(texts: &[&str]) -> Grants {
        let mut grants = Grants::default();
        for (at, text) in texts.iter().enumerate() {
            grants.add(&loaded(&format!("p{at}"), text));
        }
        grants
    }

    fn values<T: Clone>(list: &[Sourced<T>]) -> Vec<T> {
        list.iter().map(|entry| entry.value.clone()).collect()
    }

    #[test]
    fn lists_add_up_and_single_values_are_replaced() {
        let grants = merged(&[
            "protect: [x]\nfs: {hide: [a], ro: [/x]}\npath: [/p]\nlimits: {memory: 1G, pids: 5}\nchanges: review\nenv: {set: {A: x}}",
            "protect: [y, x]\nfs: {hide: [b, a]}\npath: [/q]\nlimits: {memory: 2G}\nchanges: commit\nenv: {set: {A: y}}",
        ]);
        assert_eq!(values(&grants.hide), ["a", "b"]);
        assert_eq!(values(&grants.protect), ["x", "y"]);
        assert_eq!(values(&grants.path), ["/q", "/p"]);
        assert_eq!(grants.limits[&LimitKind::Memory].value, 2 << 30);
        assert_eq!(grants.limits[&LimitKind::Memory].from.to_string(), "p1.yaml:4:18");
        assert_eq!(grants.limits[&LimitKind::Pids].value, 5);
        assert_eq!(grants.changes.unwrap().value, ChangesMode::Commit);
        assert_eq!(grants.env_set["A"].value, "y");
    }

    #[test]
    fn the_later_of_ro_and_rw_counts_and_a_dropped_variable_can_come_back() {
        let grants =
            merged(&["fs: {rw: [/x]}\nenv: {pass: [A, B]}", "fs: {ro: [/x]}\nenv: {drop: [A, B]}", "env: {pass: [B]}"]);
        assert_eq!((grants.ro.len(), grants.rw.len()), (1, 0));
        assert_eq!(grants.env_pass.keys().collect::<Vec<_>>(), ["B"]);
        assert_eq!(grants.env_drop.keys().collect::<Vec<_>>(), ["A"]);
    }

    #[test]
    fn of_the_methods_the_stricter_ones_hold_wherever_they_stand() {
        let methods = |texts: &[&str]| merged(texts).net.effective_methods();
        assert_eq!(methods(&["net: {allow: [a.example]}", "net: {methods: any}"]), Methods::Any);
        for texts in
            [["net: {methods: any}", "net: {methods: read_only}"], ["net: {methods: read_only}", "net: {methods: any}"]]
        {
            assert_eq!(methods(&texts), Methods::ReadOnly);
            assert_eq!(merged(&texts).net.effective_mode(), NetMode::None, "it opens nothing");
        }
    }

    #[test]
    fn a_destination_implies_the_allowlist_and_a_mode_wins_over_that() {
        assert_eq!(merged(&["net: {allow: [a.example]}"]).net.effective_mode(), NetMode::Allowlist);
        assert_eq!(merged(&["net: {mode: none, allow: [a.example]}"]).net.effective_mode(), NetMode::None);
        let wide = merged(&["net: {mode: unrestricted}", "net: {allow: [a.example]}"]);
        assert_eq!(wide.net.effective_mode(), NetMode::Unrestricted);
        assert_eq!(merged(&["net: {allow: [a.example]}", "net: none"]).net.effective_mode(), NetMode::None);
    }
}
