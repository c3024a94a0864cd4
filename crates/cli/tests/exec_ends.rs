//! `nexus exec` whose reader, caller or input leaves: the exit code is that of the command, or says that it was cut off.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};
use support::session::PATIENCE;
use support::{Bench, benches, stdout, wait_until};

const FOREVER: &str = "exec sleep 1000";

/// Starts `nexus exec` of a script and returns it with its output.
fn start(bench: &Bench, id: &str, flags: &[&str], script: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = bench.nexus([&["exec"], flags, &[id, "--", "sh", "-c", script]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

fn line(out: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line
}

/// Waits for its end, which comes soon, and returns the exit code.
fn code(child: &mut Child) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if began.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("nexus exec does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_reader_that_leaves_ends_no_exec_and_hides_no_exit_code() {
    for bench in benches() {
        let id = bench.detach(&["--shell", FOREVER]);
        for script in ["seq 1 200000; echo late >&2; exit 3", "yes; echo late >&2; exit 3"] {
            let (mut child, mut out) = start(&bench, &id, &[], script);
            assert!(!line(&mut out).is_empty());
            drop(out);
            let mut late = String::new();
            child.stderr.take().unwrap().read_to_string(&mut late).unwrap();
            assert_eq!((code(&mut child), late.contains("late\n")), (Some(3), true), "{}: {late}", bench.who());
        }
        bench.run(["rm", "-f", &id]);
    }
}

#[test]
fn a_signal_that_ends_an_exec_is_its_exit_code() {
    for bench in benches() {
        let id = bench.detach(&["--shell", FOREVER]);
        let script = "trap '' TERM INT; echo ready; while :; do sleep 0.05; done; : 54321";
        let run = |signals: &[Signal]| {
            let (mut child, mut out) = start(&bench, &id, &[], script);
            assert_eq!(line(&mut out), "ready\n");
            for signal in signals {
                send(&child, *signal);
                std::thread::sleep(Duration::from_millis(200));
            }
            code(&mut child)
        };
        assert_eq!(run(&[Signal::TERM, Signal::TERM]), Some(143), "{}", bench.who());
        assert_eq!(run(&[Signal::TERM, Signal::INT]), Some(130));
        assert_eq!(run(&[Signal::HUP]), Some(129));
        let count = || stdout(&bench.exec(&id, "ps ax | grep -c '[5]4321'")).trim().to_owned();
        wait_until("the end of the commands", PATIENCE, || count() == "0");
        bench.run(["rm", "-f", &id]);
    }
}

#[test]
fn input_that_a_command_does_not_read_holds_up_no_signal_and_no_reader_that_leaves() {
    for bench in benches() {
        let id = bench.detach(&["--shell", FOREVER]);
        let endless = |script: &str| {
            let mut command = bench.nexus(["exec", "--stdin", &id, "--", "sh", "-c", script]);
            command.stdin(File::open("/dev/zero").unwrap()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let mut out = BufReader::new(child.stdout.take().unwrap());
            assert!(!line(&mut out).is_empty());
            // What it does not read fills every buffer on the way.
            std::thread::sleep(Duration::from_millis(500));
            (child, out)
        };
        let (mut child, out) = endless("trap 'exit 6' TERM; echo ready; while :; do sleep 0.05; done");
        send(&child, Signal::TERM);
        assert_eq!(code(&mut child), Some(6), "{}", bench.who());
        drop(out);
        let (mut child, out) = endless("yes; exit 4");
        drop(out);
        assert_eq!(code(&mut child), Some(4), "{}", bench.who());
        bench.run(["rm", "-f", &id]);
    }
}
