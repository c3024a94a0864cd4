//! The mistakes of the guide's page about messages: every one is made, and its message says what the page says.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use support::screen::Screen;
use support::{Bench, on_each_bench, skip, stderr, stdout};

/// Held by a test that gives the user control groups, and by one that demands that there are none.
static CONTROL_GROUPS: Mutex<()> = Mutex::new(());

/// One mistake of the page.
#[derive(Debug, PartialEq)]
struct Row {
    number: u32,
    command: String,
    user_alone: bool,
    /// The three cells behind the command.
    words: Vec<String>,
}

/// The rows of the tables: five cells; `\|` is a part of a cell.
fn rows(page: &str) -> Vec<Row> {
    let cells = |line: &str| -> Vec<String> {
        let line = line.replace(r"\|", "\u{1}");
        let inner = line.trim().trim_matches('|').to_owned();
        inner.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect()
    };
    let of_line = |line: &str| {
        let cells = cells(line);
        let number = cells.first()?.parse().ok()?;
        let (user_alone, command) = match cells[1].strip_prefix("user: ") {
            Some(command) => (true, command),
            None => (false, &*cells[1]),
        };
        let command = command.strip_prefix('`').unwrap().strip_suffix('`').unwrap().to_owned();
        Some(Row { number, command, user_alone, words: cells[2..].to_vec() })
    };
    page.lines().filter(|line| line.starts_with("| ")).filter_map(of_line).collect()
}

/// The script with which the page begins.
fn set_up(page: &str) -> &str {
    page.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0
}

fn said(bench: &Bench, script: &str) -> String {
    let program = bench.program().parent().unwrap();
    let mut command = bench.command("timeout");
    command.args(["--kill-after=5", "120", "/bin/sh", "-c", &format!("exec 2>&1; {script}")]);
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", program.display()));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = text.replace(bench.workspace.to_str().unwrap(), "/home/you/app");
    text.replace(bench.home.to_str().unwrap(), "/home/you")
}

/// Returns the first part of a cell that the message lacks, in order.
fn missing<'c>(cell: &'c str, mut text: &str) -> Option<&'c str> {
    for part in cell.split('…').map(str::trim) {
        match text.split_once(part) {
            Some((_, rest)) => text = rest,
            None => return Some(part),
        }
    }
    None
}

#[test]
fn every_message_says_what_happened_why_and_what_to_do() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/messages.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = rows(&page);
    let mut numbers: Vec<u32> = rows.iter().map(|row| row.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=50).collect::<Vec<_>>());
    let _held = CONTROL_GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    on_each_bench(|bench| {
        let first = said(&bench, &format!("set -eu; {}", set_up(&page)));
        assert_eq!(first, "hi\n");
        let mut wrong = Vec::new();
        for row in rows.iter().filter(|row| !row.user_alone || bench.who() != "root") {
            let text = said(&bench, &row.command);
            assert!(row.words.len() == 3 && row.words.iter().all(|cell| !cell.is_empty()), "{row:?}");
            for cell in &row.words {
                if let Some(part) = missing(cell, &text) {
                    wrong.push(format!("{}: $ {}\n  lacks {part:?}:\n{text}", row.number, row.command));
                }
            }
        }
        assert!(wrong.is_empty(), "{}: {}", bench.who(), wrong.join("\n"));
    });
}

#[test]
fn a_cell_that_is_not_said_is_found() {
    assert_eq!(missing("a … c", "a b c"), None);
    assert_eq!(missing("c … a", "a b c"), Some("a"));
    assert_eq!(missing("d", "a b c"), Some("d"));
    let row = rows("| 7 | user: `echo a \\| cat` | a | b | c |\n| # | x |\n|---|\n").pop().unwrap();
    assert_eq!((row.number, row.command.as_str(), row.user_alone, row.words.len()), (7, "echo a | cat", true, 3));
}

/// A program of the workspace.
fn program(bench: &Bench, name: &str, text: &str, mode: u32) {
    let path = bench.write(name, text);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_that_cannot_be_executed_says_why() {
    on_each_bench(|bench| {
        program(&bench, "plain", "#!/bin/sh\n", 0o644);
        program(&bench, "lost", "#!/opt/none/python3 -u\n", 0o755);
        program(&bench, "bare", "", 0o755);
        let hints = |command: &str| {
            let (document, _) = bench.json(["--", command]);
            let all = document["hints"].as_array().cloned().unwrap_or_default();
            all.iter().map(|hint| hint["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert!(hints("./plain").contains("chmod +x ./plain does"), "{}", hints("./plain"));
        assert!(hints("./lost").contains("names /opt/none/python3, and that is not there"), "{}", hints("./lost"));
        let whole = bench.workspace.join("lost");
        assert!(hints(whole.to_str().unwrap()).contains("/opt/none/python3"));
        // What leads out of the workspace, or is not a plain file, is not read.
        std::os::unix::fs::symlink("/etc/hostname", bench.workspace.join("out")).unwrap();
        assert!(bench.command("mkfifo").arg("fifo").status().unwrap().success());
        for other in ["./out", "./fifo", "./missing", "./bare"] {
            assert!(!hints(other).contains("is there"), "{}: {}", bench.who(), hints(other));
        }
    });
}

#[test]
fn a_linked_worktree_names_the_workspace_that_has_both() {
    on_each_bench(|bench| {
        let set_up = "git init -q -b main one && cd one && git -c user.name=A -c user.email=a@b.example commit -q \
                      --allow-empty -m one && git worktree add -q ../two";
        assert!(bench.command("sh").args(["-c", set_up]).status().unwrap().success());
        let two = bench.workspace.join("two");
        let commit =
            ["git", "-c", "user.name=A", "-c", "user.email=a@b.example", "commit", "-q", "--allow-empty", "-m", "x"];
        let mut refused = bench.nexus(["run", "--"]);
        let refused = refused.args(commit).current_dir(&two).output().unwrap();
        assert_eq!(refused.status.code(), Some(128), "{}", stderr(&refused));
        let flags = format!("--workspace {} --cwd {}", bench.workspace.display(), two.display());
        assert!(stderr(&refused).contains(&flags), "{}: {}", bench.who(), stderr(&refused));
        let mut done = bench.nexus(["run"]);
        let done = done.args(flags.split(' ')).arg("--").args(commit).current_dir(&two).output().unwrap();
        assert_eq!((done.status.code(), stderr(&done).as_str()), (Some(0), ""), "{}", bench.who());
        let log = bench.command("git").args(["-C", "two", "log", "--format=%s"]).output().unwrap();
        assert_eq!(stdout(&log), "x\none\n", "{}", bench.who());
    });
}

#[test]
fn the_advice_for_a_worktree_elsewhere_in_the_home_works() {
    on_each_bench(|bench| {
        let set_up = "cd && git init -q -b main main && cd main && git -c user.name=A -c user.email=a@b.example commit -q \
                      --allow-empty -m one && git worktree add -q ../away";
        assert!(bench.command("sh").args(["-c", set_up]).status().unwrap().success());
        let commit =
            ["git", "-c", "user.name=A", "-c", "user.email=a@b.example", "commit", "-q", "--allow-empty", "-m", "x"];
        let mut refused = bench.nexus(["run", "--"]);
        let refused = refused.args(commit).current_dir(bench.home.join("away")).output().unwrap();
        let told = stderr(&refused);
        assert_eq!(refused.status.code(), Some(128), "{told}");
        let (moves, rest) = told.split_once("Move it there: ").unwrap().1.split_once(". Then ").unwrap();
        assert!(bench.command("sh").args(["-c", moves]).status().unwrap().success(), "{moves}");
        let flags: Vec<&str> = rest.split(" has both").next().unwrap().split(' ').collect();
        let inside = Path::new(flags[3]);
        let mut done = bench.nexus(["run"]);
        let done = done.args(&flags).arg("--").args(commit).current_dir(inside).output().unwrap();
        assert_eq!((done.status.code(), stderr(&done).as_str()), (Some(0), ""), "{}", bench.who());
        let log = bench.command("git").arg("-C").arg(inside).args(["log", "--format=%s"]).output().unwrap();
        assert_eq!(stdout(&log), "x\none\n", "{}", bench.who());
    });
}

#[test]
fn a_commit_that_deletes_is_reported_where_no_user_is_asked() {
    on_each_bench(|bench| {
        bench.write("old", "x");
        bench.write("other", "x");
        assert_eq!(stderr(&bench.run(["run", "--shell", "echo y > other; echo z > new"])), "");
        let told = stderr(&bench.run(["run", "--shell", "rm old"]));
        assert!(told.starts_with("nexus: committed: 0 added, 0 modified, 1 deleted ("), "{}: {told}", bench.who());
        assert_eq!(stderr(&bench.run(["run", "--quiet", "--shell", "rm new"])), "");
        bench.write("kept", "x");
        let told = stderr(&bench.run(["run", "--changes", "discard", "--shell", "rm kept"]));
        assert_eq!(told, "", "nothing of the workspace is gone");
    });
}

#[test]
fn a_command_in_the_place_of_a_subcommand_is_named_with_its_call() {
    on_each_bench(|bench| {
        for words in [&["ls"][..], &["--", "ls"], &["ls", "-l"]] {
            let told = stderr(&bench.run(words));
            assert!(told.contains("nexus run -- ls runs a command in a sandbox"), "{words:?}: {told}");
        }
        assert!(!stderr(&bench.run(["runn"])).contains("nexus run -- runn"));
        let told = stderr(&bench.run(["run", "--env", "NEXUS_NOT_THERE", "--", "true"]));
        assert_eq!(told, "nexus: NEXUS_NOT_THERE is not set here, so that --env passed nothing on\n");
    });
}

#[test]
fn a_name_that_is_nearly_right_is_named() {
    on_each_bench(|bench| {
        let group = |name: &str| stderr(&bench.run(["run", "--allow-group", name, "--", "true"]));
        assert!(group("pip").contains("Did you mean pkg:pip?") && group("pkg:nmp").contains("Did you mean pkg:npm?"));
        assert!(!group("something-else").to_lowercase().contains("did you mean"));
        let started = bench.run(["run", "--detach", "--quiet", "--name", "server", "--", "sleep", "60"]);
        assert_eq!(started.status.code(), Some(0), "{}", stderr(&started));
        let told = stderr(&bench.run(["logs", "servr"]));
        assert!(told.contains("there is no sandbox servr; did you mean server?"), "{told}");
        assert!(!stderr(&bench.run(["logs", "other"])).contains("did you mean"));
        assert_eq!(bench.run(["rm", "--force", "server"]).status.code(), Some(0));
    });
}

#[test]
fn a_list_of_sandboxes_names_what_was_replaced_outside() {
    on_each_bench(|bench| {
        bench.write("read", "one");
        for (name, flags) in [("layered", &[][..]), ("direct", &["--direct"])] {
            let mut start = bench.nexus(["run", "--detach", "--quiet", "--name", name]);
            let started = start.args(flags).args(["--", "sh", "-c", "cat read; sleep 60"]).output().unwrap();
            assert_eq!(started.status.code(), Some(0), "{}", stderr(&started));
            bench.wait_for_state(name, "running");
        }
        assert_eq!(stderr(&bench.run(["ps"])), "", "{}", bench.who());
        // The start is known in milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        bench.write("read.new", "two");
        fs::rename(bench.workspace.join("read.new"), bench.workspace.join("read")).unwrap();
        let told = stderr(&bench.run(["ps"]));
        assert!(
            told.contains("layered: replaced or made outside since it started: read.") && !told.contains("direct: "),
            "{told}"
        );
        assert_eq!(
            (&bench.session("layered")["made_outside"], &bench.session("direct")["made_outside"]),
            (&1.into(), &serde_json::Value::Null)
        );
        assert_eq!(bench.run(["rm", "--force", "layered", "direct"]).status.code(), Some(0));
    });
}

#[test]
fn the_commands_of_doctor_give_what_was_missing() {
    if !support::needs_root() {
        return;
    }
    let _held = CONTROL_GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = Bench::new(Some(support::user()));
    let script = stdout(&bench.run(["doctor", "--commands"]));
    let commands: Vec<&str> = script.lines().filter(|line| !line.starts_with('#')).collect();
    let places: Vec<&str> = commands.iter().filter_map(|line| line.strip_prefix("mkdir -p ")).collect();
    if places.is_empty() || places.iter().any(|place| Path::new(place).exists()) {
        skip::skipped("nothing is missing here that a command gives");
        return;
    }
    let limited = || bench.run(["run", "--memory", "64M", "--", "true"]).status.code();
    assert_eq!(limited(), Some(125), "asking gave it");
    let run = bench.command_as_root("sh").args(["-eu", "-c", &script]).output().unwrap();
    assert!(run.status.success(), "{script}{}", stderr(&run));
    let given = limited();
    for place in places {
        fs::remove_dir(place).unwrap();
    }
    assert_eq!(given, Some(0), "{script}");
}

#[test]
fn the_prompt_of_a_shell_says_where_it_is() {
    for bench in support::benches() {
        for (flags, wanted) in
            [(&[][..], "P(nexus) $ P"), (&["--no-prompt"], "PnoP"), (&["--env", "PS1=mine> "], "Pmine> P")]
        {
            let mut screen = Screen::run(&bench, [&["shell", "--quiet"], flags, &["--", "sh"]].concat());
            screen.send("echo P${PS1-no}P | tr -d '#'; exit\n");
            let shown = if wanted == "PnoP" { "P$ P" } else { wanted };
            let is_there = |screen: &Screen| screen.shown().contains(wanted) || screen.shown().contains(shown);
            support::wait_until(wanted, std::time::Duration::from_secs(60), || is_there(&screen));
            assert_eq!(screen.shown().contains("(nexus)"), flags.is_empty(), "{}: {}", bench.who(), screen.shown());
            assert_eq!(screen.end().code(), Some(0));
        }
    }
}
