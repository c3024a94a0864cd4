//! Programs that the host would start later: helpers of hooks that the user's own configuration has for every repository.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, wait_for_tick};
use nexus_layer::{Committed, Host, Layer, LayerMode, Reach, Rules};
use std::fs;

fn write(path: &str) -> Op {
    Op::Write(path.into(), "#!/bin/sh\n".into())
}

fn mkdirs(paths: &[&str]) -> Vec<Op> {
    paths.iter().map(|path| Op::Mkdir((*path).into())).collect()
}

/// Writes a configuration of the user whose hook starts `command` in every repository.
fn host(scene: &Scene, command: &str) -> Host {
    let home = scene.path("home");
    fs::create_dir_all(home.join("hk")).unwrap();
    fs::write(home.join("hk/pre-commit"), format!("#!/bin/sh\n{command}\n")).unwrap();
    fs::write(home.join(".gitconfig"), "[core]\nhooksPath = ~/hk\n").unwrap();
    Host { git_configurations: vec![home.join(".gitconfig")], homes: vec![home], ..Host::default() }
}

fn commit(scene: &Scene, host: &Host, layer: &Layer) -> Committed {
    let touched = layer.touched(&scene.workspace()).unwrap();
    let at = fs::canonicalize(scene.ws()).unwrap();
    let rules = Rules::default().for_workspace(&scene.workspace(), &at, host, Reach::COMMIT, &touched).unwrap();
    layer.commit(&scene.workspace(), &rules).unwrap()
}

fn parked(result: &Committed) -> Vec<String> {
    let mut paths: Vec<_> =
        result.parked.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect();
    paths.sort();
    paths
}

/// A new repository in `new`, and its files.
fn repository(bare: bool) -> Vec<Op> {
    let mut ops = mkdirs(&["new", "new/.git", "new/.git/objects", "new/.git/refs", "new/src", "new/src/tools"]);
    ops.extend([
        Op::Write(b"new/.git/HEAD".to_vec(), "ref: refs/heads/main\n".into()),
        Op::Write(b"new/.git/config".to_vec(), format!("[core]\n\trepositoryformatversion = 0\n\tbare = {bare}\n")),
        write("new/src/main.rs"),
        write("new/src/tools/mod.rs"),
    ]);
    ops
}

#[test]
fn a_new_repository_gets_no_helper_of_every_hook_unasked() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for bare in [false, true] {
            let scene = Scene::new(mode, &[]);
            let host = host(&scene, "[ -x ./tools/l.sh ] && exec ./tools/l.sh");
            let mut ops = repository(bare);
            ops.extend(mkdirs(&["new/tools"]));
            ops.extend(["new/tools/l.sh", "new/tools/other.sh", "new/src/tools/l.sh"].map(write));
            let result = commit(&scene, &host, &scene.layer(&ops));
            let mut wanted = vec!["new/src/tools/l.sh", "new/tools/l.sh"];
            if bare {
                // Nor a configuration that makes a bare repository of a directory named `.git`.
                wanted.insert(0, "new/.git/config");
            }
            assert_eq!(parked(&result), wanted, "{mode:?} {bare}");
            assert!(scene.ws().join("new/.git/HEAD").exists() && scene.ws().join("new/tools/other.sh").exists());
        }
    }
}

#[test]
fn a_helper_waits_before_its_directory_is_a_repository() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let host = host(&scene, "\"$(git rev-parse --show-toplevel)/tools/l.sh\"");
    let ops = [mkdirs(&["new", "new/tools"]), vec![write("new/tools/l.sh")]].concat();
    assert_eq!(parked(&commit(&scene, &host, &scene.layer(&ops))), ["new/tools/l.sh"]);
}

#[test]
fn hooks_that_only_chain_hold_no_ordinary_work_up() {
    let scene = Scene::new(LayerMode::Root, &mkdirs(&["old"]));
    // They start the hook of the repository itself, and programs of the host.
    let host = host(
        &scene,
        "h=\"$(git rev-parse --git-dir)/hooks/pre-commit\"\n[ -x \"$h\" ] && exec \"$h\" \"$@\"\n\
         command -v git-lfs >/dev/null 2>&1 || { echo >&2 \"see 'core.hookspath'; usually '.git/hooks'\"; exit 2; }\n\
         git lfs post-checkout \"$@\"\nnpx --no-install lint-staged\ncargo fmt --check",
    );
    wait_for_tick(scene.dir.path());
    let mut ops = repository(false);
    ops.extend(mkdirs(&[
        "new/hooks",
        "new/node_modules",
        "new/node_modules/p",
        "old/.venv",
        "old/.venv/bin",
        "old/bin",
    ]));
    let files = ["new/hooks/use.ts", "new/node_modules/p/index.js", "new/package.json", "new/Cargo.toml", "old/bin/x"];
    ops.extend(files.iter().chain(&["old/.venv/bin/activate", "old/.venv/pyvenv.cfg"]).map(|path| write(path)));
    assert_eq!(parked(&commit(&scene, &host, &scene.layer(&ops))), [""; 0]);
}
