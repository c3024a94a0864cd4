//! Connections of directives of a fleet that wait for a person: a real server, a real daemon, a real connection.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod fleet_support;
mod support;

use fleet_support::{Relay, Scene, address_of, named};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::net::Server;
use support::screen::Screen;

struct Fleet {
    scene: Scene,
    server: Server,
    /// Before the control plane, as its daemon sees it.
    relay: Relay,
    agent: String,
    operator: String,
    facility: String,
}

impl Fleet {
    /// A control plane and a territory on which web.test and db.test lead to a server of the test.
    fn start() -> Self {
        let mut scene = Scene::new();
        scene.mothership(&["--listen", "127.0.0.1:0"]);
        let relay = Relay::start(address_of(&scene.url));
        scene.join(0, &format!("http://{}", relay.address));
        let data = scene.territory(0);
        let etc = scene.names();
        scene.serve_by("daemon0", &["daemon", "run", "--json"], &data, |command| named(&etc, &command));
        let (agent, operator) = (scene.make_key("agent"), scene.make_key("operator"));
        let facility = scene.ok(&["facility", "create"]).trim().to_owned();
        Self { server: Server::start(), scene, relay, agent, operator, facility }
    }

    fn target(&self) -> String {
        format!("web.test:{}", self.server.port)
    }

    fn create(&self, wait: &str, script: &str) -> String {
        let words = ["directive", "create", "--facility", &self.facility, "--ask", wait, "--discard", "--", script];
        let made = self.scene.nexus_as(&self.agent, &words);
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }

    fn all(&self) -> Vec<Value> {
        let (status, list) = self.scene.call(&self.scene.key, "GET", "/approvals?all=true", "");
        assert_eq!(status, 200, "{list}");
        list["approvals"].as_array().unwrap().clone()
    }

    /// Waits until so many connections of a directive have this state, and returns them.
    fn in_state(&self, directive: &str, state: &str, count: usize) -> Vec<Value> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let all = self.all();
            let is_it = |one: &&Value| one["directive_id"] == directive && one["state"] == state;
            let found: Vec<Value> = all.iter().filter(is_it).cloned().collect();
            if found.len() == count {
                return found;
            }
            let state = self.scene.json(&["directive", "show", directive, "--json"]);
            assert!(Instant::now() < deadline, "{all:#?}: {state}: {}", self.scene.said("daemon0"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn pending(&self, directive: &str) -> Value {
        self.in_state(directive, "pending", 1).remove(0)
    }

    fn approve(&self, key: &str, one: &Value, more: &Value) -> (u16, Value) {
        let mut body = json!({"approval_id": one["approval_id"], "subject": one["subject"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let path = format!("/directives/{}/approve", one["directive_id"].as_str().unwrap());
        self.scene.call(key, "POST", &path, &body.to_string())
    }

    /// Approves it with a key that did not ask.
    fn granted(&self, one: &Value, more: &Value) {
        let (status, answer) = self.approve(&self.operator, one, more);
        assert_eq!(status, 200, "{answer}");
    }

    /// Approves it on a terminal, with a key that did not ask.
    fn approved_on_a_terminal(&self, words: &[&str]) -> String {
        let user = self.scene.user(&[&["approvals", "approve", "--fleet"], words].concat());
        let mut command = std::process::Command::new("setsid");
        command.args(["--ctty", "--"]).arg(user.get_program()).args(user.get_args()).env_clear();
        command.envs(user.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "xterm");
        command.env("NEXUS_API_KEY", &self.operator);
        let mut screen = Screen::start(command);
        screen.wait_for("[y/N]");
        screen.send("y\n");
        assert!(screen.end().success(), "{}", screen.shown());
        screen.shown()
    }

    fn logs(&self, directive: &str) -> String {
        self.scene.ok(&["directive", "logs", directive])
    }
}

fn id(one: &Value) -> &str {
    one["approval_id"].as_str().unwrap()
}

#[test]
fn a_connection_of_a_directive_waits_for_another_key_and_its_receipt_names_the_approval() {
    let fleet = Fleet::start();
    let (scene, target) = (&fleet.scene, fleet.target());
    let script = format!("curl -sSf {target}; curl -sf {target} || echo refused; curl -sf {target} || echo again");
    let directive = fleet.create("60s", &script);
    let first = fleet.pending(&directive);
    assert_eq!((&first["kind"], &first["asks"]["connection"]["destination"]), (&json!("egress"), &json!(target)));
    assert_eq!(fleet.server.accepted(), 0, "it waits");
    let (status, refused) = fleet.approve(&fleet.agent, &first, &json!({}));
    assert_eq!(status, 403, "{refused}");
    let listed = scene.ok(&["approvals", "ls", "--fleet"]);
    assert!(listed.contains(&format!("connect {target}: ")), "{listed}");
    let shown = scene.ok(&["approvals", "show", "--fleet", id(&first)]);
    for part in
        [format!("connect to {target}\n"), "shell      /bin/sh\n".to_owned(), format!("directive  {directive}, ")]
    {
        assert!(shown.contains(&part), "{part}: {shown}");
    }
    fleet.granted(&first, &json!({}));
    // The next connection needs an answer of its own, and a no holds to the end of the directive.
    let second = fleet.pending(&directive);
    assert_ne!(id(&first), id(&second));
    assert!(scene.ok(&["approvals", "deny", "--fleet", id(&second)]).contains("is denied"));
    let over = scene.ended(&directive);
    assert_eq!(over["state"], "succeeded", "{over}");
    assert_eq!(fleet.logs(&directive), "hello\nrefused\nagain\n");
    assert_eq!(fleet.server.accepted(), 1);
    // The receipt of the territory names the approval and the key.
    let text = decoded(&scene.json(&["directive", "receipt", &directive]));
    let key =
        fleet.all().iter().find(|one| id(one) == id(&first)).unwrap()["approved_by"][0].as_str().unwrap().to_owned();
    for part in [id(&first), &format!("key {key}")] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, events) = scene.call(&scene.key, "GET", &format!("/directives/{directive}/events?format=list"), "");
    let asked: Vec<&Value> =
        events["events"].as_array().unwrap().iter().filter(|event| event["type"] == "approval").collect();
    assert_eq!((asked.len(), &asked[0]["question"]), (1, &json!(format!("connect to {target}"))), "{events}");
}

/// Returns the parts of a receipt that stand in it as base64.
fn decoded(receipt: &Value) -> String {
    match receipt {
        Value::String(text) => {
            let bytes = data_encoding::BASE64.decode(text.as_bytes()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        Value::Object(members) => members.values().map(decoded).collect(),
        Value::Array(list) => list.iter().map(decoded).collect(),
        _ => String::new(),
    }
}

#[test]
fn as_many_connections_of_a_directive_are_made_as_were_approved_while_many_wait() {
    let fleet = Fleet::start();
    let target = fleet.target();
    let many = format!("for i in 1 2 3 4 5 6; do (curl -sf {target} || echo no) & done; wait");
    let directive = fleet.create("60s", &many);
    fleet.granted(&fleet.pending(&directive), &json!({"max_uses": 4}));
    // Those for which no use is left ask again, once for all of them.
    let again = fleet.pending(&directive);
    assert_eq!(fleet.server.accepted(), 4);
    let deny = json!({"approval_id": id(&again)}).to_string();
    let (status, _) = fleet.scene.call(&fleet.operator, "POST", &format!("/directives/{directive}/reject"), &deny);
    assert_eq!(status, 200);
    assert_eq!(fleet.scene.ended(&directive)["state"], "succeeded");
    let logs = fleet.logs(&directive);
    assert_eq!((logs.matches("hello").count(), logs.matches("no").count()), (4, 2), "{logs}");
    assert_eq!(fleet.server.accepted(), 4);
    // For the whole directive each connection is made, and the next directive has nothing of it.
    let whole = fleet.create("60s", &format!("for i in 1 2 3 4 5 6; do curl -sf {target} || echo no; done"));
    let local = fleet.scene.nexus(&["approvals", "approve", "--scope", "directive", "1"]);
    assert_eq!(local.status.code(), Some(2), "{local:?}");
    let shown = fleet.approved_on_a_terminal(&[id(&fleet.pending(&whole)), "--scope", "directive"]);
    for part in [format!("connect to {target}"), "is granted".to_owned()] {
        assert!(shown.contains(&part), "{part}: {shown}");
    }
    assert_eq!(fleet.scene.ended(&whole)["state"], "succeeded");
    assert_eq!((fleet.logs(&whole), fleet.server.accepted()), ("hello\n".repeat(6), 10));
    let next = fleet.create("60s", &format!("curl -sf {target} || echo no"));
    fleet.pending(&next);
    fleet.scene.ok(&["directive", "cancel", &next]);
    fleet.scene.ended(&next);
    assert_eq!(fleet.server.accepted(), 10);
}

#[test]
fn a_connection_waits_no_longer_than_it_may_and_not_after_a_cancel() {
    let fleet = Fleet::start();
    let target = fleet.target();
    let directive = fleet.create("3s", &format!("curl -sf {target} || echo refused; curl -sf {target} || echo again"));
    let asked = fleet.pending(&directive);
    assert_eq!(fleet.scene.ended(&directive)["state"], "succeeded");
    assert_eq!(fleet.logs(&directive), "refused\nagain\n");
    let (status, late) = fleet.approve(&fleet.operator, &asked, &json!({}));
    assert_eq!((status, &late["code"]), (409, &json!("approval_over")), "{late}");
    // A command that waits for an answer ends with a cancel, and its request with it.
    let directive = fleet.create("10m", &format!("curl -sf {target}"));
    let asked = fleet.pending(&directive);
    let clock = Instant::now();
    fleet.scene.ok(&["directive", "cancel", &directive]);
    assert_eq!(fleet.scene.ended(&directive)["state"], "canceled");
    assert!(clock.elapsed() < Duration::from_secs(20), "{:?}", clock.elapsed());
    let (status, late) = fleet.approve(&fleet.operator, &asked, &json!({}));
    assert_eq!((status, &late["code"]), (409, &json!("approval_over")), "{late}");
    assert_eq!(fleet.in_state(&directive, "withdrawn", 1).len(), 1);
    assert_eq!(fleet.server.accepted(), 0);
}

#[test]
fn a_connection_waits_on_while_its_control_plane_is_killed_and_started_again() {
    let mut fleet = Fleet::start();
    let directive = fleet.create("2m", &format!("curl -sSf {}", fleet.target()));
    let before = fleet.pending(&directive);
    fleet.scene.kill("mothership");
    fleet.relay.set_down(true);
    std::thread::sleep(Duration::from_secs(2));
    fleet.scene.mothership(&["--listen", "127.0.0.1:0"]);
    fleet.relay.lead_to(address_of(&fleet.scene.url));
    fleet.relay.set_down(false);
    let asked = fleet.pending(&directive);
    assert_eq!(id(&asked), id(&before), "one request");
    fleet.granted(&asked, &json!({}));
    assert_eq!(fleet.scene.ended(&directive)["state"], "succeeded", "{}", fleet.scene.said("daemon0"));
    assert_eq!((fleet.logs(&directive), fleet.server.accepted()), ("hello\n".to_owned(), 1));
    assert_eq!(fleet.in_state(&directive, "used", 1).len(), 1);
}

#[test]
fn what_a_directive_chose_draws_nothing_in_a_question_about_its_connection() {
    let fleet = Fleet::start();
    let script = format!("curl -sf {} # \u{1b}[2J\u{202e}\nconnect to good.test:443", fleet.target());
    let directive = fleet.create("60s", &script);
    let asked = fleet.pending(&directive);
    for words in [["approvals", "ls", "--fleet"].as_slice(), &["approvals", "show", "--fleet", id(&asked)]] {
        let shown = fleet.scene.ok(words);
        assert!(!shown.contains(['\u{1b}', '\u{202e}']) && !shown.contains("\nconnect to good"), "{shown:?}");
    }
    fleet.scene.ok(&["directive", "cancel", &directive]);
    fleet.scene.ended(&directive);
}

#[test]
fn an_owner_puts_a_policy_of_an_account_in_force_and_it_holds_for_its_directives() {
    let mut scene = Scene::new();
    scene.mothership(&["--listen", "127.0.0.1:0"]);
    let facility = scene.ok(&["facility", "create"]).trim().to_owned();
    let (file, text) = (
        scene.path("account.yaml"),
        "policy: nexus.policy/1\nid: own\nlevel: account\ncommands:\n  forbidden: [\"rm *\"]\n",
    );
    std::fs::write(&file, text).unwrap();
    let apply = ["policy", "apply", "--fleet", file.to_str().unwrap()];
    let said = scene.ok(&apply);
    assert!(said.starts_with("account   own  account@1\nin force: generation blake3:"), "{said}");
    let generation = said.trim().rsplit(' ').next().unwrap();
    let explained = scene.ok(&["policy", "explain", "--fleet"]);
    assert!(explained.starts_with(&format!("generation {generation}\n")), "{explained}");
    assert!(explained.contains("forbidden rm *  ← account@1:5:15"), "{explained}");
    let set = scene.json(&["policy", "explain", "--fleet", "--json"]);
    assert_eq!((&set["generation"], &set["documents"][0]["id"]), (&json!(generation), &json!("own")));
    let asked = scene.nexus(&["policy", "explain", "--fleet", "run ls", "run rm x"]);
    assert_eq!(asked.status.code(), Some(1));
    let answers = String::from_utf8(asked.stdout).unwrap();
    let expected =
        "allowed    run ls\nforbidden  run rm x\n           forbidden (account policy own, account@1:5:15)\n";
    assert_eq!(answers, expected);
    let create = |command: &str| scene.nexus(&["directive", "create", "--facility", &facility, "--", command]);
    let refused = String::from_utf8(create("rm x").stderr).unwrap();
    assert!(refused.contains("account@1:5:15") && refused.contains("(policy)"), "{refused}");
    assert!(create("ls").status.success());
    // One that does not count, one for a generation that is gone, and a key without the right change nothing.
    std::fs::write(&file, format!("{text}tests: {{match: [\"run rm x\"]}}\n")).unwrap();
    let refused = String::from_utf8(scene.nexus(&apply).stderr).unwrap();
    assert!(refused.contains("account@2:6:17") && refused.contains("(policy_document)"), "{refused}");
    std::fs::write(&file, text.replace("rm", "dd")).unwrap();
    let stale = scene.nexus(&[&apply[..], &["--if-generation", "7"]].concat());
    assert!(String::from_utf8(stale.stderr).unwrap().contains("(policy_changed)"));
    let operator = scene.make_key("operator");
    assert!(!scene.nexus_as(&operator, &apply).status.success());
    assert_eq!(scene.ok(&["policy", "explain", "--fleet"]), explained);
    assert!(scene.ok(&[&apply[..], &["--if-generation", "1"]].concat()).contains("account@2"));
    assert!(create("rm x").status.success());
    scene.ok(&["policy", "apply", "--fleet", "--remove"]);
    assert!(scene.ok(&["policy", "explain", "--fleet"]).starts_with("No policy document is in force"));
    assert!(create("dd").status.success());
}
