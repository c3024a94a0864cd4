//! Narrowing only narrows: examples, and random profiles with random workspace files.

use super::super::document::{BindRule, Document, Toolchain};
use super::super::limits::LimitKind;
use super::super::origin::Origin;
use super::super::read::parse;
use super::*;
use crate::net::Methods;
use nexus_model::Digest;
use proptest::prelude::*;

fn load(name: &str, document: Document) -> Loaded {
    Loaded { name: name.to_owned(), source: format!("{name}.yaml"), hash: Digest::of(b""), document }
}

fn base(text: &str) -> Grants {
    let mut grants = Grants::default();
    grants.add(&load("base", parse(text).unwrap()));
    grants
}

fn narrowed(by: &str, what: &Grants) -> Narrowed {
    narrow(what, &load("nexus", parse(by).unwrap()))
}

#[test]
fn everything_that_widens_is_refused_with_its_line() {
    let profile = base(
        "limits: {memory: 1G}\nchanges: review\nnet: {allow: [a.example], methods: read_only}\nenv: {set: {A: x}}",
    );
    for (text, place, what) in [
        ("fs: {ro: [/opt]}", "1:11", "show /opt"),
        ("fs:\n  rw: [/opt]", "2:8", "write /opt"),
        ("env: {pass: [AWS_SECRET]}", "1:14", "pass on the variable AWS_SECRET"),
        ("env: {set: {A: y}}", "1:13", "set the variable A to \"y\""),
        ("env: {set: {LD_PRELOAD: /x}}", "1:13", "set the variable LD_PRELOAD to \"/x\""),
        ("net: {allow: [b.example]}", "1:15", "reach b.example"),
        ("net: {groups: [\"pkg:pip\"]}", "1:16", "reach the group pkg:pip"),
        ("net: {methods: any}", "1:16", "use every HTTP method"),
        ("net: unrestricted", "1:6", "open the network (unrestricted)"),
        ("limits: {memory: 2G}", "1:18", "raise the limit memory to 2147483648"),
        ("changes: commit", "1:10", "let changes go with less care (commit)"),
        ("extends: [python]", "1:11", "use the profile python"),
        ("toolchains: [rust]", "1:14", "show the toolchain rust"),
        ("etc: [apt]", "1:7", "show /etc/apt"),
        ("path: [/opt/bin]", "1:8", "run programs from /opt/bin"),
    ] {
        let found = narrowed(text, &profile).unwrap_err();
        let told: Vec<_> = found.iter().map(|wider| (wider.place.to_string(), wider.what.as_str())).collect();
        assert_eq!(told, [(place.to_owned(), what)], "{text}");
    }
}

#[test]
fn a_workspace_file_switches_auto_off_and_never_on() {
    let on = Grants::default();
    assert!(on.shows_auto() && narrowed("auto: true", &on).unwrap().shows_auto());
    assert!(!narrowed("auto: false", &on).unwrap().shows_auto());
    let off = base("auto: false");
    assert!(!off.shows_auto() && !narrowed("changes: review", &off).unwrap().shows_auto());
    let found = narrowed("auto: true", &off).unwrap_err();
    assert_eq!((found[0].place.line, found[0].what.as_str()), (1, "show the toolchains that PATH leads to"));
}

#[test]
fn a_workspace_file_switches_the_cache_off_and_never_on() {
    let on = base("cache: true");
    assert!(on.keeps_caches() && narrowed("cache: true", &on).unwrap().keeps_caches());
    assert!(!narrowed("cache: false", &on).unwrap().keeps_caches());
    let found = narrowed("cache: true", &Grants::default()).unwrap_err();
    assert_eq!((found[0].place.line, found[0].what.as_str()), (1, "keep the caches of build tools for later runs"));
}

#[test]
fn everything_that_narrows_holds() {
    let profile = base(
        "limits: {memory: 1G}\nnet: {allow: [a.example, b.example]}\nenv: {set: {A: x}, pass: [TZ]}\nfs: {ro: [/opt]}",
    );
    let text = "extends: [base]\nfs: {hide: [\"*.key\"], ro: [/opt]}\nlimits: {memory: 512M, timeout: 5s}\n\
                changes: review\nnet: {allow: [a.example], deny: [c.example]}\nenv: {drop: [A, TZ], set: {A: x}}\n\
                protect: [Makefile]";
    let out = narrowed(text, &profile).unwrap();
    assert_eq!(out.protect[0].value, "Makefile");
    assert_eq!(out.hide[0].value, "*.key");
    assert_eq!(out.limits[&LimitKind::Memory].value, 512 << 20);
    assert_eq!(out.limits[&LimitKind::Timeout].value, 5000);
    assert_eq!(out.changes.as_ref().unwrap().value, ChangesMode::Review);
    let names = |list: &[Sourced<String>]| list.iter().map(|rule| rule.value.clone()).collect::<Vec<_>>();
    assert_eq!(names(out.net.lists()[0]), ["a.example"]);
    assert_eq!(names(&out.net.allow), ["a.example", "b.example"], "the list counts on top");
    assert_eq!(out.net.deny.len(), 1);
    assert!(out.env_set.is_empty() && out.env_pass.is_empty());
    let read_only = narrowed("net: {methods: read_only}", &profile).unwrap();
    assert_eq!((read_only.net.effective_methods(), read_only.net.allow.len()), (Methods::ReadOnly, 2));
    assert_eq!(narrowed("net: {methods: any}", &profile).unwrap().net.effective_methods(), Methods::Any);
    assert_eq!(narrowed("net: none", &profile).unwrap().net.effective_mode(), NetMode::None);
    assert_eq!(out.limits[&LimitKind::Memory].from.to_string(), "nexus.yaml:3:18");
}

#[test]
fn one_program_is_less_than_all_and_another_one_is_not() {
    let base = base("net: {allow: [a.example, \"b.example@/usr/bin/curl\"]}");
    let out = narrowed("net: {allow: [\"a.example@/usr/bin/git\", \"b.example@/usr/bin/curl\"]}", &base).unwrap();
    assert_eq!(out.net.lists()[0].len(), 2);
    for wider in ["b.example", "b.example@/usr/bin/git", "c.example@/usr/bin/git", "a.example:80@/usr/bin/git"] {
        let refused = narrowed(&format!("net: {{allow: [\"{wider}\"]}}"), &base).unwrap_err();
        assert_eq!(refused[0].what, format!("reach {wider}"));
    }
}

#[test]
fn rules_are_compared_by_what_they_allow() {
    let profile = base(
        "net: {allow: [a.example, \"b.example:80,443\", \"*.c.example:1-100\", \"d.example:1\", \"d.example:2\", \"e.example:443/tcp\", \"f.example:443,8443/tls\"]}",
    );
    for within in [
        "a.example:443",
        "A.example.",
        "b.example:443",
        "b.example:443,80",
        "x.c.example:80",
        "*.x.c.example:7-9",
        "a.example:443@/usr/bin/curl",
        "d.example:1,2",
        "e.example:443/tcp",
        "e.example",
        // A demand for TLS takes away.
        "a.example:443/tls",
        "b.example:80/tls",
        "e.example:443/tls",
        "f.example:8443/tls",
        "f.example",
    ] {
        let kept =
            narrowed(&format!("net: {{allow: [\"{within}\"]}}"), &profile).unwrap_or_else(|_| panic!("{within}"));
        assert_eq!(kept.net.lists()[0].len(), 1, "only what the file names stays: {within}");
    }
    for wider in [
        "a.example:80",
        "b.example:80-443",
        "c.example:80",
        "*.example",
        "xc.example:80",
        "d.example:1-3",
        "a.example:443/tcp",
        "*.a.example",
        "f.example:8443",
        "f.example:443,8443",
        "f.example:8443/tcp",
    ] {
        assert!(narrowed(&format!("net: {{allow: [\"{wider}\"]}}"), &profile).is_err(), "{wider}");
    }
    assert!(narrowed("net: {allow: [x.example]}", &base("net: {allow: [\"x.example@/usr/bin/curl\"]}")).is_err());
}

#[test]
fn a_flag_without_network_drops_the_lists_of_the_file() {
    let mut none = base("net: none");
    let file = "net: {allow: [a.example], groups: [\"pkg:pip\"]}";
    assert!(narrowed(file, &none).is_err(), "a profile is asked for, a flag decides");
    none.net.mode = Some(Sourced::new(NetMode::None, Origin::Flag("--net none".to_owned())));
    let kept = narrowed(file, &none).unwrap();
    assert_eq!((kept.net.effective_mode(), kept.net.allow.len(), kept.net.groups.len()), (NetMode::None, 0, 0));
}

#[test]
fn a_flag_that_is_smaller_than_the_file_counts_and_refuses_nothing() {
    let mut profile = base("");
    let flag = |value| Sourced::new(value, Origin::Flag("--memory".to_owned()));
    profile.limits.insert(LimitKind::Memory, flag(1 << 20));
    assert_eq!(narrowed("limits: {memory: 2M}", &profile).unwrap().limits[&LimitKind::Memory].value, 1 << 20);
    assert_eq!(narrowed("limits: {memory: 512K}", &profile).unwrap().limits[&LimitKind::Memory].value, 512 << 10);
    profile.net.methods = Some(Sourced::new(Methods::ReadOnly, Origin::Flag("--net-methods".to_owned())));
    assert_eq!(narrowed("net: {methods: any}", &profile).unwrap().net.effective_methods(), Methods::ReadOnly);
    profile.changes = Some(Sourced::new(ChangesMode::Discard, Origin::Flag("--changes".to_owned())));
    assert_eq!(narrowed("changes: commit", &profile).unwrap().changes.unwrap().value, ChangesMode::Discard);
}

#[test]
fn without_a_mode_for_changes_the_file_may_not_commit() {
    assert!(narrowed("changes: commit", &base("")).is_err());
    assert_eq!(narrowed("changes: ask", &base("")).unwrap().changes.unwrap().value, ChangesMode::Ask);
}

/// Reports whether `inner` allows nothing that `outer` does not allow. Written apart from `narrow`, field by field.
fn within(inner: &Grants, outer: &Grants) -> bool {
    fn all_in<T: PartialEq>(inner: &[Sourced<T>], outer: &[Sourced<T>]) -> bool {
        inner.iter().all(|one| outer.iter().any(|other| other.value == one.value))
    }
    let limits =
        outer.limits.iter().all(|(kind, most)| inner.limits.get(kind).is_some_and(|has| has.value <= most.value));
    let changes = |grants: &Grants| grants.changes.as_ref().map_or(ChangesMode::Ask, |mode| mode.value);
    let (narrow, wide) = (inner.net.effective_mode(), outer.net.effective_mode());
    let [allow, groups, _] = inner.net.lists();
    let lists = wide == NetMode::Unrestricted
        || narrow == NetMode::None
        || (all_in(allow, &outer.net.allow) && all_in(groups, &outer.net.groups));
    let kept = inner.net.allow == outer.net.allow && inner.net.groups == outer.net.groups;
    all_in(&inner.toolchains, &outer.toolchains)
        && all_in(&inner.ro, &outer.ro)
        && all_in(&inner.rw, &outer.rw)
        && all_in(&inner.etc, &outer.etc)
        && all_in(&inner.path, &outer.path)
        && all_in(&outer.hide, &inner.hide)
        && all_in(&outer.net.deny, &inner.net.deny)
        && inner.env_pass.keys().all(|name| outer.env_pass.contains_key(name))
        && inner.env_set.iter().all(|(name, set)| outer.env_set.get(name).is_some_and(|has| has.value == set.value))
        && limits
        && changes(inner) >= changes(outer)
        && narrow <= wide
        && inner.net.effective_methods() >= outer.net.effective_methods()
        && lists
        && kept
}

const NOWHERE: Place = Place { line: 1, column: 1 };

fn some<T: Clone + std::fmt::Debug + 'static>(from: Vec<T>) -> impl Strategy<Value = Vec<At<T>>> {
    let most = from.len();
    proptest::sample::subsequence(from, 0..=most)
        .prop_shuffle()
        .prop_map(|list| list.into_iter().map(|one| (one, NOWHERE)).collect())
}

fn words(letters: &[&str]) -> impl Strategy<Value = Vec<At<String>>> + use<> {
    some(letters.iter().map(|text| (*text).to_owned()).collect())
}

fn rules() -> impl Strategy<Value = Vec<At<BindRule>>> {
    some(["/a", "/b", "/c"].map(|src| BindRule { src: src.to_owned(), dst: None }).to_vec())
}

fn documents() -> impl Strategy<Value = Document> {
    let modes = proptest::option::of(proptest::sample::select(vec![
        (NetMode::None, NOWHERE),
        (NetMode::Allowlist, NOWHERE),
        (NetMode::Unrestricted, NOWHERE),
    ]));
    let changes = proptest::option::of(proptest::sample::select(vec![
        (ChangesMode::Commit, NOWHERE),
        (ChangesMode::Ask, NOWHERE),
        (ChangesMode::Review, NOWHERE),
        (ChangesMode::Discard, NOWHERE),
    ]));
    let limits = some(LimitKind::ALL.to_vec()).prop_flat_map(|kinds| {
        let count = kinds.len();
        proptest::collection::vec(1u64..4, count).prop_map(move |values| {
            kinds.iter().zip(values).map(|((kind, _), value)| (*kind, (value, NOWHERE))).collect::<Vec<_>>()
        })
    });
    let sets = proptest::collection::vec((0usize..3, 0usize..2), 0..3).prop_map(|pairs| {
        let pair = |(name, value): (usize, usize)| {
            ((["A", "B", "C"][name].to_owned(), NOWHERE), (["x", "y"][value].to_owned(), NOWHERE))
        };
        pairs.into_iter().map(pair).collect::<Vec<_>>()
    });
    let fs = (rules(), rules(), words(&["k", "l", "m"]), words(&["apt", "maven"]), words(&["/p", "/q"]));
    let env = (words(&["A", "B", "C"]), sets, words(&["A", "B", "C"]));
    let methods =
        proptest::option::of(proptest::sample::select(vec![(Methods::Any, NOWHERE), (Methods::ReadOnly, NOWHERE)]));
    let net = (modes, methods, words(&["a", "b", "c"]), words(&["a", "b", "d"]), words(&["g", "h"]));
    let tools = some(vec![Toolchain::Python, Toolchain::Rust]);
    (fs, env, net, limits, changes, tools).prop_map(|(fs, env, net, limits, changes, toolchains)| {
        let mut document = Document { toolchains, limits, changes, ..Document::default() };
        (document.fs.ro, document.fs.rw, document.fs.hide, document.etc, document.path) = fs;
        (document.env.pass, document.env.set, document.env.drop) = env;
        (document.net.mode, document.net.methods, document.net.allow, document.net.deny, document.net.groups) = net;
        document
    })
}

/// Returns the parts of a document that can only take away.
fn harmless(mut document: Document) -> Document {
    document.toolchains.clear();
    (document.fs.ro, document.fs.rw) = Default::default();
    (document.etc, document.path) = Default::default();
    (document.env.pass, document.env.set) = Default::default();
    (document.net.allow, document.net.groups) = Default::default();
    document.net.methods = document.net.methods.map(|(_, place)| (Methods::ReadOnly, place));
    document.net.mode = document.net.mode.map(|(_, place)| (NetMode::None, place));
    document.limits = document.limits.into_iter().map(|(kind, (_, place))| (kind, (1, place))).collect();
    document.changes = document.changes.map(|(_, place)| (ChangesMode::Discard, place));
    document
}

/// Returns the part of `p` that the bits of `keep` select, and the settings of `w` that only take away.
fn part_of(p: Document, w: Document, keep: u64, mode: NetMode) -> Document {
    fn some_of<T>(list: Vec<T>, keep: u64) -> Vec<T> {
        list.into_iter().enumerate().filter(|(at, _)| keep >> at & 1 == 1).map(|(_, entry)| entry).collect()
    }
    let mut part = harmless(w);
    part.toolchains = some_of(p.toolchains, keep);
    part.fs.ro = some_of(p.fs.ro, keep >> 4);
    part.fs.rw = some_of(p.fs.rw, keep >> 8);
    part.etc = some_of(p.etc, keep >> 12);
    part.path = some_of(p.path, keep >> 16);
    part.env.pass = some_of(p.env.pass, keep >> 20);
    part.env.set = some_of(p.env.set.into_iter().collect(), keep >> 24).into_iter().collect();
    if mode != NetMode::None && keep >> 40 & 1 == 1 {
        part.net.mode = None;
        part.net.allow = some_of(p.net.allow, keep >> 28);
        part.net.groups = some_of(p.net.groups, keep >> 32);
    }
    part
}

#[test]
fn a_list_of_the_workspace_file_leaves_no_private_destination() {
    let private = Sourced::new("db.example:5432".to_owned(), Origin::Flag("--allow-private".to_owned()));
    for profile in ["net: {allow: [a.example, b.example]}", "net: unrestricted"] {
        let mut profile = base(profile);
        profile.net.allow_private.push(private.clone());
        for list in ["net: {allow: [a.example]}", "net: {mode: allowlist, allow: [a.example]}"] {
            let out = narrowed(list, &profile).unwrap().net;
            assert_eq!(out.lists().map(<[_]>::len), [1, 0, 0], "{list}");
        }
        assert_eq!(narrowed("net: {deny: [c.example]}", &profile).unwrap().net.lists()[2].len(), 1);
    }
}

#[test]
fn rules_of_a_closed_network_are_no_rules_to_choose_from() {
    let mut closed = base("net: {allow: [a.example], groups: [\"pkg:pip\"]}");
    closed.add(&load("later", parse("net: none").unwrap()));
    let found = narrowed("net: {allow: [a.example], groups: [\"pkg:pip\"]}", &closed).unwrap_err();
    let told: Vec<&str> = found.iter().map(|wider| wider.what.as_str()).collect();
    assert_eq!(told, ["reach a.example", "open the network (allowlist)", "reach the group pkg:pip"]);
    // Beside `mode: none` the list would open nothing, and would read as if it did.
    let found = narrowed("net: {mode: none, allow: [a.example]}", &closed).unwrap_err();
    assert_eq!(found.iter().map(|wider| wider.what.as_str()).collect::<Vec<_>>(), ["reach a.example"]);
}

#[test]
fn an_open_network_does_not_ask_the_package_clients_for_a_workspace_file() {
    let open = base("net: unrestricted");
    let found = narrowed("net: {groups: [\"pkg:npm\"]}", &open).unwrap_err();
    assert_eq!(found[0].what, "reach the group pkg:npm");
    let both = base("net: {mode: unrestricted, groups: [\"pkg:npm\"]}");
    let out = narrowed("net: {groups: [\"pkg:npm\"]}", &both).unwrap();
    assert_eq!((out.net.effective_mode(), out.net.lists()[1].len()), (NetMode::Allowlist, 1));
    assert!(narrowed("net: {allow: [a.example]}", &open).is_ok());
}

proptest! {
    #[test]
    fn what_a_workspace_file_leaves_is_never_more_than_the_profiles_allow(p in documents(), w in documents()) {
        let mut outer = Grants::default();
        outer.add(&load("p", p));
        if let Ok(inner) = narrow(&outer, &load("w", w.clone())) {
            prop_assert!(within(&inner, &outer), "{inner:?}\n{outer:?}");
        }
        // The other way round: what can only take away is never refused.
        let taken = narrow(&outer, &load("w", harmless(w)));
        prop_assert!(taken.as_ref().is_ok_and(|inner| within(inner, &outer)), "{taken:?}");
    }

    #[test]
    fn what_asks_for_a_part_of_what_is_there_is_never_refused(mut p in documents(), w in documents(), keep in any::<u64>()) {
        p.env.drop.clear();
        let mut outer = Grants::default();
        outer.add(&load("p", p.clone()));
        let mut part = part_of(p, w, keep, outer.net.effective_mode());
        // Of two values that `p` gives to one name the later one is there.
        part.env.set.retain(|((name, _), (value, _))| outer.env_set[name].value == *value);
        let inner = narrow(&outer, &load("w", part));
        prop_assert!(inner.as_ref().is_ok_and(|inner| within(inner, &outer)), "{inner:?}\n{outer:?}");
    }

    #[test]
    fn the_order_of_hidden_and_denied_names_is_irrelevant(p in documents(), q in documents()) {
        let names = |list: &[Sourced<String>]| {
            let mut names: Vec<_> = list.iter().map(|entry| entry.value.clone()).collect();
            names.sort();
            names
        };
        let both = |first: &Document, second: &Document| {
            let mut grants = Grants::default();
            grants.add(&load("p", first.clone()));
            grants.add(&load("q", second.clone()));
            (names(&grants.hide), names(&grants.net.deny))
        };
        prop_assert_eq!(both(&p, &q), both(&q, &p));
    }
}

#[test]
fn the_value_that_a_file_would_set_is_shown_in_one_line() {
    let told = |value: &str| {
        let found = narrowed(&format!("env: {{set: {{A: \"{value}\"}}}}"), &base("env: {}")).unwrap_err();
        found[0].what.clone()
    };
    assert_eq!(told("x\\ty\\u202E"), "set the variable A to \"x\\ty\\u{202e}\"");
    let long = told(&"y".repeat(500));
    assert!(long.ends_with("y\"…") && long.len() < 140, "{long}");
}
