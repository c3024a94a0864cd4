//! Renames of directories and hard links in a layer, as root and as an ordinary user, whose overlay knows neither.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{Bench, on_each_bench, report, stderr, stdout};

/// A workspace with a repository and a directory of several kinds of entries in it.
fn with_repository(bench: &Bench) {
    bench.write("d/a", "a\n");
    bench.write("d/sub/b", "b\n");
    bench.write("d/sub/run.sh", "#!/bin/sh\necho ran\n");
    fs::set_permissions(bench.workspace.join("d/sub/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::hard_link(bench.workspace.join("d/a"), bench.workspace.join("d/twin")).unwrap();
    symlink("../nowhere", bench.workspace.join("d/link")).unwrap();
    let attribute = "import os; os.setxattr('d/sub', 'user.kept', b'value')";
    assert!(bench.command("python3").args(["-c", attribute]).status().unwrap().success());
    bench.give(&bench.workspace.join("d/link"));
    let set_up = "git init -q -b main . && git config user.name A && git config user.email a@b.example && git add -A \
                  && git commit -qm one";
    assert!(bench.command("sh").args(["-c", set_up]).status().unwrap().success());
}

fn ran(bench: &Bench, text: &str) -> Output {
    let output = bench.run(["run", "--shell", text]);
    assert_eq!(output.status.code(), Some(0), "{}: {text}: {}{}", bench.who(), stdout(&output), stderr(&output));
    output
}

/// The paths and sizes of the workspace.
fn listed(bench: &Bench) -> String {
    let text = "find . -path ./.git -prune -o -printf '%p %s %n %m\\n' | sort";
    stdout(&bench.command("sh").args(["-c", text]).output().unwrap())
}

/// The status of the workspace as git on the host reports it.
fn status(bench: &Bench) -> String {
    stdout(&bench.command("git").args(["status", "--short"]).output().unwrap())
}

#[test]
fn git_moves_a_directory_and_the_move_is_committed() {
    on_each_bench(|bench| {
        with_repository(&bench);
        let old = fs::metadata(bench.workspace.join("d/sub")).unwrap();
        ran(&bench, "git mv d e && test ! -e d && ./e/sub/run.sh && git commit -qm moved && git status --short");
        assert_eq!(status(&bench), "", "{}", bench.who());
        assert!(!bench.workspace.join("d").exists());
        let at = |name: &str| bench.workspace.join("e").join(name);
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("../nowhere"));
        assert_eq!(fs::metadata(at("sub/run.sh")).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(at("a")).unwrap().ino(), fs::metadata(at("twin")).unwrap().ino());
        let kept = "import os; print(os.getxattr('e/sub', 'user.kept'))";
        let kept = bench.command("python3").args(["-c", kept]).output().unwrap();
        assert_eq!(stdout(&kept), "b'value'\n", "{}", bench.who());
        assert_eq!(fs::metadata(at("sub")).unwrap().modified().unwrap(), old.modified().unwrap());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    });
}

/// Writes files with two names each, with inodes that files of the workspace have too, and moves all of them.
const SAME_NUMBERS: &str = "
import os
numbers = [os.stat(f'lib/a/mine{i}').st_ino for i in range(200)]
os.mkdir('lib/b')
for _ in range(500_000):
    open('lib/b/next', 'w').close()
    at = os.stat('lib/b/next').st_ino
    os.unlink('lib/b/next')
    if at + 20 > min(numbers): break
mine = set()
for i in range(400):
    open(f'lib/b/run{i}', 'w').write('RUNS')
    os.link(f'lib/b/run{i}', f'lib/b/run{i}-too')
    mine.add(os.stat(f'lib/b/run{i}').st_ino)
print('the same', len(mine & set(numbers)) > 20 or (min(numbers), max(numbers), min(mine), max(mine)))
os.rename('lib', 'src')
";

/// A file system that counts its inodes from the beginning.
struct Mounted(PathBuf);

impl Mounted {
    fn at(path: &Path, arguments: &[&str]) -> Option<Self> {
        fs::create_dir(path).unwrap();
        let output = Command::new("mount").args(arguments).arg(path).output().unwrap();
        output.status.success().then(|| Self(path.to_owned()))
    }
}

impl Mounted {
    /// A Btrfs in a file of the bench.
    fn btrfs(bench: &Bench) -> Option<Self> {
        let (image, mounted) = (bench.base.path().join("image"), bench.base.path().join("mounted"));
        fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).output().unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
        Self::at(&mounted, &["-o", "loop", image.to_str().unwrap()])
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let output = Command::new("umount").arg("--lazy").arg(&self.0).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

/// Moves files of the workspace and of the run that have the same inode numbers, with two names each, and looks at all of them.
fn files_stay_apart(bench: &Bench, workspace: &Path, state: &Path, flags: &[&str]) {
    fs::create_dir_all(workspace.join("lib/a")).unwrap();
    for number in 0..200 {
        let at = |end: &str| workspace.join(format!("lib/a/mine{number}{end}"));
        fs::write(at(""), "MINE").unwrap();
        fs::hard_link(at(""), at("-too")).unwrap();
        bench.give(&at(""));
    }
    for directory in ["", "lib", "lib/a"] {
        bench.give(&workspace.join(directory));
    }
    let mut nexus = bench.nexus(["run", "--changes", "commit"]);
    nexus.args(flags).args(["--", "python3", "-c", SAME_NUMBERS]);
    let output = nexus.current_dir(workspace).env("NEXUS_STATE_DIR", state).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
    assert_eq!(stdout(&output), "the same True\n", "{}: the test needs files of one number", bench.who());
    for (directory, content, count) in [("a", "MINE", 200), ("b", "RUNS", 400)] {
        let files: Vec<_> = fs::read_dir(workspace.join("src").join(directory)).unwrap().map(Result::unwrap).collect();
        assert_eq!(files.len(), 2 * count, "{}", bench.who());
        let mut inodes: Vec<u64> = files.iter().map(|file| file.metadata().unwrap().ino()).collect();
        for file in &files {
            assert_eq!(fs::read_to_string(file.path()).unwrap(), content, "{}: {file:?}", bench.who());
        }
        inodes.sort_unstable();
        inodes.dedup();
        assert_eq!(inodes.len(), count, "{}: {directory}: two names each", bench.who());
    }
}

#[test]
fn files_of_workspace_and_layer_with_one_number_stay_apart() {
    on_each_bench(|bench| {
        let workspace = bench.base.path().join("mounted");
        let Some(_mounted) = Mounted::at(&workspace, &["-t", "tmpfs", "-o", "size=64m", "none"]) else {
            println!("in part: test files_of_workspace_and_layer_with_one_number_stay_apart: needs root for a mount");
            return;
        };
        files_stay_apart(&bench, &workspace, &bench.state, &["--disk", "64M"]);
    });
}

#[test]
fn files_of_two_subvolumes_with_one_number_stay_apart() {
    on_each_bench(|bench| {
        let Some(mounted) = Mounted::btrfs(&bench) else {
            println!(
                "in part: test files_of_two_subvolumes_with_one_number_stay_apart: no Btrfs here, or no right to mount"
            );
            return;
        };
        let [workspace, state] = ["ws", "state"].map(|name| mounted.0.join(name));
        for volume in [&workspace, &state] {
            let made = Command::new("btrfs").args(["subvolume", "create"]).arg(volume).output().unwrap();
            assert!(made.status.success(), "{}", stderr(&made));
            bench.give(volume);
        }
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        files_stay_apart(&bench, &workspace, &state, &[]);
        snapshots_stay_apart(&bench, &workspace, "data", &state);
        // On another file system the overlay shows its own numbers for directories.
        snapshots_stay_apart(&bench, &workspace, "more", &bench.state);
    });
}

#[test]
fn a_directory_with_snapshots_of_its_own_subvolume_moves() {
    on_each_bench(|bench| {
        let Some(mounted) = Mounted::btrfs(&bench) else {
            println!(
                "in part: test a_directory_with_snapshots_of_its_own_subvolume_moves: no Btrfs here, or no right to mount"
            );
            return;
        };
        snapshots_of_their_own_subvolume_move(&bench, &mounted.0.join("nest"));
    });
}

/// Moves a directory with two snapshots of the subvolume that it is in. In place of the first one, the second one has an empty
/// directory that the kernel makes again now and then, with the time of that moment.
fn snapshots_of_their_own_subvolume_move(bench: &Bench, workspace: &Path) {
    let btrfs = |arguments: &[&str], place: &Path| {
        let made = Command::new("btrfs").arg("subvolume").args(arguments).arg(place).output().unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
    };
    btrfs(&["create"], workspace);
    for directory in ["A", "B"] {
        fs::create_dir(workspace.join(directory)).unwrap();
        bench.give(&workspace.join(directory));
    }
    fs::write(workspace.join("A/f"), "text").unwrap();
    bench.give(&workspace.join("A/f"));
    bench.give(workspace);
    for name in ["S0", "S1"] {
        btrfs(&["snapshot", workspace.to_str().unwrap()], &workspace.join("B").join(name));
    }
    let placeholder = fs::metadata(workspace.join("B/S1/B/S0")).unwrap();
    assert_eq!(placeholder.ino(), 2, "the test needs a placeholder");
    if bench.user.is_none() {
        // For root the kernel moves directories, and no subvolume.
        return;
    }
    let script = "sleep 0.5; mv B C";
    let output =
        bench.nexus(["run", "--changes", "commit", "--shell", script]).current_dir(workspace).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
    assert!(!workspace.join("B").exists(), "{}: {}", bench.who(), stderr(&output));
    for name in ["S0", "S1"] {
        let text = fs::read_to_string(workspace.join("C").join(name).join("A/f")).unwrap();
        assert_eq!(text, "text", "{}: {name}", bench.who());
    }
}

/// Moves a subvolume and its snapshot, whose files have the same numbers, times and content, but for one that was edited.
fn snapshots_stay_apart(bench: &Bench, workspace: &Path, name: &str, state: &Path) {
    let data = workspace.join(name);
    fs::create_dir(&data).unwrap();
    let volume = |arguments: &[&str]| {
        let made = Command::new("btrfs").current_dir(&data).arg("subvolume").args(arguments).output().unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
    };
    volume(&["create", "now"]);
    for name in ["edited", "same"] {
        fs::write(data.join("now").join(name), "yesterday").unwrap();
        fs::hard_link(data.join("now").join(name), data.join(format!("now/{name}-too"))).unwrap();
        bench.give(&data.join("now").join(name));
    }
    bench.give(&data.join("now"));
    bench.give(&data);
    volume(&["snapshot", "now", "yesterday"]);
    fs::write(data.join("now/edited"), "today").unwrap();
    let mut nexus = bench.nexus(["run", "--changes", "commit", "--", "mv", name, &format!("{name}-moved")]);
    let output = nexus.current_dir(workspace).env("NEXUS_STATE_DIR", state).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
    let store = workspace.join(format!("{name}-moved"));
    for (name, content) in [("now/edited", "today"), ("now/same", "yesterday"), ("yesterday/edited", "yesterday")] {
        for name in [name.to_owned(), format!("{name}-too")] {
            assert_eq!(fs::read_to_string(store.join(&name)).unwrap(), content, "{}: {name}", bench.who());
        }
    }
    let file = |name: &str| fs::metadata(store.join(name)).map(|meta| (meta.dev(), meta.ino())).unwrap();
    assert_ne!(file("now/same"), file("yesterday/same"), "{}", bench.who());
    if kernel_tells_subvolumes() {
        for name in ["now/same", "yesterday/same"] {
            assert_eq!(file(name), file(&format!("{name}-too")), "{}: {name}", bench.who());
        }
    }
    if bench.user.is_some() {
        // For root the kernel moves directories, and no subvolume.
        nested_snapshots_stay_apart(bench, workspace, name, state);
        files_of_one_moment_stay_apart(bench, workspace, name, state);
    }
}

/// Reports whether statx(2) tells the subvolume of a file.
fn kernel_tells_subvolumes() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers =
        release.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(10))
}

/// Moves two subvolumes whose files have the same numbers and sizes and, as they were written in turn, the same times. The run has
/// removed a second name of each, so that no count of the names tells them apart either.
fn files_of_one_moment_stay_apart(bench: &Bench, workspace: &Path, name: &str, state: &Path) {
    let lib = workspace.join(format!("{name}-lib"));
    fs::create_dir(&lib).unwrap();
    for volume in ["p1", "p2"] {
        let output = Command::new("btrfs").args(["subvolume", "create"]).arg(lib.join(volume)).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let at = |volume: &str, file: String| lib.join(volume).join(file);
    let each = |act: &dyn Fn(&str, usize)| {
        for number in 0..200 {
            act("p1", number);
            act("p2", number);
        }
    };
    each(&|volume, number| fs::write(at(volume, format!("f{number}")), format!("{volume} {number:03}")).unwrap());
    each(&|volume, number| bench.give(&at(volume, format!("f{number}"))));
    each(&|volume, number| {
        fs::hard_link(at(volume, format!("f{number}")), at(volume, format!("g{number}"))).unwrap();
    });
    for directory in [lib.clone(), lib.join("p1"), lib.join("p2")] {
        bench.give(&directory);
    }
    let script = format!("rm {name}-lib/p1/g* {name}-lib/p2/g*; mv {name}-lib {name}-src");
    let mut nexus = bench.nexus(["run", "--changes", "commit", "--shell", &script]);
    let output = nexus.current_dir(workspace).env("NEXUS_STATE_DIR", state).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
    let moved = workspace.join(format!("{name}-src"));
    let is_wrong = |volume: &str, number: usize| {
        let text = fs::read_to_string(moved.join(volume).join(format!("f{number}"))).unwrap();
        text != format!("{volume} {number:03}")
    };
    let wrong =
        (0..200).flat_map(|number| [("p1", number), ("p2", number)]).filter(|(at, number)| is_wrong(at, *number));
    assert_eq!(wrong.count(), 0, "{}: of 400 files", bench.who());
}

/// Moves a directory with a snapshot of itself between the names of a file, and one of which a file has a name outside.
fn nested_snapshots_stay_apart(bench: &Bench, workspace: &Path, name: &str, state: &Path) {
    let (at, moved) = (format!("{name}-app"), format!("{name}-app2"));
    let volume = |arguments: &[&str]| {
        let made = Command::new("btrfs").current_dir(workspace).arg("subvolume").args(arguments).output().unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
    };
    volume(&["create", &at]);
    let app = workspace.join(&at);
    for directory in ["src", "dist", "removed", "snapshots"] {
        fs::create_dir(app.join(directory)).unwrap();
        bench.give(&app.join(directory));
    }
    for file in ["src/f", "src/outside", "src/removed"] {
        fs::write(app.join(file), "before").unwrap();
        bench.give(&app.join(file));
    }
    fs::hard_link(app.join("src/f"), app.join("dist/f")).unwrap();
    fs::hard_link(app.join("src/outside"), app.join("kept-apart")).unwrap();
    fs::hard_link(app.join("src/removed"), app.join("removed/f")).unwrap();
    bench.give(&app);
    volume(&["snapshot", &at, &format!("{at}/snapshots/1")]);
    // The run has removed a name of each file in both: what is left are as many names as one file has.
    let removed = format!("rm -r {at}/removed {at}/snapshots/1/removed");
    let script =
        format!("{removed}; mv {at} {moved}; for f in f outside removed; do echo after > {moved}/src/$f; done");
    let mut nexus = bench.nexus(["run", "--changes", "commit", "--shell", &script]);
    let output = nexus.current_dir(workspace).env("NEXUS_STATE_DIR", state).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
    for file in ["src/f", "dist/f", "src/outside", "src/removed"] {
        let snapshot = workspace.join(&moved).join("snapshots/1").join(file);
        assert_eq!(fs::read_to_string(snapshot).unwrap(), "before", "{}: {file}", bench.who());
    }
}

/// Renames as programs call them; each row: the call, and what must be there.
const CALLS: &[(&str, &[&str])] = &[
    ("os.rename('d', 'e')", &["e/a", "e/sub/b"]),
    ("os.rename('d', 'other/deep')", &["other/deep/a"]),
    ("os.rename('d/sub', 'sub')", &["sub/b", "d/a"]),
    ("os.rename('d', 'empty')", &["empty/sub/b"]),
    ("os.rename(os.getcwd() + '/d/', 'e/')", &["e/a"]),
    ("os.chdir('d'); os.rename('sub', '../sub')", &["sub/b"]),
    (
        "f = os.open('d', os.O_RDONLY); g = os.open('other', os.O_RDONLY); os.rename('sub', 's', src_dir_fd=f, dst_dir_fd=g)",
        &["other/s/b"],
    ),
    (
        "open('d/sub/b', 'a').write('more'); os.rename('d', 'e'); open('e/sub/b').read() == 'b\\nmore' or sys.exit(3)",
        &["e/sub/b"],
    ),
    ("os.rename('d', 'e'); os.rename('e', 'd')", &["d/a", "d/sub/b"]),
    (
        "f = open('d/sub/b', 'r+'); os.rename('d', 'e'); f.write('x'); f.close(); open('e/sub/b').read() == 'x\\n' or sys.exit(3)",
        &["e/sub/b"],
    ),
];

#[test]
fn every_form_of_the_call_moves_a_directory() {
    for (call, there) in CALLS {
        on_each_bench(|bench| {
            with_repository(&bench);
            for directory in ["other", "empty"] {
                fs::create_dir(bench.workspace.join(directory)).unwrap();
                bench.give(&bench.workspace.join(directory));
            }
            let output = bench.run(["run", "--", "python3", "-c", &format!("import os, sys\n{call}")]);
            assert_eq!(output.status.code(), Some(0), "{}: {call}: {}", bench.who(), stderr(&output));
            for path in *there {
                assert!(bench.workspace.join(path).exists(), "{}: {call}: {path}", bench.who());
            }
        });
    }
}

/// Renames that fail, and with which error.
const REFUSED: &[(&str, &str)] = &[
    ("os.rename('d', 'full')", "ENOTEMPTY"),
    ("os.rename('d', 'file')", "ENOTDIR"),
    ("os.rename('d', 'd/sub/x')", "EINVAL"),
    ("os.rename('no', 'e')", "ENOENT"),
    ("os.rename('d', 'no/e')", "ENOENT"),
    ("os.rename('d', '/tmp/e')", "EXDEV"),
    ("os.rename('d', '/usr/e')", "EROFS|EXDEV"),
];

#[test]
fn a_rename_that_cannot_be_is_refused_and_changes_nothing() {
    on_each_bench(|bench| {
        with_repository(&bench);
        bench.write("full/x", "x");
        bench.write("file", "x");
        let before = listed(&bench);
        for (call, wanted) in REFUSED {
            let text = format!(
                "import os, sys, errno\ntry: {call}\nexcept OSError as e: print(errno.errorcode[e.errno])\nelse: print('done')"
            );
            let output = bench.run(["run", "--", "python3", "-c", &text]);
            let seen = stdout(&output).trim().to_owned();
            assert!(wanted.split('|').any(|one| one == seen), "{}: {call}: {seen} {}", bench.who(), stderr(&output));
        }
        assert_eq!(listed(&bench), before, "{}", bench.who());
    });
}

#[test]
fn git_clones_a_local_repository_and_plain_links_work() {
    on_each_bench(|bench| {
        let set_up = "git init -q -b main up && cd up && echo b > b && git add -A && git -c user.name=A -c \
                      user.email=a@b.example commit -qm one";
        assert!(bench.command("sh").args(["-c", set_up]).status().unwrap().success());
        bench.write("plain", "x");
        ran(&bench, "git clone -q up c2 && git -C c2 status --short && test -f c2/b");
        let head =
            |place: &str| stdout(&bench.command("git").args(["-C", place, "log", "--format=%H %s"]).output().unwrap());
        assert!(head("up").ends_with(" one\n"), "{}", head("up"));
        assert_eq!(head("c2"), head("up"), "{}", bench.who());
        assert_eq!(stdout(&bench.command("git").args(["-C", "up", "fsck"]).output().unwrap()), "");
        ran(&bench, "ln plain other && echo more >> other && cat plain | grep more");
        assert_eq!(fs::read_to_string(bench.workspace.join("plain")).unwrap(), "xmore\n");
    });
}

#[test]
fn a_large_tree_moves_in_seconds() {
    on_each_bench(|bench| {
        let make = "import os\nfor d in range(200):\n  os.makedirs(f'big/{d}')\n  for f in range(200): open(f'big/{d}/{f}', 'w').write(str(f))";
        assert!(bench.command("python3").args(["-c", make]).status().unwrap().success());
        let text = "import os, time\nt = time.time()\nos.rename('big', 'moved')\nprint(time.time() - t)";
        let output = bench.run(["run", "--", "python3", "-c", text]);
        let seconds: f64 = stdout(&output).trim().parse().unwrap_or_else(|_| panic!("{}", stderr(&output)));
        eprintln!("{}: 40,000 files moved in {seconds:.1} s", bench.who());
        assert!(seconds < 60.0, "{}: {seconds}", bench.who());
        assert!(!bench.workspace.join("big").exists());
        let count = bench.command("sh").args(["-c", "find moved -type f | wc -l"]).output().unwrap();
        assert_eq!(stdout(&count).trim(), "40000", "{}", bench.who());
    });
}

#[test]
fn a_move_that_is_killed_loses_nothing_and_leaves_nothing_behind() {
    on_each_bench(|bench| {
        for name in 0..3000 {
            fs::create_dir_all(bench.workspace.join("big")).unwrap();
            fs::write(bench.workspace.join(format!("big/{name}")), "x").unwrap();
            bench.give(&bench.workspace.join(format!("big/{name}")));
        }
        bench.give(&bench.workspace.join("big"));
        for ms in ["20ms", "60ms", "120ms"] {
            let text = "import os, time\nos.rename('big', 'moved')\nos.rename('moved', 'big')\ntime.sleep(60)";
            let limits = ["run", "--timeout", ms, "--grace", "1ms", "--json", "--", "python3", "-c", text];
            let document = report(&bench.run(limits));
            assert_eq!(document["reason"], "timeout", "{document}");
            let names = |place: &str| fs::read_dir(bench.workspace.join(place)).map_or(0, Iterator::count);
            assert_eq!(names("big").max(names("moved")), 3000, "{}: {document}", bench.who());
            let top = fs::read_dir(&bench.workspace).unwrap().map(|entry| entry.unwrap().file_name());
            let odd: Vec<_> = top.filter(|name| name.to_string_lossy().starts_with(".nexus")).collect();
            assert!(odd.is_empty(), "{}: {odd:?}", bench.who());
            assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
            if !bench.workspace.join("big").exists() {
                fs::rename(bench.workspace.join("moved"), bench.workspace.join("big")).unwrap();
            } else if bench.workspace.join("moved").exists() {
                fs::remove_dir_all(bench.workspace.join("moved")).unwrap();
            }
            for name in 0..3000 {
                fs::write(bench.workspace.join(format!("big/{name}")), "x").unwrap();
                bench.give(&bench.workspace.join(format!("big/{name}")));
            }
        }
    });
}

#[test]
fn a_helper_that_is_killed_is_started_again() {
    on_each_bench(|bench| {
        with_repository(&bench);
        let text = "mv d e; for p in /proc/[0-9]*; do [ \"$(cat $p/comm)\" = nexus-rename ] && kill -9 ${p#/proc/}; done; \
                    python3 -c 'import os; os.rename(\"other\", \"last\")'; python3 -c 'import os; os.rename(\"e\", \"f\")'";
        fs::create_dir(bench.workspace.join("other")).unwrap();
        bench.give(&bench.workspace.join("other"));
        ran(&bench, text);
        assert!(bench.workspace.join("f/sub/b").exists() && bench.workspace.join("last").exists(), "{}", bench.who());
    });
}

/// Kills the helper as soon as the new name is there. Prints how many of the moves were half done then, and each that went wrong.
const KILL_AFTER_THE_RENAME: &str = r"
import os, subprocess
os.rename('first', 'second')
name = lambda pid: open(f'/proc/{pid}/comm').read().strip()
helper = lambda: [int(pid) for pid in os.listdir('/proc') if pid.isdigit() and name(pid) == 'nexus-rename']
half = 0
for number in range(5):
    pids = helper()
    move = subprocess.Popen(['mv', f'd{number}', f'e{number}'])
    while move.poll() is None and not os.path.exists(f'e{number}'):
        pass
    half += os.path.exists(f'd{number}')
    for pid in pids:
        os.kill(pid, 9)
    ended = move.wait(), os.path.exists(f'd{number}'), len(os.listdir(f'e{number}'))
    if ended != (0, False, 1500):
        print(number, ended)
    os.rename(f'other{number}', f'moved{number}')
print('half done:', half > 0)
";

#[test]
fn a_move_whose_helper_is_killed_half_way_is_finished() {
    on_each_bench(|bench| {
        for number in 0..5 {
            for file in 0..750 {
                bench.write(&format!("d{number}/{file}"), "x");
                let at = bench.workspace.join(format!("d{number}/{file}"));
                // The overlay parts the names of a file of the layer below, so that they look like two files.
                fs::hard_link(&at, at.with_extension("too")).unwrap();
            }
            bench.write(&format!("other{number}/x"), "x");
        }
        bench.write("first/x", "x");
        bench.write("kill.py", KILL_AFTER_THE_RENAME);
        let output = bench.run(["run", "--changes", "commit", "--", "python3", "kill.py"]);
        // Root's kernel moves a directory at once.
        let is_helped = bench.user.is_some() || !support::is_root();
        let expected = if is_helped { "half done: True\n" } else { "half done: False\n" };
        assert_eq!(stdout(&output), expected, "{}: {}", bench.who(), stderr(&output));
        for number in 0..5 {
            assert!(!bench.workspace.join(format!("d{number}")).exists(), "{}", bench.who());
            let at = bench.workspace.join(format!("e{number}"));
            assert_eq!(fs::read_dir(&at).unwrap().count(), 1500, "{}: {number}", bench.who());
        }
    });
}

/// Moves directories while a process writes to the further name of a file, right after its first name has come to the new place.
/// Prints how many writes succeeded, and those that are not there afterwards.
const WRITE_TO_A_FURTHER_NAME: &str = r"
import glob, os
written, lost = 0, []
for turn in range(3):
    old, new = f'd{turn}', f'e{turn}'
    names = [(name, os.listdir(f'{old}/{name}')) for name in os.listdir(old)]
    child = os.fork()
    if child == 0:
        os.rename(old, new)
        os._exit(0)
    made, reached = [], []
    while not made and os.path.exists(old):
        made = glob.glob('.nexus-moving-*')
    for name, (first, second) in names:
        while not os.path.exists(f'{made[0]}/{name}/{first}') and os.path.exists(made[0]):
            pass
        try:
            file = os.open(f'{old}/{name}/{second}', os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            continue
        os.write(file, b'more')
        os.close(file)
        reached.append(f'{new}/{name}/{second}')
    os.waitpid(child, 0)
    written += len(reached)
    lost += [path for path in reached if open(path).read() != 'textmore']
print('written:', written > 0, 'lost:', lost)
";

#[test]
fn what_is_written_to_a_hard_link_during_a_move_is_kept() {
    on_each_bench(|bench| {
        for turn in 0..3 {
            for directory in 0..600 {
                bench.write(&format!("d{turn}/{directory}/a"), "text");
                let at = bench.workspace.join(format!("d{turn}/{directory}"));
                fs::hard_link(at.join("a"), at.join("b")).unwrap();
            }
        }
        bench.write("write.py", WRITE_TO_A_FURTHER_NAME);
        // Root's kernel moves a directory at once.
        if bench.user.is_some() || !support::is_root() {
            let output = bench.run(["run", "--timeout", "120s", "--", "python3", "write.py"]);
            assert_eq!(stdout(&output), "written: True lost: []\n", "{}: {}", bench.who(), stderr(&output));
        }
    });
}

#[test]
fn what_waits_in_a_directory_that_moves_waits() {
    on_each_bench(|bench| {
        bench.write("d/a", "a");
        bench.write("d/.vscode/tasks.json", "{}");
        let output = bench.run(["run", "--", "python3", "-c", "import os; os.rename('d', 'e')"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("waiting for a decision"), "{}: {}", bench.who(), stderr(&output));
        assert!(!bench.workspace.join("e/.vscode").exists(), "{}", bench.who());
        let accepted = bench.run(["changes", "accept", "--protected"]);
        assert_eq!(accepted.status.code(), Some(0), "{}", stderr(&accepted));
        assert!(bench.workspace.join("e/.vscode/tasks.json").exists() && !bench.workspace.join("d").exists());
    });
}

/// Takes all rights to files from itself but those in `allowed`, as a tool does that sandboxes its own commands, and moves.
const RESTRICTED: &str = r"
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    result = libc.syscall(*arguments)
    assert result >= 0, os.strerror(ctypes.get_errno())
    return result
os.rename('plain', 'moved')
rights = (1 << 14) - 1
ruleset = call(444, struct.pack('Q', rights), 8, 0)
call(445, ruleset, 1, struct.pack('=Qi', rights, os.open('allowed', os.O_PATH)), 0)
call(446, ruleset, 0)
for old, new in [('outside', 'allowed/got'), ('allowed/own', 'other'), ('/proc/self/cwd/outside', 'allowed/got')]:
    try:
        os.rename(old, new)
        print('moved', old)
    except OSError as error:
        print('refused', old)
";

#[test]
fn a_process_that_restricts_itself_gets_no_help_around_it() {
    on_each_bench(|bench| {
        for path in ["outside/secret", "allowed/own/x", "plain/x", "after/x"] {
            bench.write(path, "x");
        }
        bench.write("restricted.py", RESTRICTED);
        let output =
            ran(&bench, "python3 restricted.py; mv after after2; cat outside/secret allowed/own/x moved/x after2/x");
        let refused = "refused outside\nrefused allowed/own\nrefused /proc/self/cwd/outside\n";
        assert_eq!(stdout(&output), format!("{refused}xxxx"), "{}: {}", bench.who(), stderr(&output));
    });
}

#[test]
fn a_path_through_proc_self_means_the_callers_own_directory() {
    on_each_bench(|bench| {
        bench.write("tmp/cache/x", "x");
        let text = "mkdir -p /tmp/cache && touch /tmp/cache/own && python3 -c 'import os
try:
    os.rename(\"/proc/self/cwd/tmp/cache\", \"/proc/self/cwd/tmp/moved\")
except OSError: pass'; ls /tmp/cache; cat tmp/*/x";
        assert_eq!(stdout(&ran(&bench, text)), "own\nx", "{}", bench.who());
    });
}

/// The name that a helper gives a directory until it is whole.
const UNFINISHED: &str = ".nexus-moving-0123456789abcdef";

/// Runs a script, and looks that what has the name of an unfinished move waits, is shown, and does not come with the rest.
fn waits_and_is_shown(bench: &Bench, script: &str) {
    let script = script.replace("NAME", UNFINISHED);
    let output = bench.run(["run", "--changes", "commit", "--shell", &format!("set -e; {script}")]);
    let context = format!("{}: {script}: {}", bench.who(), stderr(&output));
    let found = || {
        let listed = bench.command("find").args([".", "-path", &format!("*{UNFINISHED}*"), "-newer", "start"]).output();
        stdout(&listed.unwrap())
    };
    assert_eq!(found(), "", "{context}");
    let shown = stdout(&bench.run(["changes", "show"]));
    assert!(shown.contains(UNFINISHED), "{context}: {shown}");
    bench.run(["changes", "accept"]);
    assert_eq!(found(), "", "{context}: accepted");
    bench.run(["changes", "reject"]);
}

#[test]
fn a_directory_with_the_name_of_an_unfinished_move_brings_nothing_unseen() {
    on_each_bench(|bench| {
        for directory in ["old", "other", "target", "kept"] {
            bench.write(&format!("{directory}/there"), "x");
        }
        bench.write(&format!("kept/{UNFINISHED}/of-the-host"), "x");
        bench.write("start", "");
        let contents =
            ["mkdir -p AT/.vscode; echo evil > AT/.vscode/tasks.json", "mkdir -p AT; echo x > AT/plain", "echo x > AT"];
        for place in ["new", "old/new", "git/.git/refs/heads/new"] {
            for (number, content) in contents.iter().enumerate() {
                // In a directory that the workspace has, what was being moved is left out.
                let place = format!("{place}{number}");
                let content = content.replace("AT", &format!("{place}/NAME"));
                waits_and_is_shown(&bench, &format!("mkdir -p {place}; echo x > {place}/a; {content}"));
            }
        }
        // Directories that are renamed or replaced as a whole, also by one of another name.
        waits_and_is_shown(
            &bench,
            "rm -r other; mkdir other; echo y > other/there; mkdir other/NAME; echo x > other/NAME/x",
        );
        waits_and_is_shown(&bench, "mkdir old/NAME; echo x > old/NAME/x; rm -r target; mv old target");
        waits_and_is_shown(&bench, "mkdir target/NAME; echo x > target/NAME/x; mv target moved");
        // One that the workspace has is a directory like others, which waits by its name.
        waits_and_is_shown(&bench, "echo run >> kept/NAME/of-the-host; echo x > kept/NAME/x");
        assert_eq!(fs::read_to_string(bench.workspace.join("kept").join(UNFINISHED).join("of-the-host")).unwrap(), "x");
        // Two new directories with nothing else, as a move into them leaves them that is killed. They come, and it stays.
        let text = format!("mkdir -p n/m/{UNFINISHED} && echo x > n/m/{UNFINISHED}/f");
        bench.run(["run", "--changes", "commit", "--shell", &text]);
        assert!(bench.workspace.join("n/m").is_dir(), "{}", bench.who());
        for _ in 0..2 {
            let shown = stdout(&bench.run(["changes", "show"]));
            assert!(shown.contains(UNFINISHED), "{}: {shown}", bench.who());
            bench.run(["changes", "accept"]);
            assert!(!bench.workspace.join("n/m").join(UNFINISHED).exists(), "{}", bench.who());
        }
        assert!(bench.run(["changes", "reject"]).status.success(), "{}", bench.who());
        assert_eq!(bench.run(["changes", "show"]).status.code(), Some(125), "{}: nothing waits", bench.who());
    });
}
