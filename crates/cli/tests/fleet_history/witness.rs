//! Looks at the processes of the machine: the commands of this test name their directive, and the namespace of their processes
//! tells one sandbox from another.

use super::record::{Record, Seen};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Returns the word by which the command of a directive is known.
pub fn word(test: u32, number: usize) -> String {
    format!("nexus-history-{test}-{number}-")
}

/// Returns the directives whose commands are alive, with their sandboxes.
pub fn alive(test: u32) -> Vec<(usize, u64)> {
    let prefix = format!("nexus-history-{test}-");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if !entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // A process that ends while it is looked at is not there.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let text = String::from_utf8_lossy(&line);
        let Some(number) = text.split(&prefix).nth(1).and_then(|rest| rest.split('-').next()?.parse().ok()) else {
            continue;
        };
        let own = std::fs::metadata("/proc/self/ns/pid").map(|meta| meta.ino()).ok();
        let sandbox = std::fs::metadata(entry.path().join("ns/pid")).map(|meta| meta.ino()).ok();
        // Commands of users name directives, too, in the test's own namespace.
        if let Some(sandbox) = sandbox.filter(|sandbox| Some(*sandbox) != own) {
            found.push((number, sandbox));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Looks until the switch is set.
pub fn watch(test: u32, record: Arc<Record>, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while !stop.load(Ordering::SeqCst) {
            record.add(Seen::Alive { sandboxes: alive(test) });
            std::thread::sleep(LOOK_EVERY);
        }
    })
}
