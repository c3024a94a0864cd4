//! Starts sandboxes, follows their output and ends them.
//!
//! ```text
//!  start ─ flags ─▶ supervisor (Engine) ─ id ─▶ follow: a thread that takes its output and its report ─▶ Run
//!  wait ◀─ output, end ── Run ── stop ─▶ supervisor        file of all output: mcp/SERVER/ID, bounded
//! ```

use crate::names;
use crate::narrow::Bounds;
use crate::output::{Capture, Source};
use crate::own_directory::OwnDirectory;
use crate::wire::lock;
use nexus_caller::failure::Failure;
use nexus_caller::notices;
use nexus_model::{ByteText, RunId};
use nexus_runner::live::signal::SIGTERM;
use nexus_runner::session::link::{ANSWER_WITHIN, Answer, Found, Link, is_gone};
use nexus_runner::session::store::{Condition, Entry, Store};
use nexus_runner::session::until_ended::until_ended;
use nexus_runner::session::wire::{ClientMessage, Launched, Reader, ServerMessage};
use nexus_runner::state::directory::StateDir;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most bytes of the output of one command in its file.
pub const MAX_STORED: u64 = 64 << 20;
/// Commands that run at a time.
const MAX_RUNNING: usize = 64;
/// Commands that are remembered after their end, with their output.
const MAX_KEPT: usize = 64;
/// Bytes of input in one frame to a supervisor.
const INPUT_FRAME: usize = 64 * 1024;
/// Time between two looks at whether a call was cancelled.
const LOOK: Duration = Duration::from_millis(25);
/// Time that a command has after SIGTERM.
const GRACE_MS: u64 = 500;
/// Longest wait for the end of a command that was asked to end.
const END_WITHIN: Duration = Duration::from_secs(30);

/// Time limit of a command of Nexus's own, where the server has no shorter one.
const OWN_TIME_MS: u64 = 30_000;

/// Starts supervisors for the server.
pub trait Engine: Send + Sync {
    /// Starts a supervisor with the server's own flags of `nexus run` and these after them.
    fn launch(&self, flags: Vec<OsString>) -> io::Result<Started>;
    /// Says what the server's own flags, profiles and policies allow.
    fn bounds(&self) -> Result<Bounds, Failure>;
}

/// A supervisor that was started.
pub struct Started {
    /// The first message of the supervisor.
    pub launched: Launched,
    /// The process of the supervisor.
    pub process: Child,
    /// One end of a socket whose other end the supervisor has. The sandbox ends when this end is closed, thus also when this process dies.
    pub owner: UnixStream,
}

/// A command that one call starts.
#[derive(Debug, Default)]
pub struct Request {
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// The text of the command, for lists.
    pub title: String,
    /// Further flags of `nexus run`.
    pub flags: Vec<OsString>,
    /// Working directory, relative to the workspace.
    pub cwd: Option<PathBuf>,
    /// Standard input of the command; none for an empty one.
    pub input: Option<Vec<u8>>,
    /// Bytes of each stream that are kept for the answer.
    pub room: usize,
    /// True for a command that goes on after the call.
    pub is_background: bool,
    /// True for a command of Nexus's own, whose output no later call reads.
    pub is_own: bool,
}

/// A sandbox that was started.
pub struct Run {
    /// The id of the run.
    pub id: String,
    /// The text of the command.
    pub title: String,
    /// True for a command that goes on after the call.
    pub is_background: bool,
    /// Time at which it was started.
    pub started: Instant,
    is_own: bool,
    entry: Entry,
    file: Option<PathBuf>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The output and the end of a sandbox, as far as they are known.
pub struct State {
    /// Output of the command so far.
    pub capture: Capture,
    /// Time of the latest output.
    pub last_output: Instant,
    /// End of the command; `None` while it runs.
    pub ending: Option<CommandEnd>,
}

/// The end of a sandbox.
#[derive(Debug, Clone)]
pub struct CommandEnd {
    /// The exit code of `nexus run`.
    pub exit: u8,
    /// Document of the run, as `--json` prints it.
    pub report: Value,
    /// Its text for a person.
    pub message: String,
}

/// Reason for which a command did not start.
#[derive(Debug)]
pub enum NotStarted {
    /// `nexus run` refused it, or its program cannot be run.
    Refused(CommandEnd),
    /// The server refused it.
    Failure(Failure),
}

impl From<Failure> for NotStarted {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Run {
    /// Returns the state, locked.
    pub fn inspect<T>(&self, at: impl FnOnce(&mut State) -> T) -> T {
        at(&mut lock(&self.state))
    }

    /// Returns the end, if it has ended.
    pub fn ending(&self) -> Option<CommandEnd> {
        self.inspect(|state| state.ending.clone())
    }

    /// Returns the changes that waited when it ended.
    fn parked(&self) -> Vec<Value> {
        let of = |ending: &CommandEnd| names::plain(&ending.report["changes"]["parked"]);
        self.inspect(|state| state.ending.as_ref().map(of)).unwrap_or_default()
    }

    /// Waits for the end; `None` when `is_cancelled` says so first. `news` is called where something may have happened.
    pub fn wait(&self, is_cancelled: impl Fn() -> bool, mut news: impl FnMut(&mut Capture)) -> Option<CommandEnd> {
        let mut state = lock(&self.state);
        loop {
            news(&mut state.capture);
            if let Some(ending) = &state.ending {
                return Some(ending.clone());
            }
            if is_cancelled() {
                return None;
            }
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends everything inside, and waits for that.
    pub fn stop(&self, grace_ms: Option<u64>) -> Result<(), Failure> {
        if self.ending().is_none() {
            let stop = ClientMessage::Stop { signal: SIGTERM, grace_ms: Some(grace_ms.unwrap_or(GRACE_MS)) };
            if let Err(error) = until_ended(&self.entry, &stop, &notices::print)
                && self.ending().is_none()
                && self.entry.again().is_ok_and(|entry| entry.is_some_and(|entry| entry.condition.is_live()))
            {
                return Err(error.into());
            }
        }
        let until = Instant::now() + END_WITHIN;
        match self.wait(|| Instant::now() >= until, |_| {}) {
            Some(_) => Ok(()),
            None => Err(Failure::refused(
                "stop",
                format!("The run {} has not ended in time", self.id),
                format!("nexus stop {} ends it.", self.id),
            )),
        }
    }

    /// Opens its output: all of it after the end, the last part while it runs.
    pub fn output(&self) -> Result<Source, Failure> {
        let stored = self.file.as_deref().filter(|_| self.ending().is_some()).map(Source::open);
        match stored {
            Some(Ok(source)) => Ok(source),
            // A command that wrote nothing, or whose sandbox was lost, has no file.
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::refused("output", format!("The output cannot be read: {error}"), ""))
            }
            _ => Ok(self.inspect(|state| state.capture.source())),
        }
    }

    fn push(&self, message: &ServerMessage) {
        let mut state = lock(&self.state);
        match message {
            ServerMessage::Output { err, bytes } => {
                state.capture.push(*err, &bytes.0);
                state.last_output = Instant::now();
            }
            ServerMessage::Behind { bytes } => state.capture.missed += bytes,
            _ => return,
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the output of the sandbox, and gives it its input.
    fn follow(&self, input: Option<&[u8]>) -> io::Result<()> {
        let ask = ClientMessage::Attach { input: input.is_some(), size: None };
        let mut link = match Link::open(&self.entry, &ask, None, &notices::print) {
            Ok(Found::Live(link)) => link,
            Ok(Found::Over(entry)) => {
                let mut reader = Reader::default();
                reader.push(&entry.output()?);
                while let Some(frame) = reader.next::<ServerMessage>().map_err(io::Error::other)? {
                    self.push(&frame);
                }
                return Ok(());
            }
            Ok(Found::Interrupted(_)) => return Ok(()),
            Err(error) => return Err(io::Error::other(error)),
        };
        if let Some(input) = input {
            for piece in input.chunks(INPUT_FRAME) {
                link.send(&ClientMessage::Input(ByteText(piece.to_vec())))?;
            }
            link.send(&ClientMessage::EndInput)?;
        }
        loop {
            match link.next_within(None, ANSWER_WITHIN) {
                Ok(Answer::Message(ServerMessage::Ended { .. } | ServerMessage::Refused { .. })) => return Ok(()),
                Ok(Answer::Message(message)) => self.push(&message),
                Ok(Answer::Silent | Answer::Interrupted(_)) => {}
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the supervisor has written how the sandbox ended.
    fn last_words(&self) -> CommandEnd {
        let lost = |message: String| CommandEnd {
            exit: nexus_model::exit::REFUSED,
            report: json!({ "run_id": self.id, "reason": "guest_lost", "error": { "code": "lost", "message": message, "hint": "Run it again." } }),
            message,
        };
        let until = Instant::now() + END_WITHIN;
        loop {
            match self.entry.again() {
                Ok(Some(entry)) => match entry.condition {
                    Condition::Ended(ending) => {
                        return CommandEnd { exit: ending.exit, report: ending.report, message: ending.message };
                    }
                    Condition::Lost => return lost("The supervisor of the sandbox was killed".to_owned()),
                    Condition::Starting | Condition::Running if Instant::now() >= until => {
                        return lost("The supervisor of the sandbox does not answer".to_owned());
                    }
                    Condition::Starting | Condition::Running => std::thread::sleep(LOOK),
                },
                Ok(None) => return lost("Another process removed the sandbox".to_owned()),
                Err(error) => return lost(error.to_string()),
            }
        }
    }
}

/// All sandboxes of one server.
pub struct Commands {
    /// The real path of the workspace.
    pub workspace: PathBuf,
    engine: Box<dyn Engine>,
    places: StateDir,
    directory: OwnDirectory,
    at_start: Bounds,
    runs: Mutex<BTreeMap<String, Arc<Run>>>,
    starting: Mutex<usize>,
    is_closing: AtomicBool,
}

impl Commands {
    /// Makes the directory for the output, and clears up after servers that were killed.
    pub fn new(engine: Box<dyn Engine>, workspace: PathBuf, places: StateDir) -> Result<Self, Failure> {
        let directory = OwnDirectory::make(&places.state.join("mcp")).map_err(|error| {
            let message = format!("The directory for the output of commands cannot be made: {error}");
            Failure::refused("state_dir", message, "nexus doctor shows what works here.")
        })?;
        let at_start = engine.bounds()?;
        Ok(Self {
            workspace,
            engine,
            places,
            directory,
            at_start,
            runs: Mutex::default(),
            starting: Mutex::new(0),
            is_closing: AtomicBool::new(false),
        })
    }

    /// Says what the server's own flags, profiles and policies allow: as they are now where `is_bounded`, which takes a while, else as they
    /// were when the server was started.
    pub fn bounds(&self, is_bounded: bool) -> Result<Bounds, Failure> {
        if is_bounded { self.engine.bounds() } else { Ok(self.at_start.clone()) }
    }

    /// Finds a run of this server.
    pub fn find(&self, id: &str) -> Result<Arc<Run>, Failure> {
        lock(&self.runs).get(id).cloned().ok_or_else(|| {
            let message = format!("This server has no run {id:?}");
            let hint = "list_processes names those that it has; only the latest that ended are remembered.";
            Failure::refused("no_run", message, hint)
        })
    }

    /// Lists the commands of the client, the oldest first.
    pub fn list(&self) -> Vec<Arc<Run>> {
        lock(&self.runs).values().filter(|run| !run.is_own).cloned().collect()
    }

    /// Lists the runs whose changes waited when they ended, with those changes.
    pub fn waiting(&self) -> Vec<(Arc<Run>, Vec<Value>)> {
        let runs: Vec<Arc<Run>> = lock(&self.runs).values().cloned().collect();
        let with_changes = runs.into_iter().map(|run| {
            let parked = run.parked();
            (run, parked)
        });
        with_changes.filter(|(_, parked)| !parked.is_empty()).collect()
    }

    /// Starts a command and follows it.
    pub fn start(&self, mut ask: Request) -> Result<Arc<Run>, NotStarted> {
        if self.is_closing.load(Ordering::SeqCst) {
            return Err(Failure::refused("closing", "The server ends", "Start another one.").into());
        }
        let _place = self.place()?;
        let input = ask.input.take();
        let file = (!ask.is_own).then(|| self.directory.path.join(RunId::new().to_string()));
        let Started { launched, process: mut supervisor, owner } =
            self.engine.launch(self.flags(&ask, input.is_some(), file.as_deref())).map_err(|error| {
                Failure::refused(
                    "supervisor",
                    format!("The sandbox could not be started: {error}"),
                    "nexus doctor shows what works here.",
                )
            })?;
        let id = match launched {
            Launched::Started { id, .. } => id,
            Launched::Refused { exit, text, json } => {
                supervisor.wait().ok();
                let report = json.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
                return Err(NotStarted::Refused(CommandEnd { exit, report, message: text }));
            }
        };
        let store = Store::open(&self.places, not_listed).map_err(Failure::from)?;
        let entry = store.find(&id).map_err(Failure::from)?;
        let now = Instant::now();
        let run = Arc::new(Run {
            id: id.clone(),
            title: ask.title,
            is_background: ask.is_background,
            started: now,
            is_own: ask.is_own,
            entry,
            file,
            state: Mutex::new(State { capture: Capture::new(ask.room), last_output: now, ending: None }),
            changed: Condvar::new(),
        });
        lock(&self.runs).insert(id, Arc::clone(&run));
        let followed = Arc::clone(&run);
        std::thread::spawn(move || {
            if let Err(error) = followed.follow(input.as_deref()) {
                notices::tell(&format!("the output of the run {} is not complete here: {error}", followed.id));
            }
            let ending = followed.last_words();
            // It ends on its own now; without this it would stay in the table of processes.
            supervisor.wait().ok();
            drop(owner);
            if let Err(error) = store.remove(&followed.entry) {
                notices::tell(&error.to_string());
            }
            lock(&followed.state).ending = Some(ending);
            followed.changed.notify_all();
        });
        self.forget_old();
        Ok(run)
    }

    /// Starts a command of Nexus's own: no network, little time.
    pub fn start_own(&self, mut ask: Request) -> Result<Arc<Run>, NotStarted> {
        let time_ms = self.at_start.timeout_ms.unwrap_or(u64::MAX).min(OWN_TIME_MS);
        ask.flags = vec![format!("--timeout={time_ms}ms").into(), "--no-network".into()];
        self.start(ask)
    }

    fn flags(&self, ask: &Request, has_input: bool, file: Option<&Path>) -> Vec<OsString> {
        let mut flags: Vec<OsString> = vec!["--json".into()];
        let valued = |flag: &str, value: &Path| {
            let mut word = OsString::from(flag);
            word.push(value);
            word
        };
        if let Some(file) = file {
            flags.push(valued("--full-output=", file));
            flags.push(format!("--full-output-most={MAX_STORED}").into());
        }
        flags.push(if has_input { "--stdin" } else { "--no-stdin" }.into());
        if let Some(cwd) = &ask.cwd {
            let place = if cwd == Path::new(".") { self.workspace.clone() } else { self.workspace.join(cwd) };
            flags.push(valued("--cwd=", &place));
        }
        flags.extend(ask.flags.iter().cloned());
        flags.push("--".into());
        flags.extend(ask.argv.iter().map(OsString::from));
        flags
    }

    /// Counts one more running command, or refuses it where the server has as many as it may.
    fn place(&self) -> Result<Place<'_>, Failure> {
        let mut starting = lock(&self.starting);
        let running = lock(&self.runs).values().filter(|run| run.ending().is_none()).count();
        if running + *starting >= MAX_RUNNING {
            let message = format!("{MAX_RUNNING} commands of this server run already");
            return Err(Failure::refused("busy", message, "Wait for one, or end one with stop_process."));
        }
        *starting += 1;
        Ok(Place(&self.starting))
    }

    /// Forgets the oldest runs that have ended, and their output.
    fn forget_old(&self) {
        let mut runs = lock(&self.runs);
        // A file that was written and is held back is asked about as the changes of a command are.
        let is_done_with = |run: &Run| run.is_own && run.parked().is_empty();
        let over = runs.iter().filter(|(_, run)| run.ending().is_some());
        let over: Vec<(String, bool)> = over.map(|(id, run)| (id.clone(), is_done_with(run))).collect();
        let kept = over.iter().filter(|(_, is_done_with)| !is_done_with).count();
        let mut surplus = kept.saturating_sub(MAX_KEPT);
        for (id, is_done_with) in over {
            if !is_done_with {
                if surplus == 0 {
                    continue;
                }
                surplus -= 1;
            }
            if let Some(file) = runs.remove(&id).and_then(|run| run.file.clone()) {
                // A command that wrote nothing has none.
                std::fs::remove_file(file).ok();
            }
        }
    }

    /// Ends everything that was started, and removes the output.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        let until = Instant::now() + END_WITHIN;
        while *lock(&self.starting) > 0 && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        let runs: Vec<Arc<Run>> = lock(&self.runs).values().cloned().collect();
        std::thread::scope(|scope| {
            for run in runs.iter().filter(|run| run.ending().is_none()) {
                scope.spawn(|| {
                    if let Err(failure) = run.stop(None) {
                        notices::tell(&failure.text());
                    }
                });
            }
        });
        self.directory.remove();
    }
}

/// A sandbox of another server that cannot be read is not reported to the client.
fn not_listed(_: nexus_runner::session::store::StoreError) {}

/// A place for a command that is being started.
struct Place<'a>(&'a Mutex<usize>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *lock(self.0) -= 1;
    }
}
