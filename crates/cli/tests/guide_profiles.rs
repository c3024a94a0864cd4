//! The `sh` blocks of the profile pages of the user guide, run as they stand.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::{Bench, benches, stderr, stdout};

fn blocks(page: &str) -> String {
    let mut script = String::from("set -eu\n");
    let mut inside = false;
    for line in page.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => {
                script.push_str(line);
                script.push('\n');
            }
            _ => {}
        }
    }
    script
}

fn run(bench: &Bench, name: &str, path: &str, home: &Path) {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(name)).unwrap();
    let script = blocks(&page);
    assert!(script.matches("nexus ").count() > 0, "{name} has lost its examples");
    let program = bench.nexus([] as [&str; 0]).get_program().to_owned();
    let path = format!("{}:{path}", Path::new(&program).parent().unwrap().display());
    let mut command = bench.command("/bin/sh");
    for name in ["CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let output = command.args(["-c", &script]).env("PATH", path).env("HOME", home).output().unwrap();
    assert!(output.status.success(), "{}: {name}: {}{}", bench.who(), stdout(&output), stderr(&output));
}

#[test]
fn the_commands_of_the_profile_pages_work() {
    const SYSTEM: &str = "/usr/local/bin:/usr/bin:/bin";
    for bench in benches() {
        let home = bench.home.clone();
        run(&bench, "profiles.md", SYSTEM, &home);
        let bench = Bench::new(bench.user);
        run(&bench, "network.md", SYSTEM, &bench.home);
    }
    // The tools are those of whoever runs the tests.
    let (home, path) = (std::env::home_dir().unwrap(), std::env::var("PATH").unwrap());
    for page in ["python.md", "node.md", "rust.md", "java.md", "git.md"] {
        run(&Bench::new(None), page, &path, &home);
    }
    let bench = Bench::new(None);
    let has_go = std::env::split_paths(&path).any(|folder| folder.join("go").is_file());
    if !has_go {
        // A stand-in, so that the page's flags are tried in any case.
        let go = bench.home.join("sdk/go/bin/go");
        fs::create_dir_all(go.parent().unwrap()).unwrap();
        fs::write(&go, "#!/bin/sh\ntest \"$*\" = 'test ./...' && test \"$GOPROXY\" = off\n").unwrap();
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{path}", bench.home.join("sdk/go/bin").display());
    run(&bench, "go.md", &path, &home);
}
