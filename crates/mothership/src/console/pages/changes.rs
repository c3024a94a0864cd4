//! The changes of a directive: its files with their counts, then the diff of each.
//!
//! The diff is that of the territory. Lines of files begin with a space, a sign or a backslash, so that no content is read as
//! the beginning of a file.

use super::parts;
use crate::console::html::Html;
use crate::console::visit::Visit;
use crate::http::Problem;
use nexus_api::mothership::Directive;

/// Lines after which the diffs of files are folded.
const MAX_OPEN_LINES: usize = 2_000;
/// Lines of a diff that a page has.
const MAX_LINES: usize = 10_000;

/// One file of a diff.
#[derive(Debug, Default, PartialEq, Eq)]
struct FileChange<'a> {
    name: &'a str,
    added: usize,
    removed: usize,
    flags: Vec<&'static str>,
    lines: Vec<&'a str>,
}

const FLAGS: [(&str, &str); 7] = [
    ("new file mode ", "new"),
    ("deleted file mode ", "deleted"),
    ("old mode ", "mode"),
    ("rename from ", "renamed"),
    ("# mode of ", "mode"),
    ("Binary file ", "binary"),
    ("Link ", "symlink"),
];

/// Returns the name of a file from the line that begins its part.
fn name_of(line: &str) -> Option<&str> {
    if let Some(both) = line.strip_prefix("diff --git ") {
        // Without a rename both halves are the same name.
        let middle = both.len() / 2;
        let halves = both.get(..middle).zip(both.get(middle + 1..));
        let same = halves.and_then(|(a, b)| Some((a.strip_prefix("a/")?, b.strip_prefix("b/")?)));
        return Some(same.filter(|(a, b)| a == b).map_or(both, |(a, _)| a));
    }
    let remark = ["Binary file ", "Link ", "# mode of ", "# "].iter().find_map(|start| line.strip_prefix(start))?;
    Some(remark.split_once(": ").map_or(remark, |(before, after)| {
        // `# new file: NAME`, and `Binary file NAME: sizes`.
        if line.starts_with("# ") && !line.starts_with("# mode of ") { after } else { before }
    }))
}

fn files(diff: &str) -> Vec<FileChange<'_>> {
    let mut all: Vec<FileChange<'_>> = Vec::new();
    for line in diff.lines() {
        if let Some(name) = name_of(line) {
            all.push(FileChange { name, ..FileChange::default() });
        } else if all.is_empty() {
            all.push(FileChange::default());
        }
        let Some(file) = all.last_mut() else { continue };
        let in_head = !line.starts_with(['+', '-', ' ', '@', '\\']);
        if in_head {
            let found = FLAGS.iter().find(|(start, _)| line.starts_with(start)).map(|(_, flag)| *flag);
            file.flags.extend(found);
            let is_link = line.ends_with(" 120000") && !file.flags.contains(&"symlink");
            file.flags.extend(is_link.then_some("symlink"));
        } else if line.starts_with('+') && !line.starts_with("+++ ") {
            file.added += 1;
        } else if line.starts_with('-') && !line.starts_with("--- ") {
            file.removed += 1;
        }
        file.lines.push(line);
    }
    all
}

/// Writes the changes.
pub async fn write(visit: &Visit, one: &Directive, html: &mut Html) -> Result<(), Problem> {
    if !one.has_diff {
        let over = one.state.is_terminal();
        let sentence = if over { "No changes were reported." } else { "Changes are reported when the directive ends." };
        parts::empty(html, sentence, None);
        return Ok(());
    }
    let diff = visit.context.app.store.diff(visit.account, one.directive_id, None).await?;
    let text = String::from_utf8_lossy(&diff);
    let all = files(&text);
    let sum = |count: fn(&FileChange<'_>) -> usize| all.iter().map(count).sum::<usize>();
    let deleted = all.iter().filter(|file| file.flags.contains(&"deleted")).count();
    let caption = format!(
        "{} files, {deleted} of them deleted; {} lines added, {} removed",
        all.len(),
        sum(|file| file.added),
        sum(|file| file.removed)
    );
    if one.diff_truncated {
        html.raw("<p class=\"bar\"><strong class=\"s-wait\">The diff was cut.</strong></p>");
    }
    html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards"), ("id", "files")]);
    html.leaf("caption", &[], &caption);
    html.raw("<thead><tr><th scope=\"col\">File</th><th scope=\"col\">Added</th><th scope=\"col\">Removed</th>");
    html.raw("<th scope=\"col\">Kind</th></tr></thead><tbody>");
    for (index, file) in all.iter().enumerate() {
        html.open("tr", &[("data-row", "")]).raw("<td class=\"cmd\">");
        let link = format!("#file{index}");
        html.leaf("a", &[("class", "row-link"), ("href", &link)], shown(file)).raw("</td><td class=\"num\">");
        html.leaf("span", &[("class", "add")], &format!("+{}", file.added)).raw("</td><td class=\"num\">");
        html.leaf("span", &[("class", "del")], &format!("−{}", file.removed)).raw("</td><td class=\"num\">");
        html.leaf("strong", &[("class", "s-wait")], &file.flags.join(", ")).raw("</td></tr>");
    }
    html.raw("</tbody></table></div>");
    let mut lines = 0;
    for (index, file) in all.iter().enumerate() {
        lines += file.lines.len();
        let id = format!("file{index}");
        let attributes = [("id", id.as_str()), ("class", "file"), ("open", "")];
        html.open("details", if lines > MAX_OPEN_LINES { &attributes[..2] } else { &attributes });
        html.leaf("summary", &[("class", "mono")], shown(file));
        let label = format!("Changes of {}", shown(file));
        html.open("pre", &[("class", "untrusted"), ("tabindex", "0"), ("aria-label", &label)]);
        if lines > MAX_LINES {
            html.raw("These lines are not shown: nexus directive diff prints all.");
        } else {
            file.lines.iter().for_each(|line| write_line(html, line));
        }
        html.raw("</pre></details>");
    }
    parts::same_command(html, &format!("nexus directive diff {}", one.directive_id));
    Ok(())
}

fn shown<'a>(file: &FileChange<'a>) -> &'a str {
    if file.name.is_empty() { "changes" } else { file.name }
}

fn write_line(html: &mut Html, line: &str) {
    let class = match line.as_bytes().first() {
        Some(b'+') => "add",
        Some(b'-') => "del",
        Some(b'@') => "hunk",
        _ => "",
    };
    if class.is_empty() {
        html.text(line);
    } else {
        html.leaf("span", &[("class", class)], line);
    }
    html.raw("\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_a_diff_has_its_counts_and_what_is_special_about_it() {
        let diff = "# mode of run.sh: 0644 -> 0755\ndiff --git a/a b.txt b/a b.txt\nold mode 100644\nnew mode 100755\n--- a/a b.txt\n\
            +++ b/a b.txt\n@@ -1,2 +1,2 @@\n diff --git a/forged b/forged\n-deleted file mode 100644\n+Binary file forged: gone\n\
            diff --git a/gone b/gone\ndeleted file mode 120000\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
            diff --git a/old b/new.txt\nsimilarity index 100%\nrename from old\nrename to new.txt\n\
            Binary file pic.png: new, 5 bytes blake3 0\n# new directory: some dir\n";
        let seen: Vec<_> =
            files(diff).into_iter().map(|file| (file.name, file.added, file.removed, file.flags)).collect();
        let expected = [
            ("run.sh", 0, 0, vec!["mode"]),
            ("a b.txt", 1, 1, vec!["mode"]),
            ("gone", 0, 1, vec!["deleted", "symlink"]),
            ("a/old b/new.txt", 0, 0, vec!["renamed"]),
            ("pic.png", 0, 0, vec!["binary"]),
            ("some dir", 0, 0, vec![]),
        ];
        assert_eq!(seen, expected);
    }
}
