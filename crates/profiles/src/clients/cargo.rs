//! Reads the settings and indexes of cargo.

use super::reader::{Read, Reader, reported};
use nexus_policy::net::packages::{DefaultIndex, Needs, read_cargo_config, read_cargo_index};
use nexus_policy::net::{Host, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Reads the user's settings and the indexes that cargo keeps as `HOST-HASH`: an index may name another host for
/// downloads.
pub(super) fn read(reader: &mut Reader<'_>) -> Read<Needs> {
    let named = reader.host.caller.variable("CARGO_HOME").map(PathBuf::from);
    let home = named.or_else(|| Some(reader.host.home.as_ref()?.join(".cargo")));
    let home = home
        .and_then(|home| reader.host.settings_directory(&home))
        .ok_or("cargo has no directory in your home: it was never used")?;
    let texts = match reader.text(&home.join("config.toml"))? {
        Some(text) => vec![text],
        None => reader.texts(&[home.join("config")])?,
    };
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut needs = read_cargo_config(&texts, &reader.variables("CARGO_")).map_err(|error| error.to_string())?;
    indexes(reader, &home.join("registry/index"), &mut needs)?;
    if needs.default_index == DefaultIndex::Ask {
        return Err("cargo has used no registry over HTTPS yet, so its hosts are not known: run cargo fetch (1.70 or later) outside once".into());
    }
    let of_project = reader.host.workspace.join(".cargo/config.toml");
    reader.name(&of_project, &needs, |text| read_cargo_config(&[text], &BTreeMap::new()));
    settings(reader, &needs)?;
    Ok(needs)
}

/// Takes the indexes that cargo would use now: those of its settings and, unless a setting replaces it, the default
/// one.
fn indexes(reader: &Reader<'_>, directory: &Path, needs: &mut Needs) -> Read<()> {
    let Some(directory) = reader.host.settings_directory(directory) else { return Ok(()) };
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut others = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(index) = Index::of(&entry.path()) else { continue };
        // An index that cargo before 1.70 fetched with git says nothing of downloads.
        let Some(about) = reader.text(&index.about)? else { continue };
        if entry.path().join(".git").exists() {
            continue;
        }
        let is_of = |target: &Target| Host::parse(&index.host).is_ok_and(|host| host == target.host);
        if needs.endpoints.iter().any(|endpoint| is_of(&endpoint.target)) {
            read_cargo_index(needs, &about).map_err(|error| reported(&index.about, &error))?;
        } else {
            others.push((index, about));
        }
    }
    if needs.default_index != DefaultIndex::Ask {
        // The remaining indexes belong to earlier settings.
        return Ok(());
    }
    for (index, about) in default_of(others)? {
        needs.add_default(&index.host).map_err(|error| reported(&index.about, &error))?;
        read_cargo_index(needs, &about).map_err(|error| reported(&index.about, &error))?;
    }
    Ok(())
}

/// A directory `HOST-HASH` in which cargo keeps an index.
#[derive(Debug, PartialEq, Eq)]
struct Index {
    host: String,
    hash: String,
    /// File in which the index describes itself.
    about: PathBuf,
}

impl Index {
    fn of(path: &Path) -> Option<Self> {
        let (host, hash) = path.file_name()?.to_str()?.rsplit_once('-')?;
        Some(Self { host: host.to_owned(), hash: hash.to_owned(), about: path.join("config.json") })
    }
}

/// The hashes that cargo gives to its default index: since 1.85, and before.
const DEFAULT_HASHES: [&str; 2] = ["1949cf8c6b5b557f", "6f17d22bba15001f"];

/// Picks the default index from those that no setting names. A registry that was tried once leaves its index behind
/// too, and cargo does not use that one again on its own.
fn default_of<T>(indexes: Vec<(Index, T)>) -> Read<Vec<(Index, T)>> {
    let (known, others): (Vec<_>, Vec<_>) =
        indexes.into_iter().partition(|(index, _)| DEFAULT_HASHES.contains(&index.hash.as_str()));
    if !known.is_empty() {
        return Ok(known);
    }
    if others.len() > 1 {
        let hosts: BTreeSet<_> = others.iter().map(|(index, _)| index.host.as_str()).collect();
        let hosts = hosts.into_iter().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "cargo has used several registries ({hosts}), and its settings do not say which is its default"
        ));
    }
    Ok(others)
}

/// Gives cargo the same settings inside, unless the toolchain `rust` shows them already.
fn settings(reader: &mut Reader<'_>, needs: &Needs) -> Read<()> {
    let mut all = Table::new();
    for setting in &needs.settings {
        if setting.key == "http.cainfo" {
            reader.set("CARGO_HTTP_CAINFO", &setting.value);
            continue;
        }
        // `source.NAME.registry`; a name may have dots of its own.
        let Some((kind, rest)) = setting.key.split_once('.') else { continue };
        let Some((name, field)) = rest.rsplit_once('.') else { continue };
        let kinds = all.entry(kind).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(names) = kinds else { continue };
        let fields = names.entry(name).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(fields) = fields {
            fields.insert(field.to_owned(), Value::String(setting.value.clone()));
        }
    }
    if !all.is_empty() {
        let text = toml::to_string(&all).map_err(|error| error.to_string())?;
        reader.show_made(text, "/home/nexus/.cargo/config.toml", "cargo's settings without logins");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(names: &[&str]) -> Read<Vec<String>> {
        let indexes = names.iter().map(|name| (Index::of(Path::new(name)).unwrap(), ())).collect();
        Ok(default_of(indexes)?.into_iter().map(|(index, ())| index.host).collect())
    }

    #[test]
    fn the_default_index_is_distinguished_from_what_was_tried_once() {
        let old = "old-mirror.test-0123456789abcdef";
        assert_eq!(picked(&["index.test-6f17d22bba15001f", old]).unwrap(), ["index.test"]);
        assert_eq!(picked(&[old, "index.test-1949cf8c6b5b557f"]).unwrap(), ["index.test"]);
        // A cargo of tomorrow has another hash.
        assert_eq!(picked(&["index.test-00000000deadbeef"]).unwrap(), ["index.test"]);
        let error = picked(&["index.test-00000000deadbeef", old]).unwrap_err();
        assert!(error.contains("index.test, old-mirror.test"), "{error}");
        assert_eq!(picked(&[]).unwrap(), [""; 0]);
    }
}
