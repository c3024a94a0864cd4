//! `--ask`: a person decides on the terminal about what no rule allows.
//!
//! ```text
//!  egress (its thread) ─ Question ─▶ asker (a thread of its own) ─▶ terminal: one question at a time
//!          ▲                              │ once: a rule for this attempt        no, or no answer: deny
//!          └──────── Answer ──────────────┤ this run: a new policy, decide again
//!                                         └ save: the same, and a line in the user's profile `asked`
//! ```
//! While a question is open nothing of the command is shown ([`Hold`]): otherwise the command could hide the question
//! and draw one of its own. What was typed before the question was drawn or within [`QUIET`] after it does not answer
//! it, and neither does anything but a known word. A question whose client has gone is withdrawn, and the next one
//! comes a second later, so that no answer to the one is taken for the other. A destination that the user refused, or
//! a question that got no answer, is not asked about again in this run.

use super::saved;
use crate::failure::Failure;
use crate::terminal::{Hold, Taken};
use crate::used_up::raise_descriptors;
use nexus_egress::{Answer, Approver, Asked, Egress};
use nexus_policy::net::{AnyRule, Attempt, Denial, Program};
use nexus_runner::net::network::RunNetwork;
use nexus_runner::net::rules;
use nexus_runner::net::service::{CallerSide, Questions as AskedBeside, QuestionsPanicked};
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Bytes of a typed line.
const MAX_TYPED: usize = 256;

/// One attempt that waits.
struct Question {
    target: String,
    answer: oneshot::Sender<Answer>,
}

/// Time for which the terminal rests after a question was withdrawn.
const REST: Duration = Duration::from_secs(1);

/// Time after a question was drawn in which keys are dropped. The command can draw a question of its own before, and
/// the real one can take its place in the very moment in which the user answers; a user needs longer than this to read
/// a line and to react to it.
pub const QUIET: Duration = Duration::from_millis(700);

/// The egress's side. `None` ends the other one.
pub struct Questions {
    sender: Sender<Option<Question>>,
    hold: Arc<Hold>,
}

/// Wakes the asker when an attempt ends before its answer.
struct Attending<'a>(&'a Hold);

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        self.0.nudge();
    }
}

impl Approver for Questions {
    fn ask<'a>(&'a self, attempt: &'a Attempt, _denial: &'a Denial) -> Asked<'a> {
        let (answer, answered) = oneshot::channel();
        let sent = self.sender.send(Some(Question { target: target_of(attempt), answer }));
        // Dropped after the receiver: by then the question is closed.
        let attending = Attending(&self.hold);
        Box::pin(async move {
            let _attending = attending;
            let answered = answered;
            match sent {
                Ok(()) => answered.await.unwrap_or(Answer::Deny),
                Err(_) => Answer::Deny,
            }
        })
    }
}

/// Returns the rule that an answer is about, as text: for one program where it is known, so that a yes opens no more
/// than was asked.
fn target_of(attempt: &Attempt) -> String {
    let only = attempt.program.as_ref().and_then(Program::suffix).unwrap_or_default();
    format!("{}{only}", attempt.target)
}

/// Returns the destination of a rule, without its program.
fn place(target: &str) -> &str {
    target.split_once('@').map_or(target, |(place, _)| place)
}

/// Describes a rule as a request to the user.
fn question_text(target: &str) -> String {
    match target.split_once('@') {
        Some((target, program)) => format!("{program} wants to reach {target}"),
        None => format!("the command wants to reach {target}"),
    }
}

/// Names the destination, and the program where the answer is for one alone.
fn about(target: &str) -> String {
    match target.split_once('@') {
        Some((target, program)) => format!("{target} for {program}"),
        None => target.to_owned(),
    }
}

/// The person's side.
pub struct Asker {
    egress: Arc<OnceLock<Weak<Egress>>>,
    hold: Arc<Hold>,
    questions: Sender<Option<Question>>,
    thread: JoinHandle<()>,
}

/// Opens the terminal, before the sandbox exists.
fn terminal() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

impl Asker {
    /// Starts the thread that asks, with the other side for the egress.
    pub fn start(terminal: File, timeout: Duration, hold: Arc<Hold>) -> io::Result<(Self, Arc<Questions>)> {
        let (sender, questions) = channel();
        let egress = Arc::new(OnceLock::new());
        let prompter = Prompter {
            terminal,
            hold: Arc::clone(&hold),
            timeout,
            quiet: QUIET,
            egress: Arc::clone(&egress),
            settled: BTreeMap::new(),
            refuses_all: false,
            withdrawn: None,
        };
        let thread = std::thread::Builder::new().name("nexus-ask".into()).spawn(move || prompter.serve(&questions))?;
        let asker = Self { egress, hold: Arc::clone(&hold), questions: sender.clone(), thread };
        Ok((asker, Arc::new(Questions { sender, hold })))
    }

    /// Sets the egress whose policy a lasting answer changes.
    pub fn attach(&self, egress: &Arc<Egress>) {
        // It is attached once, by the function that made both.
        self.egress.get_or_init(|| Arc::downgrade(egress));
    }

    /// Ends a question that is open, and the thread; call it before the egress ends.
    pub fn end(self) -> Result<(), QuestionsPanicked> {
        self.hold.end();
        // If no thread receives it, the thread has ended, and joining returns how.
        self.questions.send(None).ok();
        self.thread.join().map_err(|_| QuestionsPanicked)
    }
}

/// The questions of a run, before and while they are asked.
struct Asking {
    /// The inputs of the thread; `None` once it was started.
    start: Option<(File, Duration, Arc<Hold>)>,
    asker: Option<Asker>,
}

impl AskedBeside for Asking {
    fn start(&mut self) -> io::Result<Arc<dyn Approver>> {
        let (terminal, timeout, hold) = self.start.take().ok_or(io::ErrorKind::Unsupported)?;
        let (asker, questions) = Asker::start(terminal, timeout, hold)?;
        self.asker = Some(asker);
        Ok(questions)
    }

    fn attach(&self, egress: &Arc<Egress>) {
        if let Some(asker) = &self.asker {
            asker.attach(egress);
        }
    }

    fn end(self: Box<Self>) -> Result<(), QuestionsPanicked> {
        self.asker.map_or(Ok(()), Asker::end)
    }
}

/// Returns the part of this process in the network of a run; `hold` is there when questions are asked.
pub fn side(network: Option<&RunNetwork>, hold: Option<&Arc<Hold>>) -> Result<CallerSide, Failure> {
    let asked = network.and_then(|network| network.ask).zip(hold);
    let asking = asked.map(|(timeout, hold)| -> Result<Box<dyn AskedBeside>, Failure> {
        let terminal = terminal().map_err(|error| {
            let message = format!("--ask has no terminal to ask on: {error}");
            Failure::usage("ask", message, "leave --ask out and name the destinations with --allow")
        })?;
        Ok(Box::new(Asking { start: Some((terminal, timeout, Arc::clone(hold))), asker: None }))
    });
    Ok(CallerSide { questions: asking.transpose()?, before_serving: raise_descriptors })
}

/// Makes the agreement between the terminal and the questions of a run that has some.
pub fn hold(network: Option<&RunNetwork>) -> Result<Option<Arc<Hold>>, Failure> {
    let asks = network.is_some_and(|network| network.ask.is_some());
    asks.then(|| Hold::new().map(Arc::new)).transpose().map_err(|error| {
        let message = format!("the questions of --ask cannot be prepared: {error}");
        Failure::refused("ask", message, "free descriptors, or name the destinations with --allow")
    })
}

/// Answer to a question, or the reason why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Once,
    Run,
    Save,
    No,
    NoToAll,
    /// There was no answer in time, or the run ended.
    Nothing,
    /// The attempt has ended meanwhile.
    Withdrawn,
}

struct Prompter {
    terminal: File,
    hold: Arc<Hold>,
    timeout: Duration,
    /// Time after a question in which keys are dropped.
    quiet: Duration,
    egress: Arc<OnceLock<Weak<Egress>>>,
    /// Destinations that were decided for the rest of the run.
    settled: BTreeMap<String, bool>,
    /// Nothing more is asked: all of it is denied.
    refuses_all: bool,
    /// The time when the latest question was withdrawn.
    withdrawn: Option<Instant>,
}

impl Prompter {
    fn serve(mut self, questions: &Receiver<Option<Question>>) {
        while let Ok(Some(question)) = questions.recv() {
            if question.answer.is_closed() {
                continue;
            }
            // A yes is for the program that asked, a no for the place: else another name of a program would ask again.
            let settled = |of: &str| self.settled.get(of).copied();
            let answer = match (settled(place(&question.target)), settled(&question.target)) {
                (Some(false), _) => Answer::Deny,
                (_, Some(true)) => Answer::Again,
                _ if self.refuses_all => Answer::Deny,
                (Some(true) | None, Some(false) | None) => self.decide(&question),
            };
            // The attempt may have ended meanwhile.
            drop(question.answer.send(answer));
        }
    }

    fn decide(&mut self, question: &Question) -> Answer {
        let target = &question.target;
        let Ok(rule) = rules::approved(target) else { return Answer::Deny };
        let hold = Arc::clone(&self.hold);
        // A terminal that fails gives no answer.
        let (choice, taken) = self.ask(&hold, question).unwrap_or((Choice::Nothing, None));
        let answer = self.carry_out(choice, target, rule);
        drop(taken);
        answer
    }

    /// Does what was answered, and repeats what it is about.
    fn carry_out(&mut self, choice: Choice, target: &str, rule: AnyRule) -> Answer {
        match choice {
            Choice::Once => {
                self.print(&format!("{} is allowed once, for this connection", about(target)));
                Answer::Once(rule)
            }
            Choice::Withdrawn => {
                self.withdrawn = Some(Instant::now());
                Answer::Deny
            }
            Choice::NoToAll => {
                self.refuses_all = true;
                self.print("Everything that no rule allows stays blocked for this run");
                Answer::Deny
            }
            Choice::No | Choice::Nothing => {
                self.settled.insert(place(target).to_owned(), false);
                if choice == Choice::No {
                    self.print(&format!("{} stays blocked for this run", place(target)));
                }
                Answer::Deny
            }
            Choice::Run | Choice::Save => {
                let Some(egress) = self.egress.get().and_then(Weak::upgrade) else { return Answer::Deny };
                let changed = egress.policy().approve(rule).map_err(|error| error.to_string());
                let reloaded = changed.and_then(|policy| egress.reload(Arc::new(policy)).map_err(|e| e.to_string()));
                if let Err(error) = reloaded {
                    self.print(&format!("{} stays blocked: {error}", about(target)));
                    return Answer::Deny;
                }
                self.settled.insert(target.to_owned(), true);
                let allowed = format!("{} is allowed for this run", about(target));
                if choice == Choice::Save {
                    match saved::add(target) {
                        Ok(path) => {
                            self.print(&format!("{allowed} and saved in {}, which counts with --ask", path.display()));
                        }
                        Err(why) => self.print(&format!("{allowed} alone, since it was not saved: {why}")),
                    }
                } else {
                    self.print(&allowed);
                }
                Answer::Again
            }
        }
    }

    fn print(&mut self, text: &str) {
        // If the terminal takes nothing, no user can read it.
        self.terminal.write_all(format!("nexus: {text}\n").as_bytes()).ok();
    }

    /// Asks, and keeps the terminal for what is said after the answer.
    fn ask<'a>(&mut self, hold: &'a Hold, question: &Question) -> io::Result<(Choice, Option<Taken<'a>>)> {
        // Reading as a background process would stop us, and with us the sandbox's clock and limits.
        if tcgetpgrp(&self.terminal)?.as_raw_nonzero().get() != crate::host::membership()?.group {
            return Ok((Choice::Nothing, None));
        }
        let gone = || question.answer.is_closed();
        if let Some(at) = self.withdrawn.take()
            && hold.is_over_by(at + REST)?
        {
            return Ok((Choice::Nothing, None));
        }
        let end = Instant::now() + self.timeout;
        let Some(taken) = hold.take(end, gone)? else {
            return Ok((if gone() { Choice::Withdrawn } else { Choice::Nothing }, None));
        };
        let choice = self.question(&taken, question, end + self.quiet)?;
        Ok((choice, Some(taken)))
    }

    /// Drops what is typed in the quiet time after a question was drawn. Returns the reason if the question ends
    /// meanwhile.
    fn drop_keys(&mut self, taken: &Taken<'_>, question: &Question) -> io::Result<Option<Choice>> {
        let until = Instant::now() + self.quiet;
        loop {
            if let Some(choice) = self.ended(taken, question)? {
                return Ok(Some(choice));
            }
            if Instant::now() >= until {
                tcflush(&self.terminal, QueueSelector::IFlush)?;
                return Ok(None);
            }
            taken.wait_without_keys(until)?;
        }
    }

    /// Returns the reason if an open question has ended without an answer.
    fn ended(&mut self, taken: &Taken<'_>, question: &Question) -> io::Result<Option<Choice>> {
        if taken.is_over() {
            return Ok(Some(Choice::Nothing));
        }
        if !question.answer.is_closed() {
            return Ok(None);
        }
        let text = format!("\nnexus: nothing waits for {} any more, so nothing was decided\n", place(&question.target));
        self.terminal.write_all(text.as_bytes())?;
        Ok(Some(Choice::Withdrawn))
    }

    fn question(&mut self, taken: &Taken<'_>, question: &Question, end: Instant) -> io::Result<Choice> {
        // The command may have left colours that hide, and a sequence without its end.
        let text = format!("\x1b[0m\nnexus: {}\n", question_text(&question.target));
        self.terminal.write_all(text.as_bytes())?;
        if let Some(choice) = self.drop_keys(taken, question)? {
            return Ok(choice);
        }
        let seconds = self.timeout.as_secs();
        // Dropped keys without an end of line stand where the prompt begins.
        let text =
            format!("\r\x1b[Knexus: [o]nce, for this [r]un, [s]ave to your profile, [n]o, no to [a]ll? ({seconds} s) ");
        self.terminal.write_all(text.as_bytes())?;
        let mut typed = Vec::new();
        loop {
            let is_typed = taken.wait(self.terminal.as_fd(), end)?;
            if let Some(choice) = self.ended(taken, question)? {
                return Ok(choice);
            }
            if Instant::now() >= end {
                self.print(&format!("no answer came, so {} stays blocked for this run", place(&question.target)));
                return Ok(Choice::Nothing);
            }
            if !is_typed {
                continue;
            }
            let mut piece = [0u8; 64];
            let count = self.terminal.read(&mut piece)?;
            if count == 0 {
                return Ok(Choice::No);
            }
            typed.extend_from_slice(&piece[..count]);
            if typed.len() > MAX_TYPED {
                typed.clear();
            }
            if typed.ends_with(b"\n") {
                if let Some(choice) = understood(&typed) {
                    return Ok(choice);
                }
                typed.clear();
                self.terminal.write_all(b"nexus: o, r, s, n or a? ")?;
            }
        }
    }
}

fn understood(line: &[u8]) -> Option<Choice> {
    use Choice::{No, NoToAll, Once, Run, Save};
    match line.trim_ascii() {
        b"o" | b"once" => Some(Once),
        b"r" | b"run" => Some(Run),
        b"s" | b"save" => Some(Save),
        b"n" | b"no" => Some(No),
        b"a" | b"all" => Some(NoToAll),
        _ => None,
    }
}

/// Reports whether this process has a terminal on which a question can be asked.
pub fn is_possible() -> bool {
    terminal().is_ok_and(|terminal| rustix::termios::isatty(terminal.as_fd()))
}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;
