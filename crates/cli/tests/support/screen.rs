//! A terminal that a test made, with the test at its keys: the caller's terminal of `nexus`.

use super::{Bench, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::pty::OpenptFlags;
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest time that anything may take here.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Written by the test itself after the end of the program.
const END: &[u8] = b"\0the end\0";

/// A terminal and the program that runs on it.
pub struct Screen {
    master: File,
    /// Held open, so that what was set can be looked at after the end.
    slave: File,
    before: Termios,
    shown: Arc<Mutex<Vec<u8>>>,
    closing: Arc<AtomicBool>,
    reader: Option<std::thread::JoinHandle<()>>,
    /// The program, in a session of its own whose terminal this is.
    pub child: Child,
}

impl Screen {
    /// Runs `nexus` on a new terminal, which is also the controlling one of a new session.
    pub fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(bench: &Bench, arguments: I) -> Self {
        let mut command = bench.command("setsid");
        command.args(["--ctty", "--"]).arg(bench.base.path().join("bin/nexus")).args(arguments).env("TERM", "xterm");
        Self::start(command)
    }

    /// Runs a command there.
    pub fn start(mut command: Command) -> Self {
        let (master, slave) = pair();
        tcsetwinsize(&slave, size(24, 80)).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (master.try_clone().unwrap(), Arc::clone(&shown));
        let closing = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&closing);
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0u8; 65536];
            let often = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            while !stop.load(Ordering::SeqCst) {
                let mut list = [PollFd::new(&from, PollFlags::IN)];
                if poll(&mut list, Some(&often)) == Ok(0) {
                    continue;
                }
                match from.read(&mut buffer) {
                    Ok(count @ 1..) => to.lock().unwrap().extend_from_slice(&buffer[..count]),
                    // Made so while keys are typed that no process reads.
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    _ => return,
                }
            }
        });
        Self { master, slave, before, shown, closing, reader: Some(reader), child }
    }

    /// Types these keys.
    pub fn send(&self, keys: &str) {
        (&self.master).write_all(keys.as_bytes()).unwrap();
    }

    /// Types until the terminal takes no more.
    pub fn send_until_full(&self, keys: &str) {
        let flags = rustix::fs::fcntl_getfl(&self.master).unwrap();
        rustix::fs::fcntl_setfl(&self.master, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut since = std::time::Instant::now();
        while since.elapsed() < Duration::from_millis(300) {
            if (&self.master).write(keys.as_bytes()).is_ok() {
                since = std::time::Instant::now();
            } else {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        rustix::fs::fcntl_setfl(&self.master, flags).unwrap();
    }

    /// The terminal goes away, as when its window is closed.
    pub fn hang_up(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        self.reader.take().unwrap().join().unwrap();
        self.master = File::open("/dev/null").unwrap();
    }

    /// Gives the terminal another size.
    pub fn resize(&self, rows: u16, cols: u16) {
        tcsetwinsize(&self.master, size(rows, cols)).unwrap();
    }

    /// Everything that was shown.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until this was shown.
    pub fn wait_for(&self, text: &str) {
        self.wait_for_count(text, 1);
    }

    /// Waits until this was shown so many times.
    pub fn wait_for_count(&self, text: &str, count: usize) {
        let end = std::time::Instant::now() + PATIENCE;
        while self.shown().matches(text).count() < count {
            assert!(std::time::Instant::now() < end, "{text:?} was not shown, but {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the end of the program.
    pub fn end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the end of the program on a terminal", PATIENCE, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        self.read_all();
        status.unwrap()
    }

    /// Until everything is read that was written: what comes last is our own, and is not shown.
    fn read_all(&self) {
        let Some(reader) = &self.reader else { return };
        let marked = (&self.slave).write_all(END).is_ok();
        let at = |shown: &[u8]| shown.windows(END.len()).position(|window| window == END);
        wait_until("what was shown last", PATIENCE, || {
            let mut shown = self.shown.lock().unwrap();
            match at(&shown) {
                Some(start) => {
                    shown.drain(start..start + END.len());
                    true
                }
                // A terminal that hung up takes no mark, and its reader ends.
                None => !marked && reader.is_finished(),
            }
        });
    }

    /// Signals the program.
    pub fn kill(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Reports whether the program has put the terminal into raw mode.
    pub fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_modes.contains(rustix::termios::LocalModes::ICANON)
    }

    /// Fails unless the terminal's settings are those of the start.
    pub fn assert_as_before(&self, what: &str) {
        let now = tcgetattr(&self.slave).unwrap();
        let all =
            |termios: &Termios| (termios.input_modes, termios.output_modes, termios.control_modes, termios.local_modes);
        assert_eq!(all(&now), all(&self.before), "{what}");
    }

    /// Returns the input that waits for the next reader of this terminal.
    pub fn left_to_read(&self) -> Vec<u8> {
        let mut raw = self.before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(&self.slave, rustix::termios::OptionalActions::Now, &raw).unwrap();
        rustix::fs::fcntl_setfl(&self.slave, rustix::fs::OFlags::NONBLOCK).unwrap();
        let mut buffer = [0u8; 4096];
        match (&self.slave).read(&mut buffer) {
            Ok(count) => buffer[..count].to_vec(),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                Vec::new()
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

fn pair() -> (File, File) {
    let master: OwnedFd = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
    (master.into(), slave.into())
}

fn size(rows: u16, cols: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }
}
