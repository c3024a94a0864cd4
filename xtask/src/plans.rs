//! Which steps belong to which command.

use crate::failure::Failure;
use crate::run::{self, Action, Step};
use crate::workspace::{Workspace, cargo};
use crate::{deps, packages, registries, sources, spec, vm};

/// The test-only feature with which every set-up step of a sandbox can be made to fail.
const INJECT: &str = "nexus-cli/inject";

/// What follows `nexus-escape` for the whole suite; the program under attack is added by [`escape`]. The steps are those
/// without which a command would not be held, and each is made to fail in turn.
const ESCAPE_ARGUMENTS: &[&str] =
    &["suite", "--driver", "real", "--inject", "seccomp,landlock,drop_capabilities,pivot_root"];

/// `ci`: everything.
pub fn ci(workspace: &Workspace) -> Result<(), Failure> {
    let steps = [
        packages(),
        fmt(),
        clippy_inject(),
        clippy(),
        check_deps(),
        check_spec(),
        build(),
        registries(),
        tests(),
        docs(),
        escape(workspace),
        vm::step(),
        largest(),
    ];
    run::run(workspace, &steps)
}

/// `test`: what runs the product.
pub fn test(workspace: &Workspace) -> Result<(), Failure> {
    run::run(workspace, &[packages(), build(), registries(), tests(), escape(workspace)])
}

/// `prepush`: what takes seconds when little has changed.
pub fn prepush(workspace: &Workspace) -> Result<(), Failure> {
    run::run(workspace, &[fmt(), clippy(), check_deps(), check_spec(), unit_tests()])
}

fn packages() -> Step {
    Step { name: "packages", advice: "install what is named", action: Action::Check(packages::ensure) }
}

fn registries() -> Step {
    let advice = "the tests install packages from the registries of this machine: see what is named";
    Step { name: "registries", advice, action: Action::Check(registries::write) }
}

fn fmt() -> Step {
    cargo_step("fmt", "run `cargo fmt`", &["fmt", "--check"])
}

fn clippy() -> Step {
    let words = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    cargo_step("clippy", "mend what clippy names; an allow needs a reason", &words)
}

fn clippy_inject() -> Step {
    let words = ["clippy", "--workspace", "--all-targets", "--features", INJECT, "--", "-D", "warnings"];
    cargo_step("clippy (inject)", "mend what clippy names; an allow needs a reason", &words)
}

fn check_deps() -> Step {
    Step { name: "check-deps", advice: "see above", action: Action::Check(deps::check) }
}

fn check_spec() -> Step {
    Step { name: "check-spec", advice: "see above", action: Action::Check(spec::check) }
}

fn build() -> Step {
    cargo_step("build", "mend what the compiler names", &["build", "--workspace", "--features", INJECT])
}

fn tests() -> Step {
    // Without --no-fail-fast the closing line would count only the crates before the first failure.
    let words = ["test", "--workspace", "--features", INJECT, "--no-fail-fast"];
    counted(cargo_step("tests", "run `cargo test -p CRATE TEST` for the one that failed", &words))
}

fn unit_tests() -> Step {
    let words = ["test", "--workspace", "--lib", "--bins", "--no-fail-fast"];
    counted(cargo_step("unit tests", "run `cargo test -p CRATE TEST` for the one that failed", &words))
}

fn docs() -> Step {
    let mut step = cargo_step("docs", "mend the doc comment that is named", &["doc", "--no-deps", "--workspace"]);
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
        action: Action::Program { words, env: &[], counted: true },
    }
}

fn largest() -> Step {
    Step { name: "largest files", advice: "see above", action: Action::Check(sources::print_largest) }
}

fn cargo_step(name: &'static str, advice: &'static str, arguments: &[&str]) -> Step {
    let mut words = vec![cargo()];
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    Step { name, advice, action: Action::Program { words, env: &[], counted: false } }
}

fn counted(mut step: Step) -> Step {
    if let Action::Program { counted, .. } = &mut step.action {
        *counted = true;
    }
    step
}
