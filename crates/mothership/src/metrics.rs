//! Counters of a server, in the text form of Prometheus. No counter names an account.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the server started.
#[derive(Default)]
pub struct Metrics {
    answers: [AtomicU64; 6],
    pub created: AtomicU64,
    pub claimed: AtomicU64,
    pub finished: AtomicU64,
    /// Directives whose lease passed or whose claim was taken back.
    pub reaped: AtomicU64,
    /// Directives whose output was removed after its days.
    pub removed: AtomicU64,
    /// Streams of output that became files.
    pub compacted: AtomicU64,
    /// Open event streams.
    pub streams: AtomicU64,
}

impl Metrics {
    /// Counts an answer.
    pub fn answer(&self, status: u16) {
        if let Some(counter) = self.answers.get(usize::from(status / 100)) {
            add(counter, 1);
        }
    }

    /// Returns the text.
    pub fn text(&self) -> String {
        let mut out = String::from("# TYPE nexus_http_answers_total counter\n");
        for (class, counter) in self.answers.iter().enumerate().skip(1) {
            line(&mut out, &format!("nexus_http_answers_total{{class=\"{class}xx\"}}"), counter);
        }
        for (name, kind, counter) in [
            ("nexus_directives_created_total", "counter", &self.created),
            ("nexus_directives_claimed_total", "counter", &self.claimed),
            ("nexus_directives_finished_total", "counter", &self.finished),
            ("nexus_directives_reaped_total", "counter", &self.reaped),
            ("nexus_directives_removed_total", "counter", &self.removed),
            ("nexus_logs_compacted_total", "counter", &self.compacted),
            ("nexus_event_streams", "gauge", &self.streams),
        ] {
            out.push_str(&["# TYPE ", name, " ", kind, "\n"].concat());
            line(&mut out, name, counter);
        }
        out
    }
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn line(out: &mut String, name: &str, counter: &AtomicU64) {
    out.push_str(&[name, " ", &counter.load(Ordering::Relaxed).to_string(), "\n"].concat());
}
