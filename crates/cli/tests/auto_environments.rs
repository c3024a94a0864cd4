//! Environments of Python and conda: a run is shown the one that the caller's own variable names or that lies in the known
//! place of a manager, of it only what belongs to its packages, and never one that an earlier run chose.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Output;
use support::{Bench, on_each_bench, stderr, stdout};

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SAYS: &str = "#!/bin/sh\necho outside-program\n";
const SECRET: &str = "HUNTER2\n";

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
fn link_at_home(bench: &Bench, to: impl AsRef<Path>, name: &str) {
    let path = bench.home.join(name);
    if path.is_symlink() {
        fs::remove_file(&path).unwrap();
    }
    fs::remove_file(at_home(bench, name, "")).unwrap();
    let mut make = bench.command("ln");
    assert!(make.arg("-sfn").arg(to.as_ref()).arg(&path).status().unwrap().success());
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// PATH and variables of a caller.
struct Caller<'a> {
    bench: &'a Bench,
    path: String,
    variables: Vec<(&'static str, PathBuf)>,
}

impl<'a> Caller<'a> {
    fn new(bench: &'a Bench, entry: &str, variables: &[(&'static str, &str)]) -> Self {
        let path = format!("{}:{SYSTEM_PATH}", bench.home.join(entry).display());
        Self { bench, path, variables: variables.iter().map(|(name, at)| (*name, bench.home.join(at))).collect() }
    }

    fn nexus(&self, arguments: &[&str]) -> Output {
        let mut nexus = self.bench.nexus(arguments);
        nexus.env("PATH", &self.path).envs(self.variables.iter().cloned()).output().unwrap()
    }

    /// Paths of the home that a run would show, sorted, and the notes of `explain`.
    fn shown(&self) -> (Vec<String>, String) {
        let output = self.nexus(&["explain", "--json", "--", "true"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let base = format!("{}/", self.bench.home.display());
        let of_home = |one: &Value| {
            let path = one["source"]["text"].as_str().or_else(|| one["source"].as_str())?;
            path.strip_prefix(&base).map(str::to_owned)
        };
        let mut paths: Vec<String> = told["paths"].as_array().unwrap().iter().filter_map(of_home).collect();
        paths.sort();
        (paths, told["notes"].to_string())
    }

    /// Returns the text that a run reads from files of the home.
    fn reads(&self, names: &[&str]) -> String {
        let files: Vec<String> = names.iter().map(|name| self.bench.home.join(name).display().to_string()).collect();
        let files = files.iter().map(String::as_str);
        stdout(&self.nexus(&["run", "--", "cat"].into_iter().chain(files).collect::<Vec<_>>()))
    }

    /// Returns the output and the messages of a run of a program.
    fn says(&self, program: &[&str]) -> String {
        let output = self.nexus(&[&["run", "--"][..], program].concat());
        stdout(&output) + &stderr(&output)
    }
}

#[test]
fn a_mark_of_an_environment_shows_nothing_beside_it() {
    on_each_bench(|bench| {
        for (entry, at) in [("tools/bin", "tools"), ("t2/scripts", "t2")] {
            let key = format!("{at}/keys/prod.pem");
            at_home(&bench, &key, SECRET);
            at_home(&bench, &format!("{at}/lib/notes.txt"), SECRET);
            // What a run in the directory leaves.
            at_home(&bench, &format!("{at}/pyvenv.cfg"), "home = /usr/bin\n");
            link_at_home(&bench, "/usr/bin/python3", &format!("{entry}/python3"));
            let plain = Caller::new(&bench, entry, &[]);
            assert_eq!(plain.reads(&[&key, &format!("{at}/lib/notes.txt")]), "", "{}: {at}", bench.who());
            let (paths, notes) = plain.shown();
            assert!(paths.is_empty() && notes.contains("VIRTUAL_ENV does not name"), "{paths:?} {notes}");
            // Another directory that is the active environment changes nothing.
            at_home(&bench, "env/pyvenv.cfg", "");
            let other = Caller::new(&bench, entry, &[("VIRTUAL_ENV", "env"), ("CONDA_PREFIX", at)]);
            assert_eq!(other.shown().0, ["env/pyvenv.cfg"], "{}: {at}", bench.who());
        }
        let named = Caller::new(&bench, "tools/bin", &[("VIRTUAL_ENV", "tools")]);
        assert_eq!(named.shown().0, ["tools/bin", "tools/lib", "tools/pyvenv.cfg"], "{}", bench.who());
        assert_eq!(named.reads(&["tools/keys/prod.pem"]), "", "{}", bench.who());
    });
}

#[test]
fn of_an_active_environment_only_its_parts_are_shown() {
    on_each_bench(|bench| {
        at_home(&bench, "secret/x", SECRET);
        for file in ["pyvenv.cfg", "bin/python3", "lib/python3.11/site-packages/m.py", "include/x.h"] {
            at_home(&bench, &format!("app/.venv/{file}"), SAYS);
        }
        for file in [".env", "notes.txt", "src/x", "etc/x", "conda-meta/x", "libraries/x"] {
            at_home(&bench, &format!("app/.venv/{file}"), SECRET);
        }
        link_at_home(&bench, "lib", "app/.venv/lib64");
        link_at_home(&bench, "../../secret", "app/.venv/share");
        let expected = ["app/.venv/bin", "app/.venv/include", "app/.venv/lib", "app/.venv/pyvenv.cfg"];
        for variables in
            [&[("VIRTUAL_ENV", "app/.venv")][..], &[("VIRTUAL_ENV", "app/.venv"), ("CONDA_PREFIX", "app/.venv")]]
        {
            let caller = Caller::new(&bench, "app/.venv/bin", variables);
            assert_eq!(caller.shown().0, expected, "{}", bench.who());
            assert_eq!(caller.says(&["python3"]), "outside-program\n", "{}", bench.who());
            let hidden = ["app/.venv/notes.txt", "app/.venv/src/x", "app/.venv/etc/x", "app/.venv/share/x", "secret/x"];
            assert_eq!(caller.reads(&hidden), "", "{}", bench.who());
        }
    });
}

#[test]
fn an_environment_that_became_a_link_is_not_shown() {
    on_each_bench(|bench| {
        for file in ["prod.key", "lib/prod.key", "bin/prod.key"] {
            at_home(&bench, &format!("work/proj/config/{file}"), SECRET);
        }
        let socket = at_home(&bench, "work/proj/config/lib/tests/dev.sock", "");
        fs::remove_file(&socket).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        mode(&socket, 0o777);
        // What a run in the project leaves.
        at_home(&bench, "work/proj/config/pyvenv.cfg", "home = /usr/bin\n");
        link_at_home(&bench, "/usr/bin/python3", "work/proj/config/bin/python3");
        link_at_home(&bench, "config", "work/proj/.venv");
        let keys = ["work/proj/config/prod.key", "work/proj/config/lib/prod.key", "work/proj/config/bin/prod.key"];
        let connect = "print IO::Socket::UNIX->new($ARGV[0]) ? 1 : 0";
        for variables in [&[][..], &[("VIRTUAL_ENV", "work/proj/.venv")], &[("CONDA_PREFIX", "work/proj/.venv")]] {
            let caller = Caller::new(&bench, "work/proj/.venv/bin", variables);
            assert_eq!(caller.reads(&keys), "", "{}: {variables:?}", bench.who());
            assert_eq!(caller.shown().0, [""; 0], "{}: {variables:?}", bench.who());
            let said = caller.says(&["perl", "-MIO::Socket::UNIX", "-e", connect, socket.to_str().unwrap()]);
            assert_eq!(said, "0", "{}", bench.who());
        }
        // A part that became a link.
        link_at_home(&bench, "../config", "work/two/.venv/bin");
        fs::rename(bench.home.join("work/proj/config"), bench.home.join("work/two/config")).unwrap();
        at_home(&bench, "work/two/.venv/pyvenv.cfg", "");
        let caller = Caller::new(&bench, "work/two/.venv/bin", &[("VIRTUAL_ENV", "work/two/.venv")]);
        assert_eq!(caller.shown().0, ["work/two/.venv/pyvenv.cfg"], "{}", bench.who());
        // Directories of managers as links of a run.
        at_home(&bench, "secret/toolchains/x", SECRET);
        at_home(&bench, ".cargo/bin/rustup", SAYS);
        link_at_home(&bench, "rustup", ".cargo/bin/cargo");
        link_at_home(&bench, "secret", ".rustup");
        assert_eq!(Caller::new(&bench, ".cargo/bin", &[]).shown().0, [""; 0], "{}", bench.who());
    });
}

#[test]
fn a_socket_among_the_libraries_of_an_environment_is_covered() {
    on_each_bench(|bench| {
        at_home(&bench, "app/.venv/pyvenv.cfg", "");
        at_home(&bench, "app/.venv/bin/python3", SAYS);
        let caller = Caller::new(&bench, "app/.venv/bin", &[("VIRTUAL_ENV", "app/.venv")]);
        for place in ["lib/python3.11/site-packages/p", "share/doc/p/tests", "lib/1/2/3/4/5/6/7/8"] {
            let name = format!("app/.venv/{place}/s");
            let socket = at_home(&bench, &name, "");
            fs::remove_file(&socket).unwrap();
            let _listener = UnixListener::bind(&socket).unwrap();
            mode(&socket, 0o777);
            let connect = "print IO::Socket::UNIX->new($ARGV[0]) ? 1 : 0";
            let said = caller.says(&["perl", "-MIO::Socket::UNIX", "-e", connect, socket.to_str().unwrap()]);
            assert_eq!(said, "0", "{}: {place}", bench.who());
            fs::remove_file(&socket).unwrap();
        }
    });
}

/// Makes an environment of conda with what is private in it.
fn conda(bench: &Bench, at: &str) {
    at_home(bench, &format!("{at}/bin/python3.11"), SAYS);
    link_at_home(bench, "python3.11", &format!("{at}/bin/python3"));
    for file in ["lib/python3.11/os.py", "conda-meta/history", "etc/fonts/x", "ssl/x"] {
        at_home(bench, &format!("{at}/{file}"), "plain\n");
    }
    for file in ["conda-meta/state", "etc/conda/activate.d/env.sh", "etc/conda/deactivate.d/env.sh", "NOTE", "data/x"] {
        at_home(bench, &format!("{at}/{file}"), SECRET);
    }
}

#[test]
fn a_link_chooses_no_environment_of_another_project() {
    on_each_bench(|bench| {
        let places =
            ["miniconda3/envs/prod", ".conda/envs/prod", ".pyenv/versions/3.12/envs/prod", ".virtualenvs/prod"];
        for at in places {
            conda(&bench, at);
            link_at_home(&bench, bench.home.join(at).join("bin/python3"), "one/bin/python3");
            let caller = Caller::new(&bench, "one/bin", &[]);
            let (paths, notes) = caller.shown();
            assert!(paths.is_empty() && notes.contains("leads to"), "{} {at}: {paths:?} {notes}", bench.who());
            assert_eq!(caller.reads(&[&format!("{at}/NOTE"), &format!("{at}/conda-meta/state")]), "", "{at}");
            // The environment itself as a link.
            link_at_home(&bench, bench.home.join(at), "two/.venv");
            let caller =
                Caller::new(&bench, "two/.venv/bin", &[("VIRTUAL_ENV", "two/.venv"), ("CONDA_PREFIX", "two/.venv")]);
            assert_eq!(caller.shown().0, [""; 0], "{}: {at}", bench.who());
        }
        // A version of pyenv that `python3 -m venv` made.
        at_home(&bench, ".pyenv/versions/prod/pyvenv.cfg", "home = /usr/bin\n");
        at_home(&bench, ".pyenv/versions/prod/NOTE", SECRET);
        link_at_home(&bench, "/usr/bin/python3", ".pyenv/versions/prod/bin/python3");
        at_home(&bench, ".pyenv/versions/prod/bin/perl", SAYS);
        for program in ["python3", "perl"] {
            let target = bench.home.join(".pyenv/versions/prod/bin").join(program);
            link_at_home(&bench, target, &format!("three/bin/{program}"));
        }
        let caller = Caller::new(&bench, "three/bin", &[]);
        assert_eq!(caller.shown().0, [""; 0], "{}", bench.who());
        assert_eq!(
            caller.reads(&[".pyenv/versions/prod/NOTE", ".pyenv/versions/prod/bin/perl"]),
            "",
            "{}",
            bench.who()
        );
        // Conda's own environment is a tool, and those of projects beside it are not shown with it.
        conda(&bench, "miniconda3");
        link_at_home(&bench, bench.home.join("miniconda3/bin/python3"), "one/bin/python3");
        let caller = Caller::new(&bench, "one/bin", &[]);
        assert_eq!(caller.says(&["python3"]), "outside-program\n", "{}", bench.who());
        let hidden = ["miniconda3/envs/prod/NOTE", "miniconda3/envs/prod/lib/python3.11/os.py", "miniconda3/NOTE"];
        assert_eq!(caller.reads(&hidden), "", "{}", bench.who());
    });
}

#[test]
fn an_environment_of_conda_is_shown_without_its_variables() {
    on_each_bench(|bench| {
        // Base, one by name, and one by path that CONDA_PREFIX names.
        for (at, variables) in [
            ("miniconda3", &[][..]),
            ("miniconda3", &[("CONDA_PREFIX", "miniconda3")]),
            ("miniconda3/envs/app", &[("CONDA_PREFIX", "miniconda3/envs/app")]),
            (".conda/envs/app", &[]),
            ("code/app/env", &[("CONDA_PREFIX", "code/app/env")]),
        ] {
            conda(&bench, at);
            let caller = Caller::new(&bench, &format!("{at}/bin"), variables);
            let parts = ["bin", "conda-meta", "etc", "lib", "ssl"].map(|part| format!("{at}/{part}"));
            assert_eq!(caller.shown().0, parts, "{}: {at}", bench.who());
            assert_eq!(caller.says(&["python3"]), "outside-program\n", "{}: {at}", bench.who());
            let read = |name: &str| caller.reads(&[&format!("{at}/{name}")]);
            assert_eq!(read("lib/python3.11/os.py"), "plain\n", "{at}");
            assert_eq!(read("conda-meta/history"), "", "{at}: it has the addresses of channels, with their logins");
            assert_eq!(read("conda-meta/state"), "{}\n", "{}: {at}", bench.who());
            for hidden in ["etc/conda/activate.d/env.sh", "etc/conda/deactivate.d/env.sh", "NOTE", "data/x"] {
                assert_eq!(read(hidden), "", "{}: {at}/{hidden}", bench.who());
            }
        }
        // A virtual environment that the active one is the base of.
        at_home(&bench, "code/two/.venv/pyvenv.cfg", "");
        link_at_home(&bench, bench.home.join("miniconda3/envs/app/bin/python3"), "code/two/.venv/bin/python3");
        let variables = [("VIRTUAL_ENV", "code/two/.venv"), ("CONDA_PREFIX", "miniconda3/envs/app")];
        let caller = Caller::new(&bench, "code/two/.venv/bin", &variables);
        assert_eq!(caller.says(&["python3"]), "outside-program\n", "{}", bench.who());
        assert_eq!(caller.reads(&["miniconda3/envs/app/NOTE"]), "", "{}", bench.who());
        // A directory that only looks like one.
        conda(&bench, "code/other");
        let caller = Caller::new(&bench, "code/other/bin", &[("CONDA_PREFIX", "code/app/env")]);
        assert!(!caller.reads(&["code/other/lib/python3.11/os.py"]).contains("plain"), "{}", bench.who());
    });
}

#[test]
fn environments_of_each_manager_run_with_their_packages() {
    on_each_bench(|bench| {
        let show = "import sys, mine; print(sys.prefix, mine.WORD)";
        // `python3 -m venv`, virtualenv and uv leave the same layout; what differs is the place.
        for (at, variables) in [
            ("code/app/.venv", &[("VIRTUAL_ENV", "code/app/.venv")][..]),
            ("venv", &[("VIRTUAL_ENV", "venv")]),
            (".cache/pypoetry/virtualenvs/app-x-py3.11", &[]),
            (".local/share/virtualenvs/app-x", &[("VIRTUAL_ENV", ".local/share/virtualenvs/app-x")]),
            (".virtualenvs/app", &[]),
            (".local/share/pipx/venvs/app", &[]),
            (".local/share/uv/tools/app", &[]),
            (".pyenv/versions/3.11.2/envs/app", &[("VIRTUAL_ENV", ".pyenv/versions/app")]),
        ] {
            let prefix = environment(&bench, &bench.home.join(at));
            if at.starts_with(".pyenv") {
                link_at_home(&bench, &prefix, ".pyenv/versions/app");
            }
            let caller = Caller::new(&bench, &format!("{at}/bin"), variables);
            let expected = format!("{} package\n", prefix.display());
            assert_eq!(caller.says(&["python3", "-c", show]), expected, "{}: {at}", bench.who());
        }
        // The shim of pyenv with an environment of pyenv-virtualenv.
        at_home(&bench, ".pyenv/shims/python3", "#!/bin/sh\necho shim\n");
        at_home(&bench, ".pyenv/version", "app\n");
        let caller = Caller::new(&bench, ".pyenv/shims", &[("VIRTUAL_ENV", ".pyenv/versions/app")]);
        let said = caller.says(&["python3", "-c", show]);
        assert!(said.ends_with(" package\n") && said.contains("/.pyenv/versions/"), "{}: {said}", bench.who());
        // Beside the packages of an environment a project may keep anything, and others' environments are projects' too.
        let app = ".pyenv/versions/3.11.2/envs/app";
        for file in [&format!("{app}/NOTE"), ".pyenv/versions/other/NOTE", ".pyenv/versions/3.11.2/envs/x/NOTE"] {
            at_home(&bench, file, SECRET);
        }
        at_home(&bench, ".pyenv/versions/other/pyvenv.cfg", "");
        let hidden = [".pyenv/versions/app/NOTE", ".pyenv/versions/other/NOTE", ".pyenv/versions/3.11.2/envs/x/NOTE"];
        assert_eq!(caller.reads(&hidden) + &caller.reads(&[&format!("{app}/NOTE")]), "", "{}", bench.who());
        assert!(caller.says(&["python3", "-c", show]).ends_with(" package\n"), "{}", bench.who());
        // One in the workspace, with the variable and without.
        let prefix = environment(&bench, &bench.workspace.join(".venv"));
        for variables in [vec![("VIRTUAL_ENV", prefix.clone())], Vec::new()] {
            let path = format!("{}:{SYSTEM_PATH}", prefix.join("bin").display());
            let caller = Caller { bench: &bench, path, variables };
            let expected = format!("{} package\n", prefix.display());
            assert_eq!(caller.says(&["python3", "-c", show]), expected, "{}", bench.who());
        }
    });
}

/// Makes a real virtual environment with a package in it, as the user.
fn environment(bench: &Bench, at: &Path) -> PathBuf {
    let made = bench.command("python3").args(["-m", "venv", "--without-pip"]).arg(at).output().unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let packages = fs::read_dir(at.join("lib")).unwrap().next().unwrap().unwrap().path().join("site-packages");
    let package = packages.join("mine.py");
    fs::write(&package, "WORD = 'package'\n").unwrap();
    bench.give(&package);
    at.to_owned()
}

#[test]
fn a_key_in_the_place_of_a_program_is_not_shown() {
    on_each_bench(|bench| {
        for key in ["prod.pem", "prod.key", "id_deploy", ".env.prod"] {
            at_home(&bench, &format!("tools/bin/{key}"), SECRET);
            link_at_home(&bench, key, "tools/bin/perl");
            let caller = Caller::new(&bench, "tools/bin", &[]);
            assert_eq!(caller.reads(&[&format!("tools/bin/{key}"), "tools/bin/perl"]), "", "{}: {key}", bench.who());
        }
        at_home(&bench, "tools/bin/perl5", SAYS);
        link_at_home(&bench, "perl5", "tools/bin/perl");
        assert_eq!(Caller::new(&bench, "tools/bin", &[]).says(&["perl"]), "outside-program\n", "{}", bench.who());
    });
}
