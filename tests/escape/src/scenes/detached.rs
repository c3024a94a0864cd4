//! A detached sandbox for scenes that look at it from outside or join it.

use crate::host::bench::{Bench, Job, Ran};
use crate::host::world::WorldError;
use std::io;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(15);

/// Its name, and that it stands.
pub struct Detached<'a> {
    bench: &'a Bench,
    /// Name of the sandbox.
    pub name: String,
}

impl<'a> Detached<'a> {
    /// Starts one. `None` with what the driver said where that does not work.
    pub fn start(bench: &'a Bench, part: &str, job: Job) -> Result<Result<Self, Ran>, WorldError> {
        let name = format!("{}-{part}", bench.world.context.token);
        let mut flags = vec!["--detach".to_owned(), "--name".to_owned(), name.clone()];
        flags.extend(job.flags.iter().cloned());
        let ran = bench.run(&Job { flags, ..job }, LIMIT)?;
        Ok(if ran.code == Some(0) { Ok(Self { bench, name }) } else { Err(ran) })
    }

    /// Runs one of the driver's commands about it.
    pub fn ask(&self, words: &[&str], command: &[&str]) -> Result<Ran, WorldError> {
        self.bench.run(&self.job(words, command), LIMIT)
    }

    /// The job for [`Self::ask`], for example on a terminal.
    pub fn job(&self, words: &[&str], command: &[&str]) -> Job<'static> {
        let mut verb: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        verb.push(self.name.clone());
        Job { verb, ..Job::new(&[], command) }
    }

    /// Returns the output, once that contains a word or after a while.
    pub fn printed(&self, word: &str) -> Result<Ran, WorldError> {
        let mut ran = self.ask(&["logs"], &[])?;
        let end = Instant::now() + LIMIT;
        while !ran.stdout.contains(word) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            ran = self.ask(&["logs"], &[])?;
        }
        Ok(ran)
    }

    /// Ends it and forgets it. Without that the next scene would meet it.
    pub fn remove(self) -> Result<(), WorldError> {
        let ran = self.ask(&["rm", "-f"], &[])?;
        if ran.code == Some(0) {
            return Ok(());
        }
        Err(WorldError { what: format!("the end of {}", self.name), source: io::Error::other(ran.summary()) })
    }
}
