//! Objects, packs and shared indexes, which git never changes, stay as they are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Op, Scene, b, rename, write};
use nexus_layer::{LayerMode, Rules};
use repository::{cloned_scene, commit_by, git, parked, run_git, run_with};
use std::fs;
use std::path::{Path, PathBuf};

/// The files below a directory, without `info`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("objects/info") {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found
}

fn assert_whole(ws: &Path) {
    let told = git(ws, &["fsck", "--full"]);
    let is_bad = ["error", "fatal", "missing", "broken"].iter().any(|word| told.contains(word));
    assert!(!is_bad, "{told}");
}

/// As with `find . -type f -exec sed -i`: each file is another one, with another content.
#[test]
fn objects_that_a_run_overwrites_stay_as_they_are() {
    for (pack, bare) in [(false, false), (true, false), (true, true)] {
        let scene = cloned_scene();
        let repository = if bare { scene.ws().join("b.git") } else { scene.ws() };
        if bare {
            git(&scene.ws(), &["clone", "-q", "--bare", scene.path("origin.git").to_str().unwrap(), "b.git"]);
        }
        if pack {
            git(&repository, &["-c", "pack.writeReverseIndex=true", "repack", "-q", "-a", "-d", "-b"]);
            git(&repository, &["multi-pack-index", "write"]);
        }
        let objects = if bare { repository.join("objects") } else { repository.join(".git/objects") };
        let old = files(&objects);
        assert!(old.len() > if pack { 3 } else { 2 }, "{old:?}");
        let layer = run_with(&scene, |upper| {
            if !bare {
                fs::write(upper.join("f"), "of the run").unwrap();
                git(upper, &["commit", "-q", "-a", "-m", "of the run"]);
            }
            for file in &old {
                let place = upper.join(file.strip_prefix(scene.ws()).unwrap());
                fs::remove_file(&place).unwrap();
                fs::write(&place, "damaged").unwrap();
            }
            fs::write(upper.join("z"), "z").unwrap();
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{pack} {bare}: {result:?}");
        assert_whole(&repository);
        assert!(scene.ws().join("z").exists());
        // The new objects have come.
        assert!(bare || git(&repository, &["show", "--stat", "HEAD"]).contains("of the run"));
    }
}

/// The same objects in another form do not count as lost, and packs of the same name are nothing to ask about.
#[test]
fn packs_of_the_same_name_come_and_stay_without_a_word() {
    let scene = cloned_scene();
    git(&scene.ws(), &["repack", "-q", "-a", "-d"]);
    let work: [&[&str]; 3] = [
        &["-c", "pack.compression=0", "repack", "-q", "-a", "-d", "-f", "-b"],
        &["gc", "-q", "--prune=now"],
        &["multi-pack-index", "write"],
    ];
    let result = commit_by(&scene, &run_git(&scene, &work), &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    assert!(!scene.path("layers/run").exists(), "nothing of it waits");
    assert_whole(&scene.ws());
}

/// With the bitmap of a history that was cut off, git takes commits of the user for ones that no name leads to.
#[test]
fn a_bitmap_that_a_run_wrote_does_not_come() {
    let scene = cloned_scene();
    for number in 2..=5 {
        git(&scene.ws(), &["commit", "-q", "--allow-empty", "-m", &number.to_string()]);
    }
    let layer = run_with(&scene, |upper| {
        // A pack without a new object is left out as a whole.
        git(upper, &["commit", "-q", "--allow-empty", "-m", "of the run"]);
        let head = git(upper, &["rev-parse", "HEAD"]);
        fs::write(upper.join(".git/shallow"), head).unwrap();
        git(upper, &["repack", "-q", "-a", "-d", "-b"]);
        fs::remove_file(upper.join(".git/shallow")).unwrap();
        let made = files(&upper.join(".git/objects/pack"));
        assert!(made.iter().any(|file| file.extension().is_some_and(|kind| kind == "bitmap")), "{made:?}");
    });
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    let now = files(&scene.ws().join(".git/objects"));
    assert!(!now.iter().any(|file| file.extension().is_some_and(|kind| kind == "bitmap")), "{now:?}");
    assert_eq!(git(&scene.ws(), &["rev-list", "--all", "--count", "--use-bitmap-index"]), "6\n");
    assert_whole(&scene.ws());
}

fn dir(path: &str) -> Op {
    Op::Mkdir(b(path))
}

const LOOSE: &str = "0123456789abcdef0123456789abcdef012345";

/// Files of a repository with a loose object and a pack.
fn repository_at(at: &str) -> Vec<Op> {
    let place = |name: &str| format!("{at}/{name}");
    let directories = ["", "objects", "objects/ab", "objects/pack", "objects/info", "refs", "refs/heads"];
    let files =
        [("HEAD", "ref: refs/heads/main\n"), ("objects/pack/pack-1.pack", "old"), ("objects/info/packs", "old")];
    let files = files.iter().map(|(name, text)| write(&place(name), text));
    let more = [dir(&place("refs/heads/objects")), write(&place("refs/heads/objects/pack"), &"1".repeat(40))];
    let object = write(&place(&format!("objects/ab/{LOOSE}")), "old");
    directories.iter().map(|name| dir(&place(name))).chain(files).chain(more).chain([object]).collect()
}

/// Returns the waiting changes after these operations, and the text of a file then.
fn after(run: &[Op], file: &str) -> (Vec<String>, Option<String>) {
    let base = [repository_at(".git"), vec![dir("plain")], repository_at("plain/b"), vec![dir("d"), write("d/x", "x")]];
    let scene = Scene::one_of_many(LayerMode::Root, &base.concat());
    let result = scene.layer(run).commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(result.conflicts, [], "{run:?}");
    (parked(&result), fs::read_to_string(scene.ws().join(file)).ok())
}

#[test]
fn nothing_takes_the_place_of_an_object_of_git() {
    for at in [".git", "plain/b"] {
        let (object, pack) = (format!("{at}/objects/ab/{LOOSE}"), format!("{at}/objects/pack/pack-1.pack"));
        let objects = format!("{at}/objects/ab");
        for file in [&object, &pack] {
            // Without a word: the entry is as it was.
            for run in [
                vec![write(file, "new")],
                vec![Op::Remove(b(file))],
                vec![Op::Remove(b(file)), Op::Symlink(b("x"), b(file))],
                vec![Op::Chmod(b(file), 0o600), write(file, "")],
                vec![write("n", "n"), rename("n", file)],
            ] {
                assert_eq!(after(&run, file), (vec![], Some("old".to_owned())), "{run:?}");
            }
            let run = [Op::Remove(b(file)), dir(file), write(&format!("{file}/x"), "x")];
            let (waits, text) = after(&run, file);
            assert!(waits.contains(file), "{waits:?}");
            assert_eq!(text.as_deref(), Some("old"));
        }
        // A directory of them does not go, and new objects may be behind what takes its place.
        assert_eq!(after(&[Op::RemoveTree(b(&objects))], &object), (vec![], Some("old".to_owned())));
        for run in [
            vec![rename(&objects, "aside")],
            vec![rename(&objects, "aside"), Op::Symlink(b("../../aside"), b(&objects))],
            vec![Op::RemoveTree(b(&objects)), Op::Symlink(b("../../d"), b(&objects))],
            vec![Op::RemoveTree(b(&objects)), write(&objects, "x")],
        ] {
            let (waits, text) = after(&run, &object);
            assert!(!waits.is_empty() && text.as_deref() == Some("old"), "{run:?} {waits:?}");
        }
        // The twins: new objects, a list that git makes again, and a branch of such a name.
        let branch = format!("{at}/refs/heads/objects/pack");
        let id = format!("ab{LOOSE}");
        for (file, text) in [
            (format!("{at}/objects/pack/pack-2.pack"), "new"),
            (format!("{at}/objects/info/packs"), "new"),
            (branch.clone(), &id),
        ] {
            assert_eq!(after(&[write(&file, text)], &file), (vec![], Some(text.to_owned())));
        }
        assert_eq!(after(&[Op::Remove(b(&branch))], &branch), (vec![], None));
        // A file whose content is not an object does not become one.
        let broken = format!("{at}/objects/ab/{}", LOOSE.replace('0', "f"));
        assert_eq!(after(&[write(&broken, "new")], &broken), (vec![broken.clone()], None));
    }
}

/// Without it, git cannot read the index that names it, which may wait or stay.
#[test]
fn a_shared_index_of_git_stays_as_it_is() {
    let split = || {
        let scene = cloned_scene();
        fs::write(scene.ws().join("staged"), "of the user").unwrap();
        git(&scene.ws(), &["add", "staged"]);
        git(&scene.ws(), &["update-index", "--split-index"]);
        let shared = fs::read_dir(scene.ws().join(".git")).unwrap();
        let mut shared = shared.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let shared = shared.find(|name| name.starts_with("sharedindex.")).unwrap();
        (scene, format!(".git/{shared}"))
    };
    let hide: &[&str] = &["update-index", "--skip-worktree", "f"];
    for (work, waits) in [(&[][..], false), (&[hide][..], true)] {
        for change in ["remove", "same bytes", "other bytes", "link"] {
            let (scene, shared) = split();
            let before = fs::read(scene.ws().join(&shared)).unwrap();
            let layer = run_with(&scene, |upper| {
                for arguments in work {
                    drop(git(upper, arguments));
                }
                let place = upper.join(&shared);
                fs::remove_file(&place).unwrap();
                match change {
                    "same bytes" => fs::write(place, &before).unwrap(),
                    "other bytes" => fs::write(place, [&before[..], b"x"].concat()).unwrap(),
                    "link" => std::os::unix::fs::symlink("index", place).unwrap(),
                    _ => {}
                }
            });
            let result = commit_by(&scene, &layer, &Rules::default());
            let wanted: &[&str] = if waits { &[".git/index"] } else { &[] };
            assert_eq!(
                (parked(&result), result.conflicts.len()),
                (wanted.iter().map(ToString::to_string).collect(), 0),
                "{change}"
            );
            assert_eq!(fs::read(scene.ws().join(&shared)).unwrap(), before, "{change}");
            assert!(git(&scene.ws(), &["diff", "--cached", "--stat"]).contains("staged"), "{change}");
            assert!(!git(&scene.ws(), &["fsck"]).contains("index"), "{change}");
        }
    }
    // git itself writes the time of the file when it writes the index.
    let (scene, _) = split();
    let layer = run_with(&scene, |upper| {
        fs::write(upper.join("f"), "of the run").unwrap();
        git(upper, &["status"]);
    });
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0));
    let told = git(&scene.ws(), &["fsck"]);
    assert!(!told.contains("index"), "{told}");
}
