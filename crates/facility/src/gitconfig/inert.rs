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
//! | `core.bare` in a new repository that is not named `.git`, and that says no in each new one; there also the `core.worktree` of a submodule, when the `.git` file of that working tree names the git directory | there is no hook or program yet that git could look for at another place |
//! | `init.defaultBranch`, `push.default`, `pull.*`, `rebase.*`, `merge.*`, `fetch.*` as listed | choose between built-in ways; each is a truth value or a known word |
//! | `color`, `column`, `advice`, `diff.*`, `log.*`, `status.*` as listed | how output looks |
//! | a new remote with a plain URL, which is no path into the workspace or a git directory, and refs of its own | used only when somebody names it; not `origin` beside other remotes, which git takes by default, and no name that a setting names already |
//! | a branch's first `remote`, when git takes it for this branch by default, or `.`; the first `merge`; `rebase`, `description` | what `git checkout --track` and `git push -u` write |
//! | all settings of a branch that go together with its ref | what `git branch -d` takes away |
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
use super::urls::{is_plain_refspec, is_plain_url, leads_inside};
use super::values::Value::{Bool, No, Style, Text, Words};
use super::values::{ALIASED, INERT};
use super::{Setting, Unreadable, parse};
use std::collections::{HashMap, HashSet};

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
    /// Branches that have something to merge.
    merging: HashSet<Vec<u8>>,
    remotes: HashSet<Vec<u8>>,
    /// The first parts of their names, folded: where their refs are.
    ref_heads: HashSet<Vec<u8>>,
    /// The names of remotes that other settings say, also without such a remote.
    named: HashSet<Vec<u8>>,
    is_empty: bool,
}

impl Seen {
    fn of(settings: &[Setting]) -> Self {
        let mut known = Self { is_empty: settings.is_empty(), ..Self::default() };
        for setting in settings {
            known.add(setting);
        }
        known
    }

    fn add(&mut self, setting: &Setting) {
        let (section, subsection, name) = parts(setting);
        if matches!((section, name), ("branch", "remote" | "pushremote") | ("remote", "pushdefault")) {
            self.named.extend(setting.value.clone());
        }
        // `git fetch GROUP`, and where an abbreviated branch comes from.
        if section == "remotes" || (section, name) == ("checkout", "defaultremote") {
            let names = setting.value.iter().flat_map(|value| value.split(u8::is_ascii_whitespace));
            self.named.extend(names.map(<[u8]>::to_vec));
        }
        match (section, subsection) {
            ("alias", None) => {
                self.aliases.insert(name.to_owned());
            }
            (section, Some(subsection)) => {
                if section == "remote" {
                    let head = subsection.split(|byte| *byte == b'/').next().unwrap_or_default();
                    self.ref_heads.insert(crate::fold::fold(head).into_owned());
                }
                match (section, name) {
                    ("branch", "remote") => self.tracking.insert(subsection.clone()),
                    ("branch", "merge") => self.merging.insert(subsection.clone()),
                    ("remote", _) => self.remotes.insert(subsection.clone()),
                    _ => false,
                };
                self.parts.insert((section.to_owned(), subsection));
            }
            _ => {}
        }
    }

    /// The remote that git takes for a branch that names none.
    fn default_remote(&self) -> Option<&[u8]> {
        match self.remotes.iter().next() {
            _ if self.remotes.contains(&b"origin"[..]) => Some(b"origin"),
            Some(only) if self.remotes.len() == 1 => Some(only),
            _ => None,
        }
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
                // With `true`, git in a working tree below would take hooks and programs from wherever it is started.
                Known::New => No.fits(value) || (Bool.fits(value) && !is_in_git(self.place.git_dir)),
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
            ("branch", Some(_)) if self.is_partial() && matches!(name, "remote" | "merge") => false,
            ("remote", Some(remote)) => self.is_new_remote(&remote, name, value),
            ("branch", Some(branch)) => match (name, value) {
                ("remote", Some(value)) => self.is_first_remote(&branch, value),
                ("merge", Some(value)) => {
                    !self.base.merging.contains(&branch) && value.starts_with(b"refs/") && Text.fits(Some(value))
                }
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
        let is_default = remote == b"origin" && !self.base.remotes.is_empty();
        // Its refs would be those of another remote: below them, or the same where the file system folds names.
        let shares_refs = self.base.ref_heads.contains(crate::fold::fold(remote).as_ref());
        if !is_name || is_default || shares_refs || self.base.named.contains(remote) {
            return false;
        }
        match name {
            "url" => value.is_some_and(|url| is_plain_url(url) && !leads_inside(url, self.place.git_dir)),
            "fetch" => value.is_some_and(|spec| is_plain_refspec(spec, remote)),
            "tagopt" => matches!(value, Some(b"--tags" | b"--no-tags")),
            "prune" | "prunetags" => Bool.fits(value),
            _ => false,
        }
    }

    /// Another remote than git takes by default would take the next push along, also for a branch that comes later: a run
    /// may bring the remote, and the next one the branch.
    fn is_first_remote(&self, branch: &[u8], remote: &[u8]) -> bool {
        let known = if self.base.remotes.is_empty() { &self.new } else { &self.base };
        !self.base.tracking.contains(branch) && (remote == b"." || known.default_remote() == Some(remote))
    }
}

/// Whether a path is `.git` or leads through it.
fn is_in_git(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| crate::fold::fold(name).as_ref() == b".git")
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
/// A git directory that goes with its file is judged by [`kept`].
pub fn changed(new: Option<&[u8]>, base: Option<&[u8]>, place: &Place<'_>) -> Result<Vec<String>, Unreadable> {
    let read = |text: Option<&[u8]>| text.map_or(Ok(Vec::new()), parse);
    let (settings, old) = (read(new)?, read(base)?);
    let after = held_at(&settings, &old, place);
    let mut before = held_at(&old, &old, place);
    let known = Seen::of(&settings);
    let mut goes: HashMap<Vec<u8>, bool> = HashMap::new();
    before.retain(|one| match parts(one) {
        ("branch", Some(branch), _) if !known.has("branch", &branch) => {
            !*goes.entry(branch).or_insert_with_key(|branch| (place.branch_goes)(branch))
        }
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

/// Returns the names of the settings for which a git directory does not go or move unasked: a new one in its place could
/// bring others of them, which would be inert there.
pub fn kept(text: &[u8], place: &Place<'_>) -> Result<Vec<String>, Unreadable> {
    let settings = parse(text)?;
    let context = Context { base: Seen::of(&[]), new: Seen::of(&settings), place: *place };
    let stays = |one: &&Setting| match parts(one) {
        ("remote" | "submodule", Some(_), _) | ("branch", Some(_), "remote") | ("core", None, "worktree") => true,
        // Another directory has its working tree.
        ("core", None, "bare") if !is_in_git(place.git_dir) && No.fits(one.value.as_deref()) => true,
        _ => !context.is_inert(one),
    };
    let mut names: Vec<String> = settings.iter().filter(stays).map(name).collect();
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
