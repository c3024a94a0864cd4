use crate::class::Class;
use crate::leads::{Host, Reach};
use crate::names::Names;
use nexus_beneath::Workspace;
use std::os::unix::fs::PermissionsExt as _;

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
    let rules = Names::standard().for_workspace(&workspace, &at, &Host::default(), Reach::COMMIT, &[]).unwrap().names;
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
        (".envrc", "dotenv\nsource_env lib/env\nPATH_add tools/path\nuse flake\n"),
        (".mcp.json", "{\"command\": \"node\", \"args\": [\"srv/mcp.js\", \"src\", \"src/none\"]}"),
        ("srv/mcp.js", ""),
        (".pre-commit-config.yaml", "  - id: x\n    entry: ./ci/hook.sh\n"),
        ("ci/hook.sh", ""),
        (".devcontainer/devcontainer.json", "{\"build\": {\"dockerfile\": \"../Dockerfile\"}}"),
        ("Dockerfile", ""),
        (".vscode/tasks.json", "{\"command\": \"./build.sh\", \"runOn\": \"folderOpen\"}"),
        ("build.sh", ""),
        ("other/.vscode/tasks.json", "{\"command\": \"./plain.sh\"}"),
        ("plain.sh", ""),
        (".git/config", "[core]\nhooksPath = ghooks\n"),
        ("ghooks/pre-commit", "cd scripts && ./by-path.sh\n"),
        ("moved/.git/config", "[core]\nworktree = ../../src2\n"),
        ("moved/.git/hooks/pre-commit", "exec ./tools/l.sh\n"),
        ("srv.git/HEAD", "x"),
        ("srv.git/objects/x", ""),
        ("srv.git/refs/x", ""),
        ("srv.git/hooks/update", "exec ../deploy/helper.sh\n"),
        ("sub/.git/hooks/post-merge", "./after\n"),
        (".claude/settings.json", "{\"command\": \"\\\"$CLAUDE_PROJECT_DIR\\\"/agent/l.sh\"}"),
        ("agent/l.sh", ""),
        ("deep/er/.envrc", "source lib/rc\nsource_env ../rc\n"),
        (".npmrc", "script-shell=./shells/npm\n"),
        ("shells/npm", ""),
        (".yarnrc.yml", "yarnPath: .yarn/yarn.cjs\n"),
        (".yarn/yarn.cjs", ""),
        (".cargo/config.toml", "[build]\nrustc-wrapper = \"wrap/rustc\"\n"),
        ("wrap/rustc", ""),
        (".overcommit.yml", "  command: ['ruby', 'over/l.rb']\n"),
        ("over/l.rb", ""),
        (".lintstagedrc", "{\"*.js\": \"./lint/js --fix\"}"),
        ("lint/js", ""),
        (".config/mise.toml", "[hooks]\nenter = \"./enter/x\"\n"),
        ("enter/x", ""),
        ("prek.toml", "entry = \"prek/l.sh\"\n"),
        ("prek/l.sh", ""),
        (".git/hooks/post-checkout", "HERE=\"$(dirname \"$0\")\"\n\"$HERE/../../by/place.sh\"\n"),
        (".git/hooks/pre-rebase", "cd \"$(dirname \"$0\")/../../own\" && ./l.sh\n\"$1\" may/run.sh may/read.json\n"),
        ("may/run.sh", ""),
        ("may/read.json", ""),
        (".git/hooks/post-commit", "for s in all/*.sh; do $s; done\n\"$INSTALL_PYTHON\" -mhook_impl x\n"),
    ] {
        std::fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
        std::fs::write(at.join(path), text).unwrap();
        if path == "may/run.sh" {
            std::fs::set_permissions(at.join(path), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    let workspace = Workspace::open(&at).unwrap();
    let rules = Names::standard().for_workspace(&workspace, &at, &Host::default(), Reach::COMMIT, &[]).unwrap().names;
    for path in [
        "tools/lint.sh",
        "ci/message.js",
        ".env",
        "lib/env",
        "sub/after",
        "v/python",
        "tools/path/ls",
        "flake.nix",
        "srv/mcp.js",
        "ci/hook.sh",
        "Dockerfile",
        "build.sh",
        "ghooks/x",
        "scripts/by-path.sh",
        "deploy/helper.sh",
        "src2/tools/l.sh",
        "by/place.sh",
        "agent/l.sh",
        "deep/er/lib/rc",
        "deep/rc",
        "shells/npm",
        ".yarn/yarn.cjs",
        "wrap/rustc",
        "over/l.rb",
        "lint/js",
        "enter/x",
        "prek/l.sh",
        "all/new.sh",
        "own/l.sh",
        "may/run.sh",
        "hook_impl.py",
        "hook_impl/__main__.py",
    ] {
        assert!(matches!(rules.class(path.as_bytes()), Class::Listed(_)), "{path}");
    }
    for path in [
        "tools/x",
        "other/x",
        "after",
        "sub/.env",
        "src/y",
        "node_modules/x/y",
        "src/none",
        "plain.sh",
        "srv/x",
        "may/read.json",
    ] {
        assert_eq!(rules.class(path.as_bytes()), Class::Plain, "{path}");
    }
}

/// The rules of a workspace with one `.envrc` or hook and further files.
fn rules_with(script: &str, text: &str, more: &[&str]) -> (tempfile::TempDir, Names) {
    let directory = tempfile::tempdir().unwrap();
    let at = std::fs::canonicalize(directory.path()).unwrap();
    for (path, text) in more.iter().map(|path| (*path, "")).chain([(".git/HEAD", "x"), (script, text)]) {
        std::fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
        std::fs::write(at.join(path), text).unwrap();
    }
    let workspace = Workspace::open(&at).unwrap();
    let rules = Names::standard().for_workspace(&workspace, &at, &Host::default(), Reach::COMMIT, &[]).unwrap().names;
    (directory, rules)
}

#[test]
fn what_direnv_loads_waits_also_when_it_is_new() {
    for (text, path) in [
        ("export $(grep -v '^#' .env | xargs)", ".env"),
        ("export $(cat .env .env.local)", ".env.local"),
        ("export $(xargs < conf/.env)", "conf/.env"),
        ("export $(<.env)", ".env"),
        ("export \"$(cat .env)\"", ".env"),
        ("declare -x $(sops -d secrets.enc.env)", "secrets.enc.env"),
        ("set -a; . .env; set +a", ".env"),
        ("while read -r l; do export \"$l\"; done < .env", ".env"),
        ("eval \"$(./bin/env)\"", "bin/env"),
        ("eval \"$(direnv-tool --file conf/tool.yml)\"", "conf/tool.yml"),
        ("source .venv/bin/activate", ".venv/bin/git"),
        (". \"$PWD/env/bin/activate.sh\"", "env/bin/git"),
        ("V=.venv; source $V/bin/activate", ".venv/bin/git"),
        ("layout node", "node_modules/.bin/git"),
        ("layout_node", "node_modules/.bin/git"),
        ("export PATH=$PWD/node_modules/.bin:$PATH", "node_modules/.bin/git"),
        ("layout php", "vendor/bin/git"),
        ("layout python3.12", ".venv/bin/git"),
        ("export VIRTUAL_ENV=env\nlayout python", "env/bin/git"),
        ("layout uv", ".venv/bin/git"),
        ("layout go", "bin/git"),
        ("export GOPATH=$PWD/go\nPATH_add $GOPATH/bin", "go/bin/git"),
        ("use flake ./nix", "nix/flake.nix"),
        ("use_flake path:./nix#dev", "nix/flake.lock"),
        ("use_nix", "shell.nix"),
        ("use nix ci/dev.nix", "ci/dev.nix"),
        ("eval \"$(lorri direnv)\"", "shell.nix"),
        ("eval \"$(pixi shell-hook)\"", "pixi.toml"),
        ("eval \"$(nix print-dev-env)\"", "flake.nix"),
        ("use devenv", "devenv.nix"),
        ("export PYTHONSTARTUP=lib/s.py", "lib/s.py"),
        ("export PYTHONPATH=$PWD/lib:$PYTHONPATH", "lib/sitecustomize.py"),
        ("export NODE_OPTIONS=\"--require ./x.js\"", "x.js"),
        ("export NODE_OPTIONS=--require=$PWD/x.js", "x.js"),
        ("export EDITOR=./bin/ed", "bin/ed"),
        ("export GIT_CONFIG_GLOBAL=$PWD/conf/git", "conf/git"),
        ("export GIT_CONFIG_GLOBAL=gitcfg", "gitcfg"),
        ("export GIT_SSH_COMMAND=\"ssh -F $PWD/ssh.conf\"", "ssh.conf"),
        ("export KUBECONFIG=$PWD/a/kube:$PWD/b/kube", "b/kube"),
        ("export DOCKER_CONFIG=$PWD/.dock", ".dock/config.json"),
        ("export JAVA_TOOL_OPTIONS=-javaagent:lib/a.jar", "lib/a.jar"),
        ("export MY_TOOL_CONFIG=conf/tool.toml", "conf/tool.toml"),
        ("export LD_PRELOAD=lib/x.so", "lib/x.so"),
    ] {
        let (_directory, rules) = rules_with(".envrc", text, &[]);
        assert!(matches!(rules.class(path.as_bytes()), Class::Listed(_)), "{text}: {path}");
    }
}

#[test]
fn an_ordinary_envrc_or_hook_holds_no_work_up() {
    let envrc = "export FOO=bar\nexport VERSION=$(cat VERSION)\nexport DATABASE_URL=sqlite:///./data/db.sqlite\n\
                 PATH_add bin\nexport EDITOR=vim NODE_OPTIONS=--max-old-space-size=4096\nexport CARGO_TARGET_DIR=$PWD/target\n\
                 export JAVA_OPTS=-Xmx2g\nwatch_file package.json\nexport GIT_AUTHOR_NAME=x\nexport RC=0 MANPATH=man\n\
                 export GIT_SSH_COMMAND='ssh -o ConnectTimeout=5'\nuse node 20\nexport PYTHONPATH=.:src NODE_PATH=$PWD/lib\n";
    let hook = "#!/usr/bin/env bash\nINSTALL_PYTHON=/ws/.venv/bin/python3\nARGS=(hook-impl --config=.pre-commit-config.yaml)\n\
                HERE=\"$(cd \"$(dirname \"$0\")\" && pwd)\"\nexport PATH=\"./node_modules/.bin:$PATH\"\nnpx lint-staged\n\
                npm test\ncargo fmt --check\nwhile read -r local remote; do git log \"$remote\"; done < list.txt\n\
                for f in $(git diff --name-only); do echo \"$f\"; done\nlefthook run pre-commit\n";
    let more = ["VERSION", "package.json", "node_modules/.bin/eslint", "src/a.rs", "list.txt"];
    for (script, text) in [(".envrc", envrc), (".husky/pre-commit", hook), (".git/hooks/pre-commit", hook)] {
        let (_directory, rules) = rules_with(script, text, &more);
        for path in [
            "VERSION",
            "package.json",
            "node_modules/.bin/eslint",
            "node_modules/x/y.js",
            ".venv/bin/pip",
            ".venv/lib/x.py",
            "target/debug/x",
            "data/db.sqlite",
            "src/a.rs",
            "src/new.rs",
            "lib/new.py",
            "man/x",
            "Cargo.lock",
            "flake.nix",
            "list.txt",
            ".env",
        ] {
            assert_eq!(rules.class(path.as_bytes()), Class::Plain, "{script}: {path}");
        }
        assert_eq!(matches!(rules.class(b"bin/x"), Class::Listed(_)), script == ".envrc");
    }
}

#[test]
fn a_directory_of_libraries_of_a_hook_is_protected() {
    for (text, path) in [
        ("PYTHONPATH=scripts python3 -m l", "scripts/l.py"),
        ("export NODE_PATH=$PWD/jslib; node -e 'require(\"x\")'", "jslib/x.js"),
        ("RUBYLIB=rb:more ruby -rx", "more/x.rb"),
        ("PERL5LIB=pl perl -Mx", "pl/x.pm"),
        ("source tools/venv/bin/activate; black .", "tools/venv/bin/black"),
        ("GIT_EXTERNAL_DIFF=x/y.sh git diff", "x/y.sh"),
    ] {
        let (_directory, rules) = rules_with(".git/hooks/pre-commit", text, &[]);
        assert!(matches!(rules.class(path.as_bytes()), Class::Listed(_)), "{text}: {path}");
        assert_eq!(rules.class(b"src/x.py"), Class::Plain, "{text}");
    }
}

#[test]
fn a_path_behind_an_unquoted_command_counts() {
    for (script, text, path) in [
        (".git/hooks/pre-commit", "$(git rev-parse --show-toplevel)/hk/x", "hk/x"),
        (".git/hooks/pre-commit", "H=$(git rev-parse --show-toplevel)/hk/x; \"$H\"", "hk/x"),
        (".git/hooks/pre-commit", "H=`git rev-parse --show-toplevel`/hk/x; $H", "hk/x"),
        (".git/hooks/pre-commit", "D=$(pwd)/hk; $D/x", "hk/x"),
        (".git/hooks/pre-commit", ". $(git rev-parse --show-toplevel)/hk/x", "hk/x"),
        (".git/hooks/pre-commit", "cd $(git rev-parse --show-toplevel)/hk && ./x", "hk/x"),
        (".envrc", "export PATH=$(pwd)/bin:$PATH", "bin/git"),
        (".envrc", "PATH_add $(pwd)/bin", "bin/git"),
        (".envrc", ". $(pwd)/env.sh", "env.sh"),
        (".envrc", "export EDITOR=$(pwd)/bin/ed", "bin/ed"),
    ] {
        let (_directory, rules) = rules_with(script, text, &["hk/x", "env.sh", "bin/ed"]);
        assert!(matches!(rules.class(path.as_bytes()), Class::Listed(_)), "{text}: {path}");
        assert_eq!(rules.class(b"src/x"), Class::Plain, "{text}");
    }
    let (_directory, rules) = rules_with(".envrc", "export CARGO_TARGET_DIR=$(pwd)/target FOO=$(date)/x", &[]);
    assert_eq!(rules.class(b"target/debug/x"), Class::Plain);
}
