//! The demo must not be able to look good by accident: each promise is broken once, without a sandbox.

use super::*;

fn scene(name: &str) -> (Scene, PathBuf) {
    let target = std::env::temp_dir().join(format!("nexus-demo-test-{}-{name}", std::process::id()));
    (Scene::set(&target).unwrap(), target)
}

fn held(findings: &[Finding]) -> Vec<bool> {
    findings.iter().map(|finding| finding.held).collect()
}

#[test]
fn a_script_that_never_ran_does_not_look_like_a_safe_one() {
    let (scene, target) = scene("never-ran");
    assert_eq!(held(&scene.inspect("").unwrap()), [false, true, true, true, true]);
    fs::remove_dir_all(target).unwrap();
}

#[test]
fn the_script_without_a_sandbox_breaks_every_promise_but_its_own_work() {
    let (scene, target) = scene("no-sandbox");
    let port = scene.server.local_addr().unwrap().port().to_string();
    let run =
        Command::new("sh").arg("agent.sh").arg(&scene.secret).arg(port).current_dir(&scene.project).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert_eq!(held(&scene.inspect(&said).unwrap()), [true, false, false, false, false]);
    fs::remove_dir_all(target).unwrap();
}
