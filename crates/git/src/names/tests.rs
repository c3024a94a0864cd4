use super::*;
use std::borrow::Cow;

fn find<'a>(names: &'a Names, path: &str) -> Match<'a> {
    let folded: Vec<Cow<'_, [u8]>> = path.split('/').map(|name| fold(name.as_bytes())).collect();
    // The result borrows from the set alone.
    names.find(&folded)
}

fn added(texts: &[&str]) -> Names {
    let mut names = Names::standard();
    names.extend(texts.iter().map(|text| Pattern::parse(text).unwrap()));
    names
}

#[test]
fn protected_names_come_in_pairs_with_harmless_neighbours() {
    let names = Names::standard();
    for (bad, good) in [
        (".vscode/tasks.json", "vscode/tasks.json"),
        ("a/b/.VSCode", "a/b/.vscodes"),
        ("nexus.yaml", "nexus.yaml.md"),
        (".nexus-x/y", "nexus-x/y"),
        ("x/.envrc", "x/.envrc.sample"),
        (".config/fish/config.fish", ".config/fishy/config.fish"),
        ("sub/.bashrc", "sub/bashrc"),
        (".CLAUDE/settings.json", "claude/settings.json"),
        ("my.code-workspace", "my.code-workspaces"),
        ("a/.Code-Workspace", "a/code-workspace"),
        (".cargo/config.toml", ".cargo/registry/config.toml"),
        (".cargo/config", "cargo/config"),
        (".dir-locals-2.el", ".dir-locals"),
        ("lefthook.yml", "lefthook"),
        (".github/workflows/ci.yml", ".github/FUNDING.yml"),
        ("docs/AGENTS.md", "docs/AGENT-S.md"),
        (".envrc.", ".envrc.x"),
        (".fslckout", "fslckout"),
        ("_FOSSIL_", "_FOSSIL_.txt"),
        (".jj/workspace-config.toml", ".jj/working_copy/type"),
        (".jj/workspace-config-id", "jj/config"),
        (".hgrc", ".hg/store/data"),
        (".local/lib/python3.13/site-packages/x.pth", ".local/lib/x"),
        (".v\u{17f}code", ".v\u{e9}code"),
        (".id\u{200c}ea/x", ".id-ea/x"),
    ] {
        assert!(matches!(find(&names, bad), Match::Protected(_)), "{bad}");
        assert_eq!(find(&names, good), Match::None, "{good}");
    }
    for text in DEFAULT_PROTECTED.iter().chain(DEFAULT_PROTECTED_OF_REPOSITORIES) {
        for depth in ["", "a/b/"] {
            let path = format!("{depth}{}", text.replace('*', "zz"));
            assert!(matches!(find(&names, &path), Match::Protected(_)), "{path}");
            assert!(matches!(find(&names, &format!("{path}/below")), Match::Protected(_)), "{path}");
        }
    }
}

/// Names that earlier versions committed unasked.
#[test]
fn names_that_used_to_arrive_unasked_are_protected() {
    let names = Names::standard();
    for path in [
        ".husky/pre-commit",
        ".githooks/x",
        ".pre-commit-config.yaml",
        "lefthook.yml",
        ".cursor/mcp.json",
        ".cursorrules",
        ".gemini/settings.json",
        ".windsurf/x",
        ".kiro/x",
        ".roo/x",
        ".agents/x",
        "AGENTS.md",
        "CLAUDE.md",
        "mcp.json",
        ".devcontainer/devcontainer.json",
        ".devcontainer.json",
        "x.code-workspace",
        ".zed/x",
        ".fleet/x",
        ".exrc",
        ".nvim.lua",
        ".vimrc",
        ".lvimrc",
        ".dir-locals.el",
        ".gdbinit",
        ".npmrc",
        ".yarnrc.yml",
        ".pnpmfile.cjs",
        ".cargo/config.toml",
        ".mvn/extensions.xml",
        ".bazelrc",
        ".bundle/config",
        "mise.toml",
        ".mise.toml",
        ".tool-versions",
        ".gitmodules",
        ".gitattributes",
        ".gitconfig",
        ".ripgreprc",
        ".github/workflows/x.yml",
        ".gitlab-ci.yml",
        ".ssh/authorized_keys",
        ".config/git/config",
        ".config/autostart/x.desktop",
        ".config/systemd/user/x.service",
        ".config/nvim/init.lua",
        ".bash_aliases",
        ".git/lazygit.yml",
        ".lazygit.yml",
        ".git/sl/config",
        ".hg/sharedpath",
        ".arcconfig",
        "_darcs/prefs/defaults",
        ".repo/repo/main.py",
        ".bsp/sbt.json",
        ".direnv/flake-profile.rc",
        ".devenv/profile",
        ".github/hooks/x.json",
        ".lfsconfig",
        ".RData",
        ".iex.exs",
        ".yarn/releases/yarn.cjs",
        ".config/mise.toml",
        ".config/nexus/config.toml",
        ".config/starship.toml",
        ".bashrc.d/x",
        ".docker/config.json",
        ".bash_logout",
        ".agent/rules/x.md",
        ".kilocodemodes",
        "CRUSH.md",
        "hie.yaml",
        ".vs/tasks.vs.json",
        "devbox.json",
        "devenv.nix",
        "uv.toml",
        "poetry.toml",
        "pnpm-workspace.yaml",
        "latexmkrc",
        ".latexmkrc",
        ".rspec",
        ".proverc",
        ".bash-git-rc",
        "buildServer.json",
        ".lsp/config.edn",
        ".merlin",
        "tools/bazel",
        ".shadowenv.d/x.lisp",
        "jupyter_notebook_config.py",
        "sitecustomize.py",
        "CVS/Root",
        ".zlogout",
        ".tmux.conf",
    ] {
        assert!(matches!(find(&names, path), Match::Protected(_)), "{path}");
        let upper = path.to_ascii_uppercase();
        assert!(matches!(find(&names, &upper), Match::Protected(_)), "{upper}");
    }
}

#[test]
fn what_leads_to_a_protected_name_is_known() {
    let names = Names::standard();
    for path in [".config", "x/.config", ".cargo", ".github", ".local", ".local/share", ".Local/Share"] {
        assert_eq!(find(&names, path), Match::Leads, "{path}");
    }
    for path in ["config", ".configs", ".local/other", "x"] {
        assert_eq!(find(&names, path), Match::None, "{path}");
    }
}

#[test]
fn files_of_repositories_do_not_count_in_packages() {
    let names = Names::standard();
    for path in [".gitattributes", ".github/workflows/x", ".travis.yml", "uv.toml", ".rspec"] {
        assert!(matches!(find(&names, &format!("a/{path}")), Match::Protected(_)), "{path}");
        for packages in ["node_modules", "vendor", ".venv", "lib/site-packages"] {
            assert_eq!(find(&names, &format!("a/{packages}/b/{path}")), Match::None, "{path}");
        }
    }
    // What acts wherever it lies counts there too.
    for path in [".vscode/tasks.json", "AGENTS.md", ".envrc"] {
        assert!(matches!(find(&names, &format!("node_modules/b/{path}")), Match::Protected(_)), "{path}");
    }
}

#[test]
fn names_can_be_added_with_stars_and_chains() {
    let names = added(&["Makefile", "deploy/*.sh", "secret*key*"]);
    for path in ["makefile", "a/Makefile", "deploy/x.sh", "a/DEPLOY/y.SH/z", "secret-a-key-b", "secretkey"] {
        assert!(matches!(find(&names, path), Match::Protected(_)), "{path}");
    }
    for path in ["makefiles", "deploy/x.py", "secret-a", "keysecret"] {
        assert_eq!(find(&names, path), Match::None, "{path}");
    }
    assert_eq!(find(&names, "a/deploy"), Match::Leads);
    assert_eq!(find(&added(&[]), "deploy"), Match::None);
}

#[test]
fn a_directory_of_hooks_counts_from_the_top_alone() {
    let mut names = Names::none();
    names.extend([Pattern::of_directory(b"tools/Hooks", "core.hooksPath")]);
    assert_eq!(find(&names, "tools/hooks/x"), Match::Protected("core.hooksPath"));
    assert_eq!(find(&names, "tools"), Match::Leads);
    assert_eq!(find(&names, "a/tools/hooks/x"), Match::None);
}
