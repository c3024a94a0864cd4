//! Files that earlier runs and other users wrote do not decide which paths of the host a run shows on its own, and keep no
//! run from starting.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::{Bench, is_root, on_each_bench, stderr, stdout};

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

/// Makes a link that belongs to the user.
fn link_at_home(bench: &Bench, to: impl AsRef<Path>, name: &str) -> PathBuf {
    at_home(bench, name, "");
    let path = bench.home.join(name);
    fs::remove_file(&path).unwrap();
    let mut make = bench.command("ln");
    assert!(make.arg("-sfn").arg(to.as_ref()).arg(&path).status().unwrap().success());
    path
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn on_path(bench: &Bench, directories: &[&str]) -> String {
    let own = directories.iter().map(|directory| format!("{}:", bench.home.join(directory).display()));
    own.collect::<String>() + SYSTEM_PATH
}

const SAYS: &str = "#!/bin/sh\necho outside-program\n";

/// Returns the answer of `explain`.
fn explained(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Paths of the home that a run would show, and the notes of `explain`.
fn shown(bench: &Bench, path: &str, variables: &[(&str, &Path)]) -> (Vec<String>, String) {
    let mut explain = bench.nexus(["explain", "--json", "--", "true"]);
    explain.env("PATH", path).envs(variables.iter().copied());
    let told = explained(&mut explain);
    let base = format!("{}/", bench.home.display());
    let of_home = |one: &Value| {
        let path = one["source"]["text"].as_str().or_else(|| one["source"].as_str())?;
        path.strip_prefix(&base).map(str::to_owned)
    };
    let paths = told["paths"].as_array().unwrap().iter().filter_map(of_home).collect();
    (paths, told["notes"].to_string())
}

/// Runs a command that reads a file of the home.
fn read(bench: &Bench, path: &str, variables: &[(&str, &Path)], name: &str) -> Output {
    let file = bench.home.join(name);
    let mut nexus = bench.nexus(["run", "--", "cat", file.to_str().unwrap()]);
    nexus.env("PATH", path).envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn a_link_that_a_run_left_shows_no_directory_of_the_home() {
    on_each_bench(|bench| {
        at_home(&bench, "work/secret/notes.txt", "HUNTER2\n");
        at_home(&bench, "work/secret/bin/python3", SAYS);
        at_home(&bench, "work/secret/lib/python3/x", "");
        at_home(&bench, "one/.venv/pyvenv.cfg", "");
        let venv = bench.home.join("one/.venv");
        for to in ["../../../work/secret/notes.txt", "../../../work/secret/bin/python3"] {
            link_at_home(&bench, to, "one/.venv/bin/python3");
            link_at_home(&bench, to, "one/node_modules/.bin/node");
            let path = on_path(&bench, &["one/.venv/bin", "one/node_modules/.bin"]);
            let output = read(&bench, &path, &[("VIRTUAL_ENV", &venv)], "work/secret/notes.txt");
            assert!(!stdout(&output).contains("HUNTER2"), "{}: {to}", bench.who());
            let (paths, notes) = shown(&bench, &path, &[("VIRTUAL_ENV", &venv)]);
            assert!(!paths.iter().any(|path| path.starts_with("work")), "{to}: {paths:?}");
            assert!(notes.contains("leads to") && notes.contains("--ro "), "{notes}");
        }
        // A directory of the environment that became a link, and the environment itself.
        for name in ["one/.venv/bin", "one/.venv"] {
            let at = bench.home.join(name);
            fs::rename(&at, bench.home.join("moved")).unwrap();
            link_at_home(&bench, bench.home.join("work/secret"), name);
            let path = on_path(&bench, &["one/.venv/bin"]);
            let output = read(&bench, &path, &[("VIRTUAL_ENV", &venv)], "work/secret/notes.txt");
            assert!(!stdout(&output).contains("HUNTER2"), "{}: {name}", bench.who());
            fs::remove_file(&at).unwrap();
            fs::rename(bench.home.join("moved"), &at).unwrap();
        }
        // The twin: interpreters in known places.
        at_home(&bench, ".pyenv/versions/3.12/bin/python3", SAYS);
        link_at_home(&bench, "../../../.pyenv/versions/3.12/bin/python3", "one/.venv/bin/python3");
        let path = on_path(&bench, &["one/.venv/bin"]);
        let (paths, _) = shown(&bench, &path, &[("VIRTUAL_ENV", &venv)]);
        assert_eq!(paths, ["one/.venv/bin", "one/.venv/pyvenv.cfg", ".pyenv/versions"], "{}", bench.who());
        let output = bench.nexus(["run", "--", "python3"]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output), "outside-program\n", "{}", stderr(&output));
        link_at_home(&bench, "/usr/bin/env", "one/.venv/bin/python3");
        assert_eq!(shown(&bench, &path, &[("VIRTUAL_ENV", &venv)]).0, ["one/.venv/bin", "one/.venv/pyvenv.cfg"]);
    });
}

#[test]
fn a_program_in_the_bin_of_a_project_shows_no_project() {
    on_each_bench(|bench| {
        at_home(&bench, "code/one/.git/HEAD", "");
        at_home(&bench, "code/one/notes.txt", "HUNTER2\n");
        at_home(&bench, "code/one/bin/node", SAYS);
        at_home(&bench, "code/one/lib/node_modules/x", "");
        let path = on_path(&bench, &["code/one/bin"]);
        assert_eq!(stdout(&read(&bench, &path, &[], "code/one/notes.txt")), "", "{}", bench.who());
        assert_eq!(shown(&bench, &path, &[]).0, ["code/one/bin/node"]);
        fs::remove_dir_all(bench.home.join("code/one/.git")).unwrap();
        assert_eq!(shown(&bench, &path, &[]).0, ["code/one/bin/node"], "the layout may be that of a run");
    });
}

#[test]
fn a_mark_that_a_run_left_in_bin_shows_nothing_beside_it() {
    on_each_bench(|bench| {
        at_home(&bench, "box/private/accounts.txt", "HUNTER2\n");
        at_home(&bench, "box/lib/keep", "");
        at_home(&bench, "box/bin/backup", SAYS);
        // What runs in `bin` and in `lib` can make.
        at_home(&bench, "box/bin/m2.conf", "");
        at_home(&bench, "box/bin/python3", SAYS);
        at_home(&bench, "box/lib/plugins/x", "");
        at_home(&bench, "box/lib/python3/x", "");
        let path = on_path(&bench, &["box/bin"]);
        for command in ["cat", "backup"] {
            let file = bench.home.join("box/private/accounts.txt");
            let mut nexus = bench.nexus(["run", "--", command, file.to_str().unwrap()]);
            let output = nexus.env("PATH", &path).output().unwrap();
            assert!(!stdout(&output).contains("HUNTER2"), "{}", bench.who());
        }
        assert_eq!(shown(&bench, &path, &[]).0, ["box/bin/python3"]);
        // The twin: the program itself runs.
        let output = bench.nexus(["run", "--", "backup"]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output), "outside-program\n", "{}", stderr(&output));
    });
}

#[test]
fn a_directory_of_a_manager_is_reached_through_no_link_elsewhere() {
    on_each_bench(|bench| {
        at_home(&bench, ".virtualenvs/app/src/lib.txt", "HUNTER2\n");
        at_home(&bench, ".virtualenvs/app/cache/x", "");
        at_home(&bench, ".virtualenvs/app/toolchains/x", "");
        at_home(&bench, ".cargo/bin/cargo", SAYS);
        at_home(&bench, "one/.cargo/keep", "");
        at_home(&bench, "sdk/go1.25/bin/go", SAYS);
        at_home(&bench, "sdk/go1.25/pkg/tool/x", "");
        let app = bench.home.join(".virtualenvs/app");
        for link in ["one/.cargo/registry", "one/pkg/mod", "one/.tc", ".m2/repository"] {
            link_at_home(&bench, &app, link);
        }
        let path = on_path(&bench, &[".cargo/bin", "sdk/go1.25/bin"]);
        let (cargo, go) = (bench.home.join("one/.cargo"), bench.home.join("one"));
        let tc = bench.home.join("one/.tc");
        let variables: [(&str, &Path); 5] = [
            ("CARGO_HOME", &cargo),
            ("GOPATH", &go),
            ("GOMODCACHE", &go.join("pkg/mod")),
            ("RUSTUP_HOME", &tc),
            ("UV_PYTHON_INSTALL_DIR", &tc),
        ];
        let (paths, _) = shown(&bench, &path, &variables);
        assert!(!paths.iter().any(|path| path.contains(".virtualenvs") || path.contains("one/")), "{paths:?}");
        // The twin: the same caches without a link.
        fs::remove_file(bench.home.join("one/.cargo/registry")).unwrap();
        at_home(&bench, "one/.cargo/registry/src/x", "");
        let (paths, _) = shown(&bench, &path, &variables);
        assert!(paths.contains(&"one/.cargo/registry".to_owned()), "{paths:?}");
    });
}

#[test]
fn layouts_of_managers_are_shown_as_before() {
    on_each_bench(|bench| {
        for (program, entry, expected) in [
            ("node", ".nvm/versions/node/v22/bin", ".nvm/versions/node/v22"),
            (
                "node",
                ".local/share/fnm/node-versions/v22/installation/bin",
                ".local/share/fnm/node-versions/v22/installation",
            ),
            ("java", ".sdkman/candidates/java/21/bin", ".sdkman/candidates/java/21"),
            ("go", "sdk/go1.25/bin", "sdk/go1.25"),
            ("python3", "miniconda3/envs/a/bin", "miniconda3/envs/a/bin"),
            ("python3", ".local/share/uv/python/cpython-3.12/bin", ".local/share/uv/python/cpython-3.12"),
            ("node", ".asdf/installs/nodejs/22/bin", ".asdf/installs/nodejs/22"),
            ("node", ".local/share/mise/installs/node/22/bin", ".local/share/mise/installs/node/22"),
        ] {
            at_home(&bench, &format!("{entry}/{program}"), SAYS);
            let path = on_path(&bench, &[entry]);
            assert_eq!(shown(&bench, &path, &[]).0, [expected], "{}", bench.who());
        }
        // A link of the manager from one of its names to a version.
        link_at_home(&bench, "21", ".sdkman/candidates/java/current");
        let path = on_path(&bench, &[".sdkman/candidates/java/current/bin"]);
        assert_eq!(shown(&bench, &path, &[]).0, [".sdkman/candidates/java/21"]);
        let output = bench.nexus(["run", "--", "java"]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output), "outside-program\n", "{}", stderr(&output));
    });
}

#[test]
fn another_user_decides_nothing_of_what_is_shown() {
    if !is_root() {
        return;
    }
    on_each_bench(|bench| {
        at_home(&bench, "work/secret/notes.txt", "HUNTER2\n");
        at_home(&bench, "work/secret/bin/python3", SAYS);
        at_home(&bench, "work/secret/toolchains/x", "");
        let others = bench.base.path().join("others");
        let give_to_other = |path: &Path| std::os::unix::fs::lchown(path, Some(61_234), Some(61_234)).unwrap();
        for directory in ["", "venv", "venv/bin", "java", "java/bin"] {
            fs::create_dir(others.join(directory)).unwrap();
            mode(&others.join(directory), 0o755);
            give_to_other(&others.join(directory));
        }
        for file in ["venv/pyvenv.cfg", "java/release", "java/bin/java"] {
            fs::write(others.join(file), "").unwrap();
            mode(&others.join(file), 0o755);
            give_to_other(&others.join(file));
        }
        let secret = bench.home.join("work/secret");
        for (name, to) in [
            ("venv/bin/python3", secret.join("bin/python3")),
            ("rustup", secret.clone()),
            ("modules", secret.clone()),
            ("bin", secret.join("bin")),
        ] {
            symlink(to, others.join(name)).unwrap();
            give_to_other(&others.join(name));
        }
        for (variable, value) in [
            ("VIRTUAL_ENV", "venv"),
            ("JAVA_HOME", "java"),
            ("RUSTUP_HOME", "rustup"),
            ("CARGO_HOME", "rustup"),
            ("GOMODCACHE", "modules"),
            ("UV_PYTHON_INSTALL_DIR", "modules"),
        ] {
            at_home(&bench, ".cargo/bin/rustup", SAYS);
            link_at_home(&bench, "rustup", ".cargo/bin/cargo");
            at_home(&bench, "sdk/go1.25/bin/go", SAYS);
            let value = others.join(value);
            let path = on_path(&bench, &[".cargo/bin", "sdk/go1.25/bin"]);
            let (paths, _) = shown(&bench, &path, &[(variable, &value)]);
            assert!(!paths.iter().any(|path| path.starts_with("work")), "{} {variable}: {paths:?}", bench.who());
            let told =
                explained(bench.nexus(["explain", "--json", "--", "true"]).env("PATH", &path).env(variable, &value));
            assert!(!told["paths"].to_string().contains("/others"), "{variable}: {told}");
        }
        // An entry of PATH that is another user's link, and an own link that leads through another user's directory.
        let path = format!("{}:{SYSTEM_PATH}", others.join("bin").display());
        assert!(shown(&bench, &path, &[]).0.is_empty());
        symlink(secret.join("bin/python3"), others.join("venv/bin/node")).unwrap();
        link_at_home(&bench, others.join("venv/bin/node"), "tools/bin/node");
        assert!(shown(&bench, &on_path(&bench, &["tools/bin"]), &[]).0.is_empty());
        // The twin: the same environment, as the user's own.
        let own = bench.home.join("own");
        assert!(bench.command_as_root("cp").arg("-a").arg(others.join("venv")).arg(&own).status().unwrap().success());
        let mut chown = bench.command_as_root("chown");
        chown.arg("-Rh").arg(format!("--reference={}", bench.home.display())).arg(&own);
        assert!(chown.status().unwrap().success());
        let (paths, _) = shown(&bench, SYSTEM_PATH, &[("VIRTUAL_ENV", &own)]);
        assert_eq!(paths, ["own/bin", "own/pyvenv.cfg"], "{}", bench.who());
    });
}

#[test]
fn an_installation_below_opt_counts_only_where_no_run_can_have_made_it() {
    if !is_root() {
        return;
    }
    for bench in support::benches() {
        let opt = tempfile::Builder::new().prefix("nexus-test-").tempdir_in("/opt").unwrap();
        mode(opt.path(), 0o755);
        let at = |name: &str| opt.path().join(name);
        for name in ["bin/node", "lib/node_modules/x", "config/prod.key"] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), SAYS).unwrap();
            mode(&at(name), 0o755);
        }
        let all = ["", "bin", "lib", "lib/node_modules", "config", "bin/node", "lib/node_modules/x", "config/prod.key"];
        let give = |names: &[&str], user: u32| {
            for name in names {
                std::os::unix::fs::lchown(at(name), Some(user), Some(user)).unwrap();
            }
        };
        let path = format!("{}:{SYSTEM_PATH}", at("bin").display());
        let whole = || {
            let script = format!("cat {}; node", at("config/prod.key").display());
            let output = bench.nexus(["run", "--shell", &script]).env("PATH", &path).output().unwrap();
            let told = stdout(&output);
            assert!(told.ends_with("outside-program\n"), "{}: the program itself: {}", bench.who(), stderr(&output));
            told.contains("#!/bin/sh")
        };
        if let Some(user) = bench.user {
            assert!(whole(), "an administrator's");
            for own in [&all[..], &["lib"], &["bin"], &[""]] {
                give(own, user);
                assert!(!whole(), "{own:?}");
                give(own, 0);
            }
            mode(&at("lib"), 0o777);
            assert!(!whole(), "all may write there");
            mode(&at("lib"), 0o755);
            assert!(whole(), "an administrator's");
        } else {
            assert!(!whole(), "root's runs write there");
            let notes = shown(&bench, &path, &[]).1;
            assert!(notes.contains(&format!("--ro {}", opt.path().display())), "{notes}");
        }
    }
}

#[test]
fn a_java_below_opt_that_the_variable_names_is_shown() {
    if !is_root() {
        return;
    }
    for bench in support::benches() {
        let opt = tempfile::Builder::new().prefix("nexus-test-").tempdir_in("/opt").unwrap();
        mode(opt.path(), 0o755);
        for name in ["jdk/bin/java", "jdk/lib/modules"] {
            let at = opt.path().join(name);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(&at, SAYS).unwrap();
            mode(&at, 0o755);
        }
        let jdk = opt.path().join("jdk");
        let path = format!("{}:{SYSTEM_PATH}", jdk.join("bin").display());
        let script = format!("cat {}; java", jdk.join("lib/modules").display());
        let mut nexus = bench.nexus(["run", "--shell", &script]);
        let output = nexus.env("PATH", &path).env("JAVA_HOME", &jdk).output().unwrap();
        assert_eq!(stdout(&output), format!("{SAYS}outside-program\n"), "{}: {}", bench.who(), stderr(&output));
    }
}

#[test]
fn a_cache_that_became_a_link_is_not_shown() {
    on_each_bench(|bench| {
        at_home(&bench, "work/secret/notes.txt", "HUNTER2\n");
        at_home(&bench, "work/secret/cache/x", "");
        at_home(&bench, ".cargo/bin/rustup", SAYS);
        link_at_home(&bench, "rustup", ".cargo/bin/cargo");
        at_home(&bench, ".rustup/toolchains/x", "");
        at_home(&bench, "sdk/go1.25/bin/go", SAYS);
        let path = on_path(&bench, &[".cargo/bin", "sdk/go1.25/bin"]);
        for cache in ["go/pkg/mod", ".cargo/registry"] {
            at_home(&bench, &format!("{cache}/cache/x"), "");
            assert!(shown(&bench, &path, &[]).0.contains(&cache.to_owned()), "{}: {cache}", bench.who());
            fs::remove_dir_all(bench.home.join(cache)).unwrap();
            link_at_home(&bench, bench.home.join("work/secret"), cache);
            let (paths, _) = shown(&bench, &path, &[]);
            assert!(!paths.iter().any(|path| path.starts_with("work")), "{cache}: {paths:?}");
            fs::remove_file(bench.home.join(cache)).unwrap();
        }
    });
}

#[test]
fn the_workspace_is_not_shown_again_by_a_cache() {
    on_each_bench(|bench| {
        at_home(&bench, "sdk/go1.25/bin/go", SAYS);
        at_home(&bench, "go/pkg/mod/cache/x", "");
        let file = at_home(&bench, "go/pkg/mod/ex.com/foo/.env", "HUNTER2\n");
        let path = on_path(&bench, &["sdk/go1.25/bin"]);
        let workspace = file.parent().unwrap();
        let line = format!("cat /home/nexus/go/pkg/mod/ex.com/foo/.env {}", file.display());
        let run = |workspace: &Path, line: &str| {
            let mut nexus = bench.nexus(["run", "--hide-secrets", "--shell", line]);
            nexus.env("PATH", &path).current_dir(workspace).output().unwrap()
        };
        assert_eq!(stdout(&run(workspace, &line)), "", "{}", bench.who());
        let twin = run(&bench.workspace, "ls $GOMODCACHE");
        assert_eq!(stdout(&twin), "cache\nex.com\n", "{}", stderr(&twin));
    });
}

#[test]
fn files_that_a_run_left_hold_no_run_up() {
    on_each_bench(|bench| {
        at_home(&bench, ".volta/bin/volta-shim", SAYS);
        link_at_home(&bench, "volta-shim", ".volta/bin/node");
        at_home(&bench, ".volta/tools/image/node/20/bin/node", SAYS);
        let platform = at_home(&bench, ".volta/tools/user/platform.json", r#"{"node":{"runtime":"20"}}"#);
        let path = on_path(&bench, &[".volta/bin"]);
        let node = || bench.nexus(["run", "--timeout", "20s", "--", "node"]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&node()), "outside-program\n", "{}", stderr(&node()));
        let fifo = || {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, &platform, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            bench.give(&platform);
        };
        let link = || symlink("/dev/zero", &platform).unwrap();
        let large = || fs::File::create(&platform).unwrap().set_len(1 << 30).unwrap();
        for left in [&fifo as &dyn Fn(), &link, &large] {
            fs::remove_file(&platform).unwrap();
            left();
            let start = Instant::now();
            let output = bench.nexus(["run", "--", "true"]).env("PATH", &path).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        }
    });
}

#[test]
fn a_tool_with_very_many_login_files_is_left_out() {
    on_each_bench(|bench| {
        let tool = ".nvm/versions/node/v22";
        at_home(&bench, &format!("{tool}/bin/node"), SAYS);
        for number in 0..150 {
            at_home(&bench, &format!("{tool}/etc/{number}/npmrc"), "");
        }
        let path = on_path(&bench, &[&format!("{tool}/bin")]);
        assert_eq!(shown(&bench, &path, &[]).0, [tool]);
        for number in 150..300 {
            at_home(&bench, &format!("{tool}/etc/{number}/npmrc"), "");
        }
        let (paths, notes) = shown(&bench, &path, &[]);
        assert!(paths.is_empty() && notes.contains("more than 200 files"), "{paths:?} {notes}");
    });
}

#[test]
fn what_cannot_be_bound_refuses_no_run() {
    on_each_bench(|bench| {
        at_home(&bench, ".nvm/versions/node/v:18/bin/node", SAYS);
        link_at_home(&bench, "../.nvm/versions/node/v:18/bin/node", "tools/node");
        link_at_home(&bench, "../.nvm/versions/node/v:18/bin", "tools/bin");
        let memory = tempfile::Builder::new().prefix("nexus-test-").tempdir_in("/dev/shm").unwrap();
        mode(memory.path(), 0o755);
        bench.give(memory.path());
        fs::create_dir_all(memory.path().join("lib/node_modules")).unwrap();
        fs::create_dir(memory.path().join("bin")).unwrap();
        fs::write(memory.path().join("bin/node"), SAYS).unwrap();
        mode(&memory.path().join("bin/node"), 0o755);
        for name in ["lib/node_modules", "lib", "bin/node", "bin"] {
            mode(&memory.path().join(name), 0o755);
            bench.give(&memory.path().join(name));
        }
        let in_memory = format!("{}:{SYSTEM_PATH}", memory.path().join("bin").display());
        for path in [on_path(&bench, &["tools", "tools/bin"]), in_memory] {
            let output = bench.nexus(["run", "--", "true"]).env("PATH", &path).output().unwrap();
            assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{} {path}", bench.who());
        }
    });
}

#[test]
fn shims_and_stores_without_a_known_layout_break_nothing() {
    on_each_bench(|bench| {
        let usual = on_path(&bench, &[]);
        let version = |path: &str| {
            let output = bench.nexus(["run", "--", "perl", "-e", "print 1"]).env("PATH", path).output().unwrap();
            (stdout(&output), output.status.code())
        };
        let expected = version(&usual);
        assert_eq!(expected.1, Some(0));
        for shims in [".asdf/shims", ".local/share/mise/shims", ".plenv/shims"] {
            at_home(&bench, &format!("{shims}/perl"), "#!/bin/sh\necho a shim\nexit 3\n");
            assert_eq!(version(&on_path(&bench, &[shims])), expected, "{}: {shims}", bench.who());
        }
        at_home(&bench, ".linuxbrew/Cellar/perl/5/bin/perl", "#!/bin/sh\necho no library\nexit 3\n");
        link_at_home(&bench, "../Cellar/perl/5/bin/perl", ".linuxbrew/bin/perl");
        let path = on_path(&bench, &[".linuxbrew/bin"]);
        assert_eq!(version(&path), expected, "{}", bench.who());
        let (_, notes) = shown(&bench, &path, &[]);
        assert!(notes.contains(&format!("--ro {}", bench.home.join(".linuxbrew").display())), "{notes}");
        // A rustup whose programs are hard links: its directory of programs is shown, and nothing else of CARGO_HOME.
        let toolchain = at_home(&bench, ".rustup/toolchains/stable/bin/cargo", SAYS);
        let rustup = at_home(&bench, ".cargo/bin/rustup", &format!("#!/bin/sh\nexec {}\n", toolchain.display()));
        fs::hard_link(rustup, bench.home.join(".cargo/bin/cargo")).unwrap();
        at_home(&bench, ".cargo/env.d/token", "HUNTER2\n");
        let path = on_path(&bench, &[".cargo/bin"]);
        let output = bench.nexus(["run", "--", "cargo"]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output), "outside-program\n", "{}: {}", bench.who(), stderr(&output));
        assert_eq!(shown(&bench, &path, &[]).0, [".rustup", ".cargo/bin"]);
        fs::remove_file(bench.home.join(".cargo/bin/rustup")).unwrap();
        assert_eq!(shown(&bench, &path, &[]).0, [".cargo/bin/cargo"]);
    });
}

#[test]
fn a_socket_in_the_directory_of_a_tool_is_covered() {
    on_each_bench(|bench| {
        let tool = ".nvm/versions/node/v22";
        at_home(&bench, &format!("{tool}/bin/node"), SAYS);
        let at = bench.home.join(tool).join("s.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&at).unwrap();
        mode(&at, 0o777);
        let line =
            format!("perl -MIO::Socket::UNIX -e 'print IO::Socket::UNIX->new($ARGV[0]) ? 1 : 0' {}", at.display());
        let path = on_path(&bench, &[&format!("{tool}/bin")]);
        let output = bench.nexus(["run", "--shell", &line]).env("PATH", &path).output().unwrap();
        assert_eq!(stdout(&output), "0", "{}: {}", bench.who(), stderr(&output));
    });
}
