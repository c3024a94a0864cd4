//! Folds a name as the most forgiving file systems and programs do, so that every spelling of a protected name counts
//! as that name. Pure.
//!
//! A workspace may lie on a case-folding ext4 or f2fs, on HFS+, NTFS or FAT, or may be copied there later. All of these
//! reach `.git` by other spellings (CVE-2014-9390, CVE-2019-1353), and `verify_path` of git refuses them:
//!
//! | file system | other spellings |
//! |---|---|
//! | ext4 and f2fs with casefold | case of every script (`ſ`, `K`), code points that are ignorable by default |
//! | HFS+ | case, zero-width and direction marks |
//! | NTFS, FAT | case, dots and blanks at the end, `:stream`, the short name `GIT~1` |

use std::borrow::Cow;

/// Code points that a folding file system drops: Unicode's Default_Ignorable_Code_Point, with those of HFS+ in it.
const IGNORABLE: &[(u32, u32)] = &[
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1_bca0, 0x1_bca3),
    (0x1_d173, 0x1_d17a),
    (0xe_0000, 0xe_0fff),
];

/// Returns the folded form of one name of a path. Two names with the same folded form may be the same file.
pub fn fold(name: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = |byte: &u8| byte.is_ascii() && !byte.is_ascii_uppercase() && !matches!(byte, b':' | b'\\' | b'~');
    if name.iter().all(is_plain) && !name.ends_with(b".") && !name.ends_with(b" ") {
        return Cow::Borrowed(name);
    }
    let mut folded = if name.is_ascii() { name.to_ascii_lowercase() } else { fold_unicode(name) };
    // What follows is a stream of the file on NTFS, and a path inside of it for programs of Windows.
    let mut end = folded.iter().position(|byte| matches!(byte, b':' | b'\\')).unwrap_or(folded.len());
    while end > 0 && matches!(folded[end - 1], b'.' | b' ') {
        end -= 1;
    }
    match &folded[..end] {
        // Nothing but ignorable characters, dots, blanks or a stream: no protected name.
        b"" if folded.is_empty() => Cow::Borrowed(name),
        b"" => Cow::Owned(folded),
        b"git~1" => Cow::Borrowed(b".git"),
        _ => {
            folded.truncate(end);
            Cow::Owned(folded)
        }
    }
}

fn fold_unicode(name: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let kept = chunk.valid().chars().filter(|one| !is_ignorable(*one));
        // Lower, upper and lower again is a full case folding: `ẞ` and `ß` become `ss`, `ſ` becomes `s`.
        let one_case = kept.flat_map(char::to_lowercase).flat_map(char::to_uppercase).flat_map(char::to_lowercase);
        let mut buffer = [0; 4];
        for one in one_case {
            folded.extend_from_slice(one.encode_utf8(&mut buffer).as_bytes());
        }
        folded.extend_from_slice(chunk.invalid());
    }
    folded
}

fn is_ignorable(one: char) -> bool {
    let code = u32::from(one);
    IGNORABLE.iter().any(|(first, last)| (*first..=*last).contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_name_folds_to_the_name() {
        for (written, wanted) in [
            (".git", ".git"),
            (".GIT", ".git"),
            (".g\u{200c}it", ".git"),
            ("\u{feff}.git", ".git"),
            (".g\u{ad}it", ".git"),
            (".gi\u{fe0f}t", ".git"),
            (".git.", ".git"),
            (".git . .", ".git"),
            (".git::$INDEX_ALLOCATION", ".git"),
            (".git:x", ".git"),
            (".git\\config", ".git"),
            ("GIT~1", ".git"),
            ("git~1.", ".git"),
            (".v\u{17f}code", ".vscode"),
            (".\u{212a}iro", ".kiro"),
            (".idea\u{200b} ", ".idea"),
            ("stra\u{df}e", "strasse"),
            ("stra\u{1e9e}e", "strasse"),
            (".\u{fb01}sh", ".fish"),
        ] {
            assert_eq!(fold(written.as_bytes()), wanted.as_bytes(), "{written:?}");
        }
    }

    #[test]
    fn other_names_do_not_become_protected_ones() {
        for name in
            [".g-it", ".g\u{301}it", "git", ".gitt", "git~2", "...", " ", "\u{200b}", ":x", "a b", "\u{ff0e}git"]
        {
            assert_ne!(fold(name.as_bytes()), b".git".as_slice(), "{name:?}");
            assert!(!fold(name.as_bytes()).is_empty(), "{name:?}");
        }
        assert_eq!(fold(b"\xff.GIT").as_ref(), b"\xff.git");
    }
}
