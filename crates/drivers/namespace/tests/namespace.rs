//! The namespace driver conforms: launched by this process, and through a launcher process of its own.
//!
//! Without the test harness, because a launcher must have one thread.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_driver::Driver;
use nexus_driver::conformance::{Fixture, violations};
use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::{Launcher, PoolConfig, serve_stdin};
use nexus_model::plan::PlanDraft;
use nexus_model::{Guarantee, Limits, Plan};
use std::path::Path;
use std::process::{Command, ExitCode};

fn plan(workspace: &Path, script: &str, required: Option<Guarantee>) -> Plan {
    let mut draft = PlanDraft::direct(workspace, ["/bin/sh", "-c", script], Path::new("/proc/self/task/no-such"));
    draft.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    draft.limits = Limits::defaults(16 << 20);
    draft.required = required.into_iter().collect();
    Plan::new(draft).unwrap()
}

fn conforms(name: &str, driver: &dyn Driver, workspace: &Path) -> bool {
    let fixture = Fixture {
        exit: &|code| plan(workspace, &format!("exit {code}"), None),
        stay: &|| plan(workspace, "sleep 60", None),
        requiring: &|guarantee| plan(workspace, "exit 0", Some(guarantee)),
    };
    let found = violations(driver, &fixture);
    println!("test {name} ... {}", if found.is_empty() { "ok" } else { "FAILED" });
    for violation in &found {
        println!("  {violation}");
    }
    found.is_empty()
}

fn main() -> ExitCode {
    let driver = Namespace::with_defaults();
    if std::env::args().any(|argument| argument == "--as-launcher") {
        return if serve_stdin(&driver, PoolConfig { networks: 2, reuse: true, sandboxes: 1 }).is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    // Listing is what a test runner asks of a test that it knows nothing of.
    if std::env::args().any(|argument| argument == "--list") {
        println!("the_namespace_driver_conforms: test\nthe_launcher_conforms: test");
        return ExitCode::SUCCESS;
    }
    let workspace = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = std::fs::canonicalize(workspace.path()).unwrap();
    let own = conforms("the_namespace_driver_conforms", &driver, &path);
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.arg("--as-launcher");
    let remote = Launcher::start(program, Namespace::with_defaults()).unwrap();
    let launched = conforms("the_launcher_conforms", &remote, &path);
    remote.stop().unwrap();
    let failed = usize::from(!own) + usize::from(!launched);
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out", 2 - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
