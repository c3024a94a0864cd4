//! `--ro SRC[:DST]` and `--rw SRC[:DST]`.

use crate::failure::Failure;
use crate::places::Places;
use nexus_model::plan::{Access, Bind};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Reads all binds and looks that each source exists and shows nothing of Nexus's own.
pub fn read(ro: &[OsString], rw: &[OsString], workspace: &Path, places: &Places) -> Result<Vec<Bind>, Failure> {
    let ro = ro.iter().map(|text| (text, Access::ReadOnly));
    let rw = rw.iter().map(|text| (text, Access::ReadWrite));
    ro.chain(rw).map(|(text, access)| one(text, access, workspace, places)).collect()
}

fn one(text: &OsStr, access: Access, workspace: &Path, places: &Places) -> Result<Bind, Failure> {
    let (source, target) = split(text);
    let flag = if access == Access::ReadOnly { "--ro" } else { "--rw" };
    let refuse = |message: String, hint: &str| Err(Failure::refused("bind", message, hint));
    if source.as_os_str().is_empty() {
        return refuse(format!("{flag} needs a path"), "write for example --ro /opt/tool or --ro /opt/tool:/tool");
    }
    let canonical = match std::fs::canonicalize(&source) {
        Ok(path) => path,
        Err(error) => {
            return refuse(
                format!("{flag} {}: {error}", source.display()),
                "bind a path that exists and that you can reach",
            );
        }
    };
    if places.state.starts_with(&canonical) || canonical.starts_with(&places.state) {
        let message = format!("{flag} {} would show the state directory of Nexus inside", source.display());
        return refuse(message, "bind a smaller folder");
    }
    if access == Access::ReadWrite && workspace.starts_with(&canonical) {
        let message = format!("{flag} {} holds the workspace: changes would go around its layer", source.display());
        return refuse(message, "bind a smaller folder, or use --direct to write the workspace without a layer");
    }
    let target = match target {
        Some(target) => target,
        // At the path that the caller wrote, so that tools find it where they look for it.
        None => std::path::absolute(&source).ok().filter(|path| plain(path)).unwrap_or_else(|| canonical.clone()),
    };
    Ok(Bind { source: canonical.into(), target: target.into(), access })
}

fn plain(path: &Path) -> bool {
    !path.components().any(|part| part == std::path::Component::ParentDir)
}

/// At the first `:/`, so that a path with a colon in it can be bound.
fn split(text: &OsStr) -> (PathBuf, Option<PathBuf>) {
    let bytes = text.as_bytes();
    match bytes.windows(2).position(|pair| pair == b":/") {
        Some(at) => {
            let target = bytes[at + 1..].strip_suffix(b"/").filter(|rest| !rest.is_empty()).unwrap_or(&bytes[at + 1..]);
            (OsStr::from_bytes(&bytes[..at]).into(), Some(OsStr::from_bytes(target).into()))
        }
        None => (text.into(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places::below("/var/lib/nexus".into())
    }

    fn bind(text: &str, access: Access) -> Result<Bind, Failure> {
        one(OsStr::new(text), access, Path::new("/usr/lib/project"), &places())
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
