//! `vm`: tests that need another kernel or cgroup v2, in a virtual machine that QEMU emulates.
//!
//! ```text
//!  parts (Debian packages, unpacked) ─▶ image (initramfs: nexus, this program as init, busybox) ─▶ boot (QEMU, TCG)
//!        not for this processor: skipped                        guest: init ─▶ cases ─▶ lines on the serial port
//!                                                                        lines ─▶ evaluated here
//! ```
//! The host of a test may have cgroup v1 only, and its kernel is newer than the oldest that Nexus promises to work on.
//! Nothing is installed: packages are downloaded and unpacked below the build directory. The machine has no network and no
//! disk. Without KVM, since a `/dev/kvm` that opens may still be unable to run a kernel; emulation boots in seconds.

mod boot;
mod cpio;
mod guest;
mod image;
mod lines;
mod parts;

use crate::failure::Failure;
use crate::run::{self, Action, Step};
use crate::workspace::{Workspace, cargo};
use parts::Found;

pub use guest::{CASES, INIT, cases, init};

/// `vm`: builds `nexus` and does all of it.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let words = ["build", "--package", "nexus-cli"].map(str::to_owned).to_vec();
    let words = [vec![cargo()], words].concat();
    let action = Action::Program { words, env: &[], counted: false };
    let build = Step { name: "build", advice: "fix what the compiler names", needs: &[], action };
    run::run(workspace, &[build, step()])
}

/// The step of `ci`: takes the `nexus` that was built before.
pub fn step() -> Step {
    let advice = "read the lines that begin with vm";
    Step { name: "virtual machine", advice, needs: &["build"], action: Action::Counted(boot) }
}

fn boot(workspace: &Workspace, counts: &mut crate::counts::Counts) -> Result<(), Failure> {
    let directory = workspace.target.join("vm");
    let parts = match parts::fetch(&directory)? {
        Found::All(parts) => parts,
        Found::Nothing(reason) => {
            println!("vm: SKIPPED, nothing below was tried: cgroup v2, the oldest kernel: {reason}");
            counts.no_machine = Some(reason);
            return Ok(());
        }
    };
    let initramfs = directory.join("initramfs.cpio");
    image::write(&initramfs, &parts, &workspace.target.join("debug"))?;
    let verdict = boot::run(&parts, &initramfs)?;
    counts.passed += verdict.passed;
    counts.failed += verdict.failed;
    counts.cases.extend(verdict.ran.iter().cloned());
    verdict.evaluate(guest::count())
}
