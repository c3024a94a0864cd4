//! Standard input of the caller: it passes when it is a pipe, a socket or a file, and what the command does not read is
//! still the caller's.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use support::screen::Screen;
use support::{Bench, on_each_bench, report, skip, stderr, stdout};

/// Runs a script of the caller, in which `nexus` is the bench's program, with these bytes in a pipe.
fn script(bench: &Bench, text: &str, input: &[u8]) -> Output {
    let text = format!("nexus() {{ {} \"$@\"; }}\n{text}", bench.program().display());
    with_pipe(bench.command("bash").args(["-c", &text]), input)
}

fn with_pipe(command: &mut std::process::Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A command that reads no more breaks the pipe.
    let writer = std::thread::spawn(move || drop(to.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// A line for each number below this one.
fn numbers(end: u32) -> String {
    (0..end).map(|number| number.to_string() + "\n").collect()
}

fn text(output: &Output) -> String {
    assert!(stderr(output).is_empty(), "{}", stderr(output));
    stdout(output)
}

#[test]
fn a_pipe_a_socket_and_a_file_pass() {
    on_each_bench(|bench| {
        assert_eq!(text(&with_pipe(&mut bench.nexus(["run", "--", "cat"]), b"piped")), "piped");
        let file = File::open(bench.write("input", "of a file")).unwrap();
        assert_eq!(text(&bench.nexus(["run", "--", "cat"]).stdin(file).output().unwrap()), "of a file");
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"of a socket").unwrap();
        drop(ours);
        let theirs = Stdio::from(std::os::fd::OwnedFd::from(theirs));
        assert_eq!(text(&bench.nexus(["run", "--", "cat"]).stdin(theirs).output().unwrap()), "of a socket");
        let json = with_pipe(&mut bench.nexus(["run", "--json", "--", "cat"]), b"piped");
        assert_eq!(report(&json)["output"]["stdout"]["text"], "piped");
    });
}

#[test]
fn standard_input_is_empty_when_asked() {
    on_each_bench(|bench| {
        let output = script(&bench, "nexus run --no-stdin -- cat; cat", b"left");
        assert_eq!(text(&output), "left");
        for other in ["--stdin", "--tty"] {
            assert_eq!(bench.run(["run", "--no-stdin", other, "--", "true"]).status.code(), Some(2));
        }
    });
}

#[test]
fn an_input_that_cannot_be_read_is_named_and_is_not_taken_for_the_output() {
    on_each_bench(|bench| {
        let write_only = File::options().write(true).open("/dev/null").unwrap();
        for (input, said) in [
            (File::open(&bench.home).unwrap(), "standard input cannot be read: it is a directory"),
            (write_only, "standard input cannot be read: it is open for writing only"),
        ] {
            let output = bench.nexus(["run", "--stdin", "--", "touch", "ran"]).stdin(input).output().unwrap();
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{}: {told}", bench.who());
            assert!(told.contains(said) && !told.contains("disk full"), "{}: {told}", bench.who());
            assert!(!bench.workspace.join("ran").exists(), "{}", bench.who());
        }
        // A file whose entries have eight bytes: a read from the second byte on fails.
        let mut entries = File::open("/proc/self/pagemap").unwrap();
        entries.seek(SeekFrom::Start(1)).unwrap();
        let output = bench.nexus(["run", "--stdin", "--", "sleep", "20"]).stdin(entries).output().unwrap();
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{}: {told}", bench.who());
        assert!(told.contains("input could not be read") && !told.contains("disk full"), "{}: {told}", bench.who());
    });
}

#[test]
fn a_loop_that_reads_lines_keeps_its_lines() {
    on_each_bench(|bench| {
        let text_of = |run: &str| format!("while read -r line; do echo \"$line\"; {run}; done");
        let lines = b"one\ntwo\nthree\n";
        assert_eq!(text(&script(&bench, &text_of("nexus run -- true"), lines)), "one\ntwo\nthree\n");
        let file = bench.write("lines", lines);
        let from_file = format!("{} < {}", text_of("nexus run -- true"), file.display());
        assert_eq!(text(&script(&bench, &from_file, b"")), "one\ntwo\nthree\n");
        // A command that reads takes the lines, as outside.
        assert_eq!(text(&script(&bench, &text_of("nexus run -- cat > /dev/null"), lines)), "one\n");
    });
}

#[test]
fn a_command_takes_only_what_it_reads() {
    on_each_bench(|bench| {
        let bytes = numbers(20_000);
        let taken = "nexus run -- dd bs=1000 count=1 iflag=fullblock status=none; echo; echo ---; cat";
        let expected = format!("{}\n---\n{}", &bytes[..1000], &bytes[1000..]);
        assert!(text(&script(&bench, taken, bytes.as_bytes())) == expected, "of a pipe");
        let mut file = File::open(bench.write("input", &bytes)).unwrap();
        file.seek(SeekFrom::Start(10)).unwrap();
        let run = ["run", "--", "dd", "bs=1000", "count=70", "iflag=fullblock", "status=none"];
        let output = bench.nexus(run).stdin(file.try_clone().unwrap()).output().unwrap();
        assert!(text(&output) == bytes[10..70_010], "of a file");
        assert_eq!(file.stream_position().unwrap(), 70_010);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&bytes.as_bytes()[..5000]).unwrap();
        drop(ours);
        let mut left = theirs.try_clone().unwrap();
        let run = ["run", "--", "dd", "bs=1000", "count=1", "iflag=fullblock", "status=none"];
        let output = bench.nexus(run).stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).output().unwrap();
        assert!(text(&output) == bytes[..1000], "of a socket");
        let mut rest = String::new();
        left.read_to_string(&mut rest).unwrap();
        assert!(rest == bytes[1000..5000], "the rest of a socket");
    });
}

#[test]
fn a_head_and_the_next_program_share_a_pipe() {
    on_each_bench(|bench| {
        let bytes = numbers(3000);
        let outside = script(&bench, "head -n 1; echo ---; cat", bytes.as_bytes());
        let inside = script(&bench, "nexus run -- head -n 1; echo ---; cat", bytes.as_bytes());
        assert!(text(&inside) == text(&outside), "the second program finds what the first left");
    });
}

#[test]
fn input_that_never_comes_holds_nothing_up() {
    on_each_bench(|bench| {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let began = Instant::now();
        let output = bench.nexus(["run", "--", "true"]).stdin(read.try_clone().unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        rustix::io::write(&write, b"never read").unwrap();
        let output = bench.nexus(["run", "--", "sleep", "0.3"]).stdin(read.try_clone().unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        drop(write);
        let mut rest = String::new();
        File::from(read).read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "never read");
    });
}

#[test]
fn an_answer_to_each_line_arrives() {
    on_each_bench(|bench| {
        let mut nexus = bench.nexus(["run", "--shell", "while read -r line; do echo \"got $line\"; done"]);
        let mut child = nexus.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        for number in 0..200 {
            to.write_all(format!("{number}\n").as_bytes()).unwrap();
            let mut answer = vec![0; format!("got {number}\n").len()];
            from.read_exact(&mut answer).unwrap();
            assert_eq!(answer, format!("got {number}\n").as_bytes());
        }
        drop(to);
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn a_child_of_node_gets_its_input() {
    on_each_bench(|bench| {
        // Node gives a child the end of a socket.
        let text = format!(
            "const child = require('child_process').spawn('{}', ['run', '--', 'sh', '-c', 'read a; echo \"$a\"; cat'],\n\
             {{ stdio: ['pipe', 'inherit', 'inherit'] }});\n\
             child.stdin.write('first\\n'); setTimeout(() => child.stdin.end('x'.repeat(300000)), 100);\n\
             child.on('close', (code) => process.exit(code));",
            bench.program().display()
        );
        let output = bench.command("node").args(["-e", &text]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output) == format!("first\n{}", "x".repeat(300_000)), "{} bytes", stdout(&output).len());
    });
}

#[test]
fn a_gigabyte_passes_a_pipe_and_a_file() {
    on_each_bench(|bench| {
        let began = Instant::now();
        let output = script(&bench, "head -c 1073741824 /dev/zero | nexus run -- wc -c", b"");
        assert_eq!(text(&output), "1073741824\n");
        eprintln!("{}: 1 GiB of a pipe in {:.2} s", bench.who(), began.elapsed().as_secs_f64());
        let file = File::create(bench.home.join("sparse")).unwrap();
        file.set_len(1 << 30).unwrap();
        let began = Instant::now();
        let file = File::open(bench.home.join("sparse")).unwrap();
        let output = bench.nexus(["run", "--", "wc", "-c"]).stdin(file).output().unwrap();
        assert_eq!(text(&output), "1073741824\n");
        eprintln!("{}: 1 GiB of a file in {:.2} s", bench.who(), began.elapsed().as_secs_f64());
    });
}

#[test]
fn a_detached_command_has_an_empty_input() {
    on_each_bench(|bench| {
        let run = "id=$(nexus run --detach -- wc -c); nexus wait \"$id\" > /dev/null; nexus logs \"$id\"; cat";
        let output = script(&bench, run, b"left");
        assert_eq!(stdout(&output), "0\nleft", "{}", stderr(&output));
    });
}

#[test]
fn a_command_that_wants_a_terminal_names_the_flag() {
    on_each_bench(|bench| {
        let advice = "perhaps: python3 wants a terminal";
        let mut screen = Screen::run(&bench, ["run", "--changes", "discard", "--", "python3"]);
        screen.wait_for(advice);
        screen.end();
        let mut asks = Screen::run(&bench, ["run", "--changes", "discard", "--", "python3", "-c", "input()"]);
        asks.wait_for("nexus run -t gives it one");
        asks.end();
        let mut silent = Screen::run(&bench, ["run", "--changes", "discard", "--no-stdin", "--", "python3"]);
        silent.end();
        assert!(!silent.shown().contains("perhaps"), "{}", silent.shown());
        let piped = with_pipe(&mut bench.nexus(["run", "--", "python3"]), b"print(6 * 7)");
        assert_eq!(text(&piped), "42\n");
    });
}

/// A file of this process's own memory: after 8 KiB its reads fail with EIO.
fn failing() -> File {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
    let end = stack.split(['-', ' ']).nth(1).unwrap();
    let mut file = File::open("/proc/self/mem").unwrap();
    file.seek(SeekFrom::Start(u64::from_str_radix(end, 16).unwrap() - 8192)).unwrap();
    file
}

#[test]
fn a_read_of_the_input_that_fails_is_no_end_of_it() {
    assert_eq!(std::io::copy(&mut failing(), &mut std::io::sink()).unwrap_err().raw_os_error(), Some(5));
    on_each_bench(|bench| {
        let mut command = bench.nexus(["run", "--stdin", "--shell", "cat > copied; echo whole > done"]);
        let output = command.stdin(failing()).output().unwrap();
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{}: {told}", bench.who());
        assert!(told.contains("input could not be read: Input/output error"), "{}: {told}", bench.who());
        assert!(!bench.workspace.join("done").exists(), "{}: a part was taken for the whole", bench.who());
    });
}

#[test]
fn a_read_of_the_input_that_waits_holds_up_no_time_limit() {
    let what = "a file whose reads are never answered";
    if File::options().read(true).write(true).open("/dev/fuse").is_err() || !rustix::process::geteuid().is_root() {
        return skip::skipped(&format!("{what} takes root and /dev/fuse"));
    }
    on_each_bench(|bench| {
        let file = bench.base.path().join("silent");
        std::fs::write(&file, "").unwrap();
        let mut server = std::process::Command::new("python3")
            .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile/silent_fuse.py"), file.to_str().unwrap()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        server.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        let receipts = || std::fs::read_dir(bench.state.join("receipts")).map_or(0, Iterator::count);
        let mut command = bench.nexus(["run", "--stdin", "--timeout", "2s", "--grace", "1s", "--", "sleep", "60"]);
        command.stdin(File::open(&file).unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
        let (before, began) = (receipts(), Instant::now());
        let mut child = command.spawn().unwrap();
        while receipts() == before && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = receipts() > before;
        // The kernel keeps a process until a read that its file system has taken is answered, or that one has gone.
        server.kill().unwrap();
        server.wait().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(124), "{}", bench.who());
        assert!(ended, "{}: the end waited for the read", bench.who());
        rustix::mount::unmount(&file, rustix::mount::UnmountFlags::DETACH).unwrap();
    });
}
