//! cargo: `config.toml` files, and the `config.json` of an index.

use super::endpoint::Endpoint;
use super::endpoint::{Credential, Login, Secret};
use super::needs::{DefaultIndex, Needs, PackagesError, Setting};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The source that a project without settings uses; the name of a table, not of a host.
const DEFAULT_SOURCE: &str = "crates-io";

/// Reads what cargo would: `files` from the weakest (home) to the strongest (nearest directory), then `CARGO_*` over
/// them.
pub fn read_cargo_config(files: &[&str], environment: &BTreeMap<String, String>) -> Result<Needs, PackagesError> {
    let mut merged = Table::new();
    for text in files {
        merge(&mut merged, text.parse::<Table>().map_err(|_| PackagesError::Form { form: "TOML" })?);
    }
    merge(&mut merged, from_environment(environment));
    let mut needs = Needs::default();
    if let Some(sources) = table(&merged, "source")? {
        read_sources(&mut needs, sources)?;
    }
    for (name, registry) in table(&merged, "registries")?.into_iter().flatten() {
        let key = format!("registries.{name}.index");
        let registry = registry.as_table().ok_or(PackagesError::Type { key: key.clone(), wanted: "table" })?;
        let Some(index) = text(registry, "index", &key)? else { continue };
        index_url(&mut needs, &key, index)?;
        if let Some(token) = text(registry, "token", &format!("registries.{name}.token"))? {
            let (endpoint, _) =
                Endpoint::parse(&key, plain(index)).map_err(|why| PackagesError::Endpoint { key: key.clone(), why })?;
            let login = Login::Token(Secret::new(token));
            needs.credentials.push(Credential { target: endpoint.target, path: endpoint.path, login });
        }
    }
    if let Some(http) = table(&merged, "http")? {
        if let Some(proxy) = text(http, "proxy", "http.proxy")?.filter(|proxy| !proxy.is_empty()) {
            needs.proxy("http.proxy", proxy)?;
        }
        if let Some(file) = text(http, "cainfo", "http.cainfo")? {
            needs.ca_file("http.cainfo", file);
        }
    }
    Ok(needs)
}

/// Reads settings from variables: `CARGO_HTTP_PROXY` is `http.proxy`, `CARGO_REGISTRIES_MY_INDEX_TOKEN` is
/// `registries.my-index.token`. Underscores in a name may have been dashes; only the host behind it matters here.
fn from_environment(environment: &BTreeMap<String, String>) -> Table {
    let mut found = Table::new();
    for (name, value) in environment.iter().filter(|(_, value)| !value.is_empty()) {
        let path = match name.as_str() {
            "CARGO_HTTP_PROXY" => vec!["http".to_string(), "proxy".into()],
            "CARGO_HTTP_CAINFO" => vec!["http".into(), "cainfo".into()],
            other => {
                let registry = other.strip_prefix("CARGO_REGISTRIES_").and_then(|rest| rest.rsplit_once('_'));
                let Some((registry, key @ ("INDEX" | "TOKEN"))) = registry else { continue };
                vec!["registries".into(), registry.to_ascii_lowercase().replace('_', "-"), key.to_ascii_lowercase()]
            }
        };
        let leaf = Value::String(value.clone());
        let nested = path.into_iter().rev().fold(leaf, |inner, key| Value::Table(Table::from_iter([(key, inner)])));
        if let Value::Table(nested) = nested {
            merge(&mut found, nested);
        }
    }
    found
}

/// Reads an index's `config.json`: packages are downloaded from `dl`, which may be another host than the index.
pub fn read_cargo_index(needs: &mut Needs, json: &str) -> Result<(), PackagesError> {
    let value: serde_json::Value = serde_json::from_str(json).map_err(|_| PackagesError::Form { form: "JSON" })?;
    let wrong = || PackagesError::Type { key: "dl".into(), wanted: "text" };
    let dl = value.get("dl").and_then(serde_json::Value::as_str).ok_or_else(wrong)?;
    // Its path may hold markers such as {crate}; only the host and the port are of interest.
    let endpoint = needs.endpoint("dl", dl)?;
    needs.endpoints.insert(endpoint);
    Ok(())
}

/// Follows the replacements from the default source, and takes every other source with an index besides.
fn read_sources(needs: &mut Needs, sources: &Table) -> Result<(), PackagesError> {
    let mut name = DEFAULT_SOURCE;
    let mut steps = 0;
    while let Some(next) = source(sources, name)?.map(|table| text(table, "replace-with", name)).transpose()?.flatten()
    {
        let key = format!("source.{name}.replace-with");
        needs.settings.insert(Setting { key, value: next.into() });
        needs.default_index = DefaultIndex::Settled;
        steps += 1;
        if !sources.contains_key(next) || steps > sources.len() {
            return Err(PackagesError::Replacement { name: name.into() });
        }
        name = next;
    }
    for name in sources.keys() {
        let Some(table) = source(sources, name)? else { continue };
        let key = format!("source.{name}.registry");
        if let Some(url) = text(table, "registry", &key)? {
            index_url(needs, &key, url)?;
            if name == DEFAULT_SOURCE {
                needs.default_index = DefaultIndex::Settled;
            }
        }
        let key = format!("source.{name}.git");
        if let Some(url) = text(table, "git", &key)? {
            needs.index(&key, url)?;
        }
        for local in ["directory", "local-registry"] {
            let key = format!("source.{name}.{local}");
            if let Some(path) = text(table, local, &key)? {
                needs.settings.insert(Setting { key, value: path.into() });
            }
        }
    }
    Ok(())
}

fn source<'a>(sources: &'a Table, name: &str) -> Result<Option<&'a Table>, PackagesError> {
    table(sources, name)
}

/// Strips `sparse+` and `registry+`, which are not part of the URL: they say how an index is read.
fn plain(url: &str) -> &str {
    url.strip_prefix("sparse+").or_else(|| url.strip_prefix("registry+")).unwrap_or(url)
}

fn index_url(needs: &mut Needs, key: &str, url: &str) -> Result<(), PackagesError> {
    let bare = plain(url);
    if bare.starts_with("file:") {
        return Ok(());
    }
    let endpoint = needs.endpoint(key, bare)?;
    let prefix = &url[..url.len() - bare.len()];
    needs.settings.insert(Setting { key: key.into(), value: format!("{prefix}{}", endpoint.url()) });
    needs.endpoints.insert(endpoint);
    Ok(())
}

fn table<'a>(within: &'a Table, key: &str) -> Result<Option<&'a Table>, PackagesError> {
    match within.get(key) {
        None => Ok(None),
        Some(Value::Table(found)) => Ok(Some(found)),
        Some(_) => Err(PackagesError::Type { key: key.into(), wanted: "table" }),
    }
}

fn text<'a>(within: &'a Table, key: &str, full: &str) -> Result<Option<&'a str>, PackagesError> {
    match within.get(key) {
        None => Ok(None),
        Some(Value::String(found)) => Ok(Some(found)),
        Some(_) => Err(PackagesError::Type { key: full.into(), wanted: "text" }),
    }
}

fn merge(weak: &mut Table, strong: Table) {
    for (key, value) in strong {
        match (weak.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(more)) => merge(inner, more),
            (_, value) => {
                weak.insert(key, value);
            }
        }
    }
}
