#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
//! Rules for one program: their text, whom they allow and deny, and what a refusal says.

use nexus_model::capability::NetMode;
use nexus_policy::net::{
    AnyRule, Attempt, Cause, Decision, Host, Ingress, MonotonicMs, Next, Policy, PolicyBound, PolicyInput, Program,
    RuleFault, Source, Target, check_addrs, check_dns, check_name, explain_attempt, may_be_asked, parse_allow,
    parse_allow_private, parse_deny, recheck,
};

const NOW: MonotonicMs = MonotonicMs(1);

fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    let allow = allow.iter().map(|text| parse_allow(text, Source::flag(*text)).unwrap()).collect();
    let mut input = PolicyInput { allow, ..PolicyInput::default() };
    for text in deny {
        input.deny_any(parse_deny(text, Source::flag(*text)).unwrap());
    }
    Policy::build(input).unwrap()
}

fn attempt(target: &str, program: Option<&str>) -> Attempt {
    let program = program.map(|path| Program::parse(path).unwrap());
    Attempt { target: Target::parse(target).unwrap(), way: Ingress::Connect, program }
}

fn allowed(policy: &Policy, target: &str, program: Option<&str>) -> bool {
    let told = explain_attempt(policy, &attempt(target, program), &["11.22.33.44".parse().unwrap()], NOW);
    told.decision == Decision::Allow
}

#[test]
fn a_program_stands_behind_the_host_and_its_ports() {
    let only = |text: &str| parse_allow(text, Source::flag("x")).unwrap().program.map(|program| program.0);
    assert_eq!(only("a.test@/usr/bin/curl").as_deref(), Some("/usr/bin/curl"));
    assert_eq!(only("*.a.test:80,443@/opt/a@/b c").as_deref(), Some("/opt/a@/b c"));
    assert_eq!(only("a.test:443"), None);
    let AnyRule::Name(rule) = parse_deny("a.test@/bin/x", Source::flag("x")).unwrap() else { panic!("a name") };
    assert_eq!(rule.program.unwrap().0, "/bin/x");
    let AnyRule::Name(rule) = parse_allow_private("db.test:5432@/usr/bin/psql", Source::flag("x")).unwrap() else {
        panic!("a name")
    };
    assert!(rule.private && rule.program.is_some());
    for wrong in ["a.test@/", "a.test@//bin/x", "a.test@/bin/../x", "a.test@/bin/x/", "a.test@/bin/./x", "a.test@/b\0"]
    {
        assert_eq!(parse_allow(wrong, Source::flag("x")).unwrap_err().why, RuleFault::Program, "{wrong}");
    }
    for no_program in ["a.test@curl", "a.test@", "@/bin/x", "user@a.test"] {
        parse_allow(no_program, Source::flag("x")).unwrap_err();
    }
    for address in ["10.0.0.1@/bin/x", "10.0.0.0/8@/bin/x", "10.0.0.0/8:80@/bin/x"] {
        assert_eq!(parse_deny(address, Source::flag("x")).unwrap_err().why, RuleFault::OnlyForNames, "{address}");
    }
}

#[test]
fn a_rule_for_one_program_allows_that_program_alone() {
    let policy = policy(&["a.test@/usr/bin/curl", "*.a.test:443,80@/usr/bin/git", "b.test"], &[]);
    for (target, program, wanted) in [
        ("a.test:443", Some("/usr/bin/curl"), true),
        ("a.test:443", Some("/usr/bin/git"), false),
        ("a.test:443", Some("/work/usr/bin/curl"), false),
        ("a.test:443", None, false),
        ("a.test:80", Some("/usr/bin/curl"), false),
        ("x.a.test:80", Some("/usr/bin/git"), true),
        ("x.a.test:80", Some("/usr/bin/curl"), false),
        ("b.test:443", None, true),
        ("b.test:443", Some("/usr/bin/curl"), true),
    ] {
        assert_eq!(allowed(&policy, target, program), wanted, "{target} {program:?}");
    }
}

#[test]
fn a_denial_for_one_program_exempts_only_programs_known_to_be_others() {
    let policy = policy(&["a.test"], &["a.test@/usr/bin/curl"]);
    assert!(allowed(&policy, "a.test:443", Some("/usr/bin/git")));
    assert!(!allowed(&policy, "a.test:443", Some("/usr/bin/curl")));
    assert!(!allowed(&policy, "a.test:443", None));
}

#[test]
fn a_refusal_says_for_whom_the_rule_is_and_who_asked() {
    let policy = policy(&["a.test@/usr/bin/curl"], &[]);
    let denied = |program| check_name(&policy, &attempt("a.test:443", program), NOW).unwrap_err();
    let wget = denied(Some("/usr/bin/wget"));
    assert_eq!(wget.cause, Cause::OtherProgram);
    assert_eq!(wget.to_string(), "a.test:443 is allowed for /usr/bin/curl, and this is /usr/bin/wget");
    assert_eq!(wget.allow_with.as_deref(), Some("--allow a.test:443@/usr/bin/wget"));
    assert_eq!(wget.rule.unwrap().text, "a.test:443@/usr/bin/curl");
    let odd = denied(Some("/work/x;rm -rf $HOME"));
    assert_eq!(odd.allow_with, None, "a flag for copying holds nothing for a shell, and opens it for nobody else");
    assert!(odd.to_string().ends_with(r#"and this is "/work/x;rm -rf $HOME""#), "no part of the sentence: {odd}");
    let unknown = denied(None);
    assert!(unknown.to_string().ends_with("it is not known which program this is"), "{unknown}");
    assert_eq!(unknown.allow_with, None);
    let other_port = check_name(&policy, &attempt("a.test:80", Some("/usr/bin/curl")), NOW).unwrap_err();
    assert_eq!(other_port.cause, Cause::PortNotListed);
    assert_eq!(other_port.allow_with.as_deref(), Some("--allow a.test:80@/usr/bin/curl"));
    let private =
        explain_attempt(&policy, &attempt("a.test:443", Some("/usr/bin/curl")), &["10.0.0.1".parse().unwrap()], NOW);
    assert_eq!(private.allow_with.as_deref(), Some("--allow-private a.test:443@/usr/bin/curl"));
}

#[test]
fn a_name_is_answered_for_whichever_program_may_reach_it() {
    let answered = |policy: &Policy, host| check_dns(policy, &Host::parse(host).unwrap(), NOW).is_ok();
    assert!(answered(&policy(&["a.test@/usr/bin/curl"], &[]), "a.test"));
    assert!(!answered(&policy(&["a.test@/usr/bin/curl"], &[]), "b.test"));
    assert!(answered(&policy(&["a.test"], &["a.test@/usr/bin/curl"]), "a.test"));
    assert!(!answered(&policy(&["a.test@/usr/bin/curl"], &["a.test"]), "a.test"));
}

#[test]
fn what_belongs_to_a_program_is_offered_to_no_other() {
    let open = ["10.0.0.1".parse().unwrap()];
    let mut input =
        PolicyInput { allow: vec![parse_allow("a.test", Source::flag("x")).unwrap()], ..PolicyInput::default() };
    input.allow_any(parse_allow_private("a.test@/usr/bin/curl", Source::flag("y")).unwrap());
    let policy = Policy::build(input).unwrap();
    let offered = |program| explain_attempt(&policy, &attempt("a.test:443", program), &open, NOW).allow_with;
    assert_eq!(offered(Some("/usr/bin/git")).as_deref(), Some("--allow-private a.test:443@/usr/bin/git"));
    assert_eq!(offered(None), None);
}

#[test]
fn a_name_that_could_be_asked_about_is_answered_for_every_program() {
    let mut input = PolicyInput { ask: true, ..PolicyInput::default() };
    input.deny_any(parse_deny("a.test@/usr/bin/curl", Source::flag("x")).unwrap());
    input.deny_any(parse_deny("b.test", Source::flag("x")).unwrap());
    let policy = Policy::build(input).unwrap();
    let asked = |host| may_be_asked(&policy, &Host::parse(host).unwrap(), NOW);
    assert!(asked("a.test") && asked("c.test") && !asked("b.test") && !asked("10.0.0.1"));
}

#[test]
fn no_user_is_asked_about_a_program_that_is_not_known() {
    let input = PolicyInput {
        allow: vec![parse_allow("a.test@/usr/bin/curl", Source::flag("x")).unwrap()],
        ask: true,
        ..PolicyInput::default()
    };
    let policy = Policy::build(input).unwrap();
    let cause = |target, program| check_name(&policy, &attempt(target, program), NOW).unwrap_err().cause;
    assert_eq!(cause("a.test:443", Some("/usr/bin/git")), Cause::MayAsk);
    assert_eq!(cause("a.test:443", None), Cause::OtherProgram);
    assert_eq!(cause("a.test:443", Some("/work/a b")), Cause::OtherProgram);
    assert_eq!(cause("b.test:443", None), Cause::MayAsk);
}

#[test]
fn a_policy_knows_whether_programs_matter() {
    let minds = |policy: &Policy, host| policy.minds_program(&Host::parse(host).unwrap());
    let some = policy(&["*.a.test:80@/bin/x", "b.test"], &["c.test@/bin/x"]);
    for (host, wanted) in
        [("x.a.test", true), ("a.test", false), ("b.test", false), ("c.test", true), ("10.0.0.1", false)]
    {
        assert_eq!(minds(&some, host), wanted, "{host}");
    }

    assert!(!policy(&["a.test"], &["b.test"]).names_programs());
    assert!(policy(&["a.test@/bin/x"], &[]).names_programs());
    assert!(policy(&["a.test"], &["a.test@/bin/x"]).names_programs());
    let by =
        PolicyBound { allow: vec![parse_allow("a.test@/bin/x", Source::flag("x")).unwrap()], ..PolicyBound::default() };
    let by = PolicyBound { mode: Some(NetMode::Allowlist), ..by };
    let narrow = policy(&["a.test"], &[]).narrow(&by);
    assert!(narrow.names_programs() && minds(&narrow, "a.test"));
}

#[test]
fn a_later_policy_asks_for_the_program_that_connected() {
    let addrs = ["11.22.33.44".parse().unwrap()];
    let open = policy(&["a.test"], &[]);
    let curl = attempt("a.test:443", Some("/usr/bin/curl"));
    let Next::Resolve(query) = check_name(&open, &curl, NOW).unwrap() else { panic!("a name is resolved") };
    let permit = check_addrs(&open, query, &addrs, NOW).unwrap();
    recheck(&policy(&["a.test@/usr/bin/curl"], &[]), &permit, NOW).unwrap();
    recheck(&policy(&["a.test@/usr/bin/git"], &[]), &permit, NOW).unwrap_err();
}
