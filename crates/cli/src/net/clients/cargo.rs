//! cargo.

use super::{Read, Reader, told, variables};
use nexus_policy::net::packages::{DefaultIndex, Needs, read_cargo_config, read_cargo_index};
use nexus_policy::net::{Host, Target};
use std::path::Path;
use toml::{Table, Value};

/// Reads the user's settings and the indexes that cargo has used: it keeps a folder `HOST-HASH` for each, and what an
/// index says about downloads may be another host.
pub(super) fn read(reader: &mut Reader<'_>) -> Read<Needs> {
    let home = reader.host.folder_of("CARGO_HOME").or_else(|| reader.host.in_home(".cargo"));
    let home = home.ok_or("cargo has no folder in your home: it was never used")?;
    let texts = match reader.text(&home.join("config.toml"))? {
        Some(text) => vec![text],
        None => reader.texts(&[home.join("config")])?,
    };
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut needs = read_cargo_config(&texts, &variables("CARGO_")).map_err(|error| error.to_string())?;
    indexes(reader, &home.join("registry/index"), &mut needs)?;
    if needs.default_index == DefaultIndex::Ask {
        return Err("cargo has used no registry yet, so nobody knows its hosts: run cargo fetch outside once".into());
    }
    settings(reader, &needs)?;
    Ok(needs)
}

fn indexes(reader: &Reader<'_>, folder: &Path, needs: &mut Needs) -> Read<()> {
    let Some(folder) = reader.host.folder(folder) else { return Ok(()) };
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let asks = needs.default_index == DefaultIndex::Ask;
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some((host, _)) = name.to_str().and_then(|name| name.rsplit_once('-')) else { continue };
        let is_of = |target: &Target| Host::parse(host).is_ok_and(|host| host == target.host);
        if !needs.endpoints.iter().any(|endpoint| is_of(&endpoint.target)) {
            if !asks {
                // An index of earlier settings.
                continue;
            }
            needs.add_default(host).map_err(|error| told(&entry.path(), &error))?;
        }
        let about = entry.path().join("config.json");
        if let Some(text) = reader.text(&about)? {
            read_cargo_index(needs, &text).map_err(|error| told(&about, &error))?;
        }
    }
    Ok(())
}

/// The same settings inside, unless the toolchain `rust` shows them already.
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
