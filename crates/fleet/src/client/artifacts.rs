//! `nexus directive artifacts`: lists the kept files of a directive, and writes them into a new directory.
//!
//! The files are those of a hostile command, and the server is not this user: names are checked again, links are only
//! listed, each file is written below a directory that this command made, and only whole files with the announced hash get their name.

use crate::client::access::Access;
use crate::client::call::failure;
use crate::failure::{Failure, one_line};
use crate::print::{print, print_json};
use nexus_api::mothership::{Artifact, ArtifactList};
use nexus_facility::artifacts::safe_name;
use nexus_model::ids::DirectiveId;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time that the territory has to bring files after the end of the directive.
const BROUGHT_WITHIN: Duration = Duration::from_secs(30);
/// Time between two looks at the list.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Lists the files, or writes them into `output`.
pub fn command(access: &Access, id: DirectiveId, output: Option<&Path>, as_json: bool) -> Result<u8, Failure> {
    let Some(output) = output else {
        let list = access.wait(access.client.artifacts(id))?;
        return if as_json { print_json(&list) } else { print(lines(&list).as_bytes()) };
    };
    let list = brought(access, id)?;
    let failed = |error: io::Error| {
        let message = format!("{} cannot be written: {error}", output.display());
        Failure::refused("output", message, "Name a directory that does not exist yet.")
    };
    // Nothing that is there already is written over, and no link of another process is followed.
    DirBuilder::new().mode(0o755).create(output).map_err(failed)?;
    for artifact in &list.artifacts {
        write(access, id, artifact, output)?;
    }
    if as_json { print_json(&list) } else { print(lines(&list).as_bytes()) }
}

/// Waits until each announced file is whole: the territory brings them after the end of the directive.
fn brought(access: &Access, id: DirectiveId) -> Result<ArtifactList, Failure> {
    let deadline = Instant::now() + BROUGHT_WITHIN;
    loop {
        let list = access.wait(access.client.artifacts(id))?;
        let missing = missing(&list);
        if missing.is_empty() {
            return Ok(list);
        }
        if Instant::now() >= deadline {
            let message = format!("The territory has not brought {} yet", one_line(&missing.join(", ")));
            return Err(Failure::refused("artifact_incomplete", message, "Try again later."));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Names the files of the manifest that cannot be read yet.
fn missing(list: &ArtifactList) -> Vec<String> {
    let entries = list.manifest.as_ref().and_then(|manifest| manifest["artifacts"].as_array());
    let files =
        entries.into_iter().flatten().filter(|one| one["kind"] == "file").filter_map(|one| one["name"].as_str());
    let is_there = |name: &str| list.artifacts.iter().any(|one| one.name == name && one.complete);
    let unannounced = files.filter(|name| !is_there(name)).map(str::to_owned);
    let known: Vec<String> = unannounced.collect();
    let unfinished = list.artifacts.iter().filter(|one| !one.complete && !known.contains(&one.name));
    known.iter().cloned().chain(unfinished.map(|one| one.name.clone())).collect()
}

fn write(access: &Access, id: DirectiveId, artifact: &Artifact, output: &Path) -> Result<(), Failure> {
    let named = one_line(&artifact.name);
    let Some(name) = safe_name(artifact.name.as_bytes()) else {
        let message = format!("{named:?} is not the name of a kept file");
        return Err(Failure::refused("artifact_name", message, "The other files stay; this one is not written."));
    };
    let path = output.join(&name);
    let failed = |error: io::Error| {
        Failure::refused(
            "output",
            format!("{} cannot be written: {error}", path.display()),
            "make room and run it again",
        )
    };
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed)?;
    }
    let mut file = File::options().write(true).create_new(true).mode(0o644).open(&path).map_err(failed)?;
    let mut hash = blake3::Hasher::new();
    let mut size = 0u64;
    while size < artifact.size {
        let piece =
            access.drive(access.client.artifact(id, &artifact.artifact_id, size)).map_err(|error| failure(&error))?;
        if piece.is_empty() {
            break;
        }
        hash.update(&piece);
        file.write_all(&piece).map_err(failed)?;
        size += piece.len() as u64;
    }
    if size != artifact.size || hash.finalize().to_hex().as_str() != artifact.blake3 {
        std::fs::remove_file(&path).map_err(failed)?;
        let message = format!("the bytes of {named:?} do not have the announced hash");
        return Err(Failure::refused("artifact_hash", message, "run it again, with another directory"));
    }
    Ok(())
}

fn lines(list: &ArtifactList) -> String {
    let mut text = String::new();
    for one in &list.artifacts {
        let state = if one.complete { "" } else { "  (not whole yet)" };
        text +=
            &one_line(&format!("{}  {:>12}  {}{state}", one.blake3.get(..16).unwrap_or_default(), one.size, one.name));
        text.push('\n');
    }
    let manifest = list.manifest.as_ref();
    let entries = |name: &str| manifest.and_then(|manifest| manifest[name].as_array()).into_iter().flatten();
    for one in entries("artifacts").filter(|one| one["kind"] == "symlink") {
        let word = |name: &str| one[name].as_str().unwrap_or_default();
        text += &one_line(&format!("link {} -> {}", word("name"), word("target")));
        text.push('\n');
    }
    for one in entries("omitted") {
        let word = |name: &str| one[name].as_str().unwrap_or_default();
        text += &one_line(&format!("not kept: {}: {}", word("name"), word("why")));
        text.push('\n');
    }
    if text.is_empty() { "No kept files.\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(complete: bool) -> ArtifactList {
        serde_json::from_value(json!({
            "artifacts": [{"artifact_id": "i", "name": "a", "size": 3, "blake3": "00ff00ff00ff00ff00", "media_type": null,
                "complete": complete}],
            "manifest": {"artifacts": [{"kind": "file", "name": "a"}, {"kind": "file", "name": "b"},
                {"kind": "symlink", "name": "l", "target": "/x"}], "omitted": [{"name": "c\u{1b}", "why": "bad"}]},
        }))
        .unwrap()
    }

    #[test]
    fn files_that_are_announced_or_not_whole_are_waited_for() {
        assert_eq!(missing(&list(true)), ["b"]);
        assert_eq!(missing(&list(false)), ["a", "b"]);
    }

    #[test]
    fn a_list_shows_links_and_what_is_left_out_without_control_characters() {
        let text = lines(&list(true));
        assert!(text.contains("00ff00ff00ff00ff") && text.contains("link l -> /x") && text.contains("not kept: c"));
        assert!(!text.contains('\u{1b}'));
    }
}
