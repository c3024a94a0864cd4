//! Which settings of a git configuration may change without an accept.
//!
//! git has several hundred settings, every version adds some, and programs beside git add their own. So nothing here
//! says what is dangerous: it says what is known to be inert, by git-config(1), and every other change needs an accept.
//! Inert is a setting that neither runs nor chooses a program, reads no other file, sends nothing to another place,
//! switches no check off, and deletes nothing.
//!
//! | group | why it is inert |
//! |---|---|
//! | `user`, `author`, `committer` | text in new commits |
//! | `core.*` as listed | describe the file system and the format, as `git init` writes them |
//! | `core.bare` in a new repository; there also the `core.worktree` of a submodule, when the `.git` file of that working tree names the git directory | there is no hook or program yet that git could look for at another place |
//! | `init.defaultBranch`, `push.default`, `pull.*`, `rebase.*`, `merge.*`, `fetch.*` as listed | choose between built-in ways; each is a truth value or a known word |
//! | `color`, `column`, `advice`, `diff.*`, `log.*`, `status.*` as listed | how output looks |
//! | a new remote with a plain URL, which is no path into the workspace or a git directory | used only when somebody names it; not `origin` beside other remotes, which git takes by default |
//! | a branch's first `remote`, when the remote was known; `merge`, `rebase`, `description` | what `git checkout --track` and `git push -u` write |
//! | a new submodule's `url` and `active` | what `git submodule init` writes |
//! | an alias for one built-in command without options | does what the command does |
//!
//! | `commit.gpgSign` and `tag.gpgSign` when they say no, `gc.auto` as a number | no program is started that was not before; what `gc` deletes and which hooks it runs is said elsewhere |
//!
//! Not inert although harmless at first sight: `core.fsmonitor = true` (starts a daemon), `core.pager` (always the name of a
//! program, also as `yes`), the other settings of `gc` (hooks, deletion), `core.protectHFS` and `transfer.fsckObjects`
//! (checks), `help.autocorrect` (runs a guess), `core.bigFileThreshold` and other numbers of the storage are left out
//! because no ordinary work writes them.

use super::place::{Known, Place, is_own_worktree};
use super::{Setting, Unreadable, parse};
use std::collections::HashSet;

/// What a value of an inert setting may be.
enum Value {
    /// A truth value.
    Bool,
    /// A truth value that says no.
    No,
    /// A truth value or one of these words.
    Words(&'static [&'static str]),
    /// A number.
    Number,
    /// A line of text.
    Text,
    /// Letters, digits and what colours and columns are written with.
    Style,
}

use Value::{Bool, No, Number, Style, Text, Words};

/// Settings without a subsection that are inert with such a value. `*` stands for every name.
const INERT: &[(&str, &str, Value)] = &[
    ("user", "name", Text),
    ("user", "email", Text),
    ("user", "useconfigonly", Bool),
    ("author", "name", Text),
    ("author", "email", Text),
    ("committer", "name", Text),
    ("committer", "email", Text),
    ("core", "repositoryformatversion", Words(&["0", "1"])),
    ("core", "filemode", Bool),
    ("core", "ignorecase", Bool),
    ("core", "symlinks", Bool),
    ("core", "precomposeunicode", Bool),
    ("core", "logallrefupdates", Words(&["always"])),
    ("core", "autocrlf", Words(&["input"])),
    ("core", "safecrlf", Words(&["warn"])),
    ("core", "eol", Words(&["lf", "crlf", "native"])),
    ("core", "quotepath", Bool),
    ("core", "abbrev", Words(&["auto", "4", "7", "8", "10", "12", "16", "40"])),
    ("core", "trustctime", Bool),
    ("core", "checkstat", Words(&["default", "minimal"])),
    ("core", "untrackedcache", Words(&["keep"])),
    ("core", "preloadindex", Bool),
    ("core", "hidedotfiles", Words(&["dotgitonly"])),
    ("core", "whitespace", Style),
    ("init", "defaultbranch", Text),
    ("color", "*", Style),
    ("column", "*", Style),
    ("advice", "*", Bool),
    ("pull", "rebase", Words(&["merges", "interactive"])),
    ("pull", "ff", Words(&["only"])),
    ("push", "default", Words(&["nothing", "current", "upstream", "tracking", "simple", "matching"])),
    ("push", "autosetupremote", Bool),
    ("push", "followtags", Bool),
    ("merge", "conflictstyle", Words(&["merge", "diff3", "zdiff3"])),
    ("merge", "ff", Words(&["only"])),
    ("merge", "stat", Words(&["compact"])),
    ("merge", "log", Number),
    ("merge", "renames", Bool),
    ("diff", "algorithm", Words(&["default", "myers", "minimal", "patience", "histogram"])),
    ("diff", "colormoved", Style),
    ("diff", "context", Number),
    ("diff", "mnemonicprefix", Bool),
    ("diff", "noprefix", Bool),
    ("diff", "renames", Words(&["copies", "copy"])),
    ("diff", "submodule", Words(&["short", "log", "diff"])),
    ("rebase", "abbreviatecommands", Bool),
    ("rebase", "autosquash", Bool),
    ("rebase", "autostash", Bool),
    ("rebase", "stat", Bool),
    ("rebase", "updaterefs", Bool),
    ("fetch", "prune", Bool),
    ("fetch", "prunetags", Bool),
    ("fetch", "parallel", Number),
    ("commit", "verbose", Number),
    ("commit", "status", Bool),
    ("commit", "gpgsign", No),
    ("tag", "gpgsign", No),
    ("gc", "auto", Number),
    ("commit", "cleanup", Words(&["strip", "whitespace", "verbatim", "scissors", "default"])),
    ("branch", "autosetupmerge", Words(&["always", "inherit", "simple"])),
    ("branch", "autosetuprebase", Words(&["never", "local", "remote", "always"])),
    ("log", "abbrevcommit", Bool),
    ("log", "date", Style),
    ("log", "decorate", Words(&["short", "full", "auto"])),
    ("log", "follow", Bool),
    ("status", "branch", Bool),
    ("status", "short", Bool),
    ("status", "showstash", Bool),
    ("status", "showuntrackedfiles", Words(&["normal", "all"])),
    ("grep", "linenumber", Bool),
    ("grep", "column", Bool),
    ("lfs", "repositoryformatversion", Number),
    // On or off; anything else would be a program.
    ("pager", "*", Bool),
];

/// Commands that an alias may stand for. Those that send (`push`), delete (`clean`), or run what a file or an option
/// says are not among them.
const ALIASED: &[&str] = &[
    "add",
    "blame",
    "branch",
    "checkout",
    "cherry-pick",
    "commit",
    "describe",
    "diff",
    "fetch",
    "grep",
    "log",
    "merge",
    "mv",
    "pull",
    "rebase",
    "reflog",
    "remote",
    "reset",
    "restore",
    "revert",
    "rm",
    "show",
    "stash",
    "status",
    "switch",
    "tag",
    "worktree",
];

impl Value {
    fn fits(&self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else { return matches!(self, Bool | Words(_)) };
        let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
        let is_bool = is(&["true", "false", "yes", "no", "on", "off", "0", "1", ""]);
        match self {
            Bool => is_bool,
            No => is(&["false", "no", "off", "0"]),
            Words(words) => is_bool || is(words),
            Number => is_bool || (value.len() < 10 && value.iter().all(u8::is_ascii_digit)),
            Text => value.len() < 1024 && !value.iter().any(u8::is_ascii_control),
            Style => value.iter().all(|byte| byte.is_ascii_alphanumeric() || b" #,-_=".contains(byte)),
        }
    }
}

/// The names of a setting as git compares them: `[a.b]` is the old way to write `[a "b"]`.
fn parts(setting: &Setting) -> (&str, Option<Vec<u8>>, &str) {
    let (section, old) =
        setting.section.split_once('.').map_or((setting.section.as_str(), None), |(s, o)| (s, Some(o)));
    let subsection = match (old, &setting.subsection) {
        (None, sub) => sub.clone(),
        (Some(old), None) => Some(old.as_bytes().to_vec()),
        (Some(old), Some(sub)) => Some([old.as_bytes(), b".", sub].concat()),
    };
    (section, subsection, &setting.name)
}

/// What is looked up in a configuration for each setting of another one.
#[derive(Default)]
struct Seen {
    /// Section and subsection.
    parts: HashSet<(String, Vec<u8>)>,
    aliases: HashSet<String>,
    /// Branches that have a remote.
    tracking: HashSet<Vec<u8>>,
    has_remotes: bool,
    is_empty: bool,
}

impl Seen {
    fn of(settings: &[Setting]) -> Self {
        let mut known = Self { is_empty: settings.is_empty(), ..Self::default() };
        for setting in settings {
            match parts(setting) {
                ("alias", None, name) => {
                    known.aliases.insert(name.to_owned());
                }
                (section, Some(subsection), name) => {
                    known.has_remotes |= section == "remote";
                    if (section, name) == ("branch", "remote") {
                        known.tracking.insert(subsection.clone());
                    }
                    known.parts.insert((section.to_owned(), subsection));
                }
                _ => {}
            }
        }
        known
    }

    fn has(&self, section: &str, subsection: &[u8]) -> bool {
        self.parts.contains(&(section.to_owned(), subsection.to_vec()))
    }
}

/// The configuration that a setting comes to, and the one that it comes with.
struct Context<'a> {
    base: Seen,
    new: Seen,
    place: Place<'a>,
}

impl Context<'_> {
    fn is_inert(&self, setting: &Setting) -> bool {
        let (section, subsection, name) = parts(setting);
        let value = setting.value.as_deref();
        match (section, subsection) {
            ("alias", None) => self.is_plain_alias(name, value),
            // They say where the working tree of a new repository is, and whether it has one. In an existing repository
            // they would move the place from which git takes relative hooks and programs.
            ("core", None) if name == "worktree" => {
                self.place.known == Known::New && value.is_some_and(|value| is_own_worktree(value, &self.place))
            }
            ("core", None) if name == "bare" => match self.place.known {
                Known::New => Bool.fits(value),
                // As git takes it for granted.
                Known::All | Known::Nothing => self.base.is_empty && No.fits(value),
                Known::Part => false,
            },
            // They describe how a new repository is stored; another repository would become unreadable.
            ("extensions", None) => {
                let known = match name {
                    "objectformat" => Words(&["sha1", "sha256"]),
                    "refstorage" => Words(&["files", "reftable"]),
                    _ => return false,
                };
                self.place.known == Known::New && known.fits(value)
            }
            (_, None) => {
                let mut known = INERT.iter().filter(|(s, n, _)| *s == section && (*n == name || *n == "*"));
                known.any(|(_, _, wanted)| wanted.fits(value))
            }
            ("color" | "column", Some(_)) => Style.fits(value),
            // They may take the place of others, which this file does not say.
            ("remote" | "submodule", Some(_)) if self.is_partial() => false,
            ("branch", Some(_)) if self.is_partial() && name == "remote" => false,
            ("remote", Some(remote)) => self.is_new_remote(&remote, name, value),
            ("branch", Some(branch)) => match (name, value) {
                ("remote", Some(value)) => self.is_first_remote(&branch, value),
                ("merge", Some(value)) => value.starts_with(b"refs/") && Text.fits(Some(value)),
                ("rebase", value) => Words(&["merges", "interactive"]).fits(value),
                ("description", value) => Text.fits(value),
                _ => false,
            },
            ("submodule", Some(module)) => {
                let inside = !module.split(|byte| *byte == b'/').any(|part| part == b"..");
                inside
                    && !self.base.has("submodule", &module)
                    && match name {
                        "url" => value.is_some_and(is_plain_url),
                        "active" => Bool.fits(value),
                        _ => false,
                    }
            }
            _ => false,
        }
    }

    fn is_partial(&self) -> bool {
        matches!(self.place.known, Known::Nothing | Known::Part)
    }

    fn is_plain_alias(&self, name: &str, value: Option<&[u8]>) -> bool {
        let shadows = ALIASED.contains(&name) || self.base.aliases.contains(name);
        !shadows && value.is_some_and(|value| ALIASED.iter().any(|word| word.as_bytes() == value))
    }

    /// A remote that was not there before is used only by its name.
    fn is_new_remote(&self, remote: &[u8], name: &str, value: Option<&[u8]>) -> bool {
        // A name with a slash or a colon would stand for the URL or path that it spells.
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let is_name = remote.first().is_some_and(u8::is_ascii_alphanumeric) && remote.iter().all(plain);
        let is_default = remote == b"origin" && self.base.has_remotes;
        if !is_name || is_default || self.base.has("remote", remote) {
            return false;
        }
        match name {
            "url" => value.is_some_and(|url| is_plain_url(url) && !self.leads_inside(url)),
            "fetch" => value.is_some_and(is_plain_refspec),
            "tagopt" => matches!(value, Some(b"--tags" | b"--no-tags")),
            "prune" | "prunetags" => Bool.fits(value),
            _ => false,
        }
    }

    /// Whether a URL is a path into the workspace, as far as its text says so, or into a git directory: a push would run the
    /// hooks there.
    fn leads_inside(&self, url: &[u8]) -> bool {
        let is_colon_first = url.iter().find(|byte| b":/".contains(byte)) == Some(&b':');
        let path = url.strip_prefix(b"file://").unwrap_or(url);
        if path.len() == url.len() && is_colon_first {
            return false;
        }
        let names = || path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        if names().any(|name| crate::fold::fold(name).as_ref() == b".git") {
            return true;
        }
        // From the top of the working tree, which the git directory lies in.
        let git_dir = self.place.git_dir;
        let is_git = crate::fold::fold(crate::beneath::split(git_dir).1);
        let mut depth = git_dir.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count();
        depth -= usize::from(depth > 0 && is_git.as_ref() == b".git");
        let mut depth = Some(depth);
        for name in names() {
            depth = match (name, depth) {
                (b"..", Some(depth)) => depth.checked_sub(1),
                (_, depth) => depth.map(|depth| depth + usize::from(name != b"..")),
            };
        }
        !path.starts_with(b"/") && depth.is_some()
    }

    /// Another remote for a branch that had one, or a URL in its place, would take the next push along.
    fn is_first_remote(&self, branch: &[u8], remote: &[u8]) -> bool {
        let known = if self.base.has_remotes { &self.base } else { &self.new };
        !self.base.tracking.contains(branch) && (remote == b"." || known.has("remote", remote))
    }
}

/// A URL that git reads by itself, or a path. Another scheme starts the program `git-remote-SCHEME`, `::` one of choice,
/// and `-` would begin an option.
fn is_plain_url(url: &[u8]) -> bool {
    let mut windows = url.windows(2);
    if url.is_empty() || url.starts_with(b"-") || !Text.fits(Some(url)) || windows.any(|two| two == b"::") {
        return false;
    }
    let Some(at) = url.windows(3).position(|three| three == b"://") else {
        // HOST:PATH, or a path. A host that begins with `-` is an option of ssh.
        return !url.split(|byte| *byte == b'@').any(|part| part.starts_with(b"-"));
    };
    let (scheme, rest) = (&url[..at], &url[at + 3..]);
    [&b"https"[..], b"http", b"ssh", b"git", b"file"].contains(&scheme)
        && !rest.split(|byte| *byte == b'@').any(|part| part.starts_with(b"-"))
}

/// Fetches into the remote's own names, never into the branches.
fn is_plain_refspec(spec: &[u8]) -> bool {
    let spec = spec.strip_prefix(b"+").unwrap_or(spec);
    let mut ends = spec.splitn(2, |byte| *byte == b':');
    let (from, to) = (ends.next().unwrap_or_default(), ends.next().unwrap_or_default());
    from.starts_with(b"refs/") && to.starts_with(b"refs/remotes/") && Text.fits(Some(spec))
}

/// Returns the settings of `new` that need an accept to come to a repository with the settings `base`, in order. With
/// an empty base it is a new repository.
#[must_use]
pub fn held<'a>(new: &'a [Setting], base: &[Setting], git_dir: &[u8]) -> Vec<&'a Setting> {
    let known = if base.is_empty() { Known::New } else { Known::All };
    held_at(new, base, &Place { known, ..Place::of_new(git_dir) })
}

fn held_at<'a>(new: &'a [Setting], base: &[Setting], place: &Place<'_>) -> Vec<&'a Setting> {
    let context = Context { base: Seen::of(base), new: Seen::of(new), place: *place };
    new.iter().filter(|one| !context.is_inert(one)).collect()
}

/// Returns the names of the settings whose change from `base` to `new` needs an accept; `None` is a file that is not
/// there. The order of the settings counts, because the last one of a name holds.
///
/// A file that goes away is compared with a new one: what may come with a repository may go with it.
pub fn changed(new: Option<&[u8]>, base: Option<&[u8]>, place: &Place<'_>) -> Result<Vec<String>, Unreadable> {
    let read = |text: Option<&[u8]>| text.map_or(Ok(Vec::new()), parse);
    let (settings, old) = (read(new)?, read(base)?);
    let against = if new.is_none() { &[][..] } else { &old };
    let after = held_at(&settings, against, place);
    let mut before = held_at(&old, against, place);
    // `git branch -d` takes away all that is said about a branch.
    let known = Seen::of(&settings);
    before.retain(|one| match parts(one) {
        ("branch", Some(branch), "remote") => known.has("branch", &branch),
        _ => true,
    });
    let keys = |settings: &[&Setting]| settings.iter().map(|one| one.key()).collect::<Vec<_>>();
    let (after_keys, before_keys) = (keys(&after), keys(&before));
    if after_keys == before_keys {
        return Ok(Vec::new());
    }
    let (in_after, in_before): (HashSet<_>, HashSet<_>) = (after_keys.iter().collect(), before_keys.iter().collect());
    let added = after.iter().zip(&after_keys).filter(|(_, key)| !in_before.contains(key));
    let gone = before.iter().zip(&before_keys).filter(|(_, key)| !in_after.contains(key));
    let mut names: Vec<String> = added.chain(gone).map(|(one, _)| name(one)).collect();
    if names.is_empty() {
        // The same settings in another order, or another number of times.
        names = after.iter().chain(&before).map(|one| name(one)).collect();
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// The name of a setting as people write it.
fn name(setting: &Setting) -> String {
    match &setting.subsection {
        None => format!("{}.{}", setting.section, setting.name),
        Some(sub) => format!("{}.{}.{}", setting.section, sub.escape_ascii(), setting.name),
    }
}

/// Returns the configuration of a new repository without the settings that need an accept; `None` when that cannot be
/// done for certain.
#[must_use]
pub fn strip(text: &[u8], place: &Place<'_>) -> Option<Vec<u8>> {
    let settings = parse(text).ok()?;
    let out: Vec<_> = held_at(&settings, &[], place).into_iter().map(|one| one.at.clone()).collect();
    let mut rest = Vec::with_capacity(text.len());
    let mut from = 0;
    for at in &out {
        rest.extend_from_slice(&text[from..at.start]);
        from = at.end;
    }
    rest.extend_from_slice(&text[from..]);
    // Read it again: what was taken out must not have changed the meaning of what stays.
    let again = parse(&rest).ok()?;
    let taken: HashSet<usize> = out.iter().map(|at| at.start).collect();
    let stays = settings.iter().filter(|one| !taken.contains(&one.at.start)).map(Setting::key);
    (again.iter().map(Setting::key).eq(stays) && held_at(&again, &[], place).is_empty()).then_some(rest)
}
