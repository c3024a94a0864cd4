//! Directories that a run closes to their owner, and what a commit does when it cannot see into one.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, wait_for_tick};
use nexus_layer::entries::protected::Class;
use nexus_layer::{Host, LayerMode, Reach, Rules, Workspace};
use std::os::unix::fs::PermissionsExt as _;

/// Prints nothing; fails where the rules for the workspace are others than the parent wants.
#[test]
#[ignore = "the child of the other tests"]
fn child_looks_up() {
    let at = std::fs::canonicalize(std::env::var("NEXUS_TEST_ORDER").unwrap()).unwrap();
    let workspace = Workspace::open(&at).unwrap();
    let touched: Vec<Vec<u8>> = std::env::var("TOUCHED").into_iter().map(String::into_bytes).collect();
    let rules = Rules::default().for_workspace(&workspace, &at, &Host::default(), Reach::COMMIT, &touched).unwrap();
    let why = match rules.class(b"some/file") {
        Class::Listed(why) => why,
        _ => String::new(),
    };
    assert_eq!(why, std::env::var("WANTED").unwrap());
}

/// Closes directories of a workspace of an ordinary user, and looks up what its names lead to.
fn look_up(closed: &str, mode: u32, touched: Option<&str>, is_parked: bool) {
    let mut base = base();
    base.extend([
        Op::Write(b(".git/config"), "[core]\nhooksPath = tools/hk\n".into()),
        Op::Write(b("outer/sub/.git/config"), "[core]\nhooksPath = ../../plain/hk\n".into()),
        Op::Mkdir(b("foreign")),
        Op::Chmod(b(closed), mode),
    ]);
    let scene = Scene::new(LayerMode::User, &base);
    if closed == "foreign" {
        std::os::unix::fs::chown(scene.ws().join(closed), Some(0), Some(0)).unwrap();
    }
    let wanted = format!("{closed} is closed to its owner and may name this path");
    let wanted = if is_parked { wanted.as_str() } else { "" };
    let mut env = vec![("WANTED", wanted)];
    env.extend(touched.map(|path| ("TOUCHED", path)));
    let done = scene.child("child_looks_up", scene.ws().to_str().unwrap(), &env, false);
    // What is closed to its owner cannot be removed by a test that does not run as root.
    std::fs::set_permissions(scene.ws().join(closed), std::fs::Permissions::from_mode(0o755)).unwrap();
    done.map_err(|error| format!("{closed} {mode:o}: {error}")).unwrap();
}

#[test]
fn everything_waits_when_a_directory_of_git_is_closed() {
    for closed in
        [".git", ".git/hooks", "srv.git", "srv.git/hooks", "outer/sub/.git", "tools", "tools/hk", ".git/config"]
    {
        look_up(closed, 0, None, true);
    }
    for (closed, mode) in [(".git", 0o600), (".git/hooks", 0o300), ("outer/sub", 0o400), ("tools", 0o600)] {
        look_up(closed, mode, None, true);
    }
    look_up("plain", 0, Some("plain"), true);
}

#[test]
fn other_closed_directories_hold_nothing_up() {
    for (closed, mode) in [("plain/in", 0), ("conf", 0), ("plain/in", 0o300), ("plain/in", 0o600), ("foreign", 0)] {
        look_up(closed, mode, None, false);
    }
    look_up("foreign", 0, Some("foreign"), false);
}

fn parked(base: &[Op], run: &[Op], rules: &Rules) -> Vec<String> {
    let scene = Scene::new(LayerMode::Root, base);
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(run);
    let result = layer.commit(&scene.workspace(), rules).unwrap();
    assert_eq!(result.conflicts, []);
    result.parked.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect()
}

/// Repositories, one of them bare and one below a plain directory, and directories without any.
fn base() -> Vec<Op> {
    let directories = [
        ".git",
        ".git/hooks",
        ".git/modules",
        ".git/modules/m",
        ".git/worktrees",
        ".git/worktrees/w",
        "srv.git",
        "srv.git/objects",
        "srv.git/refs",
        "srv.git/hooks",
        "outer",
        "outer/sub",
        "outer/sub/.git",
        "conf",
        "conf/.vscode",
        "tools",
        "tools/hk",
        "plain",
        "plain/in",
    ];
    let mut base: Vec<Op> = directories.iter().map(|path| Op::Mkdir(b(path))).collect();
    base.extend(["srv.git/HEAD", ".git/HEAD", "tools/hk/x", "plain/in/f"].map(|path| Op::Write(b(path), "x".into())));
    base
}

#[test]
fn closing_a_directory_of_git_to_its_owner_waits() {
    for path in [
        ".git",
        ".git/hooks",
        ".git/modules",
        ".git/modules/m",
        ".git/worktrees",
        ".git/worktrees/w",
        "srv.git",
        "srv.git/hooks",
        "outer",
        "outer/sub",
        "outer/sub/.git",
        "conf",
    ] {
        for mode in [0, 0o300, 0o600] {
            assert_eq!(parked(&base(), &[Op::Chmod(b(path), mode)], &Rules::default()), [path], "{path} {mode:o}");
        }
    }
    let protecting = Rules::protecting(&["tools/hk".to_owned()]).unwrap();
    assert_eq!(parked(&base(), &[Op::Chmod(b("tools"), 0)], &protecting), ["tools"]);
}

#[test]
fn other_modes_of_directories_are_committed() {
    for (path, mode) in [(".git", 0o500), (".git/hooks", 0o700), ("srv.git", 0o555), ("plain", 0), ("plain/in", 0o600)]
    {
        let none: [&str; 0] = [];
        assert_eq!(parked(&base(), &[Op::Chmod(b(path), mode)], &Rules::default()), none, "{path} {mode:o}");
    }
    // It is opened again.
    let mut base = base();
    base.push(Op::Chmod(b(".git"), 0));
    let none: [&str; 0] = [];
    assert_eq!(parked(&base, &[Op::Chmod(b(".git"), 0o755)], &Rules::default()), none);
}

#[test]
fn a_closed_directory_of_git_is_committed_when_it_is_named() {
    let scene = Scene::new(LayerMode::Root, &base());
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(&[Op::Chmod(b(".git"), 0)]);
    let named = vec![".git".into()];
    let rules = Rules { only: Some(named.clone()), named, ..Rules::default() };
    assert_eq!(layer.commit(&scene.workspace(), &rules).unwrap().parked, []);
    assert_eq!(scene.ws().join(".git").metadata().unwrap().permissions().mode() & 0o777, 0);
}
