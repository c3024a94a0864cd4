//! Clients of a supervisor that does not answer, or that has many clients already.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};
use support::session::PATIENCE;
use support::{Bench, benches, on_each_bench, stderr, stdout, wait_until};

const FOREVER: &str = "echo ready; exec sleep 1000";

fn start(bench: &Bench, arguments: &[&str]) -> Child {
    let mut command = bench.nexus(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for its end, which comes within this time.
fn end(mut child: Child, within: Duration) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > within {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it does not end within {within:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Stops the supervisor and waits until it is stopped.
fn stop_supervisor(bench: &Bench, id: &str) -> i32 {
    let supervisor = bench.supervisor(id);
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::STOP).unwrap();
    wait_until("the stop", PATIENCE, || {
        let stat = std::fs::read_to_string(format!("/proc/{supervisor}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.starts_with(" T")
    });
    supervisor
}

#[test]
fn a_client_of_a_supervisor_that_does_not_answer_ends_in_time_and_names_it() {
    on_each_bench(|bench| {
        let id = bench.detach(&["--shell", FOREVER]);
        let supervisor = stop_supervisor(&bench, &id);
        for (arguments, signal, code) in [
            (&["exec", &id, "--", "touch", "ran"][..], Signal::TERM, 143),
            (&["attach", &id], Signal::INT, 130),
            (&["exec", &id, "--", "touch", "ran"], Signal::HUP, 129),
        ] {
            let child = start(&bench, arguments);
            std::thread::sleep(Duration::from_millis(300));
            kill_process(Pid::from_child(&child), signal).unwrap();
            assert_eq!(end(child, Duration::from_secs(5)).status.code(), Some(code), "{arguments:?}");
        }
        let all = [&["exec", &id, "--", "touch", "ran"][..], &["attach", &id], &["logs", &id], &["wait", &id]];
        let children = all.map(|arguments| (arguments, start(&bench, arguments)));
        for (arguments, child) in children {
            let output = end(child, Duration::from_secs(20));
            let err = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{arguments:?}: {err}");
            let words = format!("(process {supervisor}) has not answered for 10 s, because it is stopped");
            assert!(err.contains(&words) && err.contains(&format!("kill -CONT {supervisor}")), "{arguments:?}: {err}");
        }
        let stopped = end(start(&bench, &["stop", &id]), Duration::from_secs(30));
        assert_eq!(stopped.status.code(), Some(0), "{}", stderr(&stopped));
        assert!(stderr(&stopped).contains("nexus lets it go on"), "{}", stderr(&stopped));
        assert_eq!(bench.session(&id)["state"], "ended", "{}", bench.who());
        let list = bench.run(["changes", "list"]);
        let is_clean = !bench.workspace.join("ran").exists() && stdout(&list).starts_with("No changes wait");
        assert!(is_clean, "what was given up was run later: {}", stdout(&list));
        assert_eq!(bench.run(["rm", &id]).status.code(), Some(0));
    });
}

#[test]
fn a_sandbox_with_as_many_clients_as_it_takes_can_be_stopped() {
    // Only its own user may connect.
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        let id = bench.detach(&["--shell", FOREVER]);
        // Hello of version 1, and a wait for the end.
        let waiting = b"\x02\x00\x00\x00\x00\x01\x01\x00\x00\x00\x05";
        let connect = |bytes: &[u8]| {
            let mut socket = bench.connect(&id);
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            socket.write_all(bytes).unwrap();
            // Its answer to the greeting.
            assert!(socket.read(&mut [0; 64]).unwrap() > 0, "no answer");
            socket
        };
        let full: Vec<_> = (0..128).map(|_| connect(waiting)).collect();
        for arguments in
            [&["exec", &id, "--", "true"][..], &["logs", &id], &["logs", "--tail", "1", &id], &["wait", &id]]
        {
            let output = end(start(&bench, arguments), Duration::from_secs(5));
            assert_eq!(output.status.code(), Some(125), "{arguments:?}: {}", stderr(&output));
            assert!(stderr(&output).contains("has 128 clients already"), "{arguments:?}: {}", stderr(&output));
        }
        // Clients that never say what they want hold their places only for some time.
        let mute: Vec<_> = (0..31).map(|_| connect(&waiting[..6])).collect();
        let stopped = end(start(&bench, &["stop", "--grace", "1s", &id]), Duration::from_secs(8));
        assert_eq!(stopped.status.code(), Some(0), "{}", stderr(&stopped));
        assert_eq!(bench.session(&id)["state"], "ended");
        drop((full, mute));
        assert_eq!(bench.run(["rm", &id]).status.code(), Some(0));
    }
}
