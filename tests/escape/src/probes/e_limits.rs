//! E01 to E05: loads, bounded so that nothing hurts the host when there is no limit.

use crate::answer::{Answer, errno_name};
use crate::context::Context;
use crate::host::neighbour::{Burnt, LOOPS};
use crate::sys;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// Forks children that wait; `bounded` when the kernel refused before `attempts`.
pub fn fork_bomb(attempts: usize) -> Answer {
    let mut children = Vec::new();
    let mut refused = None;
    while children.len() < attempts {
        match sys::fork() {
            Ok(0) => {
                sys::pause();
                sys::leave(0)
            }
            Ok(child) => children.push(child),
            Err(number) => {
                refused = Some(errno_name(number));
                break;
            }
        }
    }
    let count = children.len();
    for child in children {
        if sys::kill(child, libc::SIGKILL).is_ok() {
            sys::wait(child, true);
        }
    }
    finish_bomb(refused, count)
}

/// The same with threads, which count as well.
pub fn thread_bomb(attempts: usize) -> Answer {
    let (hold, released) = (std::sync::Mutex::new(()), std::sync::Condvar::new());
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut count = 0;
    let mut refused = None;
    std::thread::scope(|scope| {
        while count < attempts {
            let body = || {
                let mut guard = hold.lock().ok();
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    let Some(held) = guard.take() else { return };
                    guard = released.wait_timeout(held, Duration::from_millis(50)).ok().map(|(held, _)| held);
                }
            };
            match std::thread::Builder::new().stack_size(64 * 1024).spawn_scoped(scope, body) {
                Ok(_) => count += 1,
                Err(error) => {
                    refused = Some(Answer::from_error(&error).answer);
                    break;
                }
            }
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        released.notify_all();
    });
    finish_bomb(refused, count)
}

fn finish_bomb(refused: Option<String>, count: usize) -> Answer {
    match refused {
        Some(name) if name == "EAGAIN" => Answer::of("bounded").with(format!("EAGAIN after {count}")),
        Some(name) => Answer::of(name).with(format!("after {count}")),
        None => Answer::of("unbounded").with(format!("{count} made")),
    }
}

/// Twin: a few children.
pub fn few_forks(_: &Context) -> Answer {
    let answer = fork_bomb(8);
    Answer::choose(answer.answer == "unbounded", "ok", "refused").with(answer.detail.unwrap_or_default())
}

/// Touches every page of this much memory.
pub fn touch_memory(bytes: usize) -> Answer {
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(bytes).is_err() {
        return Answer::of("ENOMEM");
    }
    memory.resize(bytes, 1);
    std::hint::black_box(&memory);
    Answer::of("ok")
}

/// Fills a directory. A file that reached its full size is kept for a moment, so that a quota by polling can see it.
pub fn fill(context: &Context, directory: &Path, bytes: usize, keep: Duration) -> Answer {
    let path = directory.join(format!("nexus-escape-fill-{}", context.token));
    let block = vec![0x5a_u8; 1 << 20];
    let write = || {
        let mut file = fs::File::create(&path)?;
        for _ in 0..bytes >> 20 {
            file.write_all(&block)?;
        }
        file.flush()
    };
    let answer = Answer::from_io(write());
    if answer.answer == "ok" {
        std::thread::sleep(keep);
    }
    let size = fs::metadata(&path).map_or(0, |found| found.len());
    sys::either_way(fs::remove_file(&path));
    answer.with(format!("{} MiB written", size >> 20))
}

/// Fills the private home.
pub fn fill_home(context: &Context, bytes: usize) -> Answer {
    match std::env::var_os("HOME") {
        Some(home) => fill(context, Path::new(&home), bytes, Duration::from_secs(1)),
        None => Answer::of("no-home"),
    }
}

/// Reserves blocks without writing them.
pub fn reserve(context: &Context, bytes: usize) -> Answer {
    let path = context.workspace.join("reserved");
    let file = match sys::open(&path, libc::O_CREAT | libc::O_WRONLY, 0o644) {
        Ok(file) => file,
        Err(number) => return Answer::of("no-file").with(errno_name(number)),
    };
    let answer = Answer::from(sys::call(libc::SYS_fallocate, &[file.as_raw_fd() as usize, 0, 0, bytes]));
    if answer.answer == "ok" {
        std::thread::sleep(Duration::from_secs(1));
    }
    sys::either_way(fs::remove_file(&path));
    answer
}

/// Makes empty files until refused.
pub fn exhaust_inodes(context: &Context, directory: &Path, count: usize) -> Answer {
    let home = directory.join(format!("nexus-escape-inodes-{}", context.token));
    if let Err(error) = fs::create_dir(&home) {
        return Answer::from_error(&error).with("mkdir");
    }
    let mut made = 0;
    let mut answer = Answer::of("ok");
    while made < count {
        match sys::open(home.join(made.to_string()), libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o600) {
            Ok(_) => made += 1,
            Err(number) => {
                answer = Answer::of(errno_name(number));
                break;
            }
        }
    }
    sys::either_way(fs::remove_dir_all(&home));
    answer.with(format!("{made} files"))
}

fn open_terminals(count: usize) -> (Vec<std::os::fd::OwnedFd>, Option<i32>) {
    let mut open = Vec::new();
    while open.len() < count {
        match sys::open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC, 0) {
            Ok(terminal) => open.push(terminal),
            Err(number) => return (open, Some(number)),
        }
    }
    (open, None)
}

/// Opens pseudo-terminals until refused. The kernel has one pool of them for the host and every sandbox.
pub fn terminals(attempts: usize) -> Answer {
    let (open, refused) = open_terminals(attempts);
    let answer = match refused {
        None => Answer::of("unbounded"),
        Some(libc::ENOSPC) if !open.is_empty() => Answer::of("bounded"),
        Some(number) => Answer::of(errno_name(number)),
    };
    answer.with(format!("{} open", open.len()))
}

/// Twin: as many as a terminal multiplexer wants.
pub fn terminals_work(count: usize) -> Answer {
    let (open, refused) = open_terminals(count);
    let answer = refused.map_or_else(|| Answer::of("ok"), |number| Answer::of(errno_name(number)));
    answer.with(format!("{} open", open.len()))
}

/// Busy loops for a time; the suite compares the processor time that they get with its own loops.
pub fn burn(time: Duration) -> Answer {
    let from = sys::clock(libc::CLOCK_MONOTONIC);
    let end = from + time;
    let mut children = Vec::new();
    for _ in 0..LOOPS {
        match sys::fork() {
            Ok(0) => {
                while sys::clock(libc::CLOCK_MONOTONIC) < end {
                    std::hint::black_box(0);
                }
                sys::leave(0)
            }
            Ok(child) => children.push(child),
            Err(number) => return Answer::of(errno_name(number)),
        }
    }
    for child in children {
        sys::wait(child, true);
    }
    let to = sys::clock(libc::CLOCK_MONOTONIC);
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: usage is a live structure.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let part = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Burnt { from, to, used: part(usage.ru_utime) + part(usage.ru_stime) }.answer()
}
