//! Developer commands of Nexus, called as `cargo xtask COMMAND`.
//!
//! | command | does |
//! |---|---|
//! | `ci` | everything that continuous integration checks |
//! | `test` | the parts of `ci` that run the product: build, tests, escape suite |
//! | `tests` | the test programs of `test`, several at a time |
//! | `prepush` | the quick parts of `ci`, for every push |
//! | `check-deps` | who may depend on whom, and where `unsafe` may stand |
//! | `check-deny` | licences, bans and sources of the dependencies |
//! | `check-log` | events of the log have no values of a caller |
//! | `check-waits` | the host side waits for nothing that a sandbox holds without a bound |
//! | `check-spec` | each test that SPECIFICATION.md names exists |
//! | `check-schema` | the served documents are those of docs/protocol |
//! | `sync-schema` | writes the served documents from docs/protocol |
//! | `check-words` | doc comments, messages and names are plain English with the words of the field |
//! | `bench` | the figures of docs/performance.md, beside every peer that is installed |
//! | `vm` | cgroup v2 and an older kernel, in a virtual machine |
//! | `registries` | where this machine's package clients go, as an operator's settings for the tests |
//! | `soak` | the long versions of tests that `ci` runs bounded |
//! | `fuzz` | the readers of hostile bytes under a coverage-guided fuzzer |
//! | `powerloss` | the power goes in the middle of commits, on disks whose writes are logged |
//! | `faults` | system calls of commits fail, or are the last ones of the process |
//! | `order` | the script by which the linker places what a run executes |
//! | `demo` | an untrusted script in a sandbox, and what the host sees of it |
//!
//! To add a command: write a module with `pub fn run(&Workspace) -> Result<(), Failure>` and name it in [`COMMANDS`].
//! Exit codes: 0 done, 1 a check failed, 2 wrong usage.

#![forbid(unsafe_code)]

mod bounded;
mod circles;
mod counts;
mod crate_table;
mod demo;
mod deny;
mod deps;
mod failure;
mod faults;
#[path = "../../tests/support/free_user.rs"]
mod free_user;
#[cfg(test)]
mod free_user_tests;
mod fuzz;
mod lanes;
mod link_order;
mod log_rule;
mod packages;
mod plans;
mod powerloss;
mod random;
mod registries;
mod release;
mod rules;
mod run;
mod rust_text;
mod schema;
mod soak;
mod sources;
mod spec;
mod spec_table;
mod tree;
mod waits;
mod waits_allowed;
mod words;
mod words_allowed;
mod words_list;
#[cfg(test)]
mod words_tests;
mod workspace;
mod world;

use std::process::ExitCode;

use failure::Failure;
use workspace::Workspace;

/// One command: its name, one line of help, and the function that does it.
type Command = (&'static str, &'static str, Does);

/// Function of a command, with or without arguments.
enum Does {
    /// Takes no arguments.
    Plain(fn(&Workspace) -> Result<(), Failure>),
    /// Takes the words behind its name.
    WithWords(fn(&Workspace, &[String]) -> Result<(), Failure>),
}

const COMMANDS: &[Command] = &[
    ("ci", "everything that continuous integration checks", Does::Plain(plans::ci)),
    ("test", "build, all tests, escape suite (installs missing Debian packages when root)", Does::Plain(plans::test)),
    ("tests", "the test programs alone, several at a time", Does::Plain(plans::test_programs)),
    ("prepush", "the quick checks, for every push", Does::Plain(plans::prepush)),
    ("check-deps", "who may depend on whom, and where unsafe may stand", Does::Plain(deps::check)),
    ("check-deny", "licences, bans and sources of the dependencies, by deny.toml", Does::Plain(deny::check)),
    ("check-log", "events of the log hold no value of a caller", Does::Plain(log_rule::check)),
    ("check-waits", "the host side waits for nothing that a sandbox holds", Does::Plain(waits::check)),
    ("check-spec", "each test that SPECIFICATION.md names exists", Does::Plain(spec::check)),
    ("check-schema", "the served documents are those of docs/protocol", Does::Plain(schema::check)),
    ("sync-schema", "write the served documents from docs/protocol", Does::Plain(schema::sync)),
    ("check-words", "plain English in doc comments, messages and names: [CRATE]", Does::WithWords(words::run)),
    ("bench", "measure the targets beside every peer that is installed", Does::WithWords(plans::bench)),
    ("vm", "cgroup v2 limits and the oldest kernel, in a virtual machine", Does::Plain(plans::vm)),
    ("registries", "write down for the tests where this machine's package clients go", Does::Plain(registries::write)),
    ("soak", "the long versions of tests that ci runs bounded (some hours)", Does::Plain(soak::run)),
    ("fuzz", "the readers of hostile bytes under libFuzzer: [TARGET] [--seconds N]", Does::WithWords(fuzz::run)),
    ("powerloss", "cut the power in the middle of commits: [--images N] [--seed N] …", Does::WithWords(powerloss::run)),
    ("faults", "let system calls of commits fail: [--seed N] [--runs N] [--all] …", Does::WithWords(faults::run)),
    ("order", "write the order of the functions for the linker: MAP NAMES", Does::WithWords(link_order::run)),
    ("demo", "run an untrusted script in a sandbox and show what the host sees of it", Does::Plain(demo::run)),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (first, words) = arguments.split_first().map_or(("", &[][..]), |(first, words)| (first.as_str(), words));
    let wanted = COMMANDS
        .iter()
        .find(|(known, _, does)| *known == first && (words.is_empty() || matches!(does, Does::WithWords(_))));
    let Some((name, _, command)) = wanted else {
        eprintln!("usage: cargo xtask COMMAND\n");
        for (known, help, _) in COMMANDS {
            eprintln!("  {known:<12} {help}");
        }
        return ExitCode::from(2);
    };
    let done = Workspace::load().and_then(|workspace| match command {
        Does::Plain(command) => command(&workspace),
        Does::WithWords(command) => command(&workspace, words),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.printed {
                eprintln!("xtask {name}: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}
