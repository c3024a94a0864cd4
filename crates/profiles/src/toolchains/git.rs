//! Git: the user's identity for commits, and linked worktrees.
//!
//! The identity is read from the user's own files, never from the workspace, and goes to `/etc/gitconfig` inside, where
//! git looks first and every other file overrides it. HOME stays free for the settings of the command.
//!
//! A **linked worktree** (`git worktree add`) has its history in another directory: `.git` is a file that names it.
//! That file belongs to the workspace and may lie, so it is believed only where the named directory, which the
//! workspace cannot write, names this workspace in turn. The history is then shown read-only with the configuration
//! stripped: `git status`, `diff` and `log` work, and `git commit` fails, because it would write a directory for which
//! there is no layer to review. To commit, use the main worktree, or a clone.

use super::adder::Adder;
use super::git_config;
use super::host;
use super::reading::{self, small};
use crate::host::ReadGitConfig;
use std::path::{Path, PathBuf};

/// Maximum number of directories of submodules and worktrees that are searched.
const MAX_DIRECTORIES: usize = 512;
/// Maximum nesting of those directories.
const MAX_DEPTH: usize = 16;

/// Shows git, the identity of the user and the history of a linked worktree.
pub fn find(to: &mut Adder<'_>) {
    match to.find(&["git"]) {
        None => to.note("git was not found on PATH"),
        Some(tool) => to.show_program(&tool, "the directory of git"),
    }
    to.because(|| "your settings of git".to_owned());
    identity(to);
    // A file of the workspace names the history of a linked worktree, and only a profile may follow it.
    if to.auto.is_none() {
        worktree(to);
    }
}

fn identity(to: &mut Adder<'_>) {
    let own = to.host.text_of("GIT_CONFIG_GLOBAL").map(PathBuf::from);
    let places = match (own, &to.host.home) {
        (Some(own), _) => vec![PathBuf::from("/etc/gitconfig"), own],
        (None, Some(home)) => {
            let config = to.host.text_of("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
            vec![PathBuf::from("/etc/gitconfig"), config.join("git/config"), home.join(".gitconfig")]
        }
        (None, None) => vec![PathBuf::from("/etc/gitconfig")],
    };
    let files: Vec<Vec<u8>> =
        places.iter().filter_map(|path| to.host.settings(path)).filter_map(|path| reading::small(&path)).collect();
    match git_config::identity(to.host.caller.git, &files) {
        Ok(text) if text.is_empty() => to.note("git has no user.name and user.email: commits need them"),
        Ok(text) => {
            to.show_made(text, "/etc/gitconfig", "your name and habits in git");
            // Some builds of git look for it elsewhere (git(1), GIT_CONFIG_SYSTEM).
            to.set("GIT_CONFIG_SYSTEM", "/etc/gitconfig");
        }
        Err(error) => to.note(format!("your git configuration is not shown: {error}")),
    }
}

fn worktree(to: &mut Adder<'_>) {
    let Some(linked) = linked(&to.host.workspace) else { return };
    let configs = match stripped_configs(to.host.caller.git, &linked.common) {
        Ok(configs) => configs,
        Err(why) => return to.note(format!("{why}: the history of this worktree is not shown")),
    };
    to.show_unsearched(&linked.common, &linked.common, "the history of this linked worktree");
    for (path, shown) in configs {
        to.show_made(shown, path.display().to_string(), "its configuration without passwords and programs");
    }
    to.set("GIT_OPTIONAL_LOCKS", "0");
    to.note(format!(
        "this is a linked worktree of {}: git status, diff and log work; git commit does not, since its history lies \
         outside the workspace and is read-only",
        linked.common.display()
    ));
}

/// Returns every file below `.git` from which some git reads settings, with its secrets removed: of the repository, of
/// its other worktrees, and of its submodules, whose repositories lie in `modules`. An error names the file that cannot
/// be read.
fn stripped_configs(read: ReadGitConfig, common: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, String> {
    let mut found = Vec::new();
    let mut directories = vec![(common.to_owned(), 0)];
    let mut looked_at = 0;
    while let Some((directory, depth)) = directories.pop() {
        looked_at += 1;
        if looked_at > MAX_DIRECTORIES || depth > MAX_DEPTH {
            return Err(format!("{} has too many submodules", common.display()));
        }
        for name in ["config", "config.worktree"] {
            let path = directory.join(name);
            match path.symlink_metadata() {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Ok(meta) if meta.is_dir() => {}
                _ => {
                    let text = small(&path).and_then(|text| git_config::repository(read, &text).ok());
                    found.push((path.clone(), text.ok_or_else(|| format!("{} cannot be read", path.display()))?));
                }
            }
        }
        // An entry of `modules` is a repository, or a directory of repositories when a name has slashes.
        let among_modules = directory.strip_prefix(common).is_ok_and(|below| below.starts_with("modules"));
        let named =
            if among_modules && !directory.join("HEAD").exists() { &[""][..] } else { &["modules", "worktrees"] };
        for name in named {
            let parent = if name.is_empty() { directory.clone() } else { directory.join(name) };
            match std::fs::read_dir(&parent) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(format!("{}: {error}", parent.display())),
                Ok(entries) => {
                    for entry in entries {
                        let entry = entry.map_err(|error| format!("{}: {error}", parent.display()))?;
                        let kind = entry.file_type().map_err(|error| format!("{}: {error}", parent.display()))?;
                        if kind.is_dir() {
                            directories.push((entry.path(), depth + 1));
                        }
                    }
                }
            }
        }
    }
    Ok(found)
}

struct Linked {
    common: PathBuf,
}

/// Returns the repository of a linked worktree, if both sides name each other.
fn linked(workspace: &Path) -> Option<Linked> {
    let dot_git = workspace.join(".git");
    if !dot_git.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let text = String::from_utf8(small(&dot_git)?).ok()?;
    let named = PathBuf::from(text.strip_prefix("gitdir: ")?.trim_end_matches('\n'));
    let admin = std::fs::canonicalize(&named).ok()?;
    // REPOSITORY/.git/worktrees/NAME, and not through a link: the checked path is the shown path.
    if admin != named || admin.starts_with(workspace) || admin.parent()?.file_name()? != "worktrees" {
        return None;
    }
    let common = admin.parent()?.parent()?.to_owned();
    let back = String::from_utf8(small(&admin.join("gitdir"))?).ok()?;
    let common_dir = String::from_utf8(small(&admin.join("commondir"))?).ok()?;
    let mutual = Path::new(back.trim_end_matches('\n')) == dot_git && common_dir.trim_end_matches('\n') == "../..";
    let is_repository =
        common.join("HEAD").is_file() && common.join("objects").is_dir() && common.join("refs").is_dir();
    let readable = host::can(&common, rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK);
    (mutual && is_repository && readable && !workspace.starts_with(&common)).then_some(Linked { common })
}

#[cfg(test)]
mod tests {
    use super::super::adder::tests::found_by;
    use super::super::found::{Found, FoundSource};
    use super::super::host::tests::Scene;
    use super::*;

    fn made(found: &Found, target: &str) -> Option<String> {
        found.binds.iter().find(|bind| bind.target == Path::new(target)).map(|bind| match &bind.source {
            FoundSource::Made(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            FoundSource::Path(path) => panic!("{}", path.display()),
        })
    }

    /// Creates a repository with one linked worktree, as git lays them out, and returns its `.git`.
    fn with_worktree(scene: &Scene) -> PathBuf {
        let common = scene.home().join("main/.git");
        for directory in ["objects", "refs", "worktrees/ws"] {
            std::fs::create_dir_all(common.join(directory)).unwrap();
        }
        let dot_git = scene.host.workspace.join(".git");
        for (name, text) in [
            ("HEAD", "ref: refs/heads/main\n".to_owned()),
            ("config", "[core]\n\trepositoryformatversion = 0\n[credential]\n\thelper = secret\n".to_owned()),
            ("worktrees/ws/gitdir", format!("{}\n", dot_git.display())),
            ("worktrees/ws/commondir", "../..\n".to_owned()),
        ] {
            std::fs::write(common.join(name), text).unwrap();
        }
        std::fs::write(&dot_git, format!("gitdir: {}/worktrees/ws\n", common.display())).unwrap();
        common
    }

    #[test]
    fn the_identity_is_made_from_the_users_file() {
        let scene = Scene::new();
        scene.file(".gitconfig", "[user]\n\tname = A B\n[credential]\n\thelper = secret\n");
        let found = found_by(&scene, find);
        let text = made(&found, "/etc/gitconfig").unwrap();
        assert!(text.contains("name = \"A B\"") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn a_linked_worktree_shows_its_history_read_only_and_without_its_secrets() {
        let scene = Scene::new();
        let common = with_worktree(&scene);
        let found = found_by(&scene, find);
        assert!(found.binds.iter().any(|bind| bind.target == common));
        let config = made(&found, &common.join("config").display().to_string()).unwrap();
        assert!(config.contains("repositoryformatversion") && !config.contains("secret"), "{config}");
        for other in ["config.worktree", "modules/lib/config", "modules/deep/er/config", "worktrees/ws/config.worktree"]
        {
            let scene = Scene::new();
            let common = with_worktree(&scene);
            let file = common.join(other);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let text = "[core]\n\tbare = false\n[remote \"o\"]\n\turl = https://me:secret@git.test/x\n";
            std::fs::write(&file, text).unwrap();
            if other.starts_with("modules") {
                std::fs::write(file.with_file_name("HEAD"), "ref: refs/heads/main\n").unwrap();
            }
            let found = found_by(&scene, find);
            let shown =
                made(&found, &file.display().to_string()).unwrap_or_else(|| panic!("{other} is shown as it is"));
            assert!(shown.contains("bare") && !shown.contains("secret"), "{other}: {shown}");
            // One that cannot be read may hold anything.
            std::fs::write(&file, "[remote \"o\n").unwrap();
            let found = found_by(&scene, find);
            assert!(!found.binds.iter().any(|bind| bind.target == common), "{other}");
        }
        assert!(found.notes.iter().any(|note| note.contains("git commit does not")), "{:?}", found.notes);
    }

    #[test]
    fn a_git_file_without_a_confirmation_from_outside_shows_nothing() {
        for change in ["gitdir", "commondir", "HEAD"] {
            let scene = Scene::new();
            let common = with_worktree(&scene);
            match change {
                "HEAD" => std::fs::remove_file(common.join("HEAD")).unwrap(),
                name => std::fs::write(common.join("worktrees/ws").join(name), "/elsewhere/.git\n").unwrap(),
            }
            let found = found_by(&scene, find);
            assert!(!found.binds.iter().any(|bind| bind.target == common), "{change}");
        }
    }
}
