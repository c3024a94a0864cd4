//! From the tree to a [`Document`]: known keys, right kinds, sound values. Every refusal names the place and says what
//! to write instead; an unknown key is never passed over, since a misspelt `hide` would hide nothing.

use super::document::{At, BindRule, Document, EnvPart, FsPart, NetPart, Word};
use super::limits::LimitKind;
use super::origin::Place;
use super::suggest::closest;
use super::tree::{DocumentError, Node, Value, read};

/// Reads a document.
pub fn parse(text: &str) -> Result<Document, DocumentError> {
    let mut document = Document::default();
    let tree = read(text)?;
    const KEYS: &[&str] = &[
        "description",
        "extends",
        "toolchains",
        "fs",
        "etc",
        "env",
        "path",
        "net",
        "limits",
        "changes",
        "protect",
        "debug",
        "auto",
        "cache",
    ];
    for (place, key, node) in entries(tree, "a profile")? {
        match known(place, &key, KEYS, "")? {
            "description" => document.description = Some(text_of(node, "description")?),
            "extends" => document.extends = list(node, "extends", |node| checked(node, "a profile", profile_name))?,
            "toolchains" => document.toolchains = list(node, "toolchains", word)?,
            "fs" => document.fs = fs(node)?,
            "etc" => document.etc = list(node, "etc", |node| checked(node, "a name below /etc", etc_name))?,
            "env" => document.env = env(node)?,
            "path" => document.path = list(node, "path", |node| checked(node, "a directory", host_path))?,
            "net" => document.net = net(node)?,
            "limits" => document.limits = limits(node)?,
            "debug" => document.debug = Some(yes_or_no(&node, "debug")?),
            "auto" => document.auto = Some(yes_or_no(&node, "auto")?),
            "cache" => document.cache = Some(yes_or_no(&node, "cache")?),
            "protect" => document.protect = list(node, "protect", |node| checked(node, "a name", protected_name))?,
            _ => document.changes = Some(word(node)?),
        }
    }
    Ok(document)
}

fn fs(node: Node) -> Result<FsPart, DocumentError> {
    let mut part = FsPart::default();
    for (place, key, node) in entries(node, "fs")? {
        match known(place, &key, &["ro", "rw", "hide"], "fs.")? {
            "ro" => part.ro = list(node, "fs.ro", bind)?,
            "rw" => part.rw = list(node, "fs.rw", bind)?,
            _ => part.hide = list(node, "fs.hide", |node| checked(node, "a pattern", filled))?,
        }
    }
    Ok(part)
}

fn bind(node: Node) -> Result<At<BindRule>, DocumentError> {
    let place = node.place;
    if let Value::Text(_) = node.value {
        let (src, _) = checked(node, "a path", host_path)?;
        return Ok((BindRule { src, dst: None }, place));
    }
    let (mut src, mut dst) = (None, None);
    for (place, key, node) in entries(node, "a path, or {src: PATH, dst: PATH}")? {
        match known(place, &key, &["src", "dst"], "")? {
            "src" => src = Some(checked(node, "src", host_path)?.0),
            _ => dst = Some(checked(node, "dst", inner_path)?.0),
        }
    }
    match src {
        Some(src) => Ok((BindRule { src, dst }, place)),
        None => Err(DocumentError::at(place, "src is missing: write {src: PATH, dst: PATH}")),
    }
}

fn env(node: Node) -> Result<EnvPart, DocumentError> {
    let mut part = EnvPart::default();
    for (place, key, node) in entries(node, "env")? {
        match known(place, &key, &["pass", "set", "drop"], "env.")? {
            "pass" => part.pass = list(node, "env.pass", |node| checked(node, "a variable", variable))?,
            "drop" => part.drop = list(node, "env.drop", |node| checked(node, "a variable", variable))?,
            _ => {
                for (place, name, node) in entries(node, "env.set")? {
                    variable(&name).map_err(|message| DocumentError::at(place, message))?;
                    part.set.push(((name, place), checked(node, "a value", no_nul)?));
                }
            }
        }
    }
    Ok(part)
}

fn net(node: Node) -> Result<NetPart, DocumentError> {
    let mut part = NetPart::default();
    if let Value::Text(_) = node.value {
        part.mode = Some(word(node)?);
        return Ok(part);
    }
    for (place, key, node) in entries(node, "net")? {
        match known(place, &key, &["mode", "allow", "deny", "groups", "methods"], "net.")? {
            "mode" => part.mode = Some(word(node)?),
            "allow" => part.allow = list(node, "net.allow", |node| checked(node, "a destination", filled))?,
            "deny" => part.deny = list(node, "net.deny", |node| checked(node, "a destination", filled))?,
            "methods" => part.methods = Some(word(node)?),
            _ => part.groups = list(node, "net.groups", |node| checked(node, "a group", filled))?,
        }
    }
    Ok(part)
}

pub(crate) fn limits(node: Node) -> Result<Vec<(LimitKind, At<u64>)>, DocumentError> {
    let keys: Vec<&str> = LimitKind::ALL.into_iter().map(LimitKind::key).collect();
    let mut found = Vec::new();
    for (place, key, node) in entries(node, "limits")? {
        let key = known(place, &key, &keys, "limits.")?;
        let Some(kind) = LimitKind::by_key(key) else { continue };
        let at = node.place;
        let (Value::Text(text) | Value::Number(text)) = &node.value else {
            return Err(wrong(&node, key, "a number with its unit"));
        };
        found.push((kind, (kind.read(text).map_err(|message| DocumentError::at(at, message))?, at)));
    }
    Ok(found)
}

pub(crate) fn wrong(node: &Node, what: &str, wanted: &str) -> DocumentError {
    DocumentError::at(node.place, format!("{what} must be {wanted}, and here stands {}", node.value.kind()))
}

pub(crate) fn entries(node: Node, what: &str) -> Result<Vec<(Place, String, Node)>, DocumentError> {
    match node.value {
        Value::Map(entries) => Ok(entries),
        Value::Null => Ok(Vec::new()),
        Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => {
            Err(wrong(&node, what, "keys with values"))
        }
    }
}

pub(crate) fn known<'k>(place: Place, key: &str, keys: &[&'k str], prefix: &str) -> Result<&'k str, DocumentError> {
    if let Some(known) = keys.iter().find(|known| **known == key) {
        return Ok(known);
    }
    let advice = match closest(key, keys.iter().copied()) {
        Some(meant) => format!("did you mean {prefix}{meant}?"),
        None => format!("the keys here are {}", keys.join(", ")),
    };
    Err(DocumentError::at(place, format!("unknown key {prefix}{key}: {advice}")))
}

pub(crate) fn list<T>(
    node: Node,
    what: &str,
    item: impl Fn(Node) -> Result<At<T>, DocumentError>,
) -> Result<Vec<At<T>>, DocumentError> {
    match node.value {
        Value::List(nodes) => nodes.into_iter().map(item).collect(),
        Value::Null => Ok(Vec::new()),
        Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Map(_) => Err(wrong(&node, what, "a list")),
    }
}

pub(crate) fn text_of(node: Node, what: &str) -> Result<At<String>, DocumentError> {
    match node.value {
        Value::Text(text) => Ok((text, node.place)),
        Value::Number(_) | Value::Bool(_) => Err(wrong(&node, what, "text: put it in quotes")),
        Value::Null | Value::List(_) | Value::Map(_) => Err(wrong(&node, what, "text")),
    }
}

fn yes_or_no(node: &Node, what: &str) -> Result<At<bool>, DocumentError> {
    match node.value {
        Value::Bool(value) => Ok((value, node.place)),
        Value::Null | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            Err(wrong(node, what, "true or false"))
        }
    }
}

pub(crate) fn checked(
    node: Node,
    what: &str,
    check: fn(&str) -> Result<(), String>,
) -> Result<At<String>, DocumentError> {
    let (text, place) = text_of(node, what)?;
    check(&text).map_err(|message| DocumentError::at(place, message))?;
    Ok((text, place))
}

pub(crate) fn word<T: Word>(node: Node) -> Result<At<T>, DocumentError> {
    let place = node.place;
    // YAML 1.1 readers take a bare `none` for text too, but some writers leave `null` or `~` there.
    let (text, _) = text_of(node, T::WHAT)?;
    if let Some((value, _)) = T::WORDS.iter().find(|(_, word)| *word == text) {
        return Ok((*value, place));
    }
    let words: Vec<&str> = T::WORDS.iter().map(|(_, word)| *word).collect();
    let advice = match closest(&text, words.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("write {}", words.join(", ")),
    };
    Err(DocumentError::at(place, format!("{text:?} is not {}: {advice}", T::WHAT)))
}

pub(crate) fn no_nul(text: &str) -> Result<(), String> {
    if text.contains('\0') { Err("there is a NUL byte in it: take it out".to_owned()) } else { Ok(()) }
}

pub(crate) fn filled(text: &str) -> Result<(), String> {
    if text.trim().is_empty() { Err("it is empty: take it out".to_owned()) } else { no_nul(text) }
}

fn protected_name(text: &str) -> Result<(), String> {
    nexus_model::name_pattern::check(text).map_err(|error| error.to_string())
}

/// Checks a profile's name, which is also the name of its file.
pub(super) fn profile_name(text: &str) -> Result<(), String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > 64 || text.starts_with('.') || !text.chars().all(sound) {
        return Err(format!("{text:?} cannot be the name of a profile: write letters, digits, -, _ and ."));
    }
    Ok(())
}

pub(crate) fn variable(text: &str) -> Result<(), String> {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    if text.chars().next().is_some_and(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit()) {
        return Ok(());
    }
    Err(format!("{text:?} cannot be the name of a variable: write letters, digits and _"))
}

fn host_path(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix('~').unwrap_or(text);
    if rest != text && rest.is_empty() {
        return Err("~ is the whole home directory with all its keys: name a directory in it".to_owned());
    }
    plain_path(text, rest)
}

fn inner_path(text: &str) -> Result<(), String> {
    plain_path(text, text)
}

fn plain_path(text: &str, rest: &str) -> Result<(), String> {
    no_nul(text)?;
    if !rest.starts_with('/') {
        return Err(format!("{text:?} must begin with / or ~/"));
    }
    if rest.split('/').any(|part| part == "..") {
        return Err(format!("{text:?} has .. in it: write the whole path"));
    }
    Ok(())
}

/// Refuses names that are not under `/etc` or that hold keys or passwords, in every document.
fn etc_name(text: &str) -> Result<(), String> {
    const NEVER: &[&str] = &["shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "ssh", "nexus"];
    filled(text)?;
    let parts: Vec<&str> = text.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err(format!("{text:?} must be a name below /etc, for example apt"));
    }
    if NEVER.contains(&parts[0]) || text == "ssl" || parts.contains(&"private") {
        return Err(format!("/etc/{text} holds keys or passwords and is never shown"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::document::{ChangesMode, NetMode, Toolchain};
    use super::*;
    use crate::net::Methods;

    const EXAMPLE: &str = r#"
extends: [default, python]
toolchains: [rust]
fs:
  ro: ["~/datasets", {src: /opt/models, dst: /models}]
  rw: []
  hide: [".env*"]
env:
  pass: [CI]
  set: {PIP_NO_INPUT: "1"}
  drop: [TZ]
etc: [apt]
path: ["~/tools/bin"]
net: {mode: allowlist, allow: ["github.com:443", "*.example.com:443"], groups: ["pkg:pip"], methods: read_only}
limits: {memory: 2G, pids: 512, disk: 4G, timeout: 10m, cpus: 1.5}
changes: review
protect: [Makefile, "deploy/*.sh"]
debug: true
cache: true
"#;

    #[test]
    fn every_key_is_read() {
        let document = parse(EXAMPLE).unwrap();
        let text = |list: &[At<String>]| list.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>();
        assert_eq!(text(&document.extends), ["default", "python"]);
        assert_eq!(document.toolchains[0].0, Toolchain::Rust);
        assert_eq!(document.fs.ro[1].0, BindRule { src: "/opt/models".into(), dst: Some("/models".into()) });
        assert_eq!(document.fs.ro[1].1.line, 5);
        assert_eq!(text(&document.fs.hide), [".env*"]);
        assert_eq!(document.env.set[0].1.0, "1");
        assert_eq!(text(&document.env.drop), ["TZ"]);
        assert_eq!(document.net.mode.unwrap().0, NetMode::Allowlist);
        assert_eq!(text(&document.net.groups), ["pkg:pip"]);
        assert_eq!(document.net.methods.unwrap().0, Methods::ReadOnly);
        let limits: Vec<_> = document.limits.iter().map(|(kind, (value, _))| (*kind, *value)).collect();
        assert_eq!(
            limits,
            [
                (LimitKind::Memory, 2 << 30),
                (LimitKind::Pids, 512),
                (LimitKind::Disk, 4 << 30),
                (LimitKind::Timeout, 600_000),
                (LimitKind::Cpus, 1500)
            ]
        );
        assert_eq!(document.changes.unwrap().0, ChangesMode::Review);
        assert_eq!(text(&document.protect), ["Makefile", "deploy/*.sh"]);
        assert!(document.debug.unwrap().0 && document.cache.unwrap().0);
        assert_eq!(parse("").unwrap(), Document::default());
        assert_eq!(parse("net: none\n").unwrap().net.mode.unwrap().0, NetMode::None);
    }

    #[test]
    fn a_mistake_is_named_with_its_place_and_what_to_write() {
        for (text, place, said) in [
            ("extend: []\n", "1:1", "did you mean extends?"),
            ("fs:\n  hid: []\n", "2:3", "did you mean fs.hide?"),
            ("network: none\n", "1:1", "the keys here are"),
            ("limits: {memory: 2GB}\n", "1:18", "is not a size"),
            ("limits: {memory: [1]}\n", "1:18", "here stands a list"),
            ("env: {set: {A: 1}}\n", "1:16", "put it in quotes"),
            ("env: {pass: [\"A=B\"]}\n", "1:14", "cannot be the name of a variable"),
            ("fs: {ro: [data]}\n", "1:11", "must begin with / or ~/"),
            ("fs: {ro: [\"~\"]}\n", "1:11", "the whole home directory"),
            ("fs: {ro: [/a/../b]}\n", "1:11", "has .. in it"),
            ("fs: {ro: [{dst: /a}]}\n", "1:11", "src is missing"),
            ("fs: {ro: /a}\n", "1:10", "must be a list"),
            ("net: {methods: read-only}\n", "1:16", "did you mean read_only?"),
            ("changes: reviw\n", "1:10", "did you mean review?"),
            ("protect: [\"!.envrc\"]\n", "1:11", "names can only be added"),
            ("protect: [\"*\"]\n", "1:11", "matches everything"),
            ("protect: [\"deploy/\"]\n", "1:11", "without / at either end"),
            ("protect: Makefile\n", "1:10", "must be a list"),
            ("debug: \"yes\"\n", "1:8", "must be true or false"),
            ("cache: 1\n", "1:8", "must be true or false"),
            ("toolchains: [cobol]\n", "1:14", "write python, node"),
            ("etc: [shadow]\n", "1:7", "never shown"),
            ("etc: [../home]\n", "1:7", "below /etc"),
            ("extends: [\"../x\"]\n", "1:11", "cannot be the name of a profile"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.place.to_string(), place, "{text:?}: {error}");
            assert!(error.message.contains(said), "{text:?}: {error}");
        }
    }
}
