use std::collections::BTreeMap;
use std::path::Path;

use crate::words::{Kind, differences, findings};
use crate::words_allowed::Counts;

fn found(source: &str) -> Vec<(Kind, usize, String)> {
    let all = findings(Path::new("src/a.rs"), source);
    all.into_iter().map(|finding| (finding.kind, finding.line, finding.text)).collect()
}

fn kinds(source: &str) -> Vec<Kind> {
    found(source).into_iter().map(|(kind, _, _)| kind).collect()
}

#[test]
fn a_doc_comment_that_asks_a_question_is_a_riddle() {
    for doc in
        ["/// What it is for the reader.", "//! Whether it holds, if it does.", "    /// How many\n    /// there are."]
    {
        assert_eq!(kinds(doc), [Kind::Riddle], "{doc}");
    }
    assert!(
        found("/// Returns what it is.\nfn f() {}\n// What this line does.\n//// What a rule is made of.").is_empty()
    );
}

#[test]
fn a_function_named_like_a_question_returns_an_answer() {
    for code in [
        "pub fn is_last(&self) {}",
        "fn has_read(\n    &mut self,\n    count: usize,\n) {\n}",
        "fn may_end(&mut self) -> io::Result<()> {}",
        "fn was_lost(&self);",
    ] {
        assert_eq!(kinds(code), [Kind::Name], "{code}");
    }
    for code in [
        "fn is_last(&self) -> bool { self.note(); true }",
        "fn has_room(&mut self, wanted: fn(u8)) -> Result<bool, ()> {}",
        "fn issue(&self) {}",
        "fn is_magic(\n    bytes: [u8; 4],\n) -> bool {",
        "fn may_commit(&self) -> Result<(), String> {}",
        "#[cfg(test)]\nmod tests {\n    fn is_whole(scene: &Scene) {}\n}",
    ] {
        assert!(found(code).is_empty(), "{code}");
    }
}

#[test]
fn a_doc_comment_of_two_words_is_a_riddle() {
    assert_eq!(
        kinds("/// Why.\na: u8,\n/// The call.\nb: u8,\n/// Number of calls.\nc: u8,"),
        [Kind::Riddle, Kind::Riddle]
    );
    assert!(found("/// Number of\n/// calls.").is_empty(), "a comment of two lines is read as one");
}

#[test]
fn avoided_words_of_doc_comments_are_found_with_their_line() {
    let folder = (Kind::Comment, 2, "folder → directory".to_owned());
    assert_eq!(found("\n/// Opens a Folder, nothing else."), [folder]);
    assert_eq!(kinds("/// A link is no\n/// directory."), [Kind::Comment], "across lines");
    assert!(found("/// The user is no longer there, there is no user, and `folder` is a key.").is_empty());
    assert!(found("/// Draws:\n/// ```text\n/// folder\n/// ```\n/// and ends.").is_empty());
}

#[test]
fn other_comments_have_words_and_no_riddles() {
    assert_eq!(kinds("let a = 1; // The folder\n// Nobody\n/* told */"), [Kind::Comment; 3]);
    assert_eq!(kinds("// A link is no\n// directory."), [Kind::Comment], "across lines");
    assert!(found("// Why.\n// What `folder` holds.").is_empty());
}

#[test]
fn a_variant_may_have_a_name_that_a_type_may_not() {
    for code in ["enum Ask {", "pub struct Ask;", "use a::B as Ask;"] {
        assert_eq!(kinds(code), [Kind::Name], "{code}");
    }
    assert!(found("match mode { Mode::Ask => 1 }\n    Ask,\nlet b = v.spare_capacity_mut();").is_empty());
}

#[test]
fn messages_count_and_keys_do_not() {
    assert_eq!(kinds("let text = \"the folder is missing\";"), [Kind::Message]);
    assert_eq!(kinds("let text = r#\"no folder\"#;"), [Kind::Message]);
    assert!(found("let key = \"folder\"; let path = \"/folder\";").is_empty());
}

#[test]
fn avoided_parts_of_names_are_found() {
    for name in ["open_folder", "FolderName", "MOST_BYTES", "Order", "undertaker"] {
        assert_eq!(kinds(&format!("let {name} = 1;")), [Kind::Name], "{name}");
    }
    for name in ["almost_all", "at_most", "Ordering", "reorder", "Opened"] {
        assert!(found(&format!("let {name} = 1;")).is_empty(), "{name}");
    }
    let over = findings(Path::new("src/session/over.rs"), "");
    assert_eq!(over.len(), 1, "the name of a file is a name");
}

#[test]
fn messages_and_names_within_tests_do_not_count() {
    let code = "fn folder() { g(\"a folder\") }";
    assert_eq!(kinds(code).len(), 2);
    assert!(found(&format!("mod tests {{\n{code}\n}}")).is_empty());
    assert!(findings(Path::new("tests/a.rs"), code).is_empty());
    assert!(findings(Path::new("src/a_tests.rs"), code).is_empty());
    assert_eq!(findings(Path::new("tests/a.rs"), "/// Opens the folder.").len(), 1, "their doc comments do");
    for attributes in ["#[test]", "#[tokio::test]\n#[ignore = \"slow\"]", "#[test]\n#[cfg(unix)]"] {
        let code = format!("{attributes}\nasync fn a_folder_is_told(folder: u8) {{\nfn folder() {{}}\n}}");
        assert_eq!(findings(Path::new("tests/a.rs"), &code).len(), 1, "the name of the test does: {code}");
        assert_eq!(findings(Path::new("src/a.rs"), &format!("mod tests {{\n{code}\n}}")).len(), 1);
    }
}

#[test]
fn a_number_goes_down_and_never_up() {
    let counts = |riddles| Counts { riddles, ..Counts::default() };
    let differ = |found| differences(&BTreeMap::from([("crates/a", counts(found))]), &[("crates/a", counts(2))]);
    assert!(differ(2).is_empty());
    assert_eq!(differ(3), ["crates/a: 3 riddles, and at most 2 are allowed"]);
    assert_eq!(differ(1), ["crates/a: 1 riddles: lower the number 2 to 1"]);
    let new = differences(&BTreeMap::from([("crates/new", counts(1))]), &[("crates/a", counts(2))]);
    assert_eq!(new, ["crates/new: 1 riddles, and at most 0 are allowed"], "a new crate begins with zeros");
}
