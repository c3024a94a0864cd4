//! Finds the default that is built into a client, in the text of the client's own files.
//!
//! No client is run for it. A program that PATH names may be one that an earlier run left (`.venv/bin/npm`, a `.pth` beside
//! pip), and would have all rights of the caller. The text of such a place is not read, either: it would decide what the next
//! run reaches. Read are installations of the system, and those that a manager keeps in the home.

use crate::toolchains::{ToolHost, reading};
use nexus_policy::net::packages::{Client, npm_default, pip_default};
use std::path::{Path, PathBuf};

/// Installations of the system, for a PATH that leads to none of them.
const OF_SYSTEM: [&str; 2] = ["/usr/local", "/usr"];
/// Places of pip in an installation of Python, below `lib` and a directory of a version.
const PIP: [&str; 2] = ["dist-packages/pip/_internal/models/index.py", "site-packages/pip/_internal/models/index.py"];
/// Places in which npm keeps the definition of its settings, by its versions and packages.
const NPM: [&str; 6] = [
    "lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js",
    "lib/node_modules/npm/lib/utils/config/definitions.js",
    "lib/node_modules/npm/lib/config/defaults.js",
    "share/nodejs/@npmcli/config/lib/definitions/definitions.js",
    "share/nodejs/npm/node_modules/@npmcli/config/lib/definitions/definitions.js",
    "share/nodejs/npm/lib/utils/config/definitions.js",
];

/// Returns the default of a client, as the first installation on PATH has it.
pub(super) fn default(host: &ToolHost, client: Client) -> Result<String, String> {
    let of_text = match client {
        Client::Pip => pip_default,
        Client::Npm => npm_default,
        Client::Cargo | Client::Apt => return Err("it has no default of its own".to_owned()),
    };
    for installation in installations(host) {
        for file in files(&installation, client) {
            let text = host.of_installation(&file).and_then(|real| reading::small(&real));
            let text = text.and_then(|text| String::from_utf8(text).ok());
            if let Some(default) = text.as_deref().and_then(of_text) {
                return Ok(default);
            }
        }
    }
    Err("no settings of yours name an index, and its built-in one is read from an installation of the system or of a version \
         manager alone, which is not there. Set the index in its settings"
        .to_owned())
}

fn installations(host: &ToolHost) -> Vec<PathBuf> {
    let on_path = host.path.iter().filter_map(|entry| host.installation(entry));
    let mut all: Vec<PathBuf> = Vec::new();
    for found in on_path.chain(OF_SYSTEM.iter().map(PathBuf::from)) {
        if !all.contains(&found) {
            all.push(found);
        }
    }
    all
}

fn files(installation: &Path, client: Client) -> Vec<PathBuf> {
    if client == Client::Npm {
        return NPM.iter().map(|name| installation.join(name)).collect();
    }
    let lib = installation.join("lib");
    let names = reading::names(&lib).unwrap_or_default();
    let mut versions: Vec<PathBuf> = names
        .into_iter()
        .filter(|name| name.as_encoded_bytes().starts_with(b"python"))
        .map(|name| lib.join(name))
        .collect();
    versions.sort();
    versions.iter().flat_map(|version| PIP.iter().map(|name| version.join(name))).collect()
}
