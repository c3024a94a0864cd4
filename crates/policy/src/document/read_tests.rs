use super::*;

const EXAMPLE: &str = r#"
policy: nexus.policy/1
id: acme
level: global
description: "the rules of acme"
net:
  allow:
    - github.com:443
    - rule: "*.example.com:443"
      match: ["a.example.com:443"]
      not_match: ["example.com:443", "a.example.com:80"]
  deny: ["bad.example.com", 10.0.0.0/8]
  methods: read_only
fs:
  read: ["workspace:**", "host:/opt/**"]
  write: ["workspace:**"]
  deny: [{rule: "host:/opt/keys/**", match: ["host:/opt/**"], not_match: ["host:/opt/models"]}]
limits: {memory: 2G, pids: 100}
budgets: {connections: 10, egress_bytes: 1M}
approval: {exec: skip, changes: needs_approval}
secrets: [TOKEN]
sandbox: [untrusted, trusted]
tests:
  match: ["net github.com:443", "read host:/opt/models", "limit memory=1G", "secret TOKEN"]
  not_match: ["net example.org:443", "write host:/opt/models", "sandbox host", "mode unrestricted"]
"#;

fn wanted() -> String {
    EXAMPLE.to_owned()
}

#[test]
fn every_key_is_read() {
    let document = parse(&wanted(), "acme.yaml").unwrap();
    assert_eq!((document.id.as_str(), document.level), ("acme", Level::Global));
    let net = document.net.unwrap();
    assert_eq!(net.mode.unwrap().0, NetMode::Allowlist);
    let allow = net.allow.unwrap();
    assert_eq!((allow.len(), allow[1].cases.len(), allow[1].place.line), (2, 3, 9));
    assert_eq!((net.deny.len(), net.methods.unwrap().0.word()), (2, "read_only"));
    let fs = document.fs.unwrap();
    assert_eq!((fs.read.unwrap().len(), fs.write.unwrap().len(), fs.deny[0].cases.len()), (2, 1, 2));
    assert_eq!((document.limits.len(), document.budgets.len(), document.approval.len()), (2, 2, 2));
    assert_eq!(document.budgets[1].1.0, 1 << 20);
    assert_eq!(document.secrets.unwrap().0, ["TOKEN"]);
    assert_eq!(document.sandbox.unwrap().0, [SandboxProfile::Untrusted, SandboxProfile::Trusted]);
    assert_eq!(document.tests.len(), 8);
}

#[test]
fn a_mistake_is_named_with_its_place_and_what_to_write() {
    let head = "policy: nexus.policy/1\nid: a\nlevel: user\n";
    for (text, place, said) in [
        ("id: a\nlevel: user\n", "1:1", "policy: nexus.policy/1 is missing"),
        ("policy: nexus.policy/2\nid: a\nlevel: user\n", "1:9", "not a form that is read here"),
        ("policy: nexus.policy/1\nlevel: user\n", "1:1", "id is missing"),
        ("policy: nexus.policy/1\nid: a\n", "1:1", "level is missing"),
        ("policy: nexus.policy/1\nid: ../a\nlevel: user\n", "2:5", "cannot be the id"),
        (&format!("{head}nett: {{}}\n"), "4:1", "did you mean net?"),
        (&format!("{head}net: {{alow: []}}\n"), "4:7", "did you mean net.allow?"),
        (&format!("{head}net: none\n"), "4:6", "must be keys with values"),
        (&format!("{head}net: {{mode: none, allow: []}}\n"), "4:13", "takes no list allow"),
        (&format!("{head}net: {{mode: allowlist}}\n"), "4:13", "needs a list allow"),
        (&format!("{head}net: {{allow: [\"1.2.3.4:443\"]}}\n"), "4:15", "is not a rule"),
        (&format!("{head}net: {{allow: [{{match: []}}]}}\n"), "4:15", "rule is missing"),
        (&format!("{head}fs: {{read: [/opt]}}\n"), "4:13", "must begin with workspace: or host:"),
        (&format!("{head}fs: {{read: [\"host:/a/../b\"]}}\n"), "4:13", "a part that no pattern takes"),
        (&format!("{head}limits: {{memory: big}}\n"), "4:18", "is not a size"),
        (&format!("{head}budgets: {{connections: many}}\n"), "4:24", "is not a number of connections"),
        (&format!("{head}approval: {{exec: maybe}}\n"), "4:18", "write skip, needs_approval, forbidden"),
        (&format!("{head}approval: {{exce: skip}}\n"), "4:12", "did you mean approval.exec?"),
        (&format!("{head}secrets: [\"A=B\"]\n"), "4:11", "cannot be the name of a variable"),
        (&format!("{head}sandbox: [vm]\n"), "4:11", "write untrusted, trusted or host"),
        (&format!("{head}tests: {{match: [\"go far\"]}}\n"), "4:17", "is not a question"),
        (&format!("{head}tests: {{matches: []}}\n"), "4:9", "did you mean tests.match?"),
        (&format!("{head}id: b\n"), "4:1", "twice"),
        (&format!("{head}approval:"), "4:9", "approval is empty"),
        (&format!("{head}approval:\nlimits: {{pids: 1}}\n"), "4:9", "approval is empty"),
        (&format!("{head}fs: {{deny: }}\n"), "4:10", "deny is empty"),
        (&format!("{head}commands: {{forbidden: [~]}}\n"), "4:24", "forbidden is empty"),
    ] {
        let error = parse(text, "a.yaml").unwrap_err();
        assert!(error.message.contains(said), "{text:?}: {error}");
        assert_eq!(error.place.to_string(), place, "{text:?}: {error}");
    }
}
