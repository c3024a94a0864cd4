//! The one place that writes to the client. Nothing else of this process writes to standard output.

use serde_json::Value;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also where a thread ended while it held it: each value behind one is whole at every moment.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The way to the client.
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
