//! A small process that starts programs and times them, as root or as an ordinary user.
//!
//! ```text
//!  bench ──one JSON line: Job──▶ timer ──posix_spawn, wait──▶ program
//!        ◀──one JSON line: Answer──┘
//! ```
//! Another user's programs are started by a process of that user: changing the user at each start would put a fork with
//! an exec where the others have a posix_spawn(3), and would be measured with it.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A program to start, and the number of times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Directory in which it starts.
    pub cwd: PathBuf,
    /// All of its environment.
    pub env: Vec<(String, String)>,
    /// Number of starts by each worker, one after the other.
    pub repeat: usize,
    /// Threads that start it at the same time.
    pub workers: usize,
    /// Keeps the program's stderr, for the reason of a failure; never while time counts.
    pub explain: bool,
}

/// Result of a job.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Each start to each end in microseconds.
    pub us: Vec<f64>,
    /// From the first start to the last end in microseconds.
    pub wall_us: f64,
    /// Reason for its failure, if it failed.
    pub failed: Option<String>,
}

/// Serves jobs from stdin until it ends.
pub fn serve() -> ExitCode {
    match serve_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: the timer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_all() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let job: Job = serde_json::from_str(&line?)?;
        let answer = do_job(&job);
        serde_json::to_writer(&mut out, &answer)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

fn do_job(job: &Job) -> Answer {
    let start = Instant::now();
    let worker = || (0..job.repeat).map(|_| once(job)).collect::<Result<Vec<_>, _>>();
    let all: Vec<Result<Vec<Duration>, String>> = if job.workers <= 1 {
        vec![worker()]
    } else {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..job.workers).map(|_| scope.spawn(worker)).collect();
            let died = |_| Err("a worker of the timer died".to_owned());
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
        })
    };
    let mut answer = Answer { wall_us: micros(start.elapsed()), ..Answer::default() };
    for times in all {
        match times {
            Ok(times) => answer.us.extend(times.into_iter().map(micros)),
            Err(reason) => answer.failed = Some(reason),
        }
    }
    answer
}

fn once(job: &Job) -> Result<Duration, String> {
    let (program, arguments) = job.argv.split_first().ok_or("an empty command")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&job.cwd).env_clear().envs(job.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if job.explain {
        let output = command.stderr(Stdio::piped()).output().map_err(|error| format!("{program}: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
        return if output.status.success() { Ok(Duration::ZERO) } else { Err(format!("{}: {said}", output.status)) };
    }
    let start = Instant::now();
    let status = command.status().map_err(|error| format!("{program}: {error}"))?;
    let taken = start.elapsed();
    if status.success() { Ok(taken) } else { Err(status.to_string()) }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(argv: &[&str], workers: usize, explain: bool) -> Job {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        Job { argv, cwd: "/".into(), env: Vec::new(), repeat: 3, workers, explain }
    }

    #[test]
    fn each_start_of_each_worker_is_timed() {
        let answer = do_job(&job(&["/bin/true"], 2, false));
        assert_eq!((answer.us.len(), answer.failed), (6, None));
        assert!(answer.us.iter().all(|us| *us > 0.0 && *us <= answer.wall_us));
    }

    #[test]
    fn a_program_that_fails_is_a_failure_and_not_a_time() {
        assert!(do_job(&job(&["/bin/false"], 1, false)).failed.is_some());
        let said = do_job(&job(&["/bin/sh", "-c", "echo why >&2; exit 3"], 1, true)).failed.unwrap();
        assert!(said.contains("why"), "{said}");
    }
}
