//! The door of a warm launcher, from both sides: whom it serves, and what a caller makes of what it finds there.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../../tests/support/skip.rs"]
mod skip;
mod support;

use nexus_channel::{codec, descriptors};
use nexus_driver::{Driver, StartError};
use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::warm::{DoorError, Greeting, LauncherDoor, OwnFacts, Place, WarmDriver};
use nexus_model::Plan;
use nexus_model::plan::{Access, Bind, PlanDraft, Writes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::net::RecvFlags;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::{Bench, launcher_program};

const INSIDE: &str = "/workspace";

/// A launcher whose door is a thread of this process.
struct Warm {
    directory: PathBuf,
    stop: UnixStream,
    door: JoinHandle<Result<(), DoorError>>,
}

fn settings() -> BTreeMap<&'static str, String> {
    BTreeMap::new()
}

impl Warm {
    fn start(bench: &Bench) -> Self {
        let directory = bench.path("warm");
        let place = Place::make(&directory).unwrap();
        let own = OwnFacts::read(settings()).unwrap();
        let door = LauncherDoor::open(place, own, Duration::from_secs(600)).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let door = std::thread::spawn(move || {
            door.keep(stopped.as_fd(), &|| {
                let mut program = Command::new(launcher_program());
                program.args(["warm", "false", "1"]);
                program
            })
        });
        let warm = Self { directory, stop, door };
        // It has nothing ready for its first caller.
        let plan = Plan::new(bench.draft(Path::new(INSIDE), "true")).unwrap();
        warm.started(&plan).process.kill().unwrap();
        warm
    }

    /// A sandbox of the launcher, once it is ready for this plan.
    fn started(&self, plan: &Plan) -> nexus_driver::Sandbox {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match start(&self.driver(), plan) {
                Ok(sandbox) => return sandbox,
                Err(error) => assert!(is_cold(&error) && Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The driver of a run. This process has threads, so that it can start no sandbox itself.
    fn driver(&self) -> WarmDriver {
        WarmDriver::new(Namespace::with_defaults(), &self.directory, settings())
    }

    /// Runs a command through the launcher, once it is ready for the plan.
    fn output(&self, bench: &Bench, draft: impl Fn() -> PlanDraft) -> String {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match bench.run_by(&self.driver(), draft()) {
                Ok((text, _)) => return text,
                Err(error) => assert!(error.contains("threads") && Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn socket(&self) -> PathBuf {
        socket_in(&self.directory)
    }

    fn stop(self) {
        drop(self.stop);
        self.door.join().unwrap().unwrap();
    }
}

fn socket_in(directory: &Path) -> PathBuf {
    let place = Place::open(directory).unwrap().unwrap();
    let names = place.names().unwrap();
    assert_eq!(names.len(), 1, "{names:?}");
    directory.join(&names[0])
}

/// Says whether a driver tried to start a sandbox in this process, which has threads.
fn is_cold(error: &StartError) -> bool {
    matches!(error, StartError::Setup(step) if step.step == "single_thread")
}

fn start(driver: &WarmDriver, plan: &Plan) -> Result<nexus_driver::Sandbox, StartError> {
    driver.start(plan, &driver.prepare(plan).unwrap())
}

fn has_ended(sandbox: &nexus_driver::Sandbox, within: Duration) -> bool {
    let within = Timespec { tv_sec: within.as_secs().cast_signed(), tv_nsec: within.subsec_nanos().into() };
    let mut wait = [PollFd::from_borrowed_fd(sandbox.process.ended().unwrap(), PollFlags::IN)];
    poll(&mut wait, Some(&within)) != Ok(0)
}

#[test]
fn a_warm_launcher_runs_the_commands_of_its_caller() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    for turn in 0..4 {
        let text = warm.output(&bench, || {
            let mut draft = bench.layered(Path::new(INSIDE), "echo $WORD; cat file; echo new > made");
            draft.env.push(("WORD".into(), "word".into()));
            draft
        });
        assert_eq!(text, "word\nold\n", "{turn}");
        assert_eq!(std::fs::read_to_string(bench.path("layer/upper/made")).unwrap(), "new\n");
    }
    warm.stop();
}

#[test]
fn a_caller_learns_when_the_overlay_of_its_sandbox_is_gone() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    for _ in 0..3 {
        let plan = Plan::new(bench.layered(Path::new(INSIDE), "true")).unwrap();
        let sandbox = warm.started(&plan);
        assert!(!sandbox.process.has_released_layer(Duration::from_millis(50)));
        sandbox.process.kill().unwrap();
        sandbox.process.wait().unwrap();
        assert!(sandbox.process.has_released_layer(Duration::from_secs(60)));
    }
    warm.stop();
}

#[test]
fn a_sandbox_of_a_warm_launcher_ends_with_its_caller() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    for _ in 0..3 {
        let plan = Plan::new(bench.draft(Path::new(INSIDE), "sleep 600")).unwrap();
        let sandbox = warm.started(&plan);
        assert!(!has_ended(&sandbox, Duration::from_millis(100)));
        // The guest channel is still held by another descriptor: only the connection to the launcher ends.
        let channel = sandbox.channel.clone();
        let ended = sandbox.process.ended().unwrap().try_clone_to_owned().unwrap();
        drop(sandbox);
        let mut wait = [PollFd::new(&ended, PollFlags::IN)];
        let within = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_ne!(poll(&mut wait, Some(&within)), Ok(0), "the sandbox lives on without its caller");
        drop(channel);
    }
    warm.stop();
}

#[test]
fn a_sandbox_lives_on_when_its_launcher_is_asked_to_end() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    let plan = Plan::new(bench.draft(Path::new(INSIDE), "sleep 600")).unwrap();
    let sandbox = warm.started(&plan);
    let directory = warm.directory.clone();
    warm.stop();
    assert!(Place::open(&directory).unwrap().unwrap().names().unwrap().is_empty());
    assert!(!has_ended(&sandbox, Duration::from_millis(300)));
    sandbox.process.kill().unwrap();
    sandbox.process.wait().unwrap();
}

/// The command that plays a part: this very program, so that only the place of the process differs.
fn part(name: &str, about: &Path) -> Vec<String> {
    let own = std::env::current_exe().unwrap();
    let about = format!("NEXUS_TEST_PATH={}", about.display());
    let words = ["/usr/bin/env", &about, own.to_str().unwrap(), "--exact", name];
    let words = words.into_iter().chain(["--ignored", "--nocapture", "--test-threads=1"]);
    words.map(str::to_owned).collect()
}

/// Plays a caller and returns the words of the door, as the caller printed them.
fn said(before: &[&str], socket: &Path) -> String {
    printed(before, part("raw_caller", socket))
}

fn printed(before: &[&str], part: Vec<String>) -> String {
    let words: Vec<String> = before.iter().map(|word| (*word).to_owned()).chain(part).collect();
    let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once("DOOR ").map(|(_, said)| said.to_owned()));
    line.unwrap_or_else(|| panic!("{words:?}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Connects and prints what comes. Played by the tests below, in other places than theirs.
#[test]
#[ignore = "a part of other tests"]
fn raw_caller() {
    let Some(socket) = std::env::var_os("NEXUS_TEST_PATH") else { return };
    match UnixStream::connect(socket) {
        Err(error) => println!("DOOR closed {error}"),
        Ok(mut door) => {
            door.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            // More than a stranger may say: nothing of it is read.
            door.write_all(&[0xff; 64]).ok();
            let mut bytes = [0; 1024];
            match door.read(&mut bytes) {
                Ok(0) => println!("DOOR nothing"),
                Ok(count) => println!("DOOR {:?}", codec::decode::<Greeting>(&bytes[codec::HEADER..count])),
                Err(error) => println!("DOOR nothing, {error}"),
            }
        }
    }
}

/// Opens a door and prints what becomes of it.
#[test]
#[ignore = "a part of other tests"]
fn raw_door() {
    let Some(directory) = std::env::var_os("NEXUS_TEST_PATH") else { return };
    let place = Place::make(Path::new(&directory)).unwrap();
    println!("DOOR {:?}", LauncherDoor::open(place, OwnFacts::read(settings()).unwrap(), Duration::ZERO).map(drop));
}

#[test]
fn a_caller_in_other_namespaces_gets_no_word_of_the_door() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    let socket = warm.socket();
    let same = said(&["/usr/bin/env"], &socket);
    assert!(same.contains("Ready"), "{same}");
    let is_root = rustix::process::geteuid().is_root();
    for kind in ["--net", "--mount", "--ipc", "--uts", "--cgroup", "--pid --fork", "--time"] {
        let mut words = vec!["unshare"];
        if !is_root {
            words.extend(["--user", "--map-current-user"]);
        }
        words.extend(kind.split(' '));
        let stranger = said(&words, &socket);
        assert!(stranger.starts_with("nothing"), "{kind}: {stranger}");
    }
    let stranger = said(&["unshare", "--user", "--map-current-user"], &socket);
    assert!(stranger.starts_with("nothing"), "user namespace: {stranger}");
    // Confined by what `/proc` does not show: it says of itself that it can gain no rights.
    let stranger = said(&["setpriv", "--no-new-privs"], &socket);
    assert!(stranger.starts_with("nothing"), "no_new_privs: {stranger}");
    if is_root {
        std::fs::set_permissions(&warm.directory, std::fs::Permissions::from_mode(0o711)).unwrap();
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
        let stranger = said(&["setpriv", "--reuid", "12345", "--clear-groups"], &socket);
        assert!(stranger.starts_with("nothing"), "another user: {stranger}");
    } else {
        skip::partial("only root can be another user");
    }
    warm.stop();
}

#[test]
fn another_program_gets_no_word_of_the_door() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nprint(len(s.recv(64)))";
    let output = Command::new("/usr/bin/python3").args(["-c", script]).arg(warm.socket()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n");
    warm.stop();
}

#[test]
fn a_caller_that_hands_other_things_on_gets_the_difference() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    let socket = warm.socket();
    for (before, fact) in [
        ("umask 0123", "umask"),
        ("ulimit -Sn 77", "limits"),
        ("ulimit -v 40000000", "limits"),
        ("echo 321 > /proc/self/oom_score_adj", "memory killer"),
    ] {
        let script = format!("{before}; exec \"$@\"");
        let told = said(&["/bin/bash", "-c", &script, "bash"], &socket);
        assert!(told.contains(&format!("Unlike {{ what: [\"{fact}\"]")), "{before}: {told}");
    }
    let told = said(&["nice", "-n", "7"], &socket);
    assert!(told.contains("Unlike { what: [\"priority\"]"), "{told}");
    warm.stop();
}

/// The escape: a bind shows the socket to a command, which no plan of `nexus run` does.
#[test]
fn a_command_with_the_socket_in_a_bind_gets_no_word_of_the_door() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    let socket = warm.socket();
    let name = socket.file_name().unwrap().to_str().unwrap();
    let script = format!(
        "python3 -c '\nimport socket\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(20)\ns.connect(\"/door/{name}\")\ntry: s.sendall(b\"x\"*64)\nexcept OSError: pass\ntry: print(len(s.recv(64)))\nexcept OSError as e: print(0)'"
    );
    let text = warm.output(&bench, || {
        let mut draft = bench.draft(Path::new(INSIDE), &script);
        let source = warm.directory.as_path().into();
        draft.binds.push(Bind { source, target: "/door".into(), access: Access::ReadWrite });
        draft
    });
    assert_eq!(text, "0\n");
    warm.stop();
}

#[test]
fn what_a_launcher_cannot_do_like_its_caller_is_left_to_the_caller() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    let mut below_dev = bench.draft(Path::new(INSIDE), "true");
    let access = Access::Device { major: 10, minor: 200 };
    below_dev.binds.push(Bind { source: "/dev/net/tun".into(), target: "/dev/net/tun".into(), access });
    let plan = Plan::new(below_dev).unwrap();
    assert!(is_cold(&start(&warm.driver(), &plan).map(drop).unwrap_err()));
    // The same without that bind.
    let plan = Plan::new(bench.draft(Path::new(INSIDE), "true")).unwrap();
    warm.started(&plan).process.kill().unwrap();
    // Settings that the launcher was not started with.
    let other = BTreeMap::from([("uid_base", "70000".to_owned())]);
    let driver = WarmDriver::new(Namespace::with_defaults(), &warm.directory, other);
    assert!(is_cold(&start(&driver, &plan).map(drop).unwrap_err()));
    warm.stop();
}

/// A process of this user, in its namespaces and of its program, that listens in the place of a launcher and does this.
fn played(bench: &Bench, acts: impl FnOnce(UnixStream) + Send + 'static) -> (PathBuf, JoinHandle<()>) {
    let directory = bench.path("warm");
    let place = Place::make(&directory).unwrap();
    let listener: UnixListener = place.listen(&OwnFacts::read(settings()).unwrap().name().unwrap()).unwrap();
    listener.set_nonblocking(false).unwrap();
    let door = std::thread::spawn(move || acts(listener.accept().unwrap().0));
    (directory, door)
}

fn ready() -> Vec<u8> {
    codec::encode(&Greeting::Ready { started: 0, idle_s: 1 }).unwrap()
}

#[test]
fn without_a_word_of_the_door_the_caller_starts_its_sandbox_itself() {
    let plan = |bench: &Bench| Plan::new(bench.draft(Path::new(INSIDE), "true")).unwrap();
    // Nothing there; a socket without a process; a place of another mode.
    let bench = Bench::new();
    let directory = bench.path("warm");
    let driver = || WarmDriver::new(Namespace::with_defaults(), &directory, settings());
    assert!(is_cold(&start(&driver(), &plan(&bench)).map(drop).unwrap_err()));
    let place = Place::make(&directory).unwrap();
    drop(place.listen(&OwnFacts::read(settings()).unwrap().name().unwrap()).unwrap());
    assert!(is_cold(&start(&driver(), &plan(&bench)).map(drop).unwrap_err()));
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(is_cold(&start(&driver(), &plan(&bench)).map(drop).unwrap_err()));

    // A door that says nothing, that ends, that sends invalid data, and one that sends the caller away.
    let unlike = codec::encode(&Greeting::Unlike { what: vec!["umask".to_owned()], started: 0 }).unwrap();
    for words in [None, Some(Vec::new()), Some(vec![1, 0, 0, 0, 0xff]), Some(vec![0xff; 64]), Some(unlike)] {
        let bench = Bench::new();
        let (told, heard) = std::sync::mpsc::channel::<()>();
        let silent = words.is_none();
        let (directory, door) = played(&bench, move |mut caller| {
            // A caller that waited long enough is gone.
            caller.write_all(&words.unwrap_or_default()).ok();
            if silent {
                heard.recv().ok();
            }
        });
        let driver = WarmDriver::new(Namespace::with_defaults(), &directory, settings());
        let began = Instant::now();
        assert!(is_cold(&start(&driver, &plan(&bench)).map(drop).unwrap_err()));
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        drop(told);
        door.join().unwrap();
    }
}

#[test]
fn a_launcher_that_was_asked_and_answers_oddly_gets_the_run_refused() {
    let answers = [Vec::new(), vec![1, 0, 0, 0, 0xff], vec![0xff; 64], vec![2, 0, 0, 0, 1]];
    for words in answers.map(|answer| [ready(), answer].concat()) {
        let bench = Bench::new();
        let (directory, door) = played(&bench, move |mut caller| {
            caller.write_all(&words).unwrap();
            // The request is taken whole, and then the connection ends.
            let mut header = [0; codec::HEADER];
            caller.read_exact(&mut header).unwrap();
            let mut request = vec![0; codec::payload_len(header).unwrap()];
            caller.read_exact(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request).into_owned();
            assert!(!request.contains("hunter2"), "a launcher is told no variable and no argument");
        });
        let driver = WarmDriver::new(Namespace::with_defaults(), &directory, settings());
        let mut draft = bench.draft(Path::new(INSIDE), "echo hunter2");
        draft.env.push(("TOKEN".into(), "hunter2".into()));
        let plan = Plan::new(draft).unwrap();
        let error = start(&driver, &plan).map(drop).unwrap_err();
        door.join().unwrap();
        assert_eq!(error.code(), "launcher", "{error}");
    }
}

/// A launcher that was stopped after its door had greeted.
#[test]
fn a_request_that_no_launcher_takes_costs_little_and_is_never_acted_on() {
    let bench = Bench::new();
    let (told, heard) = std::sync::mpsc::channel::<()>();
    let (directory, door) = played(&bench, move |mut caller| {
        caller.write_all(&ready()).unwrap();
        heard.recv().ok();
        // The launcher goes on, and finds the request and that it may not act on it.
        let mut request = vec![0; 1 << 16];
        let found = descriptors::receive(&caller, &mut request, RecvFlags::empty()).unwrap();
        assert!(found.bytes > codec::HEADER);
        let mut claim = std::fs::File::from(found.descriptors.into_iter().next().unwrap());
        assert_eq!(claim.read(&mut [0; 1]).unwrap(), 0, "the claim is there to be taken");
    });
    let driver = WarmDriver::new(Namespace::with_defaults(), &directory, settings());
    let plan = Plan::new(bench.draft(Path::new(INSIDE), "true")).unwrap();
    let began = Instant::now();
    assert!(is_cold(&start(&driver, &plan).map(drop).unwrap_err()));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(driver.passed_over().unwrap().contains("did not take the request"), "{:?}", driver.passed_over());
    drop(told);
    door.join().unwrap();
}

/// A launcher that was stopped while it started the sandbox: a second one would share its layer.
#[test]
fn a_launcher_that_took_the_request_and_says_nothing_gets_the_run_refused() {
    let bench = Bench::new();
    let (directory, door) = played(&bench, move |mut caller| {
        caller.write_all(&ready()).unwrap();
        let mut request = vec![0; 1 << 16];
        let found = descriptors::receive(&caller, &mut request, RecvFlags::empty()).unwrap();
        let mut claim = std::fs::File::from(found.descriptors.into_iter().next().unwrap());
        assert_eq!(claim.read(&mut [0; 1]).unwrap(), 1);
        std::thread::sleep(Duration::from_secs(1));
    });
    let driver = WarmDriver::new(Namespace::with_defaults(), &directory, settings());
    let plan = Plan::new(bench.draft(Path::new(INSIDE), "true")).unwrap();
    let error = start(&driver, &plan).map(drop).unwrap_err();
    door.join().unwrap();
    assert_eq!(error.code(), "launcher", "{error}");
}

#[test]
fn a_layer_in_memory_comes_from_the_launcher() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    let mut draft = bench.draft(Path::new(INSIDE), "true");
    draft.workspace.writes = Writes::MemoryLayer { bytes: 1 << 20 };
    let plan = Plan::new(draft).unwrap();
    let sandbox = warm.started(&plan);
    assert!(sandbox.changes.has_descriptor());
    sandbox.process.kill().unwrap();
    warm.stop();
}

#[test]
fn one_door_has_a_name_and_a_confined_process_keeps_none() {
    let bench = Bench::new();
    let warm = Warm::start(&bench);
    let open = || {
        LauncherDoor::open(Place::make(&warm.directory).unwrap(), OwnFacts::read(settings()).unwrap(), Duration::ZERO)
    };
    assert!(matches!(open(), Err(DoorError::Taken)));
    warm.stop();
    // What is around such a process, `/proc` does not show.
    let directory = bench.path("another");
    assert_eq!(printed(&["/usr/bin/env"], part("raw_door", &directory)), "Ok(())");
    assert_eq!(printed(&["setpriv", "--no-new-privs"], part("raw_door", &directory)), "Err(Confined)");
}
