//! Reads the settings of npm, and of yarn and pnpm, which read its files.

use super::reader::{Read, Reader};
use crate::toolchains::is_system;
use nexus_policy::net::packages::{Needs, read_npm};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Reads the files from the weakest to the strongest; inside, a file of the user gives the same settings. The project's
/// own file lies in the workspace: npm reads it inside, and it opens no host. The global file counts beside the `node` of
/// the system alone.
pub(super) fn read(reader: &mut Reader<'_>) -> Read<Needs> {
    let variables = reader.variables("");
    let of = |name: &str| {
        let mut all = variables.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        all.next().map(|(_, value)| PathBuf::from(value))
    };
    let mut files: Vec<PathBuf> = vec!["/etc/npmrc".into()];
    let mut others = vec![reader.host.workspace.join(".npmrc")];
    match of("npm_config_globalconfig") {
        Some(named) => files.push(named),
        None => match beside_node(reader) {
            Some((file, true)) => files.push(file),
            Some((file, false)) => others.push(file),
            None => {}
        },
    }
    let own = of("npm_config_userconfig").or_else(|| Some(reader.host.home.as_ref()?.join(".npmrc")));
    files.extend(own);
    let texts = reader.texts(&files)?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut needs = read_npm(&texts, &variables).map_err(|error| error.to_string())?;
    reader.add_default(&mut needs)?;
    for file in others {
        reader.name(&file, &needs, |text| read_npm(&[text], &BTreeMap::new()));
    }
    let lines = needs.settings.iter().map(|setting| format!("{}={}\n", setting.key, setting.value));
    let text: String = lines.collect();
    if !text.is_empty() {
        reader.show_made(text, "/home/nexus/.npmrc", "npm's settings without logins");
    }
    Ok(needs)
}

/// Returns npm's global settings, which lie beside the first `node` on PATH, and whether that is the system's own.
fn beside_node(reader: &Reader<'_>) -> Option<(PathBuf, bool)> {
    let path = reader.host.caller.variable("PATH")?;
    let entry = std::env::split_paths(path).find(|entry| entry.is_absolute() && entry.join("node").exists())?;
    let file = |installation: &Path| installation.join("etc/npmrc");
    match reader.host.installation(&entry) {
        Some(system) if is_system(&system) => {
            let file = file(&system);
            let is_of_system = reader.host.of_installation(&file).is_some();
            Some((file, is_of_system))
        }
        _ => Some((file(entry.parent()?), false)),
    }
}
