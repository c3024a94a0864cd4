//! A command hands open files of its layer on to another sandbox, which outlives it. Nothing that this one writes later
//! reaches the workspace, and what was reviewed is what is accepted.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Output, Stdio};
use std::time::{Duration, SystemTime};
use support::{Bench, benches, report, stderr, stdout};

/// Takes descriptors from a socket in the shared directory and answers. When its standard input ends it writes to each in
/// every way that it has, and prints how often that worked.
const ACCOMPLICE: &str = r"
import mmap, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind('/sh/s')
server.listen()
print('up', flush=True)
client, _ = server.accept()
_, held, _, _ = socket.recv_fds(client, 1, 16)
mapped = mmap.mmap(held[0], 4)
client.send(b'k')
sys.stdin.read()
wrote = 0
for fd in held:
    for name in [None, f'/proc/self/fd/{fd}', 'conf', 'later']:
        try:
            beneath = name and not name.startswith('/')
            flags = os.O_RDWR | (os.O_CREAT if beneath else 0)
            file = os.open(name, flags, dir_fd=fd if beneath else None) if name else fd
            wrote += os.pwrite(file, b'EVIL', 0) == 4
        except OSError:
            pass
mapped[0:4] = b'EVIL'
print('wrote', wrote, flush=True)
";

/// Writes harmless files, hands them on in the ways that a descriptor can be had, and ends.
const COMMAND: &str = r"
import os, socket
os.makedirs('new/deep')
for name in ['conf', 'new/deep/file', '.git/config']:
    text = '[core]\n\tbare = false\n[user]\n\tname = harmless\n' if name == '.git/config' else 'harmless\n'
    with open(name, 'w') as file:
        file.write(text)
held = [os.open(name, os.O_RDWR) for name in ['conf', 'new/deep/file', '.git/config']]
held += [os.open('conf', os.O_RDONLY), os.open('conf', os.O_PATH), os.open('.', os.O_RDONLY)]
other = socket.socket(socket.AF_UNIX)
other.connect('/sh/s')
socket.send_fds(other, [b'f'], held)
assert other.recv(1) == b'k'
";

struct Accomplice {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Accomplice {
    /// Starts the second sandbox, in a workspace of its own.
    fn start(bench: &Bench) -> Self {
        let own = make_dir(bench, "own");
        let mut command = bench.nexus(["run", "--stdin", "--rw"]);
        command.arg(shared(bench)).args(["--", "python3", "-c", ACCOMPLICE]).current_dir(own);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "up\n", "{}", bench.who());
        Self { process, said }
    }

    /// Lets it write, and waits for its end.
    fn strike(mut self) {
        drop(self.process.stdin.take());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        self.process.wait().unwrap();
        let wrote: u32 = rest.trim().strip_prefix("wrote ").unwrap().parse().unwrap();
        assert!(wrote >= 3, "the attack itself failed: {rest}");
    }
}

fn make_dir(bench: &Bench, name: &str) -> PathBuf {
    let path = bench.base.path().join(name);
    fs::create_dir(&path).unwrap();
    bench.give(&path);
    path
}

/// The value of `--rw` for a directory that two sandboxes share.
fn shared(bench: &Bench) -> String {
    let path = bench.base.path().join("shared");
    if !path.exists() {
        make_dir(bench, "shared");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    format!("{}:/sh", path.display())
}

fn run(bench: &Bench, flags: &[&str]) -> Output {
    let shared = shared(bench);
    let socket = bench.base.path().join("shared/s");
    let mut arguments = vec!["run", "--rw", shared.as_str(), "--allow-socket", socket.to_str().unwrap()];
    arguments.extend(flags);
    arguments.extend(["--", "python3", "-c", COMMAND]);
    bench.run(arguments)
}

fn prepare(bench: &Bench) {
    bench.write("conf", "old\n");
    for (name, text) in [("config", "[core]\n\tbare = false\n"), ("HEAD", "ref: refs/heads/main\n")] {
        bench.write(&format!(".git/{name}"), text);
    }
}

fn is_harmless(directory: &Path) {
    for name in ["conf", "new/deep/file", ".git/config"] {
        let text = fs::read_to_string(directory.join(name)).unwrap();
        assert!(text.contains("harmless") && !text.contains("EVIL"), "{name}: {text}");
    }
    assert!(!directory.join("later").exists());
}

#[test]
fn what_another_sandbox_holds_is_not_written_after_the_commit() {
    for bench in benches() {
        prepare(&bench);
        let other = Accomplice::start(&bench);
        let output = run(&bench, &[]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        is_harmless(&bench.workspace);
        other.strike();
        is_harmless(&bench.workspace);
        assert_eq!(bench.leftovers(), Vec::<PathBuf>::new(), "{}", bench.who());
    }
}

#[test]
fn what_another_sandbox_holds_is_not_written_after_the_review() {
    for bench in benches() {
        prepare(&bench);
        let other = Accomplice::start(&bench);
        let output = run(&bench, &["--changes", "review"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        let before = stdout(&bench.run(["changes", "diff"]));
        assert!(before.contains("+harmless"), "{before}");
        other.strike();
        assert_eq!(stdout(&bench.run(["changes", "diff"])), before, "{}", bench.who());
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        is_harmless(&bench.workspace);
    }
}

#[test]
fn what_is_held_of_a_layer_in_memory_is_not_written_either() {
    for bench in benches() {
        prepare(&bench);
        let other = Accomplice::start(&bench);
        let output = run(&bench, &["--disk", "16M", "--changes", "review"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        other.strike();
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        is_harmless(&bench.workspace);
    }
}

/// The user and root alone can write the state directory; a mistake of theirs is found all the same.
#[test]
fn what_changed_since_the_review_is_shown_again_first() {
    for bench in benches() {
        let output = bench.run(["run", "--changes", "review", "--shell", "echo seen > f"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        let layer = fs::read_dir(bench.state.join("layers")).unwrap().map(|entry| entry.unwrap().path());
        let file = layer.map(|layer| layer.join("upper/f")).find(|file| file.exists()).unwrap();
        let later = || {
            fs::write(&file, "evil\n").is_ok()
                && modified(&file) > modified(&file.ancestors().nth(2).unwrap().join("parked.json"))
        };
        support::wait_until("a later time stamp", Duration::from_secs(5), later);
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("nexus changes show"), "{}", stderr(&output));
        assert!(!bench.workspace.join("f").exists());
        assert_eq!(bench.run(["changes", "show"]).status.code(), Some(0));
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join("f")).unwrap(), "evil\n");
    }
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// The look at the overlay is what makes copies rare: without anything held the layer's own inodes arrive.
#[test]
fn files_that_no_process_holds_are_moved_and_not_copied() {
    for bench in benches() {
        let output = bench.run(["run", "--json", "--shell", "mkdir d; echo x > d/f; stat -c %i d/f"]);
        let inside = report(&output)["output"]["stdout"]["text"].as_str().map(|text| text.trim().to_owned());
        let found = fs::metadata(bench.workspace.join("d/f")).unwrap().ino().to_string();
        assert_eq!(inside.as_deref(), Some(found.as_str()), "{}: {}", bench.who(), stdout(&output));
    }
}

#[test]
fn a_supervisor_holds_no_descriptor_of_its_caller() {
    for bench in benches() {
        let secret = bench.write("secret", "x");
        let nexus = bench.nexus(["run", "--detach", "--", "sleep", "60"]);
        let mut command = bench.command("sh");
        command.args(["-c", "exec 3<secret 7<secret 9<secret; exec \"$@\"", "sh"]).arg(nexus.get_program());
        let output = command.args(nexus.get_args()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        let id = stdout(&output).trim().to_owned();
        let descriptors = fs::read_dir(format!("/proc/{}/fd", bench.supervisor(&id))).unwrap();
        let open: Vec<_> = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).collect();
        assert!(open.len() > 3, "{}: {open:?}", bench.who());
        assert!(!open.contains(&secret), "{}: {open:?}", bench.who());
        assert_eq!(bench.run(["stop", "--grace", "10ms", &id]).status.code(), Some(0), "{}", bench.who());
    }
}
