//! Memory with a value is wiped when the value is dropped. The test reads its own memory, where freed bytes stay as they were.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_secrets::{Redaction, Request, Source, fetch};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The test has the value only in this form: each byte with `MASK`.
const MASKED: &[u8; 48] = b"a value that this test never has in plain memory";
const MASK: u8 = 0x80;
/// The part that is looked for: the allocator writes over the beginning of what is freed.
const MIDDLE: Range<usize> = 20..40;
const PAGE: usize = 4096;

/// Counts the places of this process's writable memory that hold the middle of the value.
fn places() -> usize {
    let middle = &MASKED[MIDDLE];
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|number| u64::from_str_radix(number, 16).unwrap());
        // A page and the beginning of the next one, in one buffer that is emptied: the search leaves no copies.
        let mut page = [0; PAGE + MIDDLE.end - MIDDLE.start];
        for at in (from..to).step_by(PAGE) {
            let Ok(count) = memory.read_at(&mut page, at) else { continue };
            let is_it = |window: &[u8]| window.iter().zip(middle).all(|(byte, masked)| byte ^ MASK == *masked);
            found += page[..count].windows(middle.len()).filter(|window| is_it(window)).count();
            page.fill(0);
        }
    }
    found
}

#[test]
fn no_memory_holds_a_value_that_was_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    // In one place: an array that is passed on leaves copies.
    let mut plain = vec![0; MASKED.len()];
    plain.iter_mut().zip(MASKED).for_each(|(byte, masked)| *byte = masked ^ MASK);
    fs::write(&path, &plain).unwrap();
    plain.fill(0);
    std::hint::black_box(&plain);
    let variables = BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]);
    let source = Source {
        variables: &variables,
        home: None,
        current: directory.path(),
        workspace: &directory.path().join("workspace"),
        within: Duration::from_secs(60),
        goes_on: &|| true,
    };
    for text in ["KEY=file:key".to_owned(), format!("KEY=cmd:cat {}", path.display())] {
        assert_eq!(places(), 0, "before {text}");
        let fetched = fetch(&Request::parse(text.as_ref()).unwrap(), &source).unwrap();
        let redaction = Redaction::new([("KEY", &fetched.value)]);
        assert!(places() > 0, "{text} is held, and the search finds it");
        drop((fetched, redaction));
        assert_eq!(places(), 0, "after {text}");
    }
}
