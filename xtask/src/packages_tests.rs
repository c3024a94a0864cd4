use super::*;
use crate::sources;
use std::collections::BTreeSet;

/// Programs of packages that every Debian has (`Essential: yes`), and of listed packages besides their sign.
const ALWAYS_THERE: &[&str] = &[
    "bash",
    "cat",
    "chmod",
    "chown",
    "cp",
    "env",
    "find",
    "grep",
    "install",
    "ln",
    "mkdir",
    "mkfifo",
    "ldd",
    "nsenter",
    "rm",
    "script",
    "setsid",
    "sh",
    "sha256sum",
    "sleep",
    "timeout",
    "touch",
    "true",
    "umount",
    "unshare",
];
/// Programs of the Rust toolchain, which runs these tests.
const TOOLCHAIN: &[&str] = &["cargo", "rustc"];
/// A program that only this file starts, where it installs packages.
const INSTALLER: &[&str] = &["apt-get"];

/// The names in `command("NAME")` and `Command::new("NAME")`: programs that are looked up in PATH.
fn called(source: &str) -> BTreeSet<String> {
    let starts = ["Command::new(\"", "command(\""];
    let found = starts.iter().flat_map(|start| source.match_indices(start).map(|(at, _)| (at, at + start.len())));
    // `find_subcommand` starts nothing.
    let is_whole = |at: usize| !source[..at].ends_with(|before: char| before == '_' || before.is_alphanumeric());
    let after = found.filter(|(at, _)| is_whole(*at)).map(|(_, end)| &source[end..]);
    let names = after.filter_map(|rest| rest.split_once('"').map(|(name, _)| name.to_owned()));
    names.filter(|name| !name.is_empty() && !name.contains(['/', '{', ' '])).collect()
}

/// Programs of listed packages that are known by another program.
const WITH_LISTED: &[&str] = &["chattr", "flock", "kill", "losetup", "prlimit", "tc"];

#[test]
fn every_program_that_a_test_calls_is_installed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let signs = NEEDED.iter().filter_map(|(_, by)| match by {
        Shown::By(program) => Some(*program),
        Shown::ByPythonModule(_) => None,
    });
    let known: BTreeSet<&str> = signs.chain([ALWAYS_THERE, TOOLCHAIN, INSTALLER, WITH_LISTED].concat()).collect();
    let mut missing = Vec::new();
    let own = Path::new("xtask/src/packages_tests.rs");
    for source in sources::all(root).unwrap().iter().filter(|source| source.path != own) {
        let unknown: Vec<String> = called(&source.text).into_iter().filter(|name| !known.contains(&**name)).collect();
        if !unknown.is_empty() {
            missing.push(format!("{}: no listed package has {unknown:?}", source.path.display()));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_call_of_a_program_is_found_by_its_name() {
    let source = "Command::new(\"nft\").arg(x); bench.command(\"curl\"); Command::new(\"/bin/sh\"); Command::new(name); \
                  cli.find_subcommand(\"run\")";
    assert_eq!(called(source), BTreeSet::from(["nft".to_owned(), "curl".to_owned()]));
}

#[test]
fn nothing_is_missing_when_all_is_shown_and_all_is_missing_when_nothing_is() {
    assert_eq!(missing(NEEDED, |_| true), Vec::<&str>::new());
    assert_eq!(missing(NEEDED, |_| false).len(), NEEDED.len());
}

#[test]
fn a_package_is_missed_by_its_own_sign() {
    let without_bwrap = |by| !matches!(by, Shown::By("bwrap"));
    assert_eq!(missing(NEEDED, without_bwrap), ["bubblewrap"]);
}

#[test]
fn a_program_is_found_in_the_path_only_if_it_is_there() {
    assert!(is_in_path("sh"));
    assert!(!is_in_path("no-such-program-of-nexus"));
}

#[test]
fn the_effective_uid_is_the_second_of_the_line() {
    assert_eq!(effective_uid("Name:\tx\nUid:\t1000\t0\t1000\t1000\n"), Some(0));
    assert_eq!(effective_uid("Name:\tx\n"), None);
}
