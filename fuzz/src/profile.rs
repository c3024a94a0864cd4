//! Profiles: what was read writes itself, no value has what the checks keep out, and a refusal names a place in the text.

use nexus_policy::profile::{BindRule, Document, LimitKind, MAX_BYTES, format_limit, parse};
use serde_json::{Map, Value, json};

/// A document.
pub fn profile(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let document = match parse(text) {
        Ok(document) => document,
        Err(error) => {
            let lines = 2 + text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count();
            assert!(usize::try_from(error.place.line).is_ok_and(|line| line <= lines), "{error}");
            assert!(!error.message.is_empty());
            return;
        }
    };
    assert!(text.len() <= MAX_BYTES);
    checked(&document);
    let said = said(&document);
    let written = escaped(&said.to_string());
    // Written again it may be longer than what is read.
    if written.len() > MAX_BYTES {
        return;
    }
    match parse(&written) {
        Ok(again) => assert_eq!(self::said(&again), said, "{written}"),
        Err(error) => panic!("{written} does not read itself: {error}"),
    }
}

fn checked(document: &Document) {
    let sound = |path: &str| path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| part != "..");
    for (BindRule { src, dst }, _) in document.fs.ro.iter().chain(&document.fs.rw) {
        assert!(sound(src.strip_prefix('~').unwrap_or(src)) && src != "~", "{src:?}");
        assert!(dst.as_ref().is_none_or(|dst| sound(dst)), "{dst:?}");
    }
    for (path, _) in &document.path {
        assert!(sound(path.strip_prefix('~').unwrap_or(path)), "{path:?}");
    }
    for (name, _) in &document.extends {
        assert!(!name.contains(['/', '\0', ' ']) && name != "." && name != ".." && !name.is_empty(), "{name:?}");
    }
    for (name, _) in &document.etc {
        let parts: Vec<&str> = name.split('/').collect();
        assert!(!parts.iter().any(|part| ["", ".", "..", "private"].contains(part)), "{name:?}");
        assert!(!["shadow", "gshadow", "sudoers", "ssh"].contains(&parts[0]), "{name:?}");
    }
    let names = document.env.pass.iter().chain(&document.env.drop).chain(document.env.set.iter().map(|(name, _)| name));
    for (name, _) in names {
        assert!(!name.is_empty() && !name.contains(['=', '\0', ' ', '\n']), "{name:?}");
    }
    for (_, (value, _)) in &document.env.set {
        assert!(!value.contains('\0'), "{value:?}");
    }
    for (name, _) in &document.protect {
        assert!(!name.split('/').any(|part| part.trim_matches('*').is_empty() || part == ".."), "{name:?}");
        assert!(!name.starts_with('!'), "{name:?}");
    }
    for (kind, (value, _)) in &document.limits {
        assert!(*value > 0 || *kind == LimitKind::MaxOutput, "{kind:?}");
    }
}

/// All that it says, without places.
fn said(document: &Document) -> Value {
    let mut all = Map::new();
    let texts = |list: &[(String, _)]| json!(list.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>());
    let binds = |list: &[(BindRule, _)]| {
        let one = |(bind, _): &(BindRule, _)| match &bind.dst {
            Some(dst) => json!({"src": bind.src, "dst": dst}),
            None => json!(bind.src),
        };
        json!(list.iter().map(one).collect::<Vec<_>>())
    };
    if let Some((text, _)) = &document.description {
        all.insert("description".into(), json!(text));
    }
    all.insert("extends".into(), texts(&document.extends));
    all.insert("toolchains".into(), json!(document.toolchains.iter().map(|(one, _)| one.word()).collect::<Vec<_>>()));
    let fs = &document.fs;
    all.insert("fs".into(), json!({"ro": binds(&fs.ro), "rw": binds(&fs.rw), "hide": texts(&fs.hide)}));
    all.insert("etc".into(), texts(&document.etc));
    let set: Map<_, _> = document.env.set.iter().map(|((name, _), (value, _))| (name.clone(), json!(value))).collect();
    assert_eq!(set.len(), document.env.set.len(), "a variable is set twice");
    let env = &document.env;
    all.insert("env".into(), json!({"pass": texts(&env.pass), "drop": texts(&env.drop), "set": set}));
    all.insert("path".into(), texts(&document.path));
    let part = &document.net;
    let mut net = json!({"allow": texts(&part.allow), "deny": texts(&part.deny), "groups": texts(&part.groups)});
    if let Some((mode, _)) = part.mode {
        net["mode"] = json!(mode.word());
    }
    if let Some((methods, _)) = part.methods {
        net["methods"] = json!(methods.word());
    }
    all.insert("net".into(), net);
    let limits: Map<_, _> = document
        .limits
        .iter()
        .map(|(kind, (value, _))| (kind.key().to_owned(), json!(format_limit(*kind, *value))))
        .collect();
    assert_eq!(limits.len(), document.limits.len(), "a limit is set twice");
    all.insert("limits".into(), Value::Object(limits));
    all.insert("protect".into(), texts(&document.protect));
    if let Some((changes, _)) = document.changes {
        all.insert("changes".into(), json!(changes.word()));
    }
    Value::Object(all)
}

/// YAML reads JSON, but not every character as it stands; all but printable ASCII is written as a number.
fn escaped(json: &str) -> String {
    json.chars()
        .map(|c| if (' '..='~').contains(&c) { c.to_string() } else { format!("\\U{:08x}", u32::from(c)) })
        .collect()
}
