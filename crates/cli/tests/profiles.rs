//! Profiles, the workspace's `nexus.yaml`, trust, and toolchains, with the real program.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use support::{Bench, benches, is_root, stderr, stdout};

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn profile(bench: &Bench, name: &str, text: &str) -> PathBuf {
    bench.at_home(&format!(".config/nexus/profiles/{name}.yaml"), text)
}

fn on_path(bench: &Bench, folders: &[&str]) -> String {
    let own = folders.iter().map(|folder| format!("{}:", bench.home.join(folder).display()));
    own.collect::<String>() + SYSTEM_PATH
}

fn explained(command: &mut Command) -> serde_json::Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn refused(bench: &Bench, output: &Output, said: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(125), "{}: {text}{}", bench.who(), stdout(output));
    assert_eq!(text.lines().count(), 1, "{text}");
    for word in said {
        assert!(text.contains(word), "{}: {word} is not said: {text}", bench.who());
    }
}

#[test]
fn a_workspace_file_that_widens_is_refused_with_its_line_until_exactly_its_content_is_trusted() {
    for bench in benches() {
        let data = bench.at_home("data/x", "seen\n");
        let folder = data.parent().unwrap().display().to_string();
        let text = format!("limits:\n  pids: 100\nfs:\n  ro: [\"{folder}\"]\nenv: {{set: {{GREETING: hello}}}}\n");
        let file = bench.write("nexus.yaml", &text);
        let line = format!("cat {folder}/x; echo $GREETING");
        let run = |bench: &Bench| bench.run(["run", "--shell", &line]);

        let here = file.display().to_string();
        let first = format!("{here}:4:8 would show {folder}");
        let second = format!("{here}:5:13 would set the variable GREETING to ");
        refused(&bench, &run(&bench), &[&first, &second, "nexus trust"]);

        let shown = bench.run(["trust", "--show"]);
        assert!(
            stdout(&shown).contains("line   4: would show") && stdout(&shown).contains("not trusted"),
            "{}",
            stdout(&shown)
        );
        assert_eq!(bench.run(["trust"]).status.code(), Some(2), "nobody can be asked here");
        refused(&bench, &run(&bench), &["nexus trust"]);

        assert!(bench.run(["trust", "--yes"]).status.success());
        assert_eq!(stdout(&run(&bench)), "seen\nhello\n", "{}", stderr(&run(&bench)));

        bench.write("nexus.yaml", format!("{text}\n"));
        refused(&bench, &run(&bench), &["nexus trust"]);
        bench.write("nexus.yaml", &text);
        assert!(run(&bench).status.success(), "the trusted content is trusted again");
        assert!(bench.run(["untrust"]).status.success());
        refused(&bench, &run(&bench), &["nexus trust"]);

        // The trust belongs to the directory: the same content elsewhere was never agreed to.
        assert!(bench.run(["trust", "--yes"]).status.success());
        let other = bench.write("other/nexus.yaml", &text);
        let elsewhere = bench.run(["run", "--workspace", other.parent().unwrap().to_str().unwrap(), "--", "true"]);
        refused(&bench, &elsewhere, &["nexus trust"]);
    }
}

#[test]
fn a_pin_that_another_user_can_have_written_trusts_nothing() {
    for bench in benches() {
        let folder = bench.state.join("trust");
        bench.write("nexus.yaml", "env: {set: {GREETING: hello}}\n");
        let run = || bench.run(["run", "--shell", "echo $GREETING"]);
        let chmod = |path: &Path, bits| fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
        assert!(bench.run(["trust", "--yes"]).status.success());
        assert_eq!(stdout(&run()), "hello\n", "{}", stderr(&run()));
        let pin = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();

        chmod(&folder, 0o777);
        refused(&bench, &run(), &["only you can enter", "mode 777"]);
        assert_eq!(bench.run(["trust", "--yes"]).status.code(), Some(125), "no pin is put there either");
        chmod(&folder, 0o700);
        chmod(&pin, 0o622);
        refused(&bench, &run(), &["another user can have written it", "mode 622"]);
        chmod(&pin, 0o600);
        if is_root() {
            let own = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&pin).unwrap());
            for path in [&pin, &folder] {
                std::os::unix::fs::chown(path, Some(4321), None).unwrap();
                // For an ordinary user the mode alone shuts it out; root reads it and must see whose it is.
                assert_eq!(run().status.code(), Some(125), "{}: {}", bench.who(), stderr(&run()));
                std::os::unix::fs::chown(path, Some(own), None).unwrap();
            }
        }
        assert_eq!(stdout(&run()), "hello\n", "{}", stderr(&run()));

        let away = bench.state.join("away");
        fs::rename(&pin, &away).unwrap();
        symlink(&away, &pin).unwrap();
        refused(&bench, &run(), &["symbolic link"]);
        fs::remove_file(&pin).unwrap();
        fs::rename(&away, &pin).unwrap();
        fs::rename(&folder, &away).unwrap();
        symlink(&away, &folder).unwrap();
        assert_eq!(run().status.code(), Some(125), "{}: {}", bench.who(), stderr(&run()));
    }
}

#[test]
fn a_workspace_file_that_only_takes_away_needs_no_trust() {
    for bench in benches() {
        bench.write("secret.txt", "hunter2\n");
        bench.write(
            "nexus.yaml",
            "fs: {hide: [secret.txt]}\nlimits: {pids: 60, timeout: 1h}\nchanges: review\nenv: {drop: [TZ, EXTRA]}\n",
        );
        let line = "cat secret.txt; echo tz=$TZ extra=$EXTRA; echo new > new; ulimit -u";
        let (document, _) = bench.json(["--env", "TZ=UTC", "--env", "EXTRA=1", "--shell", line]);
        let out = document.pointer("/output/stdout/text").unwrap().as_str().unwrap();
        assert!(!out.contains("hunter2") && out.contains("tz= extra=\n"), "{}: {document}", bench.who());
        assert_eq!(document.pointer("/changes/state").unwrap(), "parked", "{document}");
        assert!(!bench.workspace.join("new").exists());
        let told = explained(&mut bench.nexus(["explain", "--json", "--", "true"]));
        let limit = told["limits"].as_array().unwrap().iter().find(|limit| limit["limit"] == "pids").unwrap();
        assert_eq!(
            (&limit["value"], told.pointer("/workspace/nexus_yaml").unwrap()),
            (&"60".into(), &"narrows".into())
        );
        assert!(limit["from"].as_str().unwrap().ends_with("nexus.yaml:2:16"), "{limit}");
    }
}

#[test]
fn a_run_says_that_the_workspaces_own_file_kept_its_changes_out() {
    for bench in benches() {
        for (mode, said) in [("discard", "were discarded"), ("review", "were not committed")] {
            let file = bench.write("nexus.yaml", format!("limits: {{pids: 60}}\nchanges: {mode}\n"));
            let line = format!("{}:2:10", file.display());
            let output = bench.run(["run", "--shell", "echo x > new"]);
            let text = stderr(&output);
            let told: Vec<_> = text.lines().filter(|text| text.contains(&line)).collect();
            assert_eq!(told.len(), 1, "{}: {text}", bench.who());
            assert!(told[0].contains(said) && told[0].contains("the workspace's own nexus.yaml"), "{text}");
            let quiet = bench.run(["run", "--", "true"]);
            assert_eq!(stderr(&quiet), "", "nothing was lost");
            let (document, _) = bench.json(["--shell", "echo x > new"]);
            assert_eq!(document.pointer("/changes/decided_by_file").unwrap(), &line, "{document}");
        }
        bench.write("nexus.yaml", "changes: review\n");
        let own = bench.run(["run", "--changes", "discard", "--shell", "echo x > new"]);
        assert_eq!(stderr(&own), "", "the flag decided, not the file");
    }
}

#[test]
fn a_workspace_file_that_is_no_plain_file_or_no_profile_refuses_the_run() {
    for bench in benches() {
        let outside = bench.at_home("outside.yaml", "changes: review\n");
        let file = bench.workspace.join("nexus.yaml");
        symlink(outside, &file).unwrap();
        refused(&bench, &bench.run(["run", "--", "true"]), &["nexus.yaml", "symbolic link"]);
        fs::remove_file(&file).unwrap();
        for (text, said) in [
            ("chagnes: review\n", "nexus.yaml:1:1: unknown key chagnes: did you mean changes?"),
            ("a: &a [x]\nb: [*a, *a]\n", "nexus.yaml:"),
            ("fs: {hide: [\"[\"]}\n", "nexus.yaml:1:13: the pattern \"[\" cannot be used"),
            ("limits: {memory: 2GB}\n", "nexus.yaml:1:18: \"2GB\" is not a size"),
        ] {
            bench.write("nexus.yaml", text);
            refused(&bench, &bench.run(["run", "--", "true"]), &[said]);
        }
        bench.write("nexus.yaml", "chagnes: review\n");
        refused(&bench, &bench.run(["run", "--", "true"]), &["nexus profile check nexus.yaml looks at it"]);
        let mut check = bench.nexus(["profile", "check", "nexus.yaml"]);
        let checked = check.current_dir(&bench.workspace).output().unwrap();
        assert!(
            checked.status.code() == Some(1) && stdout(&checked).contains("nexus.yaml:1:1"),
            "{}",
            stdout(&checked)
        );
        bench.write("nexus.yaml", "changes: review\n");
        assert!(bench.run(["run", "--", "true"]).status.success());
    }
}

#[test]
fn a_workspace_file_that_a_command_writes_changes_nothing_for_that_run_and_waits_for_an_accept() {
    for bench in benches() {
        let line = "printf 'fs: {ro: [/opt]}\\n' > nexus.yaml; echo x > plain";
        assert!(bench.run(["run", "--shell", line]).status.success());
        assert!(bench.workspace.join("plain").exists() && !bench.workspace.join("nexus.yaml").exists());
        assert!(bench.run(["run", "--", "true"]).status.success());
    }
}

#[test]
fn profiles_add_up_flags_beat_them_and_explain_names_the_lines() {
    for bench in benches() {
        bench.at_home("data/x", "seen\n");
        bench.at_home("tools/hello", "#!/bin/sh\necho hello\n");
        profile(&bench, "base", "fs: {ro: [\"~/data\"]}\npath: [\"~/tools\"]\nlimits: {pids: 100}\n");
        bench.at_home("tools/.keep", "");
        profile(
            &bench,
            "mine",
            "extends: [base]\nfs:\n  ro: [{src: \"~/tools\"}, {src: \"~/data\", dst: /data}]\nenv: {set: {A: \"1\"}, pass: [CI]}\nlimits: {pids: 200}\n",
        );
        let mut run = bench.nexus(["run", "--profile", "mine", "--shell", "hello; cat /data/x; echo $A $CI"]);
        let output = run.env("CI", "yes").output().unwrap();
        assert_eq!(stdout(&output), "hello\nseen\n1 yes\n", "{}: {}", bench.who(), stderr(&output));

        let flags = ["explain", "--json", "--profile", "mine", "--timeout", "5s"];
        let told = explained(bench.nexus(flags).args(["--pids", "300", "--", "true"]));
        let limits: Vec<_> =
            told["limits"].as_array().unwrap().iter().map(|limit| limit["from"].as_str().unwrap()).collect();
        assert_eq!(limits, ["--pids", "--timeout"]);
        let told = explained(&mut bench.nexus(["explain", "--json", "--profile", "mine", "--", "true"]));
        let from = told.pointer("/limits/0/from").unwrap().as_str().unwrap();
        assert!(from.ends_with("profiles/mine.yaml:5:16"), "{from}");
        let names: Vec<_> =
            told["profiles"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["default", "base", "mine"]);
        let text = stdout(&bench.run(["explain", "--profile", "mine", "--", "true"]));
        assert!(text.contains("mine.yaml:3:26") && text.contains("read  /data"), "{text}");
        assert!(bench.leftovers().is_empty());
    }
}

#[test]
fn explain_and_the_run_agree_about_paths_and_variables() {
    for bench in benches() {
        bench.at_home("data/x", "seen\n");
        profile(&bench, "mine", "fs: {ro: [\"~/data\"]}\nenv: {set: {A: \"1\"}, pass: [CI]}\n");
        let told =
            explained(bench.nexus(["explain", "--json", "--profile", "mine", "--", "env"]).env("CI", "a secret"));
        let mut names: Vec<_> = told["environment"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"]["text"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        let output = bench.nexus(["run", "--profile", "mine", "--", "env"]).env("CI", "a secret").output().unwrap();
        let mut inside: Vec<_> = stdout(&output)
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
            .filter(|name| name != "PWD")
            .collect();
        inside.sort();
        assert_eq!(names, inside, "{}", stderr(&output));
        assert!(!told.to_string().contains("a secret"), "the value of a passed variable is not printed");
        for path in told["paths"].as_array().unwrap() {
            let path = path["path"]["text"].as_str().unwrap();
            let seen = bench.run(["run", "--profile", "mine", "--", "ls", path]);
            assert!(seen.status.success() && (path.starts_with("/etc") || stdout(&seen) == "x\n"), "{path}: {seen:?}");
            assert_eq!(
                bench.run(["run", "--profile", "none", "--", "ls", path]).status.code(),
                Some(2),
                "without the profile it is not there"
            );
        }
    }
}

#[test]
fn mistakes_in_profiles_are_refused_with_file_line_and_column() {
    for bench in benches() {
        for (name, text, said) in [
            ("a", "fs:\n  hid: [x]\n", "a.yaml:2:3: unknown key fs.hid: did you mean fs.hide?"),
            ("b", "extends: [c]\n", "c.yaml:1:11: profiles extend each other in a circle: b → c → b"),
            ("c", "extends: [b]\n", "circle: c → b → c"),
            ("d", "extends: [pyhton]\n", "d.yaml:1:11: there is no profile pyhton; did you mean python?"),
            ("e", "fs: {ro: [/no/such/path]}\n", "e.yaml:1:11 /no/such/path"),
            (
                "f",
                "net: {allow: [\"https://example.com/\"]}\n",
                "f.yaml:1:15: \"https://example.com/\" is not a rule: a rule is a host name, not a URL or a path",
            ),
        ] {
            profile(&bench, name, text);
            if name == "b" {
                profile(&bench, "c", "extends: [b]\n");
            }
            refused(&bench, &bench.run(["run", "--profile", name, "--", "true"]), &[said]);
        }
        refused(&bench, &bench.run(["run", "--profile", "nothing", "--", "true"]), &["there is no profile nothing"]);
        let net = bench.run(["run", "--profile", "f", "--net", "none", "--", "true"]);
        assert!(net.status.success(), "a flag beats the profile: {}", stderr(&net));
        let checked = bench.run(["profile", "check"]);
        assert_eq!(checked.status.code(), Some(1));
        assert!(stdout(&checked).contains("a.yaml:2:3") && stdout(&checked).contains("ok       built-in profile rust"));
        let good = profile(&bench, "g", "changes: review\n");
        assert!(bench.run(["profile", "check", good.to_str().unwrap()]).status.success());
    }
}

#[test]
fn a_configuration_that_others_could_write_or_that_lies_in_the_workspace_is_refused() {
    for bench in benches() {
        let mine = profile(&bench, "mine", "changes: review\n");
        assert!(bench.run(["run", "--profile", "mine", "--", "true"]).status.success());
        fs::set_permissions(&mine, fs::Permissions::from_mode(0o666)).unwrap();
        refused(&bench, &bench.run(["run", "--profile", "mine", "--", "true"]), &["can be written by others"]);
        fs::set_permissions(&mine, fs::Permissions::from_mode(0o644)).unwrap();

        let inside = bench.write("config/profiles/mine.yaml", "changes: commit\n");
        let folder = bench.workspace.join("config");
        let output = bench.nexus(["run", "--", "true"]).env("NEXUS_CONFIG_DIR", &folder).output().unwrap();
        refused(&bench, &output, &["lies inside the workspace"]);
        let output = bench.nexus(["run", "--", "true"]).env("NEXUS_CONFIG_DIR", "config").output().unwrap();
        refused(&bench, &output, &["is not an absolute path"]);
        fs::remove_file(&mine).unwrap();
        symlink(&inside, &mine).unwrap();
        refused(&bench, &bench.run(["run", "--profile", "mine", "--", "true"]), &["lies inside the workspace"]);
    }
}

#[test]
fn the_users_own_default_replaces_the_built_in_one_or_adds_to_it() {
    for bench in benches() {
        let timezone = |bench: &Bench| {
            let output = bench.nexus(["run", "--shell", "echo $TZ $A"]).env("TZ", "Asia/Tokyo").output().unwrap();
            stdout(&output)
        };
        assert_eq!(timezone(&bench), "Asia/Tokyo\n");
        profile(&bench, "default", "env: {set: {A: \"1\"}}\n");
        assert_eq!(timezone(&bench), "1\n");
        profile(&bench, "default", "extends: [default]\nenv: {set: {A: \"1\"}}\n");
        assert_eq!(timezone(&bench), "Asia/Tokyo 1\n");
        let listed = stdout(&bench.run(["profile", "list"]));
        assert!(listed.contains("built-in profile default (replaced)"), "{listed}");
    }
}

#[test]
fn profile_show_and_schema_print_what_programs_can_read() {
    for bench in benches() {
        let shown = stdout(&bench.run(["profile", "show", "python", "--json"]));
        let document: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(document.pointer("/toolchains/0/name").unwrap(), "python");
        let schema: serde_json::Value = serde_json::from_str(&stdout(&bench.run(["profile", "schema"]))).unwrap();
        assert_eq!(schema["title"], "Nexus profile");
        let list = stdout(&bench.run(["profile", "list", "--json"]));
        for name in ["default", "python", "node", "rust", "go", "java", "git"] {
            assert!(list.contains(&format!("\"name\": \"{name}\"")), "{list}");
            assert!(bench.run(["profile", "show", name]).status.success());
        }
    }
}

/// Toolchains as their installers lay them out, with scripts for programs, and every file with a secret that is near.
fn home_with_tools(bench: &Bench) -> String {
    let program = |name: &str| {
        bench.at_home(name, &format!("#!/bin/sh\necho {name}\n"));
    };
    program(".nvm/versions/node/v22.1.0/bin/node");
    program(".nvm/versions/node/v22.1.0/bin/npm");
    program(".pyenv/versions/3.12.1/bin/python3");
    bench.at_home(".pyenv/version", "3.12.1\n");
    bench.at_home(".pyenv/shims/python3", "#!/bin/sh\necho shim\n");
    program(".rustup/toolchains/stable/bin/cargo");
    let stable = bench.home.join(".rustup/toolchains/stable/bin/cargo");
    bench.at_home(".cargo/bin/rustup", &format!("#!/bin/sh\nexec {}\n", stable.display()));
    symlink("rustup", bench.home.join(".cargo/bin/cargo")).unwrap();
    bench.at_home(".cargo/registry/cache/x.crate", "crate\n");
    program("sdk/go1.25/bin/go");
    bench.at_home("go/pkg/mod/m", "module\n");
    program(".sdkman/candidates/java/21/bin/java");
    bench.at_home(".m2/repository/a.jar", "jar\n");
    bench.at_home(".gitconfig",
        "[user]\n\tname = A B\n\temail = a@b.example\n\tsigningkey = HUNTER2\n[credential]\n\thelper = store --file=HUNTER2\n[http]\n\textraheader = HUNTER2\n",
    );
    for secret in SECRETS {
        bench.at_home(secret, "HUNTER2\n");
    }
    bench.at_home(".cargo/config.toml", "[build]\njobs = 1\n[registry]\ntoken = \"HUNTER2\"\n");
    on_path(
        bench,
        &[
            ".nvm/versions/node/v22.1.0/bin",
            ".pyenv/shims",
            ".cargo/bin",
            "sdk/go1.25/bin",
            ".sdkman/candidates/java/21/bin",
        ],
    )
}

const SECRETS: &[&str] = &[
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".ssh/id_ed25519",
    ".gnupg/private-keys-v1.d/key",
    ".git-credentials",
    ".config/git/credentials",
    ".config/pip/pip.conf",
    ".config/go/env",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".docker/config.json",
    ".aws/credentials",
];

const ALL: [&str; 12] = [
    "--profile",
    "python",
    "--profile",
    "node",
    "--profile",
    "rust",
    "--profile",
    "go",
    "--profile",
    "java",
    "--profile",
    "git",
];

#[test]
fn tools_of_the_home_work_inside_with_their_profiles_and_not_without() {
    for bench in benches() {
        let path = home_with_tools(&bench);
        let tools = [
            ("node", ".nvm/versions/node/v22.1.0/bin/node"),
            ("npm", ".nvm/versions/node/v22.1.0/bin/npm"),
            ("python3", ".pyenv/versions/3.12.1/bin/python3"),
            ("cargo", ".rustup/toolchains/stable/bin/cargo"),
            ("go", "sdk/go1.25/bin/go"),
            ("java", ".sdkman/candidates/java/21/bin/java"),
        ];
        for (tool, said) in tools {
            let output = bench.nexus(["run"]).args(ALL).args(["--", tool]).env("PATH", &path).output().unwrap();
            assert_eq!(stdout(&output), format!("{said}\n"), "{}: {tool}: {}", bench.who(), stderr(&output));
        }
        let line =
            "cat $CARGO_HOME/registry/cache/x.crate $GOMODCACHE/m ~/.m2/repository/a.jar; cat $CARGO_HOME/config.toml";
        let output = bench.nexus(["run"]).args(ALL).args(["--shell", line]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output), "crate\nmodule\njar\n[build]\njobs = 1\n", "{}", stderr(&output));
        let folder = bench.home.join(".rustup").display().to_string();
        let without =
            bench.nexus(["run", "--profile", "none", "--", "ls", &folder]).env("PATH", &path).output().unwrap();
        assert_eq!(without.status.code(), Some(2), "{}", stdout(&without));
        let written = format!("touch {folder}/x $CARGO_HOME/registry/x; touch $CARGO_HOME/mine && echo private");
        let output = bench.nexus(["run"]).args(ALL).args(["--shell", &written]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output), "private\n");
        assert!(stderr(&output).contains("Read-only") && !bench.home.join(".rustup/x").exists(), "{}", stderr(&output));
    }
}

#[test]
fn no_profile_shows_a_credential_of_the_home() {
    for bench in benches() {
        let path = home_with_tools(&bench);
        // The harmless twin: what the search would find, if it were there.
        bench.write("twin", "HUNTER2\n");
        let home = bench.home.display();
        let line = format!(
            "grep -rl HUNTER2 {home} /home/nexus /etc . 2>/dev/null; env | grep HUNTER2; for f in {}; do cat {home}/$f ~/$f; done 2>/dev/null; git config --list",
            SECRETS.join(" ")
        );
        let output = bench.nexus(["run"]).args(ALL).args(["--shell", &line]).env("PATH", &path).output().unwrap();
        let out = stdout(&output);
        assert!(
            out.starts_with("./twin\n") && out.matches("HUNTER2").count() == 0,
            "{}: {out}{}",
            bench.who(),
            stderr(&output)
        );
        assert_eq!(out, "./twin\nuser.name=A B\nuser.email=a@b.example\n", "{}", bench.who());
    }
}

/// Settings that clients keep beside their programs, each with a login.
const BESIDE_TOOLS: &[(&str, &str)] = &[
    ("node", ".nvm/versions/node/v22.1.0/etc/npmrc"),
    ("node", ".nvm/versions/node/v22.1.0/lib/node_modules/npm/npmrc"),
    ("python", ".pyenv/versions/3.12.1/pip.conf"),
    ("python", ".pyenv/versions/3.12.1/lib/python3.12/distutils/distutils.cfg"),
    ("python", "venvs/app/pip.conf"),
    ("python", "miniconda3/.condarc"),
    ("python", "miniconda3/condarc.d/corp.yml"),
    ("python", "miniconda3/envs/e/.netrc"),
    ("rust", ".rustup/toolchains/stable/etc/credentials.toml"),
    ("rust", ".cargo/bin/.netrc"),
    ("go", "sdk/go1.25/go.env"),
    ("java", ".sdkman/candidates/maven/3.9.9/conf/settings.xml"),
    ("java", ".sdkman/candidates/maven/3.9.9/conf/settings-security.xml"),
    ("java", ".sdkman/candidates/gradle/8/gradle.properties"),
    ("java", ".sdkman/candidates/gradle/8/init.d/corp.gradle"),
    ("java", ".sdkman/candidates/java/21/conf/management/jmxremote.password"),
    ("git", ".gitdist/2.50/etc/gitconfig"),
];

#[test]
fn settings_beside_a_tool_show_no_login() {
    for bench in benches() {
        let tools = home_with_tools(&bench);
        for program in [
            "venvs/app/bin/python3",
            "miniconda3/bin/python3",
            ".sdkman/candidates/maven/3.9.9/bin/mvn",
            ".sdkman/candidates/gradle/8/bin/gradle",
            ".gitdist/2.50/bin/git",
        ] {
            bench.at_home(program, "#!/bin/sh\necho tool\n");
        }
        bench.at_home("venvs/app/pyvenv.cfg", "");
        bench.at_home("miniconda3/conda-meta/history", "");
        for (_, file) in BESIDE_TOOLS {
            bench.at_home(file, "password = HUNTER2\n");
        }
        let further = [".sdkman/candidates/maven/3.9.9/bin", ".sdkman/candidates/gradle/8/bin", ".gitdist/2.50/bin"];
        let further = further.map(|folder| bench.home.join(folder).display().to_string()).join(":");
        let home = bench.home.display();
        for python in ["", "venvs/app/bin", "miniconda3/bin"] {
            let first = if python.is_empty() { String::new() } else { format!("{home}/{python}:") };
            let path = format!("{first}{further}:{tools}");
            let line = format!("grep -rs HUNTER2 {home}; find {home} -type f | sed 's,^{home}/,,'");
            let output = bench.nexus(["run"]).args(ALL).args(["--shell", &line]).env("PATH", &path).output().unwrap();
            let out = stdout(&output);
            assert!(!out.contains("HUNTER2"), "{}: {python}: {out}", bench.who());
            for (profile, file) in BESIDE_TOOLS {
                let is_shown = *profile != "python" || (!python.is_empty() && file.starts_with(&python[..4]));
                let has = out.lines().any(|line| line == *file);
                assert!(has || !is_shown, "{}: {profile} {file}: {out}{}", bench.who(), stderr(&output));
            }
        }
    }
}

#[test]
fn a_login_that_comes_between_two_runs_is_covered() {
    let benches = benches();
    let bin = ".sdkman/candidates/maven/3.9.9/bin";
    for bench in &benches {
        home_with_tools(bench);
        bench.at_home(&format!("{bin}/mvn"), "#!/bin/sh\necho tool\n");
        bench.at_home(".sdkman/candidates/maven/3.9.9/conf/logging", "");
    }
    // A search is kept where the last change of each directory is some seconds old.
    std::thread::sleep(Duration::from_millis(3100));
    for bench in &benches {
        let run = || {
            let path = format!("{}:{SYSTEM_PATH}", bench.home.join(bin).display());
            let line = format!("find {0} -type f; grep -rs HUNTER2 {0}; exit 0", bench.home.display());
            let output = bench.nexus(["run", "--shell", &line]).env("PATH", &path).output().unwrap();
            assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
            stdout(&output)
        };
        let kept = || fs::read_to_string(bench.state.join("searches.json")).unwrap();
        assert!(run().contains("bin/mvn"), "{}", bench.who());
        let first = kept();
        assert!(first.contains("maven/3.9.9/bin"), "{}: {first}", bench.who());
        run();
        assert_eq!(kept(), first, "{}: nothing differs", bench.who());
        let settings = ".sdkman/candidates/maven/3.9.9/conf/settings.xml";
        bench.at_home(settings, "<password>HUNTER2</password>\n");
        let out = run();
        assert!(out.contains(settings) && !out.contains("HUNTER2"), "{}: {out}", bench.who());
        assert_ne!(kept(), first, "{}: what no longer holds is not kept", bench.who());
    }
}

#[test]
fn a_link_in_the_workspace_never_makes_a_profile_show_what_it_leads_to() {
    for bench in benches() {
        bench.at_home("private/bin/python3", "#!/bin/sh\necho private\n");
        bench.at_home("private/lib/python3/x", "");
        bench.at_home("private/notes", "HUNTER2\n");
        bench.write(".venv/bin/keep", "");
        symlink(bench.home.join("private/bin/python3"), bench.workspace.join(".venv/bin/python3")).unwrap();
        let line = format!("cat {}/private/notes", bench.home.display());
        let path = format!("{}/.venv/bin:{SYSTEM_PATH}", bench.workspace.display());
        let output = bench.nexus(["run", "--profile", "python", "--shell", &line]).env("PATH", &path).output().unwrap();
        assert!(!stdout(&output).contains("HUNTER2") && !output.status.success(), "{}", bench.who());
        symlink(bench.home.join("private"), bench.workspace.join("env")).unwrap();
        let path = format!("{}/env/bin:{SYSTEM_PATH}", bench.workspace.display());
        let output = bench.nexus(["run", "--profile", "python", "--shell", &line]).env("PATH", &path).output().unwrap();
        assert!(!stdout(&output).contains("HUNTER2") && !output.status.success(), "{}: a folder", bench.who());
        // The twin: the same directory on PATH by the user's own word is shown.
        let path = on_path(&bench, &["private/bin"]);
        let output = bench.nexus(["run", "--profile", "python", "--shell", &line]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output), "HUNTER2\n", "{}", stderr(&output));
    }
}

fn git(bench: &Bench, folder: &Path, arguments: &[&str]) {
    let mut command = bench.command("git");
    let output = command.current_dir(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", stderr(&output));
}

#[test]
fn git_commits_with_the_users_name_and_a_linked_worktree_is_read_only() {
    for bench in benches() {
        bench.at_home(".gitconfig", "[user]\n\tname = A B\n\temail = a@b.example\n");
        bench.write("a", "one\n");
        git(&bench, &bench.workspace, &["init", "-q", "-b", "main", "."]);
        let line = "git add a && git commit -q -m First && git log --format='%an %ae'";
        let output = bench.run(["run", "--profile", "git", "--shell", line]);
        assert_eq!(stdout(&output), "A B a@b.example\n", "{}: {}", bench.who(), stderr(&output));

        git(&bench, &bench.workspace, &["config", "credential.helper", "HUNTER2"]);
        let linked = bench.base.path().join("linked");
        fs::create_dir(&linked).unwrap();
        bench.give(&linked);
        git(&bench, &bench.workspace, &["worktree", "add", "-q", "-b", "side", linked.to_str().unwrap()]);
        let inside = |line: &str| {
            let arguments = ["run", "--workspace", linked.to_str().unwrap(), "--profile", "git", "--shell", line];
            bench.nexus(arguments).current_dir(&linked).output().unwrap()
        };
        let output = inside("echo two > a; git status --porcelain; git log --format=%s; git diff --stat | tail -1");
        let out = stdout(&output);
        assert!(
            out.starts_with(" M a\nFirst\n") && out.contains("1 file changed"),
            "{}: {out}{}",
            bench.who(),
            stderr(&output)
        );
        let output = inside("git commit -q -a -m Second");
        assert!(!output.status.success() && stderr(&output).contains("Read-only"), "{}", stderr(&output));
        let output = inside(&format!("cat {}/.git/config", bench.workspace.display()));
        assert!(
            stdout(&output).contains("repositoryformatversion") && !stdout(&output).contains("HUNTER2"),
            "{}",
            stdout(&output)
        );
        let told = bench
            .nexus(["explain", "--workspace", linked.to_str().unwrap(), "--profile", "git", "--", "git"])
            .output()
            .unwrap();
        assert!(stdout(&told).contains("git commit does not"), "{}", stdout(&told));
    }
}

#[test]
fn the_operators_ceilings_and_ids_hold_and_a_flag_above_them_is_refused() {
    for bench in benches() {
        let config = bench.at_home(".config/nexus/config.toml", "[limits]\npids = 300\ntimeout = \"1h\"\n");
        let told = explained(&mut bench.nexus(["explain", "--json", "--", "true"]));
        let limits: Vec<_> = told["limits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["value"].as_str().unwrap(), one["from"].as_str().unwrap()))
            .collect();
        let from = |place: &str| format!("{}:{place}", config.display());
        assert_eq!(limits, [("300", from("2:8").as_str()), ("1h", from("3:11").as_str())], "{}", bench.who());
        refused(
            &bench,
            &bench.run(["run", "--pids", "301", "--", "true"]),
            &["--pids asks for more than 300", "config.toml:2:8"],
        );
        assert!(bench.run(["run", "--pids", "299", "--", "true"]).status.success());
        bench.at_home(".config/nexus/config.toml", "[limits]\nmemry = \"1G\"\n");
        refused(&bench, &bench.run(["run", "--", "true"]), &["config.toml:2:1", "did you mean limits.memory?"]);

        bench.at_home(".config/nexus/config.toml", "[sandbox]\nuid_base = 2000000000\n");
        let map = bench.run(["run", "--", "cat", "/proc/self/uid_map"]);
        if bench.user.is_none() && is_root() {
            let text = stdout(&map);
            let id: u32 = text.split_whitespace().nth(1).unwrap_or_default().parse().unwrap_or_default();
            assert!((2_000_000_000..2_067_108_864).contains(&id), "{text}{}", stderr(&map));
        } else {
            refused(&bench, &map, &["sandbox.uid_base belongs to the operator"]);
        }
    }
}

#[test]
fn a_direct_run_refuses_what_only_a_layer_can_hold() {
    for bench in benches() {
        bench.write("nexus.yaml", "changes: review\n");
        refused(
            &bench,
            &bench.run(["run", "--direct", "--", "true"]),
            &["nexus.yaml:1:10 wants changes: review", "--direct"],
        );
        bench.write("nexus.yaml", "limits: {disk: 1G}\n");
        refused(&bench, &bench.run(["run", "--direct", "--", "true"]), &["limits the disk", "--direct"]);
        fs::remove_file(bench.workspace.join("nexus.yaml")).unwrap();
        assert!(bench.run(["run", "--direct", "--", "true"]).status.success());
    }
}

/// The tools of the user who runs the tests, at their places.
#[test]
fn the_real_tools_of_this_machine_work_with_their_profiles() {
    let bench = Bench::new(None);
    let caller = |name: &str| std::env::var_os(name).unwrap();
    let run = |profile: &str, line: &str| {
        let mut command = bench.nexus(["run", "--profile", profile, "--shell", line]);
        for name in ["CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let output = command.env("HOME", caller("HOME")).env("PATH", caller("PATH")).output().unwrap();
        assert!(output.status.success(), "{profile}: {line}: {}{}", stdout(&output), stderr(&output));
        stdout(&output)
    };
    bench.write("Cargo.toml", "[package]\nname = \"one\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n");
    bench.write("src/lib.rs", "#[test]\nfn adds() { assert_eq!(1 + 1, 2); }\n");
    assert!(run("rust", "cargo test 2>&1").contains("1 passed"));
    bench.write(
        "test_one.py",
        "import ssl, sqlite3, unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\n",
    );
    assert!(run("python", "python3 -m unittest 2>&1").contains("OK"));
    run(
        "python",
        "python3 -m venv --without-pip .venv && .venv/bin/python -c 'import sys; assert sys.prefix != sys.base_prefix'",
    );
    bench.write("one.test.js", "require('node:test')('one', () => require('node:assert').equal(1, 1));\n");
    assert!(run("node", "node --test one.test.js 2>&1").contains("pass 1"));
    bench.write("One.java", "class One { public static void main(String[] a) { System.out.println(java.security.Security.getProviders().length > 5); } }\n");
    assert_eq!(run("java", "javac One.java && java One"), "true\n");
}
