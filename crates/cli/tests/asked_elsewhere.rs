//! `--ask` with a person in another session: connections that wait for `nexus approvals`.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use support::net::{Named, Server};
use support::screen::{PATIENCE, Screen};
use support::{Bench, benches, report, stderr, stdout, wait_for, wait_until};

/// The names lead to loopback, which no answer opens; the operator trusts it.
const TRUSTED: &str = "[egress]\ntrusted_ranges = [\"127.0.0.0/8\"]\n";

/// A run that asks another session.
struct Run<'a> {
    bench: &'a Bench,
    child: Child,
}

impl<'a> Run<'a> {
    fn start(bench: &'a Bench, named: &Named, flags: &[&str], script: &str) -> Self {
        let fixed = ["run", "--json", "--changes", "discard", "--ask=approvals"];
        let arguments = [&fixed[..], flags, &["--shell", script]].concat();
        let mut command = named.nexus(bench, arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { bench, child }
    }

    /// Waits for so many requests without an answer.
    fn pending(&self, count: usize) -> Vec<Value> {
        wait_for(&format!("{count} requests"), PATIENCE, || {
            let pending = states(self.bench, "pending");
            (pending.len() == count).then_some(pending)
        })
    }

    /// Waits for the only request, and returns its id.
    fn request(&self) -> String {
        id(&self.pending(1)[0])
    }

    fn end(self) -> (Value, Output) {
        let output = self.child.wait_with_output().unwrap();
        (report(&output), output)
    }
}

fn id(approval: &Value) -> String {
    approval["id"].as_str().unwrap().to_owned()
}

fn listed(bench: &Bench) -> Vec<Value> {
    let output = bench.run(["approvals", "ls", "--all", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    list["approvals"].as_array().unwrap().clone()
}

fn states(bench: &Bench, state: &str) -> Vec<Value> {
    listed(bench).into_iter().filter(|one| one["state"] == state).collect()
}

/// Answers on a terminal of its own.
fn approved(bench: &Bench, arguments: &[&str]) -> String {
    let mut screen = Screen::run(bench, [&["approvals", "approve"], arguments].concat());
    screen.wait_for("[y/N]");
    screen.send("y\n");
    assert!(screen.end().success(), "{}: {}", bench.who(), screen.shown());
    screen.shown()
}

fn denied(bench: &Bench, id: &str) {
    let mut command = bench.command("setsid");
    command.args(["--wait", "--"]).arg(bench.base.path().join("bin/nexus")).args(["approvals", "deny", id]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
}

fn scene(bench: &Bench) -> (Server, Named, String) {
    let server = Server::start();
    let named = Named::new(bench).with_settings(TRUSTED);
    let target = format!("web.test:{}", server.port);
    (server, named, target)
}

#[test]
fn a_connection_waits_for_an_answer_in_another_session_and_is_made_once() {
    for bench in benches() {
        let (server, named, target) = scene(&bench);
        let script = format!("curl -sSf {target}; curl -sf {target} || echo refused; curl -sf {target} || echo again");
        let run = Run::start(&bench, &named, &[], &script);
        let first = run.request();
        assert_eq!(server.accepted(), 0, "{}: it waits", bench.who());
        let own = bench.run(["approvals", "approve", &first]);
        assert!(stderr(&own).contains("does not answer it"), "{}: {}", bench.who(), stderr(&own));
        let shown = approved(&bench, &[&first]);
        for part in [format!("connect to {target}"), "command    /bin/sh -c ".to_owned(), "granted: once".to_owned()] {
            assert!(shown.contains(&part), "{}: {part}: {shown}", bench.who());
        }
        // The next connection needs an answer of its own, and a no holds to the end of the run.
        let second = run.request();
        assert_ne!(first, second, "{}", bench.who());
        denied(&bench, &second);
        let (report, output) = run.end();
        assert_eq!(
            report["output"]["stdout"]["text"],
            "hello\nrefused\nagain\n",
            "{}: {}",
            bench.who(),
            stderr(&output)
        );
        assert_eq!(server.accepted(), 1, "{}", bench.who());
        assert!(stderr(&output).contains(&format!("nexus approvals approve {first}")), "{}", stderr(&output));
        // The report, the record and the receipt say who said yes.
        let yes = &report["egress"]["approved"];
        assert_eq!(yes.as_array().unwrap().len(), 1, "{yes}");
        assert_eq!(
            (&yes[0]["to"], &yes[0]["approval"], &yes[0]["connections"]),
            (&Value::from(target.as_str()), &Value::from(first.as_str()), &Value::from(1)),
            "{yes}"
        );
        let by = yes[0]["by"].as_str().unwrap();
        assert!(by.starts_with("uid ") && by.contains(", session "), "{by}");
        let said = format!("approved by {by}, approval {first}");
        let log = stdout(&named.run(&bench, ["net", "log"]));
        assert_eq!(log.matches(&said).count(), 1, "{}: {log}", bench.who());
        let run = report["run_id"].as_str().unwrap();
        let receipt = stdout(&bench.run(["receipt", "show", run]));
        assert!(receipt.contains(&format!("{target} 1 times, by {by} (approval {first})")), "{receipt}");
        let verified = bench.run(["receipt", "verify", run]);
        assert!(verified.status.success(), "{}: {}", bench.who(), stderr(&verified));
    }
}

#[test]
fn a_connection_without_an_answer_is_refused_in_its_time_and_a_late_yes_opens_nothing() {
    for bench in benches() {
        let (server, named, target) = scene(&bench);
        let script = format!("curl -sf {target} || echo refused");
        let began = std::time::Instant::now();
        let run = Run::start(&bench, &named, &["--ask-timeout", "2s"], &script);
        let request = run.request();
        // A person looks at it when its time is over.
        let mut late = Screen::run(&bench, ["approvals", "approve", &request]);
        late.wait_for("[y/N]");
        let (report, output) = run.end();
        assert!(began.elapsed() < PATIENCE, "{}", bench.who());
        assert_eq!(report["output"]["stdout"]["text"], "refused\n", "{}: {}", bench.who(), stderr(&output));
        late.send("y\n");
        assert!(!late.end().success(), "{}: {}", bench.who(), late.shown());
        let shown = late.shown();
        assert!(
            ["expired", "withdrawn"].iter().any(|word| shown.contains(&format!("the approval is {word}"))),
            "{shown}"
        );
        assert_eq!(server.accepted(), 0, "{}", bench.who());
        assert_eq!(report["egress"]["denied"][0]["code"], "APPROVAL_REQUIRED", "{report}");
        assert!(listed(&bench).iter().all(|one| one["state"] != "pending" && one["state"] != "granted"));
    }
}

#[test]
fn as_many_connections_are_made_as_were_approved_while_many_wait() {
    for bench in benches() {
        let (server, named, target) = scene(&bench);
        let script = format!("for i in 1 2 3 4 5 6 7 8; do curl -sf {target} & done; wait");
        let run = Run::start(&bench, &named, &[], &script);
        let first = run.request();
        approved(&bench, &[&first, "--uses", "3"]);
        let second = wait_for("the other request", PATIENCE, || {
            states(&bench, "pending").into_iter().map(|one| id(&one)).find(|id| *id != first)
        });
        wait_until("three connections", PATIENCE, || server.accepted() == 3);
        denied(&bench, &second);
        let (report, output) = run.end();
        assert_eq!(report["output"]["stdout"]["text"], "hello\nhello\nhello\n", "{}: {}", bench.who(), stderr(&output));
        assert_eq!(server.accepted(), 3, "{}", bench.who());
        assert_eq!(report["egress"]["approved"][0]["connections"], 3, "{report}");
        assert_eq!(states(&bench, "used").len(), 1, "{}", bench.who());
    }
}

#[test]
fn an_answer_is_for_one_destination_of_one_run() {
    for bench in benches() {
        let (server, named, target) = scene(&bench);
        let other = target.replace("web.test", "db.test");
        let script = format!("curl -sf {target}; curl -sf {other} || echo other");
        let run = Run::start(&bench, &named, &[], &script);
        let first = run.request();
        approved(&bench, &[&first, "--uses", "5"]);
        let request = &run.pending(1)[0];
        assert_eq!(request["subject"]["connect"], other, "{request}");
        denied(&bench, &id(request));
        let (report, output) = run.end();
        assert_eq!(report["output"]["stdout"]["text"], "hello\nother\n", "{}: {}", bench.who(), stderr(&output));
        // Uses that are left end with the run, and another run asks again.
        let ended = listed(&bench).into_iter().find(|one| id(one) == first).unwrap();
        assert_eq!((&ended["state"], &ended["uses_left"]), (&"withdrawn".into(), &4.into()), "{ended}");
        let run = Run::start(&bench, &named, &["--ask-timeout", "20s"], &script);
        let again = run.request();
        assert_ne!(again, first);
        denied(&bench, &again);
        denied(&bench, &run.request());
        run.end();
        assert_eq!(server.accepted(), 1, "{}", bench.who());
    }
}

#[test]
fn a_run_that_was_killed_leaves_no_answer_that_another_one_can_use() {
    for bench in benches() {
        let (server, named, target) = scene(&bench);
        let script = format!("curl -sf {target}; sleep 100");
        let mut run = Run::start(&bench, &named, &[], &script);
        let first = run.request();
        approved(&bench, &[&first, "--uses", "5"]);
        wait_until("the connection", PATIENCE, || server.accepted() == 1);
        run.child.kill().unwrap();
        run.child.wait().unwrap();
        let run = Run::start(&bench, &named, &[], &format!("curl -sf {target} || echo refused"));
        let again = run.request();
        denied(&bench, &again);
        let (report, _) = run.end();
        assert_eq!(report["output"]["stdout"]["text"], "refused\n", "{}: {report}", bench.who());
        assert_eq!(server.accepted(), 1, "{}", bench.who());
    }
}

#[test]
fn what_a_command_chose_draws_nothing_in_a_question_about_a_connection() {
    for bench in benches() {
        let (_server, named, target) = scene(&bench);
        let drawn = "x\u{1b}[2J\rconnect to harmless.test:443\u{202e}";
        let fixed = ["run", "--changes", "discard", "--ask=approvals", "--", "sh", "-c"];
        let script = format!("curl -sf {target}; exit 3");
        let arguments = [&fixed[..], &[&script, drawn]].concat();
        let child = named.nexus(&bench, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let run = Run { bench: &bench, child };
        let request = run.request();
        for arguments in
            [&["approvals", "ls"][..], &["approvals", "show", &request], &["approvals", "show", "--json", &request]]
        {
            let text = stdout(&bench.run(arguments));
            assert!(text.contains(&target), "{}: {text:?}", bench.who());
            assert!(!text.contains(['\u{1b}', '\r']), "{}: {text:?}", bench.who());
            assert!(arguments.contains(&"--json") || !text.contains('\u{202e}'), "{}: {text:?}", bench.who());
            assert!(!text.contains("\nconnect to harmless"), "{}: {text:?}", bench.who());
        }
        denied(&bench, &request);
        let output = run.child.wait_with_output().unwrap();
        assert!(!stderr(&output).contains(['\u{1b}', '\r']), "{:?}", stderr(&output));
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    }
}

#[test]
fn a_question_on_the_terminal_is_answered_there_or_in_another_session() {
    for bench in benches() {
        let (server, named, target) = scene(&bench);
        let script = format!("curl -sf {target}; curl -sf {target}; curl -sf {target}; echo END");
        let arguments = ["run", "--changes", "discard", "--ask", "--shell", &script];
        let mut screen = Screen::start(named.on_terminal(&bench, arguments));
        let question = |number: usize| {
            screen.wait_for_count(&format!("wants to reach {target}"), number);
            wait_for("the request", PATIENCE, || states(&bench, "pending").first().map(id))
        };
        let first = question(1);
        let shown = approved(&bench, &[&first]);
        assert!(shown.contains("granted: once"), "{}: {shown}", bench.who());
        screen.wait_for(&format!("{target} is allowed once, by uid "));
        // The terminal of the run answers, and nothing is left to answer elsewhere.
        let second = question(2);
        screen.wait_for_count(" s) ", 2);
        screen.send("o\n");
        let third = question(3);
        denied(&bench, &third);
        screen.wait_for(&format!("{target} stays blocked for this run, by uid "));
        screen.wait_for("END");
        assert!(screen.end().success());
        assert_eq!((screen.shown().matches("hello").count(), server.accepted()), (2, 2), "{}", screen.shown());
        let late = bench.run(["approvals", "show", "--json", &second]);
        let late = report(&late);
        assert_eq!(late["state"], "withdrawn", "{}: {late}", bench.who());
        let receipt = stdout(&bench.run(["receipt", "show", late["subject"]["run"].as_str().unwrap()]));
        assert!(receipt.contains(", the terminal of the run"), "{}: {receipt}", bench.who());
    }
}

#[test]
fn a_detached_sandbox_asks_another_session_than_the_one_that_started_it() {
    for bench in benches() {
        let (server, named, target) = scene(&bench);
        let script = format!("curl -sf {target}; echo END");
        let flags = ["run", "--detach", "--name", "box", "--changes", "discard", "--ask=approvals", "--shell", &script];
        let started = named.run(&bench, flags);
        assert!(started.status.success(), "{}: {}", bench.who(), stderr(&started));
        let request = wait_for("the request", PATIENCE, || states(&bench, "pending").first().map(id));
        let own = bench.run(["approvals", "approve", &request]);
        assert!(stderr(&own).contains("does not answer it"), "{}: {}", bench.who(), stderr(&own));
        approved(&bench, &[&request]);
        wait_until("the connection", PATIENCE, || server.accepted() == 1);
        assert!(bench.run(["wait", "box"]).status.success(), "{}", bench.who());
        assert_eq!(stdout(&bench.run(["logs", "box"])), "hello\nEND\n", "{}", bench.who());
        bench.run(["rm", "--all"]);
    }
}

fn policy(bench: &Bench, text: &str) {
    let mut made = bench.home.clone();
    for part in Path::new(".config/nexus/policy").components() {
        made.push(part);
        if !made.exists() {
            fs::create_dir(&made).unwrap();
            fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).unwrap();
            bench.give(&made);
        }
    }
    let path = made.join("asks.yaml");
    fs::write(&path, format!("policy: nexus.policy/1\nid: asks\nlevel: user\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    bench.give(&path);
}

#[test]
fn a_policy_says_who_may_be_asked_and_no_answer_opens_what_it_does_not_list() {
    for bench in benches() {
        let (server, named, target) = scene(&bench);
        let at_the_terminal = || {
            let arguments = ["run", "--changes", "discard", "--ask", "--", "true"];
            let mut screen = Screen::start(named.on_terminal(&bench, arguments));
            (screen.end().code(), screen.shown())
        };
        policy(&bench, "approval: {egress: needs_approval}");
        let (code, shown) = at_the_terminal();
        assert!(code == Some(125) && shown.contains("--ask=approvals"), "{}: {shown}", bench.who());
        let run = Run::start(&bench, &named, &[], &format!("curl -sf {target}"));
        approved(&bench, &[&run.request()]);
        let (report, output) = run.end();
        assert_eq!(report["output"]["stdout"]["text"], "hello\n", "{}: {}", bench.who(), stderr(&output));
        policy(&bench, "approval: {egress: forbidden}");
        let (code, shown) = at_the_terminal();
        assert!(code == Some(125) && shown.contains("lets no person be asked"), "{}: {shown}", bench.who());
        let refused = named.run(&bench, ["run", "--ask=approvals", "--", "true"]);
        assert_eq!(refused.status.code(), Some(125), "{}: {}", bench.who(), stderr(&refused));
        // What a policy does not list is not asked about.
        policy(&bench, &format!("net: {{allow: [\"{}\"]}}", target.replace("web.test", "db.test")));
        let run = Run::start(&bench, &named, &[], &format!("curl -sf {target} || echo refused"));
        let (report, output) = run.end();
        assert_eq!(report["output"]["stdout"]["text"], "refused\n", "{}: {}", bench.who(), stderr(&output));
        assert_eq!(states(&bench, "used").len(), 1, "{}", bench.who());
        assert!(states(&bench, "pending").is_empty() && server.accepted() == 1, "{}", bench.who());
    }
}

#[test]
fn a_quorum_that_this_machine_cannot_have_refuses_what_needs_an_approval() {
    for bench in benches() {
        let (_server, named, _) = scene(&bench);
        policy(&bench, "approval: {exec: needs_approval, egress: needs_approval, quorum: 2}");
        let refused = |arguments: &[&str]| {
            let output = named.run(&bench, arguments);
            assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stderr(&output));
            assert!(stderr(&output).contains("an approval by 2 users"), "{}: {}", bench.who(), stderr(&output));
        };
        refused(&["run", "--", "true"]);
        refused(&["run", "--ask=approvals", "--", "true"]);
        policy(&bench, "approval: {egress: needs_approval, quorum: 2}");
        refused(&["run", "--ask=approvals", "--", "true"]);
        // A run that needs no approval starts.
        assert!(named.run(&bench, ["run", "--", "true"]).status.success(), "{}", bench.who());
        assert!(listed(&bench).is_empty(), "{}", bench.who());
    }
}

#[test]
fn a_command_that_asks_about_much_fills_no_list() {
    for bench in benches() {
        let (_server, named, target) = scene(&bench);
        let port = target.rsplit(':').next().unwrap();
        // Each waits for its answer; the clients of the first requests have gone by then.
        let script = format!(
            "for i in $(seq 40); do curl -sf --max-time 3 n$i.test:{port} & done; wait; \
             for i in $(seq 100); do curl -sf --max-time 1 m$i.test:{port} & sleep 0.02; done; wait; echo END"
        );
        let run = Run::start(&bench, &named, &[], &script);
        wait_until("16 requests", PATIENCE, || states(&bench, "pending").len() == 16);
        let (report, output) = run.end();
        assert_eq!(report["output"]["stdout"]["text"], "END\n", "{}: {}", bench.who(), stderr(&output));
        let all = listed(&bench);
        assert!((16..=100).contains(&all.len()), "{}: {}", bench.who(), all.len());
        assert!(all.iter().all(|one| one["state"] == "withdrawn"), "{}: {all:?}", bench.who());
    }
}
