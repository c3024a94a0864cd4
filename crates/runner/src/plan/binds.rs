//! Host paths that are shown: of the caller, of profiles, and of toolchains.
//!
//! Where two go to the same place the nearer one counts: one of the caller before one of a profile before one of a toolchain.

use crate::host::Host;
use crate::plan::configuration;
use crate::plan::devices::{self, DeviceError};
use crate::plan::guarded::Guarded;
use crate::plan::shown::Shown;
use crate::request::{BindRequest, Shows, ToolBind, ToolSource, Tools};
use nexus_model::plan::{Access, Bind};
use nexus_policy::profile::{BindRule, Grants, Origin, Sourced};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A path cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A device cannot be given.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The path cannot be reached.
    #[error("{from} {}: {source}", path.display())]
    Unreachable {
        /// The flag or file that asked for it.
        from: Origin,
        /// The path that was asked for.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// The path holds the state directory, or lies in it.
    #[error("{from} {} would show the state directory of Nexus inside", path.display())]
    OfState {
        /// The flag or file that asked for it.
        from: Origin,
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The command would decide the rights of the next run.
    #[error("{from} {} would let the command write the configuration of Nexus ({})", path.display(), place.display())]
    OfConfiguration {
        /// The flag or file that asked for it.
        from: Origin,
        /// The path that was asked for.
        path: PathBuf,
        /// The place of the configuration.
        place: PathBuf,
    },
    /// The command would decide what programs of the caller execute, or where they fetch from.
    #[error("{from} {} would let the command write settings of your programs ({})", path.display(), place.display())]
    OfPrograms {
        /// The flag or file that asked for it.
        from: Origin,
        /// The path that was asked for.
        path: PathBuf,
        /// The place of the settings.
        place: PathBuf,
    },
    /// The command would write to the workspace around its layer.
    #[error("{from} {} holds the workspace: changes would go around its layer", path.display())]
    HoldsWorkspace {
        /// The flag or file that asked for it.
        from: Origin,
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The path is guarded.
    #[error("{from} {} cannot be shown: {why}", path.display())]
    Guarded {
        /// The flag or file that asked for it.
        from: Origin,
        /// The path that was asked for.
        path: PathBuf,
        /// The reason for it.
        why: String,
    },
    /// The caller has no home directory.
    #[error(transparent)]
    NoHome(#[from] NoHome),
}

impl BindError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Device(inner) => inner.code(),
            _ => "bind",
        }
    }
}

/// A path begins with `~/`, and the caller has no home directory.
#[derive(Debug, thiserror::Error)]
#[error("{from}: there is no home directory for {text}")]
pub struct NoHome {
    /// The file that has the path.
    pub from: Origin,
    /// The path as written.
    pub text: String,
}

/// Reads all binds and looks that each source exists and shows nothing of Nexus's own.
pub fn read(shows: &Shows, grants: &Grants, tools: &Tools, place: &Place<'_>) -> Result<Vec<Shown>, BindError> {
    let reader = Reader { place, opened: &shows.opened, configurations: OnceCell::new(), settings: OnceCell::new() };
    let mut all = Vec::new();
    for asked in &shows.binds {
        all.push(reader.asked(asked)?);
    }
    all.extend(devices::read(&shows.devices, &shows.opened)?);
    let flags = all.len();
    for (rules, access) in [(&grants.ro, Access::ReadOnly), (&grants.rw, Access::ReadWrite)] {
        for rule in rules {
            add(&mut all, flags, reader.rule(rule, access)?);
        }
    }
    for name in &grants.etc {
        let path = Path::new("/etc").join(&name.value);
        if path.symlink_metadata().is_ok() {
            let bind = reader.one(&path, None, Access::ReadOnly, &name.from)?;
            add(&mut all, flags, bind);
        }
    }
    let nearer = all.len();
    // What no file and no flag asked for stops no run.
    let mut left_out: Vec<&Path> = Vec::new();
    for tool in &tools.binds {
        let is_auto = tool.from.auto_reason().is_some();
        let shown = match reader.tool(tool) {
            Ok(shown) if !is_auto || (is_unmoved(&tool.source, &shown) && has_room(&shown, &all[..nearer], place)) => {
                shown
            }
            Err(error) if !is_auto => return Err(error),
            Ok(_) | Err(_) => {
                left_out.push(&tool.target);
                continue;
            }
        };
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
    // The files over logins in a directory go with it.
    all.retain(|shown| {
        let target = shown.bind.target.as_path();
        shown.made.is_none()
            || shown.from.auto_reason().is_none()
            || !left_out.iter().any(|directory| target.starts_with(directory))
    });
    Ok(all)
}

/// Reports whether a source is still the path that was found: its links were resolved then, so a link in it is new. Those of
/// `/etc` are the system's.
fn is_unmoved(found: &ToolSource, shown: &Shown) -> bool {
    match found {
        ToolSource::Path(source) => shown.bind.source.as_path() == source || source.starts_with("/etc"),
        ToolSource::Made(_) => true,
    }
}

/// Reports whether a path that no file and no flag asked for neither holds nor lies in the workspace or what was asked for.
fn has_room(shown: &Shown, asked: &[Shown], place: &Place<'_>) -> bool {
    let (source, target) = (shown.bind.source.as_path(), shown.bind.target.as_path());
    let meets = |other: &Path| other.starts_with(target) || target.starts_with(other);
    // At another place what is hidden in the workspace would be seen.
    let is_workspace = place.workspace.starts_with(source) || source.starts_with(place.workspace);
    !meets(place.workspace)
        && (shown.made.is_some() || !is_workspace)
        && !asked.iter().any(|other| meets(other.bind.target.as_path()))
}

/// Adds a bind unless one of the first `nearer` goes to the same place. Two of the same rank stay, and the plan refuses
/// them: nothing says which one counts.
fn add(all: &mut Vec<Shown>, nearer: usize, shown: Shown) {
    if !all[..nearer].iter().any(|other| other.bind.target == shown.bind.target) {
        all.push(shown);
    }
}

/// The place of a run on its host.
pub struct Place<'a> {
    /// Brings variables and home of the caller.
    pub host: &'a Host,
    /// The path of the workspace.
    pub workspace: &'a Path,
    /// The state directory.
    pub state: &'a Path,
    /// Paths that are not shown.
    pub guarded: &'a Guarded,
}

struct Reader<'a> {
    place: &'a Place<'a>,
    /// Paths that the operator opened.
    opened: &'a [Sourced<String>],
    /// Places of the configuration of Nexus, looked for with the first path that is writable.
    configurations: OnceCell<Vec<PathBuf>>,
    /// Places of the settings of programs, in the same way.
    settings: OnceCell<Vec<PathBuf>>,
}

impl Reader<'_> {
    fn configurations(&self) -> &[PathBuf] {
        let host = self.place.host;
        self.configurations.get_or_init(|| configuration::places(host, &homes(host)))
    }

    fn settings(&self) -> &[PathBuf] {
        let host = self.place.host;
        self.settings.get_or_init(|| configuration::of_programs(host, &homes(host)))
    }

    fn asked(&self, asked: &BindRequest) -> Result<Shown, BindError> {
        let target = asked.target.as_ref().map(|target| trimmed(target.as_os_str()));
        self.one(&asked.source, target, asked.access, &asked.from)
    }

    fn rule(&self, rule: &Sourced<BindRule>, access: Access) -> Result<Shown, BindError> {
        let source = in_home(self.place.host, &rule.value.src, &rule.from)?;
        let target = rule.value.dst.as_ref().map(|dst| trimmed(OsStr::new(dst)));
        self.one(&source, target, access, &rule.from)
    }

    fn tool(&self, tool: &ToolBind) -> Result<Shown, BindError> {
        let target = tool.target.clone();
        let mut shown = match &tool.source {
            ToolSource::Path(source) => self.one(source, Some(target), Access::ReadOnly, &tool.from)?,
            ToolSource::Made(content) => Shown {
                bind: Bind { source: target.clone().into(), target: target.into(), access: Access::ReadOnly },
                made: Some(content.clone()),
                why: None,
                from: tool.from.clone(),
                by_operator: false,
            },
        };
        shown.why = Some(tool.why);
        Ok(shown)
    }

    fn one(&self, source: &Path, target: Option<PathBuf>, access: Access, from: &Origin) -> Result<Shown, BindError> {
        let Place { workspace, state, guarded, .. } = self.place;
        let (path, from) = (source.to_owned(), from.clone());
        let canonical = match real(source) {
            Ok(path) => path,
            Err(source) => return Err(BindError::Unreachable { from, path, source }),
        };
        if state.starts_with(&canonical) || canonical.starts_with(state) {
            return Err(BindError::OfState { from, path });
        }
        if access == Access::ReadWrite && workspace.starts_with(&canonical) {
            return Err(BindError::HoldsWorkspace { from, path });
        }
        let mut by_operator = false;
        if let Some(why) = guarded.refusal(&canonical, access, |path| path.symlink_metadata().is_ok()) {
            by_operator = self.opened.iter().any(|path| canonical.starts_with(&path.value));
            if !by_operator {
                return Err(BindError::Guarded { from, path, why });
            }
        }
        // Also what the operator opened: a command must not decide its own rights.
        if access == Access::ReadWrite
            && let Some(place) = configuration::written_through(self.configurations(), &canonical)
        {
            return Err(BindError::OfConfiguration { from, path, place });
        }
        let opens = || self.opened.iter().any(|path| canonical.starts_with(&path.value));
        if access == Access::ReadWrite
            && let Some(place) = configuration::written_through(self.settings(), &canonical)
        {
            if !opens() {
                return Err(BindError::OfPrograms { from, path, place });
            }
            by_operator = true;
        }
        let target = match target {
            Some(target) => target,
            // At the path that the caller wrote, so that tools find it where they look for it.
            None => std::path::absolute(source).ok().filter(|path| plain(path)).unwrap_or_else(|| canonical.clone()),
        };
        let bind = Bind { source: canonical.into(), target: target.into(), access };
        Ok(Shown { bind, made: None, why: None, from, by_operator })
    }
}

/// Resolves a path. That of a tool has no link in it any more, which one call tells: to resolve it again would be a call for each
/// of its parts.
fn real(path: &Path) -> io::Result<PathBuf> {
    let plain: PathBuf = path.components().filter(|part| !matches!(part, Component::ParentDir)).collect();
    if path.is_absolute() && plain.as_os_str() == path.as_os_str() {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_ok() {
            return Ok(plain);
        }
    }
    std::fs::canonicalize(path)
}

fn homes(host: &Host) -> Vec<PathBuf> {
    host.home.clone().into_iter().collect()
}

/// Returns the caches of the caller's programs that a command may write to.
pub fn written_caches(all: &[Shown], host: &Host) -> Vec<PathBuf> {
    let written = all.iter().map(|shown| &shown.bind).filter(|bind| bind.access == Access::ReadWrite);
    let caches = written.filter(|bind| configuration::is_cache(bind.source.as_path(), &homes(host)));
    caches.map(|bind| bind.source.as_path().to_owned()).collect()
}

/// Reads a path that may begin with `~/`, which is the caller's home.
pub fn in_home(host: &Host, text: &str, from: &Origin) -> Result<PathBuf, NoHome> {
    match text.strip_prefix("~/") {
        None => Ok(PathBuf::from(text)),
        Some(rest) => match &host.home {
            Some(home) => Ok(home.join(rest)),
            None => Err(NoHome { from: from.clone(), text: text.to_owned() }),
        },
    }
}

fn trimmed(path: &OsStr) -> PathBuf {
    let bytes = path.as_bytes();
    OsStr::from_bytes(bytes.strip_suffix(b"/").filter(|rest| !rest.is_empty()).unwrap_or(bytes)).into()
}

fn plain(path: &Path) -> bool {
    !path.components().any(|part| part == std::path::Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(source: &str, access: Access) -> Result<Bind, BindError> {
        let host = Host { variables: std::collections::BTreeMap::new(), home: None, uid: 1000 };
        let place = Place {
            host: &host,
            workspace: Path::new("/usr/lib/project"),
            state: Path::new("/var/lib/nexus"),
            guarded: &Guarded::default(),
        };
        let from = Origin::Flag("--ro".to_owned());
        let shows = Shows {
            binds: vec![BindRequest { source: source.into(), target: None, access, from }],
            ..Shows::default()
        };
        let mut all = read(&shows, &Grants::default(), &Tools::default(), &place)?;
        Ok(all.remove(0).bind)
    }

    #[test]
    fn a_missing_source_is_refused_and_an_existing_one_is_bound_at_its_path() {
        assert_eq!(bind("/usr", Access::ReadOnly).unwrap().target, "/usr".into());
        assert!(bind("/no/such/path", Access::ReadOnly).is_err());
    }

    #[test]
    fn a_real_path_is_known_by_one_call_and_any_other_is_resolved() {
        let base = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(base.path()).unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", base.join("link")).unwrap();
        std::os::unix::fs::symlink("a/b", base.join("last")).unwrap();
        for path in ["a", "a/b", "link", "last", "link/b", "a/..", "a/../link/b", "a/./b", "a//b", "a/b/"] {
            let path = base.join(path);
            assert_eq!(real(&path).unwrap(), std::fs::canonicalize(&path).unwrap(), "{}", path.display());
            assert_eq!(real(&path).unwrap().as_os_str(), std::fs::canonicalize(&path).unwrap().as_os_str());
        }
        assert!(real(&base.join("missing")).is_err() && real(&base.join("a/missing/..")).is_err());
        assert_eq!(real(Path::new("/")).unwrap(), Path::new("/"));
        // Relative to the working directory, whatever that is.
        assert!(real(Path::new(".")).unwrap().is_absolute());
    }

    #[test]
    fn the_workspace_cannot_be_written_around_its_layer() {
        assert!(bind("/usr/lib", Access::ReadWrite).is_err());
        assert!(bind("/usr/lib", Access::ReadOnly).is_ok());
    }
}
