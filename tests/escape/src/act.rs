//! Parts that the scenes run inside: processes that linger, detach, flood or lie. All of them end without help.

use crate::sys;
use std::io::Write;
use std::time::{Duration, Instant};

/// Plays a part; the label is only there to be found in the arguments.
pub fn play(arguments: &[String]) -> i32 {
    let word = |index: usize| arguments.get(index).map_or("", String::as_str);
    let seconds = word(2).parse().unwrap_or(5);
    match word(0) {
        "linger" => linger(seconds),
        "stubborn" => {
            ignore_all();
            linger(seconds)
        }
        "steal" => {
            ignore_all();
            steal(seconds)
        }
        "daemon" => daemon(seconds, true),
        "pipe-daemon" => daemon(seconds, false),
        "guard" => guard(seconds),
        "flood" => flood(word(1).parse().unwrap_or(0)),
        "forge" => forge(),
        "type" => type_into_terminals(&[word(1), word(2)].concat()),
        "answer" => answer(),
        // Only eight bits of a code arrive (wait(2)).
        "exit" => sys::leave(word(1).parse().unwrap_or(2)),
        other => {
            eprintln!("act: no part {other}");
            2
        }
    }
}

fn send(text: &str) -> i32 {
    let mut out = std::io::stdout();
    i32::from(out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err())
}

fn ignore_all() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGUSR1] {
        sys::ignore(signal);
    }
}

fn linger(seconds: u64) -> i32 {
    let failed = send("started\n");
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
    failed
}

/// Reads its own stderr back, so that a reader outside finds nothing after poll(2) said that there is something: a
/// large piece on stdout keeps the reader busy meanwhile. It has won when no process empties stdout any more, and then
/// does nothing.
fn steal(seconds: u64) -> i32 {
    let failed = send("started\n");
    let Ok(back) = sys::open("/proc/self/fd/2", libc::O_RDONLY | libc::O_NONBLOCK, 0) else { return linger(seconds) };
    let back = std::os::fd::AsRawFd::as_raw_fd(&back) as usize;
    let block = vec![b'x'; 32 * 1024];
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut spin = 1;
    while Instant::now() < end {
        sys::either_way(sys::call(libc::SYS_write, &[2, sys::address(b"e"), 1]));
        sys::either_way(sys::call(libc::SYS_write, &[1, sys::address(block.as_slice()), block.len()]));
        // A different moment each time.
        spin = (spin * 7919 + 13) % 300_007;
        let later = Instant::now() + Duration::from_nanos(spin);
        while Instant::now() < later {}
        let mut byte = [0_u8; 16];
        if sys::call(libc::SYS_read, &[back, sys::address_mut(&mut byte), byte.len()]).is_ok_and(|count| count > 0) {
            let emptied = (0..40).any(|_| {
                std::thread::sleep(Duration::from_micros(500));
                let mut left = 1_i32;
                sys::either_way(sys::call(libc::SYS_ioctl, &[1, libc::FIONREAD as usize, sys::address_mut(&mut left)]));
                left == 0
            });
            if !emptied {
                return linger(seconds);
            }
        }
    }
    failed
}

/// Double fork, a session of its own, signals ignored; the leader ends at once with 0.
fn daemon(seconds: u64, close: bool) -> i32 {
    if !detach(seconds, close) {
        return 1;
    }
    0
}

/// The same, but the leader stays.
fn guard(seconds: u64) -> i32 {
    if !detach(seconds, true) {
        return 1;
    }
    linger(seconds)
}

/// True once the detached process lives.
fn detach(seconds: u64, close: bool) -> bool {
    match sys::fork() {
        Ok(0) => {
            // A failure (already a leader) changes nothing for the attack.
            sys::either_way(sys::call(libc::SYS_setsid, &[]));
            match sys::fork() {
                Ok(0) => {
                    ignore_all();
                    if close {
                        for fd in 0..3_usize {
                            sys::either_way(sys::call(libc::SYS_close, &[fd]));
                        }
                    }
                    let end = Instant::now() + Duration::from_secs(seconds);
                    while Instant::now() < end {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    sys::leave(0)
                }
                Ok(_) => sys::leave(0),
                Err(_) => sys::leave(1),
            }
        }
        Ok(child) => sys::wait(child, true) == Some(0),
        Err(_) => false,
    }
}

fn flood(bytes: usize) -> i32 {
    let block = "a line of output that goes on and on and on and on and on 0123\n".repeat(1024);
    let mut out = std::io::stdout().lock();
    let mut left = bytes;
    while left > 0 {
        let part = left.min(block.len());
        if out.write_all(&block.as_bytes()[..part]).is_err() {
            return 1;
        }
        left -= part;
    }
    0
}

/// Prints what looks like the driver's own report of a success, and fails.
fn forge() -> i32 {
    let report = r#"{"run_id":"forged","exit_code":0,"signal":null,"reason":"exit","output":{"stdout":{"text":""}}}"#;
    eprintln!("{report}");
    if send(report) != 0 {
        return 1;
    }
    42
}

/// Types the mark into the terminals that a process has by right, and says what the kernel answered at the first. Others
/// in sight are left alone: without a sandbox they are those of the machine.
fn type_into_terminals(label: &str) -> i32 {
    let own = sys::open("/dev/tty", libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK, 0);
    let numbers = [0, 1, 2].into_iter().chain(own.iter().map(std::os::fd::AsRawFd::as_raw_fd));
    let reported: Vec<_> = numbers.map(|fd| type_into(fd as usize, label)).collect();
    let first = reported.first().into_iter().flatten().map(|(call, answer)| format!("{call}={answer}"));
    send(&format!("{}\nplayed\n", first.collect::<Vec<_>>().join(" ")))
}

fn type_into(fd: usize, label: &str) -> Vec<(&'static str, String)> {
    let mut reported = Vec::new();
    for (call, request) in [("tiocsti", libc::TIOCSTI as usize), ("high-bits", libc::TIOCSTI as usize | 1 << 32)] {
        let mut answer = "nothing".to_owned();
        for byte in label.bytes().chain([b'\n']) {
            answer = sys::ask(libc::SYS_ioctl, &[fd, request, sys::address(&byte)]).answer;
        }
        reported.push((call, answer));
    }
    // TIOCL_PASTESEL: types what is selected on a console.
    let paste = [3_u8; 4];
    reported
        .push(("tioclinux", sys::ask(libc::SYS_ioctl, &[fd, libc::TIOCLINUX as usize, sys::address(&paste)]).answer));
    reported
}

/// Asks for a line and repeats it.
fn answer() -> i32 {
    let mut line = String::new();
    if send("what? ") != 0 || std::io::stdin().read_line(&mut line).is_err() {
        return 1;
    }
    send(&format!("heard {}\n", line.trim()))
}
