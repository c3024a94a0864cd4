//! No release build has the feature `inject`, which leaves parts of the confinement out of sandboxes.

use crate::failure::Failure;
use crate::workspace::{Workspace, cargo};
use std::path::Path;
use std::process::Command;

/// Message of the compiler for a release build with the feature (`crates/jail/src/leave_out.rs`).
const REFUSAL: &str = "a release build must not have it";
/// A text that only a program with the feature holds (`crates/drivers/namespace/src/leave_out.rs`).
const LABEL: &[u8] = b"nexus-test-build-that-leaves-walls-out";

/// Builds the launcher and PID 1 for release with the feature, which must not work.
pub fn refuses_inject(workspace: &Workspace) -> Result<(), Failure> {
    let advice = "look at compile_error in src/leave_out.rs of the crate";
    for package in ["nexus-jail", "nexus-guest"] {
        let built = Command::new(cargo())
            .args(["check", "--release", "--package", package, "--features", "inject"])
            .current_dir(&workspace.root)
            .output()
            .map_err(|error| Failure::new(format!("cargo did not start: {error}"), "look at PATH"))?;
        let said = String::from_utf8_lossy(&built.stderr);
        if built.status.success() || !said.contains(REFUSAL) {
            let what = format!("{package} was not refused for release with the feature inject: {}", said.trim_end());
            return Err(Failure::new(what, advice));
        }
    }
    println!("a release build with the feature inject is refused");
    Ok(())
}

/// Looks for the text of a test build in a program.
pub fn check(program: &Path) -> Result<(), Failure> {
    let bytes = std::fs::read(program)
        .map_err(|error| Failure::new(format!("{}: {error}", program.display()), "build it: cargo static"))?;
    if is_test_build(&bytes) {
        let what = format!("{} is a test build that can leave confinement out of sandboxes", program.display());
        return Err(Failure::new(what, "build it without the feature inject"));
    }
    Ok(())
}

fn is_test_build(bytes: &[u8]) -> bool {
    bytes.windows(LABEL.len()).any(|window| window == LABEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_can_leave_confinement_out_is_recognised() {
        assert!(is_test_build(&[b"\x7fELF ", LABEL, b" more"].concat()));
        assert!(!is_test_build(b"\x7fELF NEXUS_LEAVE_OUT"));
        // The text stands in what a test build says, so that no linker drops it.
        let source = include_str!("../../crates/drivers/namespace/src/leave_out.rs");
        assert!(source.contains(std::str::from_utf8(LABEL).unwrap()));
    }
}
