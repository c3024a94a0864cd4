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
        ("find s -name '*.sh' -exec sh {} \\;", &["s"]),
        ("find ./s t -type f -exec {} +", &["./s", "t"]),
        ("find . -name pre-commit.local -exec {} \\;", &["pre-commit.local"]),
        ("find . -name x.sh -exec bash -e {} \\;", &["x.sh"]),
        ("find src -name '*.c' -exec indent {} +", &[]),
        ("ls s/*.sh | while read -r f; do sh \"$f\"; done", &["s"]),
        ("find s -type f | while IFS= read f; do \"$f\"; done", &["s"]),
        ("find . -type f | while read f; do sh \"$f\"; done", &[]),
        ("ls src/*.c | while read f; do indent \"$f\"; done", &[]),
        ("git diff --name-only | while read f; do wc \"$f\"; done", &[]),
        ("git diff | awk -f ci/x.awk", &["ci/x.awk"]),
        ("awk -F: '{ print $1 }' src/x", &[]),
        ("make -f ci/x.mk lint; sed -fci/x.sed y", &["ci/x.mk", "ci/x.sed"]),
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
fn words_that_a_shell_makes_up_name_their_directory() {
    for (text, wanted) in [
        ("for s in l m; do scripts/$s.sh; done", "scripts"),
        ("for s in l m; do scripts/$s.sh; done", "scripts/l.sh"),
        ("ROOT=\"$(git rev-parse --show-toplevel)\"; N=l; \"$ROOT/scripts/$N.sh\"", "scripts/l.sh"),
        ("\"$ROOT/ci/hooks/$1.sh\"", "ci/hooks"),
        ("sh scripts/`uname`.sh", "scripts/"),
        ("scripts/${1}/run \"$@\"", "scripts"),
        ("D=ci; \"$ROOT/$D/l\"", "ci/l"),
        ("D=ci E=$D/deep; $E/l", "ci/deep/l"),
        ("LIST='a/one b/two'; for i in $LIST; do sh $i; done", "b/two"),
        ("cd \"$(dirname \"$0\")/../../scripts\" && ./l.sh", "../../scripts/./l.sh"),
        ("HERE=$(dirname $0)\ncd \"$HERE\"\ncd ..\n./x", ".././x"),
        ("D=tools; cd $D; ./x", "tools/./x"),
        ("cd lint/$x && ./run", "lint"),
        ("bash <(cat scripts/l.sh)", "scripts/l.sh"),
        (". <(cat lib)", "lib"),
        ("exec bash -e <(cat scripts/l)", "scripts/l"),
        ("eval \"$(cat scripts/l.sh)\"", "scripts/l.sh"),
        ("eval $(cat scripts/l.sh)", "scripts/l.sh"),
        ("bash -c \"$(cat l)\"", "l"),
        ("bash < scripts/l.sh", "scripts/l.sh"),
        ("OUT=\"$(scripts/$x)\"", "scripts"),
        ("\"`git rev-parse --show-toplevel`/tools/x\"", "tools/x"),
    ] {
        let found = of_script(text.as_bytes());
        let is_meant = |word: &&Word| !word.only_files && word.text == wanted.as_bytes();
        assert!(found.iter().any(|word| is_meant(&word)), "{text}: {found:?}");
    }
    let chained = of_script(b"h=\"$(git rev-parse --git-dir)/hooks/$(basename \"$0\")\"\n[ -x \"$h\" ] && exec \"$h\"");
    assert!(!chained.iter().any(|word| word.text == b"hooks"), "{chained:?}");
    // What another script is for says nothing about its directory.
    for text in
        ["echo \"docs/$x is missing\"", "F=src/$x; git add \"$F\"", "cat package.json | grep x", "cp src/$a b/$c"]
    {
        let found = of_script(text.as_bytes());
        assert!(found.iter().all(|word| word.only_files), "{text}: {found:?}");
    }
}

#[test]
fn an_unknown_command_may_be_any_program_of_the_script() {
    for text in ["run() { \"$@\"; }\nrun ./l.sh", "$(./pick) tools/l.sh ./l.sh", "X=./l.sh\n\"$1\"", "sh \"$1\" ./l.sh"]
    {
        let found = of_script(text.as_bytes());
        assert!(found.iter().any(|word| word.only_programs && word.text == b"./l.sh"), "{text}: {found:?}");
    }
    for text in ["[ \"$A\" = ./l.sh ] && echo ./l.sh", "C=git; $C add ./l.sh", "if test \"$1\"; then echo ./l.sh; fi"] {
        let found = of_script(text.as_bytes());
        assert!(!found.iter().any(|word| word.only_programs), "{text}: {found:?}");
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
    for text in [
        "",
        "#!",
        "'",
        "\"",
        "cd",
        "use",
        "env",
        "=",
        "$",
        "$(",
        "`",
        "x=\"$(",
        "((((",
        "\\",
        "sh",
        "- ",
        ":",
        "$(((",
        "`$(",
        "cd $",
        "A=$A/$A; $A",
    ] {
        of_script(text.as_bytes());
        of_configuration(text.as_bytes());
    }
}
