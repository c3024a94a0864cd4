//! Commands with a terminal: one of their own, with the caller's as screen and keys.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;
use support::screen::Screen;
use support::{Bench, benches, stderr};

/// Prompt of a shell in a sandbox.
const PROMPT: &str = "(nexus) $ ";

fn screens(arguments: &[&str]) -> Vec<(Bench, Screen)> {
    benches()
        .into_iter()
        .map(|bench| {
            let screen = Screen::run(&bench, arguments);
            (bench, screen)
        })
        .collect()
}

#[test]
fn a_command_with_a_terminal_has_its_own_of_the_callers_size_and_resizes_arrive() {
    let script = "tty; stty size; trap 'stty size; exit 7' WINCH; echo ready $TERM; while :; do sleep 0.05; done";
    for (bench, mut screen) in screens(&["run", "--tty", "--changes", "commit", "--shell", script]) {
        screen.wait_for("ready xterm");
        assert!(screen.shown().contains("/dev/pts/0") && screen.shown().contains("24 80"), "{}", screen.shown());
        screen.resize(40, 132);
        screen.wait_for("40 132");
        assert_eq!(screen.end().code(), Some(7), "{}", bench.who());
        screen.assert_as_before(bench.who());
    }
}

#[test]
fn keys_go_inside_and_ctrl_c_interrupts_only_what_is_in_front() {
    for (bench, mut screen) in screens(&["run", "--tty", "--changes", "commit", "--", "sh", "-i"]) {
        screen.send("sleep 1000 & echo in$((1+1))back\n");
        screen.wait_for("in2back");
        screen.send("echo wa$((0))it; cat\n");
        screen.wait_for("wa0it");
        screen.send("typed\n");
        screen.wait_for("typed\r\ntyped");
        let prompts = screen.shown().matches(PROMPT).count();
        screen.send("\x03");
        screen.wait_for("^C");
        // The interrupt drops what was typed and not read, also what comes before the shell has seen it.
        screen.wait_for_count(PROMPT, prompts + 1);
        screen.send("echo still $((40+2)) here; kill -0 %1 && echo job al$((0))ive; exit 3\n");
        screen.wait_for("still 42 here");
        screen.wait_for("job al0ive");
        assert_eq!(screen.end().code(), Some(3), "{}: {}", bench.who(), screen.shown());
        assert!(screen.child.id() > 0 && !screen.shown().contains("Terminated"), "{}", screen.shown());
    }
}

#[test]
fn a_shell_settles_its_changes_as_a_run_does() {
    for (bench, mut screen) in screens(&["shell"]) {
        screen.send("echo made > made; exit\n");
        screen.wait_for("discard?");
        assert!(!screen.is_raw(), "the question is asked on a terminal as it was before");
        screen.send("c\n");
        assert_eq!(screen.end().code(), Some(0), "{}", screen.shown());
        assert_eq!(fs::read_to_string(bench.workspace.join("made")).unwrap(), "made\n", "{}", bench.who());
    }
}

#[test]
fn what_is_typed_before_the_question_does_not_decide() {
    for bench in benches() {
        let mut screen = Screen::run(&bench, ["run", "--shell", "echo made > made; printf '\\033[8m'"]);
        screen.send("c\n");
        screen.wait_for("discard?");
        screen.send("x\n");
        assert_eq!(screen.end().code(), Some(0), "{}", screen.shown());
        assert!(!bench.workspace.join("made").exists(), "{}: {}", bench.who(), screen.shown());
        assert!(screen.shown().contains("\u{1b}[0mnexus: 1 added"), "{}", screen.shown());
    }
}

#[test]
fn an_answer_at_the_first_sight_of_the_changes_does_not_count() {
    for bench in benches() {
        let mut screen = Screen::run(&bench, ["run", "--shell", "echo made > made"]);
        screen.wait_for("1 added");
        // A key of the moment, as to a question that the command drew before.
        std::thread::sleep(Duration::from_millis(200));
        screen.send("c\nc");
        screen.wait_for("discard?");
        assert!(!bench.workspace.join("made").exists(), "{}: {}", bench.who(), screen.shown());
        screen.send("x\n");
        assert_eq!(screen.end().code(), Some(0), "{}", screen.shown());
        assert!(!bench.workspace.join("made").exists(), "{}: {}", bench.who(), screen.shown());
    }
}

#[test]
fn a_signal_in_the_first_moment_of_the_question_keeps_the_changes() {
    for (bench, mut screen) in screens(&["run", "--shell", "echo made > made; exit 3"]) {
        screen.wait_for("1 added");
        screen.kill(Signal::TERM);
        assert_eq!(screen.end().code(), Some(3), "{}: {}", bench.who(), screen.shown());
        assert!(!screen.shown().contains("discard?"), "{}: {}", bench.who(), screen.shown());
        let list = String::from_utf8(bench.run(["changes", "list"]).stdout).unwrap();
        assert!(!list.starts_with("No changes"), "{}: {list}", bench.who());
    }
}

#[test]
fn who_ends_nexus_at_the_question_keeps_the_changes_for_a_review_and_the_receipt() {
    let after = ["ctrl-c", "ctrl-d", "term", "hangup"];
    for how in after {
        for (bench, mut screen) in screens(&["run", "--shell", "echo made > made; exit 3"]) {
            screen.wait_for("discard?");
            match how {
                "ctrl-c" => screen.send("\x03"),
                "ctrl-d" => screen.send("\x04"),
                "term" => screen.kill(Signal::TERM),
                _ => screen.hang_up(),
            }
            let who = format!("{} {how}", bench.who());
            assert_eq!(screen.end().code(), Some(3), "{who}: the code is the command's: {}", screen.shown());
            assert!(!bench.workspace.join("made").exists(), "{who}");
            let reviewed = String::from_utf8(bench.run(["changes", "list"]).stdout).unwrap();
            assert!(!reviewed.starts_with("No changes"), "{who}: {reviewed}");
            let receipt = bench.run(["receipt", "verify", "--chain"]);
            assert_eq!(receipt.status.code(), Some(0), "{who}: {}", stderr(&receipt));
            let log: serde_json::Value = serde_json::from_slice(&bench.run(["log", "--json"]).stdout).unwrap();
            assert_eq!(log.as_array().map(Vec::len), Some(1), "{who}: {log}");
        }
    }
}

#[test]
fn the_terminal_is_as_before_after_every_way_out() {
    let hostile = "printf '\\033[?1049h\\033[?25l\\033[?1000h\\033[?2004h\\033[31mready'; exec sleep 1000";
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        for (bench, mut screen) in screens(&["run", "--tty", "--shell", hostile]) {
            screen.wait_for("ready");
            assert!(screen.is_raw());
            screen.kill(signal);
            let status = screen.end();
            assert!(status.code().is_some_and(|code| code > 128), "{} {signal:?}: {status}", bench.who());
            screen.assert_as_before(&format!("{} after {signal:?}", bench.who()));
            for back in ["\x1b[?1049l", "\x1b[?25h", "\x1b[?1000l", "\x1b[?2004l", "\x1b[0m"] {
                assert!(screen.shown().contains(back), "{} {signal:?}: {back:?} in {:?}", bench.who(), screen.shown());
            }
        }
    }
    for (bench, mut screen) in screens(&["run", "--tty", "--", "no-such-command"]) {
        assert_eq!(screen.end().code(), Some(127), "{}", screen.shown());
        screen.assert_as_before(bench.who());
        assert!(!screen.shown().contains('\x1b'), "nothing was switched: {:?}", screen.shown());
    }
}

#[test]
fn a_terminal_that_goes_away_ends_the_run_as_sighup_does_and_the_changes_are_settled() {
    for changes in ["review", "commit", "ask"] {
        let script = "echo 1 > f; trap 'head -c 100000 /dev/zero; echo 2 > g; trap - HUP; kill -HUP $$' HUP; echo ready; \
            while :; do sleep 0.02; done";
        for (bench, mut screen) in screens(&["run", "--tty", "--changes", changes, "--grace", "20s", "--shell", script])
        {
            let who = format!("{} {changes}", bench.who());
            screen.wait_for("ready");
            screen.hang_up();
            assert_eq!(screen.end().code(), Some(129), "{who}");
            let reviewed = String::from_utf8(bench.run(["changes", "list"]).stdout).unwrap();
            assert_eq!(reviewed.starts_with("No changes"), changes == "commit", "{who}: {reviewed}");
            // What the command wrote after it had heard of it: nothing killed it before its grace.
            assert_eq!(bench.workspace.join("g").exists(), changes == "commit", "{who}");
            let log: serde_json::Value = serde_json::from_slice(&bench.run(["log", "--json"]).stdout).unwrap();
            assert!(log.to_string().contains("\"signal\":1"), "{who}: {log}");
        }
    }
}

#[test]
fn what_is_typed_and_not_read_does_not_reach_the_callers_shell() {
    for (_, mut screen) in screens(&["run", "--tty", "--shell", "stty raw -echo; echo ready; exec sleep 1000"]) {
        screen.wait_for("ready");
        screen.send_until_full("rm -rf everything\n");
        screen.kill(Signal::TERM);
        screen.end();
        assert_eq!(screen.left_to_read(), b"");
    }
}

#[test]
fn input_that_is_forged_inside_reaches_no_process() {
    let forge = "import fcntl,os,termios\nfor fd in (0, os.open('/dev/tty', os.O_RDWR)):\n for request in (termios.TIOCSTI, \
        termios.TIOCSTI | 1 << 32):\n  try:\n   fcntl.ioctl(fd, request & 0xffffffff, b'X')\n   print('FORGED')\n  except OSError as e:\n   print('refused', e.errno)\n";
    for (bench, mut screen) in screens(&["run", "--tty", "--", "python3", "-c", forge]) {
        assert_eq!(screen.end().code(), Some(0), "{}", screen.shown());
        assert!(screen.shown().contains("refused") && !screen.shown().contains("FORGED"), "{}", screen.shown());
        assert_eq!(screen.left_to_read(), b"", "{}", bench.who());
    }
}

/// Title, clipboard, link, DA, DSR, window, media copy, DCS, reset.
const HOSTILE: &str = "\\033]0;T\\007\\033]52;c;eA==\\007\\033]8;;http://x\\033\\\\\\033[c\\033[6n\\033[21t\\033[5i\\033P$qm\\033\\\\\\033c\\005";

#[test]
fn titles_clipboards_and_questions_to_the_terminal_are_dropped_with_and_without_a_terminal_inside() {
    let script = format!("printf 'a{HOSTILE}b \\033[31mred\\033[0m\\n'; printf 'c{HOSTILE}d\\n' >&2");
    for tty in [&["--tty"][..], &[]] {
        for bench in benches() {
            let mut screen =
                Screen::run(&bench, [&["run"], tty, &["--changes", "commit", "--shell", &script]].concat());
            assert_eq!(screen.end().code(), Some(0));
            screen.wait_for("cd");
            let shown = screen.shown();
            assert!(shown.contains("ab \x1b[31mred\x1b[0m"), "{shown:?}");
            let rest = shown.replace("\x1b[31m", "").replace("\x1b[0m", "");
            assert!(!rest.contains(['\x1b', '\x05', '\x07']), "{shown:?}");
        }
    }
    let bench = Bench::new(None);
    let mut screen = Screen::run(&bench, ["run", "--raw", "--changes", "commit", "--shell", &script]);
    screen.end();
    screen.wait_for("\x1b]0;T\x07");
}

#[test]
fn two_streams_on_one_terminal_never_join_into_a_sequence_that_no_filter_saw() {
    let script = "import os,threading\n\
        def out():\n for n in range(300): os.write(1, b'x' * (4093 + n % 3) + b'\\x1b[31m')\n\
        def err():\n for n in range(3000): os.write(2, b'5n')\n\
        t = threading.Thread(target=out); t.start(); err(); t.join()\n";
    let bench = Bench::new(None);
    let mut screen = Screen::run(&bench, ["run", "--changes", "commit", "--", "python3", "-c", script]);
    assert_eq!(screen.end().code(), Some(0));
    screen.wait_for("5n");
    let shown = screen.shown();
    assert!(!shown.replace("\x1b[31m", "").replace("\x1b[0m", "").contains('\x1b'), "a sequence was cut");
}

#[test]
fn without_a_terminal_the_bytes_are_exact() {
    for bench in benches() {
        let output = bench.run(["run", "--shell", &format!("printf 'a{HOSTILE}b\\200'")]);
        assert!(output.stdout.starts_with(b"a\x1b]0;T\x07") && output.stdout.ends_with(b"\x05b\x80"), "{output:?}");
    }
}

#[test]
fn a_signal_for_nexus_reaches_the_command_as_what_it_is() {
    for bench in benches() {
        for (signal, name) in
            [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")]
        {
            let script = format!("trap 'exit 33' {name}; echo ready; while :; do sleep 0.02; done");
            let mut child = bench.nexus(["run", "--shell", &script]).stdout(Stdio::piped()).spawn().unwrap();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
            kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(33), "{}, {name}", bench.who());
        }
    }
}

#[test]
fn a_terminal_needs_a_terminal() {
    for bench in benches() {
        let output = bench.run(["run", "--tty", "--", "true"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("--tty needs a terminal"), "{}", stderr(&output));
        let detached = bench.run(["shell", "--detach"]);
        assert_eq!(detached.status.code(), Some(2), "{}", stderr(&detached));
    }
}
