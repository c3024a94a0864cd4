//! Finds the registries of this machine's package clients, as an operator's settings for the tests.
//!
//! ```text
//!  pip, npm, cargo, apt ──(their own answers)──▶ hosts ──(this machine's resolver)──▶ addresses ──▶ operator/config.toml
//! ```
//!
//! The tests install real packages through the egress, which refuses private and special ranges after resolution. Where
//! the registries are mirrors with such addresses, the operator has to trust these; no host or address is written down
//! here. Only the very addresses are trusted, not a range around them.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::workspace::Workspace;

/// Commands that print the settings of each client.
const QUESTIONS: &[(&str, &[&str])] = &[
    (
        "pip",
        &[
            "/usr/bin/python3",
            "-c",
            "from pip._internal.models.index import PyPI as i; print(i.simple_url, i.file_storage_domain)",
        ],
    ),
    ("pip's settings", &["/usr/bin/python3", "-m", "pip", "config", "list"]),
    ("npm", &["npm", "config", "get", "registry"]),
    ("apt", &["apt-get", "indextargets", "--format", "$(SITE)"]),
];

/// Asks, resolves and writes `operator/config.toml` into the directory that cargo gives to integration tests.
pub fn write(workspace: &Workspace) -> Result<(), Failure> {
    let mut hosts = BTreeSet::new();
    for (client, words) in QUESTIONS {
        let found = hosts_in(&ask(client, words)?);
        println!("registries: {client} names {}", found.len());
        hosts.extend(found);
    }
    let found = cargo_hosts()?;
    println!("registries: cargo names {}", found.len());
    hosts.extend(found);

    let mut addresses = BTreeSet::new();
    for host in &hosts {
        // The tests of one client may not need it; they will say so if they do.
        match (host.as_str(), 443).to_socket_addrs() {
            Ok(found) => addresses.extend(found.map(|address| address.ip())),
            Err(error) => println!("registries: {host} does not resolve: {error}"),
        }
    }
    let directory = workspace.target.join("tmp/operator");
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", directory.display()), "make it writable");
    fs::create_dir_all(&directory).map_err(failed)?;
    fs::write(directory.join("config.toml"), settings(&addresses)).map_err(failed)?;
    println!("registries: {} hosts at {} addresses, for the tests to trust", hosts.len(), addresses.len());
    Ok(())
}

fn ask(client: &str, words: &[&str]) -> Result<String, Failure> {
    let advice = format!("try: {}", words.join(" "));
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(Failure::new(format!("{client} did not answer: {}", output.status), advice)),
        Err(error) => Err(Failure::new(format!("{client} did not start: {error}"), advice)),
    }
}

/// The indexes that cargo used for this very build, and where they download from: `registry/index/HOST-HASH`.
fn cargo_hosts() -> Result<BTreeSet<String>, Failure> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let home = home.ok_or_else(|| Failure::new("neither CARGO_HOME nor HOME is set", "set HOME"))?;
    let mut hosts = BTreeSet::new();
    // A build with vendored crates has no index.
    let Ok(indexes) = fs::read_dir(home.join("registry/index")) else { return Ok(hosts) };
    for index in indexes.flatten() {
        let name = index.file_name().to_string_lossy().into_owned();
        hosts.extend(name.rsplit_once('-').map(|(host, _)| host.to_owned()));
        if let Ok(text) = fs::read_to_string(index.path().join("config.json")) {
            hosts.extend(hosts_in(&text));
        }
    }
    Ok(hosts)
}

/// Every host of a URL in the text, and every word that is nothing but a host name with a dot.
fn hosts_in(text: &str) -> BTreeSet<String> {
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, '\'' | '"' | ',');
    let mut hosts = BTreeSet::new();
    for word in text.split(ends).filter(|word| !word.is_empty()) {
        let host = match word.split_once("://") {
            Some((scheme, rest)) if scheme.ends_with("http") || scheme.ends_with("https") => {
                let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
                let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
                host.split(':').next().unwrap_or_default()
            }
            Some(_) => continue,
            None => word,
        };
        if is_name(host) {
            hosts.insert(host.to_ascii_lowercase());
        }
    }
    hosts
}

/// Returns whether a word is a DNS name: letters, digits and hyphens in at least two labels, the last of which is
/// neither a number nor a version.
fn is_name(word: &str) -> bool {
    let labels: Vec<_> = word.split('.').collect();
    let is_label =
        |label: &&str| !label.is_empty() && label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    labels.len() > 1
        && labels.iter().all(is_label)
        && labels.last().is_some_and(|last| last.len() > 1 && last.chars().all(|letter| letter.is_ascii_alphabetic()))
}

/// An operator's `config.toml` that trusts just these addresses.
fn settings(addresses: &BTreeSet<IpAddr>) -> String {
    let ranges: Vec<_> =
        addresses.iter().map(|address| format!("\"{address}/{}\"", if address.is_ipv4() { 32 } else { 128 })).collect();
    format!("[egress]\ntrusted_ranges = [{}]\n", ranges.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        hosts_in(text).into_iter().collect()
    }

    #[test]
    fn hosts_are_found_in_what_clients_print() {
        assert_eq!(names("https://Index.example/simple files.example\n"), ["files.example", "index.example"]);
        assert_eq!(names("global.index-url='https://me:secret@pip.example:8443/simple'\n"), ["pip.example"]);
        assert_eq!(names(r#"{"dl": "https://crates.example:443/dl", "api": null}"#), ["crates.example"]);
        assert_eq!(names("sparse+https://cargo.example/"), ["cargo.example"]);
    }

    #[test]
    fn what_is_no_host_is_left_out() {
        assert_eq!(names("undefined file:///srv/debian http://10.0.0.1/x 1.0.0 :env:.timeout='180'"), [""; 0]);
    }

    #[test]
    fn only_the_very_addresses_are_trusted() {
        let addresses = ["10.1.2.3".parse().unwrap(), "fd00::1".parse().unwrap()].into();
        assert_eq!(settings(&addresses), "[egress]\ntrusted_ranges = [\"10.1.2.3/32\", \"fd00::1/128\"]\n");
        assert_eq!(settings(&BTreeSet::new()), "[egress]\ntrusted_ranges = []\n");
    }
}
