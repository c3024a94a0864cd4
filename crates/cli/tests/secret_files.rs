//! `--secret`: the command reads the value, and nothing else keeps it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::screen::Screen;
use support::session::PATIENCE;
use support::{Bench, benches, on_each_bench, report, stderr, stdout, wait_until};

/// A value that every encoding changes.
const VALUE: &str = "s3cr3t\"/\u{e9} +x&yz";
/// The value in base64 as it is and after two other bytes, in a URL, in a form and in JSON, by other programs.
const FORMS: [&str; 5] = [
    "czNjcjN0Ii/DqSAreCZ5eg",
    "zM2NyM3QiL8OpICt4Jnl6",
    "s3cr3t%22%2F%C3%A9%20%2Bx%26yz",
    "s3cr3t%22%2F%C3%A9+%2Bx%26yz",
    "s3cr3t\\\"/\\u00e9 +x&yz",
];

/// A value of a variable. The test that looks at every process of the machine must not find it in those of a test beside it.
const ENV_VALUE: &str = "fr0m-the-environment";

/// A file with the value, which only the user of `nexus` can read.
fn value_file(bench: &Bench, content: &str) -> PathBuf {
    let path = bench.at_home("vault/key", content);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn flag(path: &Path) -> String {
    format!("KEY=file:{}", path.display())
}

#[track_caller]
fn no_value(what: &str, bytes: &[u8]) {
    for form in [VALUE].iter().chain(&FORMS) {
        let found = bytes.windows(form.len()).any(|window| window == form.as_bytes());
        assert!(!found, "{what} holds {form}: {}", String::from_utf8_lossy(bytes));
    }
}

#[track_caller]
fn runs(bench: &Bench, output: &Output) -> String {
    assert!(output.status.success(), "{}: {}{}", bench.who(), stdout(output), stderr(output));
    stdout(output)
}

#[test]
fn a_secret_is_a_file_in_memory_that_nothing_inside_can_change() {
    for bench in benches() {
        let content = format!("{VALUE}\n\0\u{1}'");
        let path = value_file(&bench, &content);
        let sum = stdout(&Command::new("sha256sum").stdin(fs::File::open(&path).unwrap()).output().unwrap());
        let script = "cd /run/secrets; sha256sum < KEY; stat -c '%a %u' KEY; id -u; stat -f -c %T .; ls -A | wc -l; \
             for try in 'touch new' 'rm KEY' 'chmod 600 KEY' 'mv KEY new' 'ln -s x new' 'rmdir .' 'mv ../secrets ../old' \
             'mount -o remount,rw .' 'umount .'; do sh -c \"$try\" 2> /dev/null && echo \"$try\"; done; \
             echo x > KEY 2> /dev/null || echo kept; env | grep -c s3cr3t";
        let shown = stdout(&bench.run(["run", "--secret", &flag(&path), "--shell", script]));
        let lines: Vec<&str> = shown.lines().collect();
        let [first, mode, uid, kind, count, kept, in_env] = lines[..] else { panic!("{}: {shown}", bench.who()) };
        assert_eq!(format!("{first}\n"), sum, "{}: byte for byte", bench.who());
        assert_eq!(
            (mode, kind, count, kept, in_env),
            (format!("400 {uid}").as_str(), "ramfs", "1", "kept", "0"),
            "{}",
            bench.who()
        );
        let without = bench.run(["run", "--", "ls", "/run/secrets"]);
        assert_eq!(without.status.code(), Some(2), "{}: {}", bench.who(), stdout(&without));
    }
}

#[test]
fn output_shows_no_value_in_any_form_and_however_it_is_split() {
    for bench in benches() {
        let path = value_file(&bench, &format!("{VALUE}\n"));
        let forms = FORMS.map(|form| format!("<{form}>")).join("\n");
        bench.write("forms", forms);
        let full = bench.home.join("full");
        let script = "cat /run/secrets/KEY forms; base64 /run/secrets/KEY; cat /run/secrets/KEY >&2; \
             for n in 1 2 3; do head -c 7 /run/secrets/KEY; sleep 0.02; tail -c +8 /run/secrets/KEY; done; printf s3cr";
        let words = ["run", "--secret", &flag(&path), "--changes", "discard"];
        let output = bench.run([&words[..], &["--full-output", full.to_str().unwrap(), "--shell", script]].concat());
        let shown = runs(&bench, &output);
        let mark = "[secret KEY]";
        let bracketed = format!("<{mark}>\n").repeat(4);
        let wanted = format!("{mark}\n{bracketed}<{mark}>{mark}\n{}s3cr", format!("{mark}\n").repeat(3));
        assert_eq!(shown, wanted, "{}", bench.who());
        assert_eq!(stderr(&output), format!("{mark}\n"), "{}", bench.who());
        no_value("the file of all output", &fs::read(&full).unwrap());
        let json = bench.run([&words[..], &["--json", "--shell", script]].concat());
        no_value("the report", &json.stdout);
        assert!(report(&json)["output"]["stdout"]["text"].as_str().unwrap().starts_with(mark), "{}", stdout(&json));
        // The harmless twin: without the flag the same bytes come as they are.
        assert!(runs(&bench, &bench.run(["run", "--", "cat", "forms"])).contains(FORMS[0]));
    }
}

#[test]
fn a_terminal_works_and_shows_no_value() {
    for bench in benches() {
        let path = value_file(&bench, "first line of it\nsecond line of it\n");
        let mut screen =
            Screen::run(&bench, ["run", "--tty", "--secret", &flag(&path), "--changes", "discard", "--", "sh"]);
        screen.send("echo typed; cat /run/secrets/KEY; echo shown\n");
        screen.wait_for("\nshown");
        screen.send("printf 'first line'; sleep 0.05; echo ' of it'; exit 4\n");
        assert_eq!(screen.end().code(), Some(4), "{}: {}", bench.who(), screen.shown());
        let shown = screen.shown();
        assert!(shown.contains("[secret KEY]") && !shown.contains("line of it"), "{}: {shown}", bench.who());
    }
}

/// Looks for the value in every file of a bench but the one that has it, and in what every process of the machine shows.
fn search(bench: &Bench, vault: &Path, what: &str) {
    let mut waiting = vec![bench.base.path().to_owned()];
    let mut files = 0;
    while let Some(path) = waiting.pop() {
        let Ok(kind) = fs::symlink_metadata(&path) else { continue };
        if kind.is_dir() {
            waiting.extend(fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path()));
        } else if kind.is_file() && path != vault && path != bench.program() {
            no_value(&format!("{what}: {}", path.display()), &fs::read(&path).unwrap_or_default());
            files += 1;
        }
    }
    assert!(files > 2, "{what}: only {files} files were looked at");
    for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        for name in ["cmdline", "environ"] {
            let bytes = fs::read(entry.path().join(name)).unwrap_or_default();
            no_value(&format!("{what}: {}/{name}", entry.path().display()), &bytes);
        }
    }
}

#[test]
fn nothing_keeps_a_value_however_a_run_ends() {
    on_each_bench(|bench| {
        let path = value_file(&bench, VALUE);
        let secret = flag(&path);
        let by_command = format!("KEY=cmd:cat '{}'", path.display());
        let logged = bench.home.join("logged");
        for (what, flags, script, code) in [
            ("success", &["--json"][..], "cat /run/secrets/KEY; touch done", 0),
            ("a command that fails", &["--changes", "commit"], "cat /run/secrets/KEY >&2; exit 3", 3),
            ("a parked layer", &["--changes", "review"], "cat /run/secrets/KEY; touch parked", 0),
            ("a time limit", &["--timeout", "300ms", "--grace", "50ms"], "cat /run/secrets/KEY; sleep 60", 124),
            ("a command that is not found", &[], "$(cat /run/secrets/KEY)", 127),
            (
                "a name that is asked for",
                &["--net", "allowlist", "--allow", "a.test"],
                "cat /run/secrets/KEY; exit 5",
                5,
            ),
        ] {
            for secret in [&secret, &by_command] {
                let mut command = bench.nexus(
                    [&["run", "-v", "--secret", secret], flags, &["--shell", script]]
                        .concat()
                        .into_iter()
                        .filter(|word| *word != "-v" || !flags.contains(&"--json")),
                );
                let output = command.env("NEXUS_LOG", "trace").output().unwrap();
                assert_eq!(output.status.code(), Some(code), "{}, {what}: {}", bench.who(), stderr(&output));
                no_value(what, &output.stdout);
                no_value(what, &output.stderr);
                fs::write(&logged, &output.stderr).unwrap();
            }
            search(&bench, &path, what);
        }
        // One that lives, with an exec, and whose supervisor is killed.
        bench.detach(&[
            "--name",
            "held",
            "--secret",
            &by_command,
            "--shell",
            "cat /run/secrets/KEY; echo; echo ready; exec sleep 1000",
        ]);
        wait_until("the command", PATIENCE, || stdout(&bench.run(["logs", "held"])).contains("ready"));
        let asked = bench.exec("held", "cat /run/secrets/KEY; head -c 4 /run/secrets/KEY");
        assert_eq!(stdout(&asked), "[secret KEY]s3cr", "{}: {}", bench.who(), stderr(&asked));
        search(&bench, &path, "a sandbox that lives");
        kill_process(Pid::from_raw(bench.supervisor("held")).unwrap(), Signal::KILL).unwrap();
        wait_until("the end", PATIENCE, || bench.session("held")["state"] != "running");
        search(&bench, &path, "a supervisor that was killed");
        assert_eq!(bench.run(["rm", "-f", "held"]).status.code(), Some(0));
    });
}

#[test]
fn a_run_with_a_secret_leaves_no_core_file_of_nexus() {
    for bench in benches() {
        // The program that prints the value looks at the process that asks for it.
        let look = "KEY=cmd:sh -c 'cat /proc/$PPID/limits; echo no-value-at-all'";
        let limits = bench.home.join("limits");
        let look = look.replace("limits;", &format!("limits > {};", limits.display()));
        let mut command = bench.command("prlimit");
        command.args(["--core=8192", bench.program().to_str().unwrap(), "run", "--secret", &look, "--", "true"]);
        runs(&bench, &command.output().unwrap());
        let said = fs::read_to_string(&limits).unwrap();
        let core = said.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().nth(4), Some("1"), "{}: {core}", bench.who());
    }
}

#[test]
fn a_secret_that_cannot_be_had_refuses_the_run_in_words() {
    for bench in benches() {
        bench.write("inside", VALUE);
        let path = value_file(&bench, "abc\n");
        let missing = bench.home.join("missing");
        for (secret, code, words) in [
            ("KEY", 2, "has to be NAME=PROVIDER:REFERENCE. Write --secret NAME=file:PATH"),
            ("KEY=hunter2", 2, "KEY names no provider that exists. Write"),
            ("KEY=vault:hunter2", 2, "KEY names no provider that exists. Write"),
            ("../KEY=file:/x", 2, "the name \"../KEY\""),
            ("KEY=cmd:'hunter2", 2, "a quote that is not closed"),
            ("KEY=env:MISSING", 125, "the variable MISSING, which is not set. Set the variable"),
            (&format!("KEY=file:{}", missing.display()), 125, "No such file or directory"),
            ("KEY=file:inside", 125, "leads into the workspace"),
            (&format!("KEY=file:{}", path.display()), 125, "has 3 bytes"),
            ("KEY=cmd:false", 125, "ended with the exit code 1. Run the command on its own"),
            ("KEY=cmd:no-such-program", 125, "no program no-such-program is in the directories of PATH"),
        ] {
            let output = bench.run(["run", "--secret", secret, "--", "touch", "ran"]);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(code), "{}: {secret}: {said}", bench.who());
            assert!(said.contains(words) && !said.contains("hunter2"), "{}: {secret}: {said}", bench.who());
            assert_eq!(said.lines().count(), 1, "{secret}: {said}");
        }
        let twice = bench.run(["run", "--secret", "A=env:A", "--secret", "A=env:B", "--", "touch", "ran"]);
        assert!(twice.status.code() == Some(2) && stderr(&twice).contains("--secret A is there twice"));
        let meets = bench
            .nexus(["run", "--secret", "A=env:A", "--ro", "/opt:/run/secrets", "--", "touch", "ran"])
            .env("A", ENV_VALUE)
            .output()
            .unwrap();
        assert_eq!(meets.status.code(), Some(125), "{}: {}", bench.who(), stderr(&meets));
        assert!(!bench.workspace.join("ran").exists() && bench.leftovers().is_empty(), "{}", bench.who());
        let open = value_file(&bench, VALUE);
        fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
        let warned = bench.run(["run", "--secret", &flag(&open), "--", "true"]);
        assert!(
            stderr(&warned).contains("can be read by other users") && warned.status.success(),
            "{}",
            stderr(&warned)
        );
    }
}

#[test]
fn the_receipt_and_explain_name_a_secret_and_its_provider_alone() {
    for bench in benches() {
        let copy = bench.home.join("receipt");
        let words = ["--secret", "KEY=env:THE_VARIABLE", "--receipt", copy.to_str().unwrap(), "--", "true"];
        let with = |first: &str| {
            let output = bench.nexus([&[first], &words[..]].concat()).env("THE_VARIABLE", ENV_VALUE).output().unwrap();
            assert!(!stdout(&output).contains(ENV_VALUE), "{first}: {}", stdout(&output));
            runs(&bench, &output)
        };
        assert!(
            with("explain").contains("read  /run/secrets/KEY (a secret from env)  ← --secret"),
            "{}",
            with("explain")
        );
        with("run");
        let shown = runs(&bench, &bench.run(["receipt", "show", copy.to_str().unwrap()]));
        assert!(
            shown.lines().any(|line| line.starts_with("secret") && line.ends_with("KEY from env, as a file inside")),
            "{shown}"
        );
        let json = report(&bench.run(["receipt", "show", "--json", copy.to_str().unwrap()]));
        assert_eq!(json["request"]["secrets"], serde_json::json!([{"name": "KEY", "provider": "env"}]));
        let envelope = fs::read_to_string(&copy).unwrap();
        // The receipt in the file is in base64.
        let shown = [envelope, json.to_string(), shown].concat();
        assert!(!shown.contains("THE_VARIABLE") && !shown.contains(ENV_VALUE), "{shown}");
    }
}
