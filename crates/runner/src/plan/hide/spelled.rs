//! Reads a pattern of what is to be hidden, and finds the place in the workspace that its beginning names.
//!
//! ```text
//!  NAME, *.pem          a name at any depth
//!  config/*.key         a path from the workspace on; so are ./NAME and /NAME
//!  /home/me/ws/a.pem    the same file named from the root, also through a link to the workspace
//!  link/a.pem           the file that the link leads to
//!  /etc/x, link out, ..  refused: nothing of the workspace is there to hide
//! ```

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Signs that make a name a pattern.
const SIGNS: &[char] = &['*', '?', '[', ']', '{', '}', '\\'];

/// A pattern, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spelled<'a> {
    /// Begins with `/`.
    is_absolute: bool,
    /// Counts at any depth.
    is_name: bool,
    parts: Vec<&'a str>,
}

/// The paths of the workspace that a pattern stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// This path, relative to the workspace.
    Path(PathBuf),
    /// The paths that this pattern matches, from the workspace on.
    Pattern(String),
}

/// The two paths of the workspace: its own on the host, and the one that it has inside.
#[derive(Debug, Clone, Copy)]
pub struct Top<'a> {
    /// The real path on the host.
    pub workspace: &'a Path,
    /// The path inside.
    pub inside: &'a Path,
}

impl<'a> Spelled<'a> {
    /// Takes a pattern apart, and refuses those that can match nothing or everything.
    pub(super) fn read(pattern: &'a str) -> Result<Self, String> {
        let parts: Vec<&str> = pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return Err("it has .. in it: write the path from the workspace on".to_owned());
        }
        if parts.is_empty() {
            return Err("it names no path in the workspace".to_owned());
        }
        Ok(Self { is_absolute: pattern.starts_with('/'), is_name: !pattern.trim_end_matches('/').contains('/'), parts })
    }

    /// Finds the paths of the workspace that the pattern stands for.
    pub(super) fn meant(&self, top: Top<'_>) -> Result<Meant, String> {
        if self.is_name {
            return Ok(Meant::Pattern(format!("**/{}", self.parts[0])));
        }
        if !self.is_absolute {
            return in_workspace(&self.parts, top.workspace);
        }
        for prefix in [top.workspace, top.inside] {
            if let Some(rest) = below(&self.parts, prefix) {
                return match rest {
                    [] => Err(whole()),
                    rest => in_workspace(rest, top.workspace),
                };
            }
        }
        let literal = literal(&self.parts);
        let from_root = Path::new("/").join(literal.iter().collect::<PathBuf>());
        match from_root.canonicalize() {
            // Through a link: the caller's name of a directory need not be its real one.
            Ok(real) => match real.strip_prefix(top.workspace) {
                Ok(base) => joined(base, &self.parts[literal.len()..]),
                Err(_) if self.is_there(top.workspace) => in_workspace(&self.parts, top.workspace),
                Err(_) => Err(format!(
                    "{} lies outside of the workspace {}, and only its paths are hidden; for one of that name in it \
                     write .{}",
                    from_root.display(),
                    top.workspace.display(),
                    from_root.display()
                )),
            },
            Err(error) if is_missing(&error) || self.is_there(top.workspace) => {
                in_workspace(&self.parts, top.workspace)
            }
            Err(error) => Err(format!("{} cannot be looked at: {error}", from_root.display())),
        }
    }

    /// Reports whether the path without signs at the beginning exists when it is read from the workspace on.
    fn is_there(&self, workspace: &Path) -> bool {
        workspace.join(literal(&self.parts).iter().collect::<PathBuf>()).symlink_metadata().is_ok()
    }
}

/// Resolves the links in the beginning of a path or pattern, from the workspace on.
fn in_workspace(parts: &[&str], workspace: &Path) -> Result<Meant, String> {
    let literal = literal(parts);
    let named: PathBuf = literal.iter().collect();
    let as_written = || Ok(Meant::Pattern(parts.join("/")));
    if literal.is_empty() {
        return as_written();
    }
    match workspace.join(&named).canonicalize() {
        Ok(real) => match real.strip_prefix(workspace) {
            Ok(base) => joined(base, &parts[literal.len()..]),
            Err(_) => Err(format!(
                "{} leads out of the workspace, to {}, and only paths of the workspace are hidden",
                named.display(),
                real.display()
            )),
        },
        // What lies in a directory that is closed is found by the search, which covers that directory.
        Err(error) if is_missing(&error) || error.kind() == io::ErrorKind::PermissionDenied => as_written(),
        Err(error) => Err(format!("{} cannot be looked at: {error}", named.display())),
    }
}

/// Puts the rest of a pattern behind a real path of the workspace.
fn joined(base: &Path, rest: &[&str]) -> Result<Meant, String> {
    if rest.is_empty() {
        return if base.as_os_str().is_empty() { Err(whole()) } else { Ok(Meant::Path(base.to_owned())) };
    }
    if base.as_os_str().is_empty() {
        return Ok(Meant::Pattern(rest.join("/")));
    }
    match base.to_str() {
        Some(base) => Ok(Meant::Pattern(format!("{}/{}", globset::escape(base), rest.join("/")))),
        None => Err(format!("a pattern cannot stand behind {}, whose name is not UTF-8", base.display())),
    }
}

fn whole() -> String {
    "it is the whole workspace, and that is what the command works on".to_owned()
}

/// Returns the parts before the first one with a sign.
fn literal<'p>(parts: &'p [&'p str]) -> &'p [&'p str] {
    let end = parts.iter().position(|part| part.contains(SIGNS)).unwrap_or(parts.len());
    &parts[..end]
}

/// Returns what follows behind a directory, whose own name may have signs of patterns in it.
fn below<'p>(parts: &'p [&'p str], directory: &Path) -> Option<&'p [&'p str]> {
    let names: Vec<OsString> = directory.components().skip(1).map(|part| part.as_os_str().to_owned()).collect();
    let (head, rest) = parts.split_at_checked(names.len())?;
    head.iter().zip(&names).all(|(part, name)| name.as_os_str() == *part).then_some(rest)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Scene {
        _base: tempfile::TempDir,
        base: PathBuf,
    }

    fn scene() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for directory in ["ws/real", "ws/[x]", "other"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        for file in ["ws/real/a.pem", "ws/[x]/b.pem", "other/c.pem"] {
            std::fs::write(base.join(file), "x").unwrap();
        }
        symlink("ws", base.join("name")).unwrap();
        symlink("real", base.join("ws/link")).unwrap();
        symlink("[x]", base.join("ws/odd")).unwrap();
        symlink("../other", base.join("ws/out")).unwrap();
        Scene { _base: dir, base }
    }

    fn meant(scene: &Scene, pattern: &str) -> Result<Meant, String> {
        let workspace = scene.base.join("ws");
        Spelled::read(pattern)?.meant(Top { workspace: &workspace, inside: Path::new("/workspace") })
    }

    #[expect(clippy::unnecessary_wraps, reason = "compared with results")]
    fn pattern(text: &str) -> Result<Meant, String> {
        Ok(Meant::Pattern(text.to_owned()))
    }

    #[expect(clippy::unnecessary_wraps, reason = "compared with results")]
    fn path(text: &str) -> Result<Meant, String> {
        Ok(Meant::Path(text.into()))
    }

    #[test]
    fn one_path_of_the_workspace_has_many_spellings() {
        let scene = scene();
        let base = scene.base.display();
        for spelled in [
            "real/a.pem",
            "./real/a.pem",
            "real//./a.pem",
            "/real/a.pem",
            "link/a.pem",
            "/workspace/link/a.pem",
            &format!("{base}/ws/real/a.pem"),
            &format!("{base}/ws//link/a.pem"),
            &format!("{base}/name/real/a.pem"),
            &format!("{base}/name/link/a.pem"),
        ] {
            assert_eq!(meant(&scene, spelled), path("real/a.pem"), "{spelled}");
        }
        assert_eq!(meant(&scene, "link/"), pattern("**/link"), "a name, also with a slash behind it");
        for spelled in ["real/*.pem", "link/*.pem", "/workspace/real/*.pem", &format!("{base}/name/link/*.pem")] {
            assert_eq!(meant(&scene, spelled), pattern("real/*.pem"), "{spelled}");
        }
        assert_eq!(meant(&scene, "odd/*.pem"), pattern("[[]x[]]/*.pem"), "the end of a link is no pattern");
        assert_eq!(meant(&scene, "/*.pem"), pattern("*.pem"), "only at the top");
        assert_eq!(meant(&scene, "not/there"), pattern("not/there"));
        assert_eq!(meant(&scene, "real/a.pem/x"), pattern("real/a.pem/x"));
    }

    #[test]
    fn what_is_not_in_the_workspace_is_refused() {
        let scene = scene();
        let base = scene.base.display();
        for (spelled, said) in [
            ("", "names no path"),
            ("/", "names no path"),
            (".", "names no path"),
            ("../other/c.pem", "has .. in it"),
            ("real/../real/a.pem", "has .. in it"),
            ("/workspace", "is the whole workspace"),
            (&format!("{base}/ws"), "is the whole workspace"),
            (&format!("{base}/name/"), "is the whole workspace"),
            (&format!("{base}/ws/out/c.pem"), "leads out of the workspace"),
            ("out/c.pem", "leads out of the workspace"),
            ("out/*.pem", "leads out of the workspace"),
            (&format!("{base}/other/c.pem"), "lies outside of the workspace"),
            (&format!("{base}/other/*.pem"), "lies outside of the workspace"),
            ("/etc/passwd", "lies outside of the workspace"),
        ] {
            let refused = meant(&scene, spelled).unwrap_err();
            assert!(refused.contains(said), "{spelled}: {refused}");
        }
    }

    #[test]
    fn a_workspace_may_have_signs_in_its_name() {
        let scene = scene();
        let workspace = scene.base.join("ws/[x]");
        let top = Top { workspace: &workspace, inside: &workspace };
        let spelled = format!("{}/b.pem", workspace.display());
        assert_eq!(Spelled::read(&spelled).unwrap().meant(top), path("b.pem"));
    }
}
