//! `nexus login`: remembers one control plane, in a file that only its user can read.

use crate::args::{LoginArgs, PlainArgs};
use crate::client::call::{failure, http, read_text, runtime};
use crate::failure::Failure;
use crate::print::print;
use nexus_api::client::{ListQuery, MothershipClient};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// The control plane that is remembered.
#[derive(Serialize, Deserialize)]
pub struct Login {
    /// Address of the control plane.
    pub server: String,
    /// The key of the user.
    pub api_key: String,
    /// Certificates that may sign that of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
    /// Another user whose server on loopback is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_uid: Option<u32>,
    /// The key goes in clear to any process that answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_http: bool,
}

/// Longest key and longest file, in bytes.
const MAX: u64 = 1 << 20;

fn place() -> Option<PathBuf> {
    crate::profiles::configuration_directory().map(|directory| directory.join("login.json"))
}

/// Reads it; `None` when there is none. A file that others can read is refused: the key in it is known to them.
pub fn read() -> Result<Option<Login>, Failure> {
    let Some(path) = place() else { return Ok(None) };
    let refused = |why: String| {
        let message = format!("The login in {} cannot be used: {why}", path.display());
        Failure::refused("login", message, "Use nexus login again.")
    };
    let file = File::options()
        .read(true)
        .custom_flags((rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits().cast_signed())
        .open(&path);
    let file = match file {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| refused(error.to_string()))?,
    };
    let meta = file.metadata().map_err(|error| refused(error.to_string()))?;
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
        return Err(refused("other users can read it, or it is not a file of yours".to_owned()));
    }
    let mut text = String::new();
    file.take(MAX).read_to_string(&mut text).map_err(|error| refused(error.to_string()))?;
    serde_json::from_str(&text).map(Some).map_err(|error| refused(error.to_string()))
}

/// Reads the key from standard input, tries it, and remembers it.
pub fn command(args: &LoginArgs) -> Result<u8, Failure> {
    let key = read_secret("the API key")?;
    let ca_pem = args.ca.as_deref().map(|file| read_text(file, "ca")).transpose()?;
    let http = http(&args.server, ca_pem.as_deref(), None, args.plain.rule())?;
    let client = MothershipClient::new(&http, &key).map_err(|error| failure(&error))?;
    let page = ListQuery { cursor: None, limit: Some(1) };
    runtime()?.block_on(client.directives(None, &page)).map_err(|error| failure(&error))?;
    let Some(path) = place() else {
        return Err(Failure::refused("login", "There is no directory for the configuration", "Set NEXUS_CONFIG_DIR."));
    };
    let PlainArgs { server_uid, insecure_http } = args.plain;
    let login = Login { server: args.server.clone(), api_key: key, ca_pem, server_uid, insecure_http };
    write(&path, &login).map_err(|error| {
        Failure::refused("login", format!("{} cannot be written: {error}", path.display()), "look at its directory")
    })?;
    print(format!("{} is remembered in {}.\n", args.server, path.display()).as_bytes())
}

fn write(path: &std::path::Path, login: &Login) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let hidden = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&hidden)?;
    let written = file.write_all(&serde_json::to_vec(login)?).and_then(|()| file.sync_all());
    match written.and_then(|()| std::fs::rename(&hidden, path)) {
        Ok(()) => Ok(()),
        Err(error) => {
            // The error that matters is the first one.
            std::fs::remove_file(&hidden).ok();
            Err(error)
        }
    }
}

/// Reads one line from standard input: a secret has no place among the arguments, which every user of the machine can see.
pub fn read_secret(what: &str) -> Result<String, Failure> {
    let mut text = String::new();
    io::stdin().lock().take(MAX).read_to_string(&mut text).map_err(|error| {
        Failure::usage("stdin", format!("{what} cannot be read from standard input: {error}"), "pass it by a pipe")
    })?;
    let line = text.lines().next().unwrap_or_default().trim().to_owned();
    if line.is_empty() {
        return Err(Failure::usage("stdin", format!("{what} is missing on standard input"), "pass it by a pipe"));
    }
    Ok(line)
}
