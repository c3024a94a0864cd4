//! Reads the settings of pip.

use super::reader::{Read, Reader};
use nexus_policy::net::packages::{Needs, read_pip};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Reads the files in pip's own order, from the weakest; the sandbox gets the merged settings as variables. The file of a virtual
/// environment opens nothing: every install in it is a run that writes there.
pub(super) fn read(reader: &mut Reader<'_>) -> Read<Needs> {
    let mut variables = reader.variables("PIP_");
    let own = variables.remove("PIP_CONFIG_FILE");
    let mut files = Vec::new();
    // `/dev/null` means that no file counts.
    if own.as_deref() != Some("/dev/null") {
        let global = reader.host.text_of("XDG_CONFIG_DIRS").unwrap_or_else(|| "/etc/xdg".to_owned());
        files.extend(std::env::split_paths(&global).map(|directory| directory.join("pip/pip.conf")));
        files.push("/etc/pip.conf".into());
        files.extend(reader.host.home.iter().map(|home| home.join(".pip/pip.conf")));
        files.extend(reader.config().map(|config| config.join("pip/pip.conf")));
        files.extend(own.map(PathBuf::from));
    }
    let texts = reader.texts(&files)?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut needs = read_pip(&texts, &variables).map_err(|error| error.to_string())?;
    reader.add_default(&mut needs)?;
    for environment in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(environment) = reader.host.caller.variable(environment).map(PathBuf::from) {
            reader.name(&environment.join("pip.conf"), &needs, |text| read_pip(&[text], &BTreeMap::new()));
        }
    }
    let mut inside: BTreeMap<String, String> = BTreeMap::new();
    for setting in &needs.settings {
        let value = inside.entry(format!("PIP_{}", setting.key.to_uppercase().replace('-', "_"))).or_default();
        if !value.is_empty() {
            value.push(' ');
        }
        value.push_str(&setting.value);
    }
    for (name, value) in inside {
        reader.set(&name, &value);
    }
    Ok(needs)
}
