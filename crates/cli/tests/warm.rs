//! `nexus warm`: a run through a launcher is the run that it would have been, and without one everything goes on as ever.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, needs_root, on_each_bench, processes_with, report, stderr, stdout, wait_for, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// A launcher of one bench. Whatever a test comes to, its processes end.
struct Warm<'a> {
    bench: &'a Bench,
    door: i32,
}

impl<'a> Warm<'a> {
    fn start(bench: &'a Bench) -> Self {
        let started = bench.run(["warm", "--idle", "10m", "--json"]);
        assert_eq!(report(&started)["state"], "started", "{}", stderr(&started));
        let door = launchers(bench)[0]["pid"].as_i64().unwrap().try_into().unwrap();
        Self { bench, door }
    }

    /// Number of sandboxes that it has started.
    fn started(&self) -> u64 {
        // A door that is late on a busy machine says nothing in time.
        wait_for("a word of the door", SOON, || launchers(self.bench).first()?["started"].as_u64())
    }

    /// Does this until the launcher has started a sandbox for it. It has nothing ready for the first run, nor when something
    /// was mounted on this machine; then a run starts its sandbox itself, and the launcher is ready for the next one.
    fn served<T>(&self, mut run: impl FnMut() -> T) -> T {
        wait_for("a run through the launcher", SOON, || {
            let before = self.started();
            let done = run();
            let until = Instant::now() + Duration::from_millis(200);
            while Instant::now() < until {
                if self.started() > before {
                    return Some(done);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            None
        })
    }

    /// A run that does nothing, through the launcher.
    fn warm_up(&self) {
        self.served(|| assert!(self.bench.run(["run", "--", "true"]).status.success()));
    }

    /// The process that starts sandboxes.
    fn behind(&self) -> i32 {
        let children = format!("/proc/{0}/task/{0}/children", self.door);
        let children = fs::read_to_string(children).unwrap();
        children.split_ascii_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Warm<'_> {
    fn drop(&mut self) {
        // A test may have stopped it, and failed.
        let behind = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.door)).unwrap_or_default();
        for pid in behind.split_ascii_whitespace().chain([self.door.to_string().as_str()]) {
            kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::CONT).ok();
        }
        self.bench.run(["warm", "--stop"]);
    }
}

fn launchers(bench: &Bench) -> Vec<Value> {
    report(&bench.run(["warm", "--status", "--json"]))["launchers"].as_array().unwrap().clone()
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Everything a command can see of its surroundings, and what it does.
const LOOK: &str = "id; umask; ulimit -a; pwd; env | sort; cat /proc/self/oom_score_adj /proc/self/cgroup; nice; cat /proc/self/limits; \
    grep -E '^(Cap|Seccomp|NoNew|Groups|Cpus_allowed:|Sig)' /proc/self/status; cat /proc/self/personality; \
    ls -1A / /dev /proc/self/fd /home /var /sys 2>&1 | grep -vE '^[0-9]+$'; cat /etc/hosts /etc/passwd; hostname; cut -c1-3 /proc/1/comm; \
    cut -d' ' -f5,6 /proc/self/mountinfo | sort -u; \
    cat file; echo new > made; mkdir -p deep/er; mv moved deep/er/; rm -f removed; stat -c '%a %s %u %g' made; tty; echo to-err >&2; exit 7";

fn files(bench: &Bench) {
    bench.write("file", "old\n");
    bench.write("moved", "moved\n");
    bench.write("removed", "removed\n");
}

/// A document without what differs between any two runs.
fn settled(mut document: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                let own = [
                    "run_id",
                    "timing",
                    "receipt",
                    "started_at",
                    "plan_hash",
                    "spec_hash",
                    "chain",
                    "marker",
                    "duration_ms",
                    "layer",
                    "max_rss_bytes",
                ];
                members.retain(|name, _| {
                    !own.contains(&name.as_str()) && !name.ends_with("_us") && !name.ends_with("_ms")
                });
                members.values_mut().for_each(strip);
            }
            Value::Array(items) => {
                // The ids of the sandboxes of root are drawn for each.
                items.retain(|item| item["check"] != "uid_map");
                items.iter_mut().for_each(strip);
            }
            _ => {}
        }
    }
    strip(&mut document);
    document
}

fn receipt(document: &Value) -> Value {
    use nexus_model::bytes::base64_decode;
    let path = PathBuf::from(document["receipt"]["path"]["text"].as_str().unwrap());
    let envelope: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    serde_json::from_slice(&base64_decode(envelope["payload"].as_str().unwrap()).unwrap()).unwrap()
}

#[test]
fn a_secret_reaches_a_sandbox_of_the_launcher() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        warm.warm_up();
        let script = "wc -c < /run/secrets/KEY; cat /run/secrets/KEY; stat -f -c %T /run/secrets";
        let run = || {
            let mut command = bench.nexus(["run", "--secret", "KEY=env:THE_KEY", "--shell", script]);
            stdout(&command.env("THE_KEY", "a value of 19 bytes").output().unwrap())
        };
        assert_eq!(warm.served(run), "19\n[secret KEY]ramfs\n", "{}", bench.who());
    });
}

#[test]
fn a_run_through_the_launcher_is_the_run_it_would_have_been() {
    on_each_bench(|bench| {
        let arguments = ["--env", "WORD=word", "--timeout", "60s", "--shell", LOOK];
        let run = || {
            files(&bench);
            let (document, code) = bench.json(arguments);
            assert_eq!(code, 7, "{document}");
            let receipt = receipt(&document);
            assert_eq!(fs::read_to_string(bench.workspace.join("deep/er/moved")).unwrap(), "moved\n");
            assert!(!bench.workspace.join("removed").exists());
            let mode = fs::metadata(bench.workspace.join("made")).unwrap().permissions().mode();
            fs::remove_dir_all(bench.workspace.join("deep")).unwrap();
            fs::remove_file(bench.workspace.join("made")).unwrap();
            (settled(document), settled(receipt), mode)
        };
        let first = run();
        let warm = Warm::start(&bench);
        // The second has waited for its plan longer than the first.
        for _ in 0..2 {
            let other = warm.served(run);
            assert_eq!(written(&other.0), written(&first.0), "{}", bench.who());
            assert_eq!(written(&other.1), written(&first.1), "{}", bench.who());
            assert_eq!(other.2, first.2);
        }
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    });
}

/// A document with the output of its command, in lines that can be compared by eye.
fn written(document: &Value) -> Vec<String> {
    let text = serde_json::to_string_pretty(document).unwrap();
    text.lines().flat_map(|line| line.split("\\n")).map(str::to_owned).collect()
}

#[test]
fn explain_says_the_same_with_a_launcher() {
    let bench = Bench::new(None);
    let explained = || stdout(&bench.run(["explain", "--allow", "example.com", "--", "true"]));
    let before = explained();
    let warm = Warm::start(&bench);
    assert_eq!(explained(), before);
    drop(warm);
}

#[test]
fn ends_of_a_command_are_the_same_through_the_launcher() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        let code = |arguments: &[&str]| bench.run([&["run"], arguments].concat()).status.code();
        let ends: [(&[&str], i32); 5] = [
            (&["--timeout", "300ms", "--grace", "100ms", "--", "sleep", "600"], 124),
            (&["--", "/no/such"], 127),
            (&["--shell", "kill -9 $$"], 137),
            (&["--direct", "--", "true"], 0),
            (&["--disk", "1M", "--shell", "head -c 4M /dev/zero > big"], 125),
        ];
        for (arguments, expected) in ends {
            assert_eq!(warm.served(|| code(arguments)), Some(expected), "{arguments:?}");
        }
        // A signal for nexus reaches the command.
        let script = "trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done";
        let told = warm.served(|| {
            let mut run = bench.nexus(["run", "--shell", script]).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            let mut reader = std::io::BufReader::new(run.stdout.as_mut().unwrap());
            std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
            assert_eq!(line, "up\n");
            signal(run.id().cast_signed(), Signal::TERM);
            run.wait().unwrap().code()
        });
        assert_eq!(told, Some(9));
        assert!(bench.leftovers().iter().all(|path| path.starts_with(bench.state.join("layers"))));
    });
}

#[test]
fn input_and_an_egress_work_through_the_launcher() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        for _ in 0..2 {
            let output = warm.served(|| {
                let mut run = bench.nexus(["run", "--allow", "example.com", "--", "cat"]);
                let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                std::io::Write::write_all(run.stdin.as_mut().unwrap(), b"words\n").unwrap();
                drop(run.stdin.take());
                run.wait_with_output().unwrap()
            });
            assert_eq!(stdout(&output), "words\n", "{}", stderr(&output));
        }
        // The names that a command asks for in vain are learnt, as without a launcher.
        let script = "getent hosts asked.example.com; exit 3";
        let with = warm.served(|| bench.json(["--shell", script]).0["blocked"].clone());
        drop(warm);
        let (document, _) = bench.json(["--shell", script]);
        assert_eq!(with, document["blocked"]);
    });
}

#[test]
fn runs_that_a_launcher_cannot_serve_start_their_own_sandboxes() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        warm.warm_up();
        let before = warm.started();
        // Another mask, and other limits: as the caller has them.
        let nexus = bench.program().display();
        let script = format!("umask 0027; ulimit -Sn 333; exec {nexus} run --shell 'umask; ulimit -Sn'");
        let output = bench.command("/bin/bash").args(["-c", &script]).output().unwrap();
        assert_eq!(stdout(&output), "0027\n333\n", "{}", stderr(&output));
        let detached = bench.run(["run", "--detach", "--", "true"]);
        assert!(detached.status.success(), "{}", stderr(&detached));
        bench.run(["wait", stdout(&detached).trim()]);
        bench.run(["rm", stdout(&detached).trim()]);
        if support::is_root() && bench.user.is_none() {
            let limited = bench.run(["run", "--memory", "256M", "--", "true"]);
            assert!(limited.status.success(), "{}", stderr(&limited));
        }
        assert_eq!(warm.started(), before);
    });
}

/// Names below `/etc` are the same for all sandboxes of a template: each run has its own, and none of another.
#[test]
fn what_a_run_shows_below_etc_is_not_seen_by_the_next() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        warm.warm_up();
        let tool = bench.home.join("tool");
        fs::create_dir_all(&tool).unwrap();
        fs::write(tool.join("content"), "shown\n").unwrap();
        bench.give(&tool);
        let ro = format!("{}:/etc/tool", tool.display());
        let script = "cat /etc/tool/content 2>/dev/null || ls -d /etc/tool 2>/dev/null || echo none";
        for _ in 0..2 {
            // The first of them finds the template of the runs before, and starts its sandbox itself.
            let shown = || stdout(&bench.run(["run", "--ro", &ro, "--shell", script]));
            assert_eq!(shown(), "shown\n");
            assert_eq!(warm.served(shown), "shown\n");
            let plain = || stdout(&bench.run(["run", "--shell", script]));
            assert_eq!(plain(), "none\n");
            assert_eq!(warm.served(plain), "none\n");
        }
    });
}

#[test]
fn a_launcher_that_is_dead_or_stopped_costs_a_run_little_and_no_command() {
    on_each_bench(|bench| {
        let runs = |why: &str| {
            let began = Instant::now();
            let output = bench.run(["run", "--", "echo", "ran"]);
            assert_eq!(stdout(&output), "ran\n", "{why}: {}", stderr(&output));
            assert_eq!(stderr(&output), "", "{why}");
            assert!(began.elapsed() < Duration::from_secs(60), "{why}: {:?}", began.elapsed());
        };
        let warm = Warm::start(&bench);
        warm.warm_up();
        runs("a launcher");
        signal(warm.door, Signal::STOP);
        runs("a stopped door");
        signal(warm.door, Signal::CONT);
        // The process behind is killed: the door sees it and ends.
        signal(warm.behind(), Signal::KILL);
        runs("no process behind the door");
        wait_until("the end of the door", SOON, || launchers(&bench).is_empty());
        runs("no door");
        let again = Warm::start(&bench);
        runs("another launcher");
        signal(again.door, Signal::KILL);
        runs("a killed door");
        assert!(launchers(&bench).is_empty());
        // Its name and its socket are taken over.
        let third = Warm::start(&bench);
        runs("a third launcher");
        third.warm_up();
        drop((warm, again));
    });
}

#[test]
fn a_run_whose_launcher_is_stopped_behind_the_door_starts_its_own_sandbox() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        warm.warm_up();
        let behind = warm.behind();
        signal(behind, Signal::STOP);
        let began = Instant::now();
        let output = bench.run(["run", "--verbose", "--", "echo", "ran"]);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert_eq!(stdout(&output), "ran\n", "{}", stderr(&output));
        let told = stderr(&output);
        assert!(told.contains("the sandbox was started without the warm launcher: "), "{told}");
        assert_eq!(launchers(&bench)[0]["state"], "silent");
        signal(behind, Signal::CONT);
        warm.warm_up();
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    });
}

#[test]
fn a_launcher_whose_limits_were_changed_from_outside_serves_no_client() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        warm.warm_up();
        for limit in ["--stack=4194304:", "--nofile=77:77"] {
            let pid = warm.behind().to_string();
            let changed = bench.command("prlimit").args(["--pid", &pid, limit]).output().unwrap();
            assert!(changed.status.success(), "{limit}: {}", stderr(&changed));
            let before = launchers(&bench)[0].clone();
            assert_eq!((&before["state"], &before["differs"]), (&"unlike".into(), &serde_json::json!(["limits"])));
            for _ in 0..3 {
                let output = bench.run(["run", "--shell", "ulimit -n; ulimit -s"]);
                let cold = bench.command("sh").args(["-c", "ulimit -s"]).output().unwrap();
                assert!(stdout(&output).ends_with(&stdout(&cold)), "{}{}", stdout(&output), stderr(&output));
                assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{}", bench.who());
            }
            assert_eq!(launchers(&bench)[0]["started"], before["started"]);
        }
    });
}

#[test]
fn a_killed_caller_takes_its_sandbox_along() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        let word = format!("61{}", support::random() % 1_000_000);
        warm.warm_up();
        for _ in 0..2 {
            warm.served(|| {
                let mut run = bench.nexus(["run", "--", "sleep", &word]).stdout(Stdio::null()).spawn().unwrap();
                let own = run.id();
                let inside = || processes_with(&format!("sleep {word}")).into_iter().any(|pid| pid != own);
                wait_until("the command", SOON, inside);
                run.kill().unwrap();
                run.wait().unwrap();
                wait_until("the end of the sandbox", SOON, || !inside());
            });
        }
    });
}

#[test]
fn a_launcher_that_ends_leaves_its_runs_alone() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        let fifo = bench.workspace.join("go");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        bench.give(&fifo);
        let mut line = String::new();
        let (mut run, mut reader) = warm.served(|| {
            let script = "echo up; read -r word < go; echo $word";
            let mut run = bench.nexus(["run", "--direct", "--shell", script]).stdout(Stdio::piped()).spawn().unwrap();
            let mut reader = std::io::BufReader::new(run.stdout.take().unwrap());
            line.clear();
            std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
            assert_eq!(line, "up\n");
            (Ended(run), reader)
        });
        let stopped = bench.run(["warm", "--stop", "--json"]);
        assert_eq!(report(&stopped)["stopped"], 1, "{}", stderr(&stopped));
        assert!(launchers(&bench).is_empty());
        fs::write(&fifo, "on\n").unwrap();
        line.clear();
        std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
        assert_eq!(line, "on\n");
        assert!(run.0.wait().unwrap().success());
    });
}

/// A run that a test may give up.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn each_sandbox_of_roots_launcher_has_ids_of_its_own() {
    if !needs_root() {
        return;
    }
    let bench = Bench::new(None);
    let warm = Warm::start(&bench);
    let mut ids = Vec::new();
    for _ in 0..4 {
        let output = warm.served(|| bench.run(["run", "--shell", "cat /proc/self/uid_map"]));
        ids.push(stdout(&output).split_whitespace().nth(1).unwrap().to_owned());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

/// A mount that comes later is seen as by a run that is started cold, also where mounts are private.
#[test]
fn a_mount_that_came_after_the_launcher_is_seen() {
    if !needs_root() {
        return;
    }
    for user in [None, Some(support::user())] {
        let bench = Bench::new(user);
        bench.write("file", "beneath\n");
        let (ws, nexus) = (bench.workspace.display(), bench.program().display());
        let as_user =
            user.map_or_else(String::new, |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
        let own = user.unwrap_or(0);
        let script = format!(
            "set -e; cd {ws}; {as_user}{nexus} warm >&2; {as_user}{nexus} run -- cat file; \
             mount -t tmpfs -o mode=755,uid={own},gid={own} none {ws}; echo mounted > {ws}/file; cd {ws}; \
             for turn in 1 2 3 4 5 6; do {as_user}{nexus} run --changes discard -- cat file; sleep 0.05; done; \
             {as_user}{nexus} warm --status --json; {as_user}{nexus} warm --stop >&2"
        );
        let words = ["--mount", "--propagation", "private", "/bin/bash", "-c", &script];
        let output = bench.command_as_root("unshare").args(words).output().unwrap();
        let text = stdout(&output);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "beneath", "{text}{}", stderr(&output));
        assert_eq!(lines[1..7.min(lines.len())], ["mounted"; 6], "{text}{}", stderr(&output));
        assert!(!text.contains("\"started\":0"), "nothing went through the launcher: {text}");
    }
}

#[test]
fn no_flag_shows_the_socket_of_the_launcher_inside() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        let directory = bench.state.join("warm");
        let socket = wait_for("the socket", SOON, || {
            let mut entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
            entries.find(|path| path.extension().is_none())
        });
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = |arguments: &[&str]| {
            let output = bench.run([&["run"], arguments, &["--", "true"]].concat());
            assert_eq!(output.status.code(), Some(125), "{arguments:?}: {}{}", stdout(&output), stderr(&output));
        };
        for path in [&socket, &directory, &bench.state] {
            let path = path.to_str().unwrap();
            for flag in ["--ro", "--rw"] {
                refused(&[flag, path]);
                refused(&[flag, &format!("{path}:/door")]);
            }
        }
        refused(&["--allow-socket", socket.to_str().unwrap()]);
        refused(&["--workspace", directory.to_str().unwrap()]);
        // The twin: a directory beside it may be shown.
        let beside = bench.home.join("beside");
        fs::create_dir_all(&beside).unwrap();
        bench.give(&beside);
        let shown = || bench.run(["run", "--ro", beside.to_str().unwrap(), "--", "true"]);
        assert!(warm.served(shown).status.success());
    });
}

#[test]
fn a_launcher_is_shown_ended_and_started_once() {
    on_each_bench(|bench| {
        assert_eq!(stdout(&bench.run(["warm", "--status"])), "No launcher is up. nexus warm starts one.\n");
        assert_eq!(stdout(&bench.run(["warm", "--stop"])), "No launcher was up.\n");
        let warm = Warm::start(&bench);
        assert_eq!(report(&bench.run(["warm", "--json"]))["state"], "up");
        assert_eq!(launchers(&bench)[0]["state"], "ready");
        let nexus = bench.program().display();
        let other = |words: &str| -> Output {
            let script = format!("umask 0027; exec {nexus} warm {words}");
            bench.command("/bin/bash").args(["-c", &script]).output().unwrap()
        };
        let seen = report(&other("--status --json"));
        assert_eq!(seen["launchers"][0]["differs"], serde_json::json!(["umask"]), "{seen}");
        // One for this shell beside it.
        assert_eq!(report(&other("--json"))["state"], "started");
        assert_eq!(launchers(&bench).len(), 2);
        assert_eq!(stdout(&bench.run(["warm", "--stop"])), "2 launchers have ended.\n");
        drop(warm);
        // An idle one ends on its own, with everything that it started.
        let started = bench.run(["warm", "--idle", "200ms"]);
        assert!(started.status.success(), "{}", stderr(&started));
        wait_until("the idle end", SOON, || launchers(&bench).is_empty());
        let words = format!("__warm-door {}", bench.state.display());
        wait_until("the end of its processes", SOON, || processes_with(&words).is_empty());
    });
}

#[test]
fn many_runs_at_once_share_a_launcher() {
    on_each_bench(|bench| {
        let warm = Warm::start(&bench);
        warm.warm_up();
        let before = warm.started();
        let runs: Vec<_> = (0..12)
            .map(|number| {
                let script = format!("echo {number} > made{number}; cat made{number}");
                let mut run = bench.nexus(["run", "--shell", &script]);
                run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for (number, run) in runs.into_iter().enumerate() {
            let output = run.wait_with_output().unwrap();
            assert_eq!(stdout(&output), format!("{number}\n"), "{}", stderr(&output));
            assert!(bench.workspace.join(format!("made{number}")).exists());
        }
        assert!(warm.started() > before);
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    });
}

/// A caller of another build of the program starts its sandbox itself, and can still end the launcher.
#[test]
fn another_program_is_not_served_and_may_end_the_launcher() {
    let bench = Bench::new(None);
    let warm = Warm::start(&bench);
    let other = bench.base.path().join("bin/other");
    assert!(Command::new("cp").arg(bench.program()).arg(&other).status().unwrap().success());
    let run = bench.command(&other).args(["run", "--", "echo", "ran"]).output().unwrap();
    assert_eq!(stdout(&run), "ran\n", "{}", stderr(&run));
    assert_eq!(warm.started(), 0);
    let seen = report(&bench.command(&other).args(["warm", "--status", "--json"]).output().unwrap());
    assert_eq!(seen["launchers"][0]["state"], "silent", "{seen}");
    let stopped = report(&bench.command(&other).args(["warm", "--stop", "--json"]).output().unwrap());
    assert_eq!(stopped["stopped"], 1);
    assert!(launchers(&bench).is_empty());
}
