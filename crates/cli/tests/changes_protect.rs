//! A commit that cannot find out what is protected commits nothing.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use support::{benches, report, stderr};

#[test]
fn an_error_about_the_protected_names_parks() {
    for bench in benches() {
        assert!(bench.command("git").args(["init", "-q"]).status().unwrap().success());
        let config = bench.workspace.join(".git/config");
        let good = fs::read_to_string(&config).unwrap();
        let hooks = good.clone() + "[core]\n\thooksPath = tools\n";
        // More than Nexus reads of a configuration, though git reads it, and the directory of hooks at its end.
        fs::write(&config, "# long\n".repeat(1 << 20) + &hooks).unwrap();
        let script = "mkdir tools; echo evil > tools/pre-commit; echo x > f";
        let output = bench.run(["run", "--changes", "commit", "--shell", script]);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("protected names cannot be found out") && said.contains(".git/config"), "{said}");
        assert!(!bench.workspace.join("tools").exists() && !bench.workspace.join("f").exists(), "{}", bench.who());
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(125), "{}: an accept", bench.who());
        assert!(!bench.workspace.join("f").exists(), "{}", bench.who());
        fs::write(&config, hooks).unwrap();
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(bench.workspace.join("f").exists() && !bench.workspace.join("tools/pre-commit").exists());
        let rest = report(&bench.run(["changes", "show", "--json"]));
        assert_eq!(rest["changes"].as_array().unwrap().len(), 2, "{}: {rest}", bench.who());
    }
}
