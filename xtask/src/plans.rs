//! Steps of each command, and the steps that each step needs.

use crate::counts::Counts;
use crate::failure::Failure;
use crate::run::{self, Action, Step};
use crate::workspace::{Workspace, cargo};
use crate::{
    deny, deps, faults, lanes, log_rule, packages, powerloss, registries, release, schema, sources, spec, waits, words,
};
use std::process::Command;

/// The test-only feature with which every set-up step of a sandbox can be made to fail.
const INJECT: &str = "nexus-cli/inject";

/// Words after `nexus-escape` for the whole suite; the program under attack is added by [`escape`]. The steps are those
/// without which a command would not be held, and each is made to fail in turn.
const ESCAPE_ARGUMENTS: &[&str] =
    &["suite", "--driver", "real", "--inject", "seccomp,landlock,drop_capabilities,pivot_root"];

/// Names of steps that others need.
const PACKAGES: &str = "packages";
const BUILD: &str = "build";

/// Name of the step that compares SPECIFICATION.md with what ran.
const PROMISED: &str = "promised tests";

/// Runs everything that continuous integration checks.
pub fn ci(workspace: &Workspace) -> Result<(), Failure> {
    run::run(workspace, &ci_steps(workspace))
}

fn ci_steps(workspace: &Workspace) -> Vec<Step> {
    vec![
        packages(),
        fmt(),
        clippy_inject(),
        clippy(),
        check_deps(),
        check_deny(),
        check_log(),
        check_waits(),
        check_schema(),
        check_spec(),
        check_words(),
        build(),
        registries(),
        tests(),
        docs(),
        release(),
        beside(escape(workspace)),
        beside(faults()),
        beside(powerloss()),
        beside(left_out(workspace)),
        machine(workspace),
        promised(spec::check_all_ran),
        largest(),
    ]
}

/// `test`: what runs the product.
pub fn test(workspace: &Workspace) -> Result<(), Failure> {
    run::run(workspace, &test_steps(workspace))
}

fn test_steps(workspace: &Workspace) -> Vec<Step> {
    let promised = promised(spec::check_ran);
    vec![packages(), build(), registries(), tests(), escape(workspace), left_out(workspace), promised]
}

/// `tests`: the build and the test programs, without the escape suite.
pub fn test_programs(workspace: &Workspace) -> Result<(), Failure> {
    run::run(workspace, &[packages(), build(), registries(), tests()])
}

/// `prepush`: what takes seconds when little has changed.
pub fn prepush(workspace: &Workspace) -> Result<(), Failure> {
    run::run(
        workspace,
        &[
            fmt(),
            clippy(),
            check_deps(),
            check_deny(),
            check_log(),
            check_waits(),
            check_schema(),
            check_spec(),
            check_words(),
            unit_tests(),
        ],
    )
}

/// `bench`: its arguments are those of the program.
pub fn bench(workspace: &Workspace, arguments: &[String]) -> Result<(), Failure> {
    let failed = |what: String| Failure::new(what, "read what bench says above");
    let status = Command::new(cargo())
        .args(["run", "--quiet", "--package", "nexus-bench", "--"])
        .args(arguments)
        .current_dir(&workspace.root)
        .status()
        .map_err(|error| failed(format!("cargo did not start: {error}")))?;
    // The program has said what is wrong.
    if status.success() { Ok(()) } else { Err(failed(status.to_string()).printed()) }
}

/// `vm`: builds `nexus` and the cases, and starts the machine.
pub fn vm(workspace: &Workspace) -> Result<(), Failure> {
    let words = ["build", "--package", "nexus-cli", "--package", "nexus-vm"];
    run::run(workspace, &[cargo_step(BUILD, "fix what the compiler names", &words), machine(workspace)])
}

/// Takes the programs that were built before.
fn machine(workspace: &Workspace) -> Step {
    let words = vec![workspace.target.join("debug/nexus-vm").display().to_string()];
    let advice = "read the lines that begin with vm-case";
    let action = Action::Program { words, env: &[], counted: true };
    Step { name: "virtual machine", advice, needs: &[BUILD], beside: false, action }
}

fn packages() -> Step {
    Step {
        name: PACKAGES,
        advice: "install what is named",
        needs: &[],
        beside: false,
        action: Action::Check(packages::ensure),
    }
}

fn registries() -> Step {
    let advice = "the tests install packages from the registries of this machine: see what is named";
    Step { name: "registries", advice, needs: &[PACKAGES], beside: false, action: Action::Check(registries::write) }
}

fn fmt() -> Step {
    cargo_step("fmt", "run `cargo fmt`", &["fmt", "--check"])
}

fn clippy() -> Step {
    let words = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    cargo_step("clippy", "fix what clippy names; an allow needs a reason", &words)
}

fn clippy_inject() -> Step {
    let words = ["clippy", "--workspace", "--all-targets", "--features", INJECT, "--", "-D", "warnings"];
    cargo_step("clippy (inject)", "fix what clippy names; an allow needs a reason", &words)
}

fn check_deps() -> Step {
    Step { name: "check-deps", advice: "see above", needs: &[], beside: false, action: Action::Check(deps::check) }
}

fn check_deny() -> Step {
    Step { name: "check-deny", advice: "see above", needs: &[], beside: false, action: Action::Check(deny::check) }
}

fn check_log() -> Step {
    Step { name: "check-log", advice: "see above", needs: &[], beside: false, action: Action::Check(log_rule::check) }
}

fn check_waits() -> Step {
    Step { name: "check-waits", advice: "see above", needs: &[], beside: false, action: Action::Check(waits::check) }
}

fn check_schema() -> Step {
    Step { name: "check-schema", advice: "see above", needs: &[], beside: false, action: Action::Check(schema::check) }
}

fn check_spec() -> Step {
    Step { name: "check-spec", advice: "see above", needs: &[], beside: false, action: Action::Check(spec::check) }
}

fn check_words() -> Step {
    Step { name: "check-words", advice: "see above", needs: &[], beside: false, action: Action::Check(words::check) }
}

fn build() -> Step {
    let words = ["build", "--workspace", "--features", INJECT];
    needing(&[PACKAGES], cargo_step(BUILD, "fix what the compiler names", &words))
}

fn tests() -> Step {
    let in_lanes = |workspace: &Workspace, counts: &mut Counts| lanes::run(workspace, INJECT, counts);
    Step { name: "tests", advice: "see above", needs: &[BUILD], beside: false, action: Action::Counted(in_lanes) }
}

/// Comes after every step with evidence, and needs none of them: that a promised test did not run is worth knowing when
/// another one failed.
fn promised(check: fn(&Workspace, &mut Counts) -> Result<(), Failure>) -> Step {
    Step { name: PROMISED, advice: "see above", needs: &[BUILD], beside: false, action: Action::Counted(check) }
}

fn unit_tests() -> Step {
    let words = ["test", "--workspace", "--lib", "--bins", "--no-fail-fast"];
    counted(cargo_step("unit tests", "run `cargo test -p CRATE TEST` for the one that failed", &words))
}

fn docs() -> Step {
    let mut step = cargo_step("docs", "fix the doc comment that is named", &["doc", "--no-deps", "--workspace"]);
    if let Action::Program { env, .. } = &mut step.action {
        *env = &[("RUSTDOCFLAGS", "-D warnings")];
    }
    step
}

/// The suite is started from where `build` left it, not by `cargo run`: building one package alone would choose other
/// features and replace the program under attack.
fn escape(workspace: &Workspace) -> Step {
    let built = |name: &str| workspace.target.join("debug").join(name).display().to_string();
    let mut words = vec![built("nexus-escape")];
    words.extend(ESCAPE_ARGUMENTS.iter().map(|word| (*word).to_owned()));
    words.extend(["--nexus".to_owned(), built("nexus")]);
    Step {
        name: "escape suite",
        advice: "run the failed vector alone: target/debug/nexus-escape suite --nexus target/debug/nexus --only ID",
        needs: &[BUILD],
        beside: false,
        action: Action::Program { words, env: &[], counted: true },
    }
}

/// Each wall is left out in turn, and the rows that its table names must notice. `soak` plays all rows.
fn left_out(workspace: &Workspace) -> Step {
    let built = |name: &str| workspace.target.join("debug").join(name).display().to_string();
    let words = vec![built("nexus-escape"), "walls".to_owned(), "--nexus".to_owned(), built("nexus")];
    Step {
        name: "walls",
        advice: "play one again: target/debug/nexus-escape walls --nexus target/debug/nexus --wall NAME",
        needs: &[BUILD],
        beside: false,
        action: Action::Program { words, env: &[], counted: true },
    }
}

fn release() -> Step {
    Step {
        name: "release",
        advice: "see above",
        needs: &[],
        beside: false,
        action: Action::Check(release::refuses_inject),
    }
}

fn powerloss() -> Step {
    let advice = "play the one that failed again, with the seed above: cargo xtask powerloss --seed N --only PLAY";
    Step { name: "powerloss", advice, needs: &[BUILD], beside: false, action: Action::Check(powerloss::bounded) }
}

fn faults() -> Step {
    let advice = "play the one that failed again: cargo xtask faults --only PHASE --root|--user --fault inject=…";
    Step { name: "faults", advice, needs: &[BUILD], beside: false, action: Action::Check(faults::bounded) }
}

fn largest() -> Step {
    Step {
        name: "largest files",
        advice: "see above",
        needs: &[],
        beside: false,
        action: Action::Check(sources::print_largest),
    }
}

fn cargo_step(name: &'static str, advice: &'static str, arguments: &[&str]) -> Step {
    let mut words = vec![cargo()];
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    Step { name, advice, needs: &[], beside: false, action: Action::Program { words, env: &[], counted: false } }
}

fn needing(needs: &'static [&'static str], step: Step) -> Step {
    Step { needs, ..step }
}

/// For a step that waits more than it computes, and that measures nothing of the whole machine. The virtual machine is none: it
/// computes, and an attack of the escape suite reads the memory of every process.
fn beside(step: Step) -> Step {
    Step { beside: true, ..step }
}

fn counted(mut step: Step) -> Step {
    if let Action::Program { counted, .. } = &mut step.action {
        *counted = true;
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_step_needs_only_steps_that_come_before_it() {
        let workspace = Workspace { root: PathBuf::new(), target: PathBuf::new(), packages: Vec::new() };
        for steps in [ci_steps(&workspace), test_steps(&workspace)] {
            for (index, step) in steps.iter().enumerate() {
                let known = |needed: &&str| steps[..index].iter().any(|earlier| earlier.name == *needed);
                assert!(step.needs.iter().all(known), "{} needs {:?}", step.name, step.needs);
            }
            for group in steps.chunk_by(|one, other| one.beside && other.beside) {
                let names: Vec<_> = group.iter().map(|step| step.name).collect();
                let is_free = |step: &Step| step.needs.iter().all(|needed| !names.contains(needed));
                assert!(group.iter().all(is_free), "{names:?} run beside each other");
            }
            let counts =
                |step: &Step| matches!(step.action, Action::Program { counted: true, .. } | Action::Counted(_));
            let last = steps.iter().rev().find(|step| counts(step)).unwrap();
            assert_eq!(last.name, PROMISED, "what runs after it is no evidence");
            let escape = steps.iter().find(|step| step.name == "escape suite").unwrap();
            assert!(!escape.needs.contains(&"tests"), "a flaky test keeps the escape suite from being played");
        }
    }
}
