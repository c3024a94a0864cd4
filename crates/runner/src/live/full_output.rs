//! Files that a caller asks for: everything that the command prints, or the receipt.
//!
//! The file has no name until the run is over, so that a run that is refused leaves an existing file as it was, and one
//! that is killed leaves nothing. It may not lie in the workspace: a command may have put a link there that leads out. For the same
//! reason no link leads to it that anybody else than the operator can have made: another run may have had a directory on the way.

use nexus_model::RunId;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Links of the system that a path may lead through, as for the kernel.
const MAX_LINKS: usize = 40;
/// Directories in which a link of root's is the operator's even for root, whose sandboxes may write directories of root's.
const OF_OPERATOR: &[&str] = &["/", "/home", "/var"];

/// Error: the place that was named takes no such file.
#[derive(Debug, thiserror::Error)]
#[error("{asked} {}: {why}", path.display())]
pub struct FullOutputError {
    /// The words with which the caller asked for the file.
    pub asked: String,
    /// The path that was named.
    pub path: PathBuf,
    /// The reason why it takes no such file.
    pub why: String,
}

impl FullOutputError {
    /// Returns a stable word for programs.
    pub fn code(&self) -> &'static str {
        "full_output"
    }
}

/// The place of such a file. Its directory is open, so that it stays the one that was looked at.
pub struct FilePlace {
    asked: String,
    parent: PathBuf,
    name: OsString,
    directory: OwnedFd,
}

impl FilePlace {
    /// Finds the place that a path names, and opens its directory. `asked` is how the caller asked for the file.
    pub fn find(asked: &str, path: &Path, workspace: &Path) -> Result<Self, FullOutputError> {
        let refuse = |why: String| FullOutputError { asked: asked.to_owned(), path: path.to_owned(), why };
        let name = path.file_name().ok_or_else(|| refuse("no file name".to_owned()))?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = std::env::current_dir().map(|here| here.join(parent));
        let parent = parent.map_err(|error| refuse(error.to_string()))?;
        let parent = without_links(&parent).map_err(refuse)?;
        if parent.starts_with(workspace) {
            return Err(refuse("it lies in the workspace, where a command may have put a link".to_owned()));
        }
        let open = || -> io::Result<Self> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // What has become a link meanwhile leads nowhere.
            let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let directory = rustix::fs::openat2(CWD, &parent, flags, Mode::empty(), resolve)?;
            match rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile => {
                    return Err(io::Error::other("it is not a regular file"));
                }
                _ => {}
            }
            Ok(Self { asked: asked.to_owned(), parent: parent.clone(), name: name.clone(), directory })
        };
        open().map_err(|error| refuse(error.to_string()))
    }

    /// Returns the flag that asked for the file.
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// Returns the path of the file, which no link leads to.
    pub fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }
}

/// Returns a path without `..` and links. A link is followed if it is the system's, and refused otherwise.
fn without_links(path: &Path) -> Result<PathBuf, String> {
    let parts =
        |path: &Path| -> Vec<OsString> { path.components().rev().map(|part| part.as_os_str().to_owned()).collect() };
    let (mut place, mut left, mut links) = (PathBuf::from("/"), parts(path), 0);
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next() {
            Some(Component::Normal(name)) => {
                let next = place.join(name);
                let failed = |error: io::Error| format!("{}: {error}", next.display());
                let meta = next.symlink_metadata().map_err(failed)?;
                if !meta.is_symlink() {
                    place = next;
                    continue;
                }
                links += 1;
                let above = place.symlink_metadata().map_err(failed)?;
                let is_root = rustix::process::geteuid().is_root();
                if links > MAX_LINKS || !is_of_system(&meta, &above, is_root, place.as_os_str()) {
                    return Err(format!(
                        "{} is a link, and a command may have put it there: name the directory that it leads to",
                        next.display()
                    ));
                }
                left.extend(parts(&next.read_link().map_err(failed)?));
            }
            Some(Component::RootDir) => place = PathBuf::from("/"),
            Some(Component::ParentDir) => {
                place.pop();
            }
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    Ok(place)
}

/// Reports whether only the operator can have made a link.
fn is_of_system(link: &Metadata, above: &Metadata, is_root: bool, place: &OsStr) -> bool {
    let of_root = link.uid() == 0 && above.uid() == 0 && above.mode() & 0o022 == 0;
    of_root && (!is_root || OF_OPERATOR.iter().any(|known| place == *known))
}

/// A file that is being written.
pub struct FullOutput {
    /// The file without a name that receives the bytes.
    pub file: File,
    /// Bytes that it may still take; `None` if it takes all.
    left: Option<u64>,
    directory: OwnedFd,
    name: OsString,
    temporary: String,
}

impl FullOutput {
    /// Makes a file without a name in its place.
    pub fn create(place: FilePlace, run: RunId) -> Result<Self, FullOutputError> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&place.directory, c".", flags, Mode::from_raw_mode(0o666));
        let file = file.map_err(|error| {
            let why = io::Error::from(error).to_string();
            FullOutputError { asked: place.asked.clone(), path: place.path(), why }
        })?;
        let temporary = format!(".nexus{}-{run}", place.asked);
        Ok(Self { file: file.into(), left: None, directory: place.directory, name: place.name, temporary })
    }

    /// Lets the file take so many bytes; what comes after them is left out.
    #[must_use]
    pub fn at_most(mut self, bytes: Option<u64>) -> Self {
        self.left = bytes;
        self
    }

    /// Writes what the command printed, as far as the file may take it.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(left) = &mut self.left else { return self.file.write_all(bytes) };
        let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
        self.file.write_all(&bytes[..taken])?;
        *left -= taken as u64;
        Ok(())
    }

    /// Gives the file its name, in place of an older one.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync_data()?;
        let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(CWD, unnamed, &self.directory, &self.temporary, AtFlags::SYMLINK_FOLLOW)?;
        Ok(rustix::fs::renameat(&self.directory, &self.temporary, &self.directory, &self.name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_place_is_named_without_links_and_a_link_of_a_command_leads_to_none() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::fs::create_dir(base.join("ws")).unwrap();
        symlink("a", base.join("link")).unwrap();
        symlink("../a/b/file", base.join("ws/out")).unwrap();
        let find = |path: &str| FilePlace::find("--receipt", &base.join(path), &base.join("ws"));
        assert_eq!(find("a/b/../b/./file").unwrap().path(), base.join("a/b/file"));
        for (path, why) in [
            ("link/b/file", "is a link"),
            ("link/../a/file", "is a link"),
            ("ws/file", "lies in the workspace"),
            ("a/../ws/file", "lies in the workspace"),
            ("a/b", "not a regular file"),
            ("ws/..", "no file name"),
            ("gone/file", "No such file"),
        ] {
            let error = find(path).err().unwrap().to_string();
            assert!(error.contains(why), "{path}: {error}");
        }
        symlink("/etc/passwd", base.join("a/name")).unwrap();
        assert!(find("a/name").is_err(), "the name itself is a link");
    }

    #[test]
    fn a_directory_that_was_looked_at_stays_the_place_whatever_its_path_becomes() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["logs", "victim"] {
            std::fs::create_dir(base.join(name)).unwrap();
        }
        let place = FilePlace::find("--full-output", &base.join("logs/out"), Path::new("/no")).unwrap();
        std::fs::rename(base.join("logs"), base.join("moved")).unwrap();
        symlink("victim", base.join("logs")).unwrap();
        FullOutput::create(place, RunId::new()).unwrap().finish().unwrap();
        assert!(base.join("moved/out").exists() && !base.join("victim/out").exists());
    }

    #[test]
    fn a_file_with_a_bound_takes_so_many_bytes_and_no_error_comes_of_more() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        for (most, expected) in [(None, "0123456789"), (Some(7), "0123456"), (Some(0), ""), (Some(99), "0123456789")] {
            let place = FilePlace::find("--full-output", &base.join("out"), Path::new("/no")).unwrap();
            let mut full = FullOutput::create(place, RunId::new()).unwrap().at_most(most);
            full.write(b"01234").unwrap();
            full.write(b"56789").unwrap();
            full.finish().unwrap();
            assert_eq!(std::fs::read_to_string(base.join("out")).unwrap(), expected, "{most:?}");
        }
    }

    #[test]
    fn a_link_of_the_system_is_followed() {
        // Every system has this link, or the directory.
        let lock = without_links(Path::new("/var/run")).unwrap();
        assert_eq!(lock, std::fs::canonicalize("/var/run").unwrap());
        assert!(without_links(Path::new("/proc/self/cwd")).is_err());
    }
}
