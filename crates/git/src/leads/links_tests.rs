use super::*;
use crate::class::Class;
use crate::leads::Host;
use nexus_beneath::Workspace;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A workspace `ws` beside other directories.
struct Place {
    _directory: tempfile::TempDir,
    base: PathBuf,
}

impl Place {
    fn new(directories: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        for path in directories.iter().chain(&["ws"]) {
            std::fs::create_dir_all(base.join(path)).unwrap();
        }
        Self { _directory: directory, base }
    }

    fn link(&self, target: impl AsRef<Path>, link: &str) {
        symlink(target, self.base.join(link)).unwrap();
    }

    fn rules(&self, workspace: &str, reach: Reach) -> Names {
        self.touched(workspace, reach, &[])
    }

    fn touched(&self, workspace: &str, reach: Reach, touched: &[&str]) -> Names {
        let touched: Vec<_> = touched.iter().map(|path| path.as_bytes().to_vec()).collect();
        let at = self.base.join(workspace);
        let opened = Workspace::open(&at).unwrap();
        let host = Host { homes: vec![self.base.join("home")], ..Host::default() };
        Names::standard().for_workspace(&opened, &at, &host, reach, &touched).unwrap().names
    }

    #[track_caller]
    fn check(&self, listed: &[&str], plain: &[&str]) {
        let rules = self.rules("ws", Reach::COMMIT);
        for path in listed {
            assert!(
                matches!(rules.class(path.as_bytes()), Class::Listed(_)),
                "{path}: {:?}",
                rules.class(path.as_bytes())
            );
        }
        for path in plain {
            assert_eq!(rules.class(path.as_bytes()), Class::Plain, "{path}");
        }
    }
}

#[test]
fn a_directory_before_dots_on_a_way_stays_a_directory() {
    let place = Place::new(&["ws/a/in", "ws/conf/ed", "ws/scripts", "ws/.git/hooks"]);
    place.link("a/in/../../conf/ed", "ws/.vscode");
    place.link("../../missing/../scripts/hook", "ws/.git/hooks/pre-commit");
    place.check(&[".vscode", "conf/ed/tasks.json", "scripts/hook"], &["a/x", "a/in/x", "a/in2", "conf/x", "scripts/x"]);
    let rules = place.rules("ws", Reach::COMMIT);
    for path in ["a", "a/in", "missing", "conf"] {
        assert_eq!(rules.class(path.as_bytes()), Class::MustBeDirectory, "{path}");
    }
}

#[test]
fn links_in_a_bare_repository_are_followed() {
    let place = Place::new(&["ws/srv.git/objects", "ws/srv.git/refs", "ws/srv.git/hooks", "ws/deploy", "ws/x/hooks"]);
    std::fs::write(place.base.join("ws/srv.git/HEAD"), "x").unwrap();
    place.link("../../deploy/post-receive", "ws/srv.git/hooks/post-receive");
    place.link("../deploy/config", "ws/srv.git/config");
    place.link("../../deploy/plain", "ws/x/hooks/post-receive");
    place.check(&["deploy/post-receive", "deploy/config"], &["deploy/plain", "deploy/other"]);
}

#[test]
fn what_links_at_protected_names_lead_to_is_protected() {
    let place = Place::new(&["ws/.git/hooks", "ws/scripts", "ws/conf/vscode", "ws/env", "ws/tools/h", "ws/.vim"]);
    std::fs::write(place.base.join("ws/scripts/pre-commit.sh"), "x").unwrap();
    place.link("../../scripts/pre-commit.sh", "ws/.git/hooks/pre-commit");
    place.link("conf/vscode", "ws/.vscode");
    place.link("env/first", "ws/.envrc");
    place.link("second", "ws/env/first");
    place.link("/etc/profile", "ws/.profile");
    place.link("../outside", "ws/.bashrc");
    place.link("scripts", "ws/plain");
    place.link(place.base.join("ws/tools/whole"), "ws/.npmrc");
    let listed = ["scripts/pre-commit.sh", "conf/vscode/tasks.json", "env/second", "env/first", "tools/whole"];
    place.check(&listed, &["scripts/other.sh", "conf/other", "tools/h/x", "env/third"]);
}

#[test]
fn links_at_protected_names_count_at_any_depth() {
    let place = Place::new(&["ws/src/deep/er", "ws/conf/a", "ws/sub/.git/hooks", "ws/sub/scripts", "ws/x"]);
    place.link("../../../conf/a", "ws/src/deep/er/.vscode");
    place.link("../../scripts/hook", "ws/sub/.git/hooks/post-merge");
    // Through another link, which counts too: with it, its end would change.
    place.link("src", "ws/alias");
    place.link("../alias/deep/agents", "ws/x/AGENTS.md");
    let listed = ["conf/a/tasks.json", "sub/scripts/hook", "alias", "src/deep/agents"];
    place.check(&listed, &["conf/b", "sub/scripts/other", "src/deep/x", "src/y"]);
}

#[test]
fn a_link_to_the_workspace_or_above_protects_all_of_it() {
    for target in ["..", "../..", "../../.."] {
        let place = Place::new(&["ws/src"]);
        place.link(target, "ws/src/.vscode");
        place.check(&["x", "src/y"], &[]);
    }
}

#[test]
fn a_git_hooks_directory_that_is_a_link_protects_its_target() {
    let place = Place::new(&["ws/.git", "ws/tools/h"]);
    place.link("../tools/h", "ws/.git/hooks");
    place.check(&["tools/h/pre-commit"], &["tools/other"]);
}

#[test]
fn links_of_the_home_and_of_repositories_above_count() {
    let place = Place::new(&["home/.config", "ws/dot/fish", ".git/hooks", ".github"]);
    place.link("../ws/dot/shell", "home/.bashrc");
    place.link(place.base.join("ws/dot/fish"), "home/.config/fish");
    place.link("../../ws/hook", ".git/hooks/pre-push");
    place.link("../ws/ci", ".github/workflows");
    place.link("ws/other", "home/plain");
    place.check(&["dot/shell", "dot/fish/config.fish", "hook", "ci/x.yml"], &["dot/x", "other"]);
}

#[test]
fn the_search_ends_at_its_bound_and_begins_at_the_top() {
    let place = Place::new(&["ws/a/b/c", "ws/t"]);
    place.link("../../../t/deep", "ws/a/b/c/.envrc");
    place.link("t/near", "ws/.envrc");
    let near = place.rules("ws", Reach { directories: 2, entries: 100 });
    assert!(matches!(near.class(b"t/near"), Class::Listed(_)));
    assert_eq!(near.class(b"t/deep"), Class::Plain);
    assert!(matches!(place.rules("ws", Reach::COMMIT).class(b"t/deep"), Class::Listed(_)));
}

#[test]
fn many_new_directories_do_not_free_what_a_hook_leads_to() {
    let place = Place::new(&["ws/.git/hooks", "ws/scripts", "ws/conf", "ws/h", "ws/zz/.git/hooks"]);
    place.link("../../scripts/hook", "ws/.git/hooks/pre-commit");
    place.link("../conf/git", "ws/.git/config");
    place.link("conf/agents", "ws/AGENTS.md");
    place.link("h", "ws/hooks-of-git");
    place.link("../../../scripts/other", "ws/zz/.git/hooks/post-merge");
    std::fs::write(place.base.join("ws/conf/git"), "[core]\nhooksPath = hooks-of-git\n").unwrap();
    for number in 0..9000 {
        std::fs::create_dir(place.base.join(format!("ws/{number}"))).unwrap();
    }
    let rules = place.touched("ws", Reach { directories: 1, entries: 10 }, &["", "zz"]);
    let default = place.touched("ws", Reach::COMMIT, &["", "zz"]);
    let paths =
        ["scripts/hook", "scripts/other", "conf/git", "conf/agents", "hooks-of-git", "h/pre-push", "zz/.git/hooks/x"];
    for path in paths {
        for rules in [&rules, &default] {
            assert!(!matches!(rules.class(path.as_bytes()), Class::Plain | Class::NoLink), "{path}");
        }
    }
}

#[test]
fn a_repository_in_which_something_changes_is_found_beyond_the_bound() {
    let place = Place::new(&["ws/a/b/sub/.git/hooks", "ws/a/b/sub/tools"]);
    std::fs::write(place.base.join("ws/a/b/sub/.git/config"), "[core]\nfsmonitor = tools/watch\n").unwrap();
    place.link("../../script", "ws/a/b/sub/.git/hooks/post-merge");
    let reach = Reach { directories: 1, entries: 100 };
    let all = ["a", "a/b", "a/b/sub", "a/b/sub/tools"];
    let (without, with) = (place.rules("ws", reach), place.touched("ws", reach, &all));
    for path in [&b"a/b/sub/tools/watch"[..], b"a/b/sub/script"] {
        assert_eq!(without.class(path), Class::Plain);
        assert!(matches!(with.class(path), Class::Listed(_)), "{:?}", with.class(path));
    }
}

#[test]
fn a_run_cannot_hide_a_nested_repository_by_new_directories() {
    let place = Place::new(&["ws/z/sub/.git/hooks", "ws/tools", "ws/deep/er", "ws/big"]);
    std::fs::write(place.base.join("ws/z/sub/.git/hooks/pre-commit"), "#!/bin/sh\nexec ../../tools/l.sh\n").unwrap();
    std::fs::write(place.base.join("ws/deep/er/.envrc"), "source ../../env.sh\n").unwrap();
    // The time of birth may be that of the last tick.
    let age = |name: &str| {
        let parent = std::fs::File::open(place.base.join("ws")).unwrap();
        crate::leads::queue::born(std::os::fd::AsFd::as_fd(&parent), name.as_bytes())
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        std::fs::create_dir(place.base.join("ws/a")).unwrap();
        if age("a") > age("big") || std::time::Instant::now() > deadline {
            break;
        }
        std::fs::remove_dir(place.base.join("ws/a")).unwrap();
    }
    assert!(age("a") > age("big"));
    for number in 0..100 {
        std::fs::create_dir(place.base.join(format!("ws/a{number}"))).unwrap();
        std::fs::write(place.base.join(format!("ws/a/{number}")), "").unwrap();
    }
    let rules = place.touched("ws", Reach { directories: 60, entries: 600 }, &["", "tools"]);
    for path in ["tools/l.sh", "env.sh"] {
        assert!(matches!(rules.class(path.as_bytes()), Class::Listed(_)), "{path}");
    }
}
