//! `nexus trust` and `nexus untrust`.

use super::caller::caller;
use super::resolution::{chain, granted};
use crate::args::{TrustArgs, UntrustArgs};
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::terminal::out;
use nexus_policy::profile::{Origin, narrow};
use nexus_profiles::{ProfileStore, WorkspaceFile, workspace_file};
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::trust as store;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Shows what the workspace's file asks for, asks, and pins its content.
pub fn trust(args: &TrustArgs) -> u8 {
    done(agree(args))
}

/// Takes the pin away.
pub fn untrust(args: &UntrustArgs) -> u8 {
    let taken = || -> Result<String, Failure> {
        let (places, workspace) = here(args.workspace.as_deref())?;
        let name = one_line(&workspace.display().to_string());
        let was = store::unpin(&places, &workspace)?;
        Ok(if was { format!("{name} is no longer trusted\n") } else { format!("{name} was not trusted\n") })
    };
    done(taken())
}

fn done(result: Result<String, Failure>) -> u8 {
    let written = result.and_then(|text| {
        out::write_unless_closed(&mut std::io::stdout(), text.as_bytes())
            .map_err(|error| failures::not_written("the answer", &error))
    });
    match written {
        Ok(()) => 0,
        Err(failure) => failures::print_failure(&failure, false),
    }
}

fn here(named: Option<&Path>) -> Result<(StateDir, PathBuf), Failure> {
    let places = crate::host::state_dir()?;
    let workspace = crate::host::workspace(named, &places)?;
    Ok((places.ensure(&crate::host::here())?, workspace))
}

fn agree(args: &TrustArgs) -> Result<String, Failure> {
    let (places, workspace) = here(args.workspace.as_deref())?;
    let Some(file) = workspace_file::read(&workspace)? else {
        let message = format!("there is no {} in {}", workspace_file::NAME, workspace.display());
        return Err(Failure::refused("trust", message, "a workspace without one needs no trust"));
    };
    let text = asked_for(&file, &workspace)?;
    if args.show {
        let state = if store::is_trusted(&places, &workspace, &file.hash)? { "trusted" } else { "not trusted" };
        return Ok(format!("{text}This content is {state} (blake3 {}).\n", file.hash));
    }
    if !args.yes && !confirmed(&text)? {
        return Err(Failure::refused("trust", "nothing was trusted", "nexus trust --show prints it again"));
    }
    // The content that was shown, whatever the file holds by now.
    store::pin(&places, &workspace, &file.hash)?;
    Ok(format!("{} is trusted as it is now; a change of it is not\n", one_line(&file.path.display().to_string())))
}

/// Lists what the file asks for beyond the default profile, for people. Its text is hostile: it reaches the terminal
/// escaped.
fn asked_for(file: &WorkspaceFile, workspace: &Path) -> Result<String, Failure> {
    let mut shelf = ProfileStore::new(&caller(), Some(workspace));
    let base = granted(&chain(&mut shelf, &[("default".to_owned(), Origin::Standard)])?);
    // What it extends must exist, so that the question is about something.
    let extends = &file.loaded.document.extends;
    let wanted: Vec<_> = extends.iter().map(|(name, place)| (name.clone(), file.loaded.origin(*place))).collect();
    chain(&mut shelf, &wanted)?;
    let mut text = format!("{}\n", one_line(&file.path.display().to_string()));
    match narrow(&base, &file.loaded) {
        Ok(_) => text.push_str("  only takes away: it needs no trust\n"),
        Err(wider) => {
            for one in wider {
                let line = format!("  line {:>3}: would {}\n", one.place.line, one_line(&one.what));
                text.push_str(&line);
            }
        }
    }
    Ok(text)
}

fn confirmed(text: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let message = "no user can be asked here whether to trust this file";
        return Err(Failure::usage("trust", message, "look at nexus trust --show, and then say nexus trust --yes"));
    }
    let failed = |error: std::io::Error| Failure::refused("trust", format!("no user could be asked: {error}"), "");
    let mut out = std::io::stderr();
    write!(out, "{text}nexus: trust exactly this content? [y/N] ").and_then(|()| out.flush()).map_err(failed)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(failed)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
