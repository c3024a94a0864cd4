//! Host paths that are shown: of flags (`--ro SRC[:DST]`, `--rw SRC[:DST]`), of profiles, and of toolchains.
//!
//! Where two go to the same place the nearer one counts: a flag before a profile before a toolchain.

use crate::devices;
use crate::failure::Failure;
use crate::host;
use crate::profile::{FoundBind, Resolution, Source};
use nexus_model::plan::{Access, Bind};
use nexus_policy::profile::{BindRule, Origin, Sourced};
use nexus_runner::plan::guarded::Guarded;
use nexus_runner::state::directory::StateDir;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A bind with who asked for it.
pub struct Shown {
    /// What is bound; a file that Nexus makes has its content here and no source yet.
    pub bind: Bind,
    /// The content of a file that is made for the run.
    pub made: Option<Vec<u8>>,
    /// What it is, for a toolchain's.
    pub why: Option<&'static str>,
    /// Who asked for it.
    pub from: Origin,
    /// Whether it is shown only because the operator opened it.
    pub by_operator: bool,
}

/// Reads all binds and looks that each source exists and shows nothing of Nexus's own.
pub fn read(
    ro: &[OsString],
    rw: &[OsString],
    devices: &[PathBuf],
    resolution: &Resolution,
    workspace: &Path,
    places: &StateDir,
    guarded: &Guarded,
) -> Result<Vec<Shown>, Failure> {
    let look = Look { workspace, places, guarded, opened: &resolution.settings.binds };
    let mut all = Vec::new();
    for (texts, access) in [(ro, Access::ReadOnly), (rw, Access::ReadWrite)] {
        for text in texts {
            all.push(look.flag(text, access)?);
        }
    }
    all.extend(devices::read(devices, &resolution.settings.binds)?);
    let flags = all.len();
    let grants = &resolution.grants;
    for (rules, access) in [(&grants.ro, Access::ReadOnly), (&grants.rw, Access::ReadWrite)] {
        for rule in rules {
            add(&mut all, flags, look.rule(rule, access)?);
        }
    }
    for name in &grants.etc {
        let path = Path::new("/etc").join(&name.value);
        if path.symlink_metadata().is_ok() {
            let bind = look.one(&path, None, Access::ReadOnly, &name.from)?;
            add(&mut all, flags, bind);
        }
    }
    let nearer = all.len();
    for found in &resolution.found.binds {
        let shown = look.found(found)?;
        // What a nearer one shows at its own place is there already.
        let covered = |other: &Shown| {
            other.bind.source == other.bind.target
                && shown.bind.source == shown.bind.target
                && shown.bind.target.as_path().starts_with(other.bind.target.as_path())
        };
        if !all[..nearer].iter().any(covered) {
            add(&mut all, nearer, shown);
        }
    }
    Ok(all)
}

/// Adds it unless one of the first `nearer` goes to the same place. Two of the same rank stay, and the plan refuses
/// them: nobody said which one counts.
fn add(all: &mut Vec<Shown>, nearer: usize, shown: Shown) {
    if !all[..nearer].iter().any(|other| other.bind.target == shown.bind.target) {
        all.push(shown);
    }
}

struct Look<'a> {
    workspace: &'a Path,
    places: &'a StateDir,
    guarded: &'a Guarded,
    /// What the operator opened.
    opened: &'a [Sourced<String>],
}

impl Look<'_> {
    fn flag(&self, text: &OsStr, access: Access) -> Result<Shown, Failure> {
        let (source, target) = split(text);
        let flag = if access == Access::ReadOnly { "--ro" } else { "--rw" };
        if source.as_os_str().is_empty() {
            let hint = "write for example --ro /opt/tool or --ro /opt/tool:/tool";
            return Err(Failure::refused("bind", format!("{flag} needs a path"), hint));
        }
        self.one(&source, target, access, &Origin::Flag(flag.to_owned()))
    }

    fn rule(&self, rule: &Sourced<BindRule>, access: Access) -> Result<Shown, Failure> {
        let source = in_home(&rule.value.src, &rule.from)?;
        let target = rule.value.dst.as_ref().map(|dst| trimmed(OsStr::new(dst)));
        self.one(&source, target, access, &rule.from)
    }

    fn found(&self, found: &FoundBind) -> Result<Shown, Failure> {
        let target = found.target.clone();
        let mut shown = match &found.source {
            Source::Path(source) => self.one(source, Some(target), Access::ReadOnly, &found.from)?,
            Source::Made(content) => Shown {
                bind: Bind { source: target.clone().into(), target: target.into(), access: Access::ReadOnly },
                made: Some(content.clone()),
                why: None,
                from: found.from.clone(),
                by_operator: false,
            },
        };
        shown.why = Some(found.why);
        Ok(shown)
    }

    fn one(&self, source: &Path, target: Option<PathBuf>, access: Access, from: &Origin) -> Result<Shown, Failure> {
        let places = self.places;
        let refuse = |message: String, hint: &str| Err(Failure::refused("bind", message, hint));
        let canonical = match std::fs::canonicalize(source) {
            Ok(path) => path,
            Err(error) => {
                return refuse(
                    format!("{from} {}: {error}", source.display()),
                    "bind a path that exists and that you can reach",
                );
            }
        };
        if places.state.starts_with(&canonical) || canonical.starts_with(&places.state) {
            let message = format!("{from} {} would show the state directory of Nexus inside", source.display());
            return refuse(message, "bind a smaller folder");
        }
        if access == Access::ReadWrite && self.workspace.starts_with(&canonical) {
            let message = format!("{from} {} holds the workspace: changes would go around its layer", source.display());
            return refuse(message, "bind a smaller folder, or use --direct to write the workspace without a layer");
        }
        let mut by_operator = false;
        if let Some(why) = self.guarded.refusal(&canonical, access, |path| path.symlink_metadata().is_ok()) {
            by_operator = self.opened.iter().any(|path| canonical.starts_with(&path.value));
            if !by_operator {
                let message = format!("{from} {} cannot be shown: {why}", source.display());
                let hint = "Name a smaller directory. The operator can open this one by name with allow = [\"PATH\"] in the section [binds] of /etc/nexus/config.toml.";
                return refuse(message, hint);
            }
        }
        let target = match target {
            Some(target) => target,
            // At the path that the caller wrote, so that tools find it where they look for it.
            None => std::path::absolute(source).ok().filter(|path| plain(path)).unwrap_or_else(|| canonical.clone()),
        };
        let bind = Bind { source: canonical.into(), target: target.into(), access };
        Ok(Shown { bind, made: None, why: None, from: from.clone(), by_operator })
    }
}

/// `~/x` in the caller's home.
pub fn in_home(text: &str, from: &Origin) -> Result<PathBuf, Failure> {
    match text.strip_prefix("~/") {
        None => Ok(PathBuf::from(text)),
        Some(rest) => host::home().map(|home| home.join(rest)).ok_or_else(|| {
            let message = format!("{from}: there is no home folder for {text}");
            Failure::refused("bind", message, "write the whole path, or set HOME")
        }),
    }
}

fn trimmed(path: &OsStr) -> PathBuf {
    let bytes = path.as_bytes();
    OsStr::from_bytes(bytes.strip_suffix(b"/").filter(|rest| !rest.is_empty()).unwrap_or(bytes)).into()
}

fn plain(path: &Path) -> bool {
    !path.components().any(|part| part == std::path::Component::ParentDir)
}

/// At the first `:/`, so that a path with a colon in it can be bound.
fn split(text: &OsStr) -> (PathBuf, Option<PathBuf>) {
    let bytes = text.as_bytes();
    match bytes.windows(2).position(|pair| pair == b":/") {
        Some(at) => (OsStr::from_bytes(&bytes[..at]).into(), Some(trimmed(OsStr::from_bytes(&bytes[at + 1..])))),
        None => (text.into(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> StateDir {
        StateDir::below("/var/lib/nexus".into())
    }

    fn bind(text: &str, access: Access) -> Result<Bind, Failure> {
        let guarded = Guarded::default();
        let look = Look { workspace: Path::new("/usr/lib/project"), places: &places(), guarded: &guarded, opened: &[] };
        look.flag(OsStr::new(text), access).map(|shown| shown.bind)
    }

    #[test]
    fn a_bind_has_a_source_and_perhaps_a_target() {
        assert_eq!(split(OsStr::new("/a")), ("/a".into(), None));
        assert_eq!(split(OsStr::new("/a:/b/")), ("/a".into(), Some("/b".into())));
        assert_eq!(split(OsStr::new("/a:b")), ("/a:b".into(), None));
        assert_eq!(split(OsStr::new(":/b")), ("".into(), Some("/b".into())));
    }

    #[test]
    fn a_missing_source_is_refused_and_an_existing_one_is_bound_at_its_path() {
        assert_eq!(bind("/usr", Access::ReadOnly).unwrap().target, "/usr".into());
        assert!(bind("/no/such/path", Access::ReadOnly).is_err());
        assert!(bind("", Access::ReadOnly).is_err());
    }

    #[test]
    fn the_workspace_cannot_be_written_around_its_layer() {
        assert!(bind("/usr/lib", Access::ReadWrite).is_err());
        assert!(bind("/usr/lib", Access::ReadOnly).is_ok());
    }
}
