//! Reads the files and variables of one client, and collects what the client needs inside.

use super::{built_in, certificates};
use crate::toolchains::{Found, FoundBind, FoundSource, ToolHost, reading};
use nexus_policy::net::packages::{Client, DefaultIndex, Endpoint, Needs, PackagesError};
use nexus_policy::profile::{Origin, Sourced};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Upper bound for a file of certificates, in bytes; the lists of distributions have some 200 KiB.
const MAX_CERTIFICATES: u64 = 4 << 20;
/// Flags that one message names.
const MAX_NAMED: usize = 5;

/// Settings of one client on this host, and the collection that receives its needs.
pub(super) struct Reader<'a> {
    pub(super) client: Client,
    pub(super) host: &'a ToolHost,
    pub(super) found: &'a mut Found,
    pub(super) from: &'a Origin,
    /// Messages for the user.
    pub(super) notes: &'a mut Vec<String>,
}

/// Result of reading a client. The error is the reason; it never contains a value, which may be a secret.
pub(super) type Read<T> = Result<T, String>;

pub(super) fn reported(path: &Path, error: &PackagesError) -> String {
    format!("{}: {error}", path.display())
}

impl Reader<'_> {
    /// Returns the caller's variables whose names begin with `prefix`, in any case.
    pub(super) fn variables(&self, prefix: &str) -> BTreeMap<String, String> {
        let begins = |name: &str| name.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
        let text =
            |(name, value): (&OsString, &OsString)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()));
        self.host.caller.variables.iter().filter_map(text).filter(|(name, _)| begins(name)).collect()
    }

    /// Returns the text of a file, or `None` if there is no such file.
    pub(super) fn text(&self, path: &Path) -> Read<Option<String>> {
        let Some(real) = self.host.settings(path) else { return Ok(None) };
        std::fs::read_to_string(&real).map(Some).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Returns the texts of those files that exist.
    pub(super) fn texts(&self, paths: &[PathBuf]) -> Read<Vec<String>> {
        paths.iter().filter_map(|path| self.text(path).transpose()).collect()
    }

    /// Returns the directory of the user's settings.
    pub(super) fn config(&self) -> Option<PathBuf> {
        let named = self.host.caller.variable("XDG_CONFIG_HOME").map(PathBuf::from);
        let config = named.or_else(|| Some(self.host.home.as_ref()?.join(".config")))?;
        self.host.settings_directory(&config)
    }

    /// Adds the built-in default of the client where no setting replaces it.
    pub(super) fn add_default(&self, needs: &mut Needs) -> Read<()> {
        if needs.default_index == DefaultIndex::Settled {
            return Ok(());
        }
        let default = built_in::default(self.host, self.client)?;
        needs.add_default(&default).map_err(|error| format!("its built-in default: {error}"))
    }

    /// Sets a variable inside.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.found.env.insert(name.to_owned(), Sourced::new(value.into(), self.from.clone()));
    }

    /// Shows a path of the host at its own place.
    pub(super) fn show(&mut self, path: &Path, why: &'static str) {
        if let Some(real) = self.host.file(path).or_else(|| self.host.directory(path)) {
            self.bind(FoundSource::Path(real), path, why);
        }
    }

    /// Shows a file that Nexus makes, unless a toolchain made it already.
    pub(super) fn show_made(&mut self, content: String, target: &str, why: &'static str) {
        self.bind(FoundSource::Made(content.into_bytes()), Path::new(target), why);
    }

    pub(super) fn bind(&mut self, source: FoundSource, target: &Path, why: &'static str) {
        if !self.found.binds.iter().any(|known| known.target == target) {
            self.found.binds.push(FoundBind { source, target: target.to_owned(), why, from: self.from.clone() });
        }
    }

    /// Shows the certificates that the client trusts, where the system's view does not have them. Of the file that a setting
    /// names only certificates are shown, in a file that Nexus makes.
    pub(super) fn show_ca_files(&mut self, needs: &Needs) {
        for file in needs.ca_files.iter().map(Path::new) {
            let in_view = ["/usr", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs"];
            if in_view.iter().any(|shown| file.starts_with(shown)) || self.is_of_workspace(file) {
                continue;
            }
            match self.certificates(file) {
                Ok(text) => {
                    self.bind(FoundSource::Made(text.into_bytes()), file, "certificates that your client trusts");
                }
                Err(why) => self.notes.push(format!(
                    "{}: {} is named for certificates and not shown: {why}",
                    self.client.group(),
                    file.display()
                )),
            }
        }
    }

    fn certificates(&self, file: &Path) -> Result<String, &'static str> {
        if !file.is_absolute() {
            return Err("its path is not absolute");
        }
        let real = self.host.settings(file).ok_or("it is not a file that only you and root can change")?;
        let bytes = reading::bounded(&real, MAX_CERTIFICATES).ok_or("it is not a plain file of a few MiB at most")?;
        certificates::only(&bytes)
    }

    fn is_of_workspace(&self, file: &Path) -> bool {
        std::fs::canonicalize(file).is_ok_and(|real| real.starts_with(&self.host.workspace))
    }

    /// Names what a file wants that an earlier run may have written: it opens nothing.
    pub(super) fn name(&mut self, path: &Path, known: &Needs, read: impl Fn(&str) -> Result<Needs, PackagesError>) {
        let real = match std::fs::canonicalize(path) {
            Ok(real) if !self.notes.iter().any(|note| note.contains(&*path.to_string_lossy())) => real,
            _ => return,
        };
        let text = reading::small(&real).and_then(|text| String::from_utf8(text).ok());
        let mut needs = text.and_then(|text| read(&text).ok()).unwrap_or_default();
        let is_known = |endpoint: &Endpoint| known.endpoints.iter().any(|other| other.target == endpoint.target);
        needs.endpoints.retain(|endpoint| !is_known(endpoint));
        let (rules, left) = needs.rules(self.client);
        let names = rules.iter().map(|rule| format!("--allow {}:{}", rule.pattern, rule.ports));
        let addresses = left.into_iter().map(|left| left.flag);
        let flags: BTreeSet<String> = names.chain(addresses).collect();
        if flags.is_empty() {
            return;
        }
        let more = flags.len().saturating_sub(MAX_NAMED);
        let mut flags = flags.into_iter().take(MAX_NAMED).collect::<Vec<_>>().join(" ");
        if more > 0 {
            flags = format!("{flags} and {more} more");
        }
        self.notes.push(format!(
            "{}: {} opens nothing, since a run may have written it; what it names: {flags}",
            self.client.group(),
            path.display()
        ));
    }
}
