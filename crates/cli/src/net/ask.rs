//! `--ask`: a person decides on the terminal about what no rule allows.
//!
//! ```text
//!  egress (its thread) ─ Question ─▶ asker (a thread of its own) ─▶ terminal: one question at a time
//!          ▲                              │ once: a rule for this attempt        no, or nobody answers: deny
//!          └──────── Answer ──────────────┤ this run: a new policy, decide again
//!                                         └ save: the same, and a line in the user's profile `asked`
//! ```
//! What was typed before the question does not answer it, and neither does anything but a known word: a command can
//! make a terminal send text of its own. A destination that was refused, or that nobody answered about, is not asked
//! about again in this run.

use super::{rules, saved};
use nexus_egress::{Answer, Approver, Asked, Egress};
use nexus_policy::net::{Attempt, Denial, Program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Bytes of a typed line.
const MOST_TYPED: usize = 256;

/// One attempt that waits.
struct Question {
    target: String,
    answer: oneshot::Sender<Answer>,
}

/// The egress's side. `None` ends the other one.
pub struct Questions(Sender<Option<Question>>);

impl Approver for Questions {
    fn ask<'a>(&'a self, attempt: &'a Attempt, _denial: &'a Denial) -> Asked<'a> {
        let (answer, answered) = oneshot::channel();
        let sent = self.0.send(Some(Question { target: wish(attempt), answer }));
        Box::pin(async move {
            match sent {
                Ok(()) => answered.await.unwrap_or(Answer::Deny),
                Err(_) => Answer::Deny,
            }
        })
    }
}

/// What an answer is about, as the text of a rule: for one program where it is known, so that a yes opens no more than
/// was asked.
fn wish(attempt: &Attempt) -> String {
    let only = attempt.program.as_ref().and_then(Program::suffix).unwrap_or_default();
    format!("{}{only}", attempt.target)
}

/// Without the program.
fn place(wish: &str) -> &str {
    wish.split_once('@').map_or(wish, |(place, _)| place)
}

/// The same for a person.
fn told(wish: &str) -> String {
    match wish.split_once('@') {
        Some((target, program)) => format!("{program} wants to reach {target}"),
        None => format!("the command wants to reach {wish}"),
    }
}

/// The person's side.
pub struct Asker {
    egress: Arc<OnceLock<Weak<Egress>>>,
    stop: UnixStream,
    questions: Sender<Option<Question>>,
    thread: JoinHandle<()>,
}

/// Opens the terminal, before the sandbox exists.
pub fn terminal() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

impl Asker {
    /// Starts the thread that asks, with the other side for the egress.
    pub fn start(terminal: File, patience: Duration) -> io::Result<(Self, Arc<Questions>)> {
        let (sender, questions) = channel();
        let (stop, stopped) = UnixStream::pair()?;
        let egress = Arc::new(OnceLock::new());
        let desk = Desk { terminal, stopped, patience, egress: Arc::clone(&egress), settled: BTreeMap::new() };
        let thread = std::thread::Builder::new().name("nexus-ask".into()).spawn(move || desk.serve(&questions))?;
        Ok((Self { egress, stop, questions: sender.clone(), thread }, Arc::new(Questions(sender))))
    }

    /// Whose policy a lasting answer changes.
    pub fn attach(&self, egress: &Arc<Egress>) {
        // It is attached once, by whoever made both.
        self.egress.get_or_init(|| Arc::downgrade(egress));
    }

    /// Ends a question that is open, and the thread; call it before the egress ends.
    pub fn end(self) -> Result<(), Panicked> {
        drop(self.stop);
        // Where nobody receives it the thread has ended, and joining tells how.
        self.questions.send(None).ok();
        self.thread.join().map_err(|_| Panicked)
    }
}

/// The thread that asks had ended by itself.
#[derive(Debug, thiserror::Error)]
#[error("the questions ended by a panic; everything that would have been asked was denied from then on")]
pub struct Panicked;

/// What a person may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Once,
    Run,
    Save,
    No,
    /// Nobody, or the run ended.
    Nothing,
}

struct Desk {
    terminal: File,
    stopped: UnixStream,
    patience: Duration,
    egress: Arc<OnceLock<Weak<Egress>>>,
    /// Destinations that were decided for the rest of the run.
    settled: BTreeMap<String, bool>,
}

impl Desk {
    fn serve(mut self, questions: &Receiver<Option<Question>>) {
        while let Ok(Some(question)) = questions.recv() {
            // A yes is for the program that asked, a no for the place: else another name of a program would ask again.
            let settled = |of: &str| self.settled.get(of).copied();
            let answer = match (settled(place(&question.target)), settled(&question.target)) {
                (Some(false), _) => Answer::Deny,
                (_, Some(true)) => Answer::Again,
                (Some(true) | None, Some(false) | None) => self.decide(&question.target),
            };
            // Whoever asked may have left.
            drop(question.answer.send(answer));
        }
    }

    fn decide(&mut self, target: &str) -> Answer {
        // A terminal that fails is nobody.
        let said = self.ask(target).unwrap_or(Said::Nothing);
        let Ok(rule) = rules::approved(target) else { return Answer::Deny };
        match said {
            Said::Once => Answer::Once(rule),
            Said::No | Said::Nothing => {
                self.settled.insert(place(target).to_owned(), false);
                Answer::Deny
            }
            Said::Run | Said::Save => {
                let Some(egress) = self.egress.get().and_then(Weak::upgrade) else { return Answer::Deny };
                let changed = egress.policy().approve(rule).map_err(|error| error.to_string());
                let reloaded = changed.and_then(|policy| egress.reload(Arc::new(policy)).map_err(|e| e.to_string()));
                if let Err(error) = reloaded {
                    self.say(&format!("{target} stays blocked: {error}"));
                    return Answer::Deny;
                }
                self.settled.insert(target.to_owned(), true);
                if said == Said::Save {
                    match saved::add(target) {
                        Ok(path) => self.say(&format!("saved in {}, which counts with --ask", path.display())),
                        Err(why) => self.say(&format!("not saved, so it holds for this run alone: {why}")),
                    }
                }
                Answer::Again
            }
        }
    }

    fn say(&mut self, text: &str) {
        // Where the terminal takes nothing there is nobody to tell.
        self.terminal.write_all(format!("nexus: {text}\n").as_bytes()).ok();
    }

    fn ask(&mut self, target: &str) -> io::Result<Said> {
        // Reading as a background process would stop us, and with us the sandbox's clock and limits.
        if tcgetpgrp(&self.terminal)? != rustix::process::getpgrp() {
            return Ok(Said::Nothing);
        }
        let over = poll(&mut [PollFd::new(&self.stopped, PollFlags::IN)], Some(&Timespec::default()))?;
        if over > 0 {
            return Ok(Said::Nothing);
        }
        tcflush(&self.terminal, QueueSelector::IFlush)?;
        let seconds = self.patience.as_secs();
        let text = format!(
            "\nnexus: {}\n\
             nexus: [o]nce, for this [r]un, [s]ave to your profile, [n]o? ({seconds} s) ",
            told(target)
        );
        self.terminal.write_all(text.as_bytes())?;
        let end = Instant::now() + self.patience;
        let mut typed = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut both = [PollFd::new(&self.terminal, PollFlags::IN), PollFd::new(&self.stopped, PollFlags::IN)];
            match poll(&mut both, Some(&timeout)) {
                Ok(0) => {
                    self.say("nobody answered: no");
                    return Ok(Said::Nothing);
                }
                Ok(_) if !both[1].revents().is_empty() => return Ok(Said::Nothing),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut piece = [0u8; 64];
            let count = self.terminal.read(&mut piece)?;
            if count == 0 {
                return Ok(Said::No);
            }
            typed.extend_from_slice(&piece[..count]);
            if typed.len() > MOST_TYPED {
                typed.clear();
            }
            if typed.ends_with(b"\n") {
                if let Some(said) = understood(&typed) {
                    return Ok(said);
                }
                typed.clear();
                self.terminal.write_all(b"nexus: o, r, s or n? ")?;
            }
        }
    }
}

fn understood(line: &[u8]) -> Option<Said> {
    match line.trim_ascii() {
        b"o" | b"once" => Some(Said::Once),
        b"r" | b"run" => Some(Said::Run),
        b"s" | b"save" => Some(Said::Save),
        b"n" | b"no" => Some(Said::No),
        _ => None,
    }
}

/// Whether somebody can be asked here.
pub fn is_possible() -> bool {
    terminal().is_ok_and(|terminal| rustix::termios::isatty(terminal.as_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_policy::net::{AnyRule, Target, Way};

    #[test]
    fn an_answer_is_for_the_program_that_asked_where_it_is_known() {
        let asked = |program: Option<&str>| {
            let program = program.map(|path| Program::parse(path).unwrap());
            wish(&Attempt { target: Target::parse("a.test:443").unwrap(), way: Way::Connect, program })
        };
        assert_eq!(told(&asked(None)), "the command wants to reach a.test:443");
        let curl = asked(Some("/usr/bin/curl"));
        assert_eq!(told(&curl), "/usr/bin/curl wants to reach a.test:443");
        let AnyRule::Name(rule) = rules::approved(&curl).unwrap() else { panic!("a name") };
        assert_eq!(rule.program.unwrap().0, "/usr/bin/curl");
        // Nothing that a process chose as its path reaches a terminal or a profile.
        assert_eq!(asked(Some("/work/x\" wants")), "a.test:443");
    }
}
