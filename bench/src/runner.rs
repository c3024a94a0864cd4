//! One identity that programs are measured as: its timer process, its directories, its environment.

use crate::failure::Failure;
use crate::timer::{Answer, Job};
use crate::{TIMER, failed};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// State directory that a program is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// That of all measures.
    Usual,
    /// One in which a warm launcher is up.
    Warm,
}

const STATE_DIR: &str = "NEXUS_STATE_DIR";
/// Name of the state directory with the launcher.
const WARM: &str = "warm-state";

/// An identity that programs are measured as.
pub struct Runner {
    /// `root`, `user`, or `caller`.
    pub who: &'static str,
    /// The uid, when it is not the caller's own.
    pub uid: Option<u32>,
    /// Directory of the identity; programs start in `project` below it.
    pub directory: PathBuf,
    /// Directory in which programs start.
    pub project: PathBuf,
    env: Vec<(String, String)>,
    timer: Child,
    jobs: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Runner {
    /// Makes the directories below `base` and starts `program` as the timer.
    pub fn start(who: &'static str, uid: Option<u32>, base: &Path, program: &Path) -> Result<Self, Failure> {
        let directory = base.join(who);
        let project = directory.join("project");
        for path in [&directory, &project, &directory.join("state"), &directory.join(WARM), &directory.join("home")] {
            std::fs::create_dir(path)
                .and_then(|()| uid.map_or(Ok(()), |uid| chown(path, Some(uid), Some(uid))))
                .map_err(|error| failed(&format!("{}: {error}", path.display())))?;
        }
        let mut command = Command::new(program);
        command.arg(TIMER).env_clear().current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        let mut timer = command.spawn().map_err(|error| failed(&format!("the timer as {who}: {error}")))?;
        let (Some(jobs), Some(answers)) = (timer.stdin.take(), timer.stdout.take()) else {
            return Err(failed("the timer has no pipes"));
        };
        let text = |path: PathBuf| path.display().to_string();
        let env = vec![
            ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("HOME".to_owned(), text(directory.join("home"))),
            (STATE_DIR.to_owned(), text(directory.join("state"))),
        ];
        Ok(Self { who, uid, directory, project, env, timer, jobs, answers: BufReader::new(answers) })
    }

    /// Starts a command once; the reason when it fails.
    pub fn explain(&mut self, argv: &[String]) -> Result<Result<(), String>, Failure> {
        self.explain_in(argv, State::Usual)
    }

    /// The same with one of the state directories.
    pub fn explain_in(&mut self, argv: &[String], state: State) -> Result<Result<(), String>, Failure> {
        let job = self.job_in(argv, state, true);
        Ok(self.ask(&job)?.failed.map_or(Ok(()), Err))
    }

    /// Times one start of a command in microseconds.
    pub fn time(&mut self, argv: &[String]) -> Result<f64, Failure> {
        self.time_in(argv, State::Usual)
    }

    /// The same with one of the state directories.
    pub fn time_in(&mut self, argv: &[String], state: State) -> Result<f64, Failure> {
        let job = self.job_in(argv, state, false);
        let answer = self.must(&job)?;
        answer.us.first().copied().ok_or_else(|| failed("the timer measured nothing"))
    }

    /// Starts in a second, with `workers` that start `repeat` each.
    pub fn per_second(&mut self, argv: &[String], repeat: usize, workers: usize) -> Result<f64, Failure> {
        let job = self.job(argv, repeat, workers, false);
        let answer = self.must(&job)?;
        Ok(answer.us.len() as f64 * 1e6 / answer.wall_us)
    }

    /// A command as this identity, for a measure that starts it itself.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value))).current_dir(&self.project);
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// Ends the timer.
    pub fn stop(self) -> Result<(), Failure> {
        let Self { mut timer, jobs, .. } = self;
        drop(jobs);
        match timer.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(&format!("the timer ended with {status}"))),
            Err(error) => Err(failed(&format!("the timer: {error}"))),
        }
    }

    fn job(&self, argv: &[String], repeat: usize, workers: usize, explain: bool) -> Job {
        Job { argv: argv.to_vec(), cwd: self.project.clone(), env: self.env.clone(), repeat, workers, explain }
    }

    fn job_in(&self, argv: &[String], state: State, explain: bool) -> Job {
        let mut job = self.job(argv, 1, 1, explain);
        if state == State::Warm {
            let directory = self.directory.join(WARM).display().to_string();
            job.env.retain(|(name, _)| name != STATE_DIR);
            job.env.push((STATE_DIR.to_owned(), directory));
        }
        job
    }

    fn must(&mut self, job: &Job) -> Result<Answer, Failure> {
        let answer = self.ask(job)?;
        match &answer.failed {
            None => Ok(answer),
            Some(reason) => Err(failed(&format!("`{}` as {}: {reason}", job.argv.join(" "), self.who))),
        }
    }

    fn ask(&mut self, job: &Job) -> Result<Answer, Failure> {
        let lost = |error: &dyn std::fmt::Display| failed(&format!("the timer: {error}"));
        let mut line = serde_json::to_string(job).map_err(|error| lost(&error))?;
        line.push('\n');
        self.jobs.write_all(line.as_bytes()).map_err(|error| lost(&error))?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(|error| lost(&error))?;
        serde_json::from_str(&answer).map_err(|error| lost(&error))
    }
}
