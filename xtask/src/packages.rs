//! The Debian packages that the tests call: real tools run inside the sandbox, hostile ones beside it.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::workspace::Workspace;

/// Evidence that a package is installed.
#[derive(Clone, Copy)]
enum Shown {
    /// A program of this name lies in a directory of PATH.
    By(&'static str),
    /// Python can import this module.
    ByPythonModule(&'static str),
}

const NEEDED: &[(&str, Shown)] = &[
    ("git", Shown::By("git")),
    ("make", Shown::By("make")),
    ("gcc", Shown::By("gcc")),
    ("python3", Shown::By("python3")),
    // Debian splits the module off; without it `python3 -m venv` fails half way.
    ("python3-venv", Shown::ByPythonModule("ensurepip")),
    ("nodejs", Shown::By("node")),
    ("sqlite3", Shown::By("sqlite3")),
    ("strace", Shown::By("strace")),
    ("gdb", Shown::By("gdb")),
    ("bubblewrap", Shown::By("bwrap")),
    ("tar", Shown::By("tar")),
    ("util-linux", Shown::By("setpriv")),
    ("mount", Shown::By("mount")),
    // The tests give a program outside the sandbox a network of its own, with loopback only.
    ("iproute2", Shown::By("ip")),
    // A test of the network redirects connections as a sandbox does.
    ("nftables", Shown::By("nft")),
    // A small image of Debian has neither: ps(1) runs in sandboxes, mke2fs(8) in the virtual machine.
    ("procps", Shown::By("ps")),
    ("btrfs-progs", Shown::By("btrfs")),
    ("btrfs-progs", Shown::By("mkfs.btrfs")),
    ("e2fsprogs", Shown::By("mke2fs")),
    // Servers and clients of the tests of the network.
    ("curl", Shown::By("curl")),
    ("openssl", Shown::By("openssl")),
    ("nginx", Shown::By("nginx")),
    ("fcgiwrap", Shown::By("fcgiwrap")),
    ("openssh-server", Shown::By("sshd")),
    ("openssh-client", Shown::By("ssh")),
    // It sets the clock of one process.
    ("faketime", Shown::By("faketime")),
    // The client alone has a psql too.
    ("postgresql", Shown::By("pg_ctlcluster")),
    ("redis-server", Shown::By("redis-server")),
    ("openjdk-17-jdk-headless", Shown::By("javac")),
    // The group `pkg:pip` asks the pip of this machine for its index.
    ("python3-pip", Shown::ByPythonModule("pip")),
    ("npm", Shown::By("npm")),
    // Projects of the newcomer's table come as source packages.
    ("dpkg-dev", Shown::By("dpkg-source")),
    // A page is opened by a browser inside.
    ("chromium", Shown::By("chromium")),
    // It checks the units of dist/systemd; nothing is started by it.
    ("systemd", Shown::By("systemd-analyze")),
    // It reads the manual pages as man(1) would.
    ("groff-base", Shown::By("groff")),
];

/// Packages that `fuzz` needs as well: libFuzzer is C++.
const FOR_FUZZING: &[(&str, Shown)] = &[("g++", Shown::By("c++"))];

/// Packages that the long table of projects needs as well.
const FOR_PROJECTS: &[(&str, Shown)] = &[
    ("cmake", Shown::By("cmake")),
    ("golang-go", Shown::By("go")),
    ("maven", Shown::By("mvn")),
    ("php-cli", Shown::By("php")),
    ("ruby", Shown::By("ruby")),
];

/// Debian starts a server that it installs unless this program forbids it; the tests start their own.
const NO_SERVICES: &str = "/usr/sbin/policy-rc.d";

/// Makes sure that every needed package is present: root on Debian gets the missing ones installed, any other user gets
/// a message with the command. A test is never skipped for want of a package.
pub fn ensure(_: &Workspace) -> Result<(), Failure> {
    ensure_all(NEEDED)
}

/// The same for what only `fuzz` needs.
pub fn ensure_for_fuzzing() -> Result<(), Failure> {
    ensure_all(FOR_FUZZING)
}

/// The same for what only the long table of projects needs.
pub fn ensure_for_projects() -> Result<(), Failure> {
    ensure_all(FOR_PROJECTS)
}

fn ensure_all(needed: &'static [(&'static str, Shown)]) -> Result<(), Failure> {
    let missing = missing(needed, is_shown);
    if missing.is_empty() {
        println!("packages: all {} are present", needed.len());
        return Ok(());
    }
    let by_hand = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    if !is_root()? || !Path::new("/etc/debian_version").exists() {
        let advice = format!("run as root: apt-get update && {by_hand}\n  (elsewhere than on Debian: the same tools)");
        return Err(Failure::new(format!("missing packages: {}", missing.join(" ")), advice));
    }
    println!("packages: installing {}", missing.join(" "));
    apt(&["update", "-q"], &by_hand)?;
    let mut arguments = vec!["install", "-q", "-y", "--no-install-recommends"];
    arguments.extend(&missing);
    without_services(|| apt(&arguments, &by_hand))?;
    let still = self::missing(needed, is_shown);
    if still.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("installed, but still not found: {}", still.join(" ")), "look at PATH"))
}

/// Text of the scripts that this module makes. One that an interrupted run left is known by it, and removed by the
/// next.
const OURS: &str = "#!/bin/sh\n# Made while the tests of nexus install packages.\nexit 101\n";

/// Forbids Debian to start services meanwhile. A machine that has a rule of its own keeps it.
fn without_services(install: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{NO_SERVICES}: {error}"), "make /usr/sbin writable");
    if std::fs::read(NO_SERVICES).is_ok_and(|text| text == OURS.as_bytes()) {
        std::fs::remove_file(NO_SERVICES).map_err(failed)?;
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(0o755).open(NO_SERVICES);
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => install(),
        Err(error) => Err(failed(error)),
        Ok(mut file) => {
            let written = file.write_all(OURS.as_bytes()).map_err(failed);
            drop(file);
            let done = written.and_then(|()| install());
            std::fs::remove_file(NO_SERVICES).map_err(failed)?;
            done
        }
    }
}

fn apt(arguments: &[&str], by_hand: &str) -> Result<(), Failure> {
    let status =
        Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format!("apt-get {}: {status}", arguments[0]), format!("by hand: {by_hand}"))),
        Err(error) => Err(Failure::new(format!("apt-get did not start: {error}"), format!("by hand: {by_hand}"))),
    }
}

/// The packages for which `shown` says no, in order.
fn missing(needed: &'static [(&'static str, Shown)], shown: impl Fn(Shown) -> bool) -> Vec<&'static str> {
    needed.iter().filter(|(_, by)| !shown(*by)).map(|(package, _)| *package).collect()
}

fn is_shown(by: Shown) -> bool {
    match by {
        Shown::By(program) => is_in_path(program),
        Shown::ByPythonModule(module) => Command::new("/usr/bin/python3")
            .args(["-c", &format!("import {module}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success()),
    }
}

fn is_in_path(program: &str) -> bool {
    find(program).is_some()
}

/// A program where a sandbox looks: one of the caller's own PATH may not be visible inside.
pub fn find(program: &str) -> Option<PathBuf> {
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(program))
        .find(|file| file.is_file())
}

/// Returns whether this process may install packages; read from /proc, since asking libc would need `unsafe`.
fn is_root() -> Result<bool, Failure> {
    let status = crate::deps::read(Path::new("/proc/self/status"))?;
    effective_uid(&status)
        .map(|uid| uid == 0)
        .ok_or_else(|| Failure::new("/proc/self/status has no Uid line", "mount /proc"))
}

/// The second number of the `Uid:` line (proc_pid_status(5)).
fn effective_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
#[path = "packages_tests.rs"]
mod tests;
