//! `nexus man`: the manual pages, made from the same description of the command line that parses it.
//!
//! ```text
//!  args ─▶ pages (pure: one page for each command) ─▶ stdout: nexus(1) alone
//!                                                 └─▶ DIR/nexus.1, DIR/nexus-run.1, …
//! ```

mod pages;

use crate::args::Cli;
use crate::failure::{Failure, one_line};
use crate::failures::not_written;
use crate::failures::print_failure;
use crate::terminal::out::write_unless_closed;
use clap::CommandFactory;
use pages::{Page, pages};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// `nexus man`; the exit code.
pub fn command(directory: Option<&Path>) -> u8 {
    let printed = match directory {
        Some(directory) => write_all(directory),
        None => first(),
    };
    let written = printed.and_then(|text| {
        write_unless_closed(&mut io::stdout(), &text).map_err(|error| not_written("the manual page", &error))
    });
    match written {
        Ok(()) => 0,
        Err(failure) => print_failure(&failure, false),
    }
}

fn all() -> Result<Vec<Page>, Failure> {
    pages(&Cli::command()).map_err(|error| {
        Failure::refused("man", format!("the manual pages could not be made: {error}"), "report this as a defect")
    })
}

fn first() -> Result<Vec<u8>, Failure> {
    Ok(all()?.into_iter().next().map(|page| page.text).unwrap_or_default())
}

/// Writes all pages and says what can be done with them.
fn write_all(directory: &Path) -> Result<Vec<u8>, Failure> {
    let refuse = |path: &Path, error: io::Error| {
        let message = format!("{} could not be written: {error}", path.display());
        Failure::refused("man", message, "name a directory that you can write")
    };
    let pages = all()?;
    fs::create_dir_all(directory).map_err(|error| refuse(directory, error))?;
    for page in &pages {
        put(directory, page).map_err(|error| refuse(&directory.join(&page.name), error))?;
    }
    let example = directory.join("nexus.1");
    let example = if example.is_absolute() { example } else { Path::new(".").join(example) };
    let summary =
        format!("{} manual pages in {}; look at one: man {}", pages.len(), directory.display(), example.display());
    Ok(format!("{}\n", one_line(&summary)).into_bytes())
}

/// Writes one page in place of an older one. A sandboxed command may have written to the directory: a link under the
/// page's name is replaced and never followed, and `O_EXCL` follows none under the name that it has until then.
fn put(directory: &Path, page: &Page) -> io::Result<()> {
    let unfinished = directory.join(format!(".{}.new", page.name));
    match fs::remove_file(&unfinished) {
        // Left by one that was killed.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
    let placed = file.write_all(&page.text).and_then(|()| fs::rename(&unfinished, directory.join(&page.name)));
    if placed.is_err() {
        fs::remove_file(&unfinished)?;
    }
    placed
}
