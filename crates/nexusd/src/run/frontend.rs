//! The user of a directive's run, for the engine: no terminal and no person, but a diff, and a lease that a commit needs.

use crate::claims::Ended;
use crate::lease::COMMIT_WITHIN;
use crate::live::ActiveClaim;
use crate::source::{SourceError, WorkSource};
use crate::stop::Stop;
use crate::upkeep::Upkeep;
use nexus_api::conduits::HeartbeatRequest;
use nexus_api::retry::{self, Next};
use nexus_facility::artifacts::{self, Bounds, Manifest};
use nexus_facility::diff::{self, Diff};
use nexus_facility::glob::Glob;
use nexus_model::RunId;
use nexus_runner::host::Host;
use nexus_runner::live::attendant::Interrupts;
use nexus_runner::notices::Notice;
use nexus_runner::request::ChangeMode;
use nexus_runner::settle::frontend::{Frontend, Question};
use rustix::fd::{AsFd, BorrowedFd};
use std::any::Any;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time between two questions whether changes may be committed.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The sides of one run.
pub struct DirectiveFrontend<'a> {
    /// The claim of the directive.
    pub live: &'a ActiveClaim,
    /// The control plane, which hears of a commit before it happens.
    pub source: &'a dyn WorkSource,
    /// Tells the operator.
    pub upkeep: &'a dyn Upkeep,
    /// The state directory and the user of the territory.
    pub host: &'a Host,
    /// Makes the next heartbeat leave now.
    pub beats: &'a Stop,
    /// True if a directive whose lease is lost is queued again: then its commit needs an acknowledged word.
    pub requeues: bool,
    /// Largest diff, in bytes.
    pub max_diff: usize,
    /// Notes the end of the command before its changes are committed: a daemon that dies during the commit reports it. Without an end
    /// it notes that the commit is about to be announced.
    pub note: &'a (dyn Fn(Option<Ended>) -> Result<(), String> + Sync),
    /// The end of the command.
    pub ended: Mutex<Option<Ended>>,
    /// The diff, once the command has ended.
    pub diff: Mutex<Option<Result<Diff, String>>>,
    /// Patterns of the files to keep, and the directory for their copies.
    pub keeps: (&'a [Glob], &'a Path),
    /// The files that were kept, when the command left changes.
    pub kept: Mutex<Option<Result<Manifest, String>>>,
}

impl DirectiveFrontend<'_> {
    /// Refuses a commit that another claim of the directive could overtake.
    fn may_commit(&self) -> Result<(), String> {
        self.live.enter(nexus_api::conduits::SETTLING);
        // A lease that heartbeats could not renew lately is asked for, too: the changes would wait for a person otherwise.
        if self.requeues || self.live.left() < COMMIT_WITHIN {
            if self.requeues {
                // A daemon that dies before the commit takes the announcement back.
                self.note(None);
            }
            match self.announce() {
                Err(error) if self.requeues => {
                    if matches!(retry::next(error.outcome(), 1, 0.5), Next::Again(_)) {
                        // The lease is lost: at its end the control plane decides whether the directive runs again.
                        self.live.note_unanswered();
                    }
                    return Err(format!("the control plane did not allow the commit: {error}"));
                }
                // Without a requeue the rest of the lease decides.
                _ => {}
            }
        } else {
            // Reported beside the commit, which waits for no answer: should this territory be lost now, its changes may be there.
            self.beats.hurry();
        }
        if self.live.is_lost() {
            return Err("the claim of the directive is over".to_owned());
        }
        let left = self.live.left();
        if left < COMMIT_WITHIN {
            return Err(format!("the lease ends in {} s, which is too soon for a commit", left.as_secs()));
        }
        let ended = *self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_some() {
            self.note(ended);
        }
        self.live.allow_commit();
        Ok(())
    }

    fn note(&self, ended: Option<Ended>) {
        if let Err(why) = (self.note)(ended) {
            self.upkeep
                .tell(&format!("directive {}: the end of its command cannot be noted: {why}", self.live.directive));
        }
    }

    /// Tells the control plane that changes are about to be committed, and renews the lease. A control plane that does not answer
    /// is asked again while the lease lasts.
    fn announce(&self) -> Result<(), SourceError> {
        let mut tries = 0;
        loop {
            let sent = crate::lease::boot_time();
            let request = HeartbeatRequest {
                progress: Some(ActiveClaim::settling()),
                last_output_seq: None,
                now: Some(crate::report::now()),
            };
            let answer = self.source.heartbeat(self.live.directive, &self.live.token(), &request);
            if self.requeues && answer.as_ref().map_or_else(SourceError::may_have_arrived, |_| true) {
                self.live.note_announced();
            }
            let error = match answer {
                Ok(answer) => {
                    self.live.renew(sent, Some(answer.directive_token).filter(|token| !token.is_empty()));
                    return Ok(());
                }
                Err(error) => error,
            };
            tries += 1;
            let is_retryable = matches!(retry::next(error.outcome(), tries, 0.5), Next::Again(_));
            if !is_retryable || self.live.is_lost() || self.live.left() <= ASK_EVERY {
                return Err(error);
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
}

impl Frontend for DirectiveFrontend<'_> {
    fn host(&self) -> Host {
        self.host.clone()
    }

    fn tell(&self, notice: &Notice) {
        self.upkeep.tell(&format!("directive {}: {notice}", self.live.directive));
    }

    fn is_ended(&self) -> bool {
        self.live.control.wanted() != crate::run::control::Wanted::Nothing
    }

    fn decide(&self, _: &Question<'_>) -> Result<ChangeMode, String> {
        Err("a directive asks no person".to_owned())
    }

    fn inspects(&self) -> bool {
        true
    }

    fn inspect(&self, question: &Question<'_>) -> Result<(), String> {
        let diff = diff::of_layer(question.layer, question.workspace, question.rules, self.max_diff);
        *self.diff.lock().unwrap_or_else(PoisonError::into_inner) = Some(diff);
        let (globs, spool) = self.keeps;
        if !globs.is_empty() {
            let Question { layer, workspace, rules, .. } = *question;
            let kept = artifacts::of_layer(layer, workspace, rules, globs, Bounds::default(), spool);
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        }
        // Changes that will not be committed announce nothing: a directive whose commit was announced never runs again.
        if question.will_commit { self.may_commit() } else { Ok(()) }
    }

    fn watch_end(&self, _: RunId, _: &Path, _: bool) -> Option<Box<dyn Any>> {
        None
    }
}

/// Signals of this process, of which none concerns a run.
pub struct NoSignals {
    ours: UnixStream,
    _other: UnixStream,
}

impl NoSignals {
    /// Makes a pair of which nothing is sent.
    pub fn new() -> io::Result<Self> {
        let (ours, other) = UnixStream::pair()?;
        Ok(Self { ours, _other: other })
    }
}

impl Interrupts for NoSignals {
    fn fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    fn take(&self) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }
}
