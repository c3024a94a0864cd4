use std::path::PathBuf;

use super::*;

fn workspace() -> Workspace {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Workspace { target: root.join("target"), root, packages: Vec::new() }
}

fn shell(script: &str, counted: bool) -> Step {
    let words = ["sh", "-c", script].map(str::to_owned).to_vec();
    let action = Action::Program { words, env: &[("GREETING", "3 passed")], counted };
    Step { name: "shell", advice: "none", needs: &[], action }
}

#[test]
fn a_program_that_succeeds_passes_and_one_that_fails_fails() {
    let mut counts = Counts::default();
    assert!(one(&workspace(), &shell("exit 0", false), &mut counts).is_ok());
    assert!(one(&workspace(), &shell("exit 3", false), &mut counts).is_err());
}

#[test]
fn a_program_that_is_not_there_fails() {
    let action = Action::Program { words: vec!["/no/such/program".to_owned()], env: &[], counted: false };
    let step = Step { name: "absent", advice: "none", needs: &[], action };
    assert!(one(&workspace(), &step, &mut Counts::default()).is_err());
}

#[test]
fn counted_output_is_counted_and_the_environment_is_passed() {
    let mut counts = Counts::default();
    one(&workspace(), &shell("echo \"$GREETING, 0 failed\"; printf '2 passed, 0 failed'", true), &mut counts).unwrap();
    assert_eq!(counts, Counts { passed: 5, ..Counts::default() });
}

#[test]
fn reported_failures_fail_the_step_even_when_the_program_exits_with_zero() {
    let mut counts = Counts::default();
    assert!(one(&workspace(), &shell("echo '1 passed, 1 failed'", true), &mut counts).is_err());
    assert!(one(&workspace(), &shell("echo '1 passed, 0 failed'", true), &mut counts).is_ok());
}

#[test]
fn a_suite_that_reports_nothing_has_not_passed() {
    assert!(one(&workspace(), &shell("exit 0", true), &mut Counts::default()).is_err());
    assert!(one(&workspace(), &shell("echo '0 passed, 0 failed'", true), &mut Counts::default()).is_err());
    assert!(one(&workspace(), &shell("exit 0", false), &mut Counts::default()).is_ok());
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
