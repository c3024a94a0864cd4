//! `demo`: an untrusted script in a sandbox, and what the host sees of it afterwards.
//!
//! The script tries four things that a hostile command tries first, and one piece of honest work. The result is
//! evaluated from the host's side, never from what the script says of itself, and the demo fails when a single attempt
//! got through: it is shown to newcomers, so it must not be able to look good by accident.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::failure::Failure;
use crate::workspace::{Workspace, cargo};

const SCRIPT: &str = include_str!("demo_agent.sh");

/// A word that only the host's secret file holds.
const CANARY: &str = "canary-7f3a91";

/// Text that the honest part of the script writes; its arrival proves that the script ran.
const HONEST_RESULT: &str = "42\n";

const STATE_VARIABLE: &str = "NEXUS_STATE_DIR";

/// Builds the release program, runs the script, prints what came of it.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let advice = "run `cargo static` and fix what it names; it needs the C library for static linking (libc6-dev)";
    let status = Command::new(cargo())
        .arg("static")
        .current_dir(&workspace.root)
        .status()
        .map_err(|error| Failure::new(format!("cargo did not start: {error}"), advice))?;
    if !status.success() {
        return Err(Failure::new(format!("the release build failed: {status}"), advice));
    }
    crate::release::check(&workspace.target.join("release/nexus"))?;
    let scene = Scene::set(&workspace.target).map_err(|error| {
        Failure::new(
            format!("the demo directory could not be made: {error}"),
            "look at the space and rights of target/",
        )
    })?;
    let shown = show(&scene, &workspace.target.join("release/nexus"));
    scene.strike();
    let findings = shown.map_err(|error| {
        Failure::new(format!("the demo stopped: {error}"), "README.md lists what Nexus needs of the machine")
    })?;
    if findings.iter().all(|finding| finding.held) {
        return Ok(());
    }
    Err(Failure::new("not everything was as promised, see NO above", "this is a defect: see SECURITY.md"))
}

/// The host's side: a project, a secret beside it, and a server on loopback.
struct Scene {
    directory: PathBuf,
    project: PathBuf,
    secret: PathBuf,
    server: TcpListener,
}

/// One thing that the host looks at afterwards.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    promise: &'static str,
    held: bool,
}

impl Scene {
    fn set(target: &Path) -> std::io::Result<Self> {
        let directory = target.join(format!("nexus-demo-{}", std::process::id()));
        let project = directory.join("project");
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&project)?;
        let secret = directory.join("host-secret.txt");
        fs::write(&secret, CANARY)?;
        let server = TcpListener::bind(("127.0.0.1", 0))?;
        server.set_nonblocking(true)?;
        fs::write(project.join("agent.sh"), SCRIPT)?;
        fs::write(project.join("notes.txt"), "kept\n")?;
        let scene = Self { directory, project, secret, server };
        let git = Command::new("git").args(["init", "--quiet"]).arg(&scene.project).status()?;
        if !git.success() {
            return Err(std::io::Error::other("git init failed"));
        }
        Ok(scene)
    }

    /// Removes the directory; a file that cannot be removed is named, so that a person can remove it later.
    fn strike(&self) {
        // The parked layer of an ordinary user holds a directory of mode 000, which overlayfs made.
        let opened = Command::new("chmod").args(["-R", "u+rwX"]).arg(&self.directory).status();
        if let Err(error) = opened.and_then(|_| fs::remove_dir_all(&self.directory)) {
            println!("note: {} could not be removed: {error}", self.directory.display());
        }
    }

    fn nexus(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.project).env(STATE_VARIABLE, self.directory.join("state")).stdin(Stdio::null());
        command
    }

    /// Inspects the host. `output` is everything that came out of the sandbox.
    fn inspect(&self, output: &str) -> std::io::Result<Vec<Finding>> {
        let connected = match self.server.accept() {
            Ok(_) => true,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(error) => return Err(error),
        };
        let result = fs::read_to_string(self.project.join("result.txt")).unwrap_or_default();
        let home_file = self.directory.join("planted.txt");
        Ok(vec![
            Finding {
                promise: "the script ran, and its honest result is in the project",
                held: result == HONEST_RESULT,
            },
            Finding { promise: "the secret beside the project did not come out", held: !output.contains(CANARY) },
            Finding { promise: "the server on the host saw no connection", held: !connected },
            Finding { promise: "nothing was written outside the project", held: !home_file.exists() },
            Finding {
                promise: "the git hook did not reach the project",
                held: !self.project.join(".git/hooks/post-checkout").exists(),
            },
        ])
    }
}

fn show(scene: &Scene, program: &Path) -> std::io::Result<Vec<Finding>> {
    println!("--- the untrusted script (agent.sh) ---\n{SCRIPT}");
    let port = scene.server.local_addr()?.port().to_string();
    println!("--- nexus run --workspace PROJECT --changes commit -v -- sh ./agent.sh SECRET PORT ---");
    let run = scene
        .nexus(program)
        .args(["run", "--workspace"])
        .arg(&scene.project)
        .args(["--changes", "commit", "-v", "--", "sh", "./agent.sh"])
        .arg(&scene.secret)
        .arg(&port)
        .output()?;
    let said = print_output(&run);
    println!("({})\n\n--- what waits for you: nexus changes show ---", run.status);
    let changes = scene.nexus(program).args(["changes", "show"]).output()?;
    print_output(&changes);
    if !changes.status.success() {
        return Err(std::io::Error::other(format!("nexus changes show: {}", changes.status)));
    }
    println!("\n--- what the host sees now (in its layer the agent may believe more) ---");
    let findings = scene.inspect(&said)?;
    for finding in &findings {
        println!("  {}  {}", if finding.held { "yes" } else { "NO " }, finding.promise);
    }
    Ok(findings)
}

/// Prints what a program wrote and returns it as text. Control characters are made harmless: the text is hostile and
/// this is a user's terminal (CVE-2021-25743).
fn print_output(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text: String = String::from_utf8_lossy(&text)
        .chars()
        .map(|character| if character.is_control() && character != '\n' { '\u{fffd}' } else { character })
        .collect();
    print!("{text}");
    text
}

#[cfg(test)]
#[path = "demo_tests.rs"]
mod tests;
