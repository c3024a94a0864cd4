//! The client of one connection, looked up when a rule first asks for its program.

use super::Connection;
use crate::shared::Shared;
use nexus_policy::net::{Attempt, Program};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// How long a connection waits for its turn to be looked up, and then for the answer. Beyond, its program is not known.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who speaks on a connection.
#[derive(Debug)]
pub(crate) struct Caller {
    /// `None` where nobody is to be looked up any more.
    connection: Option<Connection>,
    /// What was found. That nothing was found may be another thing the next time.
    program: OnceCell<Program>,
}

impl Caller {
    /// Not looked up yet; without its two ends it never will be.
    pub(crate) fn of(connection: Option<Connection>) -> Self {
        Self { connection, program: OnceCell::new() }
    }

    /// The attempt, with the program where the policy minds it.
    pub(crate) async fn complete(&self, shared: &Shared, attempt: Attempt) -> Attempt {
        if attempt.program.is_some() || !shared.registry.policy().minds_program(&attempt.target.host) {
            return attempt;
        }
        Attempt { program: self.program(shared).await, ..attempt }
    }

    async fn program(&self, shared: &Shared) -> Option<Program> {
        let connection = self.connection?;
        let found = self.program.get_or_try_init(|| async {
            let turn = timeout(PATIENCE, shared.looking_up.lock()).await.map_err(|_| NotKnown)?;
            let programs = Arc::clone(&shared.programs);
            // Looking at a file of a dead file system may never come back.
            let found = timeout(PATIENCE, tokio::task::spawn_blocking(move || programs.who(connection))).await;
            drop(turn);
            // A panic in there is no answer either.
            found.ok().and_then(Result::ok).flatten().ok_or(NotKnown)
        });
        found.await.ok().cloned()
    }
}

struct NotKnown;
