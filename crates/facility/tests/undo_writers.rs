//! Other processes of the host that write while an undo works: in directories that it displaced, and anywhere else.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use common::undoing::{Edits, Scene, edits, played};
use nexus_facility::checkpoints::{Checkpoints, Undone};
use nexus_model::RunId;
use nexus_snapshot::{Hold, SnapshotError, Store, build};
use proptest::prelude::*;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat_with};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Begins what a writer writes. A number and `>` follow.
const MARK: &[u8] = b"<host ";

/// A process of the host that writes, and what it wrote.
#[derive(Default)]
struct Writer {
    count: usize,
    expected: BTreeSet<usize>,
    /// Its actions, for the message of a failure.
    log: Vec<String>,
    /// Files whose last name the writer itself took.
    replaced: BTreeSet<u64>,
}

impl Writer {
    /// Writes to a file. A directory that is removed takes nothing, and then nothing can be lost.
    fn write(&mut self, dir: &OwnedFd, name: &str, flags: OFlags) -> bool {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | flags;
        let Ok(file) = openat(dir, name, flags, Mode::from_raw_mode(0o644)) else { return false };
        self.write_to(&mut File::from(file))
    }

    fn write_to(&mut self, file: &mut File) -> bool {
        let meta = file.metadata().unwrap();
        if !meta.is_file() || self.replaced.contains(&meta.ino()) {
            return false;
        }
        self.log.push(format!("{} into {}", self.count + 1, fs::read_link(proc_path(file)).unwrap().display()));
        self.count += 1;
        file.write_all(format!("<host {}>\n", self.count).as_bytes()).unwrap();
        self.expected.insert(self.count)
    }

    /// Sets an attribute of an open directory, or of an entry of it. Nothing has one of a directory that is gone already.
    fn mark(&mut self, dir: &OwnedFd, name: Option<&str>) {
        let named = fs::read_link(proc_path(dir))
            .unwrap()
            .components()
            .chain(name.map(Path::new).into_iter().flat_map(Path::components))
            .collect::<PathBuf>();
        // The directory of the undo itself, in which a process may put something, is not of the workspace.
        if named.file_name().is_some_and(|last| last.to_string_lossy().starts_with(".nexus-undo-")) {
            return;
        }
        self.count += 1;
        let attribute = format!("{ATTRIBUTE}{}", self.count);
        let flags = rustix::fs::XattrFlags::empty();
        let set = match name {
            None if rustix::fs::fstat(dir).unwrap().st_nlink == 0 => return,
            None => rustix::fs::fsetxattr(dir, &attribute, b"x", flags),
            Some(name) => rustix::fs::lsetxattr(proc_path(dir).join(name), &attribute, b"x", flags),
        };
        if set.is_ok() {
            self.expected.insert(self.count);
        }
    }

    /// Does one thing in an open directory, as a program does that works in it.
    fn act(&mut self, dir: &OwnedFd, name: &str, way: u8) {
        let at = fs::read_link(proc_path(dir)).unwrap();
        self.log.push(format!("way {way} after {}: {name} in {}", self.count, at.display()));
        match way % WAYS {
            0 => {
                self.write(dir, "note", OFlags::CREATE | OFlags::APPEND);
            }
            1 => {
                self.write(dir, name, OFlags::APPEND);
            }
            2 if self.write(dir, &format!("tmp{}", self.count), OFlags::CREATE | OFlags::EXCL) => {
                let new = format!("tmp{}", self.count - 1);
                // What was there goes by the writer's own hand.
                let gone = openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK, Mode::empty());
                if let Ok(gone) = gone.map(File::from)
                    && name != new
                    && rustix::fs::renameat(dir, &new, dir, name).is_ok()
                {
                    if gone.metadata().unwrap().nlink() == 0 {
                        self.replaced.insert(gone.metadata().unwrap().ino());
                    }
                    self.expected = &self.expected - &attributes(&proc_path(&gone));
                    self.expected = &self.expected - &marks(&contents(gone));
                }
            }
            3 => {
                rustix::fs::mkdirat(dir, "deep", Mode::RWXU).ok();
                if let Ok(deep) = openat(dir, "deep", OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty()) {
                    self.write(&deep, "note", OFlags::CREATE | OFlags::APPEND);
                }
            }
            4 if renameat_with(dir, name, dir, "moved by the host", RenameFlags::NOREPLACE).is_ok() => {
                self.write(dir, "moved by the host", OFlags::APPEND);
            }
            5 if rustix::fs::linkat(dir, name, dir, "linked by the host", AtFlags::empty()).is_ok() => {
                self.write(dir, "linked by the host", OFlags::APPEND);
            }
            6 => self.mark(dir, Some(name)),
            7 => self.mark(dir, None),
            _ => {}
        }
    }
}

/// Number of things that a writer does.
const WAYS: u8 = 8;
/// Begins the name of an attribute that a writer sets. A number follows.
const ATTRIBUTE: &str = "user.host.";

fn proc_path(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Returns the numbers of the attributes that writers set on an entry.
fn attributes(path: &Path) -> BTreeSet<usize> {
    let mut buffer = vec![0; 4096];
    let is_link = path.symlink_metadata().unwrap().is_symlink() && !path.starts_with("/proc");
    let length = if is_link { Ok(0) } else { rustix::fs::listxattr(path, buffer.as_mut_slice()) };
    let names = String::from_utf8_lossy(&buffer[..length.unwrap_or(0)]).into_owned();
    names.split('\0').filter_map(|name| name.strip_prefix(ATTRIBUTE)?.parse().ok()).collect()
}

fn contents(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    if file.metadata().unwrap().is_file() {
        file.read_to_end(&mut bytes).unwrap();
    }
    bytes
}

/// Returns the numbers of all that writers wrote among these bytes.
fn marks(bytes: &[u8]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'<') {
        if let Some(rest) = bytes[at..].strip_prefix(MARK)
            && let Some(end) = rest.iter().take(20).position(|byte| *byte == b'>')
        {
            found.extend(std::str::from_utf8(&rest[..end]).unwrap().parse::<usize>());
        }
    }
    found
}

/// Returns what writers wrote and is in a tree.
fn found_in(tree: &Path) -> BTreeSet<usize> {
    let (mut found, mut waiting) = (attributes(tree), vec![tree.to_owned()]);
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            found.extend(attributes(&entry.path()));
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_file() {
                found.extend(marks(&fs::read(entry.path()).unwrap()));
            }
        }
    }
    found
}

/// Returns what writers wrote and is in the workspace or in a kept state.
fn found(scene: &Scene, run: RunId) -> BTreeSet<usize> {
    let mut all = found_in(&scene.tree());
    let record = scene.checkpoints.run(run).unwrap();
    let mut store = Store::open(&scene.base.path().join("state/checkpoints/objects"), Hold::Use).unwrap();
    for state in std::iter::once(&record.checkpoint).chain(&record.end).chain(&record.kept) {
        let built = tempfile::tempdir_in(scene.base.path()).unwrap();
        let root = File::open(built.path()).unwrap();
        build(root.as_fd(), &mut store, &state.top().unwrap(), state.entries, &mut |_, _| {}).unwrap();
        all.extend(found_in(built.path()));
    }
    all
}

fn assert_all_is_there(scene: &Scene, run: RunId, writer: &Writer, what: &str) {
    let lost: Vec<_> = writer.expected.difference(&found(scene, run)).copied().collect();
    assert!(lost.is_empty(), "{what}: lost are {lost:?} of {}: {:#?}", writer.count, writer.log);
}

fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// A run that made a directory, and put another one in the place of a file. Returns both, open.
fn displaceable(scene: &Scene) -> (RunId, Vec<OwnedFd>) {
    scene.put("swapped", "old\n");
    let run = scene.take();
    fs::remove_file(scene.tree().join("swapped")).unwrap();
    for dir in ["made/in", "swapped"] {
        scene.put(&format!("{dir}/f"), "by the run\n");
        scene.put(&format!("{dir}/g"), "by the run\n");
    }
    scene.end(run);
    (run, ["made/in", "swapped"].map(|dir| open(&scene.tree().join(dir))).into())
}

fn undo(
    scene: &Scene,
    run: RunId,
    pause: &mut dyn FnMut() -> Result<(), SnapshotError>,
) -> Result<Undone, nexus_facility::checkpoints::CheckpointError> {
    scene.checkpoints.undo(run, scene.root.as_fd(), &scene.whole(run), pause)
}

/// Undoes, and acts at one of the pauses. Returns the number of pauses, too.
fn undo_beside(scene: &Scene, run: RunId, at: usize, act: &mut dyn FnMut()) -> (Undone, usize) {
    let mut count = 0;
    let done = undo(scene, run, &mut || {
        if count == at {
            act();
        }
        count += 1;
        Ok(())
    });
    (done.unwrap(), count)
}

#[test]
fn a_file_that_takes_the_place_of_a_fifo_during_an_undo_stays() {
    for at in 0.. {
        let scene = Scene::new();
        scene.put("d/x", "old");
        let run = scene.take();
        let fifo = scene.tree().join("d/fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
        let mine = scene.base.path().join("mine");
        fs::write(&mine, "mine").unwrap();
        let (done, count) = undo_beside(&scene, run, at, &mut || fs::rename(&mine, &fifo).unwrap());
        if count <= at {
            assert!(at > 3, "{at}: there are several pauses");
            assert!(!fifo.exists());
            break;
        }
        assert_eq!(scene.text("d/fifo"), "mine", "pause {at}: {:?}", done.applied);
    }
}

#[test]
fn what_is_written_into_a_displaced_directory_is_never_removed() {
    for way in 0..WAYS / 2 {
        for at in 0.. {
            let scene = Scene::new();
            let (run, held) = displaceable(&scene);
            let mut writer = Writer::default();
            let (done, count) = undo_beside(&scene, run, at, &mut || {
                writer.act(&held[0], "f", way);
                writer.act(&held[1], "f", way + WAYS / 2);
            });
            if count <= at {
                assert!(at > 5, "{at}: there are several pauses");
                break;
            }
            let what = format!("way {way}, pause {at}: {:?}", done.applied);
            assert_all_is_there(&scene, run, &writer, &what);
            // What is not in the kept state before the undo is named.
            let is_told = !done.applied.aside.is_empty() || !done.applied.left.is_empty();
            assert!(is_told || writer.expected.is_empty(), "{what}");
            assert_eq!(scene.text("swapped"), "old\n", "{what}");
        }
    }
}

#[test]
fn what_is_written_before_an_undo_that_was_cut_off_goes_on_with_its_steps_is_found() {
    for way in [1, 7] {
        for at in 0.. {
            let scene = Scene::new();
            let run = scene.take();
            for file in ["a/f", "b/in/f"] {
                scene.put(file, "by the run\n");
            }
            scene.end(run);
            let (b, inner) = (open(&scene.tree().join("b")), open(&scene.tree().join("b/in")));
            let first = scene.tree().join("a");
            undo(&scene, run, &mut || {
                if first.exists() { Ok(()) } else { Err(SnapshotError::Store(io::Error::other("cut off"))) }
            })
            .unwrap_err();
            assert!(scene.tree().join("b").exists());
            let mut writer = Writer::default();
            let (done, count) = undo_beside(&scene, run, at, &mut || {
                writer.act(&inner, "f", way);
                writer.act(&b, "in", way);
            });
            assert_eq!(done.went_on, Some(run));
            if count <= at {
                assert!(at > 5, "{at}: there are several pauses");
                break;
            }
            assert_all_is_there(&scene, run, &writer, &format!("way {way} at {at}: {done:?}"));
        }
    }
}

#[test]
fn what_is_written_into_the_rest_of_an_undo_that_was_cut_off_is_never_removed() {
    for way in 0..WAYS / 2 {
        for at in 0.. {
            let scene = Scene::new();
            let (run, held) = displaceable(&scene);
            let made = scene.tree().join("made");
            let cut = undo(&scene, run, &mut || {
                if made.exists() { Ok(()) } else { Err(SnapshotError::Store(io::Error::other("cut off"))) }
            });
            cut.unwrap_err();
            let mut writer = Writer::default();
            let (done, count) = undo_beside(&scene, run, at, &mut || {
                writer.act(&held[0], "f", way);
                writer.act(&held[1], "f", way + WAYS / 2);
            });
            assert_eq!(done.went_on, Some(run));
            if count <= at {
                assert!(at > 5, "{at}: there are several pauses");
                break;
            }
            let what = format!("way {way}, pause {at}: {:?}", done.applied);
            assert_all_is_there(&scene, run, &writer, &what);
        }
    }
}

/// Stands for the lease of the kernel: refuses it while this process has the file open for writing.
fn lease(file: BorrowedFd<'_>, takes: bool) -> io::Result<()> {
    let wanted = rustix::fs::fstat(file)?;
    for entry in fs::read_dir("/proc/self/fd")?.filter(|_| takes) {
        let entry = entry?;
        let Ok(meta) = fs::metadata(entry.path()) else { continue };
        if (meta.dev(), meta.ino()) != (wanted.st_dev, wanted.st_ino) {
            continue;
        }
        let Ok(info) = fs::read_to_string(Path::new("/proc/self/fdinfo").join(entry.file_name())) else { continue };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        if u32::from_str_radix(flags, 8).unwrap() & 3 != 0 {
            return Err(Errno::AGAIN.into());
        }
    }
    Ok(())
}

#[test]
fn a_displaced_file_that_is_open_for_writing_is_put_beside() {
    for is_cut_off in [false, true] {
        let mut scene = Scene::new();
        scene.checkpoints = Checkpoints::make(&scene.base.path().join("state")).unwrap().with_leases(lease);
        scene.put("f", "old\n");
        let run = scene.take();
        for name in ["f", "made/log", "made/other"] {
            scene.put(name, "by the run\n");
        }
        scene.put("alone/log", "by the run\n");
        scene.end(run);
        let open = |name: &str| fs::OpenOptions::new().append(true).open(scene.tree().join(name)).unwrap();
        let mut files = ["f", "made/log"].map(open);
        let made = scene.tree().join("made");
        if is_cut_off {
            undo(&scene, run, &mut || {
                if made.exists() { Ok(()) } else { Err(SnapshotError::Store(io::Error::other("cut off"))) }
            })
            .unwrap_err();
        }
        let done = undo(&scene, run, &mut || Ok(())).unwrap();
        let mut writer = Writer::default();
        for file in &mut files {
            assert!(writer.write_to(file));
        }
        assert_all_is_there(&scene, run, &writer, &format!("{is_cut_off}: {:?}", done.applied));
        assert!(!done.applied.aside.is_empty() && !made.exists(), "{:?}", done.applied);
        assert_eq!((scene.text("f"), scene.text("alone/log")), ("old\n".into(), String::new()));
        if !is_cut_off {
            let aside: Vec<_> = done.applied.aside.iter().map(|one| String::from_utf8_lossy(&one.path)).collect();
            assert_eq!(aside, ["f", "made"]);
        }
    }
}

/// A bind mount that comes while an undo works, in the mount namespace of the test's child. What it shows is not of the workspace.
#[test]
fn a_mount_in_a_displaced_directory_is_not_entered() {
    if !rustix::process::geteuid().is_root() {
        println!("in part: test a_mount_in_a_displaced_directory_is_not_entered: only root can mount");
        return;
    }
    let line = "exec \"$1\" --exact child_mounts --ignored --nocapture";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", line, "sh"])
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "the child of another test"]
fn child_mounts() {
    for is_cut_off in [false, true] {
        for at in 0.. {
            let (own, scene) = (tempfile::tempdir_in("/var/tmp").unwrap(), Scene::new());
            fs::create_dir(own.path().join("deep")).unwrap();
            for file in ["f", "deep/f"] {
                fs::write(own.path().join(file), "the user's\n").unwrap();
            }
            let (run, held) = displaceable(&scene);
            let made = scene.tree().join("made");
            if is_cut_off {
                undo(&scene, run, &mut || {
                    if made.exists() { Ok(()) } else { Err(SnapshotError::Store(io::Error::other("cut off"))) }
                })
                .unwrap_err();
            }
            let (mut count, mut mounted) = (0, None);
            let done = undo(&scene, run, &mut || {
                if count == at {
                    let place = fs::read_link(proc_path(&held[0])).unwrap();
                    let status = Command::new("mount").arg("--bind").args([own.path(), &place]).status().unwrap();
                    mounted = status.success().then_some(place);
                }
                count += 1;
                Ok(())
            });
            let texts = ["f", "deep/f"].map(|file| fs::read_to_string(own.path().join(file)).unwrap_or_default());
            if mounted.is_some() {
                // By a lazy detachment of all: it may have been moved with its directory.
                let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
                for place in all.lines().filter_map(|line| line.split(' ').nth(4)) {
                    if Path::new(place).starts_with(scene.base.path()) {
                        assert!(Command::new("umount").args(["-l", place]).status().unwrap().success());
                    }
                }
            }
            assert_eq!(texts, ["the user's\n", "the user's\n"], "{is_cut_off}, pause {at}: {done:?}");
            if count <= at {
                assert!(at > 5, "{at}: there are several pauses");
                break;
            }
        }
    }
}

/// Every directory of a tree.
fn directories(tree: &Path) -> Vec<PathBuf> {
    let mut all = vec![tree.to_owned()];
    let mut at = 0;
    while at < all.len() {
        for entry in fs::read_dir(&all[at]).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                all.push(entry.path());
            }
        }
        at += 1;
    }
    all
}

/// Plays what a writer does at one pause: in a directory that it has open, or in one that it finds, or to a file that it has open.
fn play(
    writer: &mut Writer,
    tree: &Path,
    (held, files): (&[OwnedFd], &mut [File]),
    (way, place, which): (u8, u8, u16),
) {
    if way % (WAYS + 1) == WAYS && !files.is_empty() {
        writer.write_to(&mut files[usize::from(which) % files.len()]);
        return;
    }
    let found;
    let dir = if place % 2 == 0 {
        &held[usize::from(place / 2) % held.len()]
    } else {
        let all = directories(tree);
        found = open(&all[usize::from(place / 2) % all.len()]);
        &found
    };
    let mut names: Vec<_> =
        fs::read_dir(proc_path(dir)).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let name = names.get(usize::from(which) % names.len().max(1)).cloned().unwrap_or_else(|| "new".to_owned());
    writer.act(dir, &name, way % (WAYS + 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_that_is_written_while_an_undo_works_is_found(
        before in edits(12), during in edits(16), acts in prop::collection::vec(any::<(u8, u8, u16)>(), 1..12),
        ends in any::<bool>(), open in prop::collection::vec(any::<u16>(), 0..3), cut in prop::option::of(0..40_usize)
    ) {
        every_byte_is_found((&before, &during), &acts, &open, ends, cut);
    }
}

fn every_byte_is_found(
    (before, during): (&Edits, &Edits),
    acts: &[(u8, u8, u16)],
    open_files: &[u16],
    ends: bool,
    cut: Option<usize>,
) {
    let (mut scene, run, _) = played(before, during);
    scene.checkpoints = Checkpoints::make(&scene.base.path().join("state")).unwrap().with_leases(lease);
    if ends {
        scene.end(run);
    }
    let tree = scene.tree();
    let held: Vec<_> = directories(&tree).iter().map(|path| open(path)).collect();
    let mut all: Vec<_> =
        directories(&tree).iter().flat_map(|dir| fs::read_dir(dir).unwrap()).map(|one| one.unwrap()).collect();
    all.retain(|one| one.file_type().unwrap().is_file());
    all.sort_by_key(fs::DirEntry::path);
    let chosen = open_files.iter().filter_map(|at| all.get(usize::from(*at) % all.len().max(1)));
    let mut files: Vec<_> = chosen.map(|one| fs::OpenOptions::new().append(true).open(one.path()).unwrap()).collect();
    let (mut writer, mut count) = (Writer::default(), 0);
    let mut told = Vec::new();
    for round in 0.. {
        let done = undo(&scene, run, &mut || {
            if round < 2 {
                play(&mut writer, &tree, (&held, &mut files), acts[count % acts.len()]);
            }
            count += 1;
            match cut {
                Some(cut) if round == 0 && count > cut => Err(SnapshotError::Store(io::Error::other("cut off"))),
                _ => Ok(()),
            }
        });
        told.push(format!("{done:?}"));
        writer.log.push(format!("end of undo {round}"));
        if round > 1 {
            done.unwrap();
            break;
        }
    }
    for file in &mut files {
        writer.write_to(file);
    }
    assert_all_is_there(&scene, run, &writer, &told.join("\n"));
}
