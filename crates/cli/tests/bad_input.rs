//! Wrong use, strange names and broken surroundings: one line that says what to do, the documented exit code, and
//! nothing run or left behind; or, where the input is only strange, a run like any other.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::traces::{Lone, lone_benches};
use support::{is_root, stderr, stdout, wait_until};

/// Command of each refused run; it leaves a trace where it starts.
const RUN: [&str; 4] = ["--", "sh", "-c", "echo STARTED; touch ran"];

/// The output is one line with these words, and nothing of a run can be seen.
fn assert_refused(bench: &Lone, output: &Output, exit: i32, words: &str, what: &str) {
    let (out, err) = (stdout(output), stderr(output));
    assert_eq!(output.status.code(), Some(exit), "{}, {what}: {out}{err}", bench.who());
    assert_eq!(out, "", "{}, {what}: something ran: {err}", bench.who());
    // A command that was found and could not be executed has a second line, with advice.
    let lines = if exit > 125 { 1..=2 } else { 1..=1 };
    assert!(lines.contains(&err.lines().count()), "{}, {what}: {err}", bench.who());
    assert!(err.starts_with("nexus: ") && err.contains(words), "{}, {what}: no {words:?} in: {err}", bench.who());
    // What happened and what to do are two sentences.
    assert!(err.contains(". ") || exit > 125, "{}, {what}: no advice: {err}", bench.who());
}

/// `nexus run FLAGS -- a command` is refused like that.
fn refuses(bench: &Lone, flags: &[&OsStr], exit: i32, words: &str) {
    let what = format!("{flags:?}");
    let before = bench.before();
    let output = bench.nexus(["run"]).args(flags).args(RUN).output().unwrap();
    assert_refused(bench, &output, exit, words, &what);
    bench.assert_no_trace(&before, &what);
}

fn words<'a>(flags: &[&'a str]) -> Vec<&'a OsStr> {
    flags.iter().map(|flag| OsStr::new(*flag)).collect()
}

#[test]
fn wrong_use_is_one_line_and_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["--memory", "lots"], "is not a size"),
        (&["--memory", "-1"], "unexpected argument '-1'"),
        (&["--memory", "1.5G"], "is not a size"),
        (&["--memory", ""], "--memory"),
        (&["--memory", "0"], "zero memory"),
        (&["--memory", "99999999999T"], "is not a size"),
        (&["--cpus", "all"], "is not a number of processors"),
        (&["--cpus", "0"], "is not a number of processors"),
        (&["--pids", "0"], "--pids"),
        (&["--pids", "many"], "--pids"),
        (&["--pids", "99999999999999999999"], "--pids"),
        (&["--timeout", "0"], "is too short: a time is at least 1ms"),
        (&["--timeout", "1 day"], "is not a time"),
        (&["--grace", "x"], "is not a time"),
        (&["--disk", "0"], "zero disk"),
        (&["--disk", "-4"], "unexpected argument '-4'"),
        (&["--max-output", "x"], "is not a size"),
        (&["--env", "=value"], "has no name"),
        (&["--env", ""], "has no name"),
        (&["--require", "everything"], "unknown guarantee"),
        (&["--net", "internet"], "--net"),
        (&["--sandbox", "none"], "--sandbox"),
        (&["--changes", "maybe"], "--changes"),
        (&["--frobnicate"], "--frobnicate"),
        (&["--memroy", "1G"], "--memory"),
        (&["--direct", "--disk", "1M"], "--direct"),
        (&["--direct", "--changes", "discard"], "--direct"),
        (&["--shell", "true"], "--shell"),
    ];
    for bench in lone_benches() {
        for (flags, expected) in cases {
            refuses(&bench, &words(flags), 2, expected);
        }
        let before = bench.before();
        for (line, expected) in [
            (&["run"][..], "no command to run"),
            (&["run", "--"], "no command to run"),
            (&["run", "--", ""], "no command"),
            (&["run", "--memory"], "--memory"),
            (&["frobnicate"], "frobnicate"),
            (&["changes", "show", "--run", "x"], "is not an id"),
        ] {
            assert_refused(&bench, &bench.run(line), 2, expected, &format!("{line:?}"));
        }
        bench.assert_no_trace(&before, "wrong use");
    }
}

#[test]
fn a_directory_that_cannot_be_a_workspace_is_refused() {
    for bench in lone_benches() {
        let base = bench.base.path();
        let link = base.join("link");
        symlink(&bench.home, &link).unwrap();
        bench.write("file", "x");
        let file = bench.workspace.join("file");
        let missing = base.join("missing");
        let workspace = OsStr::new("--workspace");
        for path in ["/", "/etc", "/tmp", "/usr", "/home", "/proc", "/dev", "/var/tmp", "/usr/../etc"] {
            refuses(&bench, &[workspace, OsStr::new(path)], 125, "it belongs to the system");
        }
        refuses(&bench, &[workspace, missing.as_os_str()], 125, "No such file");
        refuses(&bench, &[workspace, file.as_os_str()], 125, "Not a directory");
        refuses(&bench, &[workspace, OsStr::new("")], 2, "a value is required");
        refuses(&bench, &[workspace, bench.home.as_os_str()], 125, "is your home directory");
        refuses(&bench, &[workspace, link.as_os_str()], 125, "is your home directory");
        // The other way round: HOME is the link.
        let output =
            bench.nexus(["run"]).arg(workspace).arg(&bench.home).args(RUN).env("HOME", &link).output().unwrap();
        assert_refused(&bench, &output, 125, "is your home directory", "HOME is a link");
        assert!(!bench.home.join("ran").exists());
        // The current directory counts when none is named.
        let output = bench.nexus(["run"]).args(RUN).current_dir(&bench.home).output().unwrap();
        assert_refused(&bench, &output, 125, "is your home directory", "HOME is the current folder");
        let output = bench.nexus(["run"]).args(RUN).current_dir("/").output().unwrap();
        assert_refused(&bench, &output, 125, "it belongs to the system", "the current folder is /");
        // Root can read everything.
        if !rustix::process::geteuid().is_root() || bench.user.is_some() {
            for mode in [0o000, 0o300, 0o600] {
                let closed = base.join(format!("closed{mode:o}"));
                fs::create_dir(&closed).unwrap();
                bench.give(&closed);
                fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
                refuses(&bench, &[workspace, closed.as_os_str()], 125, "Permission denied");
                fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
            }
        }
    }
}

#[test]
fn a_state_directory_that_cannot_be_trusted_is_refused_and_not_made() {
    for bench in lone_benches() {
        let base = bench.base.path();
        let refused = |state: &Path, workspace: &Path, expected: &str| {
            let what = format!("state {} workspace {}", state.display(), workspace.display());
            let before = bench.before();
            let mut command = bench.nexus(["run", "--workspace"]);
            let output = command.arg(workspace).args(RUN).env("NEXUS_STATE_DIR", state).output().unwrap();
            assert_refused(&bench, &output, 125, expected, &what);
            bench.assert_no_trace(&before, &what);
        };
        let link = base.join("to-workspace");
        symlink(&bench.workspace, &link).unwrap();
        // New ones must not even be made there.
        refused(&bench.workspace.join("state"), &bench.workspace, "lies inside the workspace");
        refused(&bench.workspace.join("a/b/state"), &bench.workspace, "lies inside the workspace");
        refused(&link.join("state"), &bench.workspace, "lies inside the workspace");
        refused(&bench.workspace, &bench.workspace, "lies inside the workspace");
        let inside = bench.state.join("project");
        fs::create_dir(&inside).unwrap();
        bench.give(&inside);
        refused(&bench.state, &inside, "inside the state directory");
        refused(Path::new("state"), &bench.workspace, "not an absolute path");
        for mode in [0o777, 0o720, 0o1777] {
            fs::set_permissions(&bench.state, fs::Permissions::from_mode(mode)).unwrap();
            refused(&bench.state, &bench.workspace, "only you can write");
        }
        fs::set_permissions(&bench.state, fs::Permissions::from_mode(0o700)).unwrap();
        let file = base.join("plain");
        fs::write(&file, "x").unwrap();
        bench.give(&file);
        refused(&file, &bench.workspace, "is not a directory");
        // Another user's.
        if bench.user.is_some() {
            refused(Path::new("/root/nexus"), &bench.workspace, "cannot be used");
            refused(Path::new("/etc"), &bench.workspace, "only you can write");
        }
    }
}

#[test]
fn binds_that_cover_or_open_what_they_must_not_are_refused() {
    for bench in lone_benches() {
        let base = bench.base.path();
        let (one, two) = (base.join("one"), base.join("two"));
        for folder in [&one, &two] {
            fs::create_dir(folder).unwrap();
            bench.give(folder);
        }
        let bind = |source: &Path, target: &str| {
            let mut text = source.as_os_str().to_owned();
            text.push(":");
            text.push(target);
            text
        };
        let refused = |flags: &[&OsStr], expected: &str| refuses(&bench, flags, 125, expected);
        let (ro, rw) = (OsStr::new("--ro"), OsStr::new("--rw"));
        refused(&[ro, &bind(&one, "/data"), ro, &bind(&two, "/data")], "same place");
        refused(&[ro, &bind(&one, "/data"), rw, &bind(&two, "/data/")], "same place");
        for flag in [ro, rw] {
            for place in ["/usr", "/usr/lib/x", "/proc", "/proc/1", "/dev/x", "/sys", "/", "/etc", "/bin"] {
                refused(&[flag, &bind(&one, place)], "would cover");
            }
            refused(&[flag, &bind(&one, bench.workspace.to_str().unwrap())], "would cover the workspace");
            refused(&[flag, &bind(&one, base.to_str().unwrap())], "would cover the workspace");
            refused(&[flag, &bind(&one, "/a/../b")], "without . and ..");
            refused(&[flag, base.as_os_str()], "would show the state directory");
            refused(&[flag, &bind(&bench.state, "/data")], "would show the state directory");
            refused(&[flag, &bind(&bench.state.join("runs/.."), "/data")], "");
            refused(&[flag, OsStr::new("/")], "would show the state directory");
            refused(&[flag, &bind(&base.join("missing"), "/data")], "No such file");
            refused(&[flag, OsStr::new("")], "needs a path");
            refused(&[flag, OsStr::new(":/data")], "needs a path");
            let nowhere = bench.workspace.join("nowhere");
            refused(&[flag, &bind(&one, nowhere.to_str().unwrap())], "needs an existing place");
            refused(&[OsStr::new("--direct"), flag, &bind(&one, nowhere.to_str().unwrap())], "needs an existing place");
        }
        refused(&[rw, &bind(&bench.workspace, "/data")], "holds the workspace");
        let link = base.join("link");
        symlink(&bench.workspace, &link).unwrap();
        refused(&[rw, &bind(&link, "/data")], "holds the workspace");
    }
}

#[test]
fn a_working_directory_outside_is_refused() {
    for bench in lone_benches() {
        bench.write("file", "x");
        symlink("/usr", bench.workspace.join("out")).unwrap();
        symlink("nowhere", bench.workspace.join("dangling")).unwrap();
        for (cwd, expected) in [
            ("..", "is not inside the workspace"),
            ("/usr", "is not inside the workspace"),
            ("out", "is not inside the workspace"),
            ("out/../..", "is not inside the workspace"),
            ("missing", "No such file"),
            ("dangling", "No such file"),
            ("file", "is not a directory"),
            ("file/x", "Not a directory"),
        ] {
            refuses(&bench, &words(&["--cwd", cwd]), 125, expected);
        }
    }
}

#[test]
fn a_command_that_cannot_be_executed_says_why() {
    for bench in lone_benches() {
        bench.write("plain", "no program");
        let bad = bench.write("bad", "#!/no/such/interpreter\n");
        fs::set_permissions(bad, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(bench.workspace.join("folder")).unwrap();
        for (command, exit) in [
            ("no-such-command", 127),
            ("./missing", 127),
            ("/no/such/file", 127),
            ("./bad", 127),
            ("./plain", 126),
            ("./folder", 126),
        ] {
            let before = bench.before();
            assert_refused(&bench, &bench.run(["run", "--", command]), exit, command, command);
            bench.assert_no_trace(&before, command);
        }
    }
}

/// Returns the largest command line of execve(2): a quarter of the stack's limit, and never more than 6 MiB.
fn largest_command_line() -> usize {
    let stack = rustix::process::getrlimit(rustix::process::Resource::Stack).current.unwrap_or(u64::MAX);
    usize::try_from((stack / 4).min(6 << 20)).unwrap()
}

#[test]
fn the_longest_argument_arrives_whole_and_too_many_are_refused_clearly() {
    for bench in lone_benches() {
        let long = "x".repeat(131_071);
        let output = bench.run(["run", "--", "/bin/echo", &long]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(output.stdout.len(), long.len() + 1);
        let most = largest_command_line();
        let echo = |last: usize| {
            let mut command = bench.nexus(["run", "--", "/bin/echo"]);
            // The kernel counts a pointer for each, too.
            command.args(vec![long.as_str(); (most - 100_000) / 131_080]).arg("y".repeat(last));
            command.env_clear().env("NEXUS_STATE_DIR", &bench.state).stdout(Stdio::null()).output()
        };
        // As much as fits outside: inside, where a few variables more are set, the same is a little too much.
        let (mut fits, mut too_much) = (1, 131_072);
        while too_much - fits > 1 {
            let middle = usize::midpoint(fits, too_much);
            match echo(middle) {
                Ok(_) => fits = middle,
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ArgumentListTooLong);
                    too_much = middle;
                }
            }
        }
        assert_refused(&bench, &echo(fits).unwrap(), 126, "Argument list too long", "a full command line");
        let output = echo(fits - 2_000).unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

/// Names that a careless mount option, shell line or message would break on.
fn strange_names() -> Vec<OsString> {
    let mut names: Vec<OsString> = [
        "with space",
        "new\nline",
        "co:lon",
        "com,ma",
        "back\\slash",
        "quo\"te'",
        "-dash",
        "$(x)",
        "*",
        "tab\t",
        "\u{1b}[31m",
        "ünï",
        "=",
        "%s",
    ]
    .into_iter()
    .map(OsString::from)
    .collect();
    names.push(OsString::from_vec(vec![0xff, 0xfe, b'x']));
    names
}

#[test]
fn a_workspace_with_a_strange_name_works_in_every_mode() {
    for bench in lone_benches() {
        for name in strange_names() {
            let workspace = bench.base.path().join(&name);
            fs::create_dir(&workspace).unwrap();
            bench.give(&workspace);
            for flags in [&[][..], &["--direct"], &["--disk", "4M"]] {
                let mut command = bench.nexus(["run"]);
                let output = command
                    .args(flags)
                    .args(["--shell", "pwd; echo content > made; mkdir -p sub; echo more > sub/file"])
                    .current_dir(&workspace)
                    .output()
                    .unwrap();
                let what = format!("{}, {name:?} {flags:?}: {}", bench.who(), stderr(&output));
                assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{what}");
                let mut expected = workspace.as_os_str().as_bytes().to_vec();
                expected.push(b'\n');
                assert_eq!(output.stdout, expected, "{what}");
                assert_eq!(fs::read_to_string(workspace.join("made")).unwrap(), "content\n", "{what}");
                assert_eq!(fs::read_to_string(workspace.join("sub/file")).unwrap(), "more\n", "{what}");
                fs::remove_file(workspace.join("made")).unwrap();
                fs::remove_dir_all(workspace.join("sub")).unwrap();
            }
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        }
    }
}

#[test]
fn strange_file_names_and_bytes_pass_unchanged() {
    for bench in lone_benches() {
        let all: Vec<u8> = (0..=255).collect();
        bench.write("bytes", &all);
        let output = bench.run(["run", "--shell", "cat bytes; cat bytes >&2"]);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (all.as_slice(), all.as_slice()));

        for name in strange_names() {
            let output = bench.nexus([
                "run",
                "--",
                "sh",
                "-c",
                "echo inside > \"$1\"; mkdir -p dir; mv -- \"$1\" \"dir/$1\"",
                "sh",
            ]);
            let output = { output }.arg(Path::new(".").join(&name)).output().unwrap();
            assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{name:?}");
            assert_eq!(fs::read_to_string(bench.workspace.join("dir").join(&name)).unwrap(), "inside\n", "{name:?}");
        }

        let mut command = bench.nexus(["run", "--json", "--", "sh", "-c", "cat bytes; echo x > \"$1\"", "sh"]);
        let output = command.arg(OsStr::from_bytes(b"\xff\xfe")).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0BBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWltcXV5fYGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn+AgYKDhIWGh4iJiouMjY6PkJGSk5SVlpeYmZqbnJ2en6ChoqOkpaanqKmqq6ytrq+wsbKztLW2t7i5uru8vb6/wMHCw8TFxsfIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t/g4eLj5OXm5+jp6uvs7e7v8PHy8/T19vf4+fr7/P3+/w==";
        assert_eq!(report["output"]["stdout"]["base64"], expected, "{report}");
        assert_eq!(report["changes"]["changes"][0]["path"]["base64"], "//4=", "{report}");
        assert!(bench.workspace.join(OsStr::from_bytes(b"\xff\xfe")).exists());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

/// A line of a shell that runs `nexus` as `$0`.
fn shell(bench: &Lone, line: &str) -> Command {
    let program = bench.nexus::<_, &str>([]).get_program().to_owned();
    let mut command = bench.command("/bin/bash");
    command.args(["-c", line]).arg(program);
    command
}

#[test]
fn output_that_goes_nowhere_ends_the_run_at_once() {
    for bench in lone_benches() {
        let before = bench.before();
        for (line, expected) in [
            ("$0 changes list >&-", ""),
            ("$0 run -- echo hello >&-", ""),
            ("$0 run -- echo hello >&- 2>&-", ""),
            ("$0 run -- cat <&-", ""),
            ("$0 run --stdin -- cat <&-", ""),
            ("$0 run -- cat <&- >&- 2>&-", ""),
            ("setsid --wait $0 run -- sh -c 'echo free; test ! -t 0'", "free\n"),
            ("$0 run -- yes | head -1", "y\n"),
            ("$0 run -- yes 2>&1 | head -1", "y\n"),
            ("$0 run --shell 'yes >&2' 2>&1 | head -1", "y\n"),
        ] {
            let began = Instant::now();
            let output = shell(&bench, line).output().unwrap();
            assert_eq!(
                (output.status.code(), stdout(&output).as_str()),
                (Some(0), expected),
                "{line}: {}",
                stderr(&output)
            );
            assert!(began.elapsed() < Duration::from_secs(5), "{line}: {:?}", began.elapsed());
            if line.contains("touch ran") {
                assert!(stderr(&output).contains("its changes are parked"), "{line}: {}", stderr(&output));
                assert!(stdout(&bench.run(["changes", "show"])).contains("A ran"), "{line}");
                assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0), "{line}");
                assert!(!bench.workspace.join("ran").exists(), "{line}");
            }
            bench.assert_no_trace(&before, line);
        }
    }
}

#[test]
fn output_that_cannot_be_written_is_125_and_parks_the_changes() {
    for bench in lone_benches() {
        let before = bench.before();
        for line in [
            "$0 run --shell 'touch ran; echo hello; sleep 60' > /dev/full",
            "$0 run --max-output 4 --shell 'touch ran; echo hello' > /dev/full",
            "$0 run --json -- echo x > /dev/full",
            "$0 changes list > /dev/full",
            "$0 doctor > /dev/full",
            "$0 --help > /dev/full",
            "$0 --version > /dev/full",
            "exec > /dev/full; $0 run --shell 'touch ran; echo x'",
        ] {
            let began = Instant::now();
            let output = shell(&bench, line).output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{line}: {}", stderr(&output));
            assert!(stderr(&output).contains("No space left on device"), "{line}: {}", stderr(&output));
            assert_eq!(stderr(&output).lines().count(), 1, "{line}: {}", stderr(&output));
            assert!(began.elapsed() < Duration::from_secs(5), "{line}: {:?}", began.elapsed());
            if line.contains("touch ran") {
                assert!(stderr(&output).contains("its changes are parked"), "{line}: {}", stderr(&output));
                assert!(stdout(&bench.run(["changes", "show"])).contains("A ran"), "{line}");
                assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0), "{line}");
                assert!(!bench.workspace.join("ran").exists(), "{line}");
            }
            bench.assert_no_trace(&before, line);
        }
    }
}

#[test]
fn full_output_on_a_full_disk_ends_the_run_and_parks_the_changes() {
    for bench in lone_benches() {
        let small = "D=$(dirname $STATE)/home; mount -t tmpfs -o size=64k,$OWNER none $D";
        let script = "$0 run --full-output $(dirname $STATE)/home/log --shell 'touch ran; head -c 1M /dev/zero; sleep 60' \
                      > /dev/null; echo code $?; ls -A $(dirname $STATE)/home $WORKSPACE | grep -v :";
        let output = with_mounts(&bench, small, script);
        let (out, err) = (stdout(&output), stderr(&output));
        assert_eq!(out.trim(), "code 125", "{}: {err}", bench.who());
        assert!(err.contains("No space left on device") && err.lines().count() == 1, "{err}");
        assert!(err.contains("its changes are parked"), "{err}");
        assert!(stdout(&bench.run(["changes", "list"])).contains("touch ran"), "{err}");
        bench.assert_no_process(Duration::from_secs(5), "a full disk for the output");
    }
}

#[test]
fn a_run_works_without_a_terminal_and_a_current_directory() {
    for bench in lone_benches() {
        let gone = bench.home.join("gone");
        fs::create_dir(&gone).unwrap();
        bench.give(&gone);
        let line = format!("cd {0} && rmdir {0} && $0 run -- true", gone.display());
        let output = shell(&bench, &line).output().unwrap();
        assert_refused(&bench, &output, 125, "the current directory cannot be used", "no current directory");
        let workspace = bench.workspace.display();
        fs::create_dir(&gone).unwrap();
        bench.give(&gone);
        let line = format!("cd {0} && rmdir {0} && $0 run --workspace {workspace} -- pwd", gone.display());
        let output = shell(&bench, &line).output().unwrap();
        assert_eq!(stdout(&output), format!("{workspace}\n"), "{}", stderr(&output));
    }
}

/// Runs a script of bash as this bench's identity, after another one as root in a mount namespace of its own.
fn with_mounts(bench: &Lone, as_root: &str, script: &str) -> Output {
    assert!(is_root(), "this test mounts file systems: run it as root");
    let uid = bench.user.unwrap_or(0);
    let drop = if uid == 0 { String::new() } else { format!("setpriv --reuid {uid} --regid {uid} --clear-groups ") };
    let program = bench.nexus::<_, &str>([]).get_program().to_owned();
    let line = format!("set -e; {as_root}\ncd /; cd \"$WORKSPACE\"; exec {drop}bash -c \"$SCRIPT\" \"$0\"");
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "private", "bash", "-c", &line])
        .arg(program)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", &bench.home)
        .env("NEXUS_STATE_DIR", &bench.state)
        .env("STATE", &bench.state)
        .env("WORKSPACE", &bench.workspace)
        .env("OWNER", format!("uid={uid},gid={uid},mode=755"))
        .env("SCRIPT", script)
        .stdin(Stdio::null());
    command.output().unwrap()
}

#[test]
fn a_full_state_directory_is_125_and_nothing_runs() {
    for bench in lone_benches() {
        // No more bytes, and no more files at each point of the preparation.
        let bytes = "mount -t tmpfs -o size=64k,$OWNER none $STATE; head -c 64k /dev/zero > $STATE/fill".to_owned();
        let inodes = (2..32).map(|inodes| format!("mount -t tmpfs -o nr_inodes={inodes},$OWNER none $STATE"));
        let mut ran = 0;
        for full in std::iter::once(bytes).chain(inodes) {
            let script = "$0 run -- sh -c 'echo STARTED' 2> /dev/shm/err.$$; code=$?; cat /dev/shm/err.$$ >&2; rm /dev/shm/err.$$; \
                          find $STATE -mindepth 2 -not -path '*/keys/*' -not -path '*/receipts/*' -not -path '*/spare/*'; exit $code";
            let output = with_mounts(&bench, &format!("{full}; chmod 700 $STATE"), script);
            let (out, err) = (stdout(&output), stderr(&output));
            if output.status.code() == Some(0) {
                ran += 1;
                assert_eq!(out, "STARTED\n", "{}, {full}: {err}", bench.who());
            } else {
                // The receipt is written last; a run without one is reported and is not a success.
                let started = if err.contains("the run has no receipt") { "STARTED\n" } else { "" };
                assert_eq!(
                    (output.status.code(), out.as_str()),
                    (Some(125), started),
                    "{}, {full}: {err}",
                    bench.who()
                );
                let named = err.contains("No space left") || err.contains("disk is full");
                assert!(named && err.lines().count() == 1, "{}, {full}: {err}", bench.who());
            }
        }
        assert!(ran > 0 && ran < 26, "{}: {ran} of 31 were enough", bench.who());
        bench.assert_no_process(Duration::from_secs(5), "a full disk");
    }
}

#[test]
fn a_full_workspace_keeps_the_changes_and_is_no_success() {
    for bench in lone_benches() {
        let full = "mount -t tmpfs -o size=1m,$OWNER none $WORKSPACE; echo old > $WORKSPACE/old; \
                    head -c 900k /dev/zero > $WORKSPACE/fill; chown -R $(stat -c %u:%g $WORKSPACE) $WORKSPACE";
        let script = "$0 run --shell 'head -c 600k /dev/zero > a; head -c 600k /dev/zero > b; echo new > old; rm fill'; echo code $?; \
                      ls -A; cat old; $0 changes list; $0 changes show; $0 run -- true; echo code $?; ls -A; cat old; \
                      $0 changes reject; $0 changes list; ls -A $STATE/layers $STATE/runs";
        let output = with_mounts(&bench, full, script);
        let (out, err) = (stdout(&output), stderr(&output));
        let what = format!("{}: {out}\n{err}", bench.who());
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[..4], ["code 125", "fill", "old", "old"], "{what}");
        assert!(lines[4].contains(bench.workspace.to_str().unwrap()) && lines[4].contains("head -c 600k"), "{what}");
        assert!(
            out.contains("A a ") && out.contains("A b ") && out.contains("M old") && out.contains("D fill"),
            "{what}"
        );
        assert!(out.contains("code 0\nfill\nold\nold\n"), "{what}");
        assert!(out.contains("are gone.\nNo changes wait for a decision.\n"), "{what}");
        assert_eq!(err.lines().count(), 1, "{what}");
        assert!(err.contains("could not be committed") && err.contains("nexus changes show --run"), "{what}");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_commit_without_room_for_its_copies_changes_nothing_and_waits() {
    for bench in lone_benches() {
        // A closed directory is not counted beforehand for an ordinary user; root sees into everything.
        if bench.user.is_none() && is_root() {
            continue;
        }
        let full = "mount -t tmpfs -o size=4m,$OWNER none $WORKSPACE; head -c 2M /dev/zero > $WORKSPACE/fill; \
                    chown $(stat -c %u:%g $WORKSPACE) $WORKSPACE/fill";
        let script = "$0 run --shell 'echo a > a; mkdir d; head -c 3M /dev/zero > d/b; chmod 0 d; echo z > z'; echo code $?; \
                      ls -A; $0 run -- true; echo code $?; rm fill; $0 changes accept > /dev/null; echo code $?; \
                      ls -A; chmod 700 d; stat -c %s d/b; cat a z; ls -A $STATE/layers $STATE/runs | grep -v :";
        let output = with_mounts(&bench, full, script);
        let (out, err) = (stdout(&output), stderr(&output));
        let expected = "code 125\nfill\ncode 0\ncode 0\na\nd\nz\n3145728\na\nz\n\n";
        assert_eq!(out, expected, "{err}");
        assert!(err.contains("could not be committed") && err.contains("No space left"), "{err}");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn closing_the_reader_while_much_is_written_never_hangs() {
    for bench in lone_benches() {
        let mut child = bench
            .nexus(["run", "--shell", "yes | head -c 20000000; touch finished"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        wait_until("the end", Duration::from_secs(10), || child.try_wait().unwrap().is_some());
        bench.assert_no_process(Duration::from_secs(5), "a closed reader");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_completion_script_that_cannot_be_written_is_a_failure_and_no_panic() {
    for bench in lone_benches() {
        for shell in ["bash", "zsh", "fish"] {
            let output = bench.run(["completions", shell]);
            assert!(output.status.success() && stdout(&output).contains("nexus"), "{shell}: {}", stderr(&output));
            let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            let output = bench.nexus(["completions", shell]).stdout(full).output().unwrap();
            assert_refused(&bench, &output, 125, "could not be written", shell);
            // A reader that has gone wants no more; that is not a failure.
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            drop(reader);
            let output = bench.nexus(["completions", shell]).stdout(writer).output().unwrap();
            assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{shell}");
            // None at all.
            let mut command = bench.command("/bin/sh");
            command.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(bench.nexus([""]).get_program());
            let output = command.args(["completions", shell]).output().unwrap();
            assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{shell}");
        }
    }
}

#[test]
fn wrong_use_with_json_prints_a_document_too() {
    let cases: &[(&[&str], u8, &str)] = &[
        (&["--json", "--memory", "x"], 2, "usage"),
        (&["--memory", "x", "--json"], 2, "usage"),
        (&["--json", "--changes", "ask"], 2, "ask"),
        (&["--json", "--memory", "0"], 2, "plan"),
        (&["--json", "--frobnicate"], 2, "usage"),
        (&["--json", "--tty"], 2, "usage"),
        (&["--json", "--sandbox", "host"], 125, "not_in_this_version"),
    ];
    for bench in lone_benches() {
        for (flags, exit, code) in cases {
            let output = bench.nexus(["run"]).args(*flags).args(RUN).output().unwrap();
            let what = format!("{}, {flags:?}: {}{}", bench.who(), stdout(&output), stderr(&output));
            assert_eq!(output.status.code(), Some((*exit).into()), "{what}");
            let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            assert_eq!(document["schema"], "nexus.run/1", "{what}");
            assert_eq!((&document["exit_code"], &document["error"]["code"]), (&(*exit).into(), &(*code).into()));
            let reason = if *exit == 2 { serde_json::Value::Null } else { "driver_failed".into() };
            assert_eq!(document.get("reason"), Some(&reason), "{what}");
            assert_eq!(stderr(&output).lines().count(), 1, "{what}");
        }
        // The command's own --json, and other commands' documents, are something else.
        for line in
            [&["run", "--memory", "x", "--", "tool", "--json"][..], &["run", "tool", "--json"], &["doctor", "--jsn"]]
        {
            let output = bench.nexus(line).args(["--frobnicate"]).output().unwrap();
            assert!(!stdout(&output).contains("nexus.run/1"), "{line:?}: {}", stdout(&output));
        }
    }
}

#[test]
fn a_list_of_waiting_changes_as_json_loses_no_byte() {
    for bench in lone_benches() {
        let folder = bench.base.path().join(OsStr::from_bytes(b"ws-\xff"));
        fs::create_dir(&folder).unwrap();
        bench.give(&folder);
        let mut command = bench.nexus(["run", "--changes", "review", "--workspace"]);
        let output = command.arg(&folder).args(["--", "touch"]).arg(OsStr::from_bytes(b"a-\xfe")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let list = bench.run(["changes", "list", "--json"]);
        let rows: Vec<std::collections::BTreeMap<String, serde_json::Value>> =
            serde_json::from_slice(&list.stdout).unwrap();
        let bytes = |field: &str| -> nexus_model::ByteText { serde_json::from_value(rows[0][field].clone()).unwrap() };
        assert_eq!(bytes("workspace").as_path(), folder);
        assert_eq!(bytes("command").0, b"touch a-\xfe");
        let output = bench.nexus(["changes", "reject"]).current_dir(&folder).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}
