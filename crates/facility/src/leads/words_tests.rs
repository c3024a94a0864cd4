use super::*;

fn texts(found: Vec<Word>) -> Vec<String> {
    found.into_iter().map(|word| String::from_utf8_lossy(&word.text).into_owned()).collect()
}

#[test]
fn words_at_the_place_of_a_command_are_paths() {
    let names = |text: &str| texts(of_script(text.as_bytes()));
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
        ("#!.venv/bin/python -u\n", &[".venv/bin/python"]),
        ("#!/usr/bin/env -S ./tools/run x\n", &["./tools/run"]),
        ("/usr/bin/python3 ci/check.py", &["ci/check.py"]),
        ("python3.11 ci/check.py", &["ci/check.py"]),
        ("git ls-files | xargs -r ./lint", &["./lint"]),
        ("xargs -n1 python3 ci/one.py", &["ci/one.py"]),
        ("find . -name '*.c' -exec tools/fmt {} +", &["tools/fmt"]),
        ("timeout 10 ./slow", &["./slow"]),
        ("sudo -u x env A=b ./x", &["./x"]),
        ("cd scripts && ./f.sh", &["scripts/./f.sh", "./f.sh"]),
        ("cd a\ncd b\nsh go", &["a/b/go", "a/go", "b/go", "go"]),
        ("(cd \"$TOP/x\"; . ./y)", &["x/./y"]),
        ("PATH_add bin", &["bin"]),
        ("path_add PATH tools/bin", &["tools/bin"]),
        ("export PATH=\"$PWD/bin:$PATH\"", &["bin"]),
        ("use flake", &["flake.nix", "flake.lock"]),
        ("use flake ./nix#dev", &["./nix"]),
        ("use nix", &["shell.nix", "default.nix"]),
        ("A=\"$(./tools/version)\"", &["./tools/version"]),
        ("sh -c './one; tools/two'", &["./one", "tools/two"]),
        ("exec ./a \\\n  b\n", &["./a"]),
        ("exec \"$INSTALL_PYTHON\" -mpre_commit x", &["pre_commit.py", "pre_commit"]),
        ("env A=b python3 -u -m checks.all x", &["checks.py", "checks"]),
        ("function f { ./s; }", &["./s"]),
        ("coproc ./s", &["./s"]),
        ("coproc X { ./s; }", &["./s"]),
        ("busybox sh lint", &["lint"]),
        ("run-parts --verbose checks", &["checks"]),
        ("for s in scripts/*.sh; do $s; done", &["scripts"]),
        ("for s in ci/one ci/two; do sh \"${s}\"; done", &["ci/one", "ci/two"]),
        ("tools/{l,m}.sh", &["tools"]),
        ("tools/l.*", &["tools"]),
        ("S=tools; $S/l.sh", &["tools/l.sh"]),
        ("D=$PWD/tools\nsh \"$D/l.sh\"", &["tools/l.sh"]),
        ("cat setup | sh -e", &["setup"]),
        ("uv run tools/l.py", &["tools/l.py"]),
        ("poetry run python lint", &["lint"]),
        ("npx tsx tools/l.ts", &["tools/l.ts"]),
        ("\"${BASH_SOURCE%/*}/../../tools/l.sh\"", &["../../tools/l.sh"]),
    ] {
        let found = names(text);
        for name in wanted {
            assert!(found.contains(&(*name).to_owned()), "{text}: {found:?}");
        }
        assert!(!found.iter().any(|name| name == "package.json" || name == "src/x" || name == "a/b"), "{found:?}");
    }
}

#[test]
fn a_configuration_names_files_as_commands_and_arguments() {
    for (text, wanted) in [
        ("{\"command\": \"python3\", \"args\": [\"tools/mcp.py\", \"-x\"]}", "tools/mcp.py"),
        ("  \"initializeCommand\": \"sh .ci/setup.sh\",", ".ci/setup.sh"),
        ("\"dockerfile\": \"Dockerfile.dev\"", "Dockerfile.dev"),
        ("    entry: python ci/check.py --fix", "ci/check.py"),
        ("    entry: ./lint.sh", "./lint.sh"),
        ("      run: cd web && ./check", "web/./check"),
        ("\"path\": \"${workspaceFolder}/.venv/bin/python\"", ".venv/bin/python"),
        ("\"command\": \"\\\"$CLAUDE_PROJECT_DIR\\\"/agent/l.sh\"", "agent/l.sh"),
        ("script-shell=./npm-shell", "./npm-shell"),
        ("command = [\"./x\", \"y\"]", "./x"),
    ] {
        let found = of_configuration(text.as_bytes());
        assert!(found.iter().all(|word| word.only_files), "{text}: {found:?}");
        assert!(texts(found.clone()).contains(&wanted.to_owned()), "{text}: {found:?}");
    }
}

#[test]
fn any_bytes_are_searched_without_a_panic() {
    for text in ["", "#!", "'", "\"", "cd", "use", "env", "=", "$", "$(", "`", "x=\"$(", "((((", "\\", "sh", "- ", ":"]
    {
        of_script(text.as_bytes());
        of_configuration(text.as_bytes());
    }
}
