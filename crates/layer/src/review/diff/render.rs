//! Writes a diff in git's format. Pure.
//!
//! Everything that stands outside of a patch is a remark: git skips lines before a `diff --git` that do not look like
//! the start of a patch. A remark begins with `# ` or a fixed word, and every name in it is quoted, so that no name can
//! look like one.

use crate::meta::EntryType;
use crate::review::diff::applies::{git_mode, mode_changes};
use crate::review::diff::cap::Cap;
use crate::review::diff::model::{Blob, Content, Diff, DiffKind, FileDiff, Hunk, LineTag};
use crate::review::diff::quote::{quote, quote_with};

/// Form in which files that are not text are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Binary {
    /// A line with name, sizes and hashes.
    #[default]
    Summary,
    /// They are left out of the diff.
    Omit,
}

/// Settings for writing a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderOptions {
    /// Files that are not text.
    pub binary: Binary,
    /// Keep so many bytes; of a longer diff the head and the tail.
    pub max_bytes: usize,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { binary: Binary::Summary, max_bytes: 1 << 20 }
    }
}

/// A written diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The bytes. File contents are in them as they are, with whatever control characters.
    pub bytes: Vec<u8>,
    /// It was cut in the middle. `git apply` refuses it then.
    pub truncated: bool,
}

impl Diff {
    /// Writes the diff. What `git apply` can carry out is a patch, everything else a remark.
    #[must_use]
    pub fn render(&self, options: &RenderOptions) -> Rendered {
        let mut out = Cap::new(options.max_bytes);
        for file in &self.files {
            file_to(&mut out, file, options.binary);
        }
        if self.incomplete {
            // As in a cut: what is left must not be applied for the whole.
            out.push(b"@@ -1 +1 @@ this diff does not apply\n# there are more files than this diff lists\n");
        }
        let (bytes, truncated) = out.finish();
        Rendered { bytes, truncated: truncated || self.incomplete }
    }
}

fn file_to(out: &mut Cap, file: &FileDiff, binary: Binary) {
    for remark in remarks(file, binary) {
        out.push(&remark);
        out.push(b"\n");
    }
    if file.applies {
        patch(file, |line| {
            out.push(line);
        });
    } else if matches!(file.content, Content::Text { .. }) {
        out.push(b"# git does not apply this part:\n");
        patch(file, |line| {
            out.push(b"# ");
            out.push(line);
        });
    }
}

fn words(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn remarks(file: &FileDiff, binary: Binary) -> Vec<Vec<u8>> {
    let name = quote(&file.path.0);
    let mut all = Vec::new();
    if let Some(why) = &file.protected {
        all.push(words(&[b"# ", &name, b" needs an explicit accept: ", &quote(why.as_bytes())]));
    }
    if file.other_names > 0 {
        let count = format!(" has {} more names in the workspace, which change with it", file.other_names);
        all.push(words(&[b"# ", &name, count.as_bytes()]));
    }
    let modes = match (file.old_mode, file.new_mode) {
        (Some(old), Some(new)) if old != new && file.file_type != EntryType::Symlink => Some((old, new)),
        _ => None,
    };
    if let Some((old, new)) = modes.filter(|_| !(file.applies && mode_changes(file))) {
        all.push(words(&[b"# mode of ", &name, format!(": {old:04o} -> {new:04o}").as_bytes()]));
    }
    match &file.content {
        Content::Binary { old, new } if binary == Binary::Summary => {
            let what: &[u8] = if file.file_type == EntryType::Symlink { b"Link " } else { b"Binary file " };
            all.push(words(&[what, &name, b": ", sizes(old.as_ref(), new.as_ref()).as_bytes()]));
        }
        Content::Binary { .. } | Content::Text { .. } => {}
        Content::None => all.extend(bare(file, &name, modes.is_some())),
    }
    all
}

/// Writes the remark on something that has no content to show and no patch to speak for it.
fn bare(file: &FileDiff, name: &[u8], has_modes: bool) -> Option<Vec<u8>> {
    if file.applies || (file.kind == DiffKind::Modified && has_modes) {
        return None;
    }
    let what = match file.file_type {
        EntryType::File => "file",
        EntryType::Directory => "directory",
        EntryType::Symlink => "link",
        EntryType::Fifo => "named pipe",
        EntryType::Socket => "socket (never committed)",
        EntryType::Device => "device node (never committed)",
    };
    let verb = match file.kind {
        DiffKind::Added => "new",
        DiffKind::Deleted => "gone",
        DiffKind::Renamed => "renamed",
        DiffKind::Modified => "owner, time or attributes of",
    };
    let from = file.rename_from.as_ref().map(|from| words(&[b" from ", &quote(&from.0)])).unwrap_or_default();
    Some(words(&[b"# ", verb.as_bytes(), b" ", what.as_bytes(), b": ", name, &from]))
}

fn sizes(old: Option<&Blob>, new: Option<&Blob>) -> String {
    let one = |blob: &Blob| match &blob.hash {
        Some(hash) => format!("{} bytes blake3 {hash}", blob.size),
        None => format!("{} bytes, not read", blob.size),
    };
    match (old, new) {
        (Some(old), Some(new)) => format!("{} -> {}", one(old), one(new)),
        (None, Some(new)) => format!("new, {}", one(new)),
        (Some(old), None) => format!("gone, {}", one(old)),
        (None, None) => "no content".to_owned(),
    }
}

/// Hands out the lines of one patch, each with its newline.
fn patch(file: &FileDiff, mut emit: impl FnMut(&[u8])) {
    let from = file.rename_from.as_ref().unwrap_or(&file.path);
    let (a, b) = (quote_with("a/", &from.0), quote_with("b/", &file.path.0));
    let mut line = |parts: &[&[u8]]| emit(&[&parts.concat()[..], b"\n"].concat());
    line(&[b"diff --git ", &a, b" ", &b]);
    let mode = |mode: Option<u32>| git_mode(file.file_type, mode.unwrap_or(0)).as_bytes();
    match file.kind {
        DiffKind::Added => line(&[b"new file mode ", mode(file.new_mode)]),
        DiffKind::Deleted => line(&[b"deleted file mode ", mode(file.old_mode)]),
        DiffKind::Modified | DiffKind::Renamed if mode_changes(file) => {
            line(&[b"old mode ", mode(file.old_mode)]);
            line(&[b"new mode ", mode(file.new_mode)]);
        }
        DiffKind::Modified | DiffKind::Renamed => {}
    }
    if file.kind == DiffKind::Renamed {
        line(&[b"similarity index ", file.similarity.unwrap_or(100).to_string().as_bytes(), b"%"]);
        line(&[b"rename from ", &quote(&from.0)]);
        line(&[b"rename to ", &quote(&file.path.0)]);
    }
    let Content::Text { hunks } = &file.content else { return };
    // Git ends a name at a tab, so that one with spaces is not taken to end at the first.
    let tab: &[u8] = if a.contains(&b' ') || b.contains(&b' ') { b"\t" } else { b"" };
    let (a, b): (&[u8], &[u8]) = match file.kind {
        DiffKind::Added => (b"/dev/null", &b),
        DiffKind::Deleted => (&a, b"/dev/null"),
        DiffKind::Modified | DiffKind::Renamed => (&a, &b),
    };
    let tab_of = |name: &[u8]| if name == b"/dev/null" { &b""[..] } else { tab };
    line(&[b"--- ", a, tab_of(a)]);
    line(&[b"+++ ", b, tab_of(b)]);
    for hunk in hunks {
        line(&[b"@@ -", &range(hunk.old_start, hunk.old_lines), b" +", &range(hunk.new_start, hunk.new_lines), b" @@"]);
        lines(hunk, &mut line);
    }
}

fn range(start: usize, lines: usize) -> Vec<u8> {
    if lines == 1 { start.to_string().into_bytes() } else { format!("{start},{lines}").into_bytes() }
}

/// Writes the lines of a hunk. `emit` adds the newline that a line of a file brings along.
fn lines(hunk: &Hunk, emit: &mut impl FnMut(&[&[u8]])) {
    for line in &hunk.lines {
        let sign: &[u8] = match line.tag {
            LineTag::Context => b" ",
            LineTag::Removed => b"-",
            LineTag::Added => b"+",
        };
        let text = line.text.0.strip_suffix(b"\n");
        emit(&[sign, text.unwrap_or(&line.text.0)]);
        if text.is_none() {
            emit(&[b"\\ No newline at end of file"]);
        }
    }
}
