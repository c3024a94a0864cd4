//! Reads the files and variables of one client, and collects what the client needs inside.

use super::ask;
use crate::toolchains::{Found, FoundBind, FoundSource, ToolHost};
use nexus_policy::net::packages::{Client, DefaultIndex, Needs, PackagesError};
use nexus_policy::profile::{Origin, Sourced};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Settings of one client on this host, and the collection that receives its needs.
pub(super) struct Reader<'a> {
    pub(super) client: Client,
    pub(super) host: &'a ToolHost,
    pub(super) found: &'a mut Found,
    pub(super) from: &'a Origin,
}

/// Result of reading a client. The error is the reason; it never contains a value, which may be a secret.
pub(super) type Read<T> = Result<T, String>;

pub(super) fn told(path: &Path, error: &PackagesError) -> String {
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
        let Some(real) = self.host.file(path) else { return Ok(None) };
        std::fs::read_to_string(&real).map(Some).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Returns the texts of those files that exist.
    pub(super) fn texts(&self, paths: &[PathBuf]) -> Read<Vec<String>> {
        paths.iter().filter_map(|path| self.text(path).transpose()).collect()
    }

    /// Returns the directory of the user's settings.
    pub(super) fn config(&self) -> Option<PathBuf> {
        self.host.directory_of("XDG_CONFIG_HOME").or_else(|| self.host.in_home(".config"))
    }

    /// Asks the client for its built-in default where no setting replaces it.
    pub(super) fn add_default(&self, needs: &mut Needs) -> Read<()> {
        let nexus_policy::net::packages::Ask::Command(command) = self.client.ask() else { return Ok(()) };
        if needs.default_index == DefaultIndex::Settled {
            return Ok(());
        }
        let Some((name, arguments)) = command.split_first() else { return Ok(()) };
        let answer = ask::answer(self.host, name, arguments)?;
        needs.add_default(&answer).map_err(|error| format!("the answer of {name}: {error}"))
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

    /// Shows the certificates that the client trusts, where the system's view does not have them.
    pub(super) fn show_ca_files(&mut self, needs: &Needs) {
        for file in needs.ca_files.iter().map(Path::new) {
            let in_view = ["/usr", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs"];
            if !in_view.iter().any(|shown| file.starts_with(shown)) {
                self.show(file, "certificates that your client trusts");
            }
        }
    }
}
