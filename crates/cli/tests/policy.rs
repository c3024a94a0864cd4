//! Policy documents with the real program: what they refuse, what they lower, and what never comes into force.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;
use support::net::Named;
use support::{Bench, benches, on_each_bench, stderr, stdout};

/// Puts the policy `mine` of the user in force by its file.
fn policy(bench: &Bench, rest: &str) -> PathBuf {
    let text = format!("policy: nexus.policy/1\nid: mine\nlevel: user\n{rest}");
    bench.at_home(".config/nexus/policy/mine.yaml", &text)
}

#[track_caller]
fn refused(bench: &Bench, output: &Output, said: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(125), "{}: {text}{}", bench.who(), stdout(output));
    for word in said {
        assert!(text.contains(word), "{}: {word} is not said: {text}", bench.who());
    }
}

#[track_caller]
fn runs(bench: &Bench, arguments: &[&str]) -> String {
    let output = bench.run(arguments);
    assert!(output.status.success(), "{}: {arguments:?}: {}", bench.who(), stderr(&output));
    stdout(&output)
}

#[test]
fn a_run_asks_for_no_more_than_its_policies_allow() {
    on_each_bench(|bench| {
        let tool = bench.at_home("tools/tool", "x");
        let keys = bench.at_home("tools/keys/key", "x");
        let (tools, keys) = (tool.parent().unwrap().to_owned(), keys.parent().unwrap().to_owned());
        let (dir, sub) = (tools.display(), keys.display());
        policy(
            &bench,
            &format!(
                "net: {{allow: [\"a.test:443\"], deny: [bad.test]}}\n\
                 fs: {{read: [\"workspace:**\", \"host:{dir}/**\"], deny: [\"host:{sub}/**\"]}}\n\
                 limits: {{pids: 300, timeout: 1h}}\n\
                 budgets: {{connections: 10}}\n\
                 secrets: [ONE]\n"
            ),
        );
        let refuses = |arguments: &[&str], said: &str| {
            let command: Vec<&str> = ["run"].iter().chain(arguments).chain(&["--", "true"]).copied().collect();
            refused(&bench, &bench.run(command), &[said, "mine.yaml:"]);
        };
        refuses(&["--allow", "other.test"], "--allow asks for other.test, and a policy forbids it: it is not listed");
        refuses(&["--allow", "a.test:80"], "it is listed with the ports 443");
        refuses(&["--net", "unrestricted"], "at most --net allowlist");
        refuses(&["--allow-private", "10.0.0.1:80"], "at most --net allowlist");
        refuses(&["--pids", "301"], "--pids asks for more than 300");
        refuses(&["--allow", "a.test", "--max-connections", "11"], "at most 10 is allowed");
        refuses(&["--rw", &format!("{dir}")], "would write");
        refuses(&["--ro", "/opt"], "it is not among the paths that may be read");
        refuses(&["--ro", &format!("{sub}")], "is denied");
        refuses(&["--ro", &format!("{dir}")], "is denied");
        refuses(&["--ro", &format!("{dir}/keys/../keys")], "is denied");
        refuses(&["--env-secret", "TWO"], "--env-secret TWO passes a secret, and a policy forbids it");
        refuses(&["--secret", "TWO=env:HOME"], "--secret TWO gives a secret, and a policy forbids it");
        // A link is asked about as what it leads to.
        let link = bench.home.join("tools/link");
        std::os::unix::fs::symlink("/usr/share", &link).unwrap();
        refuses(&["--ro", &link.display().to_string()], "it is not among the paths that may be read");
        fs::remove_file(&link).unwrap();

        runs(&bench, &["run", "--", "true"]);
        runs(&bench, &["run", "--secret", "ONE=env:HOME", "--", "true"]);
        runs(&bench, &["run", "--allow", "a.test", "--max-connections", "10", "--", "true"]);
        runs(&bench, &["run", "--ro", &format!("{dir}/tool"), "--", "cat", &format!("{dir}/tool")]);
        let told = runs(&bench, &["explain", "--json", "--", "true"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let pids = told["limits"].as_array().unwrap().iter().find(|one| one["limit"] == "pids");
        assert!(pids.unwrap()["from"].as_str().unwrap().contains("policy/mine.yaml:6:16"), "{}", told["limits"]);
        bench.at_home(".config/nexus/profiles/apt.yaml", "etc: [apt]\n");
        policy(
            &bench,
            &format!("fs: {{read: [\"workspace:**\", \"host:{dir}/tool\"], deny: [\"host:/etc/apt/auth.conf\"]}}\n"),
        );
        runs(&bench, &["run", "--ro", &format!("{dir}/tool"), "--", "true"]);
        refuses(&["--ro", &dir.to_string()], "it is not among the paths that may be read");
        refuses(&["--profile", "apt"], "would show /etc/apt, and a policy denies it");
    });
}

#[test]
fn a_grace_does_not_pass_the_time_that_a_policy_allows() {
    for bench in benches() {
        policy(&bench, "limits: {timeout: 3s}\nnet: {mode: none}\n");
        let stubborn = ["--", "sh", "-c", "trap '' TERM; for i in 1 2 3 4 5 6 7 8 9; do sleep 1; done; echo RAN-ON"];
        let with = |flags: &[&str]| bench.run(["run"].iter().chain(flags).chain(&stubborn).copied());
        for flags in [&["--grace", "1h"][..], &["--grace", "11s"], &["--timeout", "1s", "--grace", "13s"]] {
            refused(&bench, &with(flags), &["--grace asks for more than", "mine.yaml:4:19", "3s in all"]);
        }
        let begun = std::time::Instant::now();
        let ended = with(&["--timeout", "1s", "--grace", "2s"]);
        assert_eq!(ended.status.code(), Some(124), "{}: {}", bench.who(), stderr(&ended));
        assert!(!stdout(&ended).contains("RAN-ON") && begun.elapsed().as_secs() < 8, "{}", bench.who());
        runs(&bench, &["run", "--timeout", "1s", "--grace", "12s", "--", "true"]);
        // The file is the user's own, and so is the word about it.
        let refusal = bench.run(["run", "--net", "unrestricted", "--", "true"]);
        refused(&bench, &refusal, &["at most --net none is allowed", "mine.yaml:5:"]);
        assert!(!stderr(&refusal).contains("operator"), "{}", stderr(&refusal));
        // Without a limit of a policy the grace is the caller's own.
        policy(&bench, "limits: {pids: 300}\n");
        runs(&bench, &["run", "--grace", "1h", "--", "true"]);
    }
}

#[test]
fn a_replay_says_what_other_documents_would_decide_about_recorded_runs() {
    for bench in benches() {
        runs(&bench, &["run", "--", "echo", "one"]);
        let reach = "curl -s --max-time 5 https://b.test/ || true";
        runs(&bench, &["run", "--changes", "discard", "--pids", "200", "--allow", "a.test", "--", "sh", "-c", reach]);
        let strict = "policy: nexus.policy/1\nid: mine\nlevel: user\nnet: {deny: [b.test]}\nlimits: {pids: 100}\n\
                      approval: {changes: needs_approval}\ncommands: {forbidden: [\"curl *\"], needs_approval: [\"echo *\"]}\n";
        let strict = bench.at_home("drafts/strict.yaml", strict).display().to_string();
        let replay = |arguments: &[&str]| bench.run(["policy", "replay"].iter().chain(arguments).copied());
        let says = |output: &Output, code: i32, said: &[&str]| {
            let text = format!("{}{}", stdout(output), stderr(output));
            assert_eq!(output.status.code(), Some(code), "{}: {text}", bench.who());
            for words in said {
                assert!(text.contains(words), "{}: {words:?} is not in {text}", bench.who());
            }
        };
        let stricter = [
            "allowed → asked    changes",
            "allowed → asked    run echo one",
            "allowed → refused  run sh -c curl",
            "allowed → refused  net b.test:443  (b.test is denied (user policy mine, ",
            "allowed → lowered  limit pids=200  (at most 100 is allowed (",
            "2 of 2 runs would be decided in another way: something is refused in 1 and asked in 1",
        ];
        says(&replay(&[&strict]), 1, &stricter);
        says(&replay(&["--since", "30d", "--number", "1", &strict]), 1, &["1 of 1 runs"]);
        let document: serde_json::Value = serde_json::from_str(&stdout(&replay(&["--json", &strict]))).unwrap();
        assert_eq!((&document["runs"], &document["differing"]), (&2.into(), &2.into()), "{document}");
        let latest = &document["differences"][0]["differences"];
        let net = latest.as_array().unwrap().iter().find(|one| one["question"] == "net b.test:443").unwrap();
        assert_eq!((&net["before"]["outcome"], &net["after"]["outcome"]), (&"allowed".into(), &"refused".into()));
        // In force it is not a difference any more, and without it everything is as loose as it was.
        let applied = bench.run(["policy", "apply", &strict]);
        assert!(applied.status.success(), "{}", stderr(&applied));
        says(&replay(&[&strict]), 0, &["0 of 2 runs"]);
        says(&replay(&["--alone"]), 1, &["refused → allowed  net b.test:443", "asked   → allowed  run echo one"]);
        says(&replay(&[]), 2, &[]);
        // What is recorded is not taken on trust: not a record that was changed, and not a receipt.
        let record = fs::read_dir(bench.state.join("net")).unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(&record).unwrap();
        fs::write(&record, text.replace("b.test", "c.test")).unwrap();
        says(
            &replay(&["--alone"]),
            1,
            &["not recorded: the record of the network, which is not the one of the receipt"],
        );
        let receipt = bench.state.join("receipts").join(record.file_stem().unwrap()).with_extension("json");
        fs::write(&receipt, "{}").unwrap();
        says(&replay(&["--alone"]), 1, &["not replayed: its receipt is not valid", "1 of 1 runs"]);
    }
}

#[test]
fn an_approval_or_a_prohibition_of_a_policy_is_not_passed_over() {
    for bench in benches() {
        policy(&bench, "approval: {exec: needs_approval}\n");
        refused(&bench, &bench.run(["run", "--", "true"]), &["only with an approval", "mine.yaml:4:18"]);
        policy(&bench, "approval: {exec: forbidden}\n");
        refused(&bench, &bench.run(["run", "--", "true"]), &["A policy forbids this command"]);
        policy(&bench, "sandbox: [trusted]\n");
        refused(&bench, &bench.run(["run", "--", "true"]), &["the isolation untrusted"]);

        policy(&bench, "approval: {changes: needs_approval}\n");
        refused(&bench, &bench.run(["run", "--changes", "commit", "--", "true"]), &["only by an accept"]);
        refused(&bench, &bench.run(["run", "--direct", "--", "true"]), &["only by an accept"]);
        runs(&bench, &["run", "--", "touch", "made"]);
        assert!(!bench.workspace.join("made").exists(), "{}: it waits", bench.who());
        runs(&bench, &["changes", "accept"]);
        assert!(bench.workspace.join("made").exists(), "{}", bench.who());

        for rest in ["approval: {changes: forbidden}\n", "fs: {write: [\"workspace:/src/**\"]}\n"] {
            policy(&bench, rest);
            refused(
                &bench,
                &bench.run(["run", "--", "true"]),
                &["no change come into this workspace", "--changes discard"],
            );
            runs(&bench, &["run", "--changes", "discard", "--", "touch", "gone"]);
            assert!(!bench.workspace.join("gone").exists(), "{}", bench.who());
        }
    }
}

#[test]
fn a_path_of_the_workspace_that_a_policy_denies_is_hidden_and_its_changes_wait() {
    for bench in benches() {
        bench.write("deep/secret/key", "word");
        bench.write("deep/other", "fine");
        policy(&bench, "fs: {deny: [\"workspace:/deep/secret/**\", \"workspace:/not/there\"]}\n");
        let output = bench.run(["run", "--", "cat", "deep/secret/key"]);
        assert!(!output.status.success() && !stdout(&output).contains("word"), "{}", bench.who());
        assert_eq!(runs(&bench, &["run", "--", "cat", "deep/other"]), "fine", "{}", bench.who());
        for kept in ["host:/usr/share/doc/**", "host:/usr/bin/env"] {
            let was = fs::read_to_string(bench.home.join(".config/nexus/policy/mine.yaml")).unwrap();
            policy(&bench, &format!("fs: {{deny: [\"{kept}\"]}}\n"));
            refused(&bench, &bench.run(["run", "--", "true"]), &["every run shows the system", "mine.yaml:4:"]);
            fs::write(bench.home.join(".config/nexus/policy/mine.yaml"), was).unwrap();
        }
        let output = bench.run(["run", "--", "true"]);
        assert!(!stderr(&output).contains("matched nothing"), "{}: {}", bench.who(), stderr(&output));
        let output = bench.run(["run", "--", "sh", "-c", "mkdir not && echo x > not/there"]);
        assert!(!bench.workspace.join("not/there").exists(), "{}: {}", bench.who(), stderr(&output));
    }
}

#[test]
fn the_workspaces_own_document_only_takes_away() {
    for bench in benches() {
        let file = |text: &str| bench.write(".nexus-policy.yaml", format!("policy: nexus.policy/1\nid: ws\n{text}"));
        policy(&bench, "limits: {pids: 200}\nnet: {allow: [a.test]}\nsecrets: [ONE]\n");
        file("level: facility\nlimits: {pids: 100000}\nnet: {mode: unrestricted}\n");
        refused(&bench, &bench.run(["run", "--pids", "201", "--", "true"]), &["mine.yaml"]);
        refused(&bench, &bench.run(["run", "--allow", "b.test", "--", "true"]), &["mine.yaml"]);
        file("level: facility\nlimits: {pids: 100}\nnet: {mode: none}\n");
        refused(&bench, &bench.run(["run", "--pids", "101", "--", "true"]), &[".nexus-policy.yaml:4:16"]);
        refused(&bench, &bench.run(["run", "--allow", "a.test", "--", "true"]), &[".nexus-policy.yaml:5:13"]);
        for (text, said) in [
            ("level: user\n", "a workspace's own document is of the level facility"),
            ("level: facility\nsecrets: [TWO]\n", "takes no secrets and no sandbox"),
            ("level: facility\nsandbox: [host]\n", "takes no secrets and no sandbox"),
            ("level: facility\nlimit: {}\n", "did you mean limits?"),
            ("level: facility\ntests: {not_match: [\"mode none\"]}\n", "should not match"),
        ] {
            file(text);
            refused(&bench, &bench.run(["run", "--", "true"]), &[said, ".nexus-policy.yaml"]);
        }
        fs::remove_file(bench.workspace.join(".nexus-policy.yaml")).unwrap();
        std::os::unix::fs::symlink("/dev/null", bench.workspace.join(".nexus-policy.yaml")).unwrap();
        refused(&bench, &bench.run(["run", "--", "true"]), &["it is a symbolic link"]);
        fs::remove_file(bench.workspace.join(".nexus-policy.yaml")).unwrap();
        // What a command does to it waits for a person.
        file("level: facility\nlimits: {pids: 100}\n");
        runs(&bench, &["run", "--", "rm", ".nexus-policy.yaml"]);
        assert!(bench.workspace.join(".nexus-policy.yaml").exists(), "{}", bench.who());
    }
}

#[test]
fn a_document_that_fails_its_own_tests_is_not_applied_and_the_one_before_holds() {
    for bench in benches() {
        let draft =
            |text: &str| bench.at_home("draft.yaml", &format!("policy: nexus.policy/1\nid: mine\nlevel: user\n{text}"));
        let path =
            draft("limits: {pids: 100}\ntests: {match: [\"limit pids=100\"], not_match: [\"limit pids=101\"]}\n");
        let path = path.to_str().unwrap();
        assert!(runs(&bench, &["policy", "check", path]).starts_with("ok "));
        assert!(runs(&bench, &["policy", "test", path]).contains("2 of 2 hold"));
        assert!(runs(&bench, &["policy", "apply", path]).contains("in force: generation blake3:"));
        let over = ["run", "--pids", "101", "--", "true"];
        refused(&bench, &bench.run(over), &["--pids asks for more than 100", "policy/user-mine.yaml:4:16"]);

        draft("limits: {pids: 1000}\ntests: {not_match: [\"limit pids=101\"]}\n");
        refused(&bench, &bench.run(["policy", "apply", path]), &["should not match \"limit pids=101\", and does"]);
        assert_eq!(bench.run(["policy", "check", path]).status.code(), Some(1), "{}", bench.who());
        let tested = bench.run(["policy", "test", path]);
        assert_eq!(tested.status.code(), Some(1));
        assert!(stdout(&tested).contains("failed  not_match limit pids=101"), "{}", stdout(&tested));
        draft("limits: {pids: 1000}\nlimits: {}\n");
        refused(&bench, &bench.run(["policy", "apply", path]), &["draft.yaml:5:1", "twice"]);
        refused(&bench, &bench.run(over), &["--pids asks for more than 100"]);

        draft("limits: {pids: 200}\n");
        runs(&bench, &["policy", "apply", path]);
        runs(&bench, &over);
        let left: Vec<_> = fs::read_dir(bench.home.join(".config/nexus/policy")).unwrap().collect();
        assert_eq!(left.len(), 1, "{}: {left:?}", bench.who());
        if bench.user.is_some() {
            let global = bench.at_home("global.yaml", "policy: nexus.policy/1\nid: all\nlevel: global\n");
            let output = bench.run(["policy", "apply", global.to_str().unwrap()]);
            refused(&bench, &output, &["belongs to the operator"]);
        }
    }
}

#[test]
fn a_document_that_cannot_be_used_lets_nothing_run() {
    for bench in benches() {
        let path = policy(&bench, "limts: {}\n");
        refused(&bench, &bench.run(["run", "--", "true"]), &["mine.yaml:4:1", "did you mean limits?"]);
        policy(&bench, "");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        refused(&bench, &bench.run(["run", "--", "true"]), &["can be written by others"]);
        policy(&bench, "");
        runs(&bench, &["run", "--", "true"]);
        let stray = bench.at_home(".config/nexus/policy/more.yml", "");
        refused(&bench, &bench.run(["run", "--", "true"]), &["more.yml: only NAME.yaml is a policy document"]);
        fs::remove_file(stray).unwrap();
        if bench.user.is_some() {
            let text = "policy: nexus.policy/1\nid: all\nlevel: global\n";
            let global = bench.at_home(".config/nexus/policy/all.yaml", text);
            refused(&bench, &bench.run(["run", "--", "true"]), &["the level global does not hold here"]);
            fs::remove_file(global).unwrap();
        }
        let same = bench.at_home(".config/nexus/policy/z.yaml", "policy: nexus.policy/1\nid: mine\nlevel: user\n");
        refused(&bench, &bench.run(["run", "--", "true"]), &["are both the user policy mine"]);
        fs::remove_file(same).unwrap();
        // A link that leads nowhere, as one into a directory that moved or is not mounted.
        let link = bench.home.join(".config/nexus/policy/linked.yaml");
        std::os::unix::fs::symlink(bench.home.join("gone/linked.yaml"), &link).unwrap();
        refused(&bench, &bench.run(["run", "--", "true"]), &["linked.yaml", "leads nowhere"]);
        fs::remove_file(link).unwrap();
        let directory = path.parent().unwrap();
        fs::remove_dir_all(directory).unwrap();
        std::os::unix::fs::symlink(bench.home.join("gone"), directory).unwrap();
        refused(&bench, &bench.run(["run", "--", "true"]), &["policy", "cannot be read"]);
        fs::remove_file(directory).unwrap();
        runs(&bench, &["run", "--", "true"]);
    }
}

#[test]
fn explain_names_who_says_what_and_answers_questions() {
    for bench in benches() {
        policy(&bench, "net: {allow: [a.test], deny: [bad.test]}\nlimits: {pids: 300}\n");
        bench.write(".nexus-policy.yaml", "policy: nexus.policy/1\nid: ws\nlevel: facility\nlimits: {pids: 200}\n");
        let text = runs(&bench, &["policy", "explain"]);
        for line in ["user      mine", "facility  ws", "net only a.test", "net never bad.test", "mine.yaml:4:15"] {
            assert!(text.contains(line), "{}: {line}: {text}", bench.who());
        }
        let pids = text.lines().find(|line| line.contains("limit pids at most 200")).unwrap();
        assert!(pids.contains(".nexus-policy.yaml:4:16"), "{text}");
        let run = runs(&bench, &["explain", "--", "true"]);
        assert!(run.contains("net never bad.test  ← ") && run.contains("mine.yaml:4:"), "{run}");
        let asked = bench.run(["policy", "explain", "net a.test:443", "limit pids=300"]);
        assert_eq!(asked.status.code(), Some(1));
        let answers = stdout(&asked);
        assert!(answers.contains("allowed    net a.test:443"), "{answers}");
        assert!(answers.contains("at most 200 is allowed (facility policy ws, "), "{answers}");
        let asked = bench.run(["policy", "explain", "--json", "net bad.test:443"]);
        let json: serde_json::Value = serde_json::from_str(&stdout(&asked)).unwrap();
        assert_eq!(
            (asked.status.code().unwrap(), json["answers"][0]["forbidden_by"][0]["id"].as_str()),
            (1, Some("mine")),
            "{json}"
        );
        let wrong = bench.run(["policy", "explain", "go far"]);
        assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
        // A receipt names every document that counted.
        let (ran, _) = bench.json(["--", "true"]);
        let said = runs(&bench, &["receipt", "show", ran["run_id"].as_str().unwrap(), "--json"]);
        assert!(said.contains("policy user/mine") && said.contains("policy facility/ws"), "{said}");
    }
}

#[test]
fn what_a_profile_lists_beyond_a_policy_is_denied_at_the_connection() {
    for bench in benches() {
        policy(&bench, "net: {allow: [\"*.a.test:443\"], deny: [bad.a.test]}\n");
        bench.at_home(".config/nexus/profiles/wide.yaml", "net: {allow: [x.a.test, other.test, bad.a.test]}\n");
        for (target, code) in [("x.a.test:443", 0), ("other.test:443", 1), ("bad.a.test:443", 1)] {
            let checked = bench.run(["net", "check", target, "--profile", "wide", "--resolve", "93.184.216.34"]);
            let text = stdout(&checked);
            assert_eq!(checked.status.code(), Some(code), "{}: {target}: {text}{}", bench.who(), stderr(&checked));
        }
    }
}

#[test]
fn rules_of_other_programs_are_imported_with_a_report_and_applied() {
    for bench in benches() {
        let rules = bench.at_home(
            "settings.json",
            r#"{"permissions": {"allow": ["Bash(echo *)", "mcp__x"], "deny": ["Bash(ls *)"], "ask": ["Bash"]}}"#,
        );
        let output = bench.run(["policy", "import", "--from", "claude", "--id", "agent", rules.to_str().unwrap()]);
        assert!(
            output.status.success() && stderr(&output).contains("mcp__x: it is about a tool"),
            "{}",
            stderr(&output)
        );
        let document = bench.at_home("agent.yaml", &stdout(&output));
        runs(&bench, &["policy", "apply", document.to_str().unwrap()]);
        assert_eq!(runs(&bench, &["run", "--", "echo", "x"]), "x\n", "{}", bench.who());
        refused(&bench, &bench.run(["run", "--", "ls", "-l"]), &["A policy forbids this command", "user-agent.yaml:"]);
        refused(&bench, &bench.run(["run", "--shell", "echo x; ls"]), &["A policy forbids this command"]);
        refused(&bench, &bench.run(["run", "--shell", "echo x; pwd"]), &["only with an approval"]);
        let broken = bench.at_home("x.rules", "prefix_rule(");
        let output = bench.run(["policy", "import", "--from", "codex", broken.to_str().unwrap()]);
        refused(&bench, &output, &["x.rules is not taken", "line 1"]);
        for (line, code, said) in
            [("ls -l", 0, "safe\n"), ("ls; pwd", 1, "needs_approval\n"), ("rm -rf /", 1, "forbidden\n")]
        {
            let output = bench.run(["policy", "command", line]);
            assert_eq!(output.status.code(), Some(code), "{line}");
            assert!(stdout(&output).starts_with(said), "{line}: {}", stdout(&output));
        }
    }
}

#[test]
fn a_rule_of_skip_lets_only_a_plain_run_of_the_systems_program_go() {
    on_each_bench(|bench| {
        policy(&bench, "approval: {exec: needs_approval}\ncommands: {skip: [\"echo *\", \"true\"]}\n");
        let art = bench.at_home("art/x", "");
        let art = art.parent().unwrap().to_str().unwrap();
        for narrow in [&[][..], &["--changes", "discard"], &["--net", "none", "--quiet"], &["--hide-secrets", "--json"]]
        {
            runs(&bench, &[&["run"], narrow, &["--", "echo", "x"]].concat());
        }
        for more in [
            &["--rw", art][..],
            &["--ro", art],
            &["--net", "unrestricted"],
            &["--allow-host-port", "5432"],
            &["--env", "A=1"],
            &["--env-secret", "TOKEN"],
            &["--direct"],
            &["--allow-ptrace"],
            &["--pids", "5000"],
            &["--timeout", "1h"],
            &["--full-output", &format!("{art}/out")],
            &["--publish", "0:80"],
            &["--profile", "git"],
        ] {
            let output = bench.run([&["run"], more, &["--", "echo", "x"]].concat());
            refused(&bench, &output, &["only with an approval", "where no flag gives more"]);
        }
        // Another program of that name.
        let tool = bench.write("true", "#!/bin/sh\necho another\n");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        runs(&bench, &["run", "--", "true"]);
        let path = format!("PATH={}:/usr/bin:/bin", bench.workspace.display());
        refused(&bench, &bench.run(["run", "--env", &path, "--", "true"]), &["only with an approval"]);
        refused(&bench, &bench.run(["run", "--", "./true"]), &["only with an approval"]);
        // A sandbox has the rights that it was started with, whatever they are.
        let before = bench.home.join(".config/nexus/policy/mine.yaml");
        let text = fs::read_to_string(&before).unwrap();
        policy(&bench, "");
        runs(&bench, &["run", "--detach", "--name", "box", "--rw", art, "--", "sleep", "60"]);
        fs::write(&before, text).unwrap();
        refused(
            &bench,
            &bench.run(["exec", "box", "--", "echo", "x"]),
            &["needs_approval", "which asks for an approval"],
        );
        bench.run(["kill", "box"]);
        bench.run(["rm", "--all"]);
    });
}

#[test]
fn no_bind_of_a_part_of_the_workspace_is_written_past_a_policy_about_its_changes_or_its_disk() {
    on_each_bench(|bench| {
        bench.write("bin/tool", "x");
        let beside = bench.at_home("beside/x", "x");
        let beside = beside.parent().unwrap().to_str().unwrap().to_owned();
        let link = bench.home.join("to-bin");
        std::os::unix::fs::symlink(bench.workspace.join("bin"), &link).unwrap();
        let link = link.to_str().unwrap().to_owned();
        for rest in [
            "approval: {changes: forbidden}\n",
            "approval: {changes: needs_approval}\n",
            "fs: {write: [\"workspace:/src/**\", \"host:/**\"]}\n",
            "limits: {disk: 10M}\n",
        ] {
            policy(&bench, rest);
            for bind in ["./bin", "bin:/mnt/x", "bin/tool", &link] {
                let output = bench.run(["run", "--changes", "discard", "--rw", bind, "--shell", "echo y > bin/new"]);
                refused(&bench, &output, &["is a part of the workspace", "mine.yaml:4:"]);
            }
            let aside = ["run", "--changes", "discard", "--rw", &beside, "--ro", "bin:/mnt/x", "--", "true"];
            runs(&bench, &aside);
        }
        assert!(!bench.workspace.join("bin/new").exists(), "{}", bench.who());
        policy(&bench, "");
        runs(&bench, &["run", "--rw", "bin", "--shell", "echo y > bin/new"]);
        assert!(bench.workspace.join("bin/new").exists(), "{}", bench.who());
    });
}

#[test]
fn a_command_in_a_sandbox_is_under_the_document_of_its_workspace() {
    on_each_bench(|bench| {
        runs(&bench, &["run", "--detach", "--name", "box", "--", "sleep", "60"]);
        let exec = |directory: &std::path::Path, words: &[&str]| {
            let mut command = bench.nexus([&["exec", "box", "--"], words].concat());
            command.current_dir(directory).output().unwrap()
        };
        assert!(exec(&bench.home, &["ls", "-d", "."]).status.success(), "{}", bench.who());
        let forbids = "policy: nexus.policy/1\nid: ws\nlevel: facility\ncommands: {forbidden: [\"ls *\"]}\n";
        bench.write(".nexus-policy.yaml", forbids);
        // From anywhere: the workspace is that of the sandbox.
        for directory in [&bench.home, &bench.workspace] {
            refused(
                &bench,
                &exec(directory, &["ls", "-d", "."]),
                &["says forbidden", ".nexus-policy.yaml:4:", "nexus policy explain"],
            );
            assert!(exec(directory, &["true"]).status.success(), "{}", bench.who());
        }
        bench.run(["kill", "box"]);
        bench.run(["rm", "--all"]);
    });
}

#[test]
fn a_workspace_that_moves_takes_its_document_from_no_sandbox() {
    on_each_bench(|bench| {
        let forbids = "policy: nexus.policy/1\nid: ws\nlevel: facility\ncommands: {forbidden: [\"ls *\"]}\n";
        let document = bench.write(".nexus-policy.yaml", forbids);
        runs(&bench, &["run", "--detach", "--name", "box", "--", "sleep", "60"]);
        let exec = |words: &[&str]| {
            let mut command = bench.nexus([&["exec", "box", "--"], words].concat());
            command.current_dir(&bench.home).output().unwrap()
        };
        let listed = ["ls", "-d", "."];
        refused(&bench, &exec(&listed), &["says forbidden", ".nexus-policy.yaml:4:"]);
        let aside = bench.home.join("aside");
        fs::rename(&bench.workspace, &aside).unwrap();
        refused(&bench, &exec(&listed), &["is not found at", "Move it back"]);
        // Nor does another directory of that name, with a document or without one.
        fs::create_dir(&bench.workspace).unwrap();
        bench.give(&bench.workspace);
        refused(&bench, &exec(&listed), &["is another directory", "Move it back"]);
        bench.write(".nexus-policy.yaml", "policy: nexus.policy/1\nid: ws\nlevel: facility\n");
        refused(&bench, &exec(&["true"]), &["is another directory"]);
        fs::remove_dir_all(&bench.workspace).unwrap();
        fs::rename(&aside, &bench.workspace).unwrap();
        refused(&bench, &exec(&listed), &["says forbidden"]);
        assert!(exec(&["true"]).status.success(), "{}", bench.who());
        // A document that was there at the start stays a condition; one that says something else counts as it is now.
        fs::remove_file(&document).unwrap();
        refused(&bench, &exec(&["true"]), &["was started under the policy document", "Put it back"]);
        bench.write(".nexus-policy.yaml", forbids.replace("ls *", "true"));
        refused(&bench, &exec(&["true"]), &["says forbidden"]);
        assert!(exec(&listed).status.success(), "{}", bench.who());
        bench.run(["kill", "box"]);
        bench.run(["rm", "--all"]);
    });
}

#[test]
fn a_file_that_a_flag_asks_for_is_written_only_where_the_policy_lets_it() {
    on_each_bench(|bench| {
        let keys = bench.at_home("keys/x", "");
        let logs = bench.at_home("logs/x", "");
        let (keys, logs) = (keys.parent().unwrap(), logs.parent().unwrap());
        for rest in [
            format!("fs: {{deny: [\"host:{}/**\"]}}\n", keys.display()),
            format!("fs: {{write: [\"workspace:**\", \"host:{}/**\"]}}\n", logs.display()),
        ] {
            policy(&bench, &rest);
            for flag in ["--full-output", "--receipt"] {
                let (out, log) = (keys.join("out"), logs.join("log"));
                let there = format!("{}/../keys/out", logs.display());
                for path in [out.to_str().unwrap(), &there] {
                    let output = bench.run(["run", flag, path, "--", "true"]);
                    refused(&bench, &output, &[flag, "a policy forbids it", "mine.yaml:4:"]);
                }
                assert!(!out.exists(), "{}", bench.who());
                runs(&bench, &["run", flag, log.to_str().unwrap(), "--", "true"]);
                fs::remove_file(log).unwrap();
            }
        }
    });
}

#[test]
fn no_file_that_a_flag_asks_for_is_written_through_a_link_of_a_command() {
    on_each_bench(|bench| {
        bench.at_home("victim/keep", "");
        let art = bench.at_home("art/logs/x", "");
        let logs = art.parent().unwrap().to_owned();
        let art = logs.parent().unwrap().to_str().unwrap().to_owned();
        let swap = format!("cd {art} && mv logs moved && ln -s ../victim logs");
        runs(&bench, &["run", "--rw", &art, "--shell", &swap]);
        for flag in ["--full-output", "--receipt"] {
            let output = bench.run(["run", flag, logs.join("name").to_str().unwrap(), "--", "echo", "x"]);
            refused(&bench, &output, &[flag, "is a link"]);
        }
        assert!(!bench.home.join("victim/name").exists(), "{}", bench.who());
    });
}

#[test]
fn a_denied_path_and_a_held_workspace_are_known_by_their_other_mounts() {
    on_each_bench(|bench| {
        bench.write("bin/tool", "x");
        let place = |name: &str| bench.at_home(&format!("{name}/x"), "x").parent().unwrap().to_owned();
        let (keys, logs, inner, sub) = (place("keys"), place("logs"), place("art/keys"), place("art/sub"));
        let named = Named::new(&bench);
        let run = |mount: &[(&std::path::Path, &std::path::Path)], arguments: &[&str]| {
            let mounts = mount.iter().map(|(from, to)| format!("mount --bind {} {}", from.display(), to.display()));
            let before = mounts.chain([":".to_owned()]).collect::<Vec<_>>().join(" && ");
            named.prepared(&bench, &before, arguments).output().unwrap()
        };
        let art = inner.parent().unwrap().to_str().unwrap();
        let log = logs.join("out");
        policy(&bench, &format!("fs: {{deny: [\"host:{}/**\"]}}\n", keys.display()));
        let denied = format!("which is {} too, and a policy denies that", keys.display());
        for (at, flags) in [
            (&logs, ["--rw", logs.to_str().unwrap()]),
            (&logs, ["--ro", logs.to_str().unwrap()]),
            (&inner, ["--ro", art]),
            (&inner, ["--rw", inner.to_str().unwrap()]),
        ] {
            let command = ["run", flags[0], flags[1], "--", "true"];
            refused(&bench, &run(&[(&keys, at)], &command), &[&denied, "mine.yaml:4:"]);
            let free = run(&[], &command);
            assert!(free.status.success(), "{}: {flags:?}: {}", bench.who(), stderr(&free));
        }
        let output = run(&[(&keys, &logs)], &["run", "--full-output", log.to_str().unwrap(), "--", "true"]);
        let there = format!("which is {} too", keys.join("out").display());
        refused(&bench, &output, &["--full-output", &there]);
        // A part of the workspace comes by a mount below a bind.
        policy(&bench, "approval: {changes: forbidden}\n");
        let write = format!("touch {}/new", sub.display());
        let command = ["run", "--changes", "discard", "--rw", art, "--shell", &write];
        let bin = bench.workspace.join("bin");
        refused(&bench, &run(&[(&bin, &sub)], &command), &["is a part of the workspace", "mine.yaml:4:"]);
        assert!(!bin.join("new").exists(), "{}", bench.who());
        let free = run(&[], &command);
        assert!(free.status.success(), "{}: {}", bench.who(), stderr(&free));
    });
}
