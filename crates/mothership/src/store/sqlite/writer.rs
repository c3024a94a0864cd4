//! The one thread that writes. Requests that wait together share a commit.

use crate::store::error::StoreError;
use rusqlite::Connection;
use std::sync::mpsc;
use tokio::sync::oneshot;

/// Largest number of requests in one commit.
const MAX_BATCH: usize = 32;

/// Hands the result of a request to its caller, once the commit has succeeded or failed.
type Completion = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
type Request = Box<dyn FnOnce(&Connection) -> Completion + Send>;

/// Queue of the writer thread.
#[derive(Clone)]
pub struct Writer {
    requests: mpsc::Sender<Request>,
}

impl Writer {
    /// Starts the thread. It ends when the last clone of the queue is dropped.
    pub fn start(connection: Connection) -> Result<Self, StoreError> {
        let (requests, queue) = mpsc::channel();
        std::thread::Builder::new()
            .name("nexus-store".to_owned())
            .spawn(move || run(&connection, &queue))
            .map_err(|error| StoreError::Secret { why: format!("the writer thread did not start: {error}") })?;
        Ok(Self { requests })
    }

    /// Runs `work` in a transaction. The transaction ends as `work` decides, even when the caller goes away.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, result) = oneshot::channel();
        let request: Request = Box::new(move |connection| {
            let outcome = in_savepoint(connection, work);
            Box::new(move |committed| {
                let outcome = committed.and(outcome);
                // The caller may have gone away; what was committed stays.
                drop(answer.send(outcome));
            })
        });
        self.requests.send(request).map_err(|_| StoreError::Closed)?;
        result.await.map_err(|_| StoreError::Closed)?
    }
}

/// Runs one of the few statements that stand around each request, without reading its text again.
fn run_cached(connection: &Connection, text: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(text)?.execute([]).map(drop)
}

fn in_savepoint<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    run_cached(connection, "SAVEPOINT request")?;
    match work(connection) {
        Ok(value) => {
            run_cached(connection, "RELEASE request")?;
            Ok(value)
        }
        Err(error) => {
            connection.execute_batch("ROLLBACK TO request; RELEASE request")?;
            Err(error)
        }
    }
}

fn run(connection: &Connection, queue: &mpsc::Receiver<Request>) {
    while let Ok(first) = queue.recv() {
        if let Err(error) = run_cached(connection, "BEGIN IMMEDIATE") {
            // The request is run outside a transaction, so that its caller gets an answer; the failed commit wins.
            refuse(connection, first, error);
            continue;
        }
        let mut completions = vec![first(connection)];
        while completions.len() < MAX_BATCH {
            let Ok(next) = queue.try_recv() else { break };
            completions.push(next(connection));
        }
        let committed = run_cached(connection, "COMMIT").map_err(StoreError::from);
        if committed.is_err() && !connection.is_autocommit() {
            drop(connection.execute_batch("ROLLBACK"));
        }
        for completion in completions {
            completion(match &committed {
                Ok(()) => Ok(()),
                Err(StoreError::Full) => Err(StoreError::Full),
                Err(error) => Err(StoreError::corrupt(format!("the commit failed: {error}"))),
            });
        }
    }
}

/// Answers a request whose transaction could not begin, without its effects.
fn refuse(connection: &Connection, request: Request, error: rusqlite::Error) {
    // A deferred transaction that is always rolled back.
    if connection.execute_batch("BEGIN").is_ok() {
        let completion = request(connection);
        drop(connection.execute_batch("ROLLBACK"));
        completion(Err(error.into()));
    }
}
