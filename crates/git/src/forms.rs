//! Reads refs, `packed-refs` and reflogs as strictly as git writes them. Pure.

use std::collections::HashSet;

/// The start of a ref that stands for another one.
pub const SYMBOLIC: &[u8] = b"ref: ";
/// The first line of `packed-refs`, up to what git knows of the lines.
const HEADER: &[u8] = b"# pack-refs with:";
/// Bytes that no ref has in its name (git-check-ref-format(1)).
const ODD: &[u8] = b" ~^:?*[\\\x7f";

/// The value of a ref.
#[derive(Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// It stands for another ref.
    Symbolic,
    /// An object id.
    Id(&'a [u8]),
}

/// Returns the value of the file of one ref; `None` for a text that git does not write. `lengths` are the bytes of an
/// object id. Some programs leave the last line end out, and git reads the file all the same.
pub fn value<'a>(text: &'a [u8], lengths: &[usize]) -> Option<Value<'a>> {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    if line.contains(&b'\n') || line.contains(&b'\r') {
        return None;
    }
    match line.strip_prefix(SYMBOLIC) {
        Some(target) => is_name(target).then_some(Value::Symbolic),
        None => is_id(line, lengths).then_some(Value::Id(line)),
    }
}

/// Returns the object ids in a `MERGE_HEAD`: one in each line, and at least one. `None` for a text that git does not
/// write.
pub fn merged<'a>(text: &'a [u8], lengths: &[usize]) -> Option<Vec<&'a [u8]>> {
    let lines = text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n');
    lines.map(|line| is_id(line, lengths).then_some(line)).collect()
}

/// Reports whether git writes such lines in a `FETCH_HEAD`, besides those of the old one: an id, a tab, `not-for-merge`
/// or nothing, a tab, and a note (`append_fetch_head` of git). The file may be empty.
pub fn is_fetched(new: &[u8], old: &[u8], lengths: &[usize]) -> bool {
    let known: HashSet<&[u8]> = old.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let is_line = |line: &[u8]| {
        let parts: Vec<&[u8]> = line.splitn(3, |byte| *byte == b'\t').collect();
        matches!(parts[..], [id, b"" | b"not-for-merge", note] if is_id(id, lengths) && !note.contains(&b'\r'))
    };
    let Some(lines) = new.strip_suffix(b"\n") else { return new.is_empty() };
    lines.split(|byte| *byte == b'\n').all(|line| known.contains(line) || is_line(line))
}

/// Returns the object ids of the refs in a file `packed-refs` whose lines the old one does not have; `None` for a text
/// that git does not write.
pub fn packed<'a>(new: &'a [u8], old: &[u8], lengths: &[usize]) -> Option<Vec<&'a [u8]>> {
    let known: HashSet<&[u8]> = old.split(|byte| *byte == b'\n').collect();
    let (mut found, mut last): (Vec<&[u8]>, Option<&[u8]>) = (Vec::new(), None);
    let mut is_sorted = false;
    let text = new.strip_suffix(b"\n")?;
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if let (0, Some(says)) = (number, line.strip_prefix(HEADER)) {
            is_sorted = says.split(|byte| *byte == b' ').any(|word| word == b"sorted");
            continue;
        }
        if let Some(peeled) = line.strip_prefix(b"^") {
            last?;
            if !is_id(peeled, lengths) {
                return None;
            }
            continue;
        }
        let at = line.iter().position(|byte| *byte == b' ')?;
        let (id, name) = (&line[..at], &line[at + 1..]);
        let is_next = !is_sorted || last.is_none_or(|last| last < name);
        if !is_id(id, lengths) || !is_name(name) || !is_next {
            return None;
        }
        last = Some(name);
        if !known.contains(line) {
            found.push(id);
        }
    }
    Some(found)
}

/// Returns the new object ids in the lines of a reflog that the old one does not have; `None` for a text that git does
/// not write. A reflog may be empty, and an id of zeros stands for no commit.
pub fn log<'a>(new: &'a [u8], old: &[u8], lengths: &[usize]) -> Option<Vec<&'a [u8]>> {
    if new.is_empty() {
        return Some(Vec::new());
    }
    let known: HashSet<&[u8]> = old.split(|byte| *byte == b'\n').collect();
    let lines =
        new.strip_suffix(b"\n")?.split(|byte| *byte == b'\n').filter(|line| line.is_empty() || !known.contains(line));
    let mut found = Vec::new();
    for line in lines {
        let id = entry(line, lengths)?;
        if id.iter().any(|byte| *byte != b'0') {
            found.push(id);
        }
    }
    Some(found)
}

/// Returns the new object id of an entry of a reflog: two ids, a name, an address, a time and a zone.
fn entry<'a>(line: &'a [u8], lengths: &[usize]) -> Option<&'a [u8]> {
    let (old, new, rest) = ids(line)?;
    let (time, zone, message) = stamp(rest)?;
    let is_zone = matches!(zone, [b' ', b'+' | b'-', digits @ ..] if digits.len() == 4 && is_number(digits));
    let is_entry = is_id(old, lengths) && is_id(new, lengths) && is_number(time) && is_zone;
    (is_entry && !message.contains(&b'\r')).then_some(new)
}

/// Returns the time of an entry of a reflog, in seconds.
pub fn time(line: &[u8]) -> Option<i64> {
    let (_, _, rest) = ids(line)?;
    let (time, ..) = stamp(rest)?;
    str::from_utf8(time).ok().filter(|_| is_number(time))?.parse().ok()
}

/// Divides an entry of a reflog into the two ids and the rest.
fn ids(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut ids = line.splitn(3, |byte| *byte == b' ');
    Some((ids.next()?, ids.next()?, ids.next()?))
}

/// Returns the time, the zone and the message of an entry of a reflog, of which `rest` follows the ids.
fn stamp(rest: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let end = rest.iter().position(|byte| *byte == b'>')?;
    let rest = rest[end + 1..].strip_prefix(b" ")?;
    let (who, message) = match rest.iter().position(|byte| *byte == b'\t') {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &rest[..0]),
    };
    let (time, zone) = who.split_at(who.iter().position(|byte| *byte == b' ')?);
    Some((time, zone, message))
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

fn is_id(text: &[u8], lengths: &[usize]) -> bool {
    lengths.iter().any(|length| text.len() == 2 * length) && text.iter().all(u8::is_ascii_hexdigit)
}

/// Reports whether git allows a name of a ref (git-check-ref-format(1)); it refuses to work with a file that has another.
pub fn is_name(name: &[u8]) -> bool {
    let is_odd = name.iter().any(|byte| *byte < b' ' || ODD.contains(byte));
    let has = |pair: &[u8; 2]| name.windows(2).any(|bytes| bytes == pair);
    let is_part = |part: &[u8]| !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock");
    let mut parts = name.strip_prefix(b"refs/").into_iter().flat_map(|below| below.split(|byte| *byte == b'/'));
    name.starts_with(b"refs/") && !is_odd && !has(b"..") && !has(b"@{") && !name.ends_with(b".") && parts.all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    #[test]
    fn a_ref_has_an_id_or_names_a_ref() {
        let of = |text: &str, length| value(text.replace('A', A).as_bytes(), &[length]).is_some();
        for text in ["A\n", "A", "ref: refs/heads/x\n"] {
            assert!(of(text, 20), "{text}");
        }
        for text in
            ["", "\n", "A\r\n", "A\n\n", "A x\n", "a\n", "AA\n", "rff: refs/heads/x\n", "ref: x\n", "ref: refs/\n"]
        {
            assert!(!of(text, 20), "{text}");
        }
        assert!(!of("A\n", 32));
    }

    #[test]
    fn only_names_that_git_allows_are_names() {
        for name in
            ["refs/x", "refs/heads/a.b", "refs/heads/a@b/{c}", "refs/heads/@", "refs/heads/lock", "refs/heads/a.locks"]
        {
            assert!(is_name(name.as_bytes()), "{name}");
            assert!(value(format!("ref: {name}\n").as_bytes(), &[20]).is_some(), "{name}");
            assert!(packed(format!("{A} {name}\n").as_bytes(), b"", &[20]).is_some(), "{name}");
        }
        for name in [
            "refs/",
            "refs/../x",
            "refs/heads/..",
            "refs/heads/a..b",
            "refs/.x",
            "refs/heads/.x/y",
            "refs/heads/x.lock",
            "refs/heads/x.lock/y",
            "refs/heads//x",
            "refs//x",
            "refs/heads/x/",
            "refs/heads/x.",
            "refs/heads/x@{1}",
            "refs/heads/a b",
            "heads/x",
        ] {
            assert!(!is_name(name.as_bytes()), "{name}");
            assert!(value(format!("ref: {name}\n").as_bytes(), &[20]).is_none(), "{name}");
            assert!(packed(format!("{A} {name}\n").as_bytes(), b"", &[20]).is_none(), "{name}");
        }
    }

    #[test]
    fn merged_and_fetched_commits_are_read() {
        let text = |text: &str| text.replace('A', A).replace('B', B);
        let of = |text_of: &str| merged(text(text_of).as_bytes(), &[20]).map(|ids| ids.len());
        for (text, wanted) in [
            ("A\n", Some(1)),
            ("A", Some(1)),
            ("A\nB\n", Some(2)),
            ("", None),
            ("A\r\n", None),
            ("A\n\n", None),
            ("ref: refs/heads/x\n", None),
        ] {
            assert_eq!(of(text), wanted, "{text}");
        }
        let of = |new: &str, old: &str| is_fetched(text(new).as_bytes(), text(old).as_bytes(), &[20]);
        for (new, old, wanted) in [
            ("", "", true),
            ("A\t\tbranch 'x' of y\nB\tnot-for-merge\t'r\t' of /y\n", "", true),
            ("B\t\t\n", "", true),
            ("x\nA\t\ty\n", "x\n", true),
            ("\n", "", false),
            ("A\t\tx", "", false),
            ("A\t\tx\r\n", "", false),
            ("A\tfor-merge\tx\n", "", false),
            ("a\t\tx\n", "", false),
        ] {
            assert_eq!(of(new, old), wanted, "{new}");
        }
    }

    #[test]
    fn each_line_of_packed_refs_is_read() {
        let text = |text: &str| text.replace('A', A).replace('B', B);
        let of = |new: &str, old: &str| packed(text(new).as_bytes(), text(old).as_bytes(), &[20]).map(|ids| ids.len());
        let head = "# pack-refs with: peeled fully-peeled sorted \n";
        for (new, old, wanted) in [
            (format!("{head}A refs/heads/a\n^B\nB refs/heads/b\n"), "", Some(2)),
            (format!("{head}A refs/heads/a\nB refs/heads/b\n"), "A refs/heads/a\n", Some(1)),
            ("B refs/heads/b\nA refs/heads/a\n".to_owned(), "", Some(2)),
            (head.to_owned(), "", Some(0)),
            (format!("{head}B refs/heads/b\nA refs/heads/a\n"), "", None),
            (head.replace("pack-refs", "pck-refs"), "", None),
            (format!("{head}{head}"), "", None),
            (format!("{head}^B\n"), "", None),
            (format!("{head}A refs/heads/a"), "", None),
            (format!("{head}A refs/heads/a\r\n"), "", None),
            (format!("{head}A heads/a\n"), "", None),
            (format!("{head}a refs/heads/a\n"), "", None),
            (String::new(), "", None),
        ] {
            assert_eq!(of(&new, old), wanted, "{new}");
        }
    }

    #[test]
    fn each_new_line_of_a_reflog_is_read() {
        let text = |text: &str| text.replace('A', A).replace('B', B).replace('0', &"0".repeat(40));
        let of = |new: &str, old: &str| log(text(new).as_bytes(), text(old).as_bytes(), &[20]).map(|ids| ids.len());
        for (new, old, wanted) in [
            ("", "", Some(0)),
            ("0 A N <n@x> 1 +1234\tcommit (initial): x\n", "", Some(1)),
            ("A B N <n@x> 1 -1234\nA 0  <> 1 +1234\t\n", "", Some(1)),
            ("nothing\nA B N <n@x> 1 -1234\n", "nothing\n", Some(1)),
            ("A B N <n@x> 1 -1234", "", None),
            ("A B N <n@x> 1 -1234\tx\r\n", "", None),
            ("A B N n@x 1 -1234\tx\n", "", None),
            ("A b N <n@x> 1 -1234\tx\n", "", None),
            ("A B N <n@x> x -1234\tx\n", "", None),
            ("A B N <n@x> 1 -12\tx\n", "", None),
            ("\n", "", None),
        ] {
            assert_eq!(of(new, old), wanted, "{new}");
        }
    }
}
