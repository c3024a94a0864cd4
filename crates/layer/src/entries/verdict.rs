//! Decides about single entries of a layer: whether the entry changes anything, how it is reported, and whether it needs an accept.
//! Pure.

use crate::entries::changes::{Change, ChangeKind};
use crate::entries::protected::{Class, Rules};
use crate::entries::tree::{LayerTree, Lower, Node, Role, Verdict};
use crate::meta::EntryType;
use nexus_git::objects as git_objects;
use nexus_model::ByteText;

const SETID: u32 = 0o6000;
const EXECUTE: u32 = 0o111;

/// Returns what waits of a file of git that is committed in part.
pub(crate) fn stripped(class: &Class) -> &'static str {
    match class {
        Class::GitState(why) => why,
        _ => "git configuration beyond what is inert",
    }
}

/// The reason why a directory waits that comes in the place of a `.git` file.
const OWN_REPOSITORY: &str = "a directory in the place of the file that names the git directory: reject it unless this is to be a repository of its own";
/// The reason why a directory waits that comes in the place of another file of git's.
const NO_FILE: &str = "a directory in the place of a file of git: reject it, git cannot use it";

/// The reason why a database waits whose log was not accepted with it, or the other way round.
pub(crate) const IN_HALVES: &str =
    "is one database with the file -wal or -journal beside it, which was not accepted: accept both, or reject both";

/// Reason for an entry that waits because it lies in a directory which this user cannot enter.
pub(crate) const UNSEEN: &str =
    "in a directory that is closed to its owner: accept the directory first, or open it with chmod u+rwx";

/// Says that a ref waits for the file `shallow`, without which no accept brings it: git would take the repository for
/// damaged.
pub(crate) const NEEDS_SHALLOW: &str =
    "needs the file shallow of its git directory, which waits or was rejected: accept that file first";

/// The reason why an entry stays in the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hold {
    /// By its name, or by what a file of this name says: until the user names it.
    Name(String),
    /// By its bits or attributes: until the user names exactly this path.
    Exact(String),
    /// By what lies in a directory that goes away or moves: until the user accepts all that is protected.
    Content(String),
    /// No commit may make it as things are.
    Never(String),
}

impl Hold {
    /// The reason, for people.
    pub(crate) fn why(&self) -> &str {
        let (Self::Name(why) | Self::Exact(why) | Self::Content(why) | Self::Never(why)) = self;
        why
    }

    /// Reports whether the user accepted the entry although it is held back.
    pub(crate) fn is_accepted(&self, rules: &Rules, node: &Node) -> bool {
        let path = &node.path.0;
        // Without the directory the accepted entry in it has no place. Its other entries are classified on their own.
        let leads = || is_new_directory(node) && rules.accepts_below(path);
        match self {
            Self::Name(_) => rules.accepts_protected(path) || leads(),
            Self::Exact(_) => rules.accepts_exactly(path),
            Self::Content(_) => rules.accept_protected,
            Self::Never(_) => false,
        }
    }
}

fn is_new_directory(node: &Node) -> bool {
    let is_entry = node.role == Role::Entry && node.meta.kind == EntryType::Directory;
    is_entry && node.rare.lower == Lower::None && node.covers.is_none()
}

/// Reports whether the workspace already is as this entry wants it.
pub(crate) fn is_nothing(tree: &LayerTree, node: &Node) -> bool {
    if node.rare.unseen {
        return false;
    }
    if node.rare.verdict == Some(Verdict::LeaveOut) {
        return true;
    }
    match (node.role, &node.rare.lower) {
        (Role::Whiteout | Role::Implied, _) if git_objects::stays(&node.path.0) => return true,
        (Role::Whiteout | Role::Implied, _) => return node.covers.is_none() || node.claimed,
        (Role::Entry, Lower::Merged(found)) => {
            let (new, old) = (&node.meta, &found.meta);
            return (new.mode, new.uid, new.gid) == (old.mode, old.uid, old.gid) && node.same_attrs;
        }
        (Role::Entry, Lower::Moved(_) | Lower::Missing) => return false,
        (Role::Entry, Lower::None) => {}
    }
    let Some(found) = &node.covers else { return false };
    if let Some(group) = node.group().map(|number| &tree.groups[number]) {
        let own = group.anchor.as_ref().is_some_and(|anchor| anchor.meta.id == found.meta.id);
        return own && group.same;
    }
    let (new, old) = (&node.meta, &found.meta);
    let equal = new.kind == old.kind
        && (new.uid, new.gid) == (old.uid, old.gid)
        && (new.mode == old.mode || new.kind == EntryType::Symlink)
        && node.same_content
        && node.same_attrs;
    // An equal file that was made again has parted from the other names of the old one.
    equal && !node.marks.forged && (node.marks.origin.is_some() || old.links == 1)
}

/// Returns why an entry that changes something may not be committed unasked.
pub(crate) fn hold(node: &Node, rules: &Rules) -> Option<Hold> {
    let protected = |why: &str| Some(Hold::Name(why.to_owned()));
    let exact = |why: &str| Some(Hold::Exact(why.to_owned()));
    let is_dir = node.meta.kind == EntryType::Directory;
    if node.pinned {
        return Some(Hold::Never("append-only or immutable in the workspace (chattr)".to_owned()));
    }
    if node.rare.unseen {
        return Some(Hold::Never(UNSEEN.to_owned()));
    }
    if let Some(why) = node.rare.never {
        return Some(Hold::Never(why.to_owned()));
    }
    if let Some(Verdict::Park(why)) = &node.rare.verdict
        && [NEEDS_SHALLOW, IN_HALVES].contains(&why.as_str())
    {
        return Some(Hold::Never(why.clone()));
    }
    if let (true, Some(Verdict::Park(why))) = (node.rare.in_unit, &node.rare.verdict) {
        return Some(Hold::Never(why.clone()));
    }
    if node.role == Role::Entry {
        if node.meta.kind == EntryType::Device {
            return Some(Hold::Never("device node".to_owned()));
        }
        if has_setuid(node) {
            return exact("setuid or setgid bits or file capabilities");
        }
        if node.marks.forged {
            return exact("attributes that the next layer would obey");
        }
    }
    let class = rules.class(&node.path.0);
    let by_name = match (&class, node.role) {
        (Class::Listed(pattern), _) => protected(pattern),
        (Class::MustBeDirectory, Role::Entry) if !is_dir => {
            protected("must stay a directory: protected names lie in it")
        }
        // The process that put a link there chose where the protected names are (vector B07).
        (Class::MustBeDirectory, _)
            if node.covers.as_ref().is_some_and(|found| found.meta.kind == EntryType::Symlink) =>
        {
            protected("replaces a link that leads to protected names")
        }
        (Class::NoLink, Role::Entry) if node.meta.kind == EntryType::Symlink => {
            protected("a link to git's private directories")
        }
        (Class::GitRoot | Class::GitConfig | Class::GitHook | Class::GitCommonDir, Role::Entry)
            if is_dir && node.covers.is_none() =>
        {
            match &node.rare.verdict {
                // It closes the directory to its owner (`closed_directories`).
                Some(Verdict::Park(why)) => protected(why),
                Some(Verdict::Commit | Verdict::Strip(_) | Verdict::LeaveOut) | None => None,
            }
        }
        // A directory of what git resumes is held back whole; that it goes away is fine.
        (Class::GitState(why), Role::Entry) if is_dir => protected(why),
        // The directory that goes away is classified by what is in it, below.
        (Class::GitRoot | Class::GitState(_), Role::Whiteout | Role::Implied)
            if node.covers.as_ref().is_some_and(|found| found.meta.kind == EntryType::Directory) =>
        {
            match &node.rare.verdict {
                Some(Verdict::Park(why)) if class == Class::GitRoot => protected(why),
                _ => None,
            }
        }
        // In a bare repository the content was classified all the same (`bare`).
        (Class::Plain | Class::MustBeDirectory | Class::NoLink, _) => match &node.rare.verdict {
            Some(Verdict::Park(why)) => protected(why),
            Some(Verdict::Commit | Verdict::Strip(_) | Verdict::LeaveOut) | None => None,
        },
        (Class::GitRoot | Class::GitConfig | Class::GitHook | Class::GitCommonDir | Class::GitState(_), _) => {
            match &node.rare.verdict {
                Some(Verdict::Commit | Verdict::Strip(_) | Verdict::LeaveOut) => None,
                Some(Verdict::Park(why)) => protected(why),
                None => protected(if class == Class::GitRoot { OWN_REPOSITORY } else { NO_FILE }),
            }
        }
    };
    if by_name.is_some() {
        return by_name;
    }
    if let Lower::Moved(found) = &node.rare.lower {
        for (class, arrives) in [(&class, true), (&rules.class(&found.at.0), false)] {
            match class {
                Class::Listed(pattern) => return exact(pattern),
                Class::GitState(why) if arrives => return exact(why),
                Class::Plain | Class::MustBeDirectory | Class::NoLink | Class::GitState(_) => {}
                Class::GitRoot | Class::GitConfig | Class::GitHook | Class::GitCommonDir => {
                    return exact("a directory that becomes or was a part of git's");
                }
            }
        }
    }
    let inside = node.rare.scan.as_ref().and_then(|scan| scan.protected.as_ref());
    inside.map(|(path, why)| Hold::Content(format!("{why} in {}", String::from_utf8_lossy(&path.0))))
}

/// Directories inherit the setgid bit from their parent, so only files count.
fn has_setuid(node: &Node) -> bool {
    node.marks.capability || (node.meta.kind == EntryType::File && node.meta.mode & SETID != 0)
}

/// The report of an entry that changes something.
pub(crate) fn change(tree: &LayerTree, node: &Node, rules: &Rules) -> Change {
    let gone = node.role != Role::Entry;
    let of = match &node.covers {
        Some(found) if gone => &found.meta,
        _ => &node.meta,
    };
    let old_mode = match (&node.rare.lower, &node.covers) {
        (Lower::None, Some(found)) => Some(found.meta.mode),
        _ => None,
    };
    let is_file = of.kind == EntryType::File;
    let executable = !gone && is_file && of.mode & EXECUTE != 0 && old_mode.is_none_or(|mode| mode & EXECUTE == 0);
    Change {
        path: shown(&node.path.0),
        kind: kind(tree, node),
        file_type: of.kind,
        size: if is_file { of.size } else { 0 },
        mode: of.mode,
        protected: match (hold(node, rules), &node.rare.verdict) {
            (Some(hold), _) => Some(hold.why().to_owned()),
            (None, Some(Verdict::Strip(_))) => Some(stripped(&rules.class(&node.path.0)).to_owned()),
            (None, _) => None,
        },
        setuid: !gone && has_setuid(node),
        new_executable: executable,
        hook: rules.class(&node.path.0) == Class::GitHook,
        skipped: node.role == Role::Entry && node.meta.kind == EntryType::Socket,
        by_content: matches!(hold(node, rules), Some(Hold::Content(_))),
    }
}

/// A path as a report has it: `.` for the workspace itself.
pub(crate) fn shown(path: &[u8]) -> ByteText {
    ByteText(if path.is_empty() { b".".to_vec() } else { path.to_vec() })
}

fn kind(tree: &LayerTree, node: &Node) -> ChangeKind {
    if node.role != Role::Entry {
        return ChangeKind::Deleted;
    }
    match (&node.rare.lower, &node.covers) {
        (Lower::Moved(found), _) => ChangeKind::Renamed { from: found.at.text() },
        (Lower::Merged(found), _) => {
            let owner = (node.meta.uid, node.meta.gid) == (found.meta.uid, found.meta.gid);
            if owner && node.same_attrs { ChangeKind::Mode } else { ChangeKind::Modified }
        }
        (Lower::None | Lower::Missing, None) => ChangeKind::Added,
        (Lower::None | Lower::Missing, Some(found)) if node.claimed || found.meta.kind != node.meta.kind => {
            ChangeKind::Type { was: found.meta.kind }
        }
        (Lower::None | Lower::Missing, Some(found)) => {
            let owner = (node.meta.uid, node.meta.gid) == (found.meta.uid, found.meta.gid);
            let shared = node.group().is_some_and(|number| tree.groups[number].members.len() > 1);
            let only_mode =
                owner && node.same_content && node.same_attrs && !shared && node.meta.mode != found.meta.mode;
            if only_mode { ChangeKind::Mode } else { ChangeKind::Modified }
        }
    }
}
