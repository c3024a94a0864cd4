//! Circles of modules: files of one crate that need each other.
//!
//! ```text
//!  sources of a crate ──▶ module of each file ──▶ paths in its code ──▶ edges ──▶ modules that reach themselves
//! ```
//! A path counts wherever it stands: in a `use`, in a re-export, in an expression. The root of a crate (`lib.rs`,
//! `main.rs`) does not count: it names every module, and re-exports for others are its work. Tests do not count either.
//! All of this is pure; `check-deps` reads the files.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust_text::code_only;

/// A module by its path from the root of the crate; the root is empty.
pub type Module = Vec<String>;

/// One source file: the path below `src`, and its text.
pub struct File<'a> {
    /// For example `inside/mod.rs`.
    pub path: &'a str,
    /// Text of the source.
    pub text: &'a str,
}

/// Returns the circles of a crate, each as the modules in it, in order.
pub fn find(files: &[File<'_>]) -> Vec<Vec<String>> {
    let code = code_of(files);
    in_circles(&edges(&code))
}

/// Returns the circles between the directories of a crate: each directory with a `mod.rs` counts as one module, with all
/// files that no deeper directory of this kind has.
pub fn find_directories(files: &[File<'_>]) -> Vec<Vec<String>> {
    let code = code_of(files);
    let directories: BTreeSet<Module> =
        files.iter().filter(|file| file.path.ends_with("/mod.rs")).map(|file| module(file.path)).collect();
    let directory = |of: &Module| (0..=of.len()).rev().find_map(|len| directories.get(&of[..len])).cloned();
    let mut between: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, to) in edges(&code) {
        let Some(from) = directory(from) else { continue };
        let others = to.into_iter().filter_map(directory).filter(|to| *to != from);
        between.entry(from.clone()).or_default().extend(others);
    }
    let edges = between.iter().map(|(from, to)| (from, to.iter().collect())).collect();
    in_circles(&edges)
}

type Edges<'a> = BTreeMap<&'a Module, BTreeSet<&'a Module>>;

/// The code of each module, without its tests.
fn code_of(files: &[File<'_>]) -> BTreeMap<Module, String> {
    let shipped = files.iter().filter(|file| !is_test(file.path));
    shipped.map(|file| (module(file.path), without_tests(&code_only(file.text)))).collect()
}

fn edges(code: &BTreeMap<Module, String>) -> Edges<'_> {
    let mut edges = Edges::new();
    for (from, text) in code.iter().filter(|(from, _)| !from.is_empty()) {
        for path in paths(text) {
            let to = target(code, from, &path).filter(|to| !to.is_empty() && *to != from);
            edges.entry(from).or_default().extend(to);
        }
    }
    edges
}

fn in_circles(edges: &Edges<'_>) -> Vec<Vec<String>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = edges.keys().map(|from| (*from, reached(edges, from))).collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for (from, to) in &reach {
        if !to.contains(from) || seen.contains(from) {
            continue;
        }
        let circle: Vec<_> =
            to.iter().copied().filter(|other| reach.get(other).is_some_and(|back| back.contains(from))).collect();
        seen.extend(circle.iter().copied());
        circles.push(circle.iter().map(|module| module.join("::")).collect());
    }
    circles
}

fn reached<'a>(edges: &Edges<'a>, from: &'a Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in edges.get(module).into_iter().flatten() {
            if found.insert(*next) {
                open.push(next);
            }
        }
    }
    found
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
}

fn module(path: &str) -> Module {
    let mut parts: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib" || last == "main") {
        parts.pop();
    }
    parts
}

/// Takes each `#[cfg(test)] mod name { … }` out.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = &rest[at + "#[cfg(test)]".len()..];
        let item = rest.find(['{', ';']).unwrap_or(rest.len());
        let end = if rest[item..].starts_with('{') { item + block(&rest[item..]) } else { (item + 1).min(rest.len()) };
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

/// The length of a block that begins with a brace.
fn block(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, letter) in code.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Every path of the code, as its parts. A group (`a::{b, c::d}`) gives one path for each of its members.
fn paths(code: &str) -> Vec<Vec<String>> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let starts = is_name(&tokens[at])
            && (at == 0 || tokens[at - 1] != "::")
            && tokens.get(at + 1).is_some_and(|next| next == "::")
            && !is_visibility(&tokens[..at]);
        if starts { at = follow(&tokens, at, &[], &mut found) } else { at += 1 }
    }
    found
}

/// Reports whether a path after `before` says who sees an item (`pub(in crate::room)`), which needs nothing of it.
fn is_visibility(before: &[String]) -> bool {
    before.ends_with(&["pub".to_owned(), "(".to_owned(), "in".to_owned()])
}

/// Reads one path from `at` on, after the parts of the groups around it. Returns where it ends.
fn follow(tokens: &[String], mut at: usize, before: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut parts = before.to_vec();
    while at < tokens.len() {
        if is_name(&tokens[at]) {
            parts.push(tokens[at].clone());
            at += 1;
        }
        if tokens.get(at).is_none_or(|next| next != "::") {
            break;
        }
        at += 1;
        if tokens.get(at).is_some_and(|next| next == "{") {
            at += 1;
            while tokens.get(at).is_some_and(|next| next != "}") {
                let next = follow(tokens, at, &parts, found);
                at = next.max(at + 1);
                // A new name (`as x`) and the comma after a member.
                while tokens.get(at).is_some_and(|next| next != "," && next != "}") {
                    at += 1;
                }
                at += usize::from(tokens.get(at).is_some_and(|next| next == ","));
            }
            return at + 1;
        }
        if !tokens.get(at).is_some_and(|next| is_name(next)) {
            break;
        }
    }
    found.push(parts);
    at
}

fn tokens(code: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut letters = code.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter.is_alphabetic() || letter == '_' {
            let mut name = String::from(letter);
            while let Some(next) = letters.next_if(|next| next.is_alphanumeric() || *next == '_') {
                name.push(next);
            }
            found.push(name);
        } else if letter == ':' && letters.next_if_eq(&':').is_some() {
            found.push("::".to_owned());
        } else if !letter.is_whitespace() {
            found.push(letter.to_string());
        }
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// The module of this crate that a path in module `from` leads to; `None` where it leads to another crate or an item.
fn target<'a>(modules: &'a BTreeMap<Module, String>, from: &Module, path: &[String]) -> Option<&'a Module> {
    let (mut at, mut rest): (Module, &[String]) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (from.clone(), &path[1..]),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            (from[..from.len().saturating_sub(ups)].to_vec(), &path[ups..])
        }
        first => {
            let mut child = from.clone();
            child.push(first.to_owned());
            modules.get_key_value(&child)?;
            (child, &path[1..])
        }
    };
    while let Some((next, after)) = rest.split_first() {
        at.push(next.clone());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
        rest = after;
    }
    modules.get_key_value(&at).map(|(module, _)| module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        find(&files.iter().map(|(path, text)| File { path, text }).collect::<Vec<_>>())
    }

    #[test]
    fn two_files_that_need_each_other_are_a_circle() {
        for (a, b) in [
            ("use crate::b::X;", "fn f() { crate::a::g() }"),
            ("use crate::{b::{X, Y as Z}, c};", "pub use super::a::g;"),
            ("use crate::b;", "type A = Vec<crate::a::A>;"),
        ] {
            assert_eq!(
                circles(&[("lib.rs", "mod a; mod b; mod c;"), ("a.rs", a), ("b.rs", b), ("c.rs", "")]),
                [["a", "b"]]
            );
        }
    }

    #[test]
    fn a_room_and_a_file_in_it_are_a_circle_when_both_name_the_other() {
        let file = ("room/file.rs", "use super::Thing;");
        assert_eq!(circles(&[("room/mod.rs", "mod file; pub use file::X;"), file]), [["room", "room::file"]]);
        assert_eq!(circles(&[("room/mod.rs", "mod file; pub struct Thing;"), file]), Vec::<Vec<String>>::new());
    }

    #[test]
    fn two_directories_that_need_each_other_are_a_circle_also_where_no_two_files_do() {
        let directories = |files: &[(&str, &str)]| {
            find_directories(&files.iter().map(|(path, text)| File { path, text }).collect::<Vec<_>>())
        };
        let back = ("b/two.rs", "use crate::a::three;");
        let rest = [("a/mod.rs", ""), ("b/mod.rs", ""), ("a/one.rs", "use crate::b::two::X;"), ("a/three.rs", "")];
        assert_eq!(directories(&[&rest[..], &[back]].concat()), [["a", "b"]]);
        assert_eq!(directories(&[&rest[..], &[("b/two.rs", "")]].concat()), Vec::<Vec<String>>::new());
        assert_eq!(circles(&[&rest[..], &[back]].concat()), Vec::<Vec<String>>::new());
        // A file belongs to the next directory above it, and a directory in it is another one.
        let inner = [("a/c/mod.rs", ""), ("a/c/x.rs", "use crate::a::one;"), ("a/one.rs", "use crate::a::c::x;")];
        assert_eq!(directories(&[&[("a/mod.rs", "")], &inner[..]].concat()), [["a", "a::c"]]);
    }

    #[test]
    fn the_visibility_of_an_item_is_no_need() {
        let files =
            |text| circles(&[("room/mod.rs", "pub use self::a::X;"), ("room/a.rs", text), ("lib.rs", "mod room;")]);
        assert_eq!(files("pub(in crate::room) fn f() {}"), Vec::<Vec<String>>::new());
        assert_eq!(files("pub(in crate::room) fn f() { crate::room::g() }"), [["room", "room::a"]]);
    }

    #[test]
    fn a_longer_way_round_is_found_and_what_hangs_on_it_is_not_in_it() {
        let files = [
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::c;"),
            ("c.rs", "use crate::a;"),
            ("d.rs", "use crate::a;"),
        ];
        assert_eq!(circles(&files), [["a", "b", "c"]]);
    }

    #[test]
    fn comments_strings_tests_and_the_root_make_no_circle() {
        let b = "// crate::a\nconst X: &str = \"crate::a\";\n#[cfg(test)]\nmod tests { use crate::a; fn f() {} }";
        let files = [("lib.rs", "mod a; pub use b::B;"), ("a.rs", "use crate::b; use crate::B;"), ("b.rs", b)];
        assert_eq!(circles(&files), Vec::<Vec<String>>::new());
        assert_eq!(
            circles(&[("a.rs", "use crate::b;"), ("b.rs", ""), ("b_tests.rs", "use crate::a;")]),
            Vec::<Vec<String>>::new()
        );
    }
}
