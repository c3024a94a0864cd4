//! The HEAD of a repository, by real git and by hand.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use nexus_facility::Head;
use nexus_facility::head::read;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

fn git(dir: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(dir).env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["-c", "user.name=n", "-c", "user.email=n@example.test", "-c", "init.defaultBranch=main"]);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn head(tree: &Path) -> Option<Head> {
    read(File::open(tree).unwrap()).unwrap()
}

#[test]
fn the_head_of_a_repository_is_the_one_that_git_names() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path();
    assert_eq!(head(tree), None, "there is no repository");
    git(tree, &["init", "-q"]);
    let on = |commit: Option<&str>, branch: Option<&str>| {
        Some(Head { commit: commit.map(str::to_owned), branch: branch.map(str::to_owned) })
    };
    assert_eq!(head(tree), on(None, Some("refs/heads/main")), "a branch without a commit");
    git(tree, &["commit", "-q", "--allow-empty", "-m", "one"]);
    let first = git(tree, &["rev-parse", "HEAD"]);
    assert_eq!(head(tree), on(Some(&first), Some("refs/heads/main")));
    git(tree, &["checkout", "-q", "-b", "deep/branch"]);
    git(tree, &["commit", "-q", "--allow-empty", "-m", "two"]);
    let second = git(tree, &["rev-parse", "HEAD"]);
    git(tree, &["pack-refs", "--all"]);
    assert_eq!(head(tree), on(Some(&second), Some("refs/heads/deep/branch")), "a packed ref");
    git(tree, &["checkout", "-q", "--detach", &first]);
    assert_eq!(head(tree), on(Some(&first), None));
}

#[test]
fn a_hostile_git_directory_leads_nowhere() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tree = dir.path();
    let id = "0123456789abcdef0123456789abcdef01234567";
    std::fs::write(outside.path().join("secret"), format!("{id}\n")).unwrap();
    let git = tree.join(".git");
    std::fs::create_dir_all(git.join("refs/heads")).unwrap();
    for text in [
        "ref: refs/heads/../../../secret",
        "ref: ../secret",
        "ref: /etc/passwd",
        "ref: refs/heads/a\u{1b}[2Jb",
        "ref: refs/heads/loop",
        "0123",
        "",
        "ref:",
    ] {
        std::fs::write(git.join("HEAD"), text).unwrap();
        std::fs::write(git.join("refs/heads/loop"), "ref: refs/heads/loop").unwrap();
        assert_eq!(head(tree), None, "{text:?}");
    }
    symlink(outside.path().join("secret"), git.join("refs/heads/link")).unwrap();
    std::fs::write(git.join("HEAD"), "ref: refs/heads/link\n").unwrap();
    assert_eq!(head(tree).unwrap().commit, None, "a link is not followed");
    std::fs::remove_file(git.join("HEAD")).unwrap();
    assert!(Command::new("mkfifo").arg(git.join("HEAD")).status().unwrap().success());
    assert_eq!(head(tree), None, "a pipe holds nothing up");
    std::fs::remove_file(git.join("HEAD")).unwrap();
    std::fs::write(git.join("HEAD"), vec![b'a'; 1 << 20]).unwrap();
    assert_eq!(head(tree), None, "too long");
    std::fs::rename(&git, outside.path().join("git")).unwrap();
    symlink(outside.path().join("git"), &git).unwrap();
    assert_eq!(head(tree), None, "a link in the place of .git");
    std::fs::remove_file(&git).unwrap();
    std::fs::write(&git, "gitdir: /elsewhere").unwrap();
    assert_eq!(head(tree), None, "a file in the place of .git");
}
