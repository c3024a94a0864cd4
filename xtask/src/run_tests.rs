use std::path::PathBuf;

use super::*;

fn workspace() -> Workspace {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Workspace { target: root.join("target"), root, packages: Vec::new() }
}

fn shell(script: &str, counted: bool) -> Step {
    let words = ["sh", "-c", script].map(str::to_owned).to_vec();
    Step { name: "shell", advice: "none", action: Action::Program { words, env: &[("GREETING", "3 passed")], counted } }
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
    let step = Step { name: "absent", advice: "none", action };
    assert!(one(&workspace(), &step, &mut Counts::default()).is_err());
}

#[test]
fn counted_output_is_counted_and_the_environment_is_passed() {
    let mut counts = Counts::default();
    one(&workspace(), &shell("echo \"$GREETING, 0 failed\"; printf '2 passed, 0 failed'", true), &mut counts).unwrap();
    assert_eq!(counts, Counts { passed: 5, failed: 0 });
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
fn nothing_runs_after_the_first_failure() {
    let folder = std::env::temp_dir().join(format!("nexus-xtask-{}-first-failure", std::process::id()));
    let script = format!("echo x > {}", folder.display());
    assert!(run(&workspace(), &[shell("exit 1", false), shell(&script, false)]).is_err());
    assert!(!folder.exists());
    assert!(run(&workspace(), &[shell("exit 0", false), shell(&script, false)]).is_ok());
    std::fs::remove_file(&folder).unwrap();
}
