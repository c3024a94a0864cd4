//! One of the servers reaps, compacts and removes: the one whose session holds an advisory lock. When that server ends, or the
//! session is lost, another one takes the lock in its next round.

use super::pool::{LeadSession, Pool, Postgres};
use crate::clock::Clock;
use crate::store::error::StoreError;
use crate::store::sql::Connection;
use crate::store::value::{Value, params};
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

const LEAD: i64 = 0x006e_6578_7573_0002;
/// The session of the lead speaks each second. One that is silent for so long belongs to a server that stands still, or to a machine that
/// is gone without a word: the database ends it, and the lock is free. Versions before 14 do not know the setting.
const BOUND: &str = "SELECT set_config(name, '20s', FALSE) FROM pg_settings WHERE name = 'idle_session_timeout'";
const TIME: &str = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)";

impl Postgres {
    /// Returns whether this server leads, and measures the clock of the database. Every server calls it in each round.
    pub async fn round(&self, clock: Clock) -> Result<bool, StoreError> {
        let pool = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || {
            let mut lead = pool.lead.lock().unwrap_or_else(PoisonError::into_inner);
            let holds = pool.ask(&mut lead, &clock);
            pool.leads.store(*holds.as_ref().unwrap_or(&false), Ordering::SeqCst);
            holds
        });
        done.await.map_err(|_| StoreError::Closed)?
    }

    /// Returns whether this server leads, as of its last round.
    pub fn leads(&self) -> bool {
        self.0.leads.load(Ordering::SeqCst)
    }

    /// Returns the time of the database less that of this machine, in milliseconds.
    pub fn offset(&self) -> i64 {
        self.0.offset.load(Ordering::SeqCst)
    }
}

impl Pool {
    /// Asks for the lock, and for the time. A session that fails is dropped, and the lock with it.
    fn ask(&self, lead: &mut Option<LeadSession>, clock: &Clock) -> Result<bool, StoreError> {
        let session = if let Some(session) = lead.take() {
            session
        } else {
            let mut client = self.connect()?;
            client.batch(BOUND)?;
            LeadSession { client: RefCell::new(client), holds: false }
        };
        // A lock that is taken twice has to be given up twice.
        let (lock, key): (_, &[Value<'_>]) =
            if session.holds { ("TRUE", &[]) } else { ("pg_try_advisory_lock(?1)", params![LEAD]) };
        let sent = clock.wall();
        let connection = Connection::postgres(&session.client);
        let (holds, time): (bool, i64) =
            connection.query_row(&format!("SELECT {lock}, {TIME}"), key, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let came = clock.wall();
        *lead = Some(LeadSession { holds, ..session });
        if clock.is_of_machine() {
            let (offset, before) = (time - i64::midpoint(sent, came), self.offset.load(Ordering::SeqCst));
            // A difference that the way of the answer explains is none.
            if (offset - before).abs() > came - sent + 1 {
                self.offset.store(offset, Ordering::SeqCst);
            }
        }
        Ok(holds)
    }
}
