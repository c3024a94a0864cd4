//! Starts commands under one driver as one user, with a deadline, and collects what came out.

use super::fault::{self, Refuse};
use super::inspect::wait_until;
use super::world::{World, WorldError, making};
use crate::sys;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Driver that runs the commands.
#[derive(Debug, Clone)]
pub enum Driver {
    /// Directly: proves that the probe can see the hole.
    Unsandboxed,
    /// By this program's `leaky` mode: proves that the suite notices a driver that isolates nothing.
    Leaky(PathBuf),
    /// By `nexus run`.
    Real(PathBuf),
}

/// A driver, the user that starts it, and the world it is started in.
#[derive(Debug)]
pub struct Bench {
    /// Driver that runs the commands.
    pub driver: Driver,
    /// Objects on the host that the driver must not reach.
    pub world: World,
    /// Parts of the confinement that a test build of the driver leaves out, with commas between.
    pub leave_out: String,
    /// Set to end the suite early.
    pub stop: Arc<AtomicBool>,
}

/// A command and the way to run it.
#[derive(Debug, Default)]
pub struct Job<'a> {
    /// A command of the driver other than `run`, with everything before `--`.
    pub verb: Vec<String>,
    /// Flags of `nexus run`.
    pub flags: Vec<String>,
    /// Words of the command.
    pub command: Vec<String>,
    /// The workspace, when not the world's first one.
    pub workspace: Option<PathBuf>,
    /// Leave descriptors 3 to 20 open in the driver.
    pub leak_descriptors: bool,
    /// System calls that the driver must find refused.
    pub refuse: &'a [Refuse],
    /// One more variable for the driver.
    pub variable: Option<(String, String)>,
}

impl<'a> Job<'a> {
    /// A command under flags.
    pub fn new(flags: &[&str], command: &[&str]) -> Self {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self { flags: owned(flags), command: owned(command), ..Self::default() }
    }

    /// In this workspace.
    pub fn within(mut self, workspace: &Path) -> Self {
        self.workspace = Some(workspace.to_path_buf());
        self
    }

    /// With these system calls refused.
    pub fn refusing(mut self, refuse: &'a [Refuse]) -> Self {
        self.refuse = refuse;
        self
    }
}

/// A driver that runs.
#[derive(Debug)]
pub struct Running {
    /// Process id of the driver.
    pub pid: i32,
    started: Instant,
    out: PathBuf,
    err: PathBuf,
    stop: Arc<AtomicBool>,
}

/// A driver that ended.
#[derive(Debug, Default)]
pub struct Ran {
    /// Its exit code; `None` when a signal or the deadline ended it.
    pub code: Option<i32>,
    /// Ended by the suite's own deadline.
    pub overdue: bool,
    /// Everything on stdout.
    pub stdout: String,
    /// Everything on stderr.
    pub stderr: String,
    /// From start to end.
    pub elapsed: Duration,
    /// Peak memory of the driver and the children it waited for.
    pub peak_kib: i64,
}

impl Ran {
    /// The report of `--json`: the whole of stdout must be one document.
    pub fn report(&self) -> Option<serde_json::Value> {
        serde_json::from_str(&self.stdout).ok().filter(serde_json::Value::is_object)
    }

    /// Returns the command's own output, with or without `--json`.
    pub fn text(&self) -> String {
        match self.report().and_then(|report| report.pointer("/output/stdout/text")?.as_str().map(str::to_owned)) {
            Some(text) => text,
            None => self.stdout.clone(),
        }
    }

    /// `reason` of the report, or `refused` when the driver did not start the command.
    pub fn reason(&self) -> String {
        let reason = self.report().and_then(|report| report.get("reason")?.as_str().map(str::to_owned));
        match (reason, self.code) {
            (Some(reason), _) if reason != "refused" && reason != "exit" => reason,
            (_, Some(125)) => "refused".to_owned(),
            (_, Some(code)) => format!("exit:{code}"),
            (_, None) => if self.overdue { "overdue" } else { "killed" }.to_owned(),
        }
    }

    /// A few words for the detail of an answer.
    pub fn summary(&self) -> String {
        let tail: String = self.stderr.trim().chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
        format!("code {:?} after {} ms: {}", self.code, self.elapsed.as_millis(), tail.replace('\n', " | "))
    }
}

impl Bench {
    /// A job that plays one of the attacker's parts.
    pub fn part(&self, flags: &[&str], part: &[&str]) -> Job<'static> {
        Job { command: self.world.attack(part), ..Job::new(flags, &[]) }
    }

    /// Starts and waits; a driver that is still there after `limit` is killed.
    pub fn run(&self, job: &Job, limit: Duration) -> Result<Ran, WorldError> {
        self.start(job)?.finish(limit)
    }

    /// Starts the driver with a command.
    pub fn start(&self, job: &Job) -> Result<Running, WorldError> {
        let mut command = self.prepared(job)?;
        let stamp = format!("{}", Instant::now().duration_since(*START).as_nanos());
        let out = self.world.base.join("out").join(format!("{stamp}.out"));
        let err = self.world.base.join("out").join(format!("{stamp}.err"));
        command.stdin(Stdio::null());
        command.stdout(making("the output file", fs::File::create(&out))?);
        command.stderr(making("the error file", fs::File::create(&err))?);
        let started = Instant::now();
        let child = making(command.get_program().to_string_lossy().into_owned(), command.spawn())?;
        Ok(Running { pid: child.id() as i32, started, out, err, stop: Arc::clone(&self.stop) })
    }

    /// The driver as its user, with everything but its standard streams.
    pub fn prepared(&self, job: &Job) -> Result<Command, WorldError> {
        let workspace = job.workspace.clone().unwrap_or_else(|| self.world.context.workspace.clone());
        let mut command = self.command(job, &workspace);
        if let Some(uid) = self.world.owner {
            // std also drops the supplementary groups when root changes the uid.
            command.uid(uid).gid(uid);
        }
        let groups = self.world.context.has_groups;
        let root = making("the root directory", fs::File::open("/"))?;
        let leak = job.leak_descriptors.then_some(root);
        let mut program = if job.refuse.is_empty() { Vec::new() } else { fault::program(job.refuse) };
        // SAFETY: the closure only makes system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                if groups && libc::setgroups(GROUPS.len(), GROUPS.as_ptr()) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                if let Some(root) = &leak {
                    leak_descriptors(root.as_raw_fd());
                }
                if program.is_empty() { Ok(()) } else { fault::install(&mut program) }
            });
        }
        Ok(command)
    }

    fn command(&self, job: &Job, workspace: &Path) -> Command {
        let mut command = match &self.driver {
            Driver::Unsandboxed => {
                let mut command = Command::new(&job.command[0]);
                command.args(&job.command[1..]);
                command
            }
            Driver::Leaky(program) | Driver::Real(program) => {
                let mut command = Command::new(program);
                if matches!(self.driver, Driver::Leaky(_)) {
                    command.arg("leaky");
                }
                if job.verb.is_empty() {
                    command.arg("run").arg("--workspace").arg(workspace).args(&job.flags);
                } else {
                    command.args(&job.verb);
                }
                if !job.command.is_empty() {
                    command.arg("--").args(&job.command);
                }
                command
            }
        };
        command.current_dir(workspace).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", &self.world.home);
        command.env("NEXUS_STATE_DIR", self.world.base.join("state"));
        command.env("NEXUS_CONFIG_DIR", self.world.base.join("config"));
        command.env("SSH_AUTH_SOCK", self.world.base.join("side/host.sock"));
        command.env("NEXUS_ESCAPE_SECRET", &self.world.context.secret);
        if !self.leave_out.is_empty() {
            command.env("NEXUS_LEAVE_OUT", &self.leave_out);
        }
        if let Some((name, value)) = &job.variable {
            command.env(name, value);
        }
        command
    }
}

/// Groups of the host that root's driver is started with: disk and shadow of Debian, whatever their names are here.
const GROUPS: [libc::gid_t; 2] = [6, 42];

static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

/// Opens the descriptors 3 to 20 on the root directory, without close-on-exec; numbers in use stay as they are.
fn leak_descriptors(root: i32) {
    for number in 3..=20 {
        // SAFETY: plain descriptor numbers; dup2 never touches a number in use, as the check before shows.
        unsafe {
            if libc::fcntl(number, libc::F_GETFD) < 0 {
                libc::dup2(root, number);
            }
        }
    }
}

impl Running {
    /// Returns the output up to now.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap_or_default()).into_owned()
    }

    /// Waits for the end, or kills it after `limit`.
    pub fn finish(self, limit: Duration) -> Result<Ran, WorldError> {
        let mut status = 0;
        // SAFETY: an all-zero rusage is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let mut reap = |flags| {
            // SAFETY: both pointers are live; this process is the parent.
            unsafe { libc::wait4(self.pid, &raw mut status, flags, &raw mut usage) == self.pid }
        };
        let mut ended = false;
        wait_until(limit, || {
            ended = reap(libc::WNOHANG);
            ended || self.stop.load(Ordering::Relaxed)
        });
        let overdue = !ended;
        let elapsed = self.started.elapsed();
        if overdue {
            sys::either_way(sys::kill(self.pid, libc::SIGKILL));
            reap(0);
        }
        let read = |path: &Path| {
            making(format!("{}", path.display()), fs::read(path))
                .map(|found| String::from_utf8_lossy(&found).into_owned())
        };
        let ran = Ran {
            code: (libc::WIFEXITED(status) && !overdue).then(|| libc::WEXITSTATUS(status)),
            overdue,
            stdout: read(&self.out)?,
            stderr: read(&self.err)?,
            elapsed,
            peak_kib: usage.ru_maxrss,
        };
        for path in [&self.out, &self.err] {
            making("the output's removal", fs::remove_file(path))?;
        }
        Ok(ran)
    }
}
