//! `nexus man` and `nexus completions`: what the shells and man(1) make of them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Bench, benches, stderr, stdout};

/// The names of all pages, as the summary in nexus(1) and its like lead to them.
fn reachable(folder: &Path, from: &str, found: &mut Vec<String>) {
    found.push(from.to_owned());
    let text = fs::read_to_string(folder.join(from)).unwrap().replace("\\-", "-");
    let Some((_, section)) = text.split_once(".SH SUBCOMMANDS\n") else { return };
    let section = section.split(".SH").next().unwrap();
    for name in section.lines().filter_map(|line| line.strip_suffix("(1)")) {
        reachable(folder, &format!("{name}.1"), found);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_manual_pages_lead_to_each_other_and_troff_has_nothing_to_say_about_them() {
    for bench in benches() {
        let folder = bench.home.join("share/man/man1");
        let output = bench.run(["man".as_ref(), folder.as_os_str()]);
        assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
        let written = names(&folder);
        assert!(stdout(&output).contains(&format!("{} manual pages", written.len())), "{}", stdout(&output));
        let mut found = Vec::new();
        reachable(&folder, "nexus.1", &mut found);
        found.sort();
        assert_eq!(found, written, "{}", bench.who());
        for known in ["nexus-run.1", "nexus-changes-accept.1", "nexus-receipt-keys-export.1", "nexus-man.1"] {
            assert!(found.iter().any(|name| name == known), "{known}");
        }
        for name in &written {
            let mut troff = bench.command("groff");
            let output = troff.args(["-man", "-ww", "-Tutf8", "-P-cbu"]).arg(folder.join(name)).output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", stderr(&output));
            let text = stdout(&output);
            assert!(text.contains("NAME") && text.contains("SYNOPSIS") && text.len() > 300, "{name}: {text}");
        }
        // The first page alone, on stdout.
        let first = bench.run(["man"]);
        assert_eq!(first.stdout, fs::read(folder.join("nexus.1")).unwrap());
    }
}

#[test]
fn manual_pages_replace_what_is_there_and_follow_no_link() {
    for bench in benches() {
        let folder = bench.workspace.join("man");
        fs::create_dir(&folder).unwrap();
        bench.give(&folder);
        let (outside, unfinished) = (bench.write("outside", "mine"), bench.write("unfinished", "mine"));
        symlink(&outside, folder.join("nexus.1")).unwrap();
        symlink(&unfinished, folder.join(".nexus-run.1.new")).unwrap();
        for _ in 0..2 {
            let output = bench.run(["man", "man"]);
            assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
        }
        for kept in [outside, unfinished] {
            assert_eq!(fs::read_to_string(&kept).unwrap(), "mine", "{}: {}", bench.who(), kept.display());
        }
        assert!(folder.join("nexus.1").symlink_metadata().unwrap().is_file());
        assert!(names(&folder).iter().all(|name| name.ends_with(".1")), "{:?}", names(&folder));
    }
}

#[test]
fn manual_pages_that_cannot_be_written_are_a_failure_that_says_where() {
    for bench in benches() {
        bench.write("file", "");
        fs::create_dir_all(bench.workspace.join("full/nexus-run.1/in the way")).unwrap();
        bench.give(&bench.workspace.join("full"));
        for (folder, at) in [("file", "file could not"), ("full", "full/nexus-run.1 could not"), ("/proc/x", "/proc/x")]
        {
            let output = bench.run(["man", folder]);
            let told = stderr(&output);
            assert_eq!((output.status.code(), told.lines().count()), (Some(125), 1), "{folder}: {told}");
            assert!(told.contains(at) && told.contains("a directory that you can write"), "{told}");
        }
        let left = names(&bench.workspace.join("full"));
        assert!(left.iter().all(|name| name.ends_with(".1")), "{left:?}");
    }
}

/// Returns the words that bash offers after these.
fn bash_offers(bench: &Bench, script: &Path, words: &[&str]) -> Vec<String> {
    let ask = "set -eu; . \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_LINE=\"$*\"
        COMP_POINT=${#COMP_LINE}; COMPREPLY=(); last=${COMP_WORDS[COMP_CWORD]}; before=${COMP_WORDS[COMP_CWORD-1]}
        complete -p nexus | grep -q -- '-F _nexus'; _nexus nexus \"$last\" \"$before\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = bench.command("bash");
    let output = bash.args(["--norc", "-c", ask, "bash"]).arg(script).args(words).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {}", stderr(&output));
    stdout(&output).lines().map(str::to_owned).collect()
}

fn script(bench: &Bench, shell: &str) -> PathBuf {
    let output = bench.run(["completions", shell]);
    assert!(output.status.success(), "{shell}: {}", stderr(&output));
    bench.write(shell, output.stdout)
}

#[test]
fn the_completion_script_of_bash_knows_the_commands_flags_and_values() {
    let bench = Bench::new(None);
    let script = script(&bench, "bash");
    let offers = |words: &[&str]| bash_offers(&bench, &script, words);
    let has = |words: &[&str], wanted: &[&str]| {
        let found = offers(words);
        for word in wanted {
            assert!(found.iter().any(|offer| offer == word), "{words:?}: no {word} in {found:?}");
        }
    };
    has(&["nexus", ""], &["run", "explain", "shell", "ps", "attach", "wait", "changes", "receipt", "man", "trust"]);
    has(&["nexus", "run", "--"], &["--profile", "--detach", "--publish", "--receipt", "--hide-secrets"]);
    has(&["nexus", "run", "--changes", ""], &["commit", "discard", "review", "ask"]);
    has(&["nexus", "run", "--profile", ""], &["default", "python", "git"]);
    has(&["nexus", "profile", "show", ""], &["default", "python", "git"]);
    has(&["nexus", "receipt", "keys", ""], &["list", "rotate", "export"]);
    assert_eq!(offers(&["nexus", "run", "--prof"]), ["--profile"]);
    let all = [offers(&["nexus", ""]), offers(&["nexus", "run", "--"])].concat();
    assert!(!all.iter().any(|word| word.contains("__")), "{all:?}");
}

#[test]
fn the_completion_scripts_of_zsh_and_fish_know_the_commands_and_flags_and_load() {
    let bench = Bench::new(None);
    for (shell, check, wanted) in [
        ("zsh", "emulate zsh; autoload -U compinit; compinit -u -D; . \"$1\"; whence -w _nexus", "--publish=["),
        ("fish", "source $argv[1]; complete -C 'nexus run --publ'", "-l publish "),
    ] {
        let script = script(&bench, shell);
        fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
        let text = fs::read_to_string(&script).unwrap();
        for word in ["receipt", "attach", "explain", wanted] {
            assert!(text.contains(word), "{shell}: no {word}");
        }
        assert!(!text.contains("__supervise"), "{shell}");
        // Not every machine has these shells; the words above are looked for on all.
        if Command::new(shell).args(["-c", "true"]).status().is_ok() {
            let mut command = bench.command(shell);
            command.args(["-c", check]).args((shell == "zsh").then_some("zsh")).arg(&script);
            let output = command.output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {}", stderr(&output));
            assert!(!output.stdout.is_empty(), "{shell} took the script and knows nothing");
        }
    }
}
