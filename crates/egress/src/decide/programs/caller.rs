//! Looks up the client of one connection when a rule first asks for its program.

use crate::decide::state::Shared;
use crate::seams::Connection;
use nexus_policy::net::{Attempt, Program};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// Time limit for a turn to look up the program, and again for the answer. After it, the program is not known.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Client of a connection, with its program once it is found.
#[derive(Debug)]
pub(crate) struct ConnectionOwner {
    /// Ends of the connection; `None` if the program is not looked up any more.
    connection: Option<Connection>,
    /// Program that was found. A failure is not kept: the next look-up may succeed.
    program: OnceCell<Program>,
}

impl ConnectionOwner {
    /// Creates a client that is not looked up yet; without the two ends it never will be.
    pub(crate) fn of(connection: Option<Connection>) -> Self {
        Self { connection, program: OnceCell::new() }
    }

    /// Returns the attempt, with the program if the policy depends on it.
    pub(crate) async fn complete(&self, shared: &Shared, attempt: Attempt) -> Attempt {
        if attempt.program.is_some() || !shared.registry.policy().minds_program(&attempt.target.host) {
            return attempt;
        }
        Attempt { program: self.program(shared).await, ..attempt }
    }

    async fn program(&self, shared: &Shared) -> Option<Program> {
        let connection = self.connection?;
        let found = self.program.get_or_try_init(|| async {
            let turn = timeout(TIMEOUT, shared.looking_up.lock()).await.map_err(|_| NotKnown)?;
            let programs = Arc::clone(&shared.programs);
            // A look at a file of a hanging file system may never return.
            let found = timeout(TIMEOUT, tokio::task::spawn_blocking(move || programs.who(connection))).await;
            drop(turn);
            // A panic in the task means that the program is not known.
            found.ok().and_then(Result::ok).flatten().ok_or(NotKnown)
        });
        found.await.ok().cloned()
    }
}

struct NotKnown;
