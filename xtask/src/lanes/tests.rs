use std::path::PathBuf;

use super::*;

fn shell(label: &str, script: &str) -> TestProgram {
    TestProgram {
        label: label.to_owned(),
        path: PathBuf::from("/bin/sh"),
        arguments: vec!["-c".to_owned(), script.to_owned()],
        directory: PathBuf::from(env!("CARGO_MANIFEST_DIR")),
    }
}

fn passing(name: &str) -> String {
    format!(
        "echo 'test {name} ... ok'; echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'"
    )
}

fn failing(name: &str) -> String {
    format!(
        "echo 'test {name} ... FAILED'; echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 \
         filtered out'; exit 101"
    )
}

fn all(programs: Vec<TestProgram>) -> (Result<(), Failure>, Counts) {
    let mut counts = Counts::default();
    let two = Lanes { always: 2, most: 2 };
    let result = run_all(programs, (two, Duration::from_secs(60)), &mut counts);
    (result, counts)
}

#[test]
fn programs_in_two_lanes_run_at_the_same_time() {
    let place = directory();
    // Each waits until the other one has started.
    let script = |own: &str, other: &str| {
        let place = place.display();
        format!("echo > {place}/{own}; until [ -e {place}/{other} ]; do sleep 0.01; done; {}", passing(own))
    };
    let (result, counts) = all(vec![shell("one", &script("a", "b")), shell("two", &script("b", "a"))]);
    std::fs::remove_dir_all(place).unwrap();
    assert!(result.is_ok());
    assert_eq!((counts.passed, counts.failed, counts.ran.len()), (2, 0, 2));
}

#[test]
fn one_more_program_starts_when_there_is_a_place_for_it_and_not_before() {
    let place = directory();
    // Each of the first two waits until the third one has run, for which there is a place after some questions.
    let first = format!("until [ -e {}/c ]; do sleep 0.01; done; {}", place.display(), passing("t"));
    let third = format!("echo > {}/c; {}", place.display(), passing("u"));
    let programs = [("one", &first), ("two", &first), ("three", &third)].map(|(label, script)| shell(label, script));
    let (mut refused, mut order) = (0, Vec::new());
    let has_place = |running| {
        refused += usize::from(running == 2 && refused < 3);
        running < 2 || refused == 3
    };
    in_lanes(programs.into(), Duration::from_secs(60), has_place, |program, verdict| {
        assert!(verdict.is_passed(), "{}", verdict.reason());
        order.push(program.label);
    });
    std::fs::remove_dir_all(place).unwrap();
    assert_eq!((order.len(), order[0].as_str(), refused), (3, "three", 3));
}

#[test]
fn a_program_that_fails_once_is_named_and_counted_as_passed() {
    let place = directory();
    let label = place.join("was-here");
    let script =
        format!("if [ -e {0} ]; then {1}; else echo > {0}; {2}; fi", label.display(), passing("t"), failing("t"));
    let (result, counts) = all(vec![shell("nexus-x flaky", &script), shell("nexus-x good", &passing("u"))]);
    std::fs::remove_dir_all(place).unwrap();
    assert!(result.is_ok());
    assert_eq!((counts.passed, counts.failed), (2, 0));
    assert_eq!(counts.only_alone()[0], "passed alone: nexus-x flaky: t");
    assert_eq!(counts.failed_tests.len(), 0);
}

#[test]
fn a_program_that_fails_twice_fails_the_step_and_is_counted_once() {
    let (result, counts) = all(vec![shell("nexus-x bad", &failing("t")), shell("nexus-x good", &passing("u"))]);
    assert!(result.unwrap_err().what.contains("nexus-x bad: t"));
    assert_eq!((counts.passed, counts.failed), (1, 1));
    assert!(counts.passed_alone.is_empty());
}

#[test]
fn a_program_that_runs_alone_gets_no_second_try() {
    let place = directory();
    let label = place.join("was-here");
    let script =
        format!("if [ -e {0} ]; then {1}; else echo > {0}; {2}; fi", label.display(), passing("t"), failing("t"));
    let alone = schedule::ALONE[0].0;
    let (result, counts) = all(vec![shell(alone, &script), shell("nexus-x good", &passing("u"))]);
    std::fs::remove_dir_all(place).unwrap();
    assert!(result.is_err());
    assert_eq!((counts.passed, counts.failed), (1, 1));
}

#[test]
fn a_program_that_does_not_end_is_stopped_and_has_failed() {
    let mut counts = Counts::default();
    let programs = vec![shell("nexus-x stuck", "exec sleep 600"), shell("nexus-x good", &passing("u"))];
    let two = Lanes { always: 2, most: 2 };
    let result = run_all(programs, (two, Duration::from_millis(300)), &mut counts);
    assert!(result.unwrap_err().what.contains("nexus-x stuck: it did not end in time"));
    assert_eq!((counts.passed, counts.failed), (1, 1));
}

#[test]
fn the_number_of_lanes_is_bounded() {
    assert_eq!(lanes(None).unwrap(), LANES);
    assert_eq!(lanes(Some("3")).unwrap(), Lanes { always: 3, most: 3 });
    for text in ["", "0", "9", "two", "-1"] {
        assert!(lanes(Some(text)).is_err(), "{text}");
    }
}

#[test]
fn no_program_at_all_is_a_failure() {
    assert!(all(Vec::new()).0.is_err());
}

/// A directory that no other test of this process uses.
fn directory() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::SeqCst);
    let path = std::env::temp_dir().join(format!("nexus-xtask-lanes-{}-{number}", std::process::id()));
    std::fs::create_dir(&path).unwrap();
    path
}
