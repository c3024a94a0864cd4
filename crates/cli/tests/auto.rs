//! The default of a run: it shows the toolchains that the caller's PATH and environment lead to, and nothing that the
//! workspace or another user chose.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{Bench, is_root, on_each_bench, report, stderr, stdout};

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Writes a file of the home; every directory on the way is its owner's alone to write.
fn at_home(bench: &Bench, name: &str, content: &str) -> PathBuf {
    let path = bench.home.join(name);
    let mut directory = bench.home.clone();
    for part in Path::new(name).parent().unwrap().components() {
        directory.push(part);
        if !directory.exists() {
            fs::create_dir(&directory).unwrap();
            mode(&directory, 0o755);
            bench.give(&directory);
        }
    }
    fs::write(&path, content).unwrap();
    mode(&path, 0o755);
    bench.give(&path);
    path
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn on_path(bench: &Bench, directories: &[&str]) -> String {
    let own = directories.iter().map(|directory| format!("{}:", bench.home.join(directory).display()));
    own.collect::<String>() + SYSTEM_PATH
}

/// Directories of PATH with the program in each of them.
const TOOLS: &[(&str, &str)] = &[
    (".nvm/versions/node/v22.1.0/bin", "node"),
    (".nvm/versions/node/v22.1.0/bin", "npm"),
    (".pyenv/shims", "python3"),
    (".cargo/bin", "cargo"),
    ("sdk/go1.25/bin", "go"),
    (".sdkman/candidates/java/21/bin", "java"),
    (".sdkman/candidates/maven/3.9.9/bin", "mvn"),
    (".rbenv/shims", "ruby"),
    ("perl5/perlbrew/perls/perl-5.38/bin", "perl"),
    (".phpbrew/php/php-8.3/bin", "php"),
];

const SECRETS: &[&str] = &[
    ".cargo/credentials.toml",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".ssh/id_ed25519",
    ".git-credentials",
    ".config/gh/hosts.yml",
    ".config/pip/pip.conf",
    ".m2/settings.xml",
    ".sdkman/candidates/maven/3.9.9/conf/settings.xml",
    ".gradle/gradle.properties",
    ".gem/credentials",
    ".bundle/config",
    ".docker/config.json",
    ".aws/credentials",
    ".nvm/versions/node/v22.1.0/etc/npmrc",
    ".pyenv/versions/3.12.1/pip.conf",
    ".pyenv/versions/3.12.1/lib/python3.12/distutils/distutils.cfg",
    "bin/other",
    ".local/bin/other",
    "documents/diary",
];

/// Lays a home out as installers do, with a script for each program and secrets beside them. Returns PATH.
fn home_with_tools(bench: &Bench) -> String {
    let program = |name: &str, said: &str| at_home(bench, name, &format!("#!/bin/sh\necho {said}\n"));
    for (directory, name) in TOOLS.iter().filter(|(directory, _)| !directory.ends_with("shims")) {
        program(&format!("{directory}/{name}"), name);
    }
    for (manager, version, name) in [(".pyenv", "3.12.1", "python3"), (".rbenv", "3.3.0", "ruby")] {
        program(&format!("{manager}/versions/{version}/bin/{name}"), name);
        program(&format!("{manager}/shims/{name}"), "shim");
        at_home(bench, &format!("{manager}/version"), version);
    }
    let stable = program(".rustup/toolchains/stable/bin/cargo", "cargo");
    fs::remove_file(bench.home.join(".cargo/bin/cargo")).unwrap();
    at_home(bench, ".cargo/bin/rustup", &format!("#!/bin/sh\nexec {}\n", stable.display()));
    symlink("rustup", bench.home.join(".cargo/bin/cargo")).unwrap();
    for secret in SECRETS {
        at_home(bench, secret, "HUNTER2\n");
    }
    let settings =
        "[user]\n\tname = A B\n\temail = a@b.example\n\tsigningkey = HUNTER2\n[http]\n\textraheader = HUNTER2\n";
    at_home(bench, ".gitconfig", settings);
    let mut directories: Vec<&str> = TOOLS.iter().map(|(directory, _)| *directory).collect();
    directories.dedup();
    on_path(bench, &directories)
}

fn explained(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Paths inside that a run would show beside the system and the workspace.
fn shown(bench: &Bench, path: &str, more: &[&str]) -> BTreeSet<String> {
    let told = explained(bench.nexus(["explain", "--json"]).args(more).args(["--", "true"]).env("PATH", path));
    told["paths"].as_array().unwrap().iter().map(|one| one["path"]["text"].as_str().unwrap().to_owned()).collect()
}

fn of_home(bench: &Bench, shown: &BTreeSet<String>) -> Vec<String> {
    let home = format!("{}/", bench.home.display());
    shown.iter().filter_map(|path| path.strip_prefix(&home)).map(str::to_owned).collect()
}

#[test]
fn what_path_has_runs_without_a_flag() {
    on_each_bench(|bench| {
        let path = home_with_tools(&bench);
        for (directory, name) in TOOLS {
            let output = bench.nexus(["run", "--", name]).env("PATH", &path).output().unwrap();
            let who = bench.who();
            assert_eq!(stdout(&output), format!("{name}\n"), "{who}: {directory}/{name}: {}", stderr(&output));
            assert_eq!(stderr(&output), "", "{who}: {name}");
        }
        let all = TOOLS.iter().map(|(_, name)| *name).collect::<Vec<_>>().join("; ");
        let output = bench.nexus(["run", "--shell", &all]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output).lines().count(), TOOLS.len(), "{}", stderr(&output));
        let written = format!("touch {}/.rustup/x", bench.home.display());
        let output = bench.nexus(["run", "--shell", &written]).env("PATH", &path).output().unwrap();
        assert!(stderr(&output).contains("Read-only") && !bench.home.join(".rustup/x").exists(), "{output:?}");
    });
}

#[test]
fn a_detached_run_and_one_with_json_show_the_same() {
    on_each_bench(|bench| {
        let path = home_with_tools(&bench);
        let json = bench.nexus(["run", "--json", "--", "cargo"]).env("PATH", &path).output().unwrap();
        assert_eq!(report(&json)["output"]["stdout"]["text"], "cargo\n");
        let start = ["run", "--detach", "--name", "auto", "--", "cargo"];
        let started = bench.nexus(start).env("PATH", &path).output().unwrap();
        assert!(started.status.success(), "{}", stderr(&started));
        assert_eq!(bench.run(["wait", "auto"]).status.code(), Some(0));
        assert_eq!(stdout(&bench.run(["logs", "auto"])), "cargo\n");
        assert!(bench.run(["rm", "auto"]).status.success());
    });
}

#[test]
fn nothing_that_holds_a_login_is_shown() {
    on_each_bench(|bench| {
        let path = home_with_tools(&bench);
        bench.write("twin", "HUNTER2\n");
        let home = bench.home.display();
        let line = format!(
            "grep -rl HUNTER2 {home} /home/nexus /etc . 2>/dev/null; env | grep HUNTER2; \
             for f in {}; do cat {home}/$f ~/$f; done 2>/dev/null; git config --list",
            SECRETS.join(" ")
        );
        let output = bench.nexus(["run", "--shell", &line]).env("PATH", &path).output().unwrap();
        let told = stdout(&output);
        let expected = "./twin\n<settings/>\nuser.name=A B\nuser.email=a@b.example\n";
        assert_eq!(told, expected, "{}: {}", bench.who(), stderr(&output));
    });
}

#[test]
fn a_hostile_repository_or_another_user_adds_nothing() {
    on_each_bench(|bench| {
        let path = home_with_tools(&bench);
        let before = shown(&bench, &path, &[]);
        assert!(of_home(&bench, &before).contains(&".rustup".to_owned()), "{before:?}");
        // A virtual environment that leads to a directory of the home, and every file that names a version or a path.
        at_home(&bench, "private/bin/python3", "#!/bin/sh\necho private\n");
        at_home(&bench, "private/lib/python3/x", "");
        bench.write(".venv/pyvenv.cfg", format!("home = {}/private/bin\n", bench.home.display()));
        bench.write(".venv/bin/keep", "");
        for name in ["python3", "node", "go", "cargo"] {
            symlink(bench.home.join("private/bin/python3"), bench.workspace.join(".venv/bin").join(name)).unwrap();
        }
        symlink(bench.home.join("private"), bench.workspace.join("env")).unwrap();
        for name in [".python-version", ".ruby-version", ".nvmrc", "rust-toolchain", ".tool-versions", ".envrc"] {
            bench.write(name, "../../../../private\n");
        }
        let workspace = bench.workspace.display();
        // A directory that any user can write to, with a link to the same place.
        let open = at_home(&bench, "open/bin/keep", "").parent().unwrap().to_owned();
        symlink(bench.home.join("private/bin/python3"), open.join("python3")).unwrap();
        symlink(bench.home.join("private/bin/python3"), open.join("node")).unwrap();
        mode(&open, 0o777);
        let hostile = format!("{workspace}/.venv/bin:{workspace}/env/bin:.venv/bin:.:{}:{path}", open.display());
        assert_eq!(shown(&bench, &hostile, &[]), before, "{}", bench.who());
        let told = explained(
            bench
                .nexus(["explain", "--json", "--", "python3"])
                .env("PATH", &hostile)
                .env("VIRTUAL_ENV", bench.workspace.join(".venv")),
        );
        assert!(!told.to_string().contains("/private"), "{told}");
        // The twin: as soon as it is the user's own word, it is shown.
        let own = on_path(&bench, &["private/bin"]);
        assert!(of_home(&bench, &shown(&bench, &own, &[])).contains(&"private/bin/python3".to_owned()));
    });
}

#[test]
fn of_the_users_own_programs_only_the_command_is_shown() {
    on_each_bench(|bench| {
        at_home(&bench, ".local/bin/one", "#!/bin/sh\necho one; two\n");
        at_home(&bench, ".local/bin/two", "#!/bin/sh\necho two\n");
        at_home(&bench, ".local/bin/node", "#!/bin/sh\necho node\n");
        let path = on_path(&bench, &[".local/bin"]);
        let output = bench.nexus(["run", "--", "one"]).env("PATH", &path).output().unwrap();
        assert_eq!((stdout(&output).as_str(), output.status.code()), ("one\n", Some(127)), "{}", stderr(&output));
        assert!(stderr(&output).contains("two is ") && stderr(&output).contains("--ro "), "{}", stderr(&output));
        let told = explained(bench.nexus(["explain", "--json", "--", "one"]).env("PATH", &path)).to_string();
        assert!(told.contains(".local/bin/one") && !told.contains(".local/bin/two"), "{told}");
        assert!(!told.contains(".local/bin/node"), "no toolchain is searched there: {told}");
    });
}

#[test]
fn auto_is_switched_off_by_a_flag_a_variable_or_a_profile() {
    on_each_bench(|bench| {
        let path = home_with_tools(&bench);
        let of = |more: &[&str]| of_home(&bench, &shown(&bench, &path, more));
        assert!(of(&[]).len() > 5);
        assert_eq!(of(&["--profile", "none"]), [""; 0]);
        assert_eq!(of(&["--profile", "none", "--profile", "rust"]), [".cargo/bin", ".rustup"]);
        assert_eq!(of(&["--profile", "rust"]), of(&[]), "a profile adds");
        assert_eq!(of(&["--profile", "none", "--profile", "auto"]), of(&[]));
        let with = |value: &str, more: &[&str]| {
            let mut nexus = bench.nexus(["run"]);
            nexus.args(more).args(["--", "cargo"]).env("PATH", &path).env("NEXUS_PROFILE", value).output().unwrap()
        };
        assert_eq!(with("none", &[]).status.code(), Some(127));
        assert_eq!(with("none", &["--profile", "auto"]).status.code(), Some(0));
        assert_eq!(with("", &[]).status.code(), Some(0));
        let other = with("rust", &[]);
        assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
        assert!(stderr(&other).contains("NEXUS_PROFILE is rust"), "{}", stderr(&other));
        at_home(&bench, ".config/nexus/profiles/bare.yaml", "auto: false\n");
        assert_eq!(of(&["--profile", "bare"]), [""; 0]);
        let text = stdout(&bench.nexus(["explain", "--profile", "bare", "--", "true"]).output().unwrap());
        assert!(text.contains("auto: off  ← ") && text.contains("bare.yaml:1:7"), "{text}");
        bench.write("nexus.yaml", "auto: false\n");
        assert_eq!(of(&[]), [""; 0], "a file of the workspace takes away");
        bench.write("nexus.yaml", "auto: true\n");
        let wider = bench.run(["run", "--profile", "none", "--", "true"]);
        assert_eq!(wider.status.code(), Some(125));
        assert!(stderr(&wider).contains("show the toolchains that PATH leads to"), "{}", stderr(&wider));
    });
}

#[test]
fn the_operator_can_forbid_it() {
    on_each_bench(|bench| {
        let path = home_with_tools(&bench);
        at_home(&bench, ".config/nexus/config.toml", "[sandbox]\nauto = \"refuse\"\n");
        let run = |more: &[&str]| -> Output {
            bench.nexus(["run"]).args(more).args(["--", "cargo"]).env("PATH", &path).output().unwrap()
        };
        if bench.user.is_some() || !is_root() {
            assert!(stderr(&run(&[])).contains("sandbox.auto belongs to the operator"), "{}", stderr(&run(&[])));
            return;
        }
        let missing = run(&[]);
        assert_eq!(missing.status.code(), Some(127));
        assert!(stderr(&missing).contains("--profile rust shows it"), "{}", stderr(&missing));
        let asked = run(&["--profile", "auto"]);
        assert_eq!(asked.status.code(), Some(125));
        let said = stderr(&asked);
        assert!(said.contains("asks for auto") && said.contains("config.toml:2:8 refuses it"), "{said}");
        assert_eq!(stdout(&run(&["--profile", "rust"])), "cargo\n");
        let text = stdout(&bench.nexus(["explain", "--", "true"]).output().unwrap());
        assert!(text.contains("auto: off  ← ") && text.contains("config.toml:2:8"), "{text}");
    });
}

#[test]
fn explain_and_the_receipt_name_the_reason_of_each_path() {
    on_each_bench(|bench| {
        let path = home_with_tools(&bench);
        let venv = at_home(&bench, "envs/app/pyvenv.cfg", "").parent().unwrap().to_owned();
        let with = |command: &mut Command| -> Output {
            command.env("PATH", &path).env("VIRTUAL_ENV", &venv).output().unwrap()
        };
        let text = stdout(&with(&mut bench.nexus(["explain", "--", "true"])));
        let home = bench.home.display();
        for line in [
            format!("{home}/.rustup (the toolchains of rustup)  ← toolchain rust, auto, {home}/.cargo/bin on PATH"),
            format!(
                "{home}/envs/app/pyvenv.cfg (the active virtual environment)  ← toolchain python, auto, the variable VIRTUAL_ENV"
            ),
            "← toolchain git, auto, your settings of git".to_owned(),
        ] {
            assert!(text.contains(&line), "{line}: {text}");
        }
        let document = report(&with(&mut bench.nexus(["run", "--json", "--", "true"])));
        let run = document["run_id"].as_str().unwrap();
        let receipt: Value = serde_json::from_slice(&bench.run(["receipt", "show", run, "--json"]).stdout).unwrap();
        let listed = receipt["request"]["auto_binds"].as_array().unwrap();
        let rustup = listed.iter().find(|one| one["path"]["text"] == format!("{home}/.rustup")).unwrap();
        assert_eq!(rustup["reason"], format!("the toolchains of rustup: {home}/.cargo/bin on PATH"));
        let told =
            explained(bench.nexus(["explain", "--json", "--", "true"]).env("PATH", &path).env("VIRTUAL_ENV", &venv));
        assert_eq!(told["paths"].as_array().unwrap().len(), listed.len(), "{receipt}");
        let shown = stdout(&bench.run(["receipt", "show", run]));
        assert!(shown.contains(&format!("{home}/.rustup (the toolchains of rustup: ")), "{shown}");
        let none = report(&bench.run(["run", "--json", "--profile", "none", "--", "true"]));
        let none = bench.run(["receipt", "show", none["run_id"].as_str().unwrap(), "--json"]);
        assert!(!stdout(&none).contains("auto_binds"));
    });
}

#[test]
fn what_may_not_be_shown_stops_no_run() {
    on_each_bench(|bench| {
        home_with_tools(&bench);
        at_home(&bench, ".ssh/bin/node", "#!/bin/sh\n");
        at_home(&bench, ".cargo/bin/rustup", "#!/bin/sh\n");
        let path = on_path(&bench, &[".ssh/bin", ".cargo/bin"]);
        fs::create_dir(bench.base.path().join("toolchains")).unwrap();
        // One of the directories holds keys, the other one the workspace.
        let with = |command: &mut Command| -> Output {
            command.env("PATH", &path).env("RUSTUP_HOME", bench.base.path()).output().unwrap()
        };
        let output = with(&mut bench.nexus(["run", "--", "ls", "-d", bench.home.join(".ssh").to_str().unwrap()]));
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let text = stdout(&with(&mut bench.nexus(["explain", "--", "true"])));
        for line in [
            format!("  {}/.ssh/bin/node (the directory of Node and npm) is not shown", bench.home.display()),
            format!("  {} holds the workspace or your home, so it is not shown", bench.base.path().display()),
        ] {
            assert!(text.contains(&line), "{line}: {text}");
        }
        // A path that a flag shows at the same place has precedence.
        let rustup = bench.home.join(".rustup");
        let bind = format!("{}:{}", bench.home.join("documents").display(), rustup.display());
        let path = on_path(&bench, &[".cargo/bin"]);
        let list = ["run", "--ro", &bind, "--", "ls", rustup.to_str().unwrap()];
        let output = bench.nexus(list).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output), "diary\n", "{}", stderr(&output));
        // One in it, at a place that the host does not have, as well.
        let fresh = rustup.join("fresh");
        let bind = format!("{}:{}", bench.home.join("documents").display(), fresh.display());
        let list = ["run", "--ro", &bind, "--", "ls", fresh.to_str().unwrap()];
        let output = bench.nexus(list).env("PATH", path).output().unwrap();
        assert_eq!(stdout(&output), "diary\n", "{}", stderr(&output));
    });
}

#[test]
fn a_command_that_is_another_program_inside_is_said() {
    on_each_bench(|bench| {
        at_home(&bench, "tools/perl", "#!/bin/sh\necho mine\n");
        let open = bench.home.join("tools");
        mode(&open, 0o777);
        let path = on_path(&bench, &["tools"]);
        let output = bench.nexus(["run", "--", "perl", "-e", "print 1"]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output), "1", "{}", stderr(&output));
        let line =
            format!("nexus: perl was /usr/bin/perl inside, and is {}/perl outside. --profile perl", open.display());
        assert!(stderr(&output).contains(&line), "{}", stderr(&output));
        mode(&open, 0o755);
        let output = bench.nexus(["run", "--", "perl"]).env("PATH", &path).output().unwrap();
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("mine\n", ""), "{}", bench.who());
        let program = bench.write("env", "#!/bin/sh\n");
        mode(&program, 0o755);
        let path = format!("{}:{SYSTEM_PATH}", bench.workspace.display());
        let output = bench.nexus(["run", "--json", "--", "env"]).env("PATH", &path).output().unwrap();
        assert_eq!(report(&output)["hints"][0]["code"], "another_program");
        assert!(!stderr(&bench.run(["run", "--", "env"])).contains("outside"));
    });
}

#[test]
fn a_run_has_the_name_and_the_time_zone_of_the_caller() {
    on_each_bench(|bench| {
        let line = "echo $USER $LOGNAME; cat /etc/os-release; cat /etc/timezone";
        let output = bench.nexus(["run", "--shell", line]).env("USER", "ann").output().unwrap();
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let expected = format!("ann ann\n{}{}", read("/etc/os-release"), read("/etc/timezone"));
        assert_eq!(stdout(&output), expected, "{}", stderr(&output));
        let unset = bench.run(["run", "--shell", "echo ${USER-none}"]);
        assert_eq!(stdout(&unset), "none\n");
    });
}

#[test]
fn a_commit_has_the_name_of_the_user() {
    on_each_bench(|bench| {
        let path = home_with_tools(&bench);
        let line = "git init -q && git commit -q --allow-empty -m x && git log --format='%an <%ae>'";
        let output = bench.nexus(["run", "--changes", "discard", "--shell", line]).env("PATH", path).output().unwrap();
        assert_eq!(stdout(&output), "A B <a@b.example>\n", "{}: {}", bench.who(), stderr(&output));
    });
}
