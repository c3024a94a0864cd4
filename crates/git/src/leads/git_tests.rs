use crate::class::Class;
use crate::leads::{Host, LedTo, Reach};
use crate::names::Names;
use nexus_beneath::Workspace;
use std::path::{Path, PathBuf};

struct Place {
    _directory: tempfile::TempDir,
    base: PathBuf,
}

impl Place {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        std::fs::create_dir_all(base.join("repo/ws")).unwrap();
        std::fs::create_dir_all(base.join("home")).unwrap();
        let place = Self { _directory: directory, base };
        for (path, text) in files {
            place.write(path, text);
        }
        place
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.base.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("BASE", self.base.to_str().unwrap())).unwrap();
    }

    fn rules(&self, workspace: &str) -> Result<Names, nexus_beneath::IoFailure> {
        self.touched(workspace, &[])
    }

    /// With what a run changed in these directories.
    fn touched(&self, workspace: &str, directories: &[&str]) -> Result<Names, nexus_beneath::IoFailure> {
        self.led_to(workspace, directories).map(|led_to| led_to.names)
    }

    fn led_to(&self, workspace: &str, directories: &[&str]) -> Result<LedTo, nexus_beneath::IoFailure> {
        let touched: Vec<Vec<u8>> = directories.iter().map(|path| path.as_bytes().to_vec()).collect();
        let at = self.base.join(workspace);
        let opened = Workspace::open(&at).unwrap();
        let configurations = ["home/.gitconfig", "system"].map(|path| self.base.join(path)).to_vec();
        let host = Host { homes: vec![self.base.join("home")], git_configurations: configurations, ..Host::default() };
        Names::standard().for_workspace(&opened, &at, &host, Reach::COMMIT, &touched)
    }

    #[track_caller]
    fn check(&self, workspace: &str, listed: &[&str], plain: &[&str]) {
        let rules = self.rules(workspace).unwrap();
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
fn the_directory_that_core_hooks_path_names_is_protected() {
    for (value, wanted) in [
        ("tools/hooks", Some("tools/hooks")),
        ("./a/../hooks/", Some("hooks")),
        ("BASE/repo/ws/deep/hooks", Some("deep/hooks")),
        ("hk", Some("hk")),
        ("../../outside", None),
        ("/etc", None),
    ] {
        let place = Place::new(&[("repo/ws/.git/config", &format!("[core]\nhooksPath = x\nhooksPath = {value}\n"))]);
        let listed: Vec<String> = wanted.iter().map(|wanted| format!("{wanted}/pre-commit")).collect();
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        place.check("repo/ws", &listed, &["outside/x", "etc/x", "tools/other"]);
    }
}

#[test]
fn files_that_a_configuration_includes_or_names_are_protected() {
    let place = Place::new(&[
        (
            "repo/ws/.git/config",
            "[include]\npath = ../conf/more\n[includeIf \"gitdir:/nowhere/\"]\npath = BASE/repo/ws/conf/if\n\
             [core]\nattributesFile = conf/attributes\nexcludesFile = conf/ignore\nfsmonitor = tools/watch\n\
             [filter \"f\"]\nclean = python3 scripts/clean.py %f\n[alias]\nx = !sh run && cd lib && ./go\n",
        ),
        ("repo/ws/conf/more", "[include]\npath = nested\n[diff \"d\"]\ntextconv = tools/conv\n"),
        ("repo/ws/conf/nested", "[include]\npath = nested\n[core]\nsshCommand = \"tools/my ssh\"\n"),
        ("repo/ws/run", "x"),
        ("repo/ws/lib/go", "x"),
    ]);
    place.check(
        "repo/ws",
        &[
            "conf/more",
            "conf/if",
            "conf/nested",
            "conf/attributes",
            "tools/watch",
            "tools/conv",
            "tools/my ssh",
            "scripts/clean.py",
            "run",
        ],
        &["conf/ignore", "conf/x", "tools/x", "python3", "sh"],
    );
}

#[test]
fn repositories_above_users_and_systems_name_files_too() {
    let place = Place::new(&[
        ("repo/.git/config", "[core]\nhooksPath = ws/hk\n[include]\npath = ../ws/inc\n[core]\npager = ./ws/pager\n"),
        ("repo/ws/x", ""),
        ("home/.gitconfig", "[core]\nhooksPath = .my/hooks\n[include]\npath = ~/more\n[core]\nfsmonitor = ./watch\n"),
        ("home/more", "[core]\nattributesFile = BASE/repo/ws/attributes\n[alias]\na = !~/../repo/ws/a.sh\n"),
        ("system", "[init]\ntemplateDir = BASE/repo/ws/template\n[core]\neditor = vim\n"),
    ]);
    place.check(
        "repo/ws",
        &[
            "hk/pre-commit",
            "inc",
            "pager",
            ".my/hooks/x",
            "sub/.my/hooks/x",
            "attributes",
            "a.sh",
            "template/hooks/x",
            "watch",
        ],
        &["hk2", "more", "vim", ".my/other", "sub/pager"],
    );
}

#[test]
fn nested_repositories_submodules_and_worktrees_name_files_too() {
    let place = Place::new(&[
        ("repo/ws/sub/.git/config", "[core]\nhooksPath = tools/hk\n"),
        ("repo/ws/sub/.git/config.worktree", "[core]\nfsmonitor = ./watch\n"),
        ("repo/ws/module/.git", "gitdir: ../.git/modules/module\n"),
        ("repo/ws/.git/modules/module/config", "[core]\nworktree = ../../../module\n[core]\nhooksPath = hk\n"),
        ("repo/ws/tree/.git", "gitdir: BASE/main/.git/worktrees/tree\n"),
        ("main/.git/worktrees/tree/commondir", "../..\n"),
        ("main/.git/worktrees/tree/HEAD", "x\n"),
        ("main/.git/config", "[diff]\nexternal = ./tools/diff\n"),
    ]);
    let listed = ["sub/tools/hk/x", "sub/watch", "module/hk/x", "tree/tools/diff"];
    place.check("repo/ws", &listed, &["tools/hk/x", "watch", "hk/x", "tools/diff"]);
}

#[test]
fn a_workspace_inside_what_a_setting_names_is_protected() {
    let place = Place::new(&[
        ("home/.gitconfig", "[core]\nhooksPath = ~/hooks\n[any]\nroot = BASE/repo\n"),
        ("home/hooks/lib/x", ""),
    ]);
    place.check("home/hooks", &["pre-commit", "lib/x"], &[]);
    place.check("home/hooks/lib", &["x"], &[]);
    place.check("repo/ws", &[], &["x"]);
}

#[test]
fn names_of_the_workspaces_own_path_count() {
    let place = Place::new(&[]);
    let class = |workspace: &str, path: &str| {
        std::fs::create_dir_all(place.base.join(workspace)).unwrap();
        place.rules(workspace).unwrap().class(path.as_bytes())
    };
    let listed = |workspace: &str, path: &str| matches!(class(workspace, path), Class::Listed(_));
    assert!(listed("home/.config", "fish/x") && listed("home/.Config", "autostart/x"));
    assert!(!listed("home/.config", "other/x") && listed("home/.config", "other/.config/fish/x"));
    assert!(listed("p/.vscode", "x") && listed("p/.vscode/sub", "x") && listed("p/.github", "workflows/x"));
    assert!(listed("p/.github/workflows", "x") && !listed("p/.github", "FUNDING.yml"));
    assert!(listed("home/.ssh", "rc") && listed("home/.local", "bin/x") && !listed("home/.local", "share/x"));
    assert!(!listed("p/.claude/worktrees/one", "x") && listed("p/.claude/worktrees/one", ".envrc"));
    assert!(listed("p/.claude/worktrees", "x") && listed("p/.claude", "settings.json"));
    assert_eq!(class("p/.git", "config"), Class::GitConfig);
    assert_eq!(class("p/.git", "hooks/x"), Class::GitHook);
    assert_eq!(class("p/.git", "index"), Class::NoLink);
    assert_eq!(class("p/.GIT/hooks", "x"), Class::GitHook);
    assert_eq!(class("p/.git/modules", "m/config"), Class::GitConfig);
    // The names of packages' directories count only in the workspace.
    assert!(listed("vendor/p", ".gitlab-ci.yml") && !listed("p", "vendor/x/.gitlab-ci.yml"));
}

#[test]
fn a_configuration_that_is_too_large_is_an_error() {
    let place = Place::new(&[("home/.gitconfig", &"# x\n".repeat(300_000))]);
    assert!(place.rules("repo/ws").is_err());
    let many = (0..5000).map(|number| format!("[a]\nb = ./x{number}\n")).collect::<Vec<_>>().concat();
    assert!(Place::new(&[("repo/ws/.git/config", &many)]).rules("repo/ws").is_err());
}

#[test]
fn includes_in_circles_and_what_is_no_file_end() {
    let place = Place::new(&[
        ("repo/ws/.git/config", "[include]\npath = ../a\npath = /dev/zero\npath = ../fifo\npath = ../dir/x\n"),
        ("repo/ws/a", "[include]\npath = a\npath = .git/config\npath = missing\n"),
        ("repo/ws/dir/x/y", ""),
    ]);
    rustix::fs::mkfifoat(rustix::fs::CWD, place.base.join("repo/ws/fifo"), rustix::fs::Mode::from_raw_mode(0o600))
        .unwrap();
    place.check("repo/ws", &["a", "missing", "fifo"], &["b"]);
    assert!(!Path::new("/nowhere").exists());
}

#[test]
fn many_entries_beside_a_hook_do_not_hide_it() {
    let place = Place::new(&[("repo/ws/.git/hooks/pre-commit", "#!/bin/sh\nexec ./scripts/l.sh\n")]);
    for number in 0..3000 {
        std::fs::create_dir(place.base.join(format!("repo/ws/.git/hooks/d{number}"))).unwrap();
    }
    place.check("repo/ws", &["scripts/l.sh"], &["scripts/m.sh"]);
    for number in 0..600 {
        place.write(&format!("repo/ws/.git/hooks/f{number}"), "#!/bin/sh\n");
    }
    assert!(place.rules("repo/ws").is_err());
}

#[test]
fn many_repositories_do_not_hide_the_hooks_of_another() {
    let place = Place::new(&[
        ("home/.gitconfig", "[core]\nhooksPath = BASE/home/hk\n"),
        ("home/hk/pre-commit", "#!/bin/sh\nexec ./tools/l.sh\n"),
        ("repo/ws/zz/.git/HEAD", "ref: refs/heads/main\n"),
        ("repo/ws/zz/.git/config", "[core]\nbare = false\n"),
    ]);
    for number in 0..390 {
        place.write(&format!("repo/ws/a{number}/.git/HEAD"), "ref: refs/heads/main\n");
    }
    let rules = place.touched("repo/ws", &["", "zz"]).unwrap();
    assert!(matches!(rules.class(b"zz/tools/l.sh"), Class::Listed(_)));
    let many: Vec<String> = (0..2100).map(|number| format!("b{number}")).collect();
    for name in &many {
        place.write(&format!("repo/ws/{name}/.git/HEAD"), "ref: refs/heads/main\n");
    }
    let touched: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(place.touched("repo/ws", &touched).is_err());
}

#[test]
fn hooks_of_every_repository_name_helpers_in_new_ones() {
    let place = Place::new(&[
        (
            "home/.gitconfig",
            "[core]\nhooksPath = ~/hk\n[init]\ntemplateDir = BASE/home/template\n\
             [core]\npager = ./tools/pager --all\nsshCommand = ssh -F conf/ssh.conf\n\
             [filter \"x\"]\nclean = python3 ci/clean.py %f\n[diff \"y\"]\ntextconv = tools/conv -x\n\
             [alias]\nd = diff -- src/lib.rs\nup = !git fetch && git rebase origin/main.x\n\
             e = rebase --exec ./tools/each\n",
        ),
        (
            "home/hk/pre-commit",
            "#!/bin/sh\n[ -x ./tools/l.sh ] && exec ./tools/l.sh\n. \"$(dirname \"$0\")/common.sh\"\n\
             \"$(git rev-parse --git-dir)/hooks/own\"\n\"$GIT_DIR/../gd/x\"\nOUT=src/main X=lists/all.txt\n\
             python3 -m checks\nnode_modules/.bin/x\n\"$(git rev-parse --show-toplevel)/.ci/run\" \"$@\"\n",
        ),
        ("home/hk/common.sh", ""),
        ("home/template/hooks/post-checkout", "sh setup/after\n"),
    ]);
    place.check(
        "repo/ws",
        &[
            "tools/l.sh",
            "new/tools/l.sh",
            "deep/er/tools/L.SH",
            "vendor/p/tools/l.sh",
            "new/.ci/run",
            "new/setup/after",
            "new/checks.py",
            "new/lists/all.txt",
            "new/tools/pager",
            "new/ci/clean.py",
            "new/tools/conv",
            "new/tools/each",
            "new/conf/ssh.conf",
            "new/gd/x",
        ],
        &[
            "new/tools/other.sh",
            "new/common.sh",
            "src/hooks/own",
            "new/src/main",
            "new/src/main/x",
            "new/src/lib.rs",
            "new/origin/main.x",
            ".venv/lib/checks/x.py",
            "node_modules/checks/x.js",
        ],
    );
    // A configuration of one repository says nothing about others.
    let place = Place::new(&[
        ("repo/ws/.git/config", "[core]\nhooksPath = BASE/home/hk\n"),
        ("home/hk/pre-commit", "./tools/l.sh\n"),
    ]);
    place.check("repo/ws", &["tools/l.sh"], &["new/tools/l.sh"]);
}

/// With `push.default = upstream` an upstream of another name decides where `git push` goes.
#[test]
fn a_configuration_that_pushes_to_upstreams_is_found() {
    let upstream = "[push]\ndefault = upstream\n";
    let repository = ("repo/ws/.git/config", "[core]\nbare = false\n");
    let told = |files: &[(&str, &str)]| Place::new(files).led_to("repo/ws", &[]).unwrap().pushes_to_upstream;
    assert!(!told(&[repository, ("home/.gitconfig", "[push]\ndefault = simple\n")]));
    for path in
        ["repo/ws/.git/config", "repo/ws/.git/config.worktree", "home/.gitconfig", "system", "repo/ws/a/.git/config"]
    {
        assert!(told(&[repository, (path, upstream)]), "{path}");
    }
    let include = "[includeIf \"onbranch:x\"]\npath = BASE/home/more\n";
    assert!(told(&[repository, ("home/.gitconfig", include), ("home/more", upstream)]));
}
