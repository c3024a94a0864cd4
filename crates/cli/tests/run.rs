//! `nexus run`: what it runs, returns and prints.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::time::{Duration, Instant};
use support::{Bench, benches, is_root, needs_root, stderr, stdout, user};

#[test]
fn output_and_exit_codes_pass_through_unchanged() {
    for bench in benches() {
        for code in [0, 1, 42, 126, 127, 255] {
            let script = format!("echo out; echo err >&2; exit {code}");
            let output = bench.run(["run", "--", "/bin/sh", "-c", &script]);
            assert_eq!(output.status.code(), Some(code), "{}: {}", bench.who(), stderr(&output));
            assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("out\n", "err\n"), "{}", bench.who());
        }
    }
}

#[test]
fn a_signal_is_128_and_its_number() {
    for bench in benches() {
        for signal in [1, 2, 6, 9, 11, 15] {
            let output = bench.run(["run", "--shell", &format!("kill -{signal} $$")]);
            assert_eq!(output.status.code(), Some(128 + signal), "{}", bench.who());
        }
    }
}

#[test]
fn a_command_that_is_not_there_is_127_and_one_that_cannot_be_executed_126() {
    for bench in benches() {
        bench.write("plain", "no program");
        assert_eq!(bench.run(["run", "--", "no-such-command"]).status.code(), Some(127));
        let output = bench.run(["run", "--", "./plain"]);
        assert_eq!(output.status.code(), Some(126), "{}", stderr(&output));
        // The second line is advice.
        let text = stderr(&output);
        assert!(text.lines().count() == 2 && text.lines().all(|line| line.starts_with("nexus: ")), "{text}");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn changes_are_committed_and_discarded_ones_are_not() {
    for bench in benches() {
        bench.write("old", "before");
        bench.write("gone", "x");
        let script = "echo after > old; echo new > fresh; rm gone; mkdir -p a/b; ln -s old a/b/link";
        let (report, code) = bench.json(["--changes", "discard", "--shell", script]);
        assert_eq!((code, report["changes"]["state"].as_str()), (0, Some("discarded")), "{report}");
        assert_eq!(fs::read_to_string(bench.workspace.join("old")).unwrap(), "before");
        assert!(!bench.workspace.join("fresh").exists());

        let (report, code) = bench.json(["--changes", "commit", "--shell", script]);
        assert_eq!((code, report["changes"]["state"].as_str()), (0, Some("committed")), "{report}");
        assert_eq!(fs::read_to_string(bench.workspace.join("old")).unwrap(), "after\n");
        assert_eq!(fs::read_to_string(bench.workspace.join("fresh")).unwrap(), "new\n");
        assert_eq!(fs::read_link(bench.workspace.join("a/b/link")).unwrap().to_str(), Some("old"));
        assert!(!bench.workspace.join("gone").exists());
        assert_eq!(report["changes"]["deleted"], 1);
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_direct_run_writes_through_and_holds_protected_names() {
    for bench in benches() {
        bench.write(".git/config", "[core]\n");
        bench.write(".git/hooks/pre-commit", "#!/bin/sh\n");
        let script = "echo x > made; (echo evil >> .git/config) 2>/dev/null && echo LEAK; mv .git moved 2>/dev/null && echo LEAK; true";
        let output = bench.run(["run", "--direct", "--shell", script]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join("made")).unwrap(), "x\n");
        assert_eq!(fs::read_to_string(bench.workspace.join(".git/config")).unwrap(), "[core]\n");
    }
}

#[test]
fn protected_names_are_parked_listed_and_can_be_rejected() {
    for bench in benches() {
        let output = bench.run(["run", "--shell", "echo 'net: all' > nexus.yaml; echo fine > fine"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("nexus.yaml"), "{}", stderr(&output));
        assert!(!bench.workspace.join("nexus.yaml").exists());
        assert!(bench.workspace.join("fine").exists());
        assert!(stdout(&bench.run(["changes", "list"])).contains("nexus.yaml"));
        assert!(stdout(&bench.run(["changes", "show"])).contains("A nexus.yaml"));
        assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0));
        assert!(stdout(&bench.run(["changes", "list"])).starts_with("No changes"));
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn an_outside_edit_during_the_run_is_a_conflict_and_is_never_overwritten() {
    for bench in benches() {
        let file = bench.write("shared", "before");
        let mut child = bench
            .nexus(["run", "--stdin", "--shell", "echo inside > shared; read line"])
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let upper =
            || fs::read_dir(bench.state.join("layers")).ok()?.next()?.ok().map(|e| e.path().join("upper/shared"));
        support::wait_until("the write inside", Duration::from_secs(10), || {
            upper().is_some_and(|path| fs::read_to_string(path).is_ok_and(|text| text == "inside\n"))
        });
        fs::write(&file, "outside").unwrap();
        drop(child.stdin.take());
        // `read` at the end of its input gives 1; the conflict matters only for a success, so look at the file and the text.
        let output = child.wait_with_output().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "outside");
        assert!(stderr(&output).contains("changed outside"), "{}", stderr(&output));
        assert!(stdout(&bench.run(["changes", "list"])).contains("inside"));
    }
}

#[test]
fn the_environment_is_an_allow_list_and_flags_add_to_it() {
    for bench in benches() {
        let output = bench
            .nexus(["run", "--env", "PASSED", "--env", "SET=1", "--", "env"])
            .env("SECRET_TOKEN", "hunter2")
            .env("PASSED", "yes")
            .output()
            .unwrap();
        let text = stdout(&output);
        assert!(
            text.contains("PASSED=yes\n") && text.contains("SET=1\n") && text.contains("HOME=/home/nexus\n"),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_time_limit_asks_then_kills() {
    for bench in benches() {
        let start = Instant::now();
        let output = bench.run([
            "run",
            "--timeout",
            "300ms",
            "--grace",
            "300ms",
            "--shell",
            "trap '' TERM; sleep 60 & wait; sleep 60",
        ]);
        assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
        assert!(start.elapsed() < Duration::from_secs(5));
        let output = bench.run(["run", "--timeout", "300ms", "--shell", "sleep 60"]);
        assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    }
}

#[test]
fn output_is_bounded_when_asked_and_all_of_it_can_go_to_a_file() {
    for bench in benches() {
        let full = bench.home.join("full");
        let script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done";
        let output =
            bench.run(["run", "--max-output", "1K", "--full-output", full.to_str().unwrap(), "--shell", script]);
        let text = stdout(&output);
        assert!(
            text.starts_with("line 0\n") && text.ends_with("line 1999\n") && text.contains("bytes truncated"),
            "{text}"
        );
        assert!(text.len() < 1200, "{}", text.len());
        assert_eq!(fs::read_to_string(&full).unwrap().lines().count(), 2000);
    }
}

#[test]
fn the_report_has_the_pinned_fields_and_a_proof_that_holds() {
    for bench in benches() {
        let (report, code) = bench.json(["--shell", "printf 'a\\377'; echo e >&2; exit 3"]);
        assert_eq!((code, report["exit_code"].as_u64(), report["reason"].as_str()), (3, Some(3), Some("exit")));
        assert_eq!(report["output"]["stdout"]["base64"], "Yf8=");
        assert_eq!(report["output"]["stderr"]["text"], "e\n");
        for field in ["run_id", "signal", "sandbox", "timing", "usage", "changes", "egress", "receipt", "error"] {
            assert!(report.get(field).is_some(), "{field}");
        }
        let proof = report["sandbox"]["proof"].as_array().unwrap();
        assert!(proof.len() >= 20, "{proof:?}");
        for item in proof {
            let expected = item["expected"].as_str().unwrap();
            assert!(expected.split('|').any(|one| Some(one) == item["seen"].as_str()), "{item}");
        }
    }
}

/// A run with this limit where no control groups are mounted, as on a machine without them.
fn without_control_groups(bench: &Bench, flags: [&str; 2]) -> Output {
    let nexus = bench.nexus(["run", flags[0], flags[1], "--shell", "echo started"]);
    let mut command = bench.command_as_root("unshare");
    let hidden = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    let identity = format!("setpriv --reuid={0} --regid={0} --clear-groups", bench.user.unwrap_or(0));
    command.args(["--mount", "sh", "-c", hidden, "sh"]).args(identity.split(' '));
    command.arg(nexus.get_program()).args(nexus.get_args()).output().unwrap()
}

#[test]
fn limits_that_cannot_be_held_are_refused_by_name() {
    for bench in benches() {
        let doctor = stdout(&bench.run(["doctor"]));
        for (flag, value, guarantee, name) in
            [("--memory", "64M", "limits.memory", "memory"), ("--cpus", "0.5", "limits.cpu", "cpu")]
        {
            let refused = |output: &Output| {
                assert_eq!(output.status.code(), Some(125), "{}: {flag}", bench.who());
                let said = stderr(output);
                let wanted = format!("the {name} limit cannot be enforced here");
                assert!(said.contains(&wanted) && said.contains("nexus doctor"), "{}: {flag}: {said}", bench.who());
                assert_eq!(stdout(output), "", "{}: {flag}: it was started", bench.who());
            };
            let (report, code) = {
                let output = bench.run(["run", "--json", flag, value, "--shell", "echo started"]);
                (support::report(&output), output.status.code())
            };
            if doctor.contains(&format!("  yes  {guarantee}")) {
                let given = report["sandbox"]["guarantees"].as_array().unwrap();
                assert_eq!((code, given.contains(&guarantee.into())), (Some(0), true), "{}: {report}", bench.who());
            } else {
                assert_eq!(report["output"]["stdout"]["text"].as_str().unwrap_or_default(), "", "{report}");
                refused(&bench.run(["run", flag, value, "--shell", "echo started"]));
            }
            if is_root() {
                refused(&without_control_groups(&bench, [flag, value]));
            }
        }
        let output = bench.run(["run", "--require", "kernel.separate", "--", "true"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("kernel.separate is required"), "{}", stderr(&output));
        assert_eq!(bench.run(["run", "--require", "net.none", "--", "true"]).status.code(), Some(0));
    }
}

#[test]
fn a_disk_limit_ends_the_run_and_commits_nothing() {
    for bench in benches() {
        let (report, code) = bench.json(["--disk", "4M", "--shell", "head -c 16M /dev/zero > big"]);
        assert_eq!((code, report["reason"].as_str()), (125, Some("disk_quota")), "{report}");
        assert!(!bench.workspace.join("big").exists());
        let (report, code) = bench.json(["--disk", "4M", "--shell", "head -c 1M /dev/zero > small; echo x > y"]);
        assert_eq!((code, report["changes"]["state"].as_str()), (0, Some("committed")), "{report}");
        assert_eq!(fs::metadata(bench.workspace.join("small")).unwrap().len(), 1 << 20);
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn what_is_not_in_this_version_is_refused_clearly() {
    for bench in benches() {
        for flags in [["--sandbox", "host"], ["--sandbox", "trusted"]] {
            let output = bench.nexus(["run"]).args(flags).args(["--", "true"]).output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{flags:?}");
            assert!(stderr(&output).contains("not in this version"), "{}", stderr(&output));
        }
    }
}

/// Fills the quota of kernel keys of its user and becomes the program that is named.
const WITHOUT_KEYS: &str = "\
import ctypes, os, sys
call = ctypes.CDLL(None, use_errno=True).syscall
ADD_KEY, KEYCTL, JOIN_SESSION_KEYRING, SESSION_KEYRING, EDQUOT = 248, 250, 1, -3, 122
assert call(KEYCTL, JOIN_SESSION_KEYRING, None) > 0
for at in range(100000):
    if call(ADD_KEY, b'user', b'key-%d' % at, b'x', ctypes.c_size_t(1), SESSION_KEYRING) < 0:
        break
assert ctypes.get_errno() == EDQUOT, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn without_a_kernel_key_a_run_is_refused_with_advice() {
    // The quota is counted for a user: filling that of the caller would stop all other tests.
    if !needs_root() {
        return;
    }
    // No other user's, either: other tests of this program run as `user()`.
    let bench = Bench::new(Some(user() + 1));
    let nexus = bench.nexus(["run", "--", "touch", "ran"]);
    let mut command = bench.command("python3");
    let output = command.args(["-c", WITHOUT_KEYS]).arg(nexus.get_program()).args(nexus.get_args()).output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("kernel.keys.maxkeys. Wait until programs with keys end, or raise the limit"), "{text}");
    assert!(!bench.workspace.join("ran").exists());
    assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    // The twin comes last, since its keyring would serve the run above. The kernel gives keys back some time after their end.
    support::wait_until("a run of a user with keys", Duration::from_secs(20), || {
        bench.run(["run", "--", "true"]).status.code() == Some(0)
    });
}

#[test]
fn the_doctor_says_what_works_and_how_to_get_the_rest() {
    for bench in benches() {
        let output = bench.run(["doctor"]);
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("a trial sandbox stood") && text.contains("yes  net.none"), "{text}");
        if let Some(uid) = bench.user {
            let command = format!("to get it: as root: mkdir -p /sys/fs/cgroup/memory/nexus/{uid}");
            assert!(text.contains(&command), "{text}");
        }
        let document: serde_json::Value = serde_json::from_slice(&bench.run(["doctor", "--json"]).stdout).unwrap();
        assert_eq!(document["works"], true);
        assert_eq!(document["trial"]["passed"], true);
    }
}

#[test]
fn hidden_paths_cannot_be_read_renamed_or_replaced_inside_and_stay_as_they_were() {
    for bench in benches() {
        bench.write("sub/.env", "TOKEN=hunter2\n");
        bench.write("keys/id_ed25519", "private\n");
        bench.write("plain", "visible\n");
        let script = "cat plain sub/.env keys/id_ed25519; chmod 644 sub/.env; mv sub/.env x; rm -f sub/.env; cp -r sub copy; \
                      mv sub moved; cat moved/.env x copy/.env; ln keys/id_ed25519 link; true";
        for mode in [&["--changes", "discard"][..], &["--direct"]] {
            let output = bench.nexus(["run", "--hide-secrets"]).args(mode).args(["--shell", script]).output().unwrap();
            let text = stdout(&output) + &stderr(&output);
            assert!(text.contains("visible"), "{}: {text}", bench.who());
            assert!(!text.contains("hunter2") && !text.contains("private\n"), "{}: {text}", bench.who());
            let place = if bench.workspace.join("moved").exists() { "moved/.env" } else { "sub/.env" };
            assert_eq!(fs::read_to_string(bench.workspace.join(place)).unwrap(), "TOKEN=hunter2\n");
            if place == "moved/.env" {
                fs::rename(bench.workspace.join("moved"), bench.workspace.join("sub")).unwrap();
            }
        }
        let output = bench.run(["run", "--shell", "cat sub/.env"]);
        assert_eq!(stdout(&output), "TOKEN=hunter2\n", "without the flag nothing is hidden");
    }
}

#[test]
fn a_path_is_hidden_however_it_is_spelled() {
    for bench in benches() {
        bench.write("config/prod.pem", "private\n");
        std::os::unix::fs::symlink("config", bench.workspace.join("link")).unwrap();
        let name = bench.home.join("name");
        std::os::unix::fs::symlink(&bench.workspace, &name).unwrap();
        let (workspace, name) = (bench.workspace.display(), name.display());
        for pattern in [
            &format!("{workspace}/config/prod.pem"),
            &format!("{workspace}//link/*.pem"),
            &format!("{workspace}/config"),
            &format!("{name}/config/prod.pem"),
            &format!("{name}/*/prod.pem"),
            "./config/prod.pem",
            "/config/*.pem",
            "link/prod.pem",
            "config/",
        ] {
            for mode in [&["--changes", "discard"][..], &["--direct"]] {
                let mut run = bench.nexus(["run", "--hide", pattern]);
                let output = run.args(mode).args(["--shell", "cat config/prod.pem link/prod.pem"]).output().unwrap();
                assert_eq!(stdout(&output), "", "{} {pattern}: {}", bench.who(), stderr(&output));
                assert!(!stderr(&output).contains("matched nothing"), "{pattern}: {}", stderr(&output));
            }
        }
    }
}

#[test]
fn what_cannot_be_hidden_is_refused_and_what_hides_nothing_is_said() {
    for bench in benches() {
        bench.write("config/prod.pem", "private\n");
        std::os::unix::fs::symlink("/etc", bench.workspace.join("out")).unwrap();
        let workspace = bench.workspace.display().to_string();
        for (pattern, said) in [
            ("/etc/passwd", "lies outside of the workspace"),
            ("out/passwd", "leads out of the workspace"),
            ("../x", "has .. in it"),
            (&workspace, "is the whole workspace"),
            ("", "names no path"),
        ] {
            for command in ["run", "explain"] {
                let output = bench.run([command, "--hide", pattern, "--", "touch", "ran"]);
                let told = stderr(&output);
                assert!(output.status.code() == Some(2) && told.contains(said), "{} {pattern}: {told}", bench.who());
            }
            let folder = bench.home.join(".config/nexus/profiles");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("keys.yaml"), format!("fs: {{hide: [\"{pattern}\"]}}\n")).unwrap();
            bench.give(&bench.home.join(".config"));
            let output = bench.run(["run", "--profile", "keys", "--", "touch", "ran"]);
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{} {pattern}: {told}", bench.who());
            assert!(told.contains("keys.yaml:1:13") && (pattern.is_empty() || told.contains(said)), "{told}");
        }
        assert!(!bench.workspace.join("ran").exists());
        let output = bench.run(["run", "--hide", "*.pem", "--hide", "config/prod.kye", "--", "true"]);
        let told = "nexus: --hide config/prod.kye matched nothing in the workspace, so it hides nothing.\n";
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), told), "{}", bench.who());
    }
}

#[test]
fn what_is_hidden_is_shown_at_no_other_place() {
    for bench in benches() {
        bench.write("config/keys/prod.pem", "private\n");
        let workspace = bench.workspace.display();
        for (pattern, bind) in [
            ("*.pem", format!("{workspace}/config:/copy")),
            ("*.pem", format!("{workspace}:/copy")),
            ("*.pem", format!("{workspace}/config/keys/prod.pem:/copy")),
            ("keys", format!("{workspace}/config/keys/prod.pem:/copy")),
            ("keys", format!("{workspace}/config/keys:/copy")),
        ] {
            for flag in ["--ro", "--rw"] {
                let output = bench.run(["run", "--hide", pattern, flag, &bind, "--shell", "find /copy | xargs cat"]);
                let told = stderr(&output);
                assert_eq!((output.status.code(), stdout(&output)), (Some(125), String::new()), "{bind}: {told}");
                let said = told.contains("which is hidden") || told.contains("around its layer");
                assert!(said, "{} {flag} {bind}: {told}", bench.who());
            }
        }
        // At its own place a part of the workspace lies over the covers.
        for (pattern, bind) in
            [("*.pem", "config"), ("keys", "config"), ("*.pem", "config/keys"), ("keys", "config/keys")]
        {
            for flags in [&["--ro"][..], &["--rw"], &["--direct", "--ro"], &["--disk", "50M", "--ro"]] {
                let mut run = bench.nexus(["run", "--hide", pattern]);
                let output = run.args(flags).args([bind, "--", "cat", "config/keys/prod.pem"]).output().unwrap();
                let (told, who) = (stderr(&output), bench.who());
                assert_eq!(
                    (output.status.code(), stdout(&output)),
                    (Some(125), String::new()),
                    "{who} {flags:?}: {told}"
                );
                assert!(told.contains("which is hidden"), "{who} {flags:?} {bind}: {told}");
            }
        }
        let plain = bench.run(["run", "--hide", "*.key", "--ro", "config", "--", "cat", "config/keys/prod.pem"]);
        assert_eq!(stdout(&plain), "private\n", "{}: {}", bench.who(), stderr(&plain));
        // Another directory over the one that has it: nothing of the workspace is seen there.
        fs::create_dir_all(bench.base.path().join("elsewhere")).unwrap();
        let over = format!("{}:{workspace}/config", bench.base.path().join("elsewhere").display());
        let output = bench.run(["run", "--hide", "*.pem", "--ro", &over, "--shell", "ls -A config"]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), String::new()), "{}", stderr(&output));
        let beside = format!("{workspace}/config:/copy");
        let output = bench.run(["run", "--hide", "*.key", "--ro", &beside, "--", "cat", "/copy/keys/prod.pem"]);
        assert_eq!(stdout(&output), "private\n", "{}: {}", bench.who(), stderr(&output));
    }
}

/// The owner of a directory that is closed to it can open it. Root looks through every directory.
#[test]
fn nothing_is_read_in_a_directory_that_could_not_be_searched_for_what_to_hide() {
    for bench in benches() {
        bench.write("closed/.env", "TOKEN=hunter2\n");
        fs::set_permissions(bench.workspace.join("closed"), Permissions::from_mode(0o000)).unwrap();
        for mode in [&["--changes", "discard"][..], &["--direct"]] {
            let mut run = bench.nexus(["run", "--hide-secrets"]);
            let script = "chmod 755 closed; cat closed/.env; mv closed other; chmod 755 other; cat other/.env";
            let output = run.args(mode).args(["--shell", script]).output().unwrap();
            assert_eq!(stdout(&output), "", "{}: {}", bench.who(), stderr(&output));
        }
    }
}

#[test]
fn overlapping_runs_commit_one_after_the_other_and_the_later_one_meets_a_conflict() {
    for bench in benches() {
        bench.write("both", "base\n");
        let script =
            |name: &str, path: &str| format!("echo {name} > {path}; touch /tmp/ready; echo up; read line; exit 0");
        let start = |name: &str, path: &str| {
            bench
                .nexus(["run", "--stdin", "--shell", &script(name, path)])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut runs = [start("one", "both"), start("two", "both"), start("three", "own")];
        // All three have started when each has printed its line.
        for run in &mut runs {
            let mut line = [0u8; 3];
            std::io::Read::read_exact(run.stdout.as_mut().unwrap(), &mut line).unwrap();
        }
        let outcomes = runs.map(|mut run| {
            drop(run.stdin.take());
            run.wait_with_output().unwrap()
        });
        let codes: Vec<_> = outcomes.iter().map(|output| output.status.code()).collect();
        assert_eq!(codes, [Some(0), Some(125), Some(0)], "{}: {}", bench.who(), stderr(&outcomes[1]));
        assert!(stderr(&outcomes[1]).contains("both changed outside"), "{}", stderr(&outcomes[1]));
        assert_eq!(fs::read_to_string(bench.workspace.join("both")).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(bench.workspace.join("own")).unwrap(), "three\n");
    }
}

#[test]
fn a_disk_limit_above_a_quarter_of_the_memory_is_measured_and_its_breach_commits_nothing() {
    let info = rustix::system::sysinfo();
    let total = info.totalram as u64 * u64::from(info.mem_unit);
    let megabytes = total / 4 / (1 << 20) + 64;
    for bench in benches() {
        // A preallocated file uses its blocks without anybody writing them.
        let script = format!("fallocate -l {}M big || exit 9; sleep 20", megabytes + 64);
        let (report, code) = bench.json(["--disk", &format!("{megabytes}M"), "--shell", &script]);
        assert_eq!((code, report["reason"].as_str()), (125, Some("disk_quota")), "{report}");
        assert!(!bench.workspace.join("big").exists());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        let (report, code) = bench.json(["--disk", &format!("{megabytes}M"), "--shell", "echo x > small"]);
        assert_eq!((code, report["changes"]["state"].as_str()), (0, Some("committed")), "{report}");
    }
}

#[test]
fn there_is_no_network_but_the_own_loopback() {
    let server = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = server.local_addr().unwrap().port();
    let script = format!(
        "import socket\n\
         def attempt(*address):\n\
         \x20   try:\n\
         \x20       socket.create_connection(address, 2); return 'connected'\n\
         \x20   except OSError as error:\n\
         \x20       return error.__class__.__name__ if error.errno is None else __import__('errno').errorcode[error.errno]\n\
         own = socket.create_server(('127.0.0.1', 0))\n\
         print(attempt(*own.getsockname()), attempt('127.0.0.1', {port}), attempt('192.0.2.1', 80), \
         [name for _, name in socket.if_nameindex()])\n"
    );
    for bench in benches() {
        let output = bench.run(["run", "--", "/usr/bin/python3", "-c", &script]);
        assert_eq!(stdout(&output), "connected ECONNREFUSED ENETUNREACH ['lo']\n", "{}", stderr(&output));
    }
    // Outside the same server answers: what was refused was there.
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
}

#[test]
fn committed_files_have_the_owner_modes_and_times_that_a_plain_run_would_give_them() {
    use std::os::unix::fs::MetadataExt;
    for bench in benches() {
        bench.write("old", "before");
        let script =
            "echo after > old; mkdir -m 750 dir; echo x > dir/new; chmod 640 dir/new; touch -d @1000000000 dir/new";
        assert_eq!(bench.run(["run", "--shell", script]).status.code(), Some(0));
        let folder = fs::metadata(&bench.workspace).unwrap();
        for (name, mode) in [("old", 0o644), ("dir", 0o750), ("dir/new", 0o640)] {
            let meta = fs::metadata(bench.workspace.join(name)).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (folder.uid(), folder.gid()), "{}: {name}", bench.who());
            assert_eq!(meta.mode() & 0o7777, mode, "{}: {name}", bench.who());
        }
        assert_eq!(fs::metadata(bench.workspace.join("dir/new")).unwrap().mtime(), 1_000_000_000);
    }
}

#[test]
fn a_run_that_is_out_of_memory_never_counts_as_a_success() {
    // Only root may make control groups here; the escape suite hands an ordinary user some.
    if !needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        let script = "/usr/bin/python3 -c 'x = bytearray(200000000)'; echo written > file; exit 0";
        let (report, code) = bench.json(["--memory", "40M", "--shell", script]);
        assert_eq!((code, report["reason"].as_str()), (137, Some("oom")), "{report}");
        assert!(!bench.workspace.join("file").exists(), "nothing is committed unseen");
        bench.run(["changes", "reject"]);
        let (report, code) = bench.json(["--memory", "200M", "--shell", "echo written > file"]);
        assert_eq!((code, report["changes"]["state"].as_str()), (0, Some("committed")), "{report}");
    }
}

#[test]
fn what_was_written_before_the_memory_ran_out_waits() {
    // As above.
    if !needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        bench.write("file", "old");
        let script = "echo half > file; exec /usr/bin/python3 -c 'x = bytearray(200000000)'";
        let (report, code) = bench.json(["--memory", "40M", "--changes", "commit", "--shell", script]);
        assert_eq!((code, report["reason"].as_str()), (137, Some("oom")), "{report}");
        assert_eq!(report["changes"]["state"], "parked", "{report}");
        assert_eq!(fs::read_to_string(bench.workspace.join("file")).unwrap(), "old");
        assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0));
    }
}

#[test]
fn full_output_follows_no_link_lies_outside_and_is_untouched_by_a_refused_run() {
    for bench in benches() {
        let target = bench.home.join("target");
        fs::write(&target, "precious").unwrap();
        bench.give(&target);
        std::os::unix::fs::symlink(&target, bench.workspace.join("log")).unwrap();
        std::os::unix::fs::symlink(&target, bench.home.join("link")).unwrap();
        for place in [bench.workspace.join("log"), bench.workspace.join("new"), bench.home.join("link")] {
            let output = bench.run(["run", "--full-output", place.to_str().unwrap(), "--", "echo", "x"]);
            assert_eq!(output.status.code(), Some(125), "{}: {}", place.display(), stderr(&output));
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        // Refused after the file was opened: it stays as it was.
        let output =
            bench.run(["run", "--full-output", target.to_str().unwrap(), "--ro", "/usr:/etc", "--", "echo", "x"]);
        assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        let output = bench.run(["run", "--full-output", target.to_str().unwrap(), "--", "echo", "x"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(&target).unwrap(), "x\n");
    }
}

#[test]
fn a_lock_of_another_process_on_the_workspace_does_not_delay_a_commit() {
    for bench in benches() {
        let folder = fs::File::open(&bench.workspace).unwrap();
        rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let start = Instant::now();
        assert_eq!(bench.run(["run", "--shell", "echo x > made"]).status.code(), Some(0));
        assert!(bench.workspace.join("made").exists());
        assert!(start.elapsed() < Duration::from_secs(20));
        assert_eq!(
            fs::read_dir(bench.state.join("locks")).unwrap().count(),
            0,
            "the lock file is gone with the commit"
        );
    }
}

/// A disk limit that is held by measuring, in bytes.
fn measured_limit() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit) / 4 + (64 << 20)
}

#[test]
fn a_measured_disk_limit_holds_in_closed_directories_and_in_thousands_of_them() {
    let limit = measured_limit();
    let big = limit + (64 << 20);
    // Each takes blocks that no process writes, in places that are closed before the blocks are taken.
    let scripts = [
        format!("mkdir d; exec 3> d/big; chmod 0 d; fallocate -l {big} /dev/fd/3 || exit 9; sleep 20"),
        format!("mkdir d; chmod 300 d; fallocate -l {big} d/big || exit 9; sleep 20"),
        format!("mkdir -p d/e; chmod 300 d/e; fallocate -l {big} d/e/big || exit 9; chmod 600 d; sleep 20"),
        format!(
            "/usr/bin/python3 -c '\nimport os, time\nfor n in range(2000):\n os.mkdir(str(n))\n \
             with open(f\"{{n}}/file\", \"wb\") as f: os.posix_fallocate(f.fileno(), 0, {})\ntime.sleep(20)'",
            big / 2000
        ),
    ];
    for bench in benches() {
        for script in &scripts {
            let start = Instant::now();
            let (report, code) = bench.json(["--disk", &limit.to_string(), "--shell", script]);
            assert_eq!((code, report["reason"].as_str()), (125, Some("disk_quota")), "{}: {report}", bench.who());
            assert!(start.elapsed() < Duration::from_secs(18), "{}: only found at the end: {script}", bench.who());
            assert_eq!(fs::read_dir(&bench.workspace).unwrap().count(), 0, "{}", bench.who());
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        }
    }
}

#[test]
fn closed_directories_and_thousands_of_them_within_a_measured_disk_limit_are_committed() {
    // Far above what tests beside this one take from the same disk.
    let limit = (measured_limit() * 32).to_string();
    for bench in benches() {
        let script = "seq 1000 1 2999 | xargs mkdir; mkdir none unread; echo x > none/x; echo y > unread/y; \
                      chmod 0 none; chmod 300 unread; sleep 0.4";
        let (report, code) = bench.json(["--disk", &limit, "--shell", script]);
        assert_eq!((code, report["changes"]["state"].as_str()), (0, Some("committed")), "{}: {report}", bench.who());
        assert_eq!(fs::read_dir(&bench.workspace).unwrap().count(), 2002);
        for (name, mode, file) in [("none", 0o000, "x"), ("unread", 0o300, "y")] {
            use std::os::unix::fs::PermissionsExt;
            let folder = bench.workspace.join(name);
            assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o7777, mode);
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
            assert_eq!(fs::read_to_string(folder.join(file)).unwrap(), format!("{file}\n"));
        }
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_direct_run_protects_every_name_that_a_commit_would_hold_back() {
    for bench in benches() {
        let held = [".nexus-x", ".nexusrc", ".zshenv", ".KSHRC", ".config/fish/config.fish", ".vscode/tasks.json"];
        for name in held.into_iter().chain(["nexus-x", ".config/other"]) {
            bench.write(name, "old\n");
        }
        let names = held.join(" ");
        let script = format!("for f in {names} nexus-x .config/other; do (echo new > $f) 2>/dev/null; done; true");
        let (report, code) = bench.json(["--direct", "--shell", &script]);
        assert_eq!(code, 0, "{report}");
        let read = |name: &str| fs::read_to_string(bench.workspace.join(name)).unwrap();
        for name in held {
            assert_eq!(read(name), "old\n", "{}: {name}", bench.who());
        }
        // Their neighbours are free.
        assert_eq!((read("nexus-x"), read(".config/other")), ("new\n".to_owned(), "new\n".to_owned()));
        let missing = report["changes"]["unprotected"].to_string();
        assert!(missing.contains(".envrc") && missing.contains("\".git\""), "{missing}");
        assert!(!missing.contains(".nexus*") && !missing.contains("fish") && !missing.contains(".kshrc"), "{missing}");
    }
}

#[test]
fn the_calls_of_a_commit_do_not_grow_with_the_workspace() {
    for bench in benches() {
        let mut counts = Vec::new();
        for files in [200, 20_000] {
            let tree = bench.workspace.join(format!("tree-{files}"));
            for number in 0..files {
                let folder = tree.join(format!("d{}", number % 20));
                if number < 20 {
                    fs::create_dir_all(&folder).unwrap();
                    bench.give(&folder);
                }
                fs::write(folder.join(format!("f{number}")), "x").unwrap();
            }
            bench.give(&tree);
            // The files belong to the user who runs the test; chown of them all is not needed to replace one.
            let log = bench.home.join(format!("calls-{files}"));
            let nexus = bench.nexus([] as [&str; 0]).get_program().to_owned();
            let script = "for i in 0 1 2 3 4 5 6 7 8 9; do rm d$i/f$i; echo new > d$i/f$i; done";
            let output = bench
                .command("strace")
                .args(["-f", "-qq", "-o", log.to_str().unwrap()])
                .arg(nexus)
                .args(["run", "--changes", "commit", "--shell", script])
                .current_dir(&tree)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
            assert_eq!(fs::read_to_string(tree.join("d3/f3")).unwrap(), "new\n");
            counts.push(fs::read_to_string(&log).unwrap().lines().filter(|line| !line.contains("resumed>")).count());
        }
        let (small, large) = (counts[0], counts[1]);
        // The search for links and repositories is bounded, by 100,000 entries among others, and looks fixed places up by
        // name from there on.
        assert!(large < small + small / 10, "{}: {small} calls with 200 files, {large} with 20,000", bench.who());
    }
}

#[test]
fn the_standard_streams_can_be_opened_by_name() {
    for bench in benches() {
        let script = "echo out > /dev/stdout; echo err > /dev/stderr; echo tee | tee /dev/stderr; cat /dev/stdin";
        let mut child = bench
            .nexus(["run", "--stdin", "--", "bash", "-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"in\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((&*stdout(&output), &*stderr(&output)), ("out\ntee\nin\n", "err\ntee\n"), "{}", bench.who());

        // Without input it is `/dev/null`, as outside.
        let names = "stat -Lc %t:%T /dev/stdin; cat /dev/stdin /dev/fd/0 /proc/self/fd/0 && echo end > /dev/stdout";
        for flags in [&[][..], &["--direct"], &["--no-stdin"]] {
            let closed = bench.nexus(["run"]).args(flags).args(["--", "bash", "-c", names]).output().unwrap();
            let told = (&*stdout(&closed), &*stderr(&closed));
            assert_eq!(told, ("1:3\nend\n", ""), "{} {flags:?}", bench.who());
        }

        let script = "echo out > /dev/stdout; echo err > /dev/stderr; sleep 60";
        let started = bench.run(["run", "--detach", "--name", "streams", "--", "bash", "-c", script]);
        assert!(started.status.success(), "{}", stderr(&started));
        let exec =
            bench.run(["exec", "streams", "--", "bash", "-c", "echo more > /dev/stdout; echo bad > /dev/stderr"]);
        assert_eq!((&*stdout(&exec), &*stderr(&exec)), ("more\n", "bad\n"), "{}", bench.who());
        let exec = bench.run(["exec", "streams", "--", "bash", "-c", names]);
        assert_eq!((&*stdout(&exec), &*stderr(&exec)), ("1:3\nend\n", ""), "{}", bench.who());
        let logs = bench.run(["logs", "streams"]);
        assert_eq!((&*stdout(&logs), &*stderr(&logs)), ("out\n", "err\n"), "{}", bench.who());
        bench.run(["rm", "-f", "streams"]);
    }
}

#[test]
fn a_umask_takes_no_rights_from_the_caller_to_the_state_of_a_run() {
    for bench in benches() {
        let program = bench.program();
        let run = "umask 777; exec \"$0\" run --changes review -- touch made";
        let output = bench.command("sh").args(["-c", run]).arg(program).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        for words in [&["changes", "show"][..], &["changes", "accept"], &["run", "--", "true"]] {
            let output = bench.run(words);
            assert_eq!(output.status.code(), Some(0), "{} {words:?}: {}", bench.who(), stderr(&output));
            assert!(!stderr(&output).contains("cannot be read"), "{} {words:?}: {}", bench.who(), stderr(&output));
        }
        assert!(bench.workspace.join("made").exists(), "{}", bench.who());
    }
}

#[test]
fn nexus_inside_a_sandbox_says_where_it_is() {
    for bench in benches() {
        let program = bench.program().to_str().unwrap().to_owned();
        let bind = format!("{program}:/opt/nexus");
        for command in ["run", "explain"] {
            let output = bench.run(["run", "--ro", &bind, "--", "/opt/nexus", command, "--", "true"]);
            assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
            assert!(stderr(&output).contains("inside a sandbox of Nexus"), "{}: {}", bench.who(), stderr(&output));
        }
    }
}

#[test]
fn the_release_of_the_system_can_be_read() {
    for bench in benches() {
        let output = bench.run(["run", "--", "cat", "/etc/os-release"]);
        assert_eq!(output.stdout, fs::read("/etc/os-release").unwrap(), "{}: {}", bench.who(), stderr(&output));
    }
}

#[test]
fn priorities_and_protection_from_the_memory_killer_stay_outside() {
    for bench in benches() {
        // Where the test has the right to protect the caller, it does.
        let script = "echo -900 2>/dev/null > /proc/self/oom_score_adj; ulimit -r 20 2>/dev/null; ulimit -e 30 2>/dev/null; \
                      exec \"$0\" run -- bash -c 'cat /proc/self/oom_score_adj; ulimit -Hr; ulimit -He'";
        let mut command = bench.command_as_root("bash");
        if let Some(uid) = bench.user {
            let lower = format!(
                "echo -900 2>/dev/null > /proc/self/oom_score_adj; exec setpriv --reuid {uid} --regid {uid} --clear-groups bash -c \"$1\" \"$0\""
            );
            command.args(["-c", &lower]).arg(bench.program()).arg(script);
        } else {
            command.args(["-c", script]).arg(bench.program());
        }
        let output = command.output().unwrap();
        let said = stdout(&output);
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 3, "{}: {said}{}", bench.who(), stderr(&output));
        assert!(!lines[0].starts_with('-') && lines[1..] == ["0", "0"], "{}: {said}", bench.who());
    }
}
