//! A reject of an interrupted commit: takes it back, or keeps what it displaced where no command touches it.
//!
//! ```text
//!  journal and directory are there ─▶ taken back: the old version
//!  the directory is away           ─▶ refused; with --set-aside ─┐
//!  the journal cannot be followed  ──────────────────────────────┴▶ the layer moves to STATE/kept/RUN
//! ```
//! Until it is taken back, the layer of an interrupted commit has the only copy of what the commit displaced.

use crate::failure::{Failure, one_line};
use crate::run;
use nexus_layer::{Conflict, RecoverError, Stage, Workspace};
use nexus_runner::causes::chain;
use nexus_runner::recover::finish::forget;
use nexus_runner::recover::interrupted::Interrupted;
use nexus_runner::recover::retry::{is_busy, patiently};
use nexus_runner::recover::unsaid::KEPT;
use nexus_runner::recover::words::report_lines;
use nexus_runner::state::commit_lock;
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::identity::{DirectoryId, OpenSameError};
use std::path::{Path, PathBuf};

/// Result of taking a commit back.
#[derive(Debug)]
pub enum TakenBack {
    /// The directory has the old version, and the layer can be removed. What there is to say.
    Back(String),
    /// The layer is out of the way. What there is to say.
    Aside(String),
    /// Another command ended the commit meanwhile.
    Over,
}

/// Takes the commit back. `may_leave` allows to leave the directory as it is where that is not possible.
pub fn take_back(places: &StateDir, of: &Interrupted, may_leave: bool) -> Result<TakenBack, Failure> {
    let (run, layers) = (&of.run, &places.layers);
    let look = || patiently(|| nexus_layer::stage(layers, run), is_busy).map_err(|error| failed(run, &chain(&error)));
    let Stage::Decided(home) = look()? else { return Ok(TakenBack::Over) };
    let is_known = home.is_some();
    let home = home.map(|home| (home.path.as_path().to_owned(), DirectoryId::from(home.id)));
    let Some((path, folder)) = home.or_else(|| of.directory.clone()) else {
        return leave(places, run, None, None, "what it had decided cannot be read");
    };
    let directory = match folder.open_at(&path) {
        Ok(directory) => directory,
        Err(why) if may_leave || !is_known => return leave(places, run, Some(&path), None, &open_error(&why)),
        Err(why) => return Err(away(places, run, &path, &why)),
    };
    let _alone = commit_lock::lock(places, folder).map_err(|error| failed(run, &error.to_string()))?;
    let _held = run::hold_signals()?;
    // Who had the lock before may have ended the commit.
    if !matches!(look()?, Stage::Decided(_)) {
        return Ok(TakenBack::Over);
    }
    let error = match patiently(|| nexus_layer::roll_back(layers, run, &directory), is_busy) {
        Ok(conflicts) => return Ok(TakenBack::Back(back(&path, &conflicts))),
        Err(RecoverError::Applied { .. }) => match nexus_layer::recover(layers, run, &directory) {
            Ok(recovered) => {
                // The answer is a failure; what was done, and where versions are, is told before it.
                for line in report_lines(run, &path, &recovered) {
                    crate::notices::tell(&line);
                }
                forget(places, run).map_err(|why| failed(run, &why))?;
                let message = format!("the commit of the run {run} had been applied already, and is finished now");
                return Err(Failure::refused("recover", message, "nexus changes list shows what waits"));
            }
            Err(error) => error,
        },
        Err(error) => error,
    };
    if may_leave || cannot_be_followed(&error) {
        return leave(places, run, Some(&path), Some(&directory), &chain(&error));
    }
    Err(failed(run, &chain(&error)))
}

/// Reports whether a journal holds nothing that this version can carry out in this directory.
fn cannot_be_followed(error: &RecoverError) -> bool {
    let source = match error {
        RecoverError::Version { .. } | RecoverError::Foreign { .. } | RecoverError::HalfAside { .. } => return true,
        RecoverError::Io { source, .. } => source,
        _ => return false,
    };
    let is_decision = ["journal", "journal.done", "outcome"].iter().any(|name| source.path.0 == name.as_bytes());
    // An error of the system may be gone at the next try.
    let is_content = source.source.raw_os_error().is_none_or(|errno| errno == rustix::io::Errno::LOOP.raw_os_error());
    is_decision && is_content
}

fn open_error(why: &OpenSameError) -> String {
    match why {
        OpenSameError::Gone | OpenSameError::Other => format!("the directory is away: {why}"),
        OpenSameError::Io(error) => chain(error),
    }
}

fn failed(run: &str, why: &str) -> Failure {
    let message = format!("the interrupted commit of the run {run} cannot be taken back: {why}");
    let hint = format!(
        "nothing was removed; nexus changes recover --run {run} tries again, and --set-aside keeps what it displaced and \
         leaves the directory as it is"
    );
    Failure::refused("recover", message, hint)
}

fn away(places: &StateDir, run: &str, path: &Path, why: &OpenSameError) -> Failure {
    let message = format!(
        "the commit of the run {run} into {} was interrupted, and that directory cannot be used: {why}; its files may be \
         half old and half new, and only the layer has their old versions",
        path.display()
    );
    let hint = format!(
        "put the directory back and try again, or add --set-aside, which moves the layer to {} and leaves the directory as it is",
        kept(places).display()
    );
    Failure::refused("recover", message, hint)
}

/// Describes the directory after the commit was taken back, with the paths that were left as they are.
fn back(path: &Path, conflicts: &[Conflict]) -> String {
    let place = path.display();
    if conflicts.is_empty() {
        return one_line(&format!("The directory {place} is as it was before the commit.")) + "\n";
    }
    let mut text =
        one_line(&format!("The directory {place} is as it was before the commit, but for what changed in it since:"));
    for one in conflicts {
        let at = one.path.as_path().display();
        let line = match (&one.beside, &one.detail) {
            (Some(beside), _) => {
                format!("{at} is left as it is, and its other version is {}", beside.as_path().display())
            }
            (None, Some(detail)) => format!("{at} is left as it is: {detail}"),
            (None, None) => format!("{at} is left as it is"),
        };
        text.push_str("\n  ");
        text.push_str(&one_line(&line));
    }
    text + "\n"
}

/// Returns the directory of layers that were set aside.
fn kept(places: &StateDir) -> PathBuf {
    places.state.join(KEPT)
}

/// Leaves the directory as it is, and keeps the layer where no command touches it.
fn leave(
    places: &StateDir,
    run: &str,
    path: Option<&Path>,
    directory: Option<&Workspace>,
    why: &str,
) -> Result<TakenBack, Failure> {
    let set_aside = || nexus_layer::set_aside(&places.layers, run, &kept(places), directory);
    let aside = patiently(set_aside, is_busy).map_err(|error| failed(run, &chain(&error)))?;
    let Some(aside) = aside else { return Ok(TakenBack::Over) };
    let mut lines = vec![
        format!("The commit of the run {run} was interrupted and could not be taken back: {why}."),
        format!(
            "Nothing was removed. What the run left, and what the commit displaced, is in {}.",
            aside.layer.display()
        ),
    ];
    if let Some(staging) = aside.staging {
        lines.push(format!("More of it is in {}.", staging.display()));
    }
    if let Some(path) = path {
        lines.push(format!("Files of {} may be those of the run.", path.display()));
        if directory.is_none() {
            lines.push(format!(
                "Where that directory is now, .nexus-tmp-{run} in it may have more of what was displaced."
            ));
        }
    }
    lines.push("Nexus is done with it; remove it when you do not need it any more.".to_owned());
    forget(places, run).map_err(|why| failed(run, &why))?;
    Ok(TakenBack::Aside(lines.iter().map(|line| one_line(line) + "\n").collect()))
}
