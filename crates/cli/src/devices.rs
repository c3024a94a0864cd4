//! `--device PATH`: which character devices of the host a command may be given.
//!
//! ```text
//!  below /dev, no link ─▶ a character device ─▶ a kind that hands over no more than itself ─▶ the command could open it
//!        no                    no: a disk            no: refused with the reason                no: says why
//!                                                    unknown: the operator names it in [binds] allow
//! ```
//! A device is code of the kernel, which no wall around files holds: what it does, it does to the machine. So the kinds are
//! listed that are made for many programs at once (render nodes of GPUs, accelerators, tun), and everything else is refused.
//! Only a flag gives a device: neither profiles nor files of the workspace do.

use crate::binds::Shown;
use crate::failure::Failure;
use nexus_model::plan::{Access, Bind};
use nexus_policy::profile::{Origin, Sourced};
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// The flag, for messages.
const FLAG: &str = "--device";
/// Lists the drivers of devices with their major numbers.
const DRIVERS: &str = "/proc/devices";

/// What the kernel says of a device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    kind: FileType,
    major: u32,
    minor: u32,
}

/// Decides what becomes of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// A kind that may be given.
    Given,
    /// A kind that nobody can open, and why.
    Refused(&'static str),
    /// A kind that only the operator opens, by its name.
    Unknown,
}

const DISK: &str = "it is a disk: what is on it would be read and changed around every rule for files";

/// Judges by the numbers of Documentation/admin-guide/devices.txt of Linux, and by the name of the driver where a major number is
/// given out when the driver is loaded.
fn judge(node: Node, driver: Option<&str>) -> Verdict {
    if node.kind == FileType::BlockDevice {
        return Verdict::Refused(DISK);
    }
    if node.kind != FileType::CharacterDevice {
        return Verdict::Refused("it is no device");
    }
    match (node.major, node.minor) {
        (1, _) => Verdict::Refused("it is the memory, the ports or the log of the machine, or what every sandbox has"),
        (4 | 5 | 7 | 136..=143, _) => Verdict::Refused("it is a terminal of the host: the command could type into it"),
        (9 | 21 | 162, _) | (10, 236 | 237) => Verdict::Refused(DISK),
        (10, 203 | 229) => Verdict::Refused("programs of the host would open what the command makes with it"),
        (10, 232) => Verdict::Refused("virtual machines run in the host's kernel with the rights of its drivers"),
        (10, 223 | 239) | (13, _) => Verdict::Refused("the command could read or press the keys of this machine"),
        (10, 144) | (202 | 203, _) => Verdict::Refused("it sets up the machine itself"),
        // Render nodes have 64 minor numbers; those from 192 on are display nodes again (Linux 6.12).
        (195, 254) | (226, 0..=127 | 192..) => {
            Verdict::Refused("it controls the display; a command computes with /dev/dri/renderD128 or the like")
        }
        (10, 200) | (226 | 261, _) => Verdict::Given,
        _ if driver.is_some_and(|driver| DRIVERS_OF_ACCELERATORS.contains(&driver)) => Verdict::Given,
        _ => Verdict::Unknown,
    }
}

/// Drivers of GPUs that take their major number when they are loaded.
const DRIVERS_OF_ACCELERATORS: &[&str] = &["kfd", "nvidia", "nvidia-frontend", "nvidiactl", "nvidia-uvm"];

/// Finds the driver of character devices with this major number.
fn driver_of(drivers: &str, major: u32) -> Option<&str> {
    let characters = drivers.lines().skip_while(|line| *line != "Character devices:").skip(1);
    characters.take_while(|line| !line.is_empty()).find_map(|line| {
        let (number, name) = line.trim_start().split_once(' ')?;
        (number.parse() == Ok(major)).then_some(name)
    })
}

/// Looks at the devices that the command line names. `opened` is what the operator opened.
pub fn read(paths: &[PathBuf], opened: &[Sourced<String>]) -> Result<Vec<Shown>, Failure> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let drivers = std::fs::read_to_string(DRIVERS).unwrap_or_default();
    paths.iter().map(|path| one(path, opened, &drivers)).collect()
}

fn one(path: &Path, opened: &[Sourced<String>], drivers: &str) -> Result<Shown, Failure> {
    let refuse = |why: &str, hint: &str| {
        Err(Failure::refused("device", format!("{FLAG} {} cannot be given: {why}", path.display()), hint))
    };
    let real = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) => return refuse(&error.to_string(), "Name a device that exists."),
    };
    if real != path {
        return refuse("its path has a link in it", &format!("Name the device itself: {FLAG} {}.", real.display()));
    }
    if !real.starts_with("/dev") {
        return refuse("it does not lie below /dev", "Name a device below /dev.");
    }
    let stat = match rustix::fs::stat(&real) {
        Ok(stat) => stat,
        Err(error) => return refuse(&error.to_string(), "Name a device that exists."),
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    let node = Node { kind, major: rustix::fs::major(stat.st_rdev), minor: rustix::fs::minor(stat.st_rdev) };
    let by_operator = match judge(node, driver_of(drivers, node.major)) {
        Verdict::Given => false,
        Verdict::Refused(why) => return refuse(why, "Leave it out; no setting opens it."),
        Verdict::Unknown if opened.iter().any(|one| Path::new(&one.value) == real) => true,
        Verdict::Unknown => {
            let hint = "The operator can open it by name with allow = [\"PATH\"] in the section [binds] of /etc/nexus/config.toml.";
            return refuse("it is not of a kind that Nexus knows to be shared by programs (GPUs, tun)", hint);
        }
    };
    if !can_be_opened(&real, stat.st_mode) {
        let hint = "As root, commands run as a user of their own: chmod o+rw the device. As a user, join the group of the device.";
        return refuse("the command could not read and write it", hint);
    }
    let place: nexus_model::ByteText = real.into();
    let access = Access::Device { major: node.major, minor: node.minor };
    let bind = Bind { source: place.clone(), target: place, access };
    Ok(Shown { bind, made: None, why: None, from: Origin::Flag(FLAG.to_owned()), by_operator })
}

/// Reports that the user inside may open a device. Root's sandboxes have a uid that owns nothing on the host.
fn can_be_opened(path: &Path, mode: u32) -> bool {
    if rustix::process::geteuid().is_root() {
        return mode & 0o006 == 0o006;
    }
    rustix::fs::access(path, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(major: u32, minor: u32, driver: Option<&str>) -> Verdict {
        judge(Node { kind: FileType::CharacterDevice, major, minor }, driver)
    }

    #[test]
    fn gpus_and_tun_are_given_and_the_machine_is_not() {
        for (major, minor, driver) in [
            (226, 128, Some("drm")),
            (226, 191, Some("drm")),
            (261, 0, None),
            (10, 200, Some("misc")),
            (195, 0, Some("nvidia")),
            (235, 0, Some("kfd")),
        ] {
            assert_eq!(of(major, minor, driver), Verdict::Given, "{major}:{minor}");
        }
        // mem, kmem, port, null, kmsg; tty0, tty, console, vcs, pts; st, loop-control, mapper, sg, raw; fuse, cuse, kvm; uinput,
        // event0; msr; card0, nvidia-modeset.
        for (major, minor) in [
            (1, 1),
            (1, 2),
            (1, 4),
            (1, 3),
            (1, 11),
            (4, 0),
            (5, 0),
            (5, 1),
            (7, 1),
            (136, 0),
            (143, 9),
            (9, 0),
            (10, 237),
            (10, 236),
            (21, 0),
            (162, 0),
            (10, 229),
            (10, 203),
            (10, 232),
            (10, 223),
            (13, 64),
            (202, 0),
            (226, 0),
            (226, 192),
            (195, 254),
        ] {
            assert!(matches!(of(major, minor, Some("nvidia")), Verdict::Refused(_)), "{major}:{minor}");
        }
        for (major, minor, driver) in [
            (10, 231, Some("misc")),
            (234, 1, Some("nvidia-caps")),
            (189, 0, Some("usb_device")),
            (240, 0, None),
            (195, 0, None),
        ] {
            assert_eq!(of(major, minor, driver), Verdict::Unknown, "{major}:{minor}");
        }
    }

    #[test]
    fn disks_and_what_is_no_device_are_refused() {
        for kind in
            [FileType::BlockDevice, FileType::RegularFile, FileType::Directory, FileType::Fifo, FileType::Socket]
        {
            let node = Node { kind, major: 226, minor: 128 };
            assert!(matches!(judge(node, Some("drm")), Verdict::Refused(_)), "{kind:?}");
        }
    }

    #[test]
    fn a_driver_is_found_by_the_number_of_its_character_devices() {
        let drivers = "Character devices:\n  1 mem\n195 nvidia\n235 kfd\n\nBlock devices:\n  7 loop\n236 kfd\n";
        assert_eq!(driver_of(drivers, 195), Some("nvidia"));
        assert_eq!(driver_of(drivers, 235), Some("kfd"));
        for none in [7, 236, 19, 0] {
            assert_eq!(driver_of(drivers, none), None, "{none}");
        }
        assert_eq!(driver_of("", 195), None);
    }

    #[test]
    fn a_path_that_is_no_device_of_its_own_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().canonicalize().unwrap().join("tun");
        std::fs::write(&file, "").unwrap();
        let said = |path: &Path| read(&[path.to_owned()], &[]).err().unwrap().to_string();
        assert!(said(&file).contains("does not lie below /dev"), "{}", said(&file));
        for path in ["/dev/no-such-device", "/dev/fd", "/dev/../dev/null", "dev/null", "/dev"] {
            assert!(said(Path::new(path)).contains("cannot be given"), "{path}");
        }
        assert!(said(Path::new("/dev/null")).contains("every sandbox has"));
    }
}
