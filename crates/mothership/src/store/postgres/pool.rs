//! Sessions and transactions.

use super::client::Client;
use super::database::Database;
use super::hints::{Hint, Publisher};
use super::wire::Fault;
use crate::store::error::StoreError;
use crate::store::sql::Connection;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Sessions for operations that one server has at one time.
const SESSIONS: usize = 16;
/// Time that an operation waits for one of them.
const WAIT: Duration = Duration::from_secs(5);
/// Times that a transaction is run, at most.
const MAX_TRIES: u32 = 8;
const WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// One snapshot for all statements: a directive that ends between two of them is seen whole.
const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The store in one PostgreSQL database. Clones share it.
#[derive(Clone)]
pub struct Postgres(pub(super) Arc<Pool>);

pub struct Pool {
    pub(super) database: Database,
    idle: Mutex<Vec<Client>>,
    slots: Arc<Semaphore>,
    /// Upper part of fences. A session that finds another server behind the address raises it.
    pub(super) epoch: AtomicU64,
    /// Time of the database less that of this machine, in milliseconds.
    pub(super) offset: AtomicI64,
    pub(super) lead: Mutex<Option<LeadSession>>,
    /// The lock of the lead was held in the last round.
    pub(super) leads: AtomicBool,
    pub(super) publisher: Publisher,
}

/// The session for the lock of the lead.
pub struct LeadSession {
    pub(super) client: RefCell<Client>,
    /// It has the lock.
    pub(super) holds: bool,
}

impl Postgres {
    pub(super) fn new(database: Database, publisher: Publisher) -> Self {
        Self(Arc::new(Pool {
            database,
            idle: Mutex::default(),
            slots: Arc::new(Semaphore::new(SESSIONS)),
            epoch: AtomicU64::new(0),
            offset: AtomicI64::new(0),
            lead: Mutex::default(),
            leads: AtomicBool::new(false),
            publisher,
        }))
    }

    /// Runs `work` in a transaction that may change rows.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl Fn(&Connection<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(WRITE, work).await
    }

    /// Runs `work` on one snapshot of the database.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl Fn(&Connection<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(READ, work).await
    }

    /// Returns the upper part of fences.
    pub fn epoch(&self) -> u64 {
        self.0.epoch.load(Ordering::SeqCst)
    }

    /// Gives a hint to the other servers, after a commit.
    pub fn publish(&self, hint: Hint) {
        self.0.publisher.publish(hint);
    }

    /// Runs a transaction on a thread that may wait. It ends as `work` decides, even when the caller goes away.
    async fn run<T: Send + 'static>(
        &self,
        begin: &'static str,
        work: impl Fn(&Connection<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let slot = tokio::time::timeout(WAIT, Arc::clone(&self.0.slots).acquire_owned()).await;
        let slot = slot.map_err(|_| StoreError::Unreachable { why: "all sessions are in use".to_owned() })?;
        let slot = slot.map_err(|_| StoreError::Closed)?;
        let pool = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || {
            let result = pool.transaction(begin, work);
            drop(slot);
            result
        });
        done.await.map_err(|_| StoreError::Closed)?
    }
}

impl Pool {
    fn transaction<T>(
        &self,
        begin: &str,
        work: impl Fn(&Connection<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut tries = 1;
        loop {
            let session = RefCell::new(self.session()?);
            session.borrow_mut().begin(begin);
            let outcome = work(&Connection::postgres(&session));
            let mut session = session.into_inner();
            let error = match outcome {
                Ok(value) => match session.commit() {
                    Ok(true) => {
                        self.keep(session);
                        return Ok(value);
                    }
                    Ok(false) => StoreError::Database { why: "the server has undone the transaction".to_owned() },
                    // Whether it was committed is not known: the caller repeats the call, and its rules make that harmless.
                    Err(error) if session.is_broken() => return Err(error),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let fault = session.take_fault();
            // A session that was lost before the commit has changed nothing.
            let again = session.is_broken() || fault.as_ref().is_some_and(is_passing);
            if session.is_broken() {
                // The others were lost with it, most probably.
                self.idle().clear();
            } else if session.roll_back().is_ok() {
                self.keep(session);
            }
            if !again || tries >= MAX_TRIES {
                return Err(error);
            }
            // Two transactions that met do not meet again: the pauses differ.
            let pause = u64::from(uuid::Uuid::now_v7().as_bytes()[15]) % 8 + (4 << tries.min(5));
            std::thread::sleep(Duration::from_millis(pause));
            tries += 1;
        }
    }

    /// Returns an idle session, or a new one.
    fn session(&self) -> Result<Client, StoreError> {
        let kept = self.idle().pop();
        kept.map_or_else(|| self.connect(), Ok)
    }

    fn keep(&self, session: Client) {
        let mut idle = self.idle();
        if !session.is_broken() && idle.len() < SESSIONS {
            idle.push(session);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Pool {
    pub(super) fn take_idle(&self) -> Option<Client> {
        self.idle().pop()
    }

    pub(super) fn drop_idle(&self) {
        self.idle().clear();
    }
}

/// Returns whether the same transaction can succeed when it is run again.
fn is_passing(fault: &Fault) -> bool {
    match fault.code.as_str() {
        // Two transactions stood in each other's way, or a lock was not to be had.
        "40001" | "40P01" | "55P03" => true,
        // A statement was prepared for the tables as they were before an upgrade.
        "0A000" => fault.message.contains("cached plan"),
        _ => false,
    }
}
