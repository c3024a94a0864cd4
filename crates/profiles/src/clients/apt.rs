//! Reads apt. Inside, apt has the machine's sources and keys, and a state and cache of its own: `apt-get update` and
//! `apt-get download` work, and nothing of the host's lists is touched.

use super::reader::{Read, Reader, reported};
use nexus_model::network::HTTP_PORT;
use nexus_policy::net::packages::{Needs, read_apt_auth, read_apt_conf, read_apt_sources, read_deb822};
use std::path::{Path, PathBuf};

/// Directory inside for apt's state and cache. apt itself makes the directory, because its name ends in `apt`.
const OWN: &str = "/tmp/apt/";

pub(super) fn read(reader: &mut Reader<'_>) -> Read<Needs> {
    let mut needs = Needs::default();
    let etc = Path::new("/etc/apt");
    let lists = [vec![etc.join("sources.list")], within(reader, &etc.join("sources.list.d"), "list")?].concat();
    for path in &lists {
        if let Some(text) = reader.text(path)? {
            read_apt_sources(&mut needs, &text).map_err(|error| reported(path, &error))?;
        }
    }
    let stanzas = within(reader, &etc.join("sources.list.d"), "sources")?;
    for path in &stanzas {
        if let Some(text) = reader.text(path)? {
            read_deb822(&mut needs, &text).map_err(|error| reported(path, &error))?;
        }
    }
    if !needs.credentials.is_empty() {
        return Err("a line of its sources holds a login, which would be shown inside: move it to auth.conf.d".into());
    }
    let settings = [within(reader, &etc.join("apt.conf.d"), "")?, vec![etc.join("apt.conf")]].concat();
    for path in &settings {
        if let Some(text) = reader.text(path)? {
            read_apt_conf(&mut needs, &text).map_err(|error| reported(path, &error))?;
        }
    }
    let logins = [vec![etc.join("auth.conf")], within(reader, &etc.join("auth.conf.d"), "conf")?].concat();
    for path in &logins {
        if let Some(text) = reader.text(path)? {
            read_apt_auth(&mut needs, &text);
        }
    }
    for path in lists.iter().chain(&stanzas) {
        reader.show(path, "a source of apt");
    }
    for name in ["trusted.gpg", "trusted.gpg.d", "keyrings"] {
        reader.show(&etc.join(name), "keys of apt");
    }
    let mut text = format!(
        "Acquire::http::Proxy \"http://127.0.0.1:{HTTP_PORT}\";\nAcquire::https::Proxy \"http://127.0.0.1:{HTTP_PORT}\";\n\
         Dir::State \"{OWN}\";\nDir::Cache \"{OWN}\";\nDir::State::status \"/dev/null\";\n"
    );
    let settings = needs.settings.iter().filter(|setting| setting.key.to_ascii_lowercase().starts_with("acquire::"));
    text.extend(settings.map(|setting| format!("{} \"{}\";\n", setting.key, setting.value)));
    reader.show_made(text, "/etc/apt/apt.conf.d/00nexus", "apt's settings for the sandbox");
    Ok(needs)
}

/// Returns the files of a directory that apt reads, sorted: those with this ending, and for settings (an empty ending)
/// those with none or `.conf`.
fn within(reader: &Reader<'_>, directory: &Path, ending: &str) -> Read<Vec<PathBuf>> {
    let Some(directory) = reader.host.settings_directory(directory) else { return Ok(Vec::new()) };
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let has = path.extension().and_then(|text| text.to_str()).unwrap_or_default();
        if has == ending || (ending.is_empty() && has == "conf") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
