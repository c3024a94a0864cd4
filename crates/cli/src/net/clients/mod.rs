//! The groups `pkg:pip`, `pkg:npm`, `pkg:cargo`, `pkg:apt`: read from the user's own clients when a run begins.
//!
//! ```text
//!  files and variables of the client ─▶ Needs (policy::net::packages)
//!      its built-in default: the client is asked, outside, with a time limit
//!  Needs ─▶ rules of the group
//!        ─▶ settings inside: variables, a file that Nexus makes, CA files shown read-only
//!        ─▶ notes: what stays outside (logins, proxies)
//! ```
//! Nothing of the workspace is read or run here: its `.npmrc` or its `python3` would decide what this run may reach.

mod apt;
mod ask;
mod cargo;
mod npm;
mod pip;

use crate::failure::Failure;
use crate::profile::{Found, FoundBind, Host, Source};
use nexus_policy::net::Groups;
use nexus_policy::net::packages::{Client, DefaultIndex, Needs, PackagesError};
use nexus_policy::profile::{Origin, Sourced};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const CLIENTS: [Client; 4] = [Client::Pip, Client::Npm, Client::Cargo, Client::Apt];

/// The groups that are read from clients.
pub const GROUPS: [&str; 4] = ["pkg:pip", "pkg:npm", "pkg:cargo", "pkg:apt"];

/// Reads the clients whose groups are wanted. What they need inside goes to `found`, what the user should know to
/// `notes`.
pub fn read(
    wanted: &[Sourced<String>],
    workspace: &Path,
    groups: &mut Groups,
    found: &mut Found,
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let mut host = None;
    for group in wanted {
        let Some(client) = CLIENTS.into_iter().find(|client| client.group() == group.value) else { continue };
        if groups.contains_key(client.group()) {
            continue;
        }
        let host = host.get_or_insert_with(|| Host::of_the_caller(workspace, true));
        let mut reader = Reader { client, host, found: &mut *found, from: &group.from };
        let needs = match client {
            Client::Pip => pip::read(&mut reader),
            Client::Npm => npm::read(&mut reader),
            Client::Cargo => cargo::read(&mut reader),
            Client::Apt => apt::read(&mut reader),
        }
        .map_err(|error| refused(client, &error))?;
        reader.show_ca_files(&needs);
        let (rules, not_covered) = needs.rules(client);
        let name = client.group();
        for left in &not_covered {
            notes.push(format!(
                "{name}: {} is an address or this machine, which no group opens: {}",
                left.endpoint.url(),
                left.flag
            ));
        }
        if !needs.proxies.is_empty() {
            notes.push(format!("{name}: the proxy of its settings is not used inside"));
        }
        let logins: BTreeSet<_> = needs.credentials.iter().map(|login| login.target.to_string()).collect();
        for target in logins {
            notes.push(format!("{name}: the login for {target} stays outside, so what needs it is refused there"));
        }
        if rules.is_empty() && not_covered.is_empty() {
            return Err(refused(client, "its settings name no host"));
        }
        groups.insert(name.to_owned(), rules);
    }
    Ok(())
}

fn refused(client: Client, why: &str) -> Failure {
    let group = client.group();
    let hint = "mend the client's settings, or leave the group out and name its hosts with --allow";
    Failure::refused("group", format!("{group} cannot be read from your own client: {why}"), hint)
}

/// One client's settings on this host.
struct Reader<'a> {
    client: Client,
    host: &'a Host,
    found: &'a mut Found,
    from: &'a Origin,
}

/// Why a client could not be read; never a value, which may be a secret.
type Read<T> = Result<T, String>;

fn told(path: &Path, error: &PackagesError) -> String {
    format!("{}: {error}", path.display())
}

/// The caller's variables whose names begin like this, in any case.
fn variables(prefix: &str) -> BTreeMap<String, String> {
    let begins = |name: &str| name.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).filter(|(name, _)| begins(name)).collect()
}

impl Reader<'_> {
    /// The text of a file that is there. A file that cannot be read is none for the client either.
    fn text(&self, path: &Path) -> Read<Option<String>> {
        let Some(real) = self.host.file(path) else { return Ok(None) };
        std::fs::read_to_string(&real).map(Some).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The texts of those files that are there.
    fn texts(&self, paths: &[PathBuf]) -> Read<Vec<String>> {
        paths.iter().filter_map(|path| self.text(path).transpose()).collect()
    }

    /// The folder of a user's settings.
    fn config(&self) -> Option<PathBuf> {
        self.host.folder_of("XDG_CONFIG_HOME").or_else(|| self.host.in_home(".config"))
    }

    /// Asks the client for its built-in default where no setting replaces it.
    fn add_default(&self, needs: &mut Needs) -> Read<()> {
        let nexus_policy::net::packages::Ask::Command(command) = self.client.ask() else { return Ok(()) };
        if needs.default_index == DefaultIndex::Settled {
            return Ok(());
        }
        let Some((name, arguments)) = command.split_first() else { return Ok(()) };
        let answer = ask::answer(self.host, name, arguments)?;
        needs.add_default(&answer).map_err(|error| format!("the answer of {name}: {error}"))
    }

    /// Sets a variable inside.
    fn set(&mut self, name: &str, value: &str) {
        self.found.env.insert(name.to_owned(), Sourced::new(value.into(), self.from.clone()));
    }

    /// Shows a path of the host at its own place.
    fn show(&mut self, path: &Path, why: &'static str) {
        if let Some(real) = self.host.file(path).or_else(|| self.host.folder(path)) {
            self.bind(Source::Path(real), path, why);
        }
    }

    /// Shows a file that Nexus makes, unless a toolchain made it already.
    fn show_made(&mut self, content: String, target: &str, why: &'static str) {
        self.bind(Source::Made(content.into_bytes()), Path::new(target), why);
    }

    fn bind(&mut self, source: Source, target: &Path, why: &'static str) {
        if !self.found.binds.iter().any(|known| known.target == target) {
            self.found.binds.push(FoundBind { source, target: target.to_owned(), why, from: self.from.clone() });
        }
    }

    /// The certificates that the client trusts, where the system's view does not have them.
    fn show_ca_files(&mut self, needs: &Needs) {
        for file in needs.ca_files.iter().map(Path::new) {
            let in_view = ["/usr", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs"];
            if !in_view.iter().any(|shown| file.starts_with(shown)) {
                self.show(file, "certificates that your client trusts");
            }
        }
    }
}
