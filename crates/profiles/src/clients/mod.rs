//! The groups `pkg:pip`, `pkg:npm`, `pkg:cargo`, `pkg:apt`: read from the user's own clients when a run begins.
//!
//! ```text
//!  files and variables of the client ─▶ Needs (policy::net::packages)
//!      its built-in default: the client is asked, outside, with a time limit
//!  Needs ─▶ rules of the group
//!        ─▶ settings inside: variables, a file that Nexus makes, CA files shown read-only
//!        ─▶ notes: what stays outside (logins, proxies)
//! ```
//! Nothing is read or run here that a run can have written, in this workspace or in another one: its `.npmrc` or its
//! `python3` would decide what later runs may reach, and would run outside of any sandbox.

mod apt;
mod ask;
mod cargo;
mod npm;
mod pip;
mod reader;

use crate::host::Host;
use crate::toolchains::{Found, ToolHost};
use nexus_policy::net::Groups;
use nexus_policy::net::packages::Client;
use nexus_policy::profile::Sourced;
use reader::Reader;
use std::collections::BTreeSet;
use std::path::Path;

const CLIENTS: [Client; 4] = [Client::Pip, Client::Npm, Client::Cargo, Client::Apt];

/// Reason for the refusal of settings that are reached through a link or lie where others write, and the way out.
const UNSURE: &str = "may have been written by an earlier run or another user; name the settings by a path without links \
                      (CARGO_HOME, NPM_CONFIG_USERCONFIG, PIP_CONFIG_FILE, XDG_CONFIG_HOME)";

/// Groups that are read from clients.
pub const GROUPS: [&str; 4] = ["pkg:pip", "pkg:npm", "pkg:cargo", "pkg:apt"];

/// Reads the clients whose groups are wanted. Adds their needs inside to `found` and messages for the user to `notes`.
pub fn read(
    wanted: &[Sourced<String>],
    caller: &Host,
    workspace: &Path,
    groups: &mut Groups,
    found: &mut Found,
    notes: &mut Vec<String>,
) -> Result<(), ClientError> {
    let mut host = None;
    for group in wanted {
        let Some(client) = CLIENTS.into_iter().find(|client| client.group() == group.value) else { continue };
        if groups.contains_key(client.group()) {
            continue;
        }
        let host = host.get_or_insert_with(|| ToolHost::of(caller, workspace, true).for_clients());
        let mut reader = Reader { client, host, found: &mut *found, from: &group.from };
        let needs = match client {
            Client::Pip => pip::read(&mut reader),
            Client::Npm => npm::read(&mut reader),
            Client::Cargo => cargo::read(&mut reader),
            Client::Apt => apt::read(&mut reader),
        }
        .map_err(|error| refused(client, &error));
        // Without these settings the client would be sent to another registry than its user chose.
        if let Some((path, _)) = host.left_out().first() {
            return Err(refused(client, &format!("{} {UNSURE}", path.display())));
        }
        let needs = needs?;
        reader.show_ca_files(&needs);
        let name = client.group();
        let (rules, not_covered) = needs.rules(client);
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

/// The settings of a client cannot be used, so its group opens nothing.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read from your own client: {why}", client.group())]
pub struct ClientError {
    /// Client whose settings were read.
    pub client: Client,
    /// Reason; never contains a value, which may be a secret.
    pub why: String,
}

impl ClientError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "group"
    }
}

fn refused(client: Client, why: &str) -> ClientError {
    ClientError { client, why: why.to_owned() }
}
