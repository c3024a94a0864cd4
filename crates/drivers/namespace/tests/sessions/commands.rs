//! Tests of execs and forwarded ports, in real sandboxes.

use crate::support::{Heard, Live, SIZE, for_each_user, null};
use nexus_channel::frames::{ExecStage, HostFrame, TerminalSize};
use nexus_driver::{AskError, LEADER, NotStarted, Stdio};
use nexus_model::ExitStatus;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::process::{Command, Stdio as Io};
use std::time::{Duration, Instant};

/// A leader that stays, once it has made a file with the number of its background job.
const STAY: &str = "sleep 1000 & echo $! >pid; mv pid job; echo private >/tmp/note; wait";

pub fn an_exec_sees_the_main_commands_processes_and_files_and_ends_alone() {
    for_each_user(|bench| {
        let mut live = bench.start(STAY, None);
        let job = bench.workspace().join("job");
        live.until("the job", |_| job.exists());
        live.exec(2, "kill -0 $(cat job) && cat /tmp/note && exit 9", Some(SIZE));
        assert_eq!(live.end_of(2), ExitStatus::Code(9));
        assert_eq!(live.text(2), "private\r\n");
        assert!(live.heard[&2].started);
        live.exec(3, "kill -TERM $$", None);
        assert_eq!(live.end_of(3), ExitStatus::Signal(15));
        // The sandbox goes on, and still obeys.
        assert_eq!(live.heard[&LEADER].ended, None);
        live.session.signal(LEADER, 15).unwrap();
        assert_eq!(live.end_of(LEADER), ExitStatus::Signal(15));
    });
}

pub fn an_exec_that_does_not_start_reports_why_and_the_sandbox_goes_on() {
    for_each_user(|bench| {
        let mut live = bench.start(STAY, None);
        let mut command = live.script("exit 0");
        command.argv = vec!["no-such-program".into()];
        live.session.exec(2, &command, Stdio::Terminal(SIZE)).unwrap();
        live.until("an answer", |live| live.heard.contains_key(&2));
        let reason = live.heard[&2].not_started.as_ref().unwrap();
        assert!(matches!(reason, NotStarted::Exec { stage: ExecStage::Exec, errno: 2 }), "{reason}");
        live.until("the end of its terminal", |live| live.screens.values().all(|screen| screen.master.is_none()));
        command = live.script("exit 0");
        command.cwd = "/no/such/folder".into();
        live.session.exec(3, &command, Stdio::Terminal(TerminalSize { rows: 1, cols: 1 })).unwrap();
        live.until("an answer", |live| live.heard.contains_key(&3));
        let reason = live.heard[&3].not_started.as_ref().unwrap();
        assert!(matches!(reason, NotStarted::Exec { stage: ExecStage::Chdir, errno: 2 }), "{reason}");
        live.exec(4, "exit 6", None);
        assert_eq!(live.end_of(4), ExitStatus::Code(6));
    });
}

pub fn a_command_stopped_before_its_exec_delays_no_other() {
    for_each_user(|bench| {
        // Stops every process inside but itself, again and again, from before the exec of another one.
        let storm = "while [ ! -e calm ]; do kill -STOP -1; done; while [ ! -e end ]; do sleep 0.05; done; exit 42";
        let mut live = bench.start(storm, None);
        live.until("the leader", |live| live.heard.get(&LEADER).is_some_and(|heard| heard.started));
        let large = "x".repeat(100_000);
        for exec in 2..12 {
            let mut command = live.script("exit 0");
            command.argv.extend(std::iter::repeat_n(large.as_str().into(), 5));
            // Far more than the channel holds, and no sender waits.
            live.session.exec(exec, &command, Stdio::Pipes([null().as_fd(); 3])).unwrap();
        }
        live.session.forward(1, 1).unwrap();
        live.until("an answer while they stand still", |live| live.forwards.contains_key(&1));
        std::fs::write(bench.workspace().join("calm"), "").unwrap();
        live.until("an end of each", |live| (2..12).all(|exec| live.heard.get(&exec).is_some_and(is_settled)));
        let started = (2..12).filter(|exec| live.heard[exec].started).count();
        assert!(started < 10, "none was stopped before its exec");
        live.exec(12, "exit 7", None);
        assert_eq!(live.end_of(12), ExitStatus::Code(7));
        std::fs::write(bench.workspace().join("end"), "").unwrap();
        assert_eq!(live.end_of(LEADER), ExitStatus::Code(42));
    });
}

pub fn a_signal_before_the_exec_arrives_after_it() {
    for_each_user(|bench| {
        // Stops every process inside but itself until it gets a signal, and then lets all of them go on.
        let storm =
            "while [ ! -e calm ]; do kill -STOP -1; done; while [ ! -e end ]; do kill -CONT -1; sleep 0.05; done";
        let mut live = bench.start(storm, None);
        live.until("the leader", |live| live.heard.get(&LEADER).is_some_and(|heard| heard.started));
        for exec in 2..12 {
            live.exec(exec, "exec sleep 1000", None);
            live.session.signal(exec, 15).unwrap();
        }
        // Its answer comes after the guest took all that was sent before.
        live.session.forward(1, 1).unwrap();
        live.until("an answer while they stand still", |live| live.forwards.contains_key(&1));
        let stopped: Vec<_> = (2..12).filter(|exec| !live.heard.contains_key(exec)).collect();
        assert!(!stopped.is_empty(), "none was stopped before its exec");
        std::fs::write(bench.workspace().join("calm"), "").unwrap();
        for exec in stopped {
            assert_eq!(live.end_of(exec), ExitStatus::Signal(15));
            assert!(live.heard[&exec].started);
        }
        std::fs::write(bench.workspace().join("end"), "").unwrap();
        assert_eq!(live.end_of(LEADER), ExitStatus::Code(0));
    });
}

pub fn protection_from_the_memory_killer_stays_with_the_launcher() {
    for_each_user(|bench| {
        let expected = bench.score_launcher();
        let seen = bench.workspace().join("score");
        // The first one builds the template.
        for _ in 0..2 {
            let mut live = bench.start("cat /proc/self/oom_score_adj >score", None);
            assert_eq!(live.end_of(LEADER), ExitStatus::Code(0));
            assert_eq!(std::fs::read_to_string(&seen).unwrap(), expected);
            std::fs::remove_file(&seen).unwrap();
        }
    });
}

/// Reports whether a process with this argument lives.
fn lives(argument: &str) -> bool {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut commands = all.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    commands.any(|command| command.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}

pub fn what_runs_dies_with_the_main_command_also_without_a_client() {
    for_each_user(|bench| {
        let mark = format!("1000.{}", std::process::id());
        // The neighbour is in a session of its own, so that no signal for the leader's group reaches it.
        let live = bench.start(&format!("setsid sleep {mark} & exec sleep 1000"), None);
        let deadline = Instant::now() + Duration::from_secs(20);
        let until = |what: &str, holds: &dyn Fn() -> bool| {
            while !holds() {
                assert!(Instant::now() < deadline, "not seen: {what}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until("the neighbour", &|| lives(&mark));
        // Each has an answer, and together they are far more than the channel holds. The order of frames is kept.
        let channel = &live.sandbox.channel;
        (0..5000).for_each(|forward| channel.send(&HostFrame::Forward { forward, port: 1 }, &[]).unwrap());
        channel.send(&HostFrame::Signal { exec: Some(LEADER), signal: 9 }, &[]).unwrap();
        until("the neighbour's end", &|| !lives(&mark));
        // The guest still waits for a host that takes its last words.
        let ended = live.sandbox.process.ended().unwrap();
        let now = rustix::event::Timespec::default();
        let found = rustix::event::poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&now)).unwrap();
        assert_eq!(found, 0, "the guest ended with words that were not heard");
    });
}

/// Returns whether it is known that a command started or did not start; one that was stopped after its exec stays.
fn is_settled(heard: &Heard) -> bool {
    heard.started || heard.not_started.is_some()
}

pub fn a_signal_ends_one_command_and_not_its_neighbours() {
    for_each_user(|bench| {
        let mut live = bench.start(STAY, None);
        live.exec(2, "exec sleep 1000", None);
        live.exec(3, "exec sleep 1000", None);
        live.until("all", |live| {
            [LEADER, 2, 3].iter().all(|exec| live.heard.get(exec).is_some_and(|heard| heard.started))
        });
        live.session.signal(2, 9).unwrap();
        assert_eq!(live.end_of(2), ExitStatus::Signal(9));
        assert_eq!((live.heard[&3].ended, live.heard[&LEADER].ended), (None, None));
        live.session.signal(2, 9).unwrap();
        live.exec(4, "exit 0", None);
        assert_eq!(live.end_of(4), ExitStatus::Code(0));
        assert_eq!(live.heard[&3].ended, None, "a signal for a command that is gone met another");
    });
}

/// Starts a command after the other and counts those that are refused, all of them for this reason.
fn flood(live: &mut Live, execs: Range<u32>, size: Option<TerminalSize>, why: (ExecStage, Errno)) -> usize {
    for exec in execs.clone() {
        live.exec(exec, "exec sleep 1000", size);
        live.until("an answer", |live| live.heard.contains_key(&exec));
    }
    let refused: Vec<_> = execs.filter_map(|exec| live.heard[&exec].not_started.as_ref()).collect();
    for reason in &refused {
        let NotStarted::Exec { stage, errno } = reason else { panic!("{reason}") };
        assert_eq!((*stage, *errno), (why.0, why.1.raw_os_error()));
    }
    refused.len()
}

pub fn a_flood_of_commands_is_bounded_and_the_sandbox_survives_it() {
    for_each_user(|bench| {
        let mut live = bench.start(STAY, None);
        // 256 at once, and the leader is one of them.
        assert_eq!(flood(&mut live, 2..302, None, (ExecStage::Spawn, Errno::AGAIN)), 300 - 255);
        live.session.signal(2, 9).unwrap();
        assert_eq!(live.end_of(2), ExitStatus::Signal(9));
        live.exec(302, "exit 8", None);
        assert_eq!(live.end_of(302), ExitStatus::Code(8));
    });
}

pub fn a_flood_of_terminals_is_bounded_and_commands_without_one_go_on() {
    for_each_user(|bench| {
        let mut live = bench.start(STAY, None);
        // 64 at once: the kernel's pool is the host's, too.
        assert_eq!(flood(&mut live, 2..82, Some(SIZE), (ExecStage::Prepare, Errno::NOSPC)), 80 - 64);
        live.exec(82, "exit 7", None);
        assert_eq!(live.end_of(82), ExitStatus::Code(7));
        live.session.signal(2, 9).unwrap();
        assert_eq!(live.end_of(2), ExitStatus::Signal(9));
        live.exec(83, "exit 8", Some(SIZE));
        assert_eq!(live.end_of(83), ExitStatus::Code(8));
    });
}

/// Keeps more descriptors under way than the launcher may have open; says so, and waits for the end of its input.
const FLOOD: &str = "import socket, sys\npairs = [socket.socketpair() for _ in range(4)]\n\
    for here, there in pairs:\n socket.send_fds(here, [b'x'], [0] * 100)\nprint('flooded', flush=True)\nsys.stdin.read()\n";

/// The kernel counts them for each user (unix(7)), and a user's sandboxes are that user's.
pub fn too_many_descriptors_under_way_refuse_a_launch_and_end_nothing() {
    for_each_user(|bench| {
        let Some((user, launcher)) = bench.ordinary() else { return };
        let mut live = bench.start(STAY, None);
        live.exec(2, "exit 3", None);
        assert_eq!(live.end_of(2), ExitStatus::Code(3));
        let id = user.to_string();
        let as_user = || {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
            command
        };
        let limit = ["prlimit", "--nofile=128:128", "--pid", &launcher.to_string()];
        assert!(as_user().args(limit).status().unwrap().success());
        let mut flood =
            as_user().args(["/usr/bin/python3", "-c", FLOOD]).stdin(Io::piped()).stdout(Io::piped()).spawn().unwrap();
        let mut word = [0; 8];
        flood.stdout.take().unwrap().read_exact(&mut word).unwrap();
        assert_eq!(&word, b"flooded\n");
        let refused = bench.launch().unwrap_err();
        assert!(refused.to_string().contains("descriptors of this user"), "{refused}");
        drop(flood.stdin.take());
        assert!(flood.wait().unwrap().success());
        // What was under way is collected when no client is attached.
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Err(error) = bench.launch() {
            assert!(Instant::now() < deadline, "{error}");
        }
        live.exec(3, "exit 4", None);
        assert_eq!(live.end_of(3), ExitStatus::Code(4), "the first one lives");
    });
}

pub fn who_asks_without_listening_is_stopped_before_both_sides_wait_for_ever() {
    for_each_user(|bench| {
        let mut live = bench.start(STAY, None);
        let mut command = live.script("exit 0");
        // Large enough that a handful fills the channel.
        command.env.push(("BULK".into(), "x".repeat(100_000).as_str().into()));
        let null = null();
        let refused = (2..100).find_map(|exec| {
            let asked = live.session.exec(exec, &command, Stdio::Pipes([null.as_fd(); 3]));
            asked.err().map(|error| (exec, error))
        });
        let (exec, error) = refused.unwrap();
        assert!(matches!(error, AskError::Refused(_)), "{error}");
        live.until("the answers", |live| {
            (2..exec).all(|exec| live.heard.get(&exec).is_some_and(|it| it.ended.is_some()))
        });
    });
}

fn forwarded(live: &mut Live, forward: u32, port: u16) -> Result<OwnedFd, Errno> {
    live.session.forward(forward, port).unwrap();
    live.until("an answer", |live| live.forwards.contains_key(&forward));
    let socket = live.forwards.remove(&forward).unwrap()?;
    // It may still be connecting.
    let mut wait = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::OUT)];
    rustix::event::poll(&mut wait, None).unwrap();
    rustix::net::sockopt::socket_error(&socket).unwrap()?;
    Ok(socket)
}

const SERVER: &str = r#"exec perl -MIO::Socket::INET -e '
    my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 0, Listen => 5) or die;
    open(my $file, ">", "port.new") or die; print $file $server->sockport; close $file; rename "port.new", "port";
    while (my $client = $server->accept) {
        my $line = <$client>; print $client "inside heard $line"; close $client;
    }'"#;

pub fn a_forwarded_port_reaches_a_server_inside_and_only_there() {
    for_each_user(|bench| {
        let mut live = bench.start(SERVER, None);
        let file = bench.workspace().join("port");
        live.until("the server", |_| file.exists());
        let port: u16 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        for forward in [1, 2, 1] {
            let mut stream = TcpStream::from(forwarded(&mut live, forward, port).unwrap());
            stream.set_nonblocking(false).unwrap();
            stream.write_all(b"a word\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "inside heard a word\n");
        }
        // A server of the host at a port where no process listens inside is not what a forward reaches.
        let host = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let its_port = host.local_addr().unwrap().port();
        let other = if its_port == port { 1 } else { its_port };
        assert_eq!(forwarded(&mut live, 3, other).unwrap_err(), Errno::CONNREFUSED);
        assert_eq!(live.heard[&LEADER].ended, None);
    });
}
