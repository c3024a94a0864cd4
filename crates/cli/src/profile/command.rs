//! `nexus profile list|show|check|schema`.

use super::caller::caller;
use super::explain::{grants_json, grants_text};
use super::resolution::{chain, granted};
use crate::args::{ProfileAction, ProfileArgs};
use crate::failure::Failure;
use crate::failures;
use crate::terminal::out;
use nexus_policy::profile::{Library, Link, Origin, SCHEMA};
use nexus_profiles::{ProfileStore, document, workspace_file};
use serde_json::json;
use std::path::PathBuf;

/// The exit code of a check that found mistakes.
const MISTAKES: u8 = 1;

/// Runs it and returns the exit code.
pub fn command(args: &ProfileArgs) -> u8 {
    let result = match &args.action {
        ProfileAction::List { json } => list(*json).map(|text| (text, 0)),
        ProfileAction::Show { json, names } => show(names, *json).map(|text| (text, 0)),
        ProfileAction::Check { json, files } => check(files, *json),
        ProfileAction::Schema => Ok((SCHEMA.to_owned(), 0)),
    };
    let written = result.and_then(|(text, code)| {
        let out = out::write_unless_closed(&mut std::io::stdout(), text.as_bytes());
        out.map(|()| code).map_err(|error| failures::not_written("the answer", &error))
    });
    written.unwrap_or_else(|failure| failures::print_failure(&failure, false))
}

/// Each name once, with how many nearer ones of it there are.
fn links(names: &[(String, String)]) -> Vec<(Link, &str)> {
    let mut seen: Vec<&str> = Vec::new();
    let mut links = Vec::new();
    for (name, source) in names {
        let skip = seen.iter().filter(|known| **known == name).count();
        seen.push(name);
        links.push((Link { name: name.clone(), skip }, source.as_str()));
    }
    links
}

fn list(as_json: bool) -> Result<String, Failure> {
    let mut shelf = ProfileStore::new(&caller(), None);
    let names = shelf.list()?;
    let mut rows = Vec::new();
    for (link, source) in links(&names) {
        // A broken one is listed too; `check` says what is wrong with it.
        let description = match shelf.load(&link) {
            Ok(loaded) => loaded.and_then(|loaded| loaded.document.description).map(|(text, _)| text),
            Err(error) => Some(error.to_string()),
        };
        rows.push((link, source, description.unwrap_or_default()));
    }
    rows.sort_by(|a, b| (&a.0.name, a.0.skip).cmp(&(&b.0.name, b.0.skip)));
    if as_json {
        let all: Vec<_> = rows
            .iter()
            .map(|(link, source, text)| {
                json!({"name": link.name, "source": source, "replaced": link.skip > 0, "description": text})
            })
            .collect();
        return Ok(format!("{:#}\n", json!({"schema": "nexus.profiles/1", "profiles": all})));
    }
    let width = rows.iter().map(|(link, ..)| link.name.len()).max().unwrap_or_default();
    let line = |(link, source, text): &(Link, &str, String)| {
        let replaced = if link.skip > 0 { " (replaced)" } else { "" };
        let shown = crate::failure::one_line(text);
        format!("{:width$}  {shown}\n{:width$}    {source}{replaced}\n", link.name, "")
    };
    Ok(rows.iter().map(line).collect())
}

fn show(names: &[String], as_json: bool) -> Result<String, Failure> {
    let wanted: Vec<_> =
        names.iter().map(|name| (name.clone(), Origin::Flag("nexus profile show".to_owned()))).collect();
    let grants = granted(&chain(&mut ProfileStore::new(&caller(), None), &wanted)?);
    Ok(if as_json { format!("{:#}\n", grants_json(&grants)) } else { grants_text(&grants) })
}

fn check(files: &[PathBuf], as_json: bool) -> Result<(String, u8), Failure> {
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    if files.is_empty() {
        let mut shelf = ProfileStore::new(&caller(), None);
        let names = shelf.list()?;
        for (link, source) in links(&names) {
            let read = shelf.load(&link).map_err(Failure::from);
            let read = read.and_then(|_| chain(&mut shelf, &[(link.name.clone(), Origin::Standard)]));
            found.push((source.to_owned(), read.err().map(|failure| failure.message)));
        }
    }
    for path in files {
        let name = path.display().to_string();
        let read = workspace_file::text_of(path).map_err(|why| format!("{name} cannot be used: {why}"));
        let read =
            read.and_then(|text| document::read("profile", name.clone(), &text).map_err(|error| error.to_string()));
        found.push((name, read.err()));
    }
    let code = if found.iter().any(|(_, mistake)| mistake.is_some()) { MISTAKES } else { 0 };
    if as_json {
        let all: Vec<_> = found.iter().map(|(source, mistake)| json!({"source": source, "mistake": mistake})).collect();
        return Ok((format!("{:#}\n", json!({"schema": "nexus.profile-check/1", "files": all})), code));
    }
    let line = |(source, mistake): &(String, Option<String>)| match mistake {
        None => format!("ok       {source}\n"),
        Some(mistake) => format!("mistake  {}\n", crate::failure::one_line(mistake)),
    };
    Ok((found.iter().map(line).collect(), code))
}
