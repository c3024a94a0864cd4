//! Well-known packages, fetched from the registries by the machine's own clients: their own test suites give the same
//! exit code, counts and output inside as outside (see `support::twin`: an ordinary user, the same path, no network).
//!
//! Inside, no flag is given, but for Rust, whose toolchain is a copy. What a suite needs besides the package (a test runner,
//! vendored dependencies) is fetched beforehand, outside, into the workspace. A registry that cannot be reached is a failure.
//!
//! A suite takes several seconds of a processor for each run. Here root and the ordinary user take turns, so that each of them
//! has a half of the suites in each language; with `NEXUS_SOAK_SUITES` every suite runs as both (`cargo xtask soak`).

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::twin::{Extra, twice};
use support::{Bench, benches, is_root, stderr, stdout};

/// A package, what else its suite needs, and how the suite is started.
struct Suite {
    /// Name and version, as the client writes them.
    package: &'static str,
    /// The directory that it unpacks to.
    directory: &'static str,
    /// The line of shell that runs its tests.
    run: &'static str,
    /// At least so many tests there are; fewer means that the suite did not really run.
    at_least: u64,
}

const PYTHON: &[Suite] = &[
    Suite {
        package: "itsdangerous==2.2.0",
        directory: "itsdangerous-2.2.0",
        run: "PYTHONPATH=src:../tools python3 -m pytest -q -p no:cacheprovider tests",
        at_least: 100,
    },
    Suite {
        package: "click==8.1.8",
        directory: "click-8.1.8",
        run: "PYTHONPATH=src:../tools python3 -m pytest -q -p no:cacheprovider tests",
        at_least: 600,
    },
    Suite {
        package: "tomlkit==0.13.2",
        directory: "tomlkit-0.13.2",
        run: "PYTHONPATH=.:../tools python3 -m pytest -q -p no:cacheprovider tests",
        at_least: 200,
    },
    Suite {
        package: "idna==3.10",
        directory: "idna-3.10",
        run: "PYTHONPATH=.:../tools python3 -m pytest -q -p no:cacheprovider tests",
        at_least: 20,
    },
    Suite {
        package: "packaging==25.0",
        directory: "packaging-25.0",
        run: "PYTHONPATH=src:../tools python3 -m pytest -q -p no:cacheprovider tests/test_utils.py tests/test_tags.py tests/test_requirements.py",
        at_least: 400,
    },
    Suite {
        package: "more-itertools==10.7.0",
        directory: "more_itertools-10.7.0",
        run: "PYTHONPATH=.:../tools python3 -m pytest -q -p no:cacheprovider tests/test_recipes.py",
        at_least: 80,
    },
];
/// Packages that these suites import.
const PYTHON_TOOLS: &[&str] = &["pytest==8.3.5", "freezegun==1.5.1", "pretend==1.0.9", "pyyaml==6.0.2"];

const NODE: &[Suite] = &[
    Suite { package: "minimist@1.2.8", directory: "package", run: NODE_RUN, at_least: 150 },
    Suite { package: "qs@6.14.0", directory: "package", run: NODE_RUN, at_least: 700 },
    Suite {
        package: "xtend@4.0.2",
        directory: "package",
        run: "node ../node_modules/tape/bin/tape test.js",
        at_least: 15,
    },
];
const NODE_RUN: &str = "node ../node_modules/tape/bin/tape 'test/*.js'";
const NODE_TOOLS: &[&str] = &[
    "tape@5.9.0",
    "es-value-fixtures@1.7.1",
    "has-bigints@1.1.0",
    "has-override-mistake@1.0.1",
    "mock-property@1.1.0",
    "iconv-lite@0.5.1",
    "qs-iconv@1.0.4",
];

const RUST: &[Suite] = &[
    Suite { package: "either@1.15.0", directory: "either", run: RUST_RUN, at_least: 20 },
    Suite { package: "semver@1.0.26", directory: "semver", run: RUST_RUN, at_least: 30 },
];
const RUST_RUN: &str = "cargo test --quiet --offline";

/// Runs a client outside; its failure says which and why.
fn fetch(program: impl AsRef<OsStr>, arguments: &[&str], directory: &Path) {
    let name = program.as_ref().to_owned();
    let output = Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    assert!(
        output.status.success(),
        "{} {arguments:?} could not fetch (can the registry be reached?):\n{}{}",
        name.display(),
        stdout(&output),
        stderr(&output)
    );
}

/// Copies everything in a directory, for the user of `nexus`.
fn copy_all(bench: &Bench, from: &Path) {
    // With the times of the files: a module that Python compiled already is not compiled again in each run.
    let how = ["-r", "--preserve=timestamps", "--"];
    let copied = Command::new("cp").args(how).arg(from.join(".")).arg(&bench.workspace).status().unwrap();
    assert!(copied.success());
    if let Some(user) = bench.user {
        let owner = format!("{user}:{user}");
        let given = Command::new("chown").args(["-R", "--no-dereference", &owner]).arg(&bench.workspace).status();
        assert!(given.unwrap().success());
    }
}

/// Makes a directory that everybody may read.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::Builder::new().prefix("nexus-suite-").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Returns whether the suite at a place in its list runs as this one of the users. They take turns; in a soak each runs all.
fn has_turn(suite: usize, (user, users): (usize, usize), is_soak: bool) -> bool {
    is_soak || suite % users == user
}

/// Benches of the users that run the suite at a place in its list.
fn benches_of(suite: usize) -> Vec<Bench> {
    let (all, is_soak) = (benches(), std::env::var_os("NEXUS_SOAK_SUITES").is_some());
    let users = all.len();
    let turns = all.into_iter().enumerate().filter(|(user, _)| has_turn(suite, (*user, users), is_soak));
    turns.map(|(_, bench)| bench).collect()
}

/// Runs the suite of a place in its list inside and outside; all runs must have passed as many tests.
fn same_suite(
    (turn, suite): (usize, &Suite),
    fetched: &Path,
    extra: impl Fn(&Bench) -> Extra,
    passed: impl Fn(&str) -> u64,
) {
    for bench in benches_of(turn) {
        let script = format!("cd {} && {}", suite.directory, suite.run);
        let twins = twice(&bench, |bench| copy_all(bench, fetched), &extra(&bench), &[script]);
        let count = passed(&stdout(&twins.outputs[0]));
        println!("{} as {}: {count} passed inside and outside", suite.package, bench.who());
        assert!(count >= suite.at_least, "{}: only {count} tests ran:\n{}", suite.package, stdout(&twins.outputs[0]));
    }
}

/// The number before a word, added up over all lines.
fn before(word: &str, text: &str) -> u64 {
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_matches([',', ';', '.', '='])).collect();
    words.windows(2).filter(|pair| pair[1] == word).filter_map(|pair| pair[0].parse::<u64>().ok()).sum()
}

/// The number behind a word, added up over all lines.
fn behind(word: &str, text: &str) -> u64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0] == word).filter_map(|pair| pair[1].parse::<u64>().ok()).sum()
}

#[test]
fn python_packages_pass_their_own_tests_inside_as_outside() {
    let tools = directory();
    // Debian's Python has no pip of its own; an environment has.
    fetch("/usr/bin/python3", &["-m", "venv", "client"], tools.path());
    let pip = tools.path().join("client/bin/pip");
    let common = ["--quiet", "--disable-pip-version-check", "--no-input"];
    fetch(&pip, &[&["install"], &common[..], &["--target", "tools"], PYTHON_TOOLS].concat(), tools.path());
    // The sources of all packages at once, but what builds them (for their names and versions) as pip likes it.
    let packages: Vec<&str> = PYTHON.iter().map(|suite| suite.package).collect();
    let names = packages.iter().map(|package| package.split_once("==").unwrap().0).collect::<Vec<_>>().join(",");
    let source = ["--no-deps", "--no-binary", &names, "--dest", "sources"];
    fetch(&pip, &[&["download"], &common[..], &source, &packages].concat(), tools.path());
    for (turn, suite) in PYTHON.iter().enumerate() {
        let place = directory();
        let archive = tools.path().join(format!("sources/{}.tar.gz", suite.directory));
        fetch("tar", &["--extract", "--no-same-owner", "--file", archive.to_str().unwrap()], place.path());
        let copied = tools.path().join("tools");
        fetch("cp", &["-r", "--preserve=timestamps", copied.to_str().unwrap(), "tools"], place.path());
        same_suite((turn, suite), place.path(), |_| Extra::default(), |text| before("passed", text));
    }
}

#[test]
fn node_packages_pass_their_own_tests_inside_as_outside() {
    let tools = directory();
    let common = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save"];
    fs::write(tools.path().join("package.json"), "{\"private\":true}").unwrap();
    fetch("npm", &[&["install"], &common[..], NODE_TOOLS].concat(), tools.path());
    for (turn, suite) in NODE.iter().enumerate() {
        let place = directory();
        fetch("npm", &["pack", "--silent", suite.package], place.path());
        let archive = format!("{}.tgz", suite.package.replace('@', "-"));
        fetch("tar", &["--extract", "--no-same-owner", "--file", &archive], place.path());
        fetch("cp", &["-r", tools.path().join("node_modules").to_str().unwrap(), "node_modules"], place.path());
        same_suite((turn, suite), place.path(), |_| Extra::default(), |text| behind("pass", text));
    }
}

#[test]
fn rust_crates_with_vendored_dependencies_pass_their_own_tests_inside_as_outside() {
    for (turn, suite) in RUST.iter().enumerate() {
        let place = directory();
        let (name, version) = suite.package.split_once('@').unwrap();
        let manifest = format!(
            "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[lib]\npath = \"lib.rs\"\n\
             [dependencies]\n{name} = \"={version}\"\n"
        );
        let client = place.path().join("client");
        fs::create_dir(&client).unwrap();
        fs::write(client.join("Cargo.toml"), manifest).unwrap();
        fs::write(client.join("lib.rs"), "").unwrap();
        fetch("cargo", &["vendor", "--quiet", "vendor"], &client);
        let package = place.path().join(name);
        fs::rename(client.join("vendor").join(name), &package).unwrap();
        fs::remove_dir_all(&client).unwrap();
        // Its own dependencies, for its tests.
        fetch("cargo", &["vendor", "--quiet", "vendor"], &package);
        let config = "[source.crates-io]\nreplace-with = \"vendored-sources\"\n\n\
                      [source.vendored-sources]\ndirectory = \"vendor\"\n";
        fs::create_dir(package.join(".cargo")).unwrap();
        fs::write(package.join(".cargo/config.toml"), config).unwrap();
        let with_toolchain = |bench: &Bench| {
            let bin = toolchain(bench).join("bin");
            let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
            // The copy lies in no place of a manager, of which alone a run without a flag shows more than a program.
            let flags = vec!["--profile".to_owned(), "rust".to_owned()];
            Extra { caller: vec![("PATH".to_owned(), path)], flags }
        };
        same_suite((turn, suite), place.path(), with_toolchain, |text| before("passed", text));
    }
}

/// A toolchain that the user of `nexus` can read and finds by PATH. Root's own lies in root's home; hard links make a
/// copy for nothing.
fn toolchain(bench: &Bench) -> PathBuf {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = PathBuf::from(stdout(&output).trim());
    if !is_root() {
        return sysroot;
    }
    let copy = bench.base.path().join("toolchain");
    for how in ["-rl", "-r"] {
        fs::create_dir_all(copy.join("bin")).unwrap();
        let parts = ["bin/cargo", "bin/rustc", "bin/rustdoc", "lib"];
        let copied = parts.iter().all(|part| {
            let (from, to) = (sysroot.join(part), copy.join(part));
            Command::new("cp").arg(how).arg("--").arg(from).arg(to).status().unwrap().success()
        });
        if copied {
            return copy;
        }
        fs::remove_dir_all(&copy).unwrap();
    }
    panic!("the toolchain {} could not be copied", sysroot.display());
}

#[test]
fn each_suite_has_one_user_and_each_user_some_suites_of_each_language() {
    for suites in [PYTHON, NODE, RUST].map(<[Suite]>::len) {
        for suite in 0..suites {
            assert_eq!((0..2).filter(|user| has_turn(suite, (*user, 2), false)).count(), 1);
            assert!(has_turn(suite, (0, 1), false) && (0..2).all(|user| has_turn(suite, (user, 2), true)));
        }
        assert!((0..2).all(|user| (0..suites).any(|suite| has_turn(suite, (user, 2), false))));
    }
}

#[test]
fn counts_are_read_from_what_the_runners_print() {
    assert_eq!(before("passed", "12 passed, 3 skipped in 0.5s"), 12);
    assert_eq!(before("passed", "test result: ok. 4 passed; 0 failed;\ntest result: ok. 3 passed; 0 failed;"), 7);
    assert_eq!(behind("pass", "# tests 153\n# pass  153\n"), 153);
    assert_eq!(before("passed", "no tests ran"), 0);
}
