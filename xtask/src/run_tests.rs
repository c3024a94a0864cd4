use std::path::PathBuf;

use super::*;

fn workspace() -> Workspace {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Workspace { target: root.join("target"), root, packages: Vec::new() }
}

fn shell(script: &str, counted: bool) -> Step {
    let words = ["sh", "-c", script].map(str::to_owned).to_vec();
    let action = Action::Program { words, env: &[("GREETING", "3 passed")], counted };
    Step { name: "shell", advice: "none", needs: &[], beside: false, action }
}

#[test]
fn a_program_that_succeeds_passes_and_one_that_fails_fails() {
    let mut counts = Counts::default();
    assert!(one(&workspace(), &shell("exit 0", false), &mut counts, Output::AtOnce).is_ok());
    assert!(one(&workspace(), &shell("exit 3", false), &mut counts, Output::AtOnce).is_err());
}

#[test]
fn a_program_that_is_not_there_fails() {
    let action = Action::Program { words: vec!["/no/such/program".to_owned()], env: &[], counted: false };
    let step = Step { name: "absent", advice: "none", needs: &[], beside: false, action };
    assert!(one(&workspace(), &step, &mut Counts::default(), Output::AtOnce).is_err());
}

#[test]
fn counted_output_is_counted_and_the_environment_is_passed() {
    let mut counts = Counts::default();
    one(
        &workspace(),
        &shell("echo \"$GREETING, 0 failed\"; printf '2 passed, 0 failed'", true),
        &mut counts,
        Output::AtOnce,
    )
    .unwrap();
    assert_eq!(counts, Counts { passed: 5, ..Counts::default() });
}

#[test]
fn reported_failures_fail_the_step_even_when_the_program_exits_with_zero() {
    let mut counts = Counts::default();
    assert!(one(&workspace(), &shell("echo '1 passed, 1 failed'", true), &mut counts, Output::AtOnce).is_err());
    assert!(one(&workspace(), &shell("echo '1 passed, 0 failed'", true), &mut counts, Output::AtOnce).is_ok());
}

#[test]
fn a_suite_that_reports_nothing_has_not_passed() {
    assert!(one(&workspace(), &shell("exit 0", true), &mut Counts::default(), Output::AtOnce).is_err());
    assert!(
        one(&workspace(), &shell("echo '0 passed, 0 failed'", true), &mut Counts::default(), Output::AtOnce).is_err()
    );
    assert!(one(&workspace(), &shell("exit 0", false), &mut Counts::default(), Output::AtOnce).is_ok());
}

#[test]
fn steps_beside_each_other_run_at_the_same_time_and_are_all_counted() {
    let directory = std::env::temp_dir().join(format!("nexus-xtask-{}-beside", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    // Each of the first two waits until the other one has started.
    let script = |own: &str, other: &str, end: &str| {
        let place = directory.display();
        // Bounded: one after the other they would wait for ever.
        let wait =
            format!("n=0; until [ -e {place}/{other} ]; do n=$((n+1)); [ $n -lt 3000 ] || exit 1; sleep 0.01; done");
        format!("echo > {place}/{own}; {wait}; {end}")
    };
    let step = |name, script: String| Step { name, beside: true, ..shell(&script, true) };
    let steps = [
        step("a", script("a", "b", "echo '2 passed, 0 failed'")),
        step("b", script("b", "a", "echo '3 passed, 1 failed'; exit 1")),
        step("c", "echo '5 passed, 0 failed'".to_owned()),
        Step { needs: &["b"], ..step("d", "echo '7 passed, 0 failed'".to_owned()) },
    ];
    let mut plan = Plan::default();
    plan.play(&workspace(), &steps[..3], steps.len());
    plan.play(&workspace(), &steps[3..], steps.len());
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!((plan.counts.passed, plan.counts.failed, plan.failed_steps), (10, 1, 0));
    let columns: Vec<_> = plan.outcomes.iter().map(|(name, outcome)| (*name, outcome.columns())).collect();
    assert_eq!(columns.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    for ((_, column), end) in columns.iter().zip(["ok", "FAILED", "ok", "not run: it needs b"]) {
        assert!(column.ends_with(end), "{columns:?}");
    }
}

#[test]
fn only_what_needs_a_failed_step_is_not_run() {
    let directory = std::env::temp_dir().join(format!("nexus-xtask-{}-failed-step", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let step = |name, needs, script: String| Step { name, needs, ..shell(&script, false) };
    let label = |name| format!("echo x > {}/{name}", directory.display());
    let steps = [
        step("broken", &[], "exit 1".to_owned()),
        step("beside", &["absent from this plan"], label("beside")),
        step("behind", &["broken"], label("behind")),
        step("far behind", &["beside", "behind"], label("far")),
        step("needs what succeeded", &["beside"], label("near")),
    ];
    assert!(run(&workspace(), &steps).is_err());
    let mut made: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    made.sort();
    assert_eq!(made, ["beside", "near"]);
    assert!(run(&workspace(), &steps[1..2]).is_ok());
    std::fs::remove_dir_all(&directory).unwrap();
}
