//! Developer commands of Nexus, called as `cargo xtask COMMAND`.
//!
//! | command | does |
//! |---|---|
//! | `ci` | everything that continuous integration checks |
//! | `test` | the parts of `ci` that run the product: build, tests, escape suite |
//! | `prepush` | the quick parts of `ci`, for every push |
//! | `check-deps` | who may depend on whom, and where `unsafe` may stand |
//! | `check-spec` | each test that SPECIFICATION.md names exists |
//! | `bench` | the figures of the README, beside every peer that is installed |
//! | `soak` | the long versions of tests that `ci` runs bounded |
//! | `demo` | an untrusted script in a sandbox, and what the host sees of it |
//!
//! To add a command: write a module with `pub fn run(&Workspace) -> Result<(), Failure>` and name it in [`COMMANDS`].
//! Exit codes: 0 done, 1 a check failed, 2 wrong usage.

#![forbid(unsafe_code)]

mod bench;
mod counts;
mod demo;
mod deps;
mod failure;
mod packages;
mod plans;
mod rules;
mod run;
mod soak;
mod sources;
mod spec;
mod spec_table;
mod workspace;

use std::process::ExitCode;

use failure::Failure;
use workspace::Workspace;

/// One command: its name, one line of help, and the function that does it.
type Command = (&'static str, &'static str, fn(&Workspace) -> Result<(), Failure>);

const COMMANDS: &[Command] = &[
    ("ci", "everything that continuous integration checks", plans::ci),
    ("test", "build, all tests, escape suite (installs missing Debian packages when root)", plans::test),
    ("prepush", "the quick checks, for every push", plans::prepush),
    ("check-deps", "who may depend on whom, and where unsafe may stand", deps::check),
    ("check-spec", "each test that SPECIFICATION.md names exists", spec::check),
    ("bench", "measure launches beside every peer that is installed", bench::run),
    ("soak", "the long versions of tests that ci runs bounded (about an hour)", soak::run),
    ("demo", "run an untrusted script in a sandbox and show what the host sees of it", demo::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = match arguments.as_slice() {
        [name] => COMMANDS.iter().find(|(known, _, _)| known == name),
        _ => None,
    };
    let Some((name, _, command)) = wanted else {
        eprintln!("usage: cargo xtask COMMAND\n");
        for (known, help, _) in COMMANDS {
            eprintln!("  {known:<12} {help}");
        }
        return ExitCode::from(2);
    };
    match Workspace::load().and_then(|workspace| command(&workspace)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.told {
                eprintln!("xtask {name}: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}
