use super::*;
use crate::document::{Effective, Question};

fn imported(format: Format, text: &str) -> (Effective, Vec<String>, String) {
    let wanted = Wanted { id: "imported", level: Level::User, home: Some("/home/u") };
    let found = import(format, text, wanted).unwrap();
    let loaded = LoadedPolicy::read("p", &found.document).unwrap();
    let left = found.left_out.iter().map(|one| format!("{}: {}", one.what, one.why)).collect();
    (Effective::of(&[loaded]), left, found.document)
}

fn check(effective: &Effective, questions: &[(&str, bool)], document: &str) {
    for (question, expected) in questions {
        let allowed = effective.ask(&Question::parse(question).unwrap()).is_allowed();
        assert_eq!(allowed, *expected, "{question}\n{document}");
    }
}

#[test]
fn settings_of_srt_become_ceilings() {
    let text = r#"{
        "network": {"allowedDomains": ["github.com", "*.example.com", "localhost", "10.0.0.1"], "deniedDomains": ["bad.example.com"],
                    "allowUnixSockets": ["/run/x"], "allowLocalBinding": false},
        "filesystem": {"denyRead": ["~/.ssh", "/etc/x*"], "allowWrite": [".", "/tmp", "src/"], "denyWrite": [".env"]},
        "ignoreViolations": {"*": ["/usr/bin"]}
    }"#;
    let (effective, left, document) = imported(Format::Srt, text);
    check(
        &effective,
        &[
            ("net github.com:443", true),
            ("net a.example.com:80", true),
            ("net github.com:22", false),
            ("net bad.example.com:443", false),
            ("net other.test:443", false),
            ("mode unrestricted", false),
            ("read host:/home/u/.ssh/id", false),
            ("read host:/etc/passwd", true),
            ("write workspace:/a/b", true),
            ("write workspace:/.env", false),
            ("write host:/tmp/x", true),
            ("write host:/var/x", false),
        ],
        &document,
    );
    for said in [
        "10.0.0.1: ",
        "network.allowUnixSockets: ",
        "/etc/x*: ",
        ".env: carried over more strictly",
        "ignoreViolations: ",
    ] {
        assert!(left.iter().any(|line| line.starts_with(said)), "{said}: {left:#?}");
    }
    assert!(!left.iter().any(|line| line.contains("allowLocalBinding")), "what is off is not missed: {left:#?}");
    let (nothing, ..) = imported(Format::Srt, "{}");
    check(&nothing, &[("net github.com:443", false)], "");
}

#[test]
fn rules_of_claude_become_ceilings_and_rules_about_commands() {
    let text = r#"{
        "permissions": {
            "allow": ["Bash(npm run *)", "Bash(git status)", "Bash(make:*)", "Read(//opt/models/**)", "WebFetch(domain:docs.example.com)",
                      "Bash", "mcp__x__y", "Bash(git * main)", "Bash(ls; rm *)"],
            "ask": ["Bash(git push *)", "WebFetch(domain:a.test)"],
            "deny": ["Bash(curl *)", "Read(~/.ssh/**)", "Edit(./deploy/**)", "Read(.env)", "WebFetch(domain:bad.test)", "Read(/x)"],
            "defaultMode": "acceptEdits"
        },
        "hooks": {}
    }"#;
    let (effective, left, document) = imported(Format::Claude, text);
    check(
        &effective,
        &[
            ("net docs.example.com:443", true),
            ("net other.test:443", false),
            ("read workspace:/a", true),
            ("read host:/opt/models/a", true),
            ("read host:/etc/passwd", false),
            ("read host:/home/u/.ssh/id", false),
            ("read workspace:/deploy/a", false),
            ("run npm run test", true),
            ("run git push origin", false),
            ("run ls; curl x", false),
            ("run ls", true),
        ],
        &document,
    );
    for said in [
        "Bash: ",
        "mcp__x__y: ",
        "Bash(git * main): ",
        "Bash(ls; rm *): ",
        "WebFetch(domain:a.test): ",
        "Edit(./deploy/**): carried",
        "Read(.env): ",
        "Read(/x): ",
        "permissions.defaultMode: ",
        "hooks: ",
    ] {
        assert!(left.iter().any(|line| line.starts_with(said)), "{said}: {left:#?}");
    }
    let (strict, ..) = imported(Format::Claude, r#"{"permissions": {"allow": ["Bash(ls *)"], "ask": ["Bash"]}}"#);
    check(&strict, &[("run ls -l", true), ("run ls; ls", false), ("run make", false)], "");
}

#[test]
fn rules_of_codex_keep_their_examples() {
    let text = r#"
# comment
prefix_rule(
    pattern = ["git", ["status", "log"]],  # alternatives
    decision = "allow",
    justification = 'reads',
    match = ["git status -s", ["git", "log", "a b"]],
    not_match = ["git push", "git -C x status"],
)
prefix_rule(pattern=["rm", "-rf"], decision="forbidden", match=["rm -rf x"], not_match=["ls; rm -rf x"])
prefix_rule(pattern=["make"], decision="prompt",)
prefix_rule(pattern=["x"], decision="sometimes")
host_executable(name="git", paths=["/usr/bin/git"])
"#;
    let (effective, left, document) = imported(Format::Codex, text);
    check(
        &effective,
        &[("run git status", true), ("run rm -rf x", false), ("run ls && rm -rf y", false), ("run make all", false)],
        &document,
    );
    assert!(document.contains("git log 'a b'"), "{document}");
    for said in ["ls; rm -rf x: this example", "host_executable: ", "prefix_rule(pattern=[\"x\"]"] {
        assert!(left.iter().any(|line| line.starts_with(said)), "{said}: {left:#?}");
    }
    assert_eq!(left.len(), 3, "{left:#?}");
    let wanted = Wanted { id: "a", level: Level::User, home: None };
    for broken in [
        "prefix_rule(",
        "def f(): pass",
        "prefix_rule(pattern=[\"a\")",
        "x = 1",
        "prefix_rule(pattern=\"a",
        "load(\"x\")",
    ] {
        assert!(matches!(import(Format::Codex, broken, wanted), Err(ImportError::Unreadable { .. })), "{broken}");
    }
}

#[test]
fn no_text_makes_a_document_that_does_not_hold() {
    let wanted = Wanted { id: "a", level: Level::User, home: Some("/home/u") };
    let hard =
        ["", "\\\"", "\u{1b}[2J", "a\nb", "${x}", "*", "**", "//", "~", "..", "a: b", "- x", "\u{2028}", "'", "a'b\"c"];
    for text in hard {
        let list = serde_json::json!([
            text,
            format!("Bash({text} *)"),
            format!("Bash({text})"),
            format!("Read({text})"),
            format!("Edit(//{text}/**)")
        ]);
        for json in [
            serde_json::json!({"permissions": {"allow": list, "deny": list, "ask": list}}),
            serde_json::json!({"network": {"allowedDomains": list, "deniedDomains": list}, "filesystem": {"denyRead": list, "allowWrite": list, "denyWrite": list}}),
        ] {
            let format = if json.get("network").is_some() { Format::Srt } else { Format::Claude };
            import(format, &json.to_string(), wanted).unwrap_or_else(|error| panic!("{json}: {error}"));
        }
        let quoted = serde_json::to_string(text).unwrap();
        let rules = format!("prefix_rule(pattern=[{quoted}, \"b\"], match=[{quoted}], decision=\"prompt\")");
        if let Err(error) = import(Format::Codex, &rules, wanted) {
            assert!(matches!(error, ImportError::Unreadable { .. }), "{rules}: {error}");
        }
    }
}
