//! Live sandboxes for tests of sessions, as every user that this process may be.

use nexus_channel::frames::TerminalSize;
use nexus_driver::{CommandEvent, Driver, Event, LEADER, MoreCommand, NotStarted, Sandbox, Session, StartError, Stdio};
use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::Launcher;
use nexus_model::plan::PlanDraft;
use nexus_model::{ExitStatus, Limits, Plan};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Size of a terminal unless a test chooses another one.
pub const SIZE: TerminalSize = TerminalSize { rows: 24, cols: 80 };
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a test as this user, and as an ordinary one if this is root.
pub fn for_each_user(test: impl Fn(&Bench)) {
    test(&Bench::new(None));
    if rustix::process::geteuid().is_root() {
        test(&Bench::new(Some(crate::free_user::ordinary_user().unwrap())));
    }
}

/// A launcher of some user, and a workspace of that user.
pub struct Bench {
    launcher: Launcher,
    driver: Namespace,
    folder: tempfile::TempDir,
    user: Option<u32>,
}

impl Bench {
    fn new(user: Option<u32>) -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(folder.path().join("w")).unwrap();
        // Where the program was built an ordinary user may not be allowed to look.
        let program = folder.path().join("launcher");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = match user {
            None => Command::new(&program),
            Some(user) => {
                for path in [folder.path().to_owned(), folder.path().join("w")] {
                    std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
                }
                let mut command = Command::new("setpriv");
                let id = user.to_string();
                command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(&program);
                command
            }
        };
        command.arg("--as-launcher").current_dir("/").stdout(std::process::Stdio::null());
        Self {
            launcher: Launcher::start(command, Namespace::with_defaults()).unwrap(),
            driver: Namespace::with_defaults(),
            folder,
            user,
        }
    }

    /// The workspace, by the same name inside.
    pub fn workspace(&self) -> PathBuf {
        std::fs::canonicalize(self.folder.path().join("w")).unwrap()
    }

    /// The ordinary user, and the launcher's process; `None` when it is this process' user.
    pub fn ordinary(&self) -> Option<(u32, u32)> {
        self.user.map(|user| (user, self.launcher.pid()))
    }

    /// Protects the launcher from the memory killer; where this process may not, exposes it more. Call it before the first
    /// launch. Returns the score that a sandbox has to have then.
    pub fn score_launcher(&self) -> &'static str {
        let file = format!("/proc/{}/oom_score_adj", self.launcher.pid());
        if std::fs::write(&file, "-900").is_ok() {
            return "0\n";
        }
        std::fs::write(&file, "300").unwrap();
        "300\n"
    }

    /// Asks for a sandbox and forgets it at once; the error is the launcher's.
    pub fn launch(&self) -> Result<(), StartError> {
        let plan = plan(&self.workspace(), "true");
        let sandbox = self.launcher.start(&plan, &self.driver.prepare(&plan).unwrap())?;
        sandbox.process.kill().unwrap();
        sandbox.process.wait().map(drop).unwrap();
        Ok(())
    }

    /// Starts a sandbox whose leader is this script of the shell.
    pub fn start(&self, script: &str, terminal: Option<TerminalSize>) -> Live {
        let workspace = self.workspace();
        let plan = plan(&workspace, script);
        let handle = self.driver.prepare(&plan).unwrap();
        let sandbox = self.launcher.start(&plan, &handle).unwrap();
        let null = null();
        let stdio = terminal.map_or(Stdio::Pipes([null.as_fd(); 3]), Stdio::Terminal);
        let session = Session::start(&sandbox, &plan, stdio).unwrap();
        Live {
            sandbox,
            session,
            screens: BTreeMap::new(),
            heard: BTreeMap::new(),
            forwards: BTreeMap::new(),
            workspace,
        }
    }
}

/// Something to have as stdin, stdout and stderr.
pub fn null() -> File {
    File::options().read(true).write(true).open("/dev/null").unwrap()
}

fn plan(workspace: &Path, script: &str) -> Plan {
    let mut draft = PlanDraft::direct(workspace, ["/bin/sh", "-c", script], Path::new("/proc/self/task/no-such"));
    draft.env = environment();
    draft.limits = Limits::defaults(16 << 20);
    Plan::new(draft).unwrap()
}

fn environment() -> Vec<(nexus_model::ByteText, nexus_model::ByteText)> {
    vec![("PATH".into(), "/usr/bin:/bin".into()), ("TERM".into(), "dumb".into()), ("PS1".into(), "$ ".into())]
}

/// Events of a command that the guest reported.
#[derive(Debug, Default)]
pub struct Heard {
    /// The command has started.
    pub started: bool,
    /// Reason for which it did not start.
    pub not_started: Option<NotStarted>,
    /// Its end, once it has ended.
    pub ended: Option<ExitStatus>,
}

/// A terminal of a command.
#[derive(Default)]
pub struct Screen {
    /// Its master until the end of output.
    pub master: Option<OwnedFd>,
    /// All that it showed.
    pub text: String,
}

/// A sandbox with what was heard of it. Everything inside dies with it.
pub struct Live {
    pub sandbox: Sandbox,
    pub session: Session,
    pub screens: BTreeMap<u32, Screen>,
    pub heard: BTreeMap<u32, Heard>,
    pub forwards: BTreeMap<u32, Result<OwnedFd, Errno>>,
    workspace: PathBuf,
}

impl Live {
    /// Asks for an exec: a script of the shell.
    pub fn exec(&mut self, exec: u32, script: &str, terminal: Option<TerminalSize>) {
        let command = self.script(script);
        let null = null();
        let stdio = terminal.map_or(Stdio::Pipes([null.as_fd(); 3]), Stdio::Terminal);
        self.session.exec(exec, &command, stdio).unwrap();
    }

    pub fn script(&self, script: &str) -> MoreCommand {
        MoreCommand {
            argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
            env: environment(),
            cwd: self.workspace.as_path().into(),
        }
    }

    /// Types into a terminal.
    pub fn type_in(&self, exec: u32, text: &str) {
        let master = self.screens[&exec].master.as_ref().unwrap();
        assert_eq!(rustix::io::write(master, text.as_bytes()), Ok(text.len()));
    }

    /// All that the terminal of a command has shown.
    pub fn text(&self, exec: u32) -> &str {
        self.screens.get(&exec).map_or("", |screen| &screen.text)
    }

    /// Listens until this holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds(self) {
            let shown = self.screens.iter().map(|(exec, screen)| (exec, &screen.text)).collect::<Vec<_>>();
            assert!(Instant::now() < deadline, "not seen: {what}; heard {:?}; shown {shown:?}", self.heard);
            self.listen();
        }
    }

    /// Listens until the terminal of a command shows this.
    pub fn until_shown(&mut self, exec: u32, text: &str) {
        self.until(text, |live| live.text(exec).contains(text));
    }

    /// Listens until a command has ended, and all that it wrote was read if it had a terminal.
    pub fn end_of(&mut self, exec: u32) -> ExitStatus {
        let ended = |live: &Self| live.heard.get(&exec).is_some_and(|heard| heard.ended.is_some());
        self.until("its end", |live| {
            ended(live) && live.screens.get(&exec).is_none_or(|screen| screen.master.is_none())
        });
        self.heard[&exec].ended.unwrap()
    }

    fn listen(&mut self) {
        let mut list = Vec::new();
        let leader_ended = self.heard.get(&LEADER).is_some_and(|heard| heard.ended.is_some());
        if !leader_ended {
            list.push(PollFd::new(&self.session, PollFlags::IN));
        }
        let shown = |screen: &&Screen| screen.master.is_some();
        let masters = self.screens.values().filter(shown).filter_map(|screen| screen.master.as_ref());
        list.extend(masters.map(|master| PollFd::new(master, PollFlags::IN)));
        poll(&mut list, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).unwrap();
        let said = !leader_ended && !list[0].revents().is_empty();
        drop(list);
        for screen in self.screens.values_mut() {
            screen.read();
        }
        // What ended the guest is still to be read.
        self.session.flush().ok();
        if said {
            self.recv();
        }
    }

    fn recv(&mut self) {
        let of = |heard: &mut BTreeMap<u32, Heard>, exec, event| {
            let known: &mut Heard = heard.entry(exec).or_default();
            match event {
                CommandEvent::Started(_) => known.started = true,
                CommandEvent::NotStarted(reason) => known.not_started = Some(reason),
                CommandEvent::Ended(ended) => known.ended = Some(ended.status),
            }
        };
        match self.session.recv().unwrap() {
            Event::Up | Event::Layer(_) | Event::Listeners(_) | Event::Names(_) | Event::OutOfTime => {}
            Event::Started(proof) => of(&mut self.heard, LEADER, CommandEvent::Started(proof)),
            Event::NotStarted(reason) => panic!("{reason}"),
            Event::Ended(ended) => of(&mut self.heard, LEADER, CommandEvent::Ended(ended)),
            Event::Command { exec, event } => of(&mut self.heard, exec, event),
            Event::Terminal { exec, master } => {
                self.screens.insert(exec, Screen { master: Some(master), text: String::new() });
            }
            Event::Forwarded { forward, socket } => {
                self.forwards.insert(forward, Ok(socket));
            }
            Event::ForwardFailed { forward, errno } => {
                self.forwards.insert(forward, Err(Errno::from_raw_os_error(errno)));
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.sandbox.process.kill().unwrap();
        self.sandbox.process.wait().unwrap();
    }
}

impl Screen {
    fn read(&mut self) {
        let mut buffer = [0u8; 8192];
        while let Some(master) = &self.master {
            match rustix::io::read(master, &mut buffer) {
                // EIO: no process has the other end any more.
                Ok(0) | Err(Errno::IO) => self.master = None,
                Ok(count) => self.text.push_str(&String::from_utf8_lossy(&buffer[..count])),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(error) => panic!("the terminal: {error}"),
            }
        }
    }
}
