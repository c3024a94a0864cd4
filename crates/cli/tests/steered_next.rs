//! Files that a run leaves on the host decide nothing about the next one: no program of it runs for a package group, no file of it
//! names what is shown or reached, and Nexus's own configuration is not written.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use support::{Bench, benches, stderr, stdout};

/// Makes a directory below `base`, owned by the user of `nexus`.
fn directory(bench: &Bench, base: &Path, name: &str) -> PathBuf {
    let path = base.join(name);
    assert!(bench.command("mkdir").arg("-p").arg(&path).current_dir("/").status().unwrap().success());
    path
}

fn file(bench: &Bench, path: &Path, content: &str) -> PathBuf {
    directory(bench, path.parent().unwrap(), "");
    fs::write(path, content).unwrap();
    bench.give(path);
    path.to_owned()
}

fn link(bench: &Bench, to: &Path, at: &Path) {
    directory(bench, at.parent().unwrap(), "");
    symlink(to, at).unwrap();
    bench.give(at);
}

#[test]
fn a_group_executes_nothing_and_obeys_nothing_that_a_run_left() {
    for bench in benches() {
        let who = bench.who();
        let base = bench.base.path();
        let project = base.join("project");
        fs::create_dir(&project).unwrap();
        bench.give(&project);
        let private = file(&bench, &bench.home.join("private/diary.txt"), "DIARY\n");
        let ran = directory(&bench, &bench.home, "ran");
        // A run in the project leaves programs and settings, as any install in its environment does.
        let program = format!("#!/bin/sh\ntouch {}/$(basename $0)\necho https://ran.test/\n", ran.display());
        let left = [
            ("pip.conf", "[global]\nindex-url=https://index.test/simple\n".to_owned()),
            ("etc/npmrc", format!("cafile={}\nregistry=https://registry.test/\n", private.parent().unwrap().display())),
            (
                "lib/python3.11/site-packages/pip/_internal/models/index.py",
                "PyPI = PackageIndex(\"https://built-in.test/\", file_storage_domain=\"files.test\")\n".to_owned(),
            ),
            (
                "lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js",
                "registry: new Definition('registry', {\n  default: 'https://built-in.test/',\n".to_owned(),
            ),
            ("bin/python3", program.clone()),
            ("bin/npm", program.clone()),
            ("bin/node", program),
        ];
        for (name, content) in left {
            let path = file(&bench, &project.join(".venv").join(name), &content);
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let sub = directory(&bench, &project, "sub");
        let path = format!("{}/.venv/bin:/usr/bin:/bin", project.display());
        let run = |words: &[&str], at: &Path| {
            let mut command = bench.nexus(words);
            command.env("PATH", &path).env("VIRTUAL_ENV", project.join(".venv")).current_dir(at);
            let output = command.output().unwrap();
            (output.status.code(), stdout(&output) + &stderr(&output))
        };
        for (group, flag) in [("pkg:pip", "--allow index.test:443"), ("pkg:npm", "--allow registry.test:443")] {
            for at in [&bench.workspace, &sub] {
                let (code, told) = run(&["explain", "--allow-group", group, "--", "true"], at);
                assert_eq!(code, Some(0), "{who} {group}: {told}");
                let rule = |line: &&str| line.contains(&format!("{group}: ")) && line.contains('←');
                let opened: Vec<&str> = told.lines().filter(rule).collect();
                assert!(!opened.is_empty(), "{who} {group}: its built-in default is known: {told}");
                assert!(!opened.iter().any(|line| line.contains(".test")), "{who} {group}: {opened:?}");
                assert!(told.contains(flag), "{who} {group}: {told}");
                assert!(!told.contains("private"), "{who} {group}: {told}");
            }
            run(
                &["net", "check", "a.test:443", "--allow-group", group, "--resolve", "93.184.216.34"],
                &bench.workspace,
            );
            let shown = private.to_str().unwrap();
            let (code, told) =
                run(&["run", "--profile", "none", "--allow-group", group, "--", "cat", shown], &bench.workspace);
            assert!(code == Some(1) && !told.contains("DIARY"), "{who} {group}: {code:?} {told}");
        }
        assert_eq!(fs::read_dir(&ran).unwrap().count(), 0, "{who}: a program of the project ran");
    }
}

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

#[test]
fn a_setting_for_certificates_shows_certificates_and_nothing_else() {
    for bench in benches() {
        let who = bench.who();
        let home = &bench.home;
        let key = format!("{CERTIFICATE}-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
        file(&bench, &home.join("private/diary.txt"), "DIARY\n");
        file(&bench, &home.join("diary.txt"), "DIARY\n");
        file(&bench, &home.join("pair.pem"), &key);
        file(&bench, &home.join("ca.pem"), &format!("# Authority, DIARY\n{CERTIFICATE}"));
        let show = |named: &str, cat: &str| {
            let cafile = home.join(named);
            file(&bench, &home.join(".npmrc"), &format!("registry=https://r.test/\ncafile={}\n", cafile.display()));
            let cat = home.join(cat);
            let output = bench.run(["run", "--allow-group", "pkg:npm", "--", "cat", cat.to_str().unwrap()]);
            (stdout(&output), stderr(&output))
        };
        let (shown, told) = show("ca.pem", "ca.pem");
        assert_eq!(shown, CERTIFICATE, "{who}: {told}");
        for (named, cat, why) in [
            ("private", "private/diary.txt", "it is not a file"),
            ("diary.txt", "diary.txt", "it holds no certificate"),
            ("pair.pem", "pair.pem", "it holds a private key"),
        ] {
            let (shown, told) = show(named, cat);
            assert_eq!(shown, "", "{who} {named}");
            assert!(told.contains(why), "{who} {named}: {told}");
        }
    }
}

const OPEN: &str = "net: {mode: unrestricted}\n";

/// Returns the words of `explain` about the network of a plain run in the workspace.
fn is_open(bench: &Bench, variables: &[(&str, &Path)], flags: &[&str]) -> bool {
    let mut command = bench.nexus([&["explain"][..], flags, &["--", "true"]].concat());
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let told = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    told.contains("unrestricted")
}

#[test]
fn a_run_writes_no_profile_that_later_runs_obey() {
    for bench in benches() {
        let who = bench.who();
        let write = |at: &Path, name: &str, variables: &[(&str, &Path)], flags: &[&str]| {
            let script = format!("mkdir -p $(dirname {name}) && printf '{OPEN}' > {name}; echo x > plain");
            let mut command = bench.nexus([&["run"][..], flags, &["--", "sh", "-c", &script]].concat());
            let output = command.current_dir(at).envs(variables.iter().copied()).output().unwrap();
            (output.status.code(), stderr(&output))
        };
        // A directory of profiles that is a link into a repository of dotfiles, missing and there.
        let dot = directory(&bench, &bench.home, "dot");
        link(&bench, &dot.join("prof"), &bench.home.join(".config/nexus/profiles"));
        for is_there in [false, true] {
            if is_there {
                file(&bench, &dot.join("prof/other.yaml"), "changes: review\n");
            }
            let (_, told) = write(&dot, "prof/default.yaml", &[], &[]);
            assert!(!dot.join("prof/default.yaml").exists(), "{who} {is_there}: {told}");
            assert!(told.contains("prof"), "{who} {is_there}: it says what waits: {told}");
            assert!(dot.join("plain").exists(), "{who} {is_there}: the rest is committed: {told}");
            let (code, told) = write(&dot, "prof/default.yaml", &[], &["--direct"]);
            assert!(!dot.join("prof/default.yaml").exists(), "{who} {is_there}: --direct: {code:?} {told}");
            assert!(!is_open(&bench, &[], &[]));
        }
        fs::remove_file(bench.home.join(".config/nexus/profiles")).unwrap();
        // Settings of a package client: they decide what a group reaches.
        let npmrc = file(&bench, &dot.join("npmrc"), "");
        link(&bench, &npmrc, &bench.home.join(".npmrc"));
        link(&bench, &dot.join("settings"), &bench.home.join(".config/pip/pip.conf"));
        for name in ["npmrc", "settings"] {
            let (_, told) = write(&dot, name, &[], &[]);
            let left = fs::read_to_string(dot.join(name)).unwrap_or_default();
            assert_eq!(left, "", "{who} {name}: {told}");
        }
        // A profile that is a link, as stow makes it.
        let profile = file(&bench, &dot.join("n/py.yaml"), "changes: review\n");
        link(&bench, &profile, &bench.home.join(".config/nexus/profiles/py.yaml"));
        let (_, told) = write(&dot, "n/py.yaml", &[], &[]);
        assert!(!is_open(&bench, &[], &["--profile", "py"]), "{who}: {told}");
        // A configuration directory that a variable names and that is missing.
        let place = directory(&bench, &bench.home, "place");
        for (variable, value, name) in [
            ("XDG_CONFIG_HOME", place.join("conf"), "conf/nexus/profiles/default.yaml"),
            ("NEXUS_CONFIG_DIR", place.join("nx"), "nx/profiles/default.yaml"),
        ] {
            let variables = [(variable, value.as_path())];
            for flags in [&[][..], &["--direct"]] {
                let (code, told) = write(&place, name, &variables, flags);
                assert!(!place.join(name).exists(), "{who} {variable} {flags:?}: {code:?} {told}");
            }
            assert!(!is_open(&bench, &variables, &[]));
        }
        // The harmless twin: what no link leads to is committed, and obeyed where the caller says so.
        let (code, told) = write(&place, "conf/nexus/profiles/default.yaml", &[], &[]);
        assert_eq!(code, Some(0), "{who}: {told}");
        assert!(is_open(&bench, &[("XDG_CONFIG_HOME", &place.join("conf"))], &[]));
    }
}

#[test]
fn no_bind_opens_the_configuration_of_nexus_or_shows_its_key() {
    for bench in benches() {
        let who = bench.who();
        let home = &bench.home;
        let dot = directory(&bench, home, "dot/prof");
        link(&bench, &dot, &home.join(".config/nexus/profiles"));
        let refused = |flags: &[&str], variables: &[(&str, &Path)], said: &str| {
            let mut command = bench.nexus([&["run"][..], flags, &["--", "touch", "ran"]].concat());
            let output = command.envs(variables.iter().copied()).output().unwrap();
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{who} {flags:?}: {told}");
            assert!(told.contains(said), "{who} {flags:?}: {told}");
        };
        let at = |name: &str| home.join(name).to_str().unwrap().to_owned();
        let writes = "write the configuration of Nexus";
        for open in [".config", ".config/nexus", "dot", "dot/prof"] {
            refused(&["--rw", &at(open)], &[], writes);
            refused(&["--rw", &format!("{}:/elsewhere", at(open))], &[], writes);
        }
        let place = directory(&bench, home, "place");
        refused(&["--rw", place.to_str().unwrap()], &[("XDG_CONFIG_HOME", &place.join("conf"))], writes);
        file(&bench, &home.join(".config/nexus/login.json"), "{\"key\":\"SECRET\"}\n");
        for shown in [".config", ".config/nexus", ".config/nexus/login.json"] {
            refused(&["--ro", &at(shown)], &[], "it holds credentials");
        }
        file(&bench, &home.join("conf/gh/hosts.yml"), "GHTOKEN\n");
        let conf = home.join("conf");
        refused(
            &["--ro", &format!("{}:/srv/c", conf.display())],
            &[("XDG_CONFIG_HOME", &conf)],
            "it holds credentials",
        );
        // The harmless twins.
        for (flag, path) in [("--ro", at("dot")), ("--rw", at("place")), ("--ro", conf.to_str().unwrap().to_owned())] {
            let output = bench.run(["run", flag, &path, "--", "true"]);
            assert_eq!(output.status.code(), Some(0), "{who} {flag} {path}: {}", stderr(&output));
        }
    }
}

#[test]
fn deep_directories_in_a_bind_keep_no_later_run_from_starting() {
    const DEEP: &str = "import os\nos.chdir('/data')\nfor _ in range(30):\n    os.mkdir('d' * 240)\n    os.chdir('d' * 240)\nopen('end', 'w')\n";
    for bench in benches() {
        let who = bench.who();
        let data = directory(&bench, &bench.home, "data");
        file(&bench, &data.join("near/file"), "near\n");
        let bind = format!("{}:/data", data.display());
        let made = bench.run(["run", "--rw", &bind, "--", "python3", "-c", DEEP]);
        assert_eq!(made.status.code(), Some(0), "{who}: {}", stderr(&made));
        for flag in ["--ro", "--rw"] {
            let output = bench.run(["run", flag, &bind, "--", "cat", "/data/near/file"]);
            assert_eq!(stdout(&output), "near\n", "{who} {flag}: {}", stderr(&output));
            assert!(stderr(&output).len() < 1000, "{who} {flag}: {}", stderr(&output));
        }
        // No call reaches the end by its path.
        assert!(bench.command("rm").arg("-rf").arg(&data).status().unwrap().success());
    }
}
