//! The first process of the machine.
//!
//! ```text
//!  initramfs ─▶ copied to a tmpfs that becomes the root ─▶ /proc, /sys, cgroup2, modules, a disk in memory
//!            ─▶ cases as a child; orphans are reaped ─▶ restart, which ends QEMU
//! ```
//! pivot_root(2) refuses the root that the kernel unpacks an initramfs into, hence the copy.

use rustix::fs::CWD;
use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::{WaitOptions, chdir, chroot};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, ExitCode};

/// The word by which the kernel starts this program as the first process.
pub const INIT: &str = "vm-init";
/// The word by which that one starts it for the cases.
pub const CASES: &str = "vm-cases";
const NEW_ROOT: &str = "/root.new";
/// Mount point of the disk in memory: an ext4, since layers need its extended attributes.
pub const DISK: &str = "/data";
const DISK_BYTES: u64 = 256 << 20;
/// In the order in which they are loaded.
const MODULES: &[&str] = &["overlay.ko", "loop.ko"];

pub fn main() -> ExitCode {
    // Elsewhere it would end a machine that is in use.
    if !rustix::process::getpid().is_init() {
        eprintln!("this is the first process of the test machine and of no other");
        return ExitCode::from(2);
    }
    let done = set_up().and_then(|()| start_cases());
    if let Err(error) = done {
        println!("vm: the machine could not be set up: {error}");
    }
    match rustix::system::reboot(rustix::system::RebootCommand::Restart) {
        // The kernel panics when its first process ends, which ends the machine too.
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("vm: the machine could not be ended: {error}");
            ExitCode::FAILURE
        }
    }
}

fn set_up() -> io::Result<()> {
    mount_kind("tmpfs", NEW_ROOT, "mode=0755")?;
    copy(Path::new("/usr"), &Path::new(NEW_ROOT).join("usr"))?;
    for name in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), Path::new(NEW_ROOT).join(name))?;
    }
    for name in ["data", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var", "var/tmp"] {
        fs::create_dir(Path::new(NEW_ROOT).join(name))?;
    }
    chdir(NEW_ROOT)?;
    mount_move(".", "/")?;
    chroot(".")?;
    chdir("/")?;
    mount_kind("devtmpfs", "/dev", "")?;
    mount_kind("proc", "/proc", "")?;
    mount_kind("sysfs", "/sys", "")?;
    mount_kind("cgroup2", "/sys/fs/cgroup", "")?;
    mount_kind("tracefs", "/sys/kernel/tracing", "")?;
    fs::create_dir("/dev/pts")?;
    mount_kind("devpts", "/dev/pts", "ptmxmode=666")?;
    fs::create_dir("/dev/shm")?;
    mount_kind("tmpfs", "/dev/shm", "mode=1777")?;
    for directory in ["/tmp", "/var/tmp"] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o1777))?;
    }
    fs::write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n")?;
    fs::write("/etc/group", "root:x:0:\nuser:x:1000:\n")?;
    for module in MODULES {
        let file = fs::File::open(Path::new("/usr/lib/modules").join(module))?;
        rustix::system::finit_module(&file, c"", 0)?;
    }
    let disk = "/tmp/disk";
    fs::File::create(disk)?.set_len(DISK_BYTES)?;
    run("mke2fs", &["-q", "-F", "-t", "ext4", disk])?;
    run("mount", &["-t", "ext4", "-o", "loop", disk, DISK])
}

fn mount_kind(kind: &str, to: &str, options: &str) -> io::Result<()> {
    let options = std::ffi::CString::new(options)?;
    mount(kind, to, kind, MountFlags::empty(), options.as_c_str())
        .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("{kind} on {to}: {error}")))
}

fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let status = Command::new(program).env("PATH", "/usr/bin").args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{program}: {status}"))) }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let target = to.join(entry.file_name());
        if kind.is_dir() {
            copy(&path, &target)?;
        } else if kind.is_symlink() {
            rustix::fs::symlinkat(fs::read_link(&path)?, CWD, &target)?;
        } else {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

/// Waits for all processes until the cases have ended: a process that loses its parent becomes ours.
fn start_cases() -> io::Result<()> {
    let cases = Command::new("/usr/bin/nexus-vm").arg(CASES).env("PATH", "/usr/bin").spawn()?;
    loop {
        if let Some((pid, _)) = rustix::process::wait(WaitOptions::empty())?
            && pid.as_raw_nonzero().get().unsigned_abs() == cases.id()
        {
            return Ok(());
        }
    }
}
