//! `NEXUS_LOG`: reports of the program's own work on standard error, for a person who looks for a fault. Off by default.
//!
//! An event has a fixed text and the fields that `cargo xtask check-log` lists: ids, numbers, codes of errors. Values of
//! variables, arguments of commands, content of files and paths inside of URLs are in none. Dependencies know no such rule,
//! so their events are never shown.

use crate::failure::Failure;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// The variable of the caller with the filter.
const VARIABLE: &str = "NEXUS_LOG";

/// Start of the names of all crates that report: `nexus` itself, `nexus_runner` and so on.
const OWN: &str = "nexus";

/// Reports from here on what the caller asked for.
pub fn start() -> Result<(), Failure> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(()) };
    let Some(filter) = text.to_str().and_then(filter) else {
        let message = format!("{VARIABLE}={} is not a filter", text.display());
        let hint =
            "Write a level (error, warn, info, debug, trace), or levels of crates: nexus_runner=debug,nexus=trace";
        return Err(Failure::usage("log", message, hint));
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let reporter = tracing_subscriber::registry().with(filter).with(lines);
    tracing::subscriber::set_global_default(reporter)
        .map_err(|error| Failure::refused("log", format!("{VARIABLE} has no effect: {error}"), ""))
}

/// Reads a level for all crates of this program, or a list of crates with a level each.
fn filter(text: &str) -> Option<Targets> {
    let mut filter = Targets::new();
    for part in text.split(',') {
        let (name, level) = part.split_once('=').unwrap_or((OWN, part));
        let (name, level) = (name.trim(), level.trim());
        // An empty level would be read as one for errors.
        if !name.starts_with(OWN) || level.is_empty() {
            return None;
        }
        let level: LevelFilter = level.parse().ok()?;
        filter = filter.with_target(name, level);
    }
    Some(filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_level_is_for_the_crates_of_this_program_alone() {
        let filter = filter("debug").unwrap();
        assert!(filter.would_enable("nexus_runner::run", &Level::DEBUG));
        assert!(filter.would_enable("nexus", &Level::DEBUG));
        assert!(!filter.would_enable("nexus", &Level::TRACE));
        assert!(!filter.would_enable("hickory_resolver", &Level::ERROR));
    }

    #[test]
    fn crates_have_levels_of_their_own() {
        let filter = filter("nexus_runner=trace, nexus=info").unwrap();
        assert!(filter.would_enable("nexus_runner::run", &Level::TRACE));
        assert!(!filter.would_enable("nexus_driver_namespace", &Level::DEBUG));
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        for text in ["loud", "nexus_runner=loud", "hickory_resolver=debug", "nexus_runner", "debug,,", "=debug"] {
            assert!(filter(text).is_none(), "{text}");
        }
    }
}
