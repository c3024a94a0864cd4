//! pip: `pip.conf` files and `PIP_*` variables.

use super::ini::{self, Dialect, Entry};
use super::needs::{DefaultIndex, Needs, PackagesError, Setting};
use std::collections::BTreeMap;

/// Reads what pip would: `files` from the weakest (global) to the strongest, then the environment over them.
///
/// The sections of commands stand above `[global]`. Every index of any of them is needed by some command, so all count.
pub fn read_pip(files: &[&str], environment: &BTreeMap<String, String>) -> Result<Needs, PackagesError> {
    let mut settled: BTreeMap<(String, String), String> = BTreeMap::new();
    for text in files {
        for Entry { section, key, value } in ini::read(text, Dialect::Pip)? {
            settled.insert((section, canonical(&key)), value);
        }
    }
    for (name, value) in environment {
        // An empty variable is none, and `PIP_CONFIG_FILE` is the caller's matter.
        let Some(key) = name.strip_prefix("PIP_").filter(|_| !value.is_empty()) else { continue };
        let key = canonical(key);
        settled.retain(|(_, other), _| *other != key);
        settled.insert((":env:".into(), key), value.clone());
    }
    let mut needs = Needs::default();
    for ((section, key), value) in settled {
        read_one(&mut needs, &section, &key, &value)?;
    }
    Ok(needs)
}

fn canonical(key: &str) -> String {
    key.to_ascii_lowercase().replace('_', "-")
}

fn read_one(needs: &mut Needs, section: &str, key: &str, value: &str) -> Result<(), PackagesError> {
    match key {
        "index-url" | "pypi-url" | "index" => {
            needs.index("index-url", value)?;
            // Another command than the section's still uses the default.
            if matches!(section, ":env:" | "global" | "install") {
                needs.default_index = DefaultIndex::Settled;
            }
        }
        "extra-index-url" => value.split_whitespace().try_for_each(|url| needs.index(key, url))?,
        "find-links" => {
            let remote = value.split_whitespace().filter(|place| place.contains("://") && !place.starts_with("file:"));
            remote.into_iter().try_for_each(|url| needs.index(key, url))?;
        }
        "no-index" => {
            if matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on") {
                needs.default_index = DefaultIndex::Settled;
            }
        }
        "proxy" => needs.proxy(key, value)?,
        "cert" => needs.ca_file(key, value),
        "trusted-host" => {
            needs.settings.insert(Setting { key: key.into(), value: value.replace('\n', " ").trim().into() });
        }
        // Everything else changes how pip works, not where it connects.
        _ => {}
    }
    Ok(())
}
