//! Covers login files in the directories that toolchains show: clients keep settings beside their programs (npm's
//! global `etc/npmrc`, pip's `pip.conf` in an environment, conda's `.condarc`), with tokens and passwords of mirrors in
//! them.
//!
//! A file of Nexus's own is shown over such a file: an empty one, or the smallest that its client accepts. Names
//! decide, not content: a token in the path of an address looks like any other word. Downloads of a package manager are
//! not searched (`Adder::show_unsearched`). Directories of installed libraries are searched for sockets alone, and only where they
//! belong to an environment outside of the known places.

use super::reading;
use super::searches::{Search, Searches};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Names of files that are covered in every directory. In small letters: NuGet's has several spellings.
const NAMES: &[&str] = &[
    // npm, pnpm, yarn, bun
    "npmrc",
    ".npmrc",
    "pnpmrc",
    ".yarnrc",
    ".yarnrc.yml",
    "bunfig.toml",
    ".bunfig.toml",
    // Python: pip, twine, distutils, uv, poetry, conda, mamba
    "pip.conf",
    "pip.ini",
    ".pypirc",
    "distutils.cfg",
    ".pydistutils.cfg",
    "uv.toml",
    "auth.toml",
    ".condarc",
    "condarc",
    ".mambarc",
    "mambarc",
    // Java: Maven, Gradle, remote management
    "settings-security.xml",
    "gradle.properties",
    "jmxremote.password",
    ".keystore",
    // Go, Rust, Ruby, PHP, .NET, Terraform
    "gemrc",
    ".gemrc",
    "go.env",
    "credentials",
    "credentials.toml",
    "credentials.json",
    "credentials.tfrc.json",
    "auth.json",
    "nuget.config",
    ".terraformrc",
    "terraform.rc",
    // Clients of servers
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".gitconfig",
    "gitconfig",
    "hosts.yml",
    ".dockercfg",
    ".pgpass",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    ".vault-token",
    ".env",
    ".env.local",
    "id_rsa",
    "id_ecdsa",
    "id_ed25519",
];

/// Directory names and names of files that are covered only there.
const IN_DIRECTORY: &[(&str, &str)] = &[
    ("conf", "settings.xml"),
    (".m2", "settings.xml"),
    (".cargo", "config"),
    (".cargo", "config.toml"),
    (".bundle", "config"),
    (".git", "config"),
    (".docker", "config.json"),
    // Variables of an environment of conda.
    ("conda-meta", "state"),
    // Command lines, with the logins of channels.
    ("conda-meta", "history"),
];

/// Directory names in which every plain file is covered.
const WHOLE: &[&str] = &["init.d", "condarc.d", ".condarc.d", "activate.d", "deactivate.d", "env_vars.d"];

/// Names of directories of installed libraries and of texts, which may be very large and hold no settings of a client.
const LIBRARIES: &[&str] = &[
    "site-packages",
    "dist-packages",
    "node_modules",
    "__pycache__",
    "idlelib",
    "encodings",
    "ensurepip",
    "test",
    "tests",
    "include",
    "man",
    "doc",
    "docs",
    "legal",
    "jmods",
    "gems",
    "terminfo",
    "zoneinfo",
    "pkgconfig",
    "systemtap",
    "locale",
    "rustlib",
];

/// Maximum nesting of searched directories: `versions/3.12/lib/python3.12/distutils/distutils.cfg`, and one more.
const MAX_DEPTH: usize = 7;
/// Maximum number of entries that are searched below one shown directory.
const MAX_ENTRIES: usize = 200_000;
/// Maximum number of entries of libraries that are searched for sockets, beside the limit of time.
const MAX_LIBRARY_ENTRIES: usize = 2_000_000;
/// Size of the buffer for the names of a directory.
const LISTING_BYTES: usize = 32 * 1024;
/// Maximum number of files that are covered below one shown directory: each costs a mount and a watch.
const MAX_COVERS: usize = 200;

/// Error of a directory that could not be searched and may not be shown.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The directory holds more entries than the search allows.
    #[error("{} holds more than {MAX_ENTRIES} entries and was not searched for logins", .0.display())]
    TooLarge(PathBuf),
    /// More files are to be covered than a run can have.
    #[error("{} holds more than {MAX_COVERS} files that may hold logins", .0.display())]
    TooManyCovers(PathBuf),
    /// The search took too long.
    #[error("{} could not be searched for logins in time", .0.display())]
    TooSlow(PathBuf),
    /// The directory cannot be read.
    #[error("{path} could not be searched for logins: {source}")]
    Unreadable {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Selects what a search looks for in directories of libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libraries {
    /// Nothing: they belong to a tool in a known place.
    Skipped,
    /// Sockets and named pipes at any depth.
    ForSockets,
}

impl Libraries {
    /// Name of such a search.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Skipped => "logins",
            Self::ForSockets => "logins and sockets",
        }
    }
}

/// Finds the files, sockets and named pipes to cover below `shown`, relative to it, each with the content that covers it.
/// A search of an earlier run is used where every directory is as it was.
pub fn find(
    shown: &Path,
    until: Instant,
    libraries: Libraries,
    known: &mut Searches,
) -> Result<BTreeMap<PathBuf, Vec<u8>>, SearchError> {
    known.obey(rules);
    if let Some(search) = known.of(shown, libraries.word()) {
        return covers(shown, search);
    }
    let search = search(shown, until, libraries)?;
    let covers = covers(shown, &search);
    known.keep(shown, libraries.word(), search);
    covers
}

/// Returns the covers of what a search found. Where links lead and what a file holds is asked each time.
fn covers(shown: &Path, search: &Search) -> Result<BTreeMap<PathBuf, Vec<u8>>, SearchError> {
    // A mount that cannot be written keeps no command from connecting.
    let relative = |path: &PathBuf| path.strip_prefix(shown).ok().map(|path| (path.to_owned(), Vec::new()));
    let mut found: BTreeMap<_, _> = search.sockets.iter().filter_map(relative).collect();
    // Most libraries have no settings, and to resolve a path costs a call for each of its parts.
    let of_libraries = search.of_libraries.iter().filter(|path| path.symlink_metadata().is_ok());
    for path in search.logins.iter().chain(of_libraries) {
        add(&mut found, shown, path);
    }
    if found.len() > MAX_COVERS { Err(SearchError::TooManyCovers(shown.to_owned())) } else { Ok(found) }
}

/// Lists the directories below `shown`. Those that are not searched are not opened either: this is done at the start of a run.
fn search(shown: &Path, until: Instant, libraries: Libraries) -> Result<Search, SearchError> {
    let mut search = Search::begin();
    // Depth 0 stands for libraries and what is too deep for settings.
    let mut waiting = vec![(shown.to_owned(), 1)];
    let (mut entries, mut of_libraries) = (0, 0);
    // One buffer for all directories: to allocate one for each costs more than to read most of them.
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); LISTING_BYTES];
    while let Some((directory, depth)) = waiting.pop() {
        if Instant::now() > until {
            return Err(SearchError::TooSlow(shown.to_owned()));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::open(&directory, flags, Mode::empty()).map_err(io::Error::from) {
            // The command can use names in such a directory, and they are not known.
            Err(source) if is_closed(&directory, &source) => {
                return Err(SearchError::Unreadable { path: directory, source });
            }
            opened => opened,
        };
        let Some(opened) = unless_harmless(opened, shown)? else {
            search.is_lasting = false;
            continue;
        };
        search.looked_at(&directory, &opened);
        let mut listed = RawDir::new(&opened, &mut buffer[..]);
        while let Some(entry) = listed.next() {
            let Some(entry) = unless_harmless(entry.map_err(io::Error::from), shown)? else {
                search.is_lasting = false;
                break;
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            *(if depth == 0 { &mut of_libraries } else { &mut entries }) += 1;
            if entries > MAX_ENTRIES || of_libraries > MAX_LIBRARY_ENTRIES {
                return Err(SearchError::TooLarge(shown.to_owned()));
            }
            let kind = match entry.file_type() {
                // Some file systems say it only for each file.
                FileType::Unknown => rustix::fs::statat(&opened, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                    .map(|stat| FileType::from_raw_mode(stat.st_mode))
                    .map_err(io::Error::from),
                known => Ok(known),
            };
            let Some(kind) = unless_harmless(kind, shown)? else {
                search.is_lasting = false;
                continue;
            };
            if kind != FileType::Directory {
                if matches!(kind, FileType::Socket | FileType::Fifo) {
                    search.sockets.push(directory.join(name));
                } else if depth > 0 && is_login(&directory, name) {
                    search.logins.push(directory.join(name));
                }
                // Links of these names may lead to the same file, or out.
                if search.sockets.len() > MAX_COVERS || search.logins.len() > 10 * MAX_COVERS {
                    return Err(SearchError::TooManyCovers(shown.to_owned()));
                }
            } else if depth > 0 && (is_one_of(name, LIBRARIES) || is_standard_library(&directory, name)) {
                let path = directory.join(name);
                search.of_libraries.extend(settings_of_library(&path));
                waiting.extend((libraries == Libraries::ForSockets).then_some((path, 0)));
            } else if depth > 0 && depth < MAX_DEPTH {
                waiting.push((directory.join(name), depth + 1));
            } else if libraries == Libraries::ForSockets {
                waiting.push((directory.join(name), 0));
            }
        }
    }
    Ok(search)
}

/// Returns everything that decides what a search finds.
fn rules() -> impl Iterator<Item = &'static str> {
    let in_directory = IN_DIRECTORY.iter().flat_map(|(directory, file)| [*directory, *file]);
    [NAMES, &["/"], WHOLE, &["/"], LIBRARIES].concat().into_iter().chain(in_directory)
}

/// Reports whether a directory can be entered and not listed.
fn is_closed(directory: &Path, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
        && rustix::fs::accessat(CWD, directory, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Returns `None` for what vanished meanwhile, and for a directory that the command cannot enter either.
fn unless_harmless<T>(result: io::Result<T>, shown: &Path) -> Result<Option<T>, SearchError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(None),
        Err(source) => Err(SearchError::Unreadable { path: shown.to_owned(), source }),
    }
}

/// Reports whether a directory is the standard library of a Python: `lib/python3.12`.
fn is_standard_library(parent: &Path, name: &OsStr) -> bool {
    parent.ends_with("lib") && name.as_encoded_bytes().starts_with(b"python")
}

/// Returns the built-in settings of npm and of distutils, which lie in a directory of libraries.
fn settings_of_library(library: &Path) -> impl Iterator<Item = PathBuf> {
    let names: &[&str] = match library.file_name().unwrap_or_default().as_bytes() {
        b"node_modules" => &["npm/npmrc"],
        name if name.ends_with(b"-packages") => &["distutils/distutils.cfg", "setuptools/_distutils/distutils.cfg"],
        name if name.starts_with(b"python") => &["distutils/distutils.cfg"],
        // Texts, headers and tests are not settings that a client reads.
        _ => &[],
    };
    names.iter().map(|name| library.join(name))
}

/// Adds a file, or the target of a link if that is shown as well.
fn add(found: &mut BTreeMap<PathBuf, Vec<u8>>, shown: &Path, path: &Path) {
    // A broken link shows nothing.
    let Ok(real) = std::fs::canonicalize(path) else { return };
    let Ok(root) = std::fs::canonicalize(shown) else { return };
    let Ok(relative) = real.strip_prefix(&root) else { return };
    if real.is_file() {
        found.insert(relative.to_owned(), cover(path));
    }
}

/// Reports whether a file in the place of a program may hold a login or a key by its name.
pub(super) fn is_login_file(path: &Path) -> bool {
    let is_key = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        [&b".pem"[..], b".key"].iter().any(|end| name.ends_with(end))
            || name.starts_with(b".env")
            || name.starts_with(b"id_")
    };
    match (path.parent(), path.file_name()) {
        (Some(directory), Some(name)) => is_login(directory, name) || is_key(name),
        _ => false,
    }
}

fn is_login(directory: &Path, name: &OsStr) -> bool {
    let parent = directory.file_name().unwrap_or_default();
    is_one_of(name, NAMES)
        || is_one_of(parent, WHOLE)
        || IN_DIRECTORY.iter().any(|(directory, file)| parent == *directory && name == *file)
}

fn is_one_of(name: &OsStr, list: &[&str]) -> bool {
    list.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns the smallest content that the client of such a file accepts.
fn cover(path: &Path) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default().to_ascii_lowercase();
    let extension = path.extension().unwrap_or_default();
    if name == "go.env" {
        return go_env(&reading::small(path).unwrap_or_default());
    }
    let text = if name == "settings.xml" {
        "<settings/>\n"
    } else if name == "settings-security.xml" {
        "<settingsSecurity/>\n"
    } else if name == "nuget.config" {
        "<configuration/>\n"
    } else if extension == "json" || name == "state" {
        "{}\n"
    } else {
        ""
    };
    text.as_bytes().to_vec()
}

/// Keeps the lines of Go's own defaults that cannot hold a login: without them `go` has no proxy at all.
fn go_env(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let mut kept = String::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let is_plain = match key.trim() {
            "GOPROXY" => value.split([',', '|']).all(|entry| {
                let entry = entry.trim();
                matches!(entry, "direct" | "off" | "https://proxy.golang.org")
            }),
            "GOSUMDB" => matches!(value.trim(), "sum.golang.org" | "off"),
            "GOTOOLCHAIN" => !value.contains(['@', ':', '/']),
            _ => false,
        };
        if is_plain {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + std::time::Duration::from_secs(60)
    }

    fn found_in(files: &[&str]) -> Vec<(String, String)> {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "GOPROXY=https://me:SECRET@proxy.test\nGOSUMDB=sum.golang.org\n").unwrap();
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        find(&root, soon(), Libraries::Skipped, &mut Searches::default())
            .unwrap()
            .into_iter()
            .map(|(path, cover)| (path.to_str().unwrap().to_owned(), text(cover)))
            .collect()
    }

    #[test]
    fn each_file_of_logins_is_covered_and_its_neighbours_are_not() {
        let all = [
            ("etc/npmrc", ""),
            ("lib/node_modules/npm/npmrc", ""),
            ("versions/3.12/pip.conf", ""),
            ("versions/3.12/lib/python3.12/distutils/distutils.cfg", ""),
            ("lib/site-packages/distutils/distutils.cfg", ""),
            ("lib/site-packages/setuptools/_distutils/distutils.cfg", ""),
            ("envs/a/.condarc", ""),
            ("envs/a/conda-meta/state", "{}\n"),
            ("envs/a/conda-meta/history", ""),
            ("envs/a/etc/conda/activate.d/env.sh", ""),
            ("envs/a/etc/conda/env_vars.d/x.json", "{}\n"),
            ("condarc.d/mirror.yml", ""),
            ("conf/settings.xml", "<settings/>\n"),
            ("conf/settings-security.xml", "<settingsSecurity/>\n"),
            ("gradle.properties", ""),
            ("init.d/mirror.gradle", ""),
            ("go.env", "GOSUMDB=sum.golang.org\n"),
            ("etc/NuGet.Config", "<configuration/>\n"),
            (".composer/auth.json", "{}\n"),
            (".cargo/credentials.toml", ""),
            (".gem/credentials", ""),
            (".bundle/config", ""),
            ("src/package/.git/config", ""),
            ("etc/gemrc", ""),
            (".env.local", ""),
            (".config/gh/hosts.yml", ""),
            (".netrc", ""),
        ];
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let others = ["lib/settings.xml", "bin/npm", "lib/node_modules/x/index.js", "conf/logging.xml", "lib/config"];
        let mut expected: Vec<_> = all.iter().map(|(name, cover)| ((*name).to_owned(), (*cover).to_owned())).collect();
        expected.sort();
        let mut found = found_in(&[&names[..], &others].concat());
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_link_is_followed_to_what_is_shown_and_no_further() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(root.join("tool/etc")).unwrap();
        for name in ["outside", "tool/mine"] {
            std::fs::write(root.join(name), "SECRET").unwrap();
        }
        std::os::unix::fs::symlink("../mine", root.join("tool/etc/npmrc")).unwrap();
        std::os::unix::fs::symlink("../outside", root.join("tool/pip.conf")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("tool/.netrc")).unwrap();
        let found: Vec<_> = find(&root.join("tool"), soon(), Libraries::Skipped, &mut Searches::default())
            .unwrap()
            .into_keys()
            .collect();
        assert_eq!(found, [PathBuf::from("mine")]);
    }

    #[test]
    fn go_keeps_its_proxy_and_no_address_of_a_mirror() {
        let own = "GOPROXY=https://proxy.golang.org,direct\nGOSUMDB=sum.golang.org\nGOTOOLCHAIN=auto\n";
        assert_eq!(go_env(own.as_bytes()), own.as_bytes());
        for bad in ["GOPROXY=https://a:b@c", "GOPROXY=https://corp.test/t/TOKEN", "GOFLAGS=-x", "GOAUTH=netrc"] {
            assert_eq!(go_env(bad.as_bytes()), b"", "{bad}");
        }
    }
}
