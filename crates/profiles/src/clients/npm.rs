//! Reads the settings of npm, and of yarn and pnpm, which read its files.

use super::reader::{Read, Reader};
use nexus_policy::net::packages::{Needs, read_npm};
use std::path::{Path, PathBuf};

/// Reads the files from the weakest to the strongest; inside, a file of the user gives the same settings. The project's
/// own file lies in the workspace: npm reads it inside, and it opens no host.
pub(super) fn read(reader: &mut Reader<'_>) -> Read<Needs> {
    let variables = reader.variables("");
    let of = |name: &str| {
        let mut all = variables.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        all.next().map(|(_, value)| PathBuf::from(value))
    };
    let mut files: Vec<PathBuf> = vec!["/etc/npmrc".into()];
    let prefix = |tool: crate::toolchains::Tool| tool.real.ancestors().nth(2).map(Path::to_owned);
    let beside_node = || reader.host.find(&["node"]).and_then(prefix).map(|prefix| prefix.join("etc/npmrc"));
    files.extend(of("npm_config_globalconfig").or_else(beside_node));
    let own = of("npm_config_userconfig").or_else(|| Some(reader.host.home.as_ref()?.join(".npmrc")));
    files.extend(own);
    let texts = reader.texts(&files)?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut needs = read_npm(&texts, &variables).map_err(|error| error.to_string())?;
    reader.add_default(&mut needs)?;
    let lines = needs.settings.iter().map(|setting| format!("{}={}\n", setting.key, setting.value));
    let text: String = lines.collect();
    if !text.is_empty() {
        reader.show_made(text, "/home/nexus/.npmrc", "npm's settings without logins");
    }
    Ok(needs)
}
