//! The hostile process of the model: a child that does one act at a time, and the parent's end of it.

use super::note;
use crate::common::Scene;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

/// One act of the hostile process. Paths are relative to the workspace; `text` is written nowhere else.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Act {
    SaveByRename {
        path: String,
        text: String,
    },
    Append {
        path: String,
        text: String,
    },
    Create {
        path: String,
        text: String,
    },
    Delete {
        path: String,
    },
    SwapDirectory {
        path: String,
        file: String,
        text: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    /// Makes a directory at a free name.
    MakeDirectory {
        path: String,
        file: String,
        text: String,
    },
    /// Moves a directory, with files that are older than the run, to a free name.
    MoveIn {
        from: String,
        path: String,
    },
    /// Makes a directory immutable, so that nothing can be moved into it or out of it.
    Refuse {
        path: String,
    },
    /// Takes that back.
    Allow,
    Finish,
}

/// Result of an act.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    written: bool,
    destroyed: Vec<String>,
    /// Of earlier acts that were to be written once a lease ends: they met an error instead.
    unwritten: Vec<String>,
}

/// State shared by the threads of the hostile process that wait for the end of a lease.
#[derive(Default)]
struct Shared {
    /// The files of which this process removed the last name. A thread may have one of them open.
    removed: BTreeSet<Id>,
    report: Report,
    /// Nothing becomes possible any more that is not possible now.
    finishing: bool,
}

/// A file by its inode and its birth, since an inode is used again.
type Id = (u64, Option<std::time::SystemTime>);

fn id(meta: &std::fs::Metadata) -> Id {
    (std::os::unix::fs::MetadataExt::ino(meta), meta.created().ok())
}

/// An append that waits until another process's lease ends, as any other process would.
///
/// It runs while the process does its next acts, but writes and removals exclude each other: what the process
/// removes itself is not lost, whether the text is in the file already or comes to it a moment later.
fn append_late(path: &Path, text: &str, shared: &Mutex<Shared>) {
    loop {
        let finishing = shared.lock().unwrap().finishing;
        // This open waits, so that it must not hold up the next act.
        let opened = std::fs::File::options().append(true).open(path);
        let mut shared = shared.lock().unwrap();
        let created = match opened {
            // What this open makes is in no list of a removal that goes on.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                std::fs::File::options().append(true).create_new(true).open(path)
            }
            other => other,
        };
        match created {
            Ok(mut file) => {
                file.write_all(text.as_bytes()).unwrap();
                if shared.removed.contains(&id(&file.metadata().unwrap())) {
                    shared.report.destroyed.push(text.to_owned());
                }
                return;
            }
            // Another entry has the name by now, or its directory is gone.
            Err(_) if finishing => {
                shared.report.unwritten.push(text.to_owned());
                return;
            }
            // Only until the directory takes it again.
            Err(_) => {}
        }
        drop(shared);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The threads of the hostile process that wait for the end of a lease.
#[derive(Default)]
struct Late {
    shared: Arc<Mutex<Shared>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Late {
    fn append(&mut self, path: PathBuf, text: String) {
        let shared = self.shared.clone();
        self.threads.push(std::thread::spawn(move || append_late(&path, &text, &shared)));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }

    fn finish(&mut self) -> Report {
        self.shared.lock().unwrap().finishing = true;
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        std::mem::take(&mut self.shared.lock().unwrap().report)
    }
}

/// The texts of the form `T<number>;` in a file or in all files below a directory.
pub fn tokens(path: &Path, found: &mut Vec<String>) {
    each_file(path, &mut |_, text| found.extend(words(text)));
}

/// Calls `each` with the attributes and the content of a file, or of all files below a directory.
fn each_file(path: &Path, each: &mut dyn FnMut(&std::fs::Metadata, &str)) {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return };
    if meta.is_dir() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            each_file(&entry.path(), each);
        }
    } else if meta.is_file() {
        each(&meta, &String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()));
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split_inclusive(';').filter_map(|word| word.rfind('T').map(|at| word[at..].to_owned()));
    words.filter(|word| word.ends_with(';'))
}

fn same_file(at: &Path, ino: u64, count: &mut usize) {
    for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            same_file(&entry.path(), ino, count);
        } else {
            *count += usize::from(std::os::unix::fs::MetadataExt::ino(&meta) == ino);
        }
    }
}

pub fn refuse(directory: &Path) {
    if directory.is_dir() {
        assert!(Command::new("chattr").arg("+i").arg(directory).status().unwrap().success());
    }
}

/// Lets everything be moved again.
pub fn allow(root: &Path) {
    // Links and pipes have no such flag, which chattr(1) says.
    Command::new("chattr").args(["-R", "-i"]).arg(root).stderr(Stdio::null()).status().unwrap();
}

/// Lists what goes when a file, or a directory with all that is in it, is removed.
fn removal(path: &Path, ids: &mut Vec<Id>, texts: &mut Vec<String>) {
    each_file(path, &mut |meta, text| {
        ids.push(id(meta));
        texts.extend(words(text));
    });
}

fn act(root: &Path, act: &Act, number: u64, late: &mut Late) -> Report {
    let mut report = Report::default();
    let at = |path: &str| root.join(path);
    // Names outside of the workspace (overlay's index, a slot of the commit) are not names for this process.
    let names = |path: &Path| {
        let mut count = 0;
        same_file(root, std::os::unix::fs::MetadataExt::ino(&std::fs::symlink_metadata(path).unwrap()), &mut count);
        count
    };
    match act {
        Act::SaveByRename { path, text } => {
            let temp = at(&format!(".saving-{number}"));
            if std::fs::write(&temp, text).is_err() {
                return report;
            }
            let mut shared = late.shared.lock().unwrap();
            let (mut ids, mut old) = (Vec::new(), Vec::new());
            if at(path).is_file() && names(&at(path)) == 1 {
                removal(&at(path), &mut ids, &mut old);
            }
            if std::fs::rename(&temp, at(path)).is_ok() {
                shared.removed.extend(ids);
                report = Report { written: true, destroyed: old, ..Report::default() };
            } else {
                std::fs::remove_file(&temp).ok();
            }
        }
        Act::Append { path, text } => {
            let open = |flags| std::fs::File::options().append(true).custom_flags(flags).open(at(path));
            match open(0o4000) {
                Ok(mut file) => {
                    report.written = file.write_all(text.as_bytes()).is_ok();
                }
                // Another process holds a lease: this process waits as any other would.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    report.written = true;
                    late.append(at(path), text.clone());
                }
                Err(_) => {}
            }
        }
        Act::Create { path, text } => {
            let file = std::fs::File::options().write(true).create_new(true).open(at(path));
            report.written = file.is_ok_and(|mut file| file.write_all(text.as_bytes()).is_ok());
        }
        Act::Delete { path } => {
            let mut shared = late.shared.lock().unwrap();
            let mut ids = Vec::new();
            if at(path).is_dir() {
                removal(&at(path), &mut ids, &mut report.destroyed);
                std::fs::remove_dir_all(at(path)).ok();
            } else if at(path).is_file() {
                if names(&at(path)) == 1 {
                    removal(&at(path), &mut ids, &mut report.destroyed);
                }
                std::fs::remove_file(at(path)).ok();
            }
            // What refuses to be changed is still there.
            if std::fs::symlink_metadata(at(path)).is_err() {
                shared.removed.extend(ids);
            }
        }
        Act::SwapDirectory { path, file, text } => {
            if at(path).is_dir() && std::fs::rename(at(path), at(&format!("{path}.away-{number}"))).is_ok() {
                let made = std::fs::create_dir(at(path)).and_then(|()| std::fs::write(at(path).join(file), text));
                report.written = made.is_ok();
            }
        }
        Act::Chmod { path, mode } => {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(at(path), std::fs::Permissions::from_mode(*mode)).ok();
        }
        Act::MakeDirectory { path, file, text } => {
            let made = std::fs::create_dir(at(path)).and_then(|()| std::fs::write(at(path).join(file), text));
            report.written = made.is_ok();
        }
        Act::MoveIn { from, path } => {
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(rustix::fs::CWD, at(from), rustix::fs::CWD, at(path), flags).ok();
        }
        Act::Refuse { path } => refuse(&at(path)),
        Act::Allow => allow(root),
        Act::Finish => report = late.finish(),
    }
    report
}

#[test]
#[ignore = "the child of the other tests"]
fn child_is_hostile() {
    let root = PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let mut late = Late::default();
    println!("\nready");
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let next: Act = serde_json::from_str(&line.unwrap()).unwrap();
        let report = act(&root, &next, number as u64, &mut late);
        println!("\n@{}", serde_json::to_string(&report).unwrap());
    }
}

pub struct Hostile {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub written: BTreeSet<String>,
    pub destroyed: BTreeSet<String>,
    /// It made a directory immutable, which may stop a commit.
    pub refused: bool,
}

impl Hostile {
    pub fn start(scene: &Scene) -> Self {
        let root = scene.ws();
        let errors = std::fs::File::create(scene.path("hostile.stderr")).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hostile::child_is_hostile", "--ignored", "--nocapture", "--test-threads=1"])
            .env("NEXUS_TEST_ORDER", root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (written, destroyed) = (BTreeSet::new(), BTreeSet::new());
        let mut hostile = Self { child, input, output, written, destroyed, refused: false };
        while !hostile.line().starts_with("ready") {}
        hostile
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the hostile process ended");
        line
    }

    pub fn act(&mut self, at: u64, next: &Act) {
        note(&format!("call {at}: {next:?}"));
        writeln!(self.input, "{}", serde_json::to_string(next).unwrap()).unwrap();
        let report: Report = loop {
            if let Some(text) = self.line().strip_prefix('@') {
                break serde_json::from_str(text).unwrap();
            }
        };
        note(&format!("call {at}: {report:?}"));
        if let Act::SaveByRename { text, .. }
        | Act::Append { text, .. }
        | Act::Create { text, .. }
        | Act::SwapDirectory { text, .. }
        | Act::MakeDirectory { text, .. } = next
            && report.written
        {
            self.written.insert(text.clone());
        }
        self.destroyed.extend(report.destroyed);
        self.written.retain(|text| !report.unwritten.contains(text));
        self.refused |= matches!(next, Act::Refuse { .. });
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A lease that a test holds until it is dropped.
struct Held(std::fs::File);

impl Held {
    fn on(path: &Path) -> Self {
        let file = std::fs::File::open(path).unwrap();
        crate::common::settled_lease(std::os::fd::AsFd::as_fd(&file), true).unwrap();
        Self(file)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        nexus_jail::lease::read_lease(std::os::fd::AsFd::as_fd(&self.0), false).unwrap();
    }
}

fn append(path: &str) -> Act {
    Act::Append { path: path.into(), text: "T91;".into() }
}

/// The process itself, and no commit, ends a text that it writes to a file of which it just removed the last name.
#[test]
fn a_text_that_comes_late_to_what_the_process_removed_is_its_own_loss() {
    let all = [
        ("f", Act::SaveByRename { path: "f".into(), text: "T92;".into() }),
        ("f", Act::Delete { path: "f".into() }),
        ("d/f", Act::Delete { path: "d".into() }),
    ];
    for (path, removal) in all {
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        std::fs::write(root.path().join(path), "old").unwrap();
        let mut late = Late::default();
        let held = Held::on(&root.path().join(path));
        assert!(act(root.path(), &append(path), 0, &mut late).written);
        // The append waits in its open by then.
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(act(root.path(), &removal, 1, &mut late).destroyed, [""; 0], "{removal:?}");
        drop(held);
        assert_eq!(act(root.path(), &Act::Finish, 2, &mut late).destroyed, ["T91;"], "{removal:?}");
    }
}

#[test]
fn a_text_that_finds_a_directory_in_place_of_its_file_was_not_written() {
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::create_dir(root.path().join("x")).unwrap();
    let mut late = Late::default();
    late.append(root.path().join("x"), "T91;".into());
    late.append(root.path().join("gone/x"), "T92;".into());
    let mut unwritten = act(root.path(), &Act::Finish, 0, &mut late).unwritten;
    unwritten.sort();
    assert_eq!(unwritten, ["T91;", "T92;"]);
}
