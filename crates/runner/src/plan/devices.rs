//! Decides about the character devices of the host that a command may be given.
//!
//! ```text
//!  below /dev, no link ─▶ a character device ─▶ a kind that hands over no more than itself ─▶ the command could open it
//!        no                    no: a disk            no: refused with the reason                no: says why
//!                                                    unknown: the operator names it in [binds] allow
//! ```
//! A device is code of the kernel, which no wall around files holds: what it does, it does to the machine. So the kinds are
//! listed that are made for many programs at once (render nodes of GPUs, accelerators, tun), and everything else is refused.
//! Only a flag gives a device: neither profiles nor files of the workspace do.

use crate::plan::shown::Shown;
use nexus_model::plan::{Access, Bind};
use nexus_policy::profile::{Origin, Sourced};
use rustix::fs::FileType;
use std::io;
use std::path::{Path, PathBuf};

/// Lists the drivers of devices with their major numbers.
const DRIVERS: &str = "/proc/devices";

/// Holds what the kernel says of a device file.
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
    /// A kind that no setting opens, with the reason.
    Refused(&'static str),
    /// A kind that only the operator opens, by its name.
    Unknown,
}

const DISK: &str = "it is a disk: what is on it would be read and changed around every rule for files";

/// Decides by the numbers of Documentation/admin-guide/devices.txt of Linux, and by the name of the driver where a major number is
/// given out when the driver is loaded.
fn decide(node: Node, driver: Option<&str>) -> Verdict {
    if node.kind == FileType::BlockDevice {
        return Verdict::Refused(DISK);
    }
    if node.kind != FileType::CharacterDevice {
        return Verdict::Refused("it is not a device");
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

/// A device cannot be given.
#[derive(Debug, thiserror::Error)]
#[error("{from} {} cannot be given: {why}", path.display())]
pub struct DeviceError {
    /// The flag or file that asked for it.
    pub from: Origin,
    /// The path that was asked for.
    pub path: PathBuf,
    /// The reason for it.
    pub why: DeviceRefusal,
}

impl DeviceError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "device"
    }
}

/// The reason why a device cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum DeviceRefusal {
    /// The path cannot be looked at.
    #[error("{source}")]
    Unreadable {
        /// The answer of the system.
        source: io::Error,
    },
    /// The path has a link in it.
    #[error("its path has a link in it")]
    Linked {
        /// The path of the device itself.
        real: PathBuf,
    },
    /// The device lies elsewhere.
    #[error("it does not lie below /dev")]
    Elsewhere,
    /// No setting opens a device of this kind.
    #[error("{why}")]
    Never {
        /// The reason for the kind.
        why: &'static str,
    },
    /// Only the operator opens a device of an unknown kind.
    #[error("it is not of a kind that Nexus knows to be shared by programs (GPUs, tun)")]
    Unknown,
    /// The command could not open it.
    #[error("the command could not read and write it")]
    Closed,
}

/// Examines the devices that a request names. `opened` lists the devices that the operator opened.
pub fn read(paths: &[Sourced<PathBuf>], opened: &[Sourced<String>]) -> Result<Vec<Shown>, DeviceError> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let drivers = std::fs::read_to_string(DRIVERS).unwrap_or_default();
    let refused =
        |asked: &Sourced<PathBuf>, why| DeviceError { from: asked.from.clone(), path: asked.value.clone(), why };
    paths.iter().map(|asked| one(asked, opened, &drivers).map_err(|why| refused(asked, why))).collect()
}

fn one(asked: &Sourced<PathBuf>, opened: &[Sourced<String>], drivers: &str) -> Result<Shown, DeviceRefusal> {
    let unreadable = |source| DeviceRefusal::Unreadable { source };
    let real = std::fs::canonicalize(&asked.value).map_err(unreadable)?;
    if real != asked.value {
        return Err(DeviceRefusal::Linked { real });
    }
    if !real.starts_with("/dev") {
        return Err(DeviceRefusal::Elsewhere);
    }
    let stat = rustix::fs::stat(&real).map_err(|error| unreadable(error.into()))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let node = Node { kind, major: rustix::fs::major(stat.st_rdev), minor: rustix::fs::minor(stat.st_rdev) };
    let by_operator = match decide(node, driver_of(drivers, node.major)) {
        Verdict::Given => false,
        Verdict::Refused(why) => return Err(DeviceRefusal::Never { why }),
        Verdict::Unknown if opened.iter().any(|one| Path::new(&one.value) == real) => true,
        Verdict::Unknown => return Err(DeviceRefusal::Unknown),
    };
    if !can_be_opened(&real, stat.st_mode) {
        return Err(DeviceRefusal::Closed);
    }
    let place: nexus_model::ByteText = real.into();
    let access = Access::Device { major: node.major, minor: node.minor };
    let bind = Bind { source: place.clone(), target: place, access };
    Ok(Shown { bind, made: None, why: None, from: asked.from.clone(), by_operator })
}

/// Reports whether the user inside may open a device. Root's sandboxes have a uid that owns nothing on the host.
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
        decide(Node { kind: FileType::CharacterDevice, major, minor }, driver)
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
            assert!(matches!(decide(node, Some("drm")), Verdict::Refused(_)), "{kind:?}");
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
        let asked = |path: &Path| Sourced::new(path.to_owned(), Origin::Flag("--device".to_owned()));
        let said = |path: &Path| read(&[asked(path)], &[]).err().unwrap().to_string();
        assert!(said(&file).contains("does not lie below /dev"), "{}", said(&file));
        for path in ["/dev/no-such-device", "/dev/fd", "/dev/../dev/null", "dev/null", "/dev"] {
            assert!(said(Path::new(path)).contains("cannot be given"), "{path}");
        }
        assert!(said(Path::new("/dev/null")).contains("every sandbox has"));
    }
}
