//! Counters of a server, in the text form of Prometheus. No counter names an account.

use std::sync::atomic::{AtomicU64, Ordering};

/// Work in the background, whose failures no answer tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Events get their place and hash in the audit chain.
    Audit,
    /// The heads of audit chains are signed.
    Heads,
    /// The authorities of territories are read and renewed.
    Authorities,
    /// The ends of leases and approvals.
    Leases,
    /// Output becomes files, and what is old is removed.
    Tidy,
}

impl Task {
    const ALL: [(Self, &str); 5] = [
        (Self::Audit, "audit"),
        (Self::Heads, "heads"),
        (Self::Authorities, "authorities"),
        (Self::Leases, "leases"),
        (Self::Tidy, "tidy"),
    ];
}

/// Counters since the server started.
#[derive(Default)]
pub struct Metrics {
    answers: [AtomicU64; 6],
    failures: [AtomicU64; Task::ALL.len()],
    pub created: AtomicU64,
    pub claimed: AtomicU64,
    pub finished: AtomicU64,
    /// Directives whose lease passed or whose claim was taken back.
    pub reaped: AtomicU64,
    /// Directives whose output was removed after its days.
    pub removed: AtomicU64,
    /// Streams of output that became files.
    pub compacted: AtomicU64,
    /// 1 while this server takes back leases: of the servers that share a database one alone.
    pub leads: AtomicU64,
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

    /// Counts a failed step of the background, which a later round repeats. Returns the result of one that did not fail.
    pub fn of<T, E>(&self, task: Task, result: Result<T, E>) -> Option<T> {
        if result.is_err() {
            let mut counters = Task::ALL.iter().zip(&self.failures);
            if let Some((_, counter)) = counters.find(|((one, _), _)| *one == task) {
                add(counter, 1);
            }
        }
        result.ok()
    }

    /// Returns the text.
    pub fn text(&self) -> String {
        let mut out = String::from("# TYPE nexus_http_answers_total counter\n");
        for (class, counter) in self.answers.iter().enumerate().skip(1) {
            line(&mut out, &format!("nexus_http_answers_total{{class=\"{class}xx\"}}"), counter);
        }
        out.push_str("# TYPE nexus_background_failures_total counter\n");
        for ((_, task), counter) in Task::ALL.iter().zip(&self.failures) {
            line(&mut out, &format!("nexus_background_failures_total{{task=\"{task}\"}}"), counter);
        }
        for (name, kind, counter) in [
            ("nexus_directives_created_total", "counter", &self.created),
            ("nexus_directives_claimed_total", "counter", &self.claimed),
            ("nexus_directives_finished_total", "counter", &self.finished),
            ("nexus_directives_reaped_total", "counter", &self.reaped),
            ("nexus_directives_removed_total", "counter", &self.removed),
            ("nexus_logs_compacted_total", "counter", &self.compacted),
            ("nexus_event_streams", "gauge", &self.streams),
            ("nexus_leads", "gauge", &self.leads),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_the_background_is_counted_by_its_task() {
        let metrics = Metrics::default();
        assert_eq!(metrics.of(Task::Heads, Ok::<_, ()>(7)), Some(7));
        assert_eq!(metrics.of(Task::Authorities, Err::<(), _>(())), None);
        let text = metrics.text();
        for (task, count) in [("audit", 0), ("heads", 0), ("authorities", 1), ("leases", 0), ("tidy", 0)] {
            assert!(text.contains(&format!("nexus_background_failures_total{{task=\"{task}\"}} {count}\n")), "{text}");
        }
    }
}
