//! Tells which settings of a git configuration may change without an accept.
//!
//! git has several hundred settings, every version adds some, and programs beside git add their own. So nothing here
//! says what is dangerous: it says what is known to be inert, by git-config(1), and every other change needs an accept.
//! Inert is a setting that neither runs nor chooses a program, reads no other file, sends nothing to another place,
//! switches no check off, hides nothing from people and hooks, and deletes nothing. The list is as small as ordinary
//! work needs: a setting that a run seldom writes is worth an accept.
//!
//! Each group of settings, and why it is inert:
//!
//! * `user`, `author`, `committer`: text in new commits.
//! * `core.*` as listed, and in a new repository alone what says how files are stored, with the values that `git init` writes
//!   on a file system of Linux.
//! * `core.bare` in a new repository that is not named `.git`, and that says no in each new one; there also the
//!   `core.worktree` of a submodule, when the `.git` file of that working tree names the git directory: there is no
//!   hook or program yet that git could look for at another place.
//! * `init.defaultBranch`, `pull.*`, `rebase.*`, `merge.*`, `fetch.parallel` as listed: choose between built-in ways to
//!   change the checked-out branch; each is a truth value, a number or a known word.
//! * `color`, `column`, `advice`, `diff.*`, `log.*` as listed: how output looks on a terminal.
//! * in a new repository a remote with one plain URL, which is not a path into the workspace or a git directory, and
//!   refs of its own: no work of the user's is in it; the git directory of a submodule gets only the URL of
//!   `.gitmodules`.
//! * a branch's first `remote`, when git takes it for this branch by default; the first `merge`, when it has the name
//!   of the branch (in a new repository any); `rebase`, `description`: what `git push -u` writes.
//! * the only `merge` of a branch, when the repository has that branch of the branch's remote, had the remote before,
//!   and no known configuration says `push.default = upstream`: what `git checkout -b X origin/Y`, `git branch -u` and
//!   `git branch -m` write.
//! * all settings of a branch that go together with its ref, when it has no `pushRemote`, and no `remote` but the
//!   default one or `.`: what `git branch -d` takes away, and may bring again.
//! * a new submodule's `active`, and its `url` as `.gitmodules` says it: what `git submodule init` writes.
//! * `gc.auto` as a number, and in a new repository `commit.gpgSign` and `tag.gpgSign` when they say no: no program is
//!   started that was not before; what `gc` deletes and which hooks it runs is said elsewhere.
//!
//! Not inert although harmless at first sight: `core.fsmonitor = true` (starts a daemon), `core.pager` (always the name
//! of a program, also as `yes`), `push.*` (with `push.default = upstream`, `git push origin topic` may go to `main`),
//! `fetch.prune` and `fetch.pruneTags` (delete tags that were never pushed), a further remote (another configuration
//! may name it), an alias (the user may have one of this name), `core.trustCtime`, `core.checkStat` and, in a
//! repository that was there, `core.fileMode` and the like (`git status` would miss changes), `color.ui = always`,
//! colours, `core.whitespace`, `core.quotePath`, `diff.noprefix`, `diff.renames`, `status.short` and `grep.lineNumber`
//! (hooks and people would read another output), the other settings of `gc` (hooks, deletion), `core.protectHFS` and
//! `transfer.fsckObjects` (checks), `help.autocorrect` (runs a guess), `core.bigFileThreshold` and other numbers of the
//! storage are left out because no ordinary work writes them.

use super::parse::{Setting, Unreadable, parse};
use super::place::{Known, Place, is_own_worktree};
use super::urls::{is_plain_refspec, is_plain_url, leads_inside};
use super::values::Value::{Bool, No, Text, Words};
use super::values::{INERT, INERT_WHEN_NEW};
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

/// The names in one configuration that are looked up for each setting of another one.
#[derive(Default)]
struct Seen {
    /// Section and subsection.
    parts: HashSet<(String, Vec<u8>)>,
    /// Branches that have a remote, and their remotes.
    tracking: HashMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
    /// Branches that have something to merge, and how much.
    merging: HashMap<Vec<u8>, usize>,
    remotes: HashSet<Vec<u8>>,
    /// The number of URLs of each remote.
    urls: HashMap<Vec<u8>, usize>,
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
        let Some(subsection) = subsection else { return };
        match (section, name) {
            ("branch", "remote") => {
                self.tracking.entry(subsection.clone()).or_default().push(setting.value.clone());
            }
            ("branch", "merge") => *self.merging.entry(subsection.clone()).or_default() += 1,
            ("remote", name) => {
                self.remotes.insert(subsection.clone());
                *self.urls.entry(subsection.clone()).or_default() += usize::from(name == "url");
            }
            _ => {}
        }
        self.parts.insert((section.to_owned(), subsection));
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
            // In an existing repository they would switch off what the user's own configuration says.
            ("commit" | "tag", None) if name == "gpgsign" => self.place.known == Known::New && No.fits(value),
            (_, None) => {
                let when_new = if self.place.known == Known::New { INERT_WHEN_NEW } else { &[] };
                let mut known = INERT.iter().chain(when_new);
                known.any(|(s, n, wanted)| *s == section && (*n == name || *n == "*") && wanted.fits(value))
            }
            // They may take the place of others, which this file does not say.
            ("remote" | "submodule", Some(_)) if self.is_partial() => false,
            ("branch", Some(_)) if self.is_partial() && matches!(name, "remote" | "merge") => false,
            // Also the first one: `git push` failed before.
            ("remote", Some(remote)) => self.place.known == Known::New && self.is_new_remote(&remote, name, value),
            ("branch", Some(branch)) => match (name, value) {
                ("remote", Some(value)) => self.is_first_remote(&branch, value),
                ("merge", Some(value)) => {
                    let is_first = !self.base.merging.contains_key(&branch);
                    (is_first && self.is_upstream(&branch, value)) || self.is_of_known_remote(&branch, value)
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
                        "url" => value.is_some_and(|url| is_plain_url(url) && self.is_known_url(&module, url)),
                        "active" => Bool.fits(value),
                        _ => false,
                    }
            }
            _ => false,
        }
    }

    /// Returns the branches that have an upstream of a remote that the repository had before.
    fn led(&self, settings: &[Setting]) -> HashSet<Vec<u8>> {
        let of = |one: &Setting| match (parts(one), &one.value) {
            (("branch", Some(branch), "merge"), Some(value)) => {
                self.is_of_known_remote(&branch, value).then_some(branch)
            }
            _ => None,
        };
        settings.iter().filter_map(of).collect()
    }

    fn is_partial(&self) -> bool {
        matches!(self.place.known, Known::Nothing | Known::Part)
    }

    /// A remote of a new repository.
    fn is_new_remote(&self, remote: &[u8], name: &str, value: Option<&[u8]>) -> bool {
        // A name with a slash or a colon would stand for the URL or path that it spells.
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        if !remote.first().is_some_and(u8::is_ascii_alphanumeric) || !remote.iter().all(plain) {
            return false;
        }
        match name {
            "url" => value.is_some_and(|url| {
                let is_own =
                    self.place.module.is_none_or(|module| (self.place.module_url)(module).as_deref() == Some(url));
                // A push goes to each of several URLs.
                let is_only = self.new.urls.get(remote) == Some(&1);
                is_own && is_only && is_plain_url(url) && !leads_inside(url, self.place.git_dir)
            }),
            "fetch" => value.is_some_and(|spec| is_plain_refspec(spec, remote)),
            "tagopt" => matches!(value, Some(b"--tags" | b"--no-tags")),
            _ => false,
        }
    }

    /// With another name than the branch has, `push.default = upstream` in any configuration would push the branch
    /// there.
    fn is_upstream(&self, branch: &[u8], value: &[u8]) -> bool {
        let is_known = match self.place.known {
            Known::New => value.starts_with(b"refs/"),
            Known::All | Known::Nothing | Known::Part => value.strip_prefix(b"refs/heads/") == Some(branch),
        };
        is_known && Text.fits(Some(value))
    }

    /// Reports whether the only upstream of a branch is a branch of a remote that the repository had before. Another
    /// configuration could have the branch pushed there, but none is known.
    fn is_of_known_remote(&self, branch: &[u8], value: &[u8]) -> bool {
        let Some([Some(remote)]) = self.new.tracking.get(branch).map(Vec::as_slice) else { return false };
        let is_known = self.place.known == Known::All && self.base.remotes.contains(remote);
        let merge = value.strip_prefix(b"refs/heads/").filter(|_| Text.fits(Some(value)));
        let is_only = self.new.merging.get(branch) == Some(&1);
        is_known && is_only && merge.is_some_and(|merge| (self.place.has_upstream)(remote, merge))
    }

    fn is_known_url(&self, module: &[u8], url: &[u8]) -> bool {
        self.place.known == Known::New || (self.place.module_url)(module).as_deref() == Some(url)
    }

    /// Another remote than git takes by default would take the next push along, also for a branch that comes later: a
    /// run may bring the remote, and the next one the branch. With `.`, `git push` would publish nothing and say that
    /// all is well.
    fn is_first_remote(&self, branch: &[u8], remote: &[u8]) -> bool {
        let known = if self.place.known == Known::New { &self.new } else { &self.base };
        !self.base.tracking.contains_key(branch) && known.default_remote() == Some(remote)
    }
}

/// Reports whether a path is `.git` or leads through it.
fn is_in_git(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| nexus_beneath::fold::fold(name).as_ref() == b".git")
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
/// A git directory that goes with its file is evaluated by [`kept`].
pub fn changed(new: Option<&[u8]>, base: Option<&[u8]>, place: &Place<'_>) -> Result<Vec<String>, Unreadable> {
    let read = |text: Option<&[u8]>| text.map_or(Ok(Vec::new()), parse);
    let (settings, old) = (read(new)?, read(base)?);
    let context = Context { base: Seen::of(&old), new: Seen::of(&settings), place: *place };
    let after: Vec<_> = settings.iter().filter(|one| !context.is_inert(one)).collect();
    // Of an old upstream alone it is not known whether it may go.
    let mut before = held_at(&old, &old, &Place { has_upstream: &|_, _| false, ..*place });
    let known = &context.new;
    let led = context.led(&settings);
    let elsewhere = leading_elsewhere(&old);
    let mut goes: HashMap<Vec<u8>, bool> = HashMap::new();
    before.retain(|one| match parts(one) {
        ("branch", Some(branch), "merge") if led.contains(&branch) => false,
        ("branch", Some(branch), _) if !known.has("branch", &branch) && !elsewhere.contains(&branch) => {
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

/// Returns the branches that lead to another remote than git takes by default. A run that took their settings away
/// could bring the branch again, and its commits would go to the default remote.
fn leading_elsewhere(settings: &[Setting]) -> HashSet<Vec<u8>> {
    let seen = Seen::of(settings);
    let default = seen.default_remote();
    let leads = |one: &Setting| match parts(one) {
        ("branch", Some(branch), "pushremote") => Some(branch),
        ("branch", Some(branch), "remote") => {
            let is_usual = one.value.as_deref().is_some_and(|remote| remote == b"." || Some(remote) == default);
            (!is_usual).then_some(branch)
        }
        _ => None,
    };
    settings.iter().filter_map(leads).collect()
}

/// Returns the names of the settings for which a git directory does not go or move unasked: a new one in its place
/// could bring others of them, which would be inert there.
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
