//! Tests that need another kernel or cgroup v2, in a virtual machine that QEMU emulates. Called as `cargo xtask vm`.
//!
//! ```text
//!  parts (Debian packages, unpacked) ─▶ image (initramfs: nexus, this program as init, busybox) ─▶ boot (QEMU, TCG)
//!        not for this processor: skipped                        guest: init ─▶ cases ─▶ lines on the serial port
//!                                                                        lines ─▶ evaluated here
//! ```
//! The host of a test may have cgroup v1 only, and its kernel is newer than the oldest that Nexus promises to work on.
//! Nothing is installed: packages are downloaded and unpacked below the build directory. The machine has no network and no
//! disk. Without KVM, since a `/dev/kvm` that opens may still be unable to run a kernel; emulation boots in seconds.
//!
//! Output for the caller: `vm-case: ok NAME`, `vm-case: FAILED NAME: REASON`, `vm-case: end` as the machine says them,
//! or `skipped machine: REASON`. Exit codes: 0 all cases passed or the machine was skipped, 1 otherwise.

#![forbid(unsafe_code)]

mod boot;
mod cpio;
#[path = "../../support/failure.rs"]
mod failure;
mod guest;
mod image;
mod lines;
mod parts;

use failure::Failure;
use parts::Found;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(guest::INIT) => return guest::init(),
        Some(guest::CASES) => return guest::cases(),
        _ => {}
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("vm: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Boots the machine with the `nexus` that lies beside this program.
fn run() -> Result<(), Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("the path of this program: {error}"), "mount /proc"))?;
    let built = own.parent().unwrap_or(Path::new("/"));
    let directory = built.parent().unwrap_or(built).join("vm");
    let parts = match parts::fetch(&directory)? {
        Found::All(parts) => parts,
        Found::Nothing(reason) => {
            println!("skipped machine: nothing was tried: cgroup v2, the oldest kernel: {reason}");
            return Ok(());
        }
    };
    let initramfs = directory.join("initramfs.cpio");
    image::write(&initramfs, &parts, built)?;
    boot::run(&parts, &initramfs)?.evaluate(guest::count())
}
