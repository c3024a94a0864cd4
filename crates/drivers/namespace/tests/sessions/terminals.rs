//! Commands with a terminal of their own, in real sandboxes.

use crate::support::{SIZE, for_each_user};
use nexus_channel::frames::TerminalSize;
use nexus_driver::LEADER;
use nexus_model::ExitStatus;

pub fn a_command_has_a_terminal_of_its_own() {
    for_each_user(|bench| {
        let script = "tty; test -t 0 && test -t 1 && test -t 2 && echo all three; echo through its name >/dev/tty; \
                      stty size; ls /proc/self/fd | tr '\\n' ' '";
        let mut live = bench.start(script, Some(SIZE));
        assert_eq!(live.end_of(LEADER), ExitStatus::Code(0));
        // The fourth descriptor is the directory that ls looks into: neither the master nor the channel leaked.
        let wanted = "/dev/pts/0\r\nall three\r\nthrough its name\r\n24 80\r\n0 1 2 3 ";
        assert_eq!(live.text(LEADER), wanted);
    });
}

pub fn a_command_without_a_terminal_has_no_controlling_one() {
    for_each_user(|bench| {
        let mut live = bench.start("tty && exit 1; if (exec 3</dev/tty) 2>/dev/null; then exit 2; fi", None);
        assert_eq!(live.end_of(LEADER), ExitStatus::Code(0));
    });
}

pub fn a_new_size_reaches_the_command() {
    for_each_user(|bench| {
        let script = "trap 'stty size; exit 7' WINCH; stty size; while :; do sleep 0.02; done";
        let mut live = bench.start(script, Some(SIZE));
        live.until_shown(LEADER, "24 80");
        live.session.resize(LEADER, TerminalSize { rows: 50, cols: 132 }).unwrap();
        live.until_shown(LEADER, "50 132");
        assert_eq!(live.end_of(LEADER), ExitStatus::Code(7));
    });
}

pub fn a_new_size_for_no_terminal_changes_nothing() {
    for_each_user(|bench| {
        let mut live = bench.start("read line; stty size; exit 3", Some(SIZE));
        live.until("its terminal", |live| live.screens.contains_key(&LEADER));
        live.session.resize(99, TerminalSize { rows: 1, cols: 1 }).unwrap();
        live.type_in(LEADER, "\n");
        assert_eq!(live.end_of(LEADER), ExitStatus::Code(3));
        assert!(live.text(LEADER).contains("24 80"));
    });
}

pub fn ctrl_c_interrupts_only_the_foreground_job() {
    for_each_user(|bench| {
        let mut live = bench.start("exec sh -i", Some(SIZE));
        live.until_shown(LEADER, "$ ");
        live.type_in(LEADER, "stty -echo\n");
        live.type_in(LEADER, "sleep 1000 & back=$!; echo ready-$((1+1))\n");
        live.until_shown(LEADER, "ready-2");
        // The echo comes from the job that is then replaced by the sleep: so it is in the foreground.
        live.type_in(LEADER, "sh -c 'echo front-$((1+1)); exec sleep 1001'\n");
        live.until_shown(LEADER, "front-2");
        live.type_in(LEADER, "\x03");
        live.type_in(LEADER, "echo status-$?; kill -0 $back && echo background-alive; jobs\n");
        live.until_shown(LEADER, "background-alive");
        assert!(live.text(LEADER).contains("status-130"), "{}", live.text(LEADER));
        live.until_shown(LEADER, "Running");
        live.type_in(LEADER, "kill $back; exit 5\n");
        live.until("its end", |live| live.heard[&LEADER].ended.is_some());
        assert_eq!(live.heard[&LEADER].ended, Some(ExitStatus::Code(5)));
    });
}

pub fn ctrl_z_stops_a_job_and_fg_goes_on_with_it() {
    for_each_user(|bench| {
        let mut live = bench.start("exec sh -i", Some(SIZE));
        live.until_shown(LEADER, "$ ");
        live.type_in(LEADER, "stty -echo\nsh -c 'echo one-$((1+1)); read line; echo got-$line'\n");
        live.until_shown(LEADER, "one-2");
        live.type_in(LEADER, "\x1a");
        live.until_shown(LEADER, "Stopped");
        live.type_in(LEADER, "fg\nword\n");
        live.until_shown(LEADER, "got-word");
        live.type_in(LEADER, "exit 0\n");
        assert_eq!(live.end_of(LEADER), ExitStatus::Code(0));
    });
}

pub fn a_terminal_changes_no_exit_status() {
    for_each_user(|bench| {
        for (script, status) in [
            ("exit 0", ExitStatus::Code(0)),
            ("exit 255", ExitStatus::Code(255)),
            ("kill -TERM $$", ExitStatus::Signal(15)),
            ("kill -HUP $$", ExitStatus::Signal(1)),
        ] {
            assert_eq!(bench.start(script, Some(SIZE)).end_of(LEADER), status, "{script}");
        }
    });
}

pub fn a_signal_reaches_the_process_group_of_a_command_with_a_terminal() {
    for_each_user(|bench| {
        let mut live = bench.start("sleep 1000 & echo ready; wait", Some(SIZE));
        live.until_shown(LEADER, "ready");
        live.session.signal(LEADER, 15).unwrap();
        assert_eq!(live.end_of(LEADER), ExitStatus::Signal(15));
    });
}

pub fn all_that_was_written_is_there_after_the_end() {
    for_each_user(|bench| {
        let mut live = bench.start("seq 1 20000", Some(SIZE));
        assert_eq!(live.end_of(LEADER), ExitStatus::Code(0));
        let lines: Vec<&str> = live.text(LEADER).lines().collect();
        assert_eq!((lines.len(), lines.last()), (20000, Some(&"20000")));
    });
}

/// Twice: as the number stands, and with a bit above 31 set, which the kernel does not read (CVE-2019-10063).
pub fn no_command_types_into_its_own_terminal() {
    let script = r#"exec perl -e '
        open(my $tty, "+<", "/dev/tty") or die "no terminal";
        my $size = "\0" x 8;
        print "size ", (defined ioctl($tty, 0x5413, $size) ? "ok" : 0 + $!), "\n";
        for my $number (0x5412, 0x541c, 0x5412 | 1 << 40) {
            my $byte = "x";
            my $done = syscall(16, fileno($tty), $number, $byte);
            printf "%x %s\n", $number, $done >= 0 ? "done" : 0 + $!;
        }'"#;
    for_each_user(|bench| {
        let mut live = bench.start(script, Some(SIZE));
        assert_eq!(live.end_of(LEADER), ExitStatus::Code(0), "{}", live.text(LEADER));
        assert_eq!(live.text(LEADER), "size ok\r\n5412 1\r\n541c 1\r\n10000005412 1\r\n");
    });
}

pub fn a_terminal_is_gone_when_its_command_has_ended() {
    for_each_user(|bench| {
        let mut live = bench.start("while :; do sleep 0.05; done", None);
        for exec in 2..40 {
            live.exec(exec, "exit 4", Some(SIZE));
            assert_eq!(live.end_of(exec), ExitStatus::Code(4));
        }
        // One terminal is the asking command's own; a master that was left open would keep its number.
        live.exec(40, "ls /dev/pts | tr '\\n' ' '", Some(SIZE));
        assert_eq!(live.end_of(40), ExitStatus::Code(0));
        assert_eq!(live.text(40), "0 ptmx ");
    });
}
