//! One manual page for each command: a pure function of the description of the command line.
//!
//! clap_mangen writes the sections that follow from flags; what no flag says (exit codes, files, variables) stands
//! here. The pages carry no date, so that the same program always gives the same bytes.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use std::io;

/// One page of the manual.
pub struct Page {
    /// The name of the page's file, for example `nexus-run.1`.
    pub name: String,
    /// The source of the page for troff with the `man` macros.
    pub text: Vec<u8>,
}

/// A name and its meaning, for the sections that are lists.
type Entry = (&'static str, &'static str);

const EXIT: &[Entry] = &[
    ("0", "done; or the command of a run ended with 0"),
    (
        "1",
        "nexus receipt verify: the receipt is not valid; nexus profile check, nexus policy check or test: mistakes were found; nexus policy explain: a question was answered with no; nexus policy command: the line is not safe",
    ),
    ("2", "wrong use; nothing was done"),
    ("124", "the time limit ended the command"),
    (
        "125",
        "Nexus refused, or failed before the command started; its output could not be written, and its changes are \
         parked; the disk limit was hit; or the command succeeded and its changes could not be committed",
    ),
    ("126, 127", "the command was found but cannot be executed; it was not found"),
    ("128+N", "signal N ended the command"),
    ("other", "that of the command"),
];

const ENVIRONMENT: &[Entry] = &[
    (
        "NEXUS_STATE_DIR",
        "the state directory; else /var/lib/nexus for root, $XDG_STATE_HOME/nexus or ~/.local/state/nexus for others",
    ),
    ("NEXUS_CONFIG_DIR", "takes the place of ~/.config/nexus and /etc/nexus"),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "take the place of ~/.config and ~/.local/state"),
    ("SHELL", "what nexus shell starts, where it lies in /bin or /usr/bin"),
    ("NEXUS_PROFILE", "none: without the toolchains that PATH leads to, as --profile none; auto: with them"),
    (
        "NEXUS_LOG",
        "what nexus reports of its own work on standard error: a level (debug), or nexus_runner=debug,nexus=trace",
    ),
    ("PATH", "where toolchains are searched; runs show them read-only"),
];

const FILES: &[Entry] = &[
    ("~/.config/nexus/profiles/NAME.yaml, /etc/nexus/profiles/NAME.yaml", "profiles"),
    ("~/.config/nexus/policy/NAME.yaml, /etc/nexus/policy/NAME.yaml", "policy documents; see nexus-policy(1)"),
    (".nexus-policy.yaml", "in a workspace: a policy document of the project, which only takes away"),
    ("/etc/nexus/config.toml", "the operator's ceilings"),
    ("nexus.yaml", "in a workspace: what the project asks for; see nexus-trust(1)"),
];

/// Renders all pages, that of the whole program first; without hidden commands.
pub fn pages(root: &Command) -> io::Result<Vec<Page>> {
    let mut root = root.clone();
    root.build();
    let version = format!("nexus {}", root.get_version().unwrap_or_default());
    let mut found = Vec::new();
    below(&root, None, &version, &mut found)?;
    Ok(found)
}

fn below(command: &Command, parent: Option<&str>, version: &str, found: &mut Vec<Page>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    found.push(Page { name: format!("{name}.1"), text: page(command, name, parent, version)? });
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        below(sub, Some(name), version, found)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str, parent: Option<&str>, version: &str) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    // Quoted by hand: an empty date that is left out would make the version the date.
    let title = name.to_uppercase();
    Roff::new().control("TH", [&*title, "1", "\"\"", version, "Nexus"]).to_writer(&mut out)?;
    let man = Man::new(command.clone());
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut out)?;
    }
    let mut own = Roff::new();
    if let Some(text) = command.get_after_help() {
        notes(&mut own, &text.to_string());
    }
    match parent {
        None => {
            list(&mut own, "EXIT STATUS", EXIT);
            list(&mut own, "ENVIRONMENT", ENVIRONMENT);
            list(&mut own, "FILES", FILES);
        }
        Some(parent) => {
            own.control("SH", ["SEE ALSO"]).text([bold(parent), roman("(1)")]);
        }
    }
    own.to_writer(&mut out)?;
    Ok(out)
}

/// Adds the text below the flags of `--help` as a section. Lines with an indent are examples and stay as they are;
/// the others are filled as text.
fn notes(roff: &mut Roff, text: &str) {
    roff.control("SH", ["NOTES"]);
    for line in text.lines() {
        if line.starts_with("Exit codes:") {
            roff.control("PP", []);
        }
        if line.trim().is_empty() {
            roff.control("PP", []);
        } else if line.starts_with(' ') {
            roff.text([Inline::LineBreak, roman(line)]);
        } else {
            roff.text([roman(line)]);
        }
    }
}

fn list(roff: &mut Roff, title: &str, entries: &[Entry]) {
    roff.control("SH", [title]);
    for (name, meaning) in entries {
        roff.control("TP", []).text([bold(*name)]).text([roman(*meaning)]);
    }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
