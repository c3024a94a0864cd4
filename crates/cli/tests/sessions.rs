//! Detached sandboxes: they go on by themselves, clients come and go, and nothing is lost or left.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::screen::Screen;
use support::session::PATIENCE;
use support::traces::lone_benches;
use support::{Bench, benches, stderr, stdout, wait_until};

const FOREVER: &str = "echo ready; exec sleep 1000";

fn pid(number: i32) -> Pid {
    Pid::from_raw(number).unwrap()
}

#[test]
fn a_detached_sandbox_goes_on_and_its_end_stays_known_until_it_is_removed() {
    for bench in benches() {
        let id = bench.detach(&[
            "--shell",
            "echo out; echo err >&2; while [ ! -e /tmp/go ]; do sleep 0.02; done; cat /tmp/go; exit 42",
        ]);
        assert!(id.parse::<nexus_model::RunId>().is_ok(), "{id}");
        assert_eq!(bench.session(&id)["state"], "running");
        // The sandbox ends by what this command does, perhaps before the command itself has ended.
        bench.exec(&id, "echo line > /tmp/new; mv /tmp/new /tmp/go");
        let waited = bench.run(["wait", &id]);
        assert_eq!((waited.status.code(), stdout(&waited).as_str()), (Some(42), "42\n"), "{}", bench.who());
        let session = bench.session(&id);
        assert_eq!((&session["state"], &session["exit_code"]), (&"ended".into(), &42.into()));
        assert_eq!(session["run"]["schema"], "nexus.run/1");
        let logs = bench.run(["logs", &id]);
        assert_eq!((stdout(&logs).as_str(), stderr(&logs).as_str()), ("out\nline\n", "err\n"));
        assert_eq!(bench.run(["wait", &id]).status.code(), Some(42), "also when it is over");
        assert_eq!(bench.run(["rm", &id]).status.code(), Some(0));
        assert!(bench.sessions().is_empty() && bench.leftovers().is_empty());
        assert_eq!(fs::read_dir(bench.state.join("sessions")).unwrap().count(), 0);
        assert_eq!(bench.run(["wait", &id]).status.code(), Some(125));
    }
}

#[test]
fn one_that_does_not_start_is_refused_as_by_run_and_leaves_nothing() {
    for bench in benches() {
        for (arguments, code) in [
            (&["--", "no-such-command"][..], 127),
            (&["--", "/etc/passwd"], 126),
            (&["--cwd", "/", "--", "true"], 125),
            (&["--memory", "x", "--", "true"], 2),
        ] {
            let direct = bench.run([&["run"], arguments].concat());
            let output = bench.run([&["run", "--detach", "--name", "n"], arguments].concat());
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
            assert_eq!((stdout(&output), stderr(&output)), (String::new(), stderr(&direct)), "{arguments:?}");
        }
        let output = bench.run(["run", "--detach", "--json", "--", "no-such-command"]);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &document["exit_code"]), (Some(127), &127.into()));
        assert!(bench.sessions().is_empty() && bench.leftovers().is_empty());
        assert_eq!(fs::read_dir(bench.state.join("sessions")).unwrap().count(), 0);
    }
}

#[test]
fn a_client_whose_output_is_full_names_the_output_and_the_sandbox() {
    for bench in benches() {
        bench.detach(&["--name", "web", "--shell", FOREVER]);
        let into_full = |arguments: &[&str]| {
            let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            bench.nexus(arguments).stdin(Stdio::null()).stdout(full).output().unwrap()
        };
        for arguments in [&["logs", "web"][..], &["attach", "web"], &["exec", "web", "--", "echo", "x"]] {
            let output = into_full(arguments);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{}: {arguments:?}: {said}", bench.who());
            assert!(said.contains("could not be written: No space left"), "{}: {arguments:?}: {said}", bench.who());
            assert!(!said.contains("cannot be talked to"), "{}: {arguments:?}: {said}", bench.who());
        }
        let second = into_full(&["run", "--detach", "--shell", FOREVER]);
        let said = stderr(&second);
        let id = said.split("The sandbox ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        assert!(second.status.code() == Some(125) && said.contains("runs, but its id"), "{}: {said}", bench.who());
        for name in ["web", id] {
            assert_eq!(bench.run(["stop", name]).status.code(), Some(0), "{}: {said}", bench.who());
            assert_eq!(bench.run(["rm", name]).status.code(), Some(0), "{}: {said}", bench.who());
        }
    }
}

#[test]
fn a_stopped_holder_of_the_lock_of_names_holds_up_no_start() {
    for bench in benches() {
        assert_eq!(bench.run(["ps"]).status.code(), Some(0), "the directory is there");
        let alone = fs::File::open(bench.state.join("sessions")).unwrap();
        rustix::fs::flock(&alone, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let began = Instant::now();
        let output = bench.run(["run", "--detach", "--name", "n", "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("another nexus has locked"), "{}: {}", bench.who(), stderr(&output));
        assert!(began.elapsed() < Duration::from_secs(15), "{}: {:?}", bench.who(), began.elapsed());
        drop(alone);
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}

#[test]
fn names_are_one_sandboxs_own_and_starts_of_ids_do() {
    for bench in benches() {
        assert_eq!(bench.detach(&["--name", "web", "--shell", FOREVER]), "web");
        let second = bench.run(["run", "--detach", "--name", "web", "--shell", FOREVER]);
        assert_eq!(second.status.code(), Some(125));
        assert!(stderr(&second).contains("the name web is that of"), "{}", stderr(&second));
        let id = bench.session("web")["id"].as_str().unwrap().to_owned();
        assert_eq!(stdout(&bench.exec(&id[..20], "echo by prefix")), "by prefix\n");
        let mistyped = bench.run(["rm", "-f", &id[..3]]);
        assert_eq!(mistyped.status.code(), Some(125), "three characters are nobody's: {}", stderr(&mistyped));
        let other = bench.detach(&["--shell", FOREVER]);
        let ambiguous = bench.exec(&id[..4], "true");
        assert_eq!(ambiguous.status.code(), Some(125));
        assert!(stderr(&ambiguous).contains("2 sandboxes"), "{}", stderr(&ambiguous));
        for bad in ["-x", "a/b", &id] {
            assert_eq!(bench.run(["run", "--detach", "--name", bad, "--", "true"]).status.code(), Some(2), "{bad}");
        }
        assert_eq!(bench.run(["rm", "-f", "web", &other]).status.code(), Some(0));
        assert_eq!(bench.detach(&["--name", "web", "--", "true"]), "web", "the name is free again");
        assert_eq!(bench.run(["rm", "-f", "web"]).status.code(), Some(0));
    }
}

#[test]
fn exec_returns_the_exact_code_and_passes_input_output_and_environment() {
    for bench in benches() {
        let id = bench.detach(&["--env", "OWN=kept", "--shell", FOREVER]);
        for code in [0, 1, 7, 124, 125, 126, 127, 128, 255] {
            assert_eq!(bench.exec(&id, &format!("exit {code}")).status.code(), Some(code));
        }
        assert_eq!(bench.exec(&id, "kill -9 $$").status.code(), Some(137));
        assert_eq!(bench.run(["exec", &id, "--", "no-such"]).status.code(), Some(127));
        assert_eq!(bench.run(["exec", &id, "--", "/etc/passwd"]).status.code(), Some(126));
        assert_eq!(bench.run(["exec", "no-such", "--", "true"]).status.code(), Some(125));
        let output = bench.run([
            "exec",
            "--env",
            "NEW=1",
            "--cwd",
            "/tmp",
            &id,
            "--",
            "sh",
            "-c",
            "echo $OWN $NEW $PWD; echo e >&2",
        ]);
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("kept 1 /tmp\n", "e\n"));
        let mut child = bench
            .nexus(["exec", "--stdin", &id, "--", "sh", "-c", "wc -c; exit 5"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&vec![b'x'; 3_000_000]).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stdout(&output).trim()), (Some(5), "3000000"), "{}", bench.who());
        let large = bench.exec(&id, "head -c 5000000 /dev/zero; sleep 1000 & exit 6");
        assert_eq!((large.status.code(), large.stdout.len()), (Some(6), 5_000_000));
        bench.run(["rm", "-f", &id]);
    }
}

#[test]
fn exec_with_a_terminal_has_one_of_its_own() {
    for bench in benches() {
        let id = bench.detach(&["--shell", FOREVER]);
        let mut screen = Screen::run(&bench, ["exec", "--tty", &id, "--", "sh"]);
        screen.send("tty; stty size; echo $TERM\n");
        screen.wait_for("/dev/pts/0");
        screen.wait_for("24 80\r\nxterm");
        screen.resize(30, 100);
        screen.send("until stty size | grep 30.100; do sleep 0.05; done; exit 9\n");
        assert_eq!(screen.end().code(), Some(9), "{}", screen.shown());
        screen.assert_as_before(bench.who());
        assert_eq!(bench.session(&id)["state"], "running");
        bench.run(["rm", "-f", &id]);
    }
}

#[test]
fn a_client_that_dies_takes_its_own_command_along_and_nothing_else() {
    for bench in benches() {
        let id = bench.detach(&["--shell", FOREVER]);
        let mut child = bench
            .nexus(["exec", &id, "--", "sh", "-c", "trap '' HUP; sleep 12345"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let count = || stdout(&bench.exec(&id, "ps ax | grep -c '[s]leep 12345'")).trim().to_owned();
        wait_until("the command", PATIENCE, || count() != "0");
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until("the end of the command", PATIENCE, || count() == "0");
        assert_eq!(bench.session(&id)["state"], "running", "{}", bench.who());
        bench.run(["rm", "-f", &id]);
    }
}

#[test]
fn attach_shows_what_was_and_what_comes_keys_leave_and_the_end_gives_the_code() {
    for bench in benches() {
        let id = bench.detach(&["--tty", "--", "sh"]);
        let mut first = Screen::run(&bench, ["attach", &id]);
        let mut second = Screen::run(&bench, ["attach", "--no-stdin", &id]);
        first.send("echo seen by $((1+1))\n");
        first.wait_for("seen by 2");
        second.wait_for("seen by 2");
        first.resize(33, 99);
        first.send("stty size\n");
        first.wait_for("33 99");
        first.send("\x10\x11");
        assert_eq!(first.end().code(), Some(0));
        first.wait_for("comes back");
        first.assert_as_before(bench.who());
        let mut again = Screen::run(&bench, ["attach", "--detach-keys", "ctrl-x,y", &id]);
        again.wait_for("seen by 2");
        again.send("\x10\x11\x18y");
        assert_eq!(again.end().code(), Some(0), "{}", again.shown());
        let mut last = Screen::run(&bench, ["attach", &id]);
        last.wait_for("seen by 2");
        last.send("\x15exit 17\n");
        assert_eq!(last.end().code(), Some(17), "{}", last.shown());
        assert_eq!(second.end().code(), Some(17), "{}", second.shown());
        second.assert_as_before(bench.who());
        assert_eq!(bench.run(["attach", &id]).status.code(), Some(125));
        bench.run(["rm", &id]);
    }
}

#[test]
fn without_a_terminal_attach_passes_input_and_signals() {
    for bench in benches() {
        let id = bench.detach(&[
            "--stdin",
            "--shell",
            "trap 'echo got; exit 8' INT; while read line; do echo =$line=; done",
        ]);
        let mut child = bench
            .nexus(["attach", &id])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut keys = child.stdin.take().unwrap();
        keys.write_all(b"one\n").unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut line = [0u8; 6];
        out.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"=one=\n");
        kill_process(pid(child.id() as i32), Signal::INT).unwrap();
        // The shell runs its trap when it has a line or an end.
        keys.write_all(b"two\n").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(8), "{}", bench.who());
        let second = bench.detach(&["--stdin", "--", "cat"]);
        let mut child = bench.nexus(["attach", &second]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"the end of the input is an end").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "the end of the input is an end"));
        bench.run(["rm", "-f", &id, &second]);
    }
}

#[test]
fn logs_follow_to_the_end_and_show_a_terminal_no_hostile_sequence() {
    for bench in benches() {
        let id = bench.detach(&["--shell", "i=0; while [ $i -lt 20 ]; do echo line $i; i=$((i+1)); sleep 0.02; done; printf 'a\\033]0;T\\007b\\n'; exit 3"]);
        let output = bench.run(["logs", "-f", &id]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let all = (0..20).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n") + "\n";
        assert_eq!(stdout(&output), format!("{all}a\x1b]0;T\x07b\n"));
        bench.wait_for_state(&id, "ended");
        assert_eq!(stdout(&bench.run(["logs", "--tail", "2", &id])), "line 19\na\x1b]0;T\x07b\n");
        for (arguments, seen) in [(&["logs", &id][..], "ab\r\n"), (&["logs", "--raw", &id], "a\x1b]0;T\x07b\r\n")] {
            let mut screen = Screen::run(&bench, arguments);
            screen.end();
            screen.wait_for(seen);
        }
        bench.run(["rm", &id]);
        // What comes after the last lines that were there is filtered as they are.
        let late = "echo early; while ! [ -e go ]; do sleep 0.02; done; printf 'a\\033]0;T\\007b\\n'";
        let id = bench.detach(&["--direct", "--shell", late]);
        wait_until("the first line", PATIENCE, || stdout(&bench.run(["logs", &id])).contains("early"));
        let mut screen = Screen::run(&bench, ["logs", "-f", "--tail", "5", &id]);
        screen.wait_for("early");
        bench.write("go", "");
        screen.end();
        screen.wait_for("ab\r\n");
        bench.run(["rm", &id]);
    }
}

#[test]
fn stop_asks_first_and_kills_then() {
    for bench in benches() {
        let polite =
            bench.detach(&["--shell", "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done"]);
        wait_until("the trap", PATIENCE, || stdout(&bench.run(["logs", &polite])).contains("ready"));
        assert_eq!(bench.run(["stop", &polite]).status.code(), Some(0));
        assert_eq!(bench.session(&polite)["exit_code"], 5, "{}", bench.who());
        assert_eq!(stdout(&bench.run(["logs", &polite])), "ready\nbye\n");
        let deaf = bench.detach(&["--shell", "trap '' TERM; echo ready; while :; do sleep 0.05; done"]);
        wait_until("the trap", PATIENCE, || stdout(&bench.run(["logs", &deaf])).contains("ready"));
        let refused = bench.run(["rm", &deaf]);
        assert_eq!(refused.status.code(), Some(125));
        assert!(stderr(&refused).contains("still runs"), "{}", stderr(&refused));
        let began = Instant::now();
        assert_eq!(bench.run(["stop", "--grace", "300ms", &deaf]).status.code(), Some(0));
        assert!(began.elapsed() >= Duration::from_millis(300) && began.elapsed() < Duration::from_secs(9));
        assert_eq!(bench.session(&deaf)["exit_code"], 137);
        let shell = bench.detach(&["--tty", "--", "bash", "-i"]);
        assert_eq!(bench.run(["stop", &shell]).status.code(), Some(0), "an interactive shell ends with its terminal");
        assert_eq!(bench.run(["rm", &polite, &deaf, &shell]).status.code(), Some(0));
    }
}

#[test]
fn changes_are_settled_at_the_end_without_a_question() {
    for bench in benches() {
        let id = bench.detach(&["--shell", "echo 1 > committed"]);
        assert_eq!(bench.run(["wait", &id]).status.code(), Some(0));
        assert_eq!(fs::read_to_string(bench.workspace.join("committed")).unwrap(), "1\n");
        let ask = bench.run(["run", "--detach", "--changes", "ask", "--shell", "echo 1 > parked"]);
        assert!(stderr(&ask).contains("ask is review"), "{}", stderr(&ask));
        let second = stdout(&ask).trim().to_owned();
        let waited = bench.run(["wait", &second]);
        assert!(stderr(&waited).contains("waiting for a decision: parked"), "{}", stderr(&waited));
        assert!(!bench.workspace.join("parked").exists());
        assert_eq!(bench.session(&second)["run"]["changes"]["state"], "parked");
        let third = bench.detach(&["--changes", "discard", "--shell", "echo 1 > discarded"]);
        bench.run(["wait", &third]);
        assert!(!bench.workspace.join("discarded").exists());
        assert_eq!(bench.run(["changes", "accept", "--run", &second]).status.code(), Some(0));
        assert_eq!(fs::read_to_string(bench.workspace.join("parked")).unwrap(), "1\n", "{}", bench.who());
        bench.run(["rm", &id, &second, &third]);
        assert!(bench.leftovers().is_empty());
    }
}

/// Takes the label of a sandbox as the first process of a pid namespace of its own, says so and stays.
const DECOY: &str = "\
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, sys.argv[1].encode())
print('up', flush=True)
time.sleep(1000)
";

#[test]
fn a_process_of_another_user_with_our_label_stops_no_recovery() {
    // Playing two users takes root.
    if !support::needs_root() {
        return;
    }
    let bench = Bench::new(Some(support::user()));
    let id = bench.detach(&["--", "sleep", "1000"]);
    let label = format!("nx-{}", &id[id.len() - 12..]);
    let mut decoy = bench.command_as_root("unshare");
    decoy.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
    decoy.args(["/usr/bin/python3", "-c", DECOY, &label]).uid(support::user() + 1).gid(support::user() + 1);
    let mut decoy = decoy.stdout(Stdio::piped()).spawn().unwrap();
    decoy.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
    kill_process(pid(bench.supervisor(&id)), Signal::KILL).unwrap();
    let output = bench.run(["run", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(decoy.try_wait().unwrap().is_none());
    decoy.kill().unwrap();
    decoy.wait().unwrap();
}

#[test]
fn a_killed_supervisor_is_said_to_be_lost_and_its_changes_wait() {
    for bench in lone_benches() {
        let before = bench.before();
        let start = bench.run([
            "run",
            "--detach",
            "--name",
            "x",
            "--shell",
            "echo 1 > made; (setsid sleep 1000 &); echo ready; exec sleep 1000",
        ]);
        assert_eq!(start.status.code(), Some(0), "{}", stderr(&start));
        let mut waiting = bench.nexus(["wait", "x"]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        wait_until("the change", PATIENCE, || stdout(&bench.run(["logs", "x"])).contains("ready"));
        kill_process(pid(bench.supervisor("x")), Signal::KILL).unwrap();
        assert_eq!(waiting.wait().unwrap().code(), Some(125));
        bench.assert_no_process(Duration::from_secs(1), "after kill -9 of the supervisor");
        assert_eq!(bench.session("x")["state"], "lost");
        for arguments in
            [&["attach", "x"][..], &["exec", "x", "--", "true"], &["logs", "x"], &["stop", "x"], &["wait", "x"]]
        {
            let output = bench.run(arguments);
            assert_eq!(output.status.code(), Some(125), "{arguments:?}");
            assert!(stderr(&output).contains("was killed"), "{arguments:?}: {}", stderr(&output));
        }
        assert!(!bench.workspace.join("made").exists());
        assert!(stdout(&bench.run(["changes", "show"])).contains("A made"));
        assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0));
        assert_eq!(bench.run(["rm", "x"]).status.code(), Some(0));
        fs::remove_dir(bench.state.join("sessions")).unwrap();
        bench.assert_no_trace(&before, "a killed supervisor");
    }
}

#[test]
fn a_supervisor_outlives_its_terminal_and_ends_cleanly_when_asked() {
    for bench in benches() {
        let mut screen = Screen::run(
            &bench,
            [
                "run",
                "--detach",
                "--name",
                "x",
                "--shell",
                "trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done",
            ],
        );
        assert_eq!(screen.end().code(), Some(0), "{}", screen.shown());
        let supervisor = bench.supervisor("x");
        drop(screen);
        kill_process(pid(supervisor), Signal::HUP).unwrap();
        for (name, wanted) in [("cwd", "/"), ("fd/0", "/dev/null"), ("fd/1", "/dev/null"), ("fd/2", "/dev/null")] {
            assert_eq!(fs::read_link(format!("/proc/{supervisor}/{name}")).unwrap().to_str().unwrap(), wanted);
        }
        let stat = fs::read_to_string(format!("/proc/{supervisor}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
        assert_eq!((fields[3], fields[4]), (supervisor.to_string().as_str(), "0"), "a session of its own, no terminal");
        wait_until("the trap", PATIENCE, || stdout(&bench.run(["logs", "x"])).contains("ready"));
        kill_process(pid(supervisor), Signal::TERM).unwrap();
        assert_eq!(bench.run(["wait", "x"]).status.code(), Some(4), "{}", bench.who());
        bench.run(["rm", "x"]);
    }
}

#[test]
fn a_client_that_takes_nothing_delays_no_other_client() {
    for bench in benches() {
        let id = bench.detach(&[
            "--shell",
            "while [ ! -e go ]; do sleep 0.02; done; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last",
        ]);
        // No process reads these two pipes.
        let mut stuck: Vec<_> = [&["attach", "--no-stdin", &id][..], &["logs", "-f", &id]]
            .iter()
            .map(|arguments| bench.nexus(*arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
            .collect();
        let mut stuck_command = bench
            .nexus(["exec", &id, "--", "cat", "/dev/zero"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut follower =
            bench.nexus(["logs", "-f", &id]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let supervisor = bench.supervisor(&id);
        // The kernel forgets it with the process, so it is read until that is gone.
        let peak = std::thread::spawn(move || {
            let mut most = 0;
            while let Ok(status) = fs::read_to_string(format!("/proc/{supervisor}/status")) {
                let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
                let Some(now) = line.and_then(|text| text.trim().parse::<u64>().ok()) else { break };
                most = most.max(now);
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        assert!(bench.exec(&id, "touch go").status.success());
        let mut all = Vec::new();
        follower.stdout.take().unwrap().read_to_end(&mut all).unwrap();
        assert!(all.ends_with(b"last\n"), "{}", bench.who());
        let most = peak.join().unwrap();
        assert!((1..64 * 1024).contains(&most), "{most} KiB");
        wait_until("the end", Duration::from_secs(20), || bench.session(&id)["state"] == "ended");
        wait_until("the end of the supervisor", Duration::from_secs(20), || {
            fs::metadata(format!("/proc/{supervisor}/exe")).is_err()
        });
        let mut missing = String::new();
        let mut reader = stuck.remove(1);
        reader.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        reader.stderr.take().unwrap().read_to_string(&mut missing).unwrap();
        assert!(missing.contains("bytes are not there any more") || missing.contains("killed"), "{missing}");
        for child in stuck.iter_mut().chain([&mut stuck_command, &mut reader, &mut follower]) {
            child.kill().ok();
            child.wait().unwrap();
        }
        bench.run(["rm", &id]);
    }
}

#[test]
fn another_user_and_invalid_messages_are_dropped() {
    for bench in benches() {
        let id = bench.detach(&["--shell", FOREVER]);
        let mode = fs::metadata(bench.session_folder(&id)).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o777, 0o700);
        for bytes in [&b"\xff\xff\xff\xff"[..], b"GET / HTTP/1.0\r\n\r\n", b"\x01\x00\x00\x00\x09", b"\x00\x00\x00\x00"]
        {
            let mut socket = bench.connect(&id);
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            socket.write_all(bytes).ok();
            let mut answer = Vec::new();
            let ended = socket.read_to_end(&mut answer);
            assert!(
                answer.is_empty() && !matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
                "{bytes:?}: {ended:?}"
            );
        }
        // The harmless twin: the same user is answered.
        let list = b"\x02\x00\x00\x00\x00\x01";
        if bench.user.is_none() {
            let mut socket = bench.connect(&id);
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            socket.write_all(list).unwrap();
            assert!(socket.read(&mut [0; 1]).unwrap() > 0, "nobody is answered");
        } else {
            // Root can open every directory, and is another user all the same.
            let mut socket = bench.connect(&id);
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket.write_all(list).ok();
            let mut answer = Vec::new();
            socket.read_to_end(&mut answer).ok();
            assert!(answer.is_empty(), "root was answered by a user's supervisor");
        }
        assert_eq!(stdout(&bench.exec(&id, "echo alive")), "alive\n");
        bench.run(["rm", "-f", &id]);
    }
}

/// A server inside: answers each connection with what it said, after the end of what it said.
const ECHO: &str = "import socket,threading\ns = socket.create_server(('127.0.0.1', 7000))\nprint('ready', flush=True)\n\
    def serve(c):\n data = b''\n while True:\n  part = c.recv(65536)\n  if not part: break\n  data += part\n\
    \x20c.sendall(b'heard ' + data)\n c.close()\n\
    while True:\n c, _ = s.accept()\n threading.Thread(target=serve, args=(c,)).start()\n";

fn talk(port: u16, words: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(words).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    socket.read_to_end(&mut heard).unwrap();
    heard
}

#[test]
fn a_published_port_leads_inside_both_ways_and_keeps_half_closed_connections() {
    for bench in benches() {
        let id = bench.detach(&["--publish", "0:7000", "--publish", "0:7001", "--", "python3", "-c", ECHO]);
        let published = bench.session(&id)["published"].clone();
        let port = published[0]["host"].as_u64().unwrap() as u16;
        let nobody = published[1]["host"].as_u64().unwrap() as u16;
        wait_until("the server", PATIENCE, || stdout(&bench.run(["logs", &id])).contains("ready"));
        assert_eq!(talk(port, b"words"), b"heard words");
        let large = vec![7u8; 5_000_000];
        assert_eq!(talk(port, &large).len(), large.len() + 6);
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| assert_eq!(talk(port, b"beside others").len(), 19));
            }
        });
        // No process listens there: the connection is closed at once, and not left waiting.
        let mut socket = TcpStream::connect(("127.0.0.1", nobody)).unwrap();
        assert!(matches!(socket.read(&mut [0u8; 1]), Ok(0) | Err(_)));
        let taken = bench.run(["run", "--publish", &format!("{port}:80"), "--", "true"]);
        assert_eq!(taken.status.code(), Some(125));
        assert!(stderr(&taken).contains("cannot be published"), "{}", stderr(&taken));
        // It is on loopback alone.
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        assert!(table.contains(&format!("0100007F:{port:04X}")) && !table.contains(&format!("00000000:{port:04X}")));
        bench.run(["rm", "-f", &id]);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "{}", bench.who());
    }
}

#[test]
fn run_in_the_foreground_publishes_too_and_says_which_port_it_picked() {
    for bench in benches() {
        let mut child = bench
            .nexus(["run", "--publish", "0:7000", "--", "python3", "-c", ECHO])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.split_once("127.0.0.1:").unwrap().1.split(' ').next().unwrap().parse().unwrap();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        assert_eq!(talk(port, b"words"), b"heard words", "{}", bench.who());
        kill_process(pid(child.id() as i32), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(143));
    }
}

fn sized(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Small here; `NEXUS_SOAK_SESSIONS` and `NEXUS_SOAK_ATTACHES` make it large.
#[test]
fn many_sandboxes_and_clients_that_come_and_are_killed_at_random_lose_no_exit_code_and_leave_nothing() {
    let attaches = sized("NEXUS_SOAK_ATTACHES", 60);
    let sessions = sized("NEXUS_SOAK_SESSIONS", attaches / 5);
    for bench in lone_benches() {
        let before = bench.before();
        let mut ids = Vec::new();
        for number in 0..sessions {
            let code = number % 120;
            let script =
                format!("echo started; while [ ! -e go-{number} ]; do stty size; sleep 0.2; done; exit {code}");
            let tty = if number % 3 == 0 { &["--stdin"][..] } else { &["--tty"] };
            let output =
                bench.nexus(["run", "--detach", "--direct"]).args(tty).args(["--shell", &script]).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}, {number}: {}", bench.who(), stderr(&output));
            ids.push((stdout(&output).trim().to_owned(), code));
        }
        let supervisors: Vec<u64> = bench.sessions().iter().map(|session| session["pid"].as_u64().unwrap()).collect();
        assert_eq!(supervisors.len(), sessions);
        let descriptors = |pid: &u64| fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let first: Vec<usize> = supervisors.iter().map(descriptors).collect();
        std::thread::scope(|scope| {
            for worker in 0..4usize {
                let (ids, bench) = (&ids, &bench);
                scope.spawn(move || {
                    for number in (worker..attaches).step_by(4) {
                        let chance = support::random();
                        let which = (chance % ids.len() as u64) as usize;
                        let id = &ids[which].0;
                        let mut screen = Screen::run(bench, ["attach", id]);
                        // An exec beside it, now and then, which dies with its client.
                        let mut beside =
                            (chance & 8 == 0).then(|| Screen::run(bench, ["exec", "--tty", id, "--", "cat"]));
                        match number % 4 {
                            // At any moment of its start.
                            0 => std::thread::sleep(Duration::from_millis(chance % 30)),
                            1 => {
                                screen.wait_for("started");
                                screen.resize(10 + (chance % 50) as u16, 20 + (chance % 90) as u16);
                            }
                            2 => {
                                screen.wait_for("started");
                                screen.resize(20, 20);
                                screen.send("x\x10\x11");
                                // Where there are single keys to read; else they are a line that never ends.
                                if !which.is_multiple_of(3) {
                                    assert_eq!(screen.end().code(), Some(0), "detached: {}", screen.shown());
                                }
                            }
                            // Without a terminal inside SIGTERM would be passed on to the command.
                            _ if which.is_multiple_of(3) => {
                                screen.kill([Signal::KILL, Signal::HUP][(chance % 2) as usize]);
                            }
                            _ => screen.kill([Signal::KILL, Signal::HUP, Signal::TERM][(chance % 3) as usize]),
                        }
                        if let Some(screen) = &mut beside {
                            screen.child.kill().ok();
                            screen.child.wait().unwrap();
                        }
                        screen.child.kill().ok();
                        screen.child.wait().unwrap();
                    }
                });
            }
        });
        for (pid, first) in supervisors.iter().zip(first) {
            wait_until("descriptors of clients that are gone", PATIENCE, || descriptors(pid) <= first);
        }
        for number in 0..sessions {
            bench.write(&format!("go-{number}"), "");
        }
        for (id, code) in &ids {
            let output = bench.run(["wait", id]);
            assert_eq!(output.status.code(), Some(*code as i32), "{}, {id}: {}", bench.who(), stderr(&output));
        }
        let all: Vec<&str> = ids.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(bench.run([&["rm"], &all[..]].concat()).status.code(), Some(0));
        assert_eq!(fs::read_dir(bench.state.join("sessions")).unwrap().count(), 0);
        fs::remove_dir(bench.state.join("sessions")).unwrap();
        for number in 0..sessions {
            fs::remove_file(bench.workspace.join(format!("go-{number}"))).unwrap();
        }
        bench.assert_no_trace(&before, "many sandboxes");
    }
}

#[test]
fn a_state_directory_with_a_long_path_works() {
    let bench = Bench::new(None);
    let long = bench.base.path().join("x".repeat(120)).join("y".repeat(120));
    fs::create_dir_all(&long).unwrap();
    let run = |arguments: &[&str]| bench.nexus(arguments).env("NEXUS_STATE_DIR", &long).output().unwrap();
    let id = stdout(&run(&["run", "--detach", "--shell", FOREVER])).trim().to_owned();
    let output = run(&["exec", &id, "--", "echo", "reached"]);
    assert_eq!(stdout(&output), "reached\n", "{}", stderr(&output));
    assert_eq!(run(&["rm", "-f", &id]).status.code(), Some(0));
}

#[test]
fn the_end_of_a_run_with_many_changes_stays_small_and_known() {
    for bench in benches() {
        let script = "import os\nfor n in range(6000):\n    open(f'{n}-' + 'x' * 200, 'w').close()\n";
        let id = bench.detach(&["--changes", "discard", "--", "python3", "-c", script]);
        assert_eq!(bench.run(["wait", &id]).status.code(), Some(0), "{}", bench.who());
        let told = bench.sessions().into_iter().find(|one| one["id"] == *id).unwrap();
        let changes = &told["run"]["changes"];
        let kept = changes["changes"].as_array().unwrap().len() as u64;
        assert_eq!(changes["added"], 6000);
        assert_eq!(kept + changes["omitted"].as_u64().unwrap(), 6000, "{}", bench.who());
        let ending = bench.state.join("sessions").join(&id).join("ending.json");
        assert!(fs::metadata(&ending).unwrap().len() < 400 << 10, "{}", ending.display());
        assert!(bench.run(["rm", &id]).status.success());
    }
}
