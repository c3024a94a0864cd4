//! Writes messages to the client, on standard output. No other code of this process writes there.

use serde_json::Value;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also after a thread panicked while it held it: every value behind such a lock is valid at each moment.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection to the client, for writing.
pub struct Wire {
    out: Mutex<Box<dyn Write + Send>>,
}

impl Wire {
    /// Writes to this.
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out: Mutex::new(out) }
    }

    /// Sends one message, on one line. An error is ignored: the client has left, and its end of the input says so too.
    pub fn send(&self, message: &Value) {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        let mut out = lock(&self.out);
        out.write_all(&line).and_then(|()| out.flush()).ok();
    }
}
