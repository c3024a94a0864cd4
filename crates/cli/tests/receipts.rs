//! Receipts from outside: every run has one, and one that is forged, edited or cut is refused with the reason.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_model::bytes::{base64_decode, base64_encode};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;
use support::{Bench, benches, stderr, stdout};

/// Runs `nexus run --json` and returns the report and the path of its receipt.
fn run(bench: &Bench, arguments: &[&str]) -> (Value, PathBuf) {
    let (report, _) = bench.json(arguments);
    let path = report.pointer("/receipt/path/text").and_then(Value::as_str);
    let path = PathBuf::from(path.unwrap_or_else(|| panic!("{}: no receipt: {report}", bench.who())));
    (report, path)
}

fn verify(bench: &Bench, arguments: &[&str]) -> Output {
    bench.run([&["receipt", "verify"], arguments].concat())
}

/// Returns the answer of `nexus receipt verify --json`: the exit code and the reason.
fn reason(bench: &Bench, arguments: &[&str]) -> (i32, String) {
    let output = verify(bench, &[&["--json"], arguments].concat());
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", stdout(&output), stderr(&output)));
    let reason = document["reason"].as_str().unwrap_or_default().to_owned();
    (output.status.code().unwrap(), reason)
}

/// Writes a file that the user of `nexus` can read.
fn file(bench: &Bench, name: &str, content: &[u8]) -> String {
    let path = bench.base.path().join(name);
    fs::write(&path, content).unwrap();
    bench.give(&path);
    path.to_str().unwrap().to_owned()
}

fn payload(envelope: &[u8]) -> Value {
    let envelope: Value = serde_json::from_slice(envelope).unwrap();
    serde_json::from_slice(&base64_decode(envelope["payload"].as_str().unwrap()).unwrap()).unwrap()
}

#[test]
fn a_run_leaves_a_receipt_that_says_what_it_was_and_did() {
    for bench in benches() {
        let script = "echo out; echo err >&2; echo new > made; exit 3";
        let arguments = ["--env", "TOKEN=hunter2-secret", "--timeout", "60s", "--shell", script];
        let (report, path) = run(&bench, &arguments);
        let content = fs::read(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let receipt = payload(&content);
        assert_eq!(receipt["run_id"], report["run_id"]);
        assert_eq!(receipt["exit"]["code"], 3);
        assert_eq!(receipt["exit"]["reason"], "exit");
        assert_eq!(receipt["proof"], report["sandbox"]["proof"]);
        assert!(!receipt["proof"].as_array().unwrap().is_empty());
        assert_eq!(receipt["guarantees"], report["sandbox"]["guarantees"]);
        assert_eq!(receipt["output"]["stdout"]["bytes"], 4);
        let hash = format!("blake3:{}", blake3::hash(b"out\n"));
        assert_eq!(receipt["output"]["stdout"]["hash"], hash.as_str());
        assert_eq!(receipt["changes"]["added"], 1);
        assert_eq!(receipt["changes"]["state"], "committed");
        assert_eq!(receipt["request"]["timeout_ms"], 60_000);
        assert!(receipt["timing"]["spawned_us"].as_u64().unwrap() > 0);
        let names: Vec<_> = receipt["request"]["env"]["items"].as_array().unwrap().iter().map(|e| &e["name"]).collect();
        assert!(names.iter().any(|name| name["text"] == "TOKEN"));
        assert!(!String::from_utf8(receipt.to_string().into()).unwrap().contains("hunter2"), "{}", bench.who());
        // The same request has the same hash, another one has another.
        let again = payload(&fs::read(run(&bench, &arguments).1).unwrap());
        assert_eq!(again["spec_hash"], receipt["spec_hash"]);
        let other = ["--env", "TOKEN=hunter3-secret", "--timeout", "60s", "--shell", script];
        let other = payload(&fs::read(run(&bench, &other).1).unwrap());
        assert_ne!(other["spec_hash"], receipt["spec_hash"]);
        assert_ne!(other["plan_hash"], receipt["plan_hash"]);
    }
}

#[test]
fn a_receipt_is_verified_by_file_and_by_run_with_output_and_report() {
    for bench in benches() {
        let output = bench.run(["run", "--json", "--shell", "echo out; echo err >&2; echo new > made"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let path = report["receipt"]["path"]["text"].as_str().unwrap().to_owned();
        let run = report["run_id"].as_str().unwrap().to_owned();
        let out = file(&bench, "out", b"out\n");
        let err = file(&bench, "err", b"err\n");
        let document = file(&bench, "report", &output.stdout);
        for target in [&path, &run] {
            let checked = verify(&bench, &[target, "--stdout", &out, "--stderr", &err, "--report", &document]);
            assert_eq!(checked.status.code(), Some(0), "{}: {}", bench.who(), stderr(&checked));
            assert!(stdout(&checked).starts_with(&format!("valid: run {run}, signed by the key ")));
        }
        assert_eq!(reason(&bench, &[&run, "--stdout", &err]), (1, "stdout_mismatch".to_owned()));
        assert_eq!(reason(&bench, &[&run, "--stderr", &out]), (1, "stderr_mismatch".to_owned()));
        for (pointer, value) in [
            ("/changes/changes/0/path/text", "other"),
            ("/changes/state", "discarded"),
            ("/output/stdout/text", "other"),
            ("/reason", "oom"),
            ("/sandbox/proof/0/seen", "ok"),
            ("/changes/added", "9"),
            ("/egress/bytes_out", "9"),
            // Short, and nothing is said to be missing.
            ("/output/stderr/text", "e"),
        ] {
            let mut edited = report.clone();
            let as_number = value.parse::<u64>().map(Value::from);
            *edited.pointer_mut(pointer).unwrap() = as_number.unwrap_or_else(|_| value.into());
            let edited = file(&bench, "edited", edited.to_string().as_bytes());
            let expected = (1, "report_mismatch".to_owned());
            assert_eq!(reason(&bench, &[&run, "--report", &edited]), expected, "{pointer}");
        }
        // A text that is as long as the whole is compared, whatever the report says of itself.
        let mut cut = report.clone();
        cut["output"]["truncated_bytes"] = 1.into();
        cut["output"]["stdout"]["text"] = "OUT\n".into();
        let edited = file(&bench, "cut", cut.to_string().as_bytes());
        assert_eq!(reason(&bench, &[&run, "--report", &edited]), (1, "report_mismatch".to_owned()));
        cut["output"]["stdout"]["text"] = "o".into();
        let edited = file(&bench, "cut", cut.to_string().as_bytes());
        let checked = verify(&bench, &[&run, "--report", &edited]);
        assert!(stdout(&checked).contains("of its stdout only the length was compared"), "{}", stdout(&checked));
        let shown = stdout(&bench.run(["receipt", "show", &run]));
        for part in ["exit 0 (exit)", "committed, 1 added", "valid, by the key", "/bin/sh -c"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

#[test]
fn a_forged_edited_or_truncated_receipt_is_refused_with_the_reason() {
    for bench in benches() {
        let (_, path) = run(&bench, &["--", "false"]);
        let good = fs::read(&path).unwrap();
        let check = |content: &[u8]| reason(&bench, &[&file(&bench, "receipt", content)]);
        assert_eq!(check(&good), (0, String::new()), "the harmless twin");
        // Edited: a failure becomes a success.
        let mut envelope: Value = serde_json::from_slice(&good).unwrap();
        let text = base64_decode(envelope["payload"].as_str().unwrap()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("\"code\":1"));
        envelope["payload"] = base64_encode(text.replace("\"code\":1", "\"code\":0").as_bytes()).into();
        let whole = |envelope: &Value| {
            // The order in which Nexus writes the members.
            let (kind, payload, signatures) =
                (&envelope["payloadType"], &envelope["payload"], &envelope["signatures"][0]);
            let signature = format!("{{\"keyid\":{},\"sig\":{}}}", signatures["keyid"], signatures["sig"]);
            format!("{{\"payloadType\":{kind},\"payload\":{payload},\"signatures\":[{signature}]}}\n")
        };
        assert_eq!(check(whole(&envelope).as_bytes()), (1, "bad_signature".to_owned()));
        // Formatted again.
        let spaced = String::from_utf8(good.clone()).unwrap().replace("\",\"", "\", \"");
        assert_eq!(check(spaced.as_bytes()), (1, "respelled".to_owned()));
        // Cut.
        for length in [0, 1, good.len() / 2, good.len() - 1] {
            assert_eq!(check(&good[..length]), (1, "truncated".to_owned()), "{length}");
        }
        assert_eq!(check(b"hello\n"), (1, "not_a_receipt".to_owned()));
        // Forged: signed by a key of another state directory, under its own name and under ours.
        let stranger = Bench::new(bench.user);
        let forged = fs::read(run(&stranger, &["--", "true"]).1).unwrap();
        assert_eq!(check(&forged), (1, "unknown_key".to_owned()));
        let key = |envelope: &[u8]| {
            serde_json::from_slice::<Value>(envelope).unwrap()["signatures"][0]["keyid"].as_str().unwrap().to_owned()
        };
        let renamed = String::from_utf8(forged.clone()).unwrap().replace(&key(&forged), &key(&good));
        assert_eq!(check(renamed.as_bytes()), (1, "bad_signature".to_owned()));
        // What a person reads, and that there was nothing to look at.
        let told = verify(&bench, &[&file(&bench, "receipt", renamed.as_bytes())]);
        assert_eq!(told.status.code(), Some(1));
        assert!(
            stderr(&told).starts_with("nexus: not valid: its signature is not of this content"),
            "{}",
            stderr(&told)
        );
        for wrong in [&["/does/not/exist"][..], &[], &["--stdout", "x", "--chain"]] {
            assert_eq!(verify(&bench, wrong).status.code(), Some(2), "{wrong:?}");
        }
    }
}

#[test]
fn another_machine_verifies_with_the_exported_key_and_follows_a_rotation() {
    for bench in benches() {
        let (_, first) = run(&bench, &["--", "true"]);
        let old = file(&bench, "old.pem", &bench.run(["receipt", "keys", "export"]).stdout);
        let rotated = bench.run(["receipt", "keys", "rotate"]);
        assert!(rotated.status.success(), "{}", stderr(&rotated));
        let (_, second) = run(&bench, &["--", "true"]);
        let link = file(&bench, "link", &bench.run(["receipt", "keys", "export", "--links"]).stdout);
        let new = file(&bench, "new.pem", &bench.run(["receipt", "keys", "export"]).stdout);
        // At home both count.
        for receipt in [&first, &second] {
            assert_eq!(reason(&bench, &[receipt.to_str().unwrap()]), (0, String::new()));
        }
        let listed = stdout(&bench.run(["receipt", "keys", "list"]));
        assert!(listed.contains("  signs\n") && listed.contains("UTC, followed by "), "{listed}");
        // Elsewhere only what was pinned, and what it leads to.
        let elsewhere = Bench::new(bench.user);
        let copy = |name: &str, path: &PathBuf| file(&elsewhere, name, &fs::read(path).unwrap());
        let (first, second) = (copy("first", &first), copy("second", &second));
        let unknown = (1, "unknown_key".to_owned());
        let good = (0, String::new());
        assert_eq!(reason(&elsewhere, &[&first]), unknown);
        assert_eq!(reason(&elsewhere, &["--key", &old, &first]), good);
        assert_eq!(reason(&elsewhere, &["--key", &old, &second]), unknown);
        assert_eq!(reason(&elsewhere, &["--key", &new, &second]), good);
        assert_eq!(reason(&elsewhere, &["--key", &new, &first]), unknown);
        assert_eq!(reason(&elsewhere, &["--key", &old, "--link", &link, &second]), good);
        let refused = verify(&elsewhere, &["--key", &new, "--link", &link, &second]);
        assert_eq!(refused.status.code(), Some(1), "a link counts only from a key that is trusted");
    }
}

#[test]
fn without_a_safe_key_nothing_runs_and_the_message_says_what_to_do() {
    for bench in benches() {
        run(&bench, &["--", "true"]);
        let (keys, receipts) = (bench.state.join("keys"), bench.state.join("receipts"));
        let key = keys.join("receipt.key");
        let mode = |path: &PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for (path, right, wrong) in [(&key, 0o600, 0o644), (&keys, 0o700, 0o755), (&receipts, 0o700, 0o755)] {
            mode(path, wrong);
            let output = bench.run(["run", "--", "touch", "ran"]);
            assert_eq!(output.status.code(), Some(125), "{}", path.display());
            assert!(!bench.workspace.join("ran").exists());
            let message = stderr(&output);
            assert!(message.contains("that only you can") && message.contains("move it away"), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
            mode(path, right);
        }
        fs::write(&key, "not a key").unwrap();
        let output = bench.run(["run", "--", "touch", "ran"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("is damaged"), "{}", stderr(&output));
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        // The advice helps.
        fs::rename(&key, bench.state.join("away")).unwrap();
        let (_, path) = run(&bench, &["--", "true"]);
        assert_eq!(reason(&bench, &[path.to_str().unwrap()]), (0, String::new()));
    }
}

#[test]
fn a_receipt_without_a_place_in_the_chain_is_reported_and_not_a_success() {
    for bench in benches() {
        run(&bench, &["--", "true"]);
        // What cannot be opened for writing has no note of the next place.
        let chain = bench.state.join("receipts/chain");
        fs::rename(&chain, bench.state.join("receipts/aside")).unwrap();
        fs::create_dir(&chain).unwrap();
        for (code, expected) in [("0", 125), ("7", 7)] {
            let output = bench.run(["run", "--shell", &format!("echo x > made-{code}; exit {code}")]);
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(expected), "{}: {told}", bench.who());
            assert!(told.contains("no sure place in the chain of receipts"), "{}: {told}", bench.who());
            assert!(bench.workspace.join(format!("made-{code}")).exists(), "{}", bench.who());
        }
        // A run that holds the chain for long costs the others their places, and not their success.
        fs::remove_dir(&chain).unwrap();
        fs::rename(bench.state.join("receipts/aside"), &chain).unwrap();
        let held = fs::File::open(&chain).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let output = bench.run(["run", "--", "true"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("another run holds the chain"), "{}: {}", bench.who(), stderr(&output));
    }
}

#[test]
fn a_receipt_that_cannot_be_written_is_reported_and_not_a_success() {
    for bench in benches() {
        run(&bench, &["--", "true"]);
        // The key goes bad while the command runs; the run holds it open and reads it at the end.
        let key = bench.state.join("keys/receipt.key");
        let spoil = |code: &str| {
            let mut child = bench.nexus([
                "run",
                "--json",
                "--stdin",
                "--shell",
                &format!("echo x > made-{code}; read line; exit {code}"),
            ]);
            let mut child = child
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let good = fs::read(&key).unwrap();
            support::wait_until("the record of the run", std::time::Duration::from_secs(20), || {
                fs::read_dir(bench.state.join("layers"))
                    .unwrap()
                    .any(|layer| layer.unwrap().path().join(format!("upper/made-{code}")).exists())
            });
            fs::write(&key, "spoilt").unwrap();
            drop(child.stdin.take());
            let output = child.wait_with_output().unwrap();
            fs::write(&key, good).unwrap();
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            (output.status.code().unwrap(), report, bench.workspace.join(format!("made-{code}")).exists())
        };
        let (code, report, committed) = spoil("0");
        assert_eq!((code, committed), (125, true), "{}: {report}", bench.who());
        assert_eq!(report["error"]["code"], "receipt");
        assert!(report["error"]["message"].as_str().unwrap().contains("the run has no receipt"), "{report}");
        assert_eq!(report["receipt"], Value::Null);
        assert_eq!(report["exit_code"], 125);
        let (code, report, committed) = spoil("7");
        assert_eq!((code, committed), (7, true), "a command's own failure is not covered up");
        assert_eq!(report["error"]["code"], "receipt");
    }
}

#[test]
fn runs_at_once_make_one_chain_and_a_receipt_taken_out_is_missed() {
    for bench in benches() {
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let output = bench.run(["run", "--", "true"]);
                        assert!(output.status.success(), "{}", stderr(&output));
                    }
                });
            }
        });
        let whole = verify(&bench, &["--chain"]);
        assert_eq!(stdout(&whole), "valid: 30 receipts, none is missing\n", "{}", stderr(&whole));
        let log = stdout(&bench.run(["log", "--json", "-n", "100"]));
        let runs: Vec<String> = serde_json::from_str::<Vec<Value>>(&log)
            .unwrap()
            .iter()
            .map(|row| row["run_id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(runs.len(), 30);
        for run in [&runs[0], &runs[15], &runs[29]] {
            let path = bench.state.join(format!("receipts/{run}.json"));
            let content = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            assert_eq!(reason(&bench, &["--chain"]), (1, "chain".to_owned()), "{run}");
            fs::write(&path, content).unwrap();
            bench.give(&path);
        }
        // One under the name of another.
        let path = |run: &String| bench.state.join(format!("receipts/{run}.json"));
        let kept = fs::read(path(&runs[3])).unwrap();
        fs::copy(path(&runs[4]), path(&runs[3])).unwrap();
        assert_eq!(reason(&bench, &["--chain"]), (1, "renamed".to_owned()));
        fs::write(path(&runs[3]), kept).unwrap();
        // What was pruned is not missed.
        let pruned = bench.run(["receipt", "prune", "--keep", "7"]);
        assert_eq!(stdout(&pruned), "removed 23 receipts\n");
        assert_eq!(stdout(&verify(&bench, &["--chain"])), "valid: 7 receipts, none is missing\n");
        run(&bench, &["--", "true"]);
        assert_eq!(stdout(&verify(&bench, &["--chain"])), "valid: 8 receipts, none is missing\n");
    }
}

#[test]
fn the_log_lists_runs_and_no_argument_reaches_the_terminal_as_it_is() {
    for bench in benches() {
        assert_eq!(stdout(&bench.run(["log"])), "No runs.\n");
        bench.run(["run", "--", "true"]);
        bench.run(["run", "--shell", "exit 4 # \u{1b}[2J\u{1b}]0;title\u{7}\nforged line"]);
        bench.run(["run", "--timeout", "1ms", "--grace", "1ms", "--", "sleep", "100"]);
        bench.run(["run", "--", "no-such-program"]);
        let all = stdout(&bench.run(["log"]));
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!(lines.len(), 4, "{all}");
        for (line, part) in lines.iter().zip(["exit 127", "exit 124 timeout", "exit 4", "exit 0"]) {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!all.contains('\u{1b}') && !all.contains('\u{7}') && all.contains("\\u{1b}[2J"), "{all}");
        assert_eq!(stdout(&bench.run(["log", "-n", "2"])).lines().count(), 2);
        let failed = stdout(&bench.run(["log", "--failed"]));
        assert_eq!(failed.lines().count(), 3, "{failed}");
        assert!(!failed.contains("exit 0"), "{failed}");
        assert_eq!(stdout(&bench.run(["log", "--since", "1h"])).lines().count(), 4);
        let rows: Vec<Value> = serde_json::from_str(&stdout(&bench.run(["log", "--json"]))).unwrap();
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[1]["reason"], "timeout");
        // One that was edited is reported and not believed.
        let path = bench.state.join(format!("receipts/{}.json", rows[3]["run_id"].as_str().unwrap()));
        let mut content = fs::read(&path).unwrap();
        content[100] ^= 1;
        fs::write(&path, content).unwrap();
        let told = stdout(&bench.run(["log"]));
        assert!(told.lines().last().unwrap().contains("receipt not valid: "), "{told}");
    }
}

#[test]
fn a_receipt_names_every_profile_that_applied_with_the_hash_of_its_text() {
    for bench in benches() {
        let own = "env:\n  set: {OWN: '1'}\n";
        let folder = bench.home.join(".config/nexus/profiles");
        fs::create_dir_all(&folder).unwrap();
        for made in [".config", ".config/nexus", ".config/nexus/profiles"] {
            bench.give(&bench.home.join(made));
        }
        fs::write(folder.join("own.yaml"), own).unwrap();
        bench.give(&folder.join("own.yaml"));
        let profiles = |arguments: &[&str]| {
            let receipt = payload(&fs::read(run(&bench, arguments).1).unwrap());
            let all = receipt["profiles"].as_array().unwrap().clone();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            all.iter()
                .map(|one| (text(&one["name"]), text(&one["source"]["text"]), text(&one["hash"])))
                .collect::<Vec<_>>()
        };
        let named = |name: &str, source: String, content: &str| {
            (name.to_owned(), source, format!("blake3:{}", blake3::hash(content.as_bytes())))
        };
        let built_in = include_str!("../../profiles/profiles/default.yaml");
        let standard = named("default", "built-in profile default".to_owned(), built_in);
        assert_eq!(profiles(&["--", "true"]), std::slice::from_ref(&standard), "{}", bench.who());
        let owned = named("own", folder.join("own.yaml").display().to_string(), own);
        assert_eq!(profiles(&["--profile", "own", "--", "true"]), [standard.clone(), owned.clone()]);
        // The workspace's own file, as long as it takes away.
        let narrowing = "limits: {pids: 60}\n";
        let path = bench.write("nexus.yaml", narrowing);
        let source = path.display().to_string();
        let found = profiles(&["--profile", "own", "--", "true"]);
        assert_eq!(found, [standard.clone(), owned, named("nexus.yaml", source.clone(), narrowing)]);
        // And when it gives and the user allowed it.
        let wide = "env:\n  set: {GIVEN: '1'}\n";
        bench.write("nexus.yaml", wide);
        let trusted = bench.run(["trust", "--yes"]);
        assert!(trusted.status.success(), "{}", stderr(&trusted));
        assert_eq!(profiles(&["--", "true"]), [standard, named("nexus.yaml", source, wide)]);
    }
}

#[test]
fn a_receipt_under_the_name_of_another_run_is_not_that_runs() {
    for bench in benches() {
        let (good, good_path) = run(&bench, &["--", "true"]);
        let (bad, bad_path) = run(&bench, &["--", "false"]);
        let id = |report: &Value| report["run_id"].as_str().unwrap().to_owned();
        assert_eq!(reason(&bench, &[&id(&bad)]), (0, String::new()), "the harmless twin");
        fs::copy(&good_path, &bad_path).unwrap();
        assert_eq!(reason(&bench, &[&id(&bad)]), (1, "renamed".to_owned()), "{}", bench.who());
        for action in ["verify", "show"] {
            let told = bench.run(["receipt", action, &id(&bad)]);
            let message = format!("nexus: not valid: {}: it is the receipt of the run {}\n", id(&bad), id(&good));
            assert_eq!((told.status.code(), stderr(&told)), (Some(1), message), "{action}");
            assert!(bench.run(["receipt", action, &id(&good)]).status.success());
            assert!(bench.run(["receipt", action, bad_path.to_str().unwrap()]).status.success(), "a file is any file");
        }
    }
}

#[test]
fn a_chain_of_which_nothing_is_left_is_not_called_valid() {
    for bench in benches() {
        let nothing = (1, "nothing_to_verify".to_owned());
        assert_eq!(reason(&bench, &["--chain"]), nothing, "{}: before the first run", bench.who());
        run(&bench, &["--", "true"]);
        assert_eq!(reason(&bench, &["--chain"]), (0, String::new()));
        fs::remove_dir_all(bench.state.join("receipts")).unwrap();
        assert_eq!(reason(&bench, &["--chain"]), nothing);
        let told = verify(&bench, &["--chain"]);
        assert!(stderr(&told).starts_with("nexus: there is nothing to verify: "), "{}", stderr(&told));
    }
}

#[test]
fn a_damaged_chain_is_named_kept_and_closed_by_hand_alone() {
    for bench in benches() {
        let ran = || run(&bench, &["--", "true"]);
        let receipts = bench.state.join("receipts");
        (0..3).for_each(|_| drop(ran()));
        let mut note = fs::read(receipts.join("chain")).unwrap();
        let chain = String::from_utf8_lossy(&note).split(' ').nth(1).unwrap().to_owned();
        let length = note.len();
        // Zeros in place of the last line, as after a power cut.
        note[length - 102..].fill(0);
        fs::write(receipts.join("chain"), &note).unwrap();
        assert_eq!(bench.run(["receipt", "close", &chain]).status.code(), Some(0), "before the next run");
        fs::remove_file(receipts.join("breaks")).unwrap();
        (0..2).for_each(|_| drop(ran()));
        let damaged: Vec<_> = fs::read_dir(&receipts).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let damaged = damaged.iter().find(|name| name.to_string_lossy().starts_with("chain.damaged-")).unwrap();
        assert_eq!(fs::read(receipts.join(damaged)).unwrap(), note, "nothing of it is lost");
        let broken = verify(&bench, &["--chain"]);
        let told = format!("the chain of {chain} was not continued");
        assert!(broken.status.code() == Some(1) && stderr(&broken).contains(&told), "{}", stderr(&broken));
        assert!(stderr(&broken).contains(&format!("nexus receipt close {chain}")), "{}", stderr(&broken));
        // Closing it is a person's word, names the break for ever and hides nothing that goes later.
        assert!(bench.run(["receipt", "close", &chain]).status.success());
        let told = format!("a break: the chain of {chain} ends with number 2, closed ");
        let whole = verify(&bench, &["--chain"]);
        assert!(stdout(&whole).starts_with("valid: 5 receipts, none is missing; a break: "), "{}", stderr(&whole));
        assert!(stdout(&whole).contains(&told), "{}", stdout(&whole));
        drop(ran());
        assert!(stdout(&verify(&bench, &["--chain"])).contains(&told));
        let log: Vec<Value> = serde_json::from_str(&stdout(&bench.run(["log", "--json"]))).unwrap();
        let third = receipts.join(format!("{}.json", log[3]["run_id"].as_str().unwrap()));
        let content = fs::read(&third).unwrap();
        fs::remove_file(&third).unwrap();
        assert_eq!(reason(&bench, &["--chain"]), (1, "chain".to_owned()), "the last one of the closed chain");
        fs::write(&third, content).unwrap();
        bench.give(&third);
        // A damaged line about breaks closes nothing and spoils nothing.
        let breaks = fs::read_to_string(receipts.join("breaks")).unwrap();
        fs::write(receipts.join("breaks"), format!("{{\"schema\n{breaks}")).unwrap();
        assert!(stdout(&verify(&bench, &["--chain"])).contains("1 lines of receipts/breaks cannot be read"));
        fs::write(receipts.join("breaks"), &breaks[..breaks.len() - 20]).unwrap();
        assert_eq!(reason(&bench, &["--chain"]), (1, "chain".to_owned()));
        assert!(bench.run(["receipt", "close", &chain]).status.success());
        assert_eq!(reason(&bench, &["--chain"]), (0, String::new()));
        // Its receipts are pruned like others, and not missed.
        assert_eq!(stdout(&bench.run(["receipt", "prune", "--keep", "3"])), "removed 3 receipts\n");
        assert!(stdout(&verify(&bench, &["--chain"])).starts_with("valid: 3 receipts, none is missing; a break: "));
        let going_on =
            String::from_utf8_lossy(&fs::read(receipts.join("chain")).unwrap()).split(' ').nth(1).unwrap().to_owned();
        assert_eq!(bench.run(["receipt", "close", &going_on]).status.code(), Some(125), "it goes on");
    }
}

#[test]
fn a_receipt_that_cannot_be_read_is_named_and_hides_no_other() {
    for bench in benches() {
        let (first, _) = run(&bench, &["--", "true"]);
        let (second, path) = run(&bench, &["--", "true"]);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        bench.give(&path);
        let id = |report: &Value| report["run_id"].as_str().unwrap().to_owned();
        for arguments in [&["log"][..], &["log", "--json"]] {
            let output = bench.run(arguments);
            assert_eq!(output.status.code(), Some(1), "{}", bench.who());
            assert!(stdout(&output).contains(&id(&first)), "{}", stdout(&output));
            let told = format!("nexus: the receipt of the run {} cannot be read: ", id(&second));
            assert!(stderr(&output).starts_with(&told), "{}", stderr(&output));
        }
    }
}

#[test]
fn no_format_character_of_a_command_reaches_the_reader_of_lists_and_refusals() {
    for bench in benches() {
        let name = "exe\u{202e}gpj\u{2066}\u{200f}\u{61c}";
        let parked = bench.run(["run", "--changes", "review", "--", "touch", name]);
        assert!(parked.status.success(), "{}", stderr(&parked));
        bench.write("nexus.yaml", format!("fs:\n  ro: ['/opt/{name}']\n"));
        for arguments in
            [&["log"][..], &["changes", "list"], &["changes", "show"], &["trust", "--show"], &["run", "--", "true"]]
        {
            let output = bench.run(arguments);
            let all = stdout(&output) + &stderr(&output);
            assert!(all.contains("exe\\u{202e}gpj\\u{2066}"), "{arguments:?}: {all}");
            assert!(!all.contains(['\u{202e}', '\u{2066}', '\u{200f}', '\u{61c}']), "{arguments:?}: {all:?}");
        }
    }
}

#[test]
fn a_copy_of_the_receipt_goes_where_it_was_asked_and_never_into_the_workspace() {
    for bench in benches() {
        let target = bench.home.join("copy.json");
        let (_, path) = run(&bench, &["--receipt", target.to_str().unwrap(), "--", "true"]);
        assert_eq!(fs::read(&target).unwrap(), fs::read(path).unwrap());
        // A run that ends with an error has a receipt as well: its command ran.
        let failed = bench.home.join("failed.json");
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let words = ["run", "--receipt", failed.to_str().unwrap(), "--", "echo", "x"];
        let status = bench.nexus(words).stdout(full).stderr(std::process::Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(125));
        assert!(payload(&fs::read(&failed).unwrap())["request"].is_object());
        let inside = bench.workspace.join("copy.json");
        let output = bench.run(["run", "--receipt", inside.to_str().unwrap(), "--", "touch", "ran"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("--receipt") && stderr(&output).contains("lies in the workspace"));
        assert!(!bench.workspace.join("ran").exists() && !inside.exists());
    }
}

#[test]
fn a_receipt_names_the_network_in_force() {
    for bench in benches() {
        let all = [
            &["--shell", "true"][..],
            &["--net", "unrestricted", "--shell", "true"],
            &["--allow", "a.test", "--deny", "b.test", "--shell", "true"],
            &["--net", "unrestricted", "--allow-private", "10.0.0.0/8:*", "--shell", "true"],
        ];
        let receipts: Vec<Value> =
            all.iter().map(|arguments| payload(&fs::read(run(&bench, arguments).1).unwrap())).collect();
        let part = |name: &str| -> Vec<Value> {
            receipts.iter().map(|receipt| receipt["request"]["network"][name].clone()).collect()
        };
        let modes = part("mode");
        assert_eq!(modes, ["none", "unrestricted", "allowlist", "unrestricted"], "{}", bench.who());
        let rules: Vec<Value> = part("rules").iter().map(|rules| rules["items"].clone()).collect();
        assert_eq!(rules[2], json!(["allow a.test:443", "deny b.test:*"]), "{}", bench.who());
        assert_eq!(rules[3], json!(["allow-private 10.0.0.0/8:*"]), "{}", bench.who());
        assert!(
            part("policy").iter().skip(1).all(|hash| hash.as_str().is_some_and(|hash| hash.starts_with("blake3:")))
        );
        let specs: std::collections::BTreeSet<_> =
            receipts.iter().map(|receipt| receipt["spec_hash"].to_string()).collect();
        assert_eq!(specs.len(), all.len(), "{}: another network is another request", bench.who());
        let again = payload(&fs::read(run(&bench, all[2]).1).unwrap());
        assert_eq!(again["spec_hash"], receipts[2]["spec_hash"], "{}", bench.who());
    }
}

#[test]
fn the_record_of_the_network_is_bound_to_the_receipt() {
    for bench in benches() {
        let output =
            bench.run(["run", "--json", "--allow", "a.test", "--shell", "curl -s http://blocked.test/ || true"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let run = report["run_id"].as_str().unwrap().to_owned();
        let place = bench.state.join(format!("net/{run}.jsonl"));
        let record = fs::read(&place).unwrap();
        let whole = place.display().to_string();
        assert_eq!(verify(&bench, &[&run, "--net-record", &whole]).status.code(), Some(0), "{}", bench.who());
        let policy = payload(&fs::read(report["receipt"]["path"]["text"].as_str().unwrap()).unwrap());
        let first: Value = serde_json::from_slice(record.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
        assert_eq!(policy["request"]["network"]["policy"], first["policy"], "{}", bench.who());
        // A line that was taken out.
        let end = record[..record.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        let cut = file(&bench, "cut", &record[..end]);
        let mismatch = (1, "net_record_mismatch".to_owned());
        assert_eq!(reason(&bench, &[&run, "--net-record", &cut]), mismatch, "{}", bench.who());
        // A run that tried nothing says so, and one without a network has no record.
        let output = bench.run(["run", "--json", "--allow", "a.test", "--shell", "true"]);
        let quiet: Value = serde_json::from_slice(&output.stdout).unwrap();
        let empty = file(&bench, "empty", b"");
        let quiet = quiet["run_id"].as_str().unwrap();
        assert_eq!(verify(&bench, &[quiet, "--net-record", &empty]).status.code(), Some(0), "{}", bench.who());
        assert_eq!(reason(&bench, &[quiet, "--net-record", &whole]), mismatch);
    }
}

#[test]
fn a_pipe_or_a_device_is_no_file_to_compare_with() {
    for bench in benches() {
        let (report, _) = run(&bench, &["--allow", "a.test", "--shell", "echo out"]);
        let run = report["run_id"].as_str().unwrap();
        let fifo = bench.base.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        bench.give(&fifo);
        let fifo = fifo.to_str().unwrap();
        for named in [fifo, "/dev/zero"] {
            for arguments in
                [&["--net-record", named, run][..], &["--stdout", named, run], &["--report", named, run], &[named]]
            {
                let mut command = bench.nexus([&["receipt", "verify"], arguments].concat());
                let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
                let start = std::time::Instant::now();
                while child.try_wait().unwrap().is_none() && start.elapsed().as_secs() < 20 {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                let ended = child.try_wait().unwrap().is_some();
                child.kill().unwrap();
                let output = child.wait_with_output().unwrap();
                assert!(ended, "{}: {arguments:?} waits", bench.who());
                assert_ne!(output.status.code(), Some(0), "{}: {arguments:?}", bench.who());
                assert!(
                    stderr(&output).contains("not a regular file"),
                    "{}: {arguments:?}: {}",
                    bench.who(),
                    stderr(&output)
                );
            }
        }
        // A pipe that the caller connected is the caller's to wait for. This one is root's.
        if bench.who() != "root" {
            continue;
        }
        let mut command = bench.nexus(["receipt", "verify", "--stdout", "/dev/stdin", run]);
        let (read, mut write) = std::io::pipe().unwrap();
        let child = command.stdin(read).spawn().unwrap();
        std::io::Write::write_all(&mut write, b"out\n").unwrap();
        drop((write, command));
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0), "{}", bench.who());
    }
}

/// Made by the program before receipts named the network.
const OLD: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/receipts/v1.json"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/receipts/v1.pem"),
];

#[test]
fn a_receipt_of_the_form_before_is_verified_and_shown() {
    let bench = benches().remove(0);
    let [receipt, key] = OLD;
    let checked = verify(&bench, &["--key", key, receipt]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    let shown = bench.run(["receipt", "show", "--key", key, receipt]);
    assert!(stdout(&shown).contains("0 allowed, 1 denied"), "{}{}", stdout(&shown), stderr(&shown));
    let empty = file(&bench, "empty", b"");
    assert_eq!(reason(&bench, &["--key", key, receipt, "--net-record", &empty]), (1, "net_record_mismatch".to_owned()));
}
