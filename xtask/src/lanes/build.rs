//! Builds the test programs with cargo and reads their paths from its messages.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::program::{self, TestProgram};
use crate::failure::Failure;
use crate::workspace::{Workspace, cargo};

/// Builds every test program of the workspace. The tests in the documentation are one more program: cargo itself.
pub fn programs(workspace: &Workspace, feature: &str) -> Result<Vec<TestProgram>, Failure> {
    let failed = |what: String| Failure::new(what, "fix what the compiler names");
    let common = ["--workspace", "--features", feature];
    let mut child = Command::new(cargo())
        .arg("test")
        .args(common)
        // Messages of the compiler go to standard error as usual; the rest is for programs.
        .args(["--no-run", "--message-format", "json-render-diagnostics"])
        .current_dir(&workspace.root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cargo did not start: {error}")))?;
    let mut programs = Vec::new();
    for line in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
        let line = line.map_err(|error| failed(format!("the messages of cargo cannot be read: {error}")))?;
        programs.extend(program::from_message(&line, &workspace.packages).map_err(failed)?);
    }
    let status = child.wait().map_err(|error| failed(format!("cargo: {error}")))?;
    if !status.success() {
        return Err(failed(format!("`cargo test --no-run` failed: {status}")));
    }
    let words = ["test", "--doc", "--no-fail-fast"].into_iter().chain(common);
    programs.push(TestProgram {
        label: program::DOCUMENTATION.to_owned(),
        path: cargo().into(),
        arguments: words.map(str::to_owned).collect(),
        directory: workspace.root.clone(),
    });
    Ok(programs)
}
