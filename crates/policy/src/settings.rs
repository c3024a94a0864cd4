//! `config.toml`: the operator's settings for all users of a machine, apart from profiles, workspaces and flags.
//!
//! The operator's file counts whole. A user's own file may only lower `[limits]` and protect more names: it is read by
//! the same process that the user started, so it can bind only the user.

use crate::document::Effective;
use crate::net::{Bypass, Source, parse_deny};
use crate::profile::{DocumentError, LimitKind, LimitValues, NetMode, Origin, Place, Sourced, closest};
use std::net::IpAddr;
use toml::Spanned;

/// The settings of one file, or of both after [`Settings::with_own`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// Most that any run may have.
    pub ceilings: LimitValues,
    /// First host uid of sandboxes that root starts.
    pub uid_base: Option<Sourced<u32>>,
    /// False keeps the toolchains that a caller's PATH leads to out of every run that does not name them.
    pub allow_auto: Option<Sourced<bool>>,
    /// Order in which drivers are tried.
    pub drivers: Vec<Sourced<String>>,
    /// The settings of the network.
    pub egress: EgressSettings,
    /// Names whose changes wait for an accept in every run, besides those that always do.
    pub protect: Vec<Sourced<String>>,
    /// Paths of the host that a bind may show although binds refuse them otherwise.
    pub binds: Vec<Sourced<String>>,
}

/// The section `[egress]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EgressSettings {
    /// Private ranges that may be reached all the same, as `ADDRESS/BITS`.
    pub trusted_ranges: Vec<Sourced<String>>,
    /// Another proxy that every connection goes through.
    pub upstream_proxy: Option<Sourced<String>>,
    /// Destinations that go around that proxy, as in `NO_PROXY`.
    pub upstream_bypass: Vec<Sourced<String>>,
    /// True lets through TLS without a server name, and bytes other than HTTP on port 80.
    pub allow_missing_sni: Option<Sourced<bool>>,
    /// The most open network that a run may ask for.
    pub max_mode: Option<Sourced<NetMode>>,
    /// Destinations that no run reaches, as `--deny` takes them.
    pub deny: Vec<Sourced<String>>,
    /// Limits of policy documents for every run; not a part of the file.
    pub policies: Effective,
}

/// Reads a file; `name` is its path for people.
pub fn parse(text: &str, name: &str) -> Result<Settings, DocumentError> {
    let reader = Reader { text, name };
    let root: toml::de::DeTable<'_> = match toml::de::DeTable::parse(text) {
        Ok(root) => root.into_inner(),
        Err(error) => {
            let place = error.span().map(|span| reader.place(span.start)).unwrap_or_default();
            return Err(DocumentError { place, message: error.message().trim().replace('\n', ", ") });
        }
    };
    reader.settings(root)
}

/// Returns the key and the origin of an upstream proxy that a user's file sets.
fn own_proxy(egress: &EgressSettings) -> Option<(&'static str, &Origin)> {
    let proxy = egress.upstream_proxy.as_ref().map(|proxy| ("egress.upstream_proxy", &proxy.from));
    proxy.or_else(|| egress.upstream_bypass.first().map(|entry| ("egress.upstream_bypass", &entry.from)))
}

impl Settings {
    /// Lowers limits and the mode of networks to what policy documents allow, and keeps the documents for the rest.
    pub fn obey(&mut self, policies: &Effective) {
        for (kind, max) in policies.limits() {
            if self.ceilings.get(kind).is_none_or(|known| max.value < known.value) {
                self.ceilings.insert(*kind, max.clone());
            }
        }
        if let Some(max) = policies.max_mode()
            && self.egress.max_mode.as_ref().is_none_or(|known| max.value < known.value)
        {
            self.egress.max_mode = Some(max);
        }
        self.egress.policies = policies.clone();
    }

    /// Adds a user's own file: its limits count where they are lower, its protected names are added, and it may name an
    /// upstream proxy where the operator names none. Every other setting in it is refused.
    pub fn with_own(mut self, own: Self) -> Result<Self, DocumentError> {
        let refused = own.uid_base.as_ref().map(|base| ("sandbox.uid_base", &base.from));
        let refused = refused.or_else(|| own.drivers.first().map(|driver| ("sandbox.drivers", &driver.from)));
        let refused = refused.or_else(|| own.allow_auto.as_ref().map(|auto| ("sandbox.auto", &auto.from)));
        let egress = &own.egress;
        let refused = refused
            .or_else(|| egress.trusted_ranges.first().map(|range| ("egress.trusted_ranges", &range.from)))
            .or_else(|| self.egress.upstream_proxy.as_ref().and_then(|_| own_proxy(egress)))
            .or_else(|| egress.max_mode.as_ref().map(|mode| ("egress.max_mode", &mode.from)))
            .or_else(|| egress.deny.first().map(|rule| ("egress.deny", &rule.from)))
            .or_else(|| egress.allow_missing_sni.as_ref().map(|sni| ("egress.missing_sni", &sni.from)))
            .or_else(|| own.binds.first().map(|path| ("binds.allow", &path.from)));
        if let Some((key, from)) = refused {
            let place = if let Origin::File { place, .. } = from { *place } else { Place::default() };
            let message = format!("{key} belongs to the operator: write it to /etc/nexus/config.toml");
            return Err(DocumentError { place, message });
        }
        for (kind, own) in own.ceilings {
            let higher = self.ceilings.get(&kind).is_some_and(|operators| operators.value <= own.value);
            if !higher {
                self.ceilings.insert(kind, own);
            }
        }
        if self.egress.upstream_proxy.is_none() {
            self.egress.upstream_proxy = own.egress.upstream_proxy;
            self.egress.upstream_bypass.extend(own.egress.upstream_bypass);
        }
        self.protect.extend(own.protect);
        Ok(self)
    }
}

/// Name of the only driver there is.
const ONLY_DRIVER: &str = "namespace";

struct Reader<'t> {
    text: &'t str,
    name: &'t str,
}

type Entry<'t> = Spanned<toml::de::DeValue<'t>>;

impl Reader<'_> {
    fn place(&self, offset: usize) -> Place {
        let before = &self.text[..offset.min(self.text.len())];
        let line = before.bytes().filter(|byte| *byte == b'\n').count() as u64 + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
        Place { line, column }
    }

    fn sourced<T>(&self, value: T, offset: usize) -> Sourced<T> {
        Sourced::new(value, Origin::File { name: self.name.to_owned(), place: self.place(offset) })
    }

    fn refuse<T>(&self, offset: usize, message: impl Into<String>) -> Result<T, DocumentError> {
        Err(DocumentError { place: self.place(offset), message: message.into() })
    }

    fn settings(&self, root: toml::de::DeTable<'_>) -> Result<Settings, DocumentError> {
        let mut settings = Settings::default();
        for (section, node) in root {
            let name = section.get_ref().as_ref();
            let section =
                self.known(&section.span(), name, &["limits", "sandbox", "egress", "changes", "binds"], "")?;
            let at = node.span().start;
            let toml::de::DeValue::Table(table) = node.into_inner() else {
                return self.refuse(at, format!("{section} must be a section: write [{section}]"));
            };
            for (key, node) in table {
                let (span, name) = (key.span(), key.get_ref().as_ref());
                match section {
                    "limits" => self.limit(&mut settings, &span, name, &node)?,
                    "sandbox" => self.sandbox(&mut settings, &span, name, &node)?,
                    "changes" => self.changes(&mut settings, &span, name, &node)?,
                    "binds" => self.binds(&mut settings, &span, name, &node)?,
                    _ => self.egress(&mut settings, &span, name, &node)?,
                }
            }
        }
        Ok(settings)
    }

    fn known<'k>(
        &self,
        span: &std::ops::Range<usize>,
        key: &str,
        keys: &[&'k str],
        prefix: &str,
    ) -> Result<&'k str, DocumentError> {
        if let Some(known) = keys.iter().find(|known| **known == key) {
            return Ok(known);
        }
        let advice = match closest(key, keys.iter().copied()) {
            Some(meant) => format!("did you mean {prefix}{meant}?"),
            None => format!("the keys here are {}", keys.join(", ")),
        };
        self.refuse(span.start, format!("unknown key {prefix}{key}: {advice}"))
    }

    fn limit(
        &self,
        to: &mut Settings,
        span: &std::ops::Range<usize>,
        key: &str,
        node: &Entry<'_>,
    ) -> Result<(), DocumentError> {
        let keys: Vec<&str> = LimitKind::ALL.into_iter().map(LimitKind::key).collect();
        let key = self.known(span, key, &keys, "limits.")?;
        let Some(kind) = LimitKind::by_key(key) else { return Ok(()) };
        let at = node.span().start;
        let text = self.plain(node)?;
        let value = kind.read(&text).or_else(|message| self.refuse(at, message))?;
        to.ceilings.insert(kind, self.sourced(value, at));
        Ok(())
    }

    fn sandbox(
        &self,
        to: &mut Settings,
        span: &std::ops::Range<usize>,
        key: &str,
        node: &Entry<'_>,
    ) -> Result<(), DocumentError> {
        let at = node.span().start;
        match self.known(span, key, &["uid_base", "drivers", "auto"], "sandbox.")? {
            "drivers" => {
                to.drivers = self.texts(node)?;
                // A list that is read and not obeyed would let run what the operator forbade.
                if to.drivers.is_empty() || to.drivers.iter().any(|driver| driver.value != ONLY_DRIVER) {
                    let message = format!("drivers can only be [\"{ONLY_DRIVER}\"]: there is no other one yet");
                    return self.refuse(at, message);
                }
                return Ok(());
            }
            "auto" => {
                let allow = match self.plain(node)?.as_str() {
                    "refuse" => false,
                    "allow" => true,
                    _ => return self.refuse(at, "auto must be \"refuse\" or \"allow\""),
                };
                to.allow_auto = Some(self.sourced(allow, at));
                return Ok(());
            }
            _ => {}
        }
        // Below 65536 live the machine's own users, and the highest ids mean `nobody`.
        match self.plain(node)?.parse::<u32>() {
            Ok(base) if (65_536..u32::MAX - 65_536).contains(&base) => {
                to.uid_base = Some(self.sourced(base, at));
                Ok(())
            }
            _ => self.refuse(at, "uid_base must be a number from 65536 to 4294901758"),
        }
    }

    fn changes(
        &self,
        to: &mut Settings,
        span: &std::ops::Range<usize>,
        key: &str,
        node: &Entry<'_>,
    ) -> Result<(), DocumentError> {
        self.known(span, key, &["protect"], "changes.")?;
        to.protect = self.texts(node)?;
        for name in &to.protect {
            nexus_model::name_pattern::check(&name.value).map_err(|error| {
                let place = if let Origin::File { place, .. } = name.from { place } else { Place::default() };
                DocumentError { place, message: error.to_string() }
            })?;
        }
        Ok(())
    }

    fn binds(
        &self,
        to: &mut Settings,
        span: &std::ops::Range<usize>,
        key: &str,
        node: &Entry<'_>,
    ) -> Result<(), DocumentError> {
        self.known(span, key, &["allow"], "binds.")?;
        to.binds = self.texts(node)?;
        let is_whole =
            |path: &str| path.starts_with('/') && path.len() > 1 && !path.split('/').any(|part| part == "..");
        match to.binds.iter().find(|path| !is_whole(&path.value)) {
            None => Ok(()),
            Some(bad) => {
                let place = if let Origin::File { place, .. } = bad.from { place } else { Place::default() };
                let message = format!("{:?} is not a whole path: write for example /home/you/.aws", bad.value);
                Err(DocumentError { place, message })
            }
        }
    }

    fn egress(
        &self,
        to: &mut Settings,
        span: &std::ops::Range<usize>,
        key: &str,
        node: &Entry<'_>,
    ) -> Result<(), DocumentError> {
        let at = node.span().start;
        match self.known(
            span,
            key,
            &["trusted_ranges", "upstream_proxy", "upstream_bypass", "missing_sni", "max_mode", "deny"],
            "egress.",
        )? {
            "trusted_ranges" => {
                let ranges = self.texts(node)?;
                if let Some(bad) = ranges.iter().find(|range| !is_range(&range.value)) {
                    let place = if let Origin::File { place, .. } = bad.from { place } else { Place::default() };
                    let message = format!("{:?} is not a range: write for example 10.0.0.0/8", bad.value);
                    return Err(DocumentError { place, message });
                }
                to.egress.trusted_ranges = ranges;
            }
            "upstream_bypass" => {
                let entries = self.texts(node)?;
                if let Some(bad) = entries.iter().find(|entry| Bypass::parse(&entry.value).is_err()) {
                    let place = if let Origin::File { place, .. } = bad.from { place } else { Place::default() };
                    let message = format!(
                        "{:?} is not an entry: write NAME, .NAME, ADDRESS/BITS or *, with :PORT or without",
                        bad.value
                    );
                    return Err(DocumentError { place, message });
                }
                to.egress.upstream_bypass = entries;
            }
            "max_mode" => {
                let mode = match self.plain(node)?.as_str() {
                    "none" => NetMode::None,
                    "allowlist" => NetMode::Allowlist,
                    "unrestricted" => NetMode::Unrestricted,
                    _ => return self.refuse(at, "max_mode must be \"none\", \"allowlist\" or \"unrestricted\""),
                };
                to.egress.max_mode = Some(self.sourced(mode, at));
            }
            "deny" => {
                let rules = self.texts(node)?;
                for rule in &rules {
                    if let (Err(error), Origin::File { place, .. }) =
                        (parse_deny(&rule.value, Source::flag(&rule.value)), &rule.from)
                    {
                        return Err(DocumentError { place: *place, message: error.to_string() });
                    }
                }
                to.egress.deny = rules;
            }
            "upstream_proxy" => to.egress.upstream_proxy = Some(self.sourced(self.plain(node)?, at)),
            _ => {
                let allow = match self.plain(node)?.as_str() {
                    "refuse" => false,
                    "allow" => true,
                    _ => return self.refuse(at, "missing_sni must be \"refuse\" or \"allow\""),
                };
                to.egress.allow_missing_sni = Some(self.sourced(allow, at));
            }
        }
        Ok(())
    }

    /// Reads text or a number, as text.
    fn plain(&self, node: &Entry<'_>) -> Result<String, DocumentError> {
        use toml::de::DeValue;
        match node.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) => Ok(number.as_str().replace('_', "")),
            DeValue::Float(number) => Ok(number.as_str().to_owned()),
            DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                self.refuse(node.span().start, "here must stand text or a number")
            }
        }
    }

    fn texts(&self, node: &Entry<'_>) -> Result<Vec<Sourced<String>>, DocumentError> {
        let toml::de::DeValue::Array(items) = node.get_ref() else {
            return self.refuse(node.span().start, "here must stand a list of texts: [\"…\"]");
        };
        items.iter().map(|item| Ok(self.sourced(self.plain(item)?, item.span().start))).collect()
    }
}

fn is_range(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let (Ok(address), Ok(bits)) = (address.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    bits <= if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
