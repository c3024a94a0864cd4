//! Test programs as cargo describes them in its messages.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::workspace::Package;

/// Label of the tests in the documentation, which cargo builds and runs.
pub const DOCUMENTATION: &str = "documentation";

/// A program with tests, and its place to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestProgram {
    /// The crate and the program: `nexus-cli run`, `nexus-layer (lib)`, `nexus-cli (bin nexus)`.
    pub label: String,
    /// The file to execute.
    pub path: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Working directory: the crate's own, as with `cargo test`.
    pub directory: PathBuf,
}

impl TestProgram {
    /// Returns the command that runs all tests of the program.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).current_dir(&self.directory);
        // cargo sets it for the programs that it runs; the one in our environment names xtask.
        command.env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }
}

/// Reads one line of `cargo test --no-run --message-format json`; `None` for what is not a test program. The error is a
/// sentence: a program that is left out would be a suite that did not run.
pub fn from_message(line: &str, packages: &[Package]) -> Result<Option<TestProgram>, String> {
    // What a build script prints may come through; cargo's own messages are objects.
    if !line.starts_with('{') {
        return Ok(None);
    }
    let message: Value =
        serde_json::from_str(line).map_err(|error| format!("a message of cargo is not JSON: {error}"))?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    if !is_test || message["executable"].is_null() {
        return Ok(None);
    }
    let read = || {
        let manifest = PathBuf::from(message["manifest_path"].as_str()?);
        let package = packages.iter().find(|package| package.manifest == manifest)?;
        let target = message["target"]["name"].as_str()?;
        let label = match message["target"]["kind"][0].as_str()? {
            "test" => format!("{} {target}", package.name),
            "lib" => format!("{} (lib)", package.name),
            kind => format!("{} ({kind} {target})", package.name),
        };
        let path = PathBuf::from(message["executable"].as_str()?);
        Some(TestProgram { label, path, arguments: Vec::new(), directory: manifest.parent()?.to_owned() })
    };
    read().map(Some).ok_or_else(|| format!("this message of cargo has another form than expected: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn packages() -> Vec<Package> {
        let manifest = PathBuf::from("/w/crates/cli/Cargo.toml");
        vec![Package { name: "nexus-cli".to_owned(), manifest, roots: Vec::new(), uses: Vec::new() }]
    }

    fn artifact(kind: &str, name: &str, test: bool) -> Value {
        json!({
            "reason": "compiler-artifact",
            "manifest_path": "/w/crates/cli/Cargo.toml",
            "target": {"kind": [kind], "name": name},
            "profile": {"test": test},
            "executable": format!("/w/target/debug/deps/{name}-1"),
        })
    }

    fn read(message: &Value) -> Result<Option<TestProgram>, String> {
        from_message(&message.to_string(), &packages())
    }

    #[test]
    fn a_test_program_runs_in_the_directory_of_its_crate() {
        let labels = [
            ("test", "run", "nexus-cli run"),
            ("lib", "nexus", "nexus-cli (lib)"),
            ("bin", "nexus", "nexus-cli (bin nexus)"),
        ];
        for (kind, name, label) in labels {
            let program = read(&artifact(kind, name, true)).unwrap().unwrap();
            assert_eq!(program.label, label);
            assert_eq!(program.directory, PathBuf::from("/w/crates/cli"));
            assert_eq!(program.path, PathBuf::from(format!("/w/target/debug/deps/{name}-1")));
        }
    }

    #[test]
    fn messages_about_other_things_are_passed_over() {
        assert_eq!(read(&artifact("bin", "nexus", false)), Ok(None));
        assert_eq!(read(&json!({"reason": "build-finished", "success": true})), Ok(None));
        assert_eq!(from_message("a line that a build script printed", &packages()), Ok(None));
    }

    #[test]
    fn a_test_program_of_an_unknown_crate_is_a_failure() {
        let mut message = artifact("test", "run", true);
        message["manifest_path"] = json!("/elsewhere/Cargo.toml");
        assert!(read(&message).is_err());
        assert!(from_message("{", &packages()).is_err());
    }
}
