//! Recorded runs under other documents, beside a second decision that works with texts and lists alone.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_model::spec::SandboxProfile;
use nexus_policy::document::{
    BudgetKind, Destination, Effective, LoadedPolicy, Outcome, PastAttempt, PastChanges, PastRun, PathPattern,
    PolicySet, decide, differences,
};
use nexus_policy::net::Port;
use nexus_policy::profile::{LimitKind, NetMode};
use serde_json::json;
use std::time::Instant;

const HOSTS: [&str; 5] = ["a.test", "b.test", "c.test", "d.test", "e.test"];
const SECRETS: [&str; 4] = ["ONE", "TWO", "THREE", "FOUR"];
const PATHS: [&str; 6] = ["/opt/a", "/opt/keys/k", "/srv/x/y", "/srv/x", "/home/u/t", "/opt"];
/// Commands, and the programs that run in each.
const COMMANDS: [(&[&str], &[&str]); 7] = [
    (&["git", "status"], &["git"]),
    (&["/bin/rm", "-r", "x"], &["rm"]),
    (&["env", "A=b", "rm", "x"], &["env", "A=b", "rm", "x"]),
    (&["sh", "-c", "ls; curl https://a.test | tee x"], &["sh", "ls", "curl", "tee"]),
    (&["npm", "run", "rm"], &["npm"]),
    (&["timeout", "5", "curl", "b"], &["timeout", "5", "curl", "b"]),
    (&["make"], &["make"]),
];
const PROGRAMS: [&str; 6] = ["git", "rm", "curl", "npm", "make", "tee"];
const GIB: u64 = 1 << 30;

/// Content of one document.
#[derive(Debug, Clone, Default)]
struct Says {
    only_hosts: Option<Vec<&'static str>>,
    never_hosts: Vec<&'static str>,
    never_tens: bool,
    only_read: Option<Vec<&'static str>>,
    never_paths: Vec<&'static str>,
    hides_keys: bool,
    memory: Option<u64>,
    connections: Option<u64>,
    only_secrets: Option<Vec<&'static str>>,
    forbidden: Vec<&'static str>,
    asked: Vec<&'static str>,
    changes: Option<Outcome>,
}

impl Says {
    fn document(&self) -> Effective {
        let mut all = json!({"policy": "nexus.policy/1", "id": "a", "level": "user"});
        let mut net = json!({});
        if let Some(hosts) = &self.only_hosts {
            net["allow"] = hosts.iter().map(|host| format!("{host}:443")).collect();
        }
        let tens = self.never_tens.then_some("10.0.0.0/8");
        net["deny"] = self.never_hosts.iter().copied().chain(tens).collect();
        all["net"] = net;
        let mut fs = json!({});
        if let Some(paths) = &self.only_read {
            let host = paths.iter().map(|path| format!("host:{path}/**"));
            fs["read"] = host.chain(["workspace:**".to_owned()]).collect();
        }
        let keys = self.hides_keys.then(|| "workspace:/keys/**".to_owned());
        fs["deny"] = self.never_paths.iter().map(|path| format!("host:{path}/**")).chain(keys).collect();
        all["fs"] = fs;
        if let Some(memory) = self.memory {
            all["limits"] = json!({"memory": format!("{memory}G")});
        }
        if let Some(connections) = self.connections {
            all["budgets"] = json!({"connections": connections});
        }
        if let Some(names) = &self.only_secrets {
            all["secrets"] = json!(names);
        }
        let rules = |names: &[&str]| names.iter().map(|name| format!("{name} *")).collect::<Vec<_>>();
        all["commands"] = json!({"forbidden": rules(&self.forbidden), "needs_approval": rules(&self.asked)});
        if let Some(outcome) = self.changes {
            let word = if outcome == Outcome::Refused { "forbidden" } else { "needs_approval" };
            all["approval"] = json!({"changes": word});
        }
        let loaded = LoadedPolicy::read("p.yaml", &all.to_string()).unwrap();
        PolicySet::build(vec![loaded]).unwrap().effective().clone()
    }
}

/// Content of one record, in words.
#[derive(Debug, Clone)]
struct Told {
    command: usize,
    changes: PastChanges,
    mode: NetMode,
    /// Host or address, and the address of a host.
    attempts: Vec<(&'static str, [u8; 4])>,
    paths: Vec<(&'static str, bool)>,
    memory: Option<u64>,
    connections: u64,
    secrets: Vec<&'static str>,
}

impl Told {
    fn run(&self) -> PastRun {
        let attempt = |(host, address): &(&str, [u8; 4])| PastAttempt {
            to: Destination::parse(&format!("{host}:443")).unwrap(),
            port: Port::HTTPS,
            addresses: vec![(*address).into()],
        };
        let path = |(path, writes): &(&str, bool)| (PathPattern::parse(&format!("host:{path}")).unwrap(), *writes);
        PastRun {
            sandbox: SandboxProfile::Untrusted,
            words: Some(COMMANDS[self.command].0.iter().map(|word| (*word).to_owned()).collect()),
            changes: Some(self.changes),
            mode: self.mode,
            attempts: self.attempts.iter().map(attempt).collect(),
            paths: self.paths.iter().map(path).collect(),
            limits: vec![(LimitKind::Memory, self.memory.map(|memory| memory * GIB))],
            used: vec![(BudgetKind::Connections, self.connections)],
            secrets: self.secrets.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

/// Decides again, by brute force.
fn by_hand(says: &Says, told: &Told) -> Vec<(String, Outcome)> {
    let refused = |is: bool| if is { Outcome::Refused } else { Outcome::Allowed };
    let below = |path: &str, top: &str| path == top || path.starts_with(&format!("{top}/"));
    let mut all = Vec::new();
    for name in &told.secrets {
        let listed = says.only_secrets.as_ref().is_none_or(|names| names.contains(name));
        all.push((format!("secret {name}"), refused(!listed)));
    }
    let listed = says.only_hosts.is_some();
    all.push((format!("mode {}", told.mode.word()), refused(listed && told.mode == NetMode::Unrestricted)));
    for (path, writes) in &told.paths {
        let denied = says.never_paths.iter().any(|top| below(path, top));
        let shown = says.only_read.as_ref().is_none_or(|tops| tops.iter().any(|top| below(path, top)));
        all.push((format!("read host:{path}"), refused(denied || !shown)));
        if *writes {
            all.push((format!("write host:{path}"), refused(denied)));
        }
    }
    let answer = match (told.changes, says.changes) {
        (PastChanges::Go, _) | (_, None) => Outcome::Allowed,
        (_, Some(Outcome::Refused)) => Outcome::Refused,
        (PastChanges::Come, Some(outcome)) => outcome,
        (PastChanges::Wait, Some(_)) => Outcome::Allowed,
    };
    all.push(("changes".to_owned(), answer));
    let (words, programs) = COMMANDS[told.command];
    let runs = |names: &[&str]| names.iter().any(|name| programs.contains(name));
    let answer = match (runs(&says.forbidden), runs(&says.asked)) {
        (true, _) => Outcome::Refused,
        (false, true) => Outcome::Asked,
        (false, false) => Outcome::Allowed,
    };
    all.push((format!("run {}", words.join(" ")), answer));
    for (host, address) in &told.attempts {
        let is_name = HOSTS.contains(host);
        let denied = says.never_hosts.contains(host) || (says.never_tens && address[0] == 10);
        let open = says.only_hosts.as_ref().is_none_or(|hosts| is_name && hosts.contains(host));
        all.push((format!("net {host}:443"), refused(denied || !open)));
    }
    let lowered = says.memory.is_some_and(|max| told.memory.is_none_or(|had| had > max));
    let shown = told.memory.map_or_else(|| "none".to_owned(), |memory| format!("{memory}G"));
    all.push((format!("limit memory={shown}"), if lowered { Outcome::Lowered } else { Outcome::Allowed }));
    let above = says.connections.is_some_and(|max| told.connections > max);
    all.push((format!("budget connections={}", told.connections), refused(above)));
    all.push(("read workspace:/keys/**".to_owned(), refused(says.hides_keys)));
    all
}

/// The splitmix64 generator: the same runs in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((x ^ (x >> 31)) % count as u64).unwrap()
    }

    fn is(&mut self) -> bool {
        self.below(2) == 0
    }

    fn some(&mut self, from: &[&'static str]) -> Vec<&'static str> {
        from.iter().copied().filter(|_| self.is()).collect()
    }

    fn told(&mut self) -> Told {
        let mut attempts = Vec::new();
        for host in self.some(&HOSTS) {
            attempts.push((host, if self.is() { [10, 1, 2, 3] } else { [192, 0, 2, 1] }));
        }
        if self.is() {
            attempts.push(("10.9.9.9", [10, 9, 9, 9]));
        }
        let modes = [NetMode::None, NetMode::Allowlist, NetMode::Unrestricted];
        let changes = [PastChanges::Come, PastChanges::Wait, PastChanges::Go];
        Told {
            command: self.below(COMMANDS.len()),
            changes: changes[self.below(3)],
            mode: modes[self.below(3)],
            attempts,
            paths: self.some(&PATHS).into_iter().map(|path| (path, self.is())).collect(),
            memory: self.is().then(|| self.below(8) as u64 + 1),
            connections: self.below(100) as u64,
            secrets: self.some(&SECRETS),
        }
    }
}

fn in_force() -> Says {
    Says {
        only_hosts: Some(vec!["a.test", "b.test", "c.test"]),
        never_hosts: vec!["c.test"],
        only_read: Some(vec!["/opt", "/srv"]),
        never_paths: vec!["/srv/x"],
        memory: Some(4),
        connections: Some(50),
        only_secrets: Some(vec!["ONE", "TWO"]),
        forbidden: vec!["rm"],
        asked: vec!["curl"],
        changes: Some(Outcome::Asked),
        ..Says::default()
    }
}

fn stricter() -> Says {
    Says {
        only_hosts: Some(vec!["a.test", "c.test"]),
        never_tens: true,
        never_paths: vec!["/srv/x", "/opt/keys"],
        hides_keys: true,
        memory: Some(2),
        connections: Some(20),
        only_secrets: Some(vec!["ONE"]),
        forbidden: vec!["rm", "curl"],
        asked: vec!["curl", "git"],
        changes: Some(Outcome::Refused),
        ..in_force()
    }
}

fn looser() -> Says {
    Says {
        never_hosts: Vec::new(),
        only_read: None,
        memory: None,
        connections: Some(90),
        only_secrets: None,
        forbidden: Vec::new(),
        asked: vec!["rm"],
        changes: None,
        only_hosts: None,
        ..in_force()
    }
}

#[test]
fn a_replay_of_a_thousand_runs_gives_the_differences_of_a_decision_by_hand() {
    let mut random = Random(15);
    let before = in_force();
    for (name, after) in [("stricter", stricter()), ("looser", looser())] {
        let (one, other) = (before.document(), after.document());
        let (mut differing, mut all, mut took) = (0, 0, 0.0);
        for _ in 0..1000 {
            let told = random.told();
            let run = told.run();
            let begun = Instant::now();
            let found = differences(&one, &other, &run);
            took += begun.elapsed().as_secs_f64();
            let expected: Vec<(String, Outcome, Outcome)> = by_hand(&before, &told)
                .into_iter()
                .zip(by_hand(&after, &told))
                .filter(|((_, before), (_, after))| before != after)
                .map(|((question, before), (_, after))| (question, before, after))
                .collect();
            let found: Vec<(String, Outcome, Outcome)> = found
                .into_iter()
                .map(|one| {
                    assert_eq!(one.before.why.is_none(), one.before.outcome == Outcome::Allowed, "{one:?}");
                    assert_eq!(one.after.why.is_none(), one.after.outcome == Outcome::Allowed, "{one:?}");
                    (one.question, one.before.outcome, one.after.outcome)
                })
                .collect();
            assert_eq!(found, expected, "{name}: {told:?}");
            for (question, before, after) in &found {
                assert_eq!(name == "stricter", after > before, "{name}: {question}");
            }
            differing += usize::from(!found.is_empty());
            all += found.len();
        }
        println!("{name}: {differing} of 1000 runs differ, in {all} answers; {took:.3} s");
        assert!(differing > 900 && all > 3000, "{name}: {differing} {all}");
    }
}

#[test]
fn documents_do_not_differ_from_themselves_and_a_cut_command_is_not_decided() {
    let mut random = Random(16);
    let (one, other) = (in_force().document(), stricter().document());
    for _ in 0..100 {
        let run = random.told().run();
        assert_eq!(differences(&one, &one, &run), []);
        let cut = PastRun { words: None, changes: None, ..run };
        let decided = decide(&other, &cut);
        assert!(!decided.iter().any(|(question, _)| question.starts_with("run ") || question == "changes"));
    }
}

#[test]
fn all_of_random_program_lists_agree_about_commands() {
    let mut random = Random(17);
    for _ in 0..200 {
        let lists = |random: &mut Random| Says {
            forbidden: random.some(&PROGRAMS),
            asked: random.some(&PROGRAMS),
            ..Says::default()
        };
        let (before, after, told) = (lists(&mut random), lists(&mut random), random.told());
        let found = differences(&before.document(), &after.document(), &told.run());
        let (was, is) = (by_hand(&before, &told), by_hand(&after, &told));
        let expected: Vec<&String> =
            was.iter().zip(&is).filter(|(was, is)| was.1 != is.1).map(|(was, _)| &was.0).collect();
        assert_eq!(
            found.iter().map(|one| &one.question).collect::<Vec<_>>(),
            expected,
            "{before:?} {after:?} {told:?}"
        );
    }
}
