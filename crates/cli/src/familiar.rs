//! Words of other tools: flags of container engines and commands of version control that people write out of habit, and what does
//! the same here. Pure.

use std::ffi::OsString;

/// Flags of container engines, with what to write in their place.
const FLAGS: &[(&[&str], &str)] = &[
    (&["-e"], "--env NAME passes one of your variables on, and --env NAME=VALUE sets one"),
    (
        &["--volume", "--mount", "--bind"],
        "--ro SRC or --ro SRC:DST shows a path read-only, and --rw lets the command write to it",
    ),
    (&["--rm"], "leave it out: nothing of a sandbox stays after a run in the foreground"),
    (&["-i", "--interactive"], "leave it out: a pipe or a file is passed as standard input, and -t gives a terminal"),
    (&["--read-only"], "leave it out: all but the workspace, /tmp and $HOME is read-only"),
    (&["-w", "--workdir"], "--cwd DIR names a directory of the workspace, and --workspace DIR another workspace"),
    (&["-p", "--port"], "--publish HOSTPORT:PORT publishes a port of a run with --detach"),
    (&["--network"], "--net MODE chooses the network, and --allow HOST opens one host"),
    (&["-m"], "--memory SIZE limits the memory"),
    (
        &["-u", "--user", "--privileged", "--cap-add"],
        "no flag gives a command another user or more rights: it has those of its own sandbox",
    ),
];

/// Commands that people look for one level too high, or under the name of another tool.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["diff"], "nexus changes diff shows what waits as a patch; nexus run -- diff runs diff(1)"),
    (&["accept", "apply", "commit"], "nexus changes accept brings what waits to the workspace"),
    (&["reject", "discard"], "nexus changes reject throws away what waits"),
    (
        &["undo", "revert", "rollback"],
        "nexus changes undo takes a run with --live back, and nexus changes reject throws away what waits; what a run committed is in the workspace",
    ),
    (&["review", "pending"], "nexus changes list shows the runs that wait for a decision"),
    (&["status"], "nexus ps shows what runs, and nexus changes list what waits for a decision"),
    (&["list"], "nexus ps shows what runs, and nexus log past runs"),
    (&["history"], "nexus log shows past runs"),
    (&["kill"], "nexus stop ID ends a run with --detach"),
    (&["version"], "nexus --version prints it"),
];

/// Returns what to write in the place of a flag that only other tools have.
pub fn flag(name: &str) -> Option<&'static str> {
    found(FLAGS, name)
}

/// Returns what to write in the place of a command that only other tools have, or that is one of `changes`.
pub fn command(words: &[OsString]) -> Option<&'static str> {
    found(COMMANDS, words.first()?.to_str()?)
}

fn found(table: &[(&[&str], &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(names, _)| names.contains(&name)).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn no_word_of_other_tools_is_one_of_ours() {
        let cli = Cli::command();
        for name in COMMANDS.iter().flat_map(|(names, _)| *names) {
            assert!(cli.find_subcommand(name).is_none(), "{name}");
        }
        let run = cli.find_subcommand("run").unwrap();
        let is_ours = |name: &str| {
            let long = |argument: &clap::Arg| argument.get_long().is_some_and(|long| format!("--{long}") == name);
            let short = |argument: &clap::Arg| argument.get_short().is_some_and(|short| format!("-{short}") == name);
            run.get_arguments().any(|argument| long(argument) || short(argument))
        };
        for (names, what) in FLAGS {
            assert!(names.iter().all(|name| !is_ours(name)), "{names:?}");
            let named = what.split([' ', ':', ',']).filter(|word| word.starts_with('-'));
            named.for_each(|word| assert!(is_ours(word), "{what}: {word}"));
        }
    }

    #[test]
    fn every_command_that_is_named_is_there() {
        let cli = Cli::command();
        for (names, what) in COMMANDS {
            for call in what.split("nexus ").skip(1).filter(|call| !call.starts_with("--")) {
                let mut words = call.split([' ', ',', ';']);
                let first = cli.find_subcommand(words.next().unwrap());
                let first = first.unwrap_or_else(|| panic!("{names:?}: {call}"));
                let second = words.next().unwrap_or_default();
                assert!(!first.has_subcommands() || first.find_subcommand(second).is_some(), "{names:?}: {call}");
            }
        }
    }
}
