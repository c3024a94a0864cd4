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

use super::args::AskOn;
use super::elsewhere::Elsewhere;
use super::given_answers::Grants;
use super::question::{Question, about, place, question_text, target_of};
use super::requests::{self, Grant, LOOK_EVERY, Requests, Response};
use super::saved;
use crate::failure::Failure;
use crate::terminal::{Hold, Taken};
use crate::used_up::raise_descriptors;
use nexus_egress::{Answer, Approver, Asked, Egress};
use nexus_model::RunId;
use nexus_model::approval::Actor;
use nexus_policy::net::{AnyRule, Attempt, Denial};
use nexus_receipt::Approved;
use nexus_runner::net::rules;
use nexus_runner::net::service::{CallerSide, Questions as AskedBeside, QuestionsPanicked};
use nexus_runner::plan::resolve::ResolvedRun;
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

/// Time for which the terminal rests after a question was withdrawn.
const REST: Duration = Duration::from_secs(1);

/// Time after a question was drawn in which keys are dropped. The command can draw a question of its own before, and
/// the real one can take its place in the very moment in which the user answers; a user needs longer than this to read
/// a line and to react to it.
pub const QUIET: Duration = Duration::from_millis(700);

/// The egress's side. `None` ends the other one.
pub struct Questions {
    sender: Sender<Option<Question>>,
    /// The agreement about the terminal, where the question is put on it.
    hold: Option<Arc<Hold>>,
}

/// Wakes the asker when an attempt ends before its answer.
struct Attending<'a>(Option<&'a Hold>);

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.0 {
            hold.nudge();
        }
    }
}

impl Approver for Questions {
    fn ask<'a>(&'a self, attempt: &'a Attempt, _denial: &'a Denial) -> Asked<'a> {
        let (answer, answered) = oneshot::channel();
        let sent = self.sender.send(Some(Question::new(target_of(attempt), answer)));
        // Dropped after the receiver: by then the question is closed.
        let attending = Attending(self.hold.as_deref());
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

/// The person's side.
pub struct Asker {
    egress: Arc<OnceLock<Weak<Egress>>>,
    hold: Option<Arc<Hold>>,
    questions: Sender<Option<Question>>,
    thread: JoinHandle<Vec<Approved>>,
}

/// Opens the terminal, before the sandbox exists.
fn terminal() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

impl Asker {
    /// Starts the thread that asks, with the other side for the egress.
    fn start(surface: Surface, asking: requests::Asking) -> io::Result<(Self, Arc<Questions>)> {
        let (sender, questions) = channel();
        let egress = Arc::new(OnceLock::new());
        let thread = std::thread::Builder::new().name("nexus-ask".into());
        let timeout = asking.waits;
        let (hold, thread) = match surface {
            Surface::Terminal { terminal, hold } => {
                let prompter = Prompter {
                    terminal,
                    hold: Arc::clone(&hold),
                    timeout,
                    quiet: QUIET,
                    egress: Arc::clone(&egress),
                    settled: BTreeMap::new(),
                    refuses_all: false,
                    withdrawn: None,
                    here: format!("{}, the terminal of the run", requests::actor_text(&asking.requester)),
                    requests: Some(Requests::new(asking)),
                    grants: Grants::default(),
                };
                (Some(hold), thread.spawn(move || prompter.serve(&questions))?)
            }
            Surface::Approvals { tell } => {
                let elsewhere = Elsewhere::new(Requests::new(asking), timeout, tell);
                (None, thread.spawn(move || elsewhere.serve(&questions))?)
            }
        };
        let asker = Self { egress, hold: hold.clone(), questions: sender.clone(), thread };
        Ok((asker, Arc::new(Questions { sender, hold })))
    }

    /// Sets the egress whose policy a lasting answer changes.
    pub fn attach(&self, egress: &Arc<Egress>) {
        // It is attached once, by the function that made both.
        self.egress.get_or_init(|| Arc::downgrade(egress));
    }

    /// Ends the questions that are open, and the thread; call it before the egress ends.
    pub fn end(self) -> Result<Vec<Approved>, QuestionsPanicked> {
        if let Some(hold) = &self.hold {
            hold.end();
        }
        // If no thread receives it, the thread has ended, and joining returns how.
        self.questions.send(None).ok();
        self.thread.join().map_err(|_| QuestionsPanicked)
    }
}

/// The place where a person is asked.
enum Surface {
    /// On the terminal of the run; another session may answer too.
    Terminal { terminal: File, hold: Arc<Hold> },
    /// In another session alone.
    Approvals { tell: Option<fn(&str)> },
}

/// The questions of a run, before and while they are asked.
struct AskedAtTheRun {
    /// The inputs of the thread; `None` once it was started.
    start: Option<(Surface, requests::Asking)>,
    asker: Option<Asker>,
}

impl AskedBeside for AskedAtTheRun {
    fn start(&mut self) -> io::Result<Arc<dyn Approver>> {
        let (surface, asking) = self.start.take().ok_or(io::ErrorKind::Unsupported)?;
        let (asker, questions) = Asker::start(surface, asking)?;
        self.asker = Some(asker);
        Ok(questions)
    }

    fn attach(&self, egress: &Arc<Egress>) {
        if let Some(asker) = &self.asker {
            asker.attach(egress);
        }
    }

    fn end(self: Box<Self>) -> Result<Vec<Approved>, QuestionsPanicked> {
        self.asker.map_or_else(|| Ok(Vec::new()), Asker::end)
    }
}

/// Returns the part of this process in the network of a run; `hold` is there when the terminal is asked. `requester` is the session that asks.
pub fn side(
    run: &ResolvedRun,
    hold: Option<&Arc<Hold>>,
    requester: Option<Actor>,
    tell: Option<fn(&str)>,
) -> Result<CallerSide, Failure> {
    let waits = run.network.as_ref().and_then(|network| network.ask);
    let Some((waits, requester)) = waits.zip(requester) else {
        return Ok(CallerSide { questions: None, before_serving: raise_descriptors });
    };
    let surface = match hold {
        None => Surface::Approvals { tell },
        Some(hold) => {
            let terminal = terminal().map_err(|error| {
                let message = format!("--ask has no terminal to ask on: {error}");
                Failure::usage("ask", message, "leave --ask out and name the destinations with --allow")
            })?;
            Surface::Terminal { terminal, hold: Arc::clone(hold) }
        }
    };
    let asking = requests::Asking {
        places: run.site.places.clone(),
        run: run.plan.run_id,
        command: run.plan.argv.clone(),
        workspace: run.plan.workspace.source.clone(),
        requester,
        waits,
    };
    let questions: Box<dyn AskedBeside> = Box::new(AskedAtTheRun { start: Some((surface, asking)), asker: None });
    Ok(CallerSide { questions: Some(questions), before_serving: raise_descriptors })
}

/// Makes the agreement between the terminal and the questions of a run that asks there.
pub fn hold(on: Option<AskOn>) -> Result<Option<Arc<Hold>>, Failure> {
    let asks = on == Some(AskOn::Terminal);
    asks.then(|| Hold::new().map(Arc::new)).transpose().map_err(|error| {
        let message = format!("the questions of --ask cannot be prepared: {error}");
        Failure::refused("ask", message, "free descriptors, or name the destinations with --allow")
    })
}

/// Answer to a question, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Another session has approved it.
    Approved(Grant),
    /// Another session has refused it.
    Refused(String),
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
    /// True if the user is not asked any more, and each further destination is denied.
    refuses_all: bool,
    /// The time when the latest question was withdrawn.
    withdrawn: Option<Instant>,
    /// The user and session that answer on this terminal.
    here: String,
    /// The same questions for another session; `None` where there is no place for them.
    requests: Option<Requests>,
    grants: Grants,
}

impl Prompter {
    fn serve(mut self, questions: &Receiver<Option<Question>>) -> Vec<Approved> {
        while let Ok(Some(question)) = questions.recv() {
            if question.is_gone() {
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
            question.answer(answer);
        }
        if let Some(Err(error)) = self.requests.map(Requests::end) {
            tracing::debug!(code = error.code(), "what waited for an answer could not be withdrawn");
        }
        self.grants.all()
    }

    /// Returns a use that is left of an answer of another session.
    fn use_again(&mut self, target: &str) -> Option<Grant> {
        // What goes wrong there leaves the question to this terminal.
        self.requests.as_mut()?.use_again(target).ok().flatten()
    }

    fn decide(&mut self, question: &Question) -> Answer {
        let target = &question.target;
        let Ok(rule) = rules::approved(target, &self.here) else { return Answer::Deny };
        if let Some(yes) = self.use_again(target) {
            return self.approved(target, &yes);
        }
        let hold = Arc::clone(&self.hold);
        // A terminal that fails gives no answer.
        let (choice, taken) = self.ask(&hold, question).unwrap_or((Choice::Nothing, None));
        if choice == Choice::Withdrawn {
            self.withdrawn = Some(Instant::now());
        }
        if !matches!(choice, Choice::Approved(_) | Choice::Refused(_))
            && let Some(requests) = &mut self.requests
            && let Err(error) = requests.withdraw(target)
        {
            tracing::debug!(code = error.code(), "a request could not be withdrawn; it ends with its time");
        }
        let answer = self.carry_out(choice, target, rule);
        drop(taken);
        answer
    }

    /// Lets one connection through by an answer of another session.
    fn approved(&mut self, target: &str, yes: &Grant) -> Answer {
        let Ok(rule) = rules::approved(target, &yes.source()) else { return Answer::Deny };
        self.grants.of_approval(target, yes);
        Answer::Once(rule)
    }

    /// Does what was answered, and repeats what it is about.
    fn carry_out(&mut self, choice: Choice, target: &str, rule: AnyRule) -> Answer {
        match choice {
            Choice::Once => {
                self.print(&format!("{} is allowed once, for this connection", about(target)));
                self.grants.once_here(target, &self.here);
                Answer::Once(rule)
            }
            Choice::Approved(yes) => {
                self.print(&format!("{} is allowed once, by {}", about(target), yes.source()));
                self.approved(target, &yes)
            }
            Choice::Refused(by) => {
                self.settled.insert(place(target).to_owned(), false);
                self.print(&format!("{} stays blocked for this run, by {by}", place(target)));
                Answer::Deny
            }
            Choice::Withdrawn => Answer::Deny,
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
                self.grants.for_the_run(target, &self.here);
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

    /// Asks, and keeps the terminal for what is written after the answer.
    fn ask<'a>(&mut self, hold: &'a Hold, question: &Question) -> io::Result<(Choice, Option<Taken<'a>>)> {
        // Reading as a background process would stop us, and with us the sandbox's clock and limits.
        if tcgetpgrp(&self.terminal)?.as_raw_nonzero().get() != crate::host::membership()?.group {
            return Ok((Choice::Nothing, None));
        }
        let gone = || question.is_gone();
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
        if !question.is_gone() {
            return Ok(None);
        }
        let text = format!("\nnexus: nothing waits for {} any more, so nothing was decided\n", place(&question.target));
        self.terminal.write_all(text.as_bytes())?;
        Ok(Some(Choice::Withdrawn))
    }

    /// Asks another session too; without a place for that the terminal alone answers.
    fn request(&mut self, target: &str) -> Option<RunId> {
        self.requests.as_mut()?.ask(target).ok().flatten()
    }

    /// Looks for an answer of another session.
    fn response(&mut self, id: RunId, target: &str) -> Option<Choice> {
        match self.requests.as_mut()?.response(id, target) {
            Ok(Response::Grant(yes)) => Some(Choice::Approved(yes)),
            Ok(Response::No(by)) => Some(Choice::Refused(by)),
            // Its time there is over a moment before it is over here.
            Ok(Response::Waits | Response::Over) | Err(_) => None,
        }
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
        let request = self.request(&question.target);
        loop {
            let next = Instant::now() + LOOK_EVERY;
            let is_typed = taken.wait(self.terminal.as_fd(), if request.is_some() { end.min(next) } else { end })?;
            if let Some(choice) = self.ended(taken, question)? {
                return Ok(choice);
            }
            // What is typed here comes first.
            if let Some(choice) = request.filter(|_| !is_typed).and_then(|id| self.response(id, &question.target)) {
                self.terminal.write_all(b"\n")?;
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
