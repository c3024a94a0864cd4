//! A launcher process and commands that it starts in sandboxes.

#![allow(dead_code, reason = "each test program uses a part of it")]

use nexus_driver::{Driver, Event, Session};
use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::Launcher;
use nexus_model::plan::{Access, Bind, PlanDraft, Writes};
use nexus_model::{ExitStatus, Limits, Plan};
use rustix::fd::AsFd;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The example program of that name; `cargo test` builds examples, `cargo test --test NAME` does not.
pub fn launcher_program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().and_then(Path::parent).unwrap().join("examples/launcher");
    assert!(
        program.exists(),
        "{} is missing: cargo build -p nexus-driver-namespace --example launcher",
        program.display()
    );
    program
}

pub fn launcher(arguments: &[&str]) -> Launcher {
    let mut program = Command::new(launcher_program());
    program.args(arguments);
    Launcher::start(program, Namespace::with_defaults()).unwrap()
}

/// Returns the pid namespace of a warm sandbox of this launcher, and its first process, once there is one.
pub fn begun(remote: &Launcher, within: Duration) -> Option<(String, String)> {
    let children = format!("/proc/{0}/task/{0}/children", remote.pid());
    let own = fs::read_link("/proc/self/ns/pid").unwrap();
    let deadline = Instant::now() + within;
    while Instant::now() < deadline {
        for pid in fs::read_to_string(&children).unwrap_or_default().split_ascii_whitespace() {
            // One that is waiting in recvmsg(2) has nothing but its channel, its root and its private files.
            let waits = fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|call| call.starts_with("47 "));
            match fs::read_link(format!("/proc/{pid}/ns/pid")) {
                Ok(namespace) if namespace != own && waits => {
                    return Some((namespace.to_str().unwrap().to_owned(), pid.to_owned()));
                }
                _ => {}
            }
        }
        std::thread::yield_now();
    }
    None
}

/// A workspace of the user who runs the test, and what goes around it.
pub struct Bench {
    folder: tempfile::TempDir,
    pub driver: Namespace,
}

impl Bench {
    pub fn new() -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["workspace", "bound"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("workspace/file"), "old\n").unwrap();
        Self { folder, driver: Namespace::with_defaults() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join(name)
    }

    /// A shell script in this workspace, which appears inside at `target`.
    pub fn draft(&self, target: &Path, script: &str) -> PlanDraft {
        let marker = Path::new("/proc/self/task/no-such");
        let mut draft = PlanDraft::direct(&self.path("workspace"), ["/bin/bash", "-c", script], marker);
        draft.workspace.target = target.into();
        draft.cwd = target.into();
        draft.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
        draft.limits = Limits::defaults(16 << 20);
        draft
    }

    /// With a new layer, `layer/upper`.
    pub fn layered(&self, target: &Path, script: &str) -> PlanDraft {
        let mut draft = self.draft(target, script);
        if self.path("layer").exists() {
            fs::rename(self.path("layer"), self.path(&format!("layer-{}", draft.run_id))).unwrap();
        }
        for name in ["layer", "layer/upper", "layer/work"] {
            fs::create_dir(self.path(name)).unwrap();
        }
        draft.workspace.writes = Writes::Layer { root: self.path("layer").as_path().into() };
        draft
    }

    pub fn bind(&self, target: &str) -> Bind {
        Bind { source: self.path("bound").as_path().into(), target: target.into(), access: Access::ReadOnly }
    }

    /// Runs a plan; returns the output and the end of its command, or the reason for which it did not start.
    pub fn run(&self, launcher: Option<&Launcher>, draft: PlanDraft) -> Result<(String, ExitStatus), String> {
        match launcher {
            Some(launcher) => self.run_by(launcher, draft),
            None => self.run_by(&self.driver, draft),
        }
    }

    /// The same with a driver.
    pub fn run_by(&self, driver: &dyn Driver, draft: PlanDraft) -> Result<(String, ExitStatus), String> {
        let plan = Plan::new(draft).unwrap();
        let handle = self.driver.prepare(&plan).unwrap();
        let sandbox = driver.start(&plan, &handle).map_err(|error| error.to_string())?;
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let mut session =
            Session::start(&sandbox, &plan, nexus_driver::Stdio::Pipes([null.as_fd(), writer.as_fd(), writer.as_fd()]))
                .unwrap();
        drop(writer);
        let end = loop {
            match session.recv() {
                Ok(Event::Ended(ended)) => break Ok(ended.status),
                Ok(Event::NotStarted(reason)) => break Err(reason.to_string()),
                Ok(_) => {}
                Err(error) => break Err(error.to_string()),
            }
        };
        sandbox.process.wait().unwrap();
        // What the guest never took is still in it: the ends of the pipe, too.
        drop(session);
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        end.map(|status| (text, status))
    }

    /// The same of a command that must succeed.
    pub fn output(&self, launcher: Option<&Launcher>, draft: PlanDraft) -> String {
        let (text, status) = self.run(launcher, draft).unwrap();
        assert_eq!(status, ExitStatus::Code(0), "{text}");
        text
    }
}
