//! What scripts that programs of the host start unasked, the hooks of git and `.envrc`, start or read in the workspace: a
//! changed helper would run as the script would.
//!
//! Only words at the place of a command count, those behind a word that reads or runs a file, and files that are the value
//! of a variable. What a helper starts in turn is not followed, and packages in `node_modules` are passed by: they are
//! replaced as a whole by every installation.

use super::git::{Repository, beginning};
use super::resolve::leads_nowhere;
use super::settings::segments;
use super::{Leads, join, links};
use crate::beneath::{Doing as _, IoFailure};
use crate::meta::EntryType;
use rustix::fs::{Mode, OFlags};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Scripts that are read in one directory, and their size: a larger file or one with a zero byte is a program, which names
/// nothing.
const SCRIPTS: usize = 64;
const MAX_BYTES: u64 = 64 * 1024;

/// Directories of a working tree whose scripts git runs.
const OF_HOOKS: &[&str] = &[".husky", ".githooks", ".git-hooks"];

/// Words whose next word is a file that is read as commands or run.
const READERS: &[&[u8]] = &[
    b".",
    b"source",
    b"source_env",
    b"source_env_if_exists",
    b"dotenv",
    b"dotenv_if_exists",
    b"sh",
    b"bash",
    b"dash",
    b"zsh",
    b"fish",
    b"node",
    b"perl",
    b"php",
    b"python",
    b"python3",
    b"ruby",
    b"lua",
    b"Rscript",
];
/// Words before a command.
const BEFORE: &[&[u8]] = &[
    b"!", b"{", b"command", b"do", b"elif", b"else", b"env", b"exec", b"if", b"nice", b"nohup", b"then", b"time",
    b"while", b"until", b"[", b"[[", b"test", b"eval",
];

/// Protects what the scripts name.
pub(super) fn read(leads: &mut Leads<'_>, repositories: &[Repository]) -> Result<(), IoFailure> {
    let mut tops: Vec<PathBuf> = vec![leads.top.path.to_owned()];
    for repository in repositories {
        tops.extend(repository.tops.iter().filter(|top| *top != leads.top.path).cloned());
        let begin = repository.tops.first().or_else(|| repository.directories.first()).cloned().unwrap_or_default();
        for directory in &repository.directories {
            directory_of_hooks(leads, &directory.join("hooks"), &begin)?;
        }
        for (top, name) in repository.tops.iter().flat_map(|top| OF_HOOKS.iter().map(move |name| (top, name))) {
            directory_of_hooks(leads, &top.join(name), top)?;
        }
    }
    for top in tops {
        script(leads, &top.join(".envrc"), &top)?;
    }
    Ok(())
}

fn directory_of_hooks(leads: &mut Leads<'_>, directory: &Path, begin: &Path) -> Result<(), IoFailure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(directory, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(error) if leads_nowhere(&error.into()) => return Ok(()),
        Err(error) => return Err(error).doing("open", directory.as_os_str().as_bytes()),
    };
    let entries = links::list(&dir, SCRIPTS).doing("list", directory.as_os_str().as_bytes())?;
    for entry in entries {
        let is_script = matches!(entry.kind, EntryType::File | EntryType::Symlink) && !entry.name.ends_with(b".sample");
        if is_script {
            script(leads, &join(directory, &entry.name), begin)?;
        }
    }
    Ok(())
}

fn script(leads: &mut Leads<'_>, path: &Path, begin: &Path) -> Result<(), IoFailure> {
    let text = beginning(path, MAX_BYTES + 1)?;
    let Some(text) = text.filter(|text| text.len() as u64 <= MAX_BYTES && !text.contains(&0)) else { return Ok(()) };
    let shown = path.strip_prefix(leads.top.path).unwrap_or(path).display().to_string();
    for (word, is_value) in named(&text) {
        if word.windows(12).any(|part| part == b"node_modules") {
            continue;
        }
        let place = if word.starts_with(b"/") { join(Path::new("/"), &word[1..]) } else { join(begin, &word) };
        let way = leads.follow(&place)?;
        if is_value && !is_file(leads, &way.end)? {
            continue;
        }
        leads.protect(&way, &format!("named by {shown}"), false)?;
    }
    Ok(())
}

/// Whether a place of the workspace is a file.
fn is_file(leads: &Leads<'_>, real: &Path) -> Result<bool, IoFailure> {
    let Some(path) = leads.top.inside(real).filter(|path| !path.is_empty()) else { return Ok(false) };
    Ok(super::git::kind(leads, path)?.is_some_and(|kind| kind != EntryType::Directory))
}

/// The paths that a shell script names where it starts or reads something, and whether they are values of variables.
fn named(script: &[u8]) -> Vec<(Vec<u8>, bool)> {
    let mut found = Vec::new();
    let lines = script.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii_start().starts_with(b"#"));
    for words in lines.flat_map(segments) {
        for value in words.iter().filter_map(|word| value(word)) {
            found.push((plain(value), true));
        }
        let mut rest = words.iter().skip_while(|word| BEFORE.contains(&word.as_slice()) || value(word).is_some());
        let Some(first) = rest.next() else { continue };
        if READERS.contains(&first.as_slice()) {
            let next = rest.find(|word| !word.starts_with(b"-"));
            let is_dotenv = first.starts_with(b"dotenv");
            found
                .extend(next.map(|word| plain(word)).or(is_dotenv.then(|| b".env".to_vec())).map(|word| (word, false)));
        } else if first.contains(&b'/') {
            found.push((plain(first), false));
        }
    }
    found
}

/// The value of `NAME=VALUE`.
fn value(word: &[u8]) -> Option<&[u8]> {
    let at = word.iter().position(|byte| *byte == b'=')?;
    let is_name = at > 0 && word[..at].iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    is_name.then_some(&word[at + 1..])
}

/// A word without a variable at its beginning, which stands for the top of the working tree more often than not.
fn plain(word: &[u8]) -> Vec<u8> {
    let is_variable = word.starts_with(b"$");
    let rest = word.iter().position(|byte| *byte == b'/').filter(|_| is_variable).map_or(word, |at| &word[at + 1..]);
    rest.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::Workspace;
    use crate::leads::{Host, Reach};
    use crate::protected::{Class, Rules};

    #[test]
    fn words_at_the_place_of_a_command_are_paths() {
        let names = |text: &str| {
            let found = named(text.as_bytes());
            found.into_iter().map(|(word, _)| String::from_utf8_lossy(&word).into_owned()).collect::<Vec<_>>()
        };
        for (text, wanted) in [
            ("#!/bin/sh\nexec ./tools/lint.sh \"$@\"\n", &["./tools/lint.sh"][..]),
            ("if scripts/check; then exit 1; fi", &["scripts/check"]),
            ("FOO=1 python3 -u ci/check.py x", &["ci/check.py"]),
            (". \"$(dirname \"$0\")/_/husky.sh\"\nnpm test", &[]),
            ("source \"$PWD/lib/env\"; PATH_add bin", &["lib/env"]),
            ("INSTALL_PYTHON=/ws/.venv/bin/python\nexec \"$INSTALL_PYTHON\" -m x", &["/ws/.venv/bin/python"]),
            ("dotenv\nuse flake", &[".env"]),
            ("dotenv_if_exists .env.local", &[".env.local"]),
            ("test -f package.json && npm run lint -- src/x", &[]),
            ("# ./old\necho a/b", &[]),
        ] {
            let found = names(text);
            for name in wanted {
                assert!(found.contains(&(*name).to_owned()), "{text}: {found:?}");
            }
            assert!(!found.iter().any(|name| name == "package.json" || name == "src/x" || name == "a/b"), "{found:?}");
        }
    }

    #[test]
    fn a_hook_that_is_a_large_program_names_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let at = std::fs::canonicalize(directory.path()).unwrap();
        std::fs::create_dir_all(at.join(".git/hooks")).unwrap();
        let program = [b"\x7fELF\0\n./tools/x\n".to_vec(), vec![b'x'; 3 << 20]].concat();
        std::fs::write(at.join(".git/hooks/pre-commit"), &program).unwrap();
        std::fs::write(at.join("program"), &program).unwrap();
        std::os::unix::fs::symlink("../../program", at.join(".git/hooks/pre-push")).unwrap();
        let workspace = Workspace::open(&at).unwrap();
        let rules = Rules::default().for_workspace(&workspace, &at, &Host::default(), Reach::COMMIT, &[]).unwrap();
        assert_eq!(rules.class(b"tools/x"), Class::Plain);
        assert!(matches!(rules.class(b"program"), Class::Listed(_)));
    }

    #[test]
    fn helpers_of_hooks_and_of_envrc_are_protected() {
        let directory = tempfile::tempdir().unwrap();
        let at = std::fs::canonicalize(directory.path()).unwrap();
        for (path, text) in [
            (".git/hooks/pre-commit", "#!/bin/sh\nP=v/python D=src\ntools/lint.sh\n\"$d\"/node_modules/x/y\n"),
            ("v/python", ""),
            ("src/x", ""),
            (".git/hooks/pre-push.sample", "other/x\n"),
            (".husky/commit-msg", "node ci/message.js $1\n"),
            (".envrc", "dotenv\nsource_env lib/env\n"),
            ("sub/.git/hooks/post-merge", "./after\n"),
        ] {
            std::fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
            std::fs::write(at.join(path), text).unwrap();
        }
        let workspace = Workspace::open(&at).unwrap();
        let rules = Rules::default().for_workspace(&workspace, &at, &Host::default(), Reach::COMMIT, &[]).unwrap();
        for path in ["tools/lint.sh", "ci/message.js", ".env", "lib/env", "sub/after", "v/python"] {
            assert!(matches!(rules.class(path.as_bytes()), Class::Listed(_)), "{path}");
        }
        for path in ["tools/x", "other/x", "after", "sub/.env", "src/y", "node_modules/x/y"] {
            assert_eq!(rules.class(path.as_bytes()), Class::Plain, "{path}");
        }
    }
}
