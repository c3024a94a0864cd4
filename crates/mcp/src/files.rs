//! Reads, writes, lists and searches files of the workspace.
//!
//! Each of these is a small command in a sandbox of the server, and under the rules of every command there: hidden paths are hidden from it,
//! and changes of protected files wait for a decision. It follows a link only to a place in the workspace, and writes through no link.

use crate::commands::Request;
use nexus_caller::failure::Failure;
use serde_json::{Value, json};
use std::path::Path;

/// Most bytes of one answer; a supervisor keeps as many for a reader that is late.
pub const MAX_READ: u64 = 512 << 10;
/// Most bytes of a file that is written.
pub const MAX_WRITTEN: usize = 4 << 20;
/// Longest line of a search.
const MAX_LINE: usize = 500;
/// Bytes of a list or a search that are looked at.
const MAX_LIST: &str = "786432";

/// Exit codes of the commands, which no program that they call uses.
const OUTSIDE: u8 = 93;
const NOT_FOUND: u8 = 94;
const NOT_A_FILE: u8 = 95;
const DENIED: u8 = 96;
const LINK: u8 = 97;
const CUT_SHORT: u8 = 98;

/// Finds what the path leads to, and goes on only where that lies in the workspace.
const FIND: &str = "\
root=$(pwd -P) || exit 96
real=$(realpath -e -- \"$1\" 2>/dev/null && echo x) || { [ -L \"$1\" ] && exit 93; exit 94; }
real=${real%?x}
case \"$real/\" in \"$root\"/*) ;; *) exit 93;; esac
";

const READ: &str = "\
[ -f \"$real\" ] || exit 95
[ -r \"$real\" ] || exit 96
stat -c %s -- \"$real\" >&2 || exit 96
tail -c \"+$2\" -- \"$real\" | head -c \"$3\"
";

// The new content is there as a whole before the file is touched.
const WRITE: &str = "\
root=$(pwd -P) || exit 96
dir=$(dirname -- \"$1\" && echo x) || exit 96; dir=${dir%?x}
base=$(basename -- \"$1\" && echo x) || exit 96; base=${base%?x}
parent=$(realpath -m -- \"$dir\" && echo x) || exit 93; parent=${parent%?x}
case \"$parent/\" in \"$root\"/*) ;; *) exit 93;; esac
[ \"$3\" = yes ] && { mkdir -p -- \"$parent\" || exit 96; }
[ -d \"$parent\" ] || exit 94
target=$parent/$base
[ -L \"$target\" ] && exit 97
[ ! -e \"$target\" ] || [ -f \"$target\" ] || exit 95
new=$(mktemp) || exit 96
cat > \"$new\" || exit 96
[ \"$(stat -c %s -- \"$new\")\" = \"$2\" ] || exit 98
cat -- \"$new\" > \"$target\" || exit 96
";

const LIST: &str = "\
[ -d \"$real\" ] || exit 95
[ -r \"$real\" ] || exit 96
find \"$real\" -mindepth 1 -maxdepth 1 -printf '%y\\0%s\\0%f\\0' | head -c 786432
";

// The first line of standard error says whether it searched below a directory or in one file.
const SEARCH: &str = "\
if [ -d \"$real\" ]; then cd -- \"$real\" || exit 96; place=.; echo d >&2
elif [ -f \"$real\" ]; then cd -- \"${real%/*}\" || exit 96; place=./${real##*/}; echo f >&2
else exit 95; fi
grep -rnHIZ \"$3\" --exclude-dir=.git --include=\"$4\" -e \"$2\" -- \"$place\" | head -c 786432
";

/// Returns the words of one of these commands. The caller adds its limits.
fn tool_call(title: &str, script: &str, words: &[&str]) -> Request {
    let argv = ["/bin/sh", "-c", script, "nexus"].into_iter().chain(words.iter().copied());
    Request {
        argv: argv.map(str::to_owned).collect(),
        title: title.to_owned(),
        cwd: Some(".".into()),
        room: 2 * MAX_READ as usize,
        is_own: true,
        ..Request::default()
    }
}

fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| Failure::refused("path", "The path is not UTF-8", "Use run_command for it."))
}

/// Returns the command that reads a part of a file.
pub fn read(path: &Path, offset: u64, limit: u64) -> Result<Request, Failure> {
    let limit = limit.min(MAX_READ).to_string();
    let script = format!("{FIND}{READ}");
    Ok(tool_call("read_file", &script, &[text(path)?, &offset.saturating_add(1).to_string(), &limit]))
}

/// Returns the command that writes a file.
pub fn write(path: &Path, content: String, makes_directories: bool) -> Result<Request, Failure> {
    if content.len() > MAX_WRITTEN {
        let message =
            format!("The content has {} bytes, and a file that is written may have {MAX_WRITTEN}", content.len());
        return Err(Failure::refused("too_large", message, "Write it in parts with run_command."));
    }
    if path == Path::new(".") {
        return Err(Failure::refused("path", "The workspace itself is not a file", "Name a file in it."));
    }
    let makes = if makes_directories { "yes" } else { "no" };
    let ask = tool_call("write_file", WRITE, &[text(path)?, &content.len().to_string(), makes]);
    Ok(Request { input: Some(content.into_bytes()), ..ask })
}

/// Returns the command that lists a directory.
pub fn list(path: &Path) -> Result<Request, Failure> {
    Ok(tool_call("list_directory", &format!("{FIND}{LIST}"), &[text(path)?]))
}

/// Returns the command that searches a file or all files below a directory.
pub fn search(path: &Path, pattern: &str, is_regex: bool, glob: Option<&str>) -> Result<Request, Failure> {
    if pattern.is_empty() || pattern.contains(['\0', '\n']) {
        let message = "The pattern is empty, or holds a NUL byte or a newline";
        return Err(Failure::usage("arguments", message, "Search for one line."));
    }
    let how = if is_regex { "-E" } else { "-F" };
    Ok(tool_call("search_files", &format!("{FIND}{SEARCH}"), &[text(path)?, pattern, how, glob.unwrap_or("*")]))
}

/// Explains the exit code of one of these commands.
pub fn failed(path: &str, exit: u8, stderr: &str) -> Failure {
    let refuse = |code, why: &str, hint: &str| Failure::refused(code, format!("{path}: {why}"), hint);
    match exit {
        OUTSIDE => refuse(
            "outside",
            "it is a link that leads out of the workspace",
            "Only files of the workspace are read and written; nexus mcp --ro PATH shows others to commands.",
        ),
        NOT_FOUND => refuse("not_found", "there is no such file or directory", "list_directory lists what there is."),
        NOT_A_FILE => refuse(
            "not_a_file",
            "it is not what the tool works on: a file to read or write, a directory to list",
            "list_directory names the kind of each entry.",
        ),
        LINK => refuse(
            "link",
            "it is a symbolic link, and a file is not written through one",
            "Write to the file that it leads to.",
        ),
        CUT_SHORT => refuse(
            "cut_short",
            "the content did not arrive as a whole; the file was not touched",
            "Call the tool again.",
        ),
        DENIED => refuse(
            "denied",
            &format!("it may not be read or written inside ({})", last_line(stderr)),
            "It is hidden, read-only, or its rights forbid it: explain_denial tells more for a command.",
        ),
        _ => refuse("failed", &format!("exit code {exit} ({})", last_line(stderr)), "run_command shows all of it."),
    }
}

fn last_line(text: &str) -> &str {
    text.trim_end().rsplit('\n').next().unwrap_or_default()
}

/// Reads the entries that the list printed, sorted by name.
pub fn entries(bytes: &[u8]) -> (Vec<Value>, bool) {
    let mut fields: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
    // Behind the last NUL comes nothing, or what was cut.
    fields.pop();
    let whole = fields.chunks_exact(3);
    let is_cut = bytes.len().to_string() == MAX_LIST;
    let mut found: Vec<(String, Value)> = whole
        .map(|entry| {
            let of = |at: usize| String::from_utf8_lossy(entry.get(at).copied().unwrap_or_default()).into_owned();
            let kind = match of(0).as_str() {
                "f" => "file",
                "d" => "directory",
                "l" => "link",
                _ => "other",
            };
            let name = of(2);
            (name.clone(), json!({ "name": name, "kind": kind, "size": of(1).parse::<u64>().unwrap_or(0) }))
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    (found.into_iter().map(|(_, entry)| entry).collect(), is_cut)
}

/// Returns the directory that the search names its paths from, for a place in the workspace.
pub fn searched<'a>(place: &'a Path, stderr: &str) -> &'a Path {
    if stderr.starts_with('f') { place.parent().unwrap_or(place) } else { place }
}

/// Reads the lines that the search printed, with paths from a directory of the workspace on.
pub fn hits(bytes: &[u8], below: &Path) -> (Vec<Value>, bool) {
    let is_cut = bytes.len().to_string() == MAX_LIST;
    let mut found: Vec<(String, u64, Value)> = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(end) = line.iter().position(|byte| *byte == 0) else { continue };
        let rest = String::from_utf8_lossy(&line[end + 1..]).into_owned();
        let Some((number, text)) = rest.split_once(':') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        let name = String::from_utf8_lossy(&line[..end]).into_owned();
        let path = below.join(name.strip_prefix("./").unwrap_or(&name));
        let path = path.strip_prefix(".").unwrap_or(&path).display().to_string();
        let shown: String = text.chars().take(MAX_LINE).collect();
        let hit = json!({ "path": path, "line": number, "text": shown });
        found.push((path, number, hit));
    }
    found.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
    (found.into_iter().map(|(_, _, hit)| hit).collect(), is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_pattern_are_arguments_and_never_part_of_the_script() {
        let hostile = "$(touch x); `y` '\"";
        let ask = search(Path::new(hostile), hostile, true, Some(hostile)).unwrap();
        assert!(!ask.argv[2].contains("touch"));
        assert_eq!(ask.argv[4..], [hostile, hostile, "-E", hostile]);
        assert!(search(Path::new("."), "a\nb", false, None).is_err());
        assert!(write(Path::new("."), String::new(), false).is_err());
        assert!(write(Path::new("a"), "x".repeat(MAX_WRITTEN + 1), false).is_err());
    }

    #[test]
    fn a_list_is_read_also_where_it_was_cut() {
        let (found, is_cut) = entries(b"f\x003\0b\0d\x000\0a\nx\0l\x001");
        assert_eq!(
            found,
            [json!({"name": "a\nx", "kind": "directory", "size": 0}), json!({"name": "b", "kind": "file", "size": 3})]
        );
        assert!(!is_cut);
        assert_eq!(entries(b"").0, [Value::Null; 0]);
    }

    #[test]
    fn hits_name_paths_of_the_workspace() {
        let (found, _) = hits(b"./z\x0010:a:b\n./d/a\x002:x\nno hit\n", Path::new("."));
        assert_eq!(
            found,
            [json!({"path": "d/a", "line": 2, "text": "x"}), json!({"path": "z", "line": 10, "text": "a:b"})]
        );
        assert_eq!(hits(b"./a\x002:x\n", Path::new("d")).0[0]["path"], "d/a");
    }
}
