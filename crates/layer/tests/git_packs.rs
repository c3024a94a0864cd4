//! Objects that a run adds to a repository have the content that their ids say: with the real git.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Scene, wait_for_tick};
use nexus_layer::{Committed, Layer, LayerMode, Rules};
use repository::{accept, cloned_scene, commit_by, git, named, parked, run_git, run_with};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKS: &str = ".git/objects/pack";

/// Runs git with text on its standard input, and returns the first line of what it says.
fn git_with(dir: &Path, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new("git")
        .args(arguments)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", dir)
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn id_of(dir: &Path, what: &str) -> String {
    git(dir, &["rev-parse", what]).trim().to_owned()
}

fn bytes(id: &str) -> Vec<u8> {
    (0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap()).collect()
}

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Returns the place at which an index has the offset of an id.
fn offset_at(index: &[u8], id: &str) -> usize {
    let id = bytes(id);
    let count = number(index, 8 + 255 * 4);
    let place = (0..count).find(|at| index[8 + 1024 + at * id.len()..].starts_with(&id)).unwrap();
    8 + 1024 + count * (id.len() + 4) + place * 4
}

fn overwrite(file: &Path, bytes: &[u8]) {
    fs::remove_file(file).unwrap();
    fs::write(file, bytes).unwrap();
}

/// Makes a pack of two objects whose index leads from the first one to the content of the second one.
fn forge_pack(dir: &Path, [id, content]: [&str; 2]) -> PathBuf {
    let name = git_with(dir, &["pack-objects", "-q", &format!("{PACKS}/pack")], &format!("{id}\n{content}\n"));
    let index = dir.join(format!("{PACKS}/pack-{name}.idx"));
    let mut bytes = fs::read(&index).unwrap();
    let (to, from) = (offset_at(&bytes, id), offset_at(&bytes, content));
    bytes.copy_within(from..from + 4, to);
    overwrite(&index, &bytes);
    // git asks the newest pack first.
    for file in [&index, &index.with_extension("pack")] {
        assert!(Command::new("touch").args(["-d", "2037-01-01"]).arg(file).status().unwrap().success());
    }
    index
}

fn evil(dir: &Path) -> String {
    git_with(dir, &["hash-object", "-w", "--stdin"], "EVIL")
}

fn assert_quiet(result: &Committed) {
    assert_eq!((parked(result), result.conflicts.len()), (vec![], 0), "{result:?}");
}

/// The index of a pack among what waits.
fn index_that_waits(result: &Committed) -> Option<String> {
    parked(result).into_iter().find(|path| path.strip_suffix(".idx").is_some())
}

fn assert_whole(ws: &Path) {
    let told = git(ws, &["fsck", "--full"]);
    let is_bad = ["error", "fatal", "missing", "broken", "mismatch"].iter().any(|word| told.contains(word));
    assert!(!is_bad, "{told}");
}

/// A workspace with one commit in this object format.
fn scene_in(format: &str) -> Scene {
    let scene = Scene::new(LayerMode::Root, &[]);
    let ws = scene.ws();
    git(&ws, &["init", "-q", "-b", "main", &format!("--object-format={format}")]);
    fs::create_dir(ws.join("src")).unwrap();
    fs::write(ws.join("f"), "1").unwrap();
    fs::write(ws.join("src/f"), "2").unwrap();
    git(&ws, &["add", "."]);
    git(&ws, &["commit", "-q", "-m", "1"]);
    scene
}

fn reason(result: &Committed, end: &str) -> String {
    let found = result.parked.iter().find(|change| change.path.0.ends_with(end.as_bytes())).expect("it waits");
    found.protected.clone().unwrap_or_default()
}

#[test]
fn a_forged_pack_index_changes_no_commit_of_the_user() {
    for (format, packed) in [("sha1", false), ("sha1", true), ("sha256", false)] {
        let scene = scene_in(format);
        if packed {
            git(&scene.ws(), &["gc", "-q"]);
        }
        let layer = run_with(&scene, |upper| {
            let evil = evil(upper);
            let id = id_of(upper, "HEAD:f");
            forge_pack(upper, [&id, &evil]);
            assert_eq!(git(upper, &["cat-file", "blob", &id]), "EVIL", "git believes the index: {format} {packed}");
            fs::write(upper.join("z"), "z").unwrap();
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        let waits = parked(&result);
        assert_eq!(waits.len(), 2, "{format} {packed}: {waits:?}");
        assert!(waits.iter().all(|path| path.starts_with(PACKS)), "{waits:?}");
        assert!(reason(&result, ".idx").contains("git fsck"), "{result:?}");
        assert_eq!(git(&scene.ws(), &["show", "HEAD:f"]), "1", "{format} {packed}");
        assert_whole(&scene.ws());
        assert!(scene.ws().join("z").exists());
    }
}

/// Makes a pack of one object whose index has the id of another one, which the repository has: all of its ids are known.
fn forge_known(dir: &Path, [id, content]: [&str; 2]) -> PathBuf {
    let name = git_with(dir, &["pack-objects", "-q", &format!("{PACKS}/pack")], &format!("{content}\n"));
    let index = dir.join(format!("{PACKS}/pack-{name}.idx"));
    fs::copy(&index, dir.join("honest")).unwrap();
    let mut bytes = fs::read(&index).unwrap();
    let id = self::bytes(id);
    for first in 0..256 {
        let below = u32::from(first >= usize::from(id[0]));
        bytes[8 + first * 4..][..4].copy_from_slice(&below.to_be_bytes());
    }
    bytes[8 + 1024..][..id.len()].copy_from_slice(&id);
    overwrite(&index, &bytes);
    index
}

#[test]
fn no_second_name_or_spelling_brings_a_forged_pack() {
    for (case, names) in [("a second name", ["x.pack", "x.idx"]), ("another spelling", ["", ".IDX"])] {
        let scene = scene_in("sha1");
        let layer = run_with(&scene, |upper| {
            let evil = evil(upper);
            let id = id_of(upper, "HEAD:f");
            let index = forge_known(upper, [&id, &evil]);
            assert_eq!(git(upper, &["cat-file", "blob", &id]), "EVIL", "git believes the index");
            let pack = index.with_extension("pack");
            if names[0].is_empty() {
                fs::rename(upper.join("honest"), index.with_extension("IDX")).unwrap();
            } else {
                fs::remove_file(upper.join("honest")).unwrap();
                fs::hard_link(&pack, upper.join(names[0])).unwrap();
                fs::hard_link(&index, upper.join(names[1])).unwrap();
            }
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(index_that_waits(&result).is_some(), "{case}: {result:?}");
        assert_eq!(git(&scene.ws(), &["show", "HEAD:f"]), "1", "{case}");
        assert_whole(&scene.ws());
    }
}

/// An object that waits for its bits is as far away as one that waits for its content.
#[test]
fn a_branch_waits_with_an_object_that_waits_for_its_mode() {
    let scene = scene_in("sha1");
    let layer = run_with(&scene, |upper| {
        fs::write(upper.join("f"), "of the run").unwrap();
        git(upper, &["commit", "-q", "-a", "-m", "of the run"]);
        let id = id_of(upper, "HEAD:f");
        let object = upper.join(format!(".git/objects/{}/{}", &id[..2], &id[2..]));
        fs::set_permissions(object, std::os::unix::fs::PermissionsExt::from_mode(0o4444)).unwrap();
    });
    let result = commit_by(&scene, &layer, &Rules::default());
    assert!(parked(&result).contains(&".git/refs/heads/main".to_owned()), "{result:?}");
    assert_whole(&scene.ws());
}

/// The tree of a directory, in a delta or whole, and with a list of all packs that leads to it.
#[test]
fn a_forged_tree_hides_no_change_from_git_status() {
    for with_list in [false, true] {
        let scene = cloned_scene();
        let layer = run_with(&scene, |upper| {
            let old = id_of(upper, "HEAD:src");
            fs::write(upper.join("src/f"), "EVIL").unwrap();
            git(upper, &["add", "src/f"]);
            let top = git(upper, &["write-tree"]).trim().to_owned();
            forge_pack(upper, [&old, &id_of(upper, &format!("{top}:src"))]);
            if with_list {
                git(upper, &["multi-pack-index", "write"]);
            }
            assert_eq!(git(upper, &["diff", "HEAD"]), "", "git sees no difference");
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(index_that_waits(&result).is_some(), "{result:?}");
        assert!(git(&scene.ws(), &["diff", "HEAD"]).contains("EVIL"));
        assert!(!scene.ws().join(PACKS).join("multi-pack-index").exists());
    }
}

/// An object that the next fetch brings: git keeps what it has.
#[test]
fn an_object_of_the_future_is_not_forged_in_advance() {
    for loose in [false, true] {
        let scene = cloned_scene();
        let here = scene.dir.path();
        git(here, &["clone", "-q", scene.path("origin.git").to_str().unwrap(), "other"]);
        let other = scene.path("other");
        fs::write(other.join("new"), "of the future").unwrap();
        git(&other, &["add", "."]);
        git(&other, &["commit", "-q", "-m", "2"]);
        git(&other, &["push", "-q", "origin", "HEAD:main"]);
        let id = id_of(&other, "HEAD:new");
        let layer = run_with(&scene, |upper| {
            let evil = evil(upper);
            let place = |id: &str| upper.join(format!(".git/objects/{}/{}", &id[..2], &id[2..]));
            if loose {
                fs::create_dir_all(place(&id).parent().unwrap()).unwrap();
                fs::copy(place(&evil), place(&id)).unwrap();
            } else {
                // Another object gives the index a place for the id.
                let own = git_with(upper, &["hash-object", "-w", "--stdin"], "any");
                let index = forge_pack(upper, [&own, &evil]);
                fs::write(place(&own), "").unwrap_or_default();
                fs::remove_file(place(&own)).unwrap();
                rename_id(&index, &own, &id);
            }
            assert_eq!(git(upper, &["cat-file", "blob", &id]), "EVIL", "git believes it");
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        let waits = parked(&result);
        assert_eq!(waits.len(), if loose { 1 } else { 2 }, "{waits:?}");
        git(&scene.ws(), &["fetch", "-q"]);
        assert_eq!(git(&scene.ws(), &["show", "origin/main:new"]), "of the future", "{loose}");
        assert_whole(&scene.ws());
    }
}

/// Gives an object of an index another id.
fn rename_id(index: &Path, from: &str, to: &str) {
    let mut all = fs::read(index).unwrap();
    let count = number(&all, 8 + 255 * 4);
    let width = bytes(from).len();
    let id = |at: usize| 8 + 1024 + at * width;
    let mut objects: Vec<(Vec<u8>, Vec<u8>)> = (0..count)
        .map(|at| {
            let offset = 8 + 1024 + count * (width + 4) + at * 4;
            let own = all[id(at)..id(at) + width].to_vec();
            (if own == bytes(from) { bytes(to) } else { own }, all[offset..offset + 4].to_vec())
        })
        .collect();
    objects.sort();
    for (at, (own, offset)) in objects.iter().enumerate() {
        all[id(at)..id(at) + width].copy_from_slice(own);
        let place = 8 + 1024 + count * (width + 4) + at * 4;
        all[place..place + 4].copy_from_slice(offset);
    }
    for first in 0..256 {
        let below = objects.iter().filter(|(id, _)| usize::from(id[0]) <= first).count() as u32;
        all[8 + first * 4..12 + first * 4].copy_from_slice(&below.to_be_bytes());
    }
    overwrite(index, &all);
}

#[test]
fn a_loose_object_of_another_content_does_not_come() {
    for packed in [false, true] {
        let scene = scene_in("sha1");
        let id = id_of(&scene.ws(), "HEAD:f");
        let place = format!(".git/objects/{}/{}", &id[..2], &id[2..]);
        if packed {
            git(&scene.ws(), &["gc", "-q"]);
            assert!(!scene.ws().join(&place).exists());
        }
        let layer = run_with(&scene, |upper| {
            let evil = evil(upper);
            let from = upper.join(format!(".git/objects/{}/{}", &evil[..2], &evil[2..]));
            fs::create_dir_all(upper.join(&place).parent().unwrap()).unwrap();
            overwrite_if_there(&upper.join(&place));
            fs::copy(from, upper.join(&place)).unwrap();
        });
        assert_quiet(&commit_by(&scene, &layer, &Rules::default()));
        assert_eq!(scene.ws().join(&place).exists(), !packed, "the workspace has the object in a pack");
        assert_whole(&scene.ws());
    }
}

fn overwrite_if_there(file: &Path) {
    if file.exists() {
        fs::remove_file(file).unwrap();
    }
}

/// A name of an object in a pack that waits would be broken without the pack.
#[test]
fn references_wait_with_the_pack_that_they_may_need() {
    let scene = cloned_scene();
    let before = id_of(&scene.ws(), "HEAD");
    let layer = run_with(&scene, |upper| {
        fs::write(upper.join("f"), "of the run").unwrap();
        git(upper, &["commit", "-q", "-a", "-m", "of the run"]);
        git(upper, &["gc", "-q", "--prune=now"]);
        let index = index_of(&upper.join(PACKS));
        let mut bytes = fs::read(&index).unwrap();
        let ids = ["HEAD:f", "HEAD~:f"].map(|what| offset_at(&bytes, &id_of(upper, what)));
        bytes.copy_within(ids[0]..ids[0] + 4, ids[1]);
        overwrite(&index, &bytes);
    });
    let result = commit_by(&scene, &layer, &Rules::default());
    assert!(!parked(&result).is_empty());
    assert_eq!(id_of(&scene.ws(), "HEAD"), before);
    assert_whole(&scene.ws());
    drop(layer);
    // An accept of everything brings both, as the person wants it.
    accept(&scene, &Rules { accept_protected: true, ..Rules::default() });
    assert_ne!(id_of(&scene.ws(), "HEAD"), before);
}

fn index_of(packs: &Path) -> PathBuf {
    let all = fs::read_dir(packs).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|end| end == "idx"))
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap())
        .unwrap()
}

/// The files of the packs, by the ends of their names.
fn ends(packs: &Path) -> Vec<String> {
    let all = fs::read_dir(packs).unwrap().map(|entry| entry.unwrap().path());
    let mut ends: Vec<_> =
        all.map(|path| path.extension().unwrap_or_default().to_string_lossy().into_owned()).collect();
    ends.sort();
    ends
}

#[test]
fn ordinary_work_of_git_brings_its_packs() {
    for format in ["sha1", "sha256"] {
        let scene = scene_in(format);
        let lines: String = (0..400).map(|line| line.to_string()).collect::<Vec<_>>().join("\n");
        for round in ["gc", "repack", "deltas"] {
            let layer = run_with(&scene, |upper| {
                for turn in 0..4 {
                    fs::write(upper.join("src/f"), format!("{round} {turn}\n{lines}")).unwrap();
                    git(upper, &["commit", "-q", "-a", "-m", round]);
                }
                git(upper, &["tag", "-a", "-m", "t", round]);
                match round {
                    "gc" => git(upper, &["gc", "-q", "--prune=now"]),
                    "repack" => git(upper, &["repack", "-q", "-a", "-d", "-f", "-b"]),
                    _ => git(upper, &["repack", "-q", "-d"]),
                };
            });
            assert_quiet(&commit_by(&scene, &layer, &Rules::default()));
            assert!(git(&scene.ws(), &["log", "-1", "--format=%s"]).contains(round));
            assert_eq!(git(&scene.ws(), &["status", "--porcelain"]), "");
            assert_whole(&scene.ws());
            wait_for_tick(scene.dir.path());
        }
        assert_eq!(ends(&scene.ws().join(PACKS)), ["idx", "idx", "idx", "pack", "pack", "pack"], "{format}");
    }
}

#[test]
fn what_git_fetches_comes_as_a_pack() {
    for work in [&["fetch", "-q"][..], &["pull", "-q"]] {
        let scene = cloned_scene();
        let here = scene.dir.path();
        git(here, &["clone", "-q", scene.path("origin.git").to_str().unwrap(), "other"]);
        let other = scene.path("other");
        fs::write(other.join("f"), "2").unwrap();
        git(&other, &["commit", "-q", "-a", "-m", "2"]);
        git(&other, &["push", "-q", "origin", "HEAD:main"]);
        let all = [&["-c", "fetch.unpackLimit=1"][..], work].concat();
        let layer = run_git(&scene, &[&all]);
        assert!(!ends(&layer.upper().join(PACKS)).is_empty(), "git made a pack");
        assert_quiet(&commit_by(&scene, &layer, &Rules::default()));
        assert_eq!(git(&scene.ws(), &["show", "origin/main:f"]), "2");
        assert_whole(&scene.ws());
    }
}

#[test]
fn a_pack_that_adds_no_object_is_left_out() {
    let scene = cloned_scene();
    let before = ends(&scene.ws().join(PACKS));
    let layer =
        run_git(&scene, &[&["gc", "-q"], &["repack", "-q", "-a", "-d", "-f", "-b"], &["multi-pack-index", "write"]]);
    assert!(ends(&layer.upper().join(PACKS)).len() > before.len());
    assert_quiet(&commit_by(&scene, &layer, &Rules::default()));
    assert_eq!(ends(&scene.ws().join(PACKS)), before);
    assert_whole(&scene.ws());
}

#[test]
fn a_clone_within_the_workspace_keeps_its_packs() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let origin = cloned_scene();
    git(&origin.ws(), &["gc", "-q"]);
    let layer = scene.layer(&[]);
    git(&layer.upper(), &["clone", "-q", "--no-local", origin.ws().to_str().unwrap(), "c"]);
    let packs = ends(&layer.upper().join("c").join(PACKS));
    assert!(packs.contains(&"pack".to_owned()), "{packs:?}");
    assert_quiet(&commit_by(&scene, &layer, &Rules::default()));
    assert_eq!(ends(&scene.ws().join("c").join(PACKS)), packs);
    assert_whole(&scene.ws().join("c"));
}

/// A later run could bring the other half.
#[test]
fn a_pack_and_its_index_come_together() {
    let scene = scene_in("sha1");
    let layer = run_with(&scene, |upper| {
        fs::write(upper.join("f"), "of the run").unwrap();
        git(upper, &["commit", "-q", "-a", "-m", "of the run"]);
        git(upper, &["repack", "-q", "-d"]);
        let pack = index_of(&upper.join(PACKS)).with_extension("pack");
        fs::remove_file(pack).unwrap();
    });
    let result = commit_by(&scene, &layer, &Rules::default());
    drop(layer);
    let index = index_that_waits(&result).expect("it waits");
    accept(&scene, &named(&[&index]));
    assert!(scene.ws().join(&index).exists());
    let pack = index.replace(".idx", ".pack");
    discard(&scene);
    let later = run_with(&scene, |upper| fs::write(upper.join(&pack), "PACK").unwrap());
    assert_eq!(parked(&commit_by(&scene, &later, &Rules::default())), [pack]);
}

fn discard(scene: &Scene) {
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    layer.discard().unwrap();
}

/// Damage of each kind: nothing of it comes, and nothing panics.
#[test]
fn damaged_packs_wait() {
    for (round, change) in (0..).zip([
        |pack: &mut Vec<u8>, _: &mut Vec<u8>| pack.truncate(pack.len() - 30),
        |pack: &mut Vec<u8>, _: &mut Vec<u8>| pack[11] += 1,
        |pack: &mut Vec<u8>, _: &mut Vec<u8>| pack[4] = 9,
        |pack: &mut Vec<u8>, _: &mut Vec<u8>| {
            let middle = pack.len() / 2;
            pack[middle] ^= 0x55;
        },
        // git compares the last bytes of a pack with its index.
        |pack: &mut Vec<u8>, _: &mut Vec<u8>| {
            let last = pack.len() - 1;
            pack[last] ^= 1;
        },
        |_: &mut Vec<u8>, index: &mut Vec<u8>| index.truncate(1100),
        |_: &mut Vec<u8>, index: &mut Vec<u8>| index[7] = 3,
        |_: &mut Vec<u8>, index: &mut Vec<u8>| index[8 + 1023] += 1,
        |_: &mut Vec<u8>, index: &mut Vec<u8>| index[8 + 1024] ^= 0xff,
    ] as [fn(&mut Vec<u8>, &mut Vec<u8>); 9])
    {
        let scene = scene_in("sha1");
        let layer = run_with(&scene, |upper| {
            fs::write(upper.join("f"), "of the run").unwrap();
            git(upper, &["commit", "-q", "-a", "-m", "of the run"]);
            git(upper, &["repack", "-q", "-d"]);
            let index = index_of(&upper.join(PACKS));
            let pack = index.with_extension("pack");
            let (mut bytes, mut ids) = (fs::read(&pack).unwrap(), fs::read(&index).unwrap());
            change(&mut bytes, &mut ids);
            overwrite(&pack, &bytes);
            overwrite(&index, &ids);
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(index_that_waits(&result).is_some(), "{round}: {result:?}");
        assert_whole(&scene.ws());
    }
}
