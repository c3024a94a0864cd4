//! Indexes of git that say something else with object ids of another length.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, wait_for_tick};
use nexus_layer::{LayerMode, Rules};

const SHA1: &str = "[core]\nrepositoryformatversion = 0\nbare = false\n";
const SHA256: &str = "[core]\nrepositoryformatversion = 1\nbare = false\n[extensions]\nobjectformat = sha256\n";

fn write(path: &str, text: &str) -> Op {
    Op::Write(path.into(), text.into())
}

fn git_directory() -> Vec<Op> {
    vec![Op::Mkdir("d".into()), Op::Mkdir("d/.git".into())]
}

/// An index with one entry. `id` is the object id with its length, `name` the name, `bit` a flag of the entry.
fn index(id: &[u8], name: &[u8], bit: u16) -> Vec<u8> {
    let mut one = [&[0; 24][..], &0o100_755_u32.to_be_bytes(), &[0; 12], id].concat();
    one.extend((bit | u16::try_from(name.len()).unwrap()).to_be_bytes());
    one.extend(name);
    one.resize((one.len() + 8) & !7, 0);
    [b"DIRC", &2_u32.to_be_bytes()[..], &1_u32.to_be_bytes(), &one].concat()
}

/// Names a hook with ids of 32 bytes, and a plain file with ids of 20: there the rest of the id is the length of the name and its
/// beginning, and an extension lies in what is the checksum otherwise.
fn of_two_readings() -> Vec<u8> {
    let name = b".git/hooks/post-checkout";
    let length = u16::try_from(name.len() + 12).unwrap().to_be_bytes();
    // With a bit that makes no byte of it zero.
    let mut bytes = index(&[&[1; 20][..], &length, &[1; 10]].concat(), name, 0x8000);
    bytes.extend([b"TREE", &4_u32.to_be_bytes()[..], b"abcd", &[0; 20]].concat());
    bytes
}

fn ordinary(id: usize) -> Vec<u8> {
    [index(&vec![1; id], b"f", 0), vec![0; id]].concat()
}

/// The entries without which git takes no notice of a git directory.
fn rest() -> Vec<Op> {
    let directories = ["d/.git/objects", "d/.git/refs"].map(|path| Op::Mkdir(path.into()));
    [directories.to_vec(), vec![write("d/.git/HEAD", "ref: refs/heads/main\n")]].concat()
}

/// Commits `run` with an index, if there is one, over a workspace made by `base`.
fn parked(base: &[Op], run: &[Op], index: Option<&[u8]>) -> Vec<String> {
    let scene = Scene::new(LayerMode::Root, base);
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(run);
    if let Some(index) = index {
        std::fs::create_dir_all(layer.upper().join("d/.git")).unwrap();
        std::fs::write(layer.upper().join("d/.git/index"), index).unwrap();
    }
    let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(result.conflicts, []);
    result.parked.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect()
}

#[test]
fn an_index_is_read_as_its_configuration_says_for_certain() {
    let with = |config: &str| [git_directory(), vec![write("d/.git/config", config)]].concat();
    for (config, index, waits) in [
        (SHA1, of_two_readings(), true),
        (SHA1, ordinary(20), false),
        (SHA1, ordinary(32), true),
        (SHA256, of_two_readings(), true),
        (SHA256, ordinary(32), false),
        (SHA256, ordinary(20), true),
    ] {
        let wanted: &[&str] = if waits { &["d/.git/index"] } else { &[] };
        // In the workspace, and in a new repository of the run.
        assert_eq!(parked(&with(config), &[], Some(&index)), wanted, "{config}");
        assert_eq!(parked(&[], &[with(config), rest()].concat(), Some(&index)), wanted, "{config}");
    }
    // No configuration at all, and one that waits.
    for index in [of_two_readings(), ordinary(20)] {
        assert_eq!(parked(&[], &[git_directory(), rest()].concat(), Some(&index)), ["d/.git/index"]);
        assert_eq!(parked(&git_directory(), &[], Some(&index)), ["d/.git/index"]);
        let run = [write("d/.git/config", "[core")];
        assert_eq!(parked(&git_directory(), &run, Some(&index)), ["d/.git/config", "d/.git/index"]);
    }
}

/// It could be opened by a later run, or by its owner, and no command would look at it again.
#[test]
fn an_index_that_is_closed_to_its_owner_waits() {
    let scene = Scene::new(LayerMode::User, &git_directory());
    let layer = scene.layer(&[
        write("d/.git/index", "DIRC"),
        Op::Chmod("d/.git/index".into(), 0),
        write("d/notes", "text"),
        Op::Chmod("d/notes".into(), 0),
    ]);
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    common::give(&scene.path("layers"));
    let order = scene.dir.path().to_str().unwrap();
    scene.child("child_looks_at_a_closed_index", order, &[], false).unwrap();
}

#[test]
#[ignore = "the child of another test"]
fn child_looks_at_a_closed_index() {
    let scene = std::path::PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let result = common::reopen(&scene.join("layers"))
        .commit(&nexus_layer::Workspace::open(&scene.join("ws")).unwrap(), &Rules::default());
    let parked: Vec<_> = result.unwrap().parked.into_iter().map(|change| (change.path.0, change.protected)).collect();
    let why = "a git index that cannot be read".to_owned();
    assert_eq!(parked, [(b"d/.git/index".to_vec(), Some(why))]);
}

#[test]
fn another_format_waits_where_an_index_was() {
    let none: [&str; 0] = [];
    let run = [write("d/.git/config", SHA256)];
    let with = |path: &str| [git_directory(), vec![write(path, "x")]].concat();
    assert_eq!(parked(&with("d/.git/index"), &run, None), ["d/.git/config"]);
    assert_eq!(parked(&with("d/.git/HEAD"), &run, None), ["d/.git/config"], "not a new repository");
    assert_eq!(parked(&with("d/.git/index"), &[write("d/.git/config", SHA1)], None), none);
    let base = [with("d/.git/index"), vec![write("d/.git/config", SHA256)]].concat();
    assert_eq!(parked(&base, &[Op::Remove("d/.git/config".into())], None), ["d/.git/config"]);
    assert_eq!(parked(&base, &[Op::RemoveTree("d".into())], None), none);
}

#[test]
fn a_repository_without_its_configuration_is_no_new_one() {
    let base = [git_directory(), vec![write("d/.git/HEAD", "x")]].concat();
    let none: [&str; 0] = [];
    assert_eq!(parked(&base, &[write("d/.git/config", "[core]\nbare = true\n")], None), ["d/.git/config"]);
    let with_hooks = [git_directory(), vec![Op::Mkdir("d/.git/hooks".into())]].concat();
    assert_eq!(parked(&with_hooks, &[write("d/.git/config", "[core]\nbare = true\n")], None), ["d/.git/config"]);
    assert_eq!(parked(&base, &[write("d/.git/config", SHA1)], None), none);
    let run = [git_directory(), vec![write("d/.git/config", "[core]\nbare = true\n")]].concat();
    assert_eq!(parked(&git_directory(), &run[2..], None), ["d/.git/config"]);
    assert_eq!(parked(&[], &[run.clone(), rest()].concat(), None), ["d/.git/config"], "a new one has a working tree");
    let run: Vec<Op> = run
        .iter()
        .map(|op| match op {
            Op::Mkdir(path) => Op::Mkdir(String::from_utf8_lossy(path).replace(".git", "srv").into()),
            Op::Write(path, text) => {
                Op::Write(String::from_utf8_lossy(path).replace(".git", "srv").into(), text.clone())
            }
            other => other.clone(),
        })
        .collect();
    assert_eq!(parked(&[], &run, None), none, "a new one without");
}

/// A name that git would write, whatever length it takes the ids for.
#[test]
fn the_names_of_an_index_are_looked_at_in_both_lengths() {
    let with = |config: &str| [git_directory(), vec![write("d/.git/config", config)]].concat();
    let named_by_short = [index(&[1; 20], b".git/hooks/post-checkout", 0), vec![0; 20]].concat();
    for config in [SHA1, SHA256, "[core]\nbare = false\n"] {
        assert_eq!(parked(&with(config), &[], Some(&of_two_readings())), ["d/.git/index"], "{config}");
        assert_eq!(parked(&with(config), &[], Some(&named_by_short)), ["d/.git/index"], "{config}");
    }
}

/// git leaves the extensions of a configuration out that has no version.
#[test]
fn the_object_format_counts_as_git_reads_it() {
    let format = "[extensions]\nobjectformat = sha256\n";
    for config in [
        format!("[core]\nbare = false\n{format}"),
        format!("[core]\nrepositoryformatversion = 0\n{format}"),
        format!("[core]\nrepositoryformatversion = 1\nrepositoryformatversion = 0\n{format}"),
        format!("[core]\nrepositoryformatversion = 1\n{format}objectformat = sha1\n"),
    ] {
        let base = [git_directory(), vec![write("d/.git/config", &config)]].concat();
        for length in [20, 32] {
            assert_eq!(parked(&base, &[], Some(&ordinary(length))), ["d/.git/index"], "{config}");
        }
    }
    let base = [git_directory(), vec![write("d/.git/config", SHA256)]].concat();
    assert_eq!(parked(&base, &[], Some(&ordinary(32))), [""; 0]);
}

#[test]
fn a_repository_named_worktrees_has_its_own_configuration() {
    let base = [
        vec![Op::Mkdir("d".into()), Op::Mkdir("d/worktrees".into()), Op::Mkdir("d/worktrees/.git".into())],
        vec![write("d/config", SHA1), write("d/worktrees/.git/config", SHA256)],
    ]
    .concat();
    let scene = Scene::new(LayerMode::Root, &base);
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(&[]);
    let at = layer.upper().join("d/worktrees/.git");
    std::fs::create_dir_all(&at).unwrap();
    std::fs::write(at.join("index"), ordinary(20)).unwrap();
    let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(result.parked.len(), 1, "{result:?}");
}
