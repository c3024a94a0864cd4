//! QEMU, a kernel and busybox from Debian packages, unpacked below the build directory and never installed.
//!
//! Installing QEMU from the stable suite would remove a newer qemu-utils that is already there (both want one version of
//! a common package). `apt-get install --download-only` names the packages with everything that is missing here, and
//! changes nothing.

use crate::failure::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const EMULATOR: &str = "qemu-system-x86_64";
/// Depends on the newest kernel of the suite without drivers for hardware.
const KERNEL: &str = "linux-image-cloud-amd64";
/// Modules that the cases need and that are not built in.
const MODULES: &[&str] = &["kernel/fs/overlayfs/overlay.ko", "kernel/drivers/block/loop.ko"];

/// Files that a boot needs.
#[derive(Debug)]
pub struct Parts {
    /// Program of the emulator.
    pub qemu: PathBuf,
    /// Its libraries when it is not installed.
    pub libraries: Option<OsString>,
    /// Directories with its firmware when it is not installed.
    pub firmware: Vec<PathBuf>,
    /// Image of the kernel.
    pub kernel: PathBuf,
    /// Modules, in the order in which they are loaded.
    pub modules: Vec<PathBuf>,
    /// A static busybox.
    pub busybox: PathBuf,
}

/// Parts, or the reason for which there are none.
pub enum Found {
    /// All of them.
    All(Parts),
    /// There are none for this processor.
    Nothing(String),
}

/// Downloads what is not there yet. Not being able to is a failure: promises hang on these cases.
pub fn fetch(directory: &Path) -> Result<Found, Failure> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Found::Nothing("only x86_64 is emulated".to_owned()));
    }
    let installed = installed_program(EMULATOR);
    let fetched = unpacked(directory, "busybox", &["busybox-static"]).and_then(|busybox| {
        let kernel = unpacked_kernel(directory)?;
        let qemu = if installed.is_none() { Some(unpacked(directory, "qemu", &["qemu-system-x86"])?) } else { None };
        Ok((busybox, kernel, qemu))
    });
    match fetched {
        Err(reason) => {
            let advice = "the virtual machine needs Debian's packages: see what is named, or run `apt-get update`";
            Err(Failure::new(format!("parts of the virtual machine: {reason}"), advice))
        }
        Ok((busybox, kernel, qemu)) => Parts::new(&busybox, &kernel, qemu.as_deref(), installed).map(Found::All),
    }
}

impl Parts {
    fn new(busybox: &Path, kernel: &Path, qemu: Option<&Path>, installed: Option<PathBuf>) -> Result<Self, Failure> {
        let release = one_in(&kernel.join("lib/modules"), "")?;
        let libraries = qemu.map(|qemu| {
            let directories = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|lib| qemu.join(lib));
            directories.map(PathBuf::into_os_string).join(&OsString::from(":"))
        });
        let firmware = qemu.map(|qemu| ["usr/share/qemu", "usr/share/seabios"].map(|share| qemu.join(share)).to_vec());
        let program = installed.or_else(|| Some(qemu?.join("usr/bin").join(EMULATOR)));
        let parts = Self {
            qemu: program.ok_or_else(|| missing(Path::new(EMULATOR)))?,
            libraries,
            firmware: firmware.unwrap_or_default(),
            kernel: one_in(&kernel.join("boot"), "vmlinuz-")?,
            modules: MODULES.iter().map(|module| release.join(module)).collect(),
            busybox: busybox.join("bin/busybox"),
        };
        let absent = parts.modules.iter().chain([&parts.qemu, &parts.busybox]).find(|file| !file.is_file());
        absent.map(|file| missing(file)).map_or_else(|| Ok(()), Err)?;
        Ok(parts)
    }
}

/// A program of the machine, in the directories that root's PATH has everywhere.
fn installed_program(name: &str) -> Option<PathBuf> {
    ["/usr/local/bin", "/usr/bin", "/bin"].iter().map(|place| Path::new(place).join(name)).find(|file| file.is_file())
}

fn missing(file: &Path) -> Failure {
    Failure::new(format!("{} is not in its package", file.display()), "remove target/vm and try again")
}

/// The only entry that begins with `prefix`.
fn one_in(directory: &Path, prefix: &str) -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(directory).map_err(|_| missing(directory))?;
    let names = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut fitting =
        names.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    fitting.next().ok_or_else(|| missing(&directory.join(prefix)))
}

fn unpacked_kernel(directory: &Path) -> Result<PathBuf, String> {
    let depends = say_on_failure(&["apt-cache", "depends", KERNEL])?;
    let package = kernel_of(&String::from_utf8_lossy(&depends.stdout))
        .ok_or(format!("{KERNEL} is not known here; `apt-get update` may help"))?;
    unpacked(directory, &package, &[])
}

/// The package that the meta package depends on.
fn kernel_of(depends: &str) -> Option<String> {
    let lines = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    lines.map(str::trim).find(|name| name.starts_with("linux-image-")).map(str::to_owned)
}

/// Returns the directory with the content of these packages, and of the packages that they need and this machine lacks.
/// Without packages: of the one package `name`, alone.
fn unpacked(directory: &Path, name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let done = directory.join(name);
    if done.is_dir() {
        return Ok(done);
    }
    println!("vm: downloading {name}");
    let text = |path: &Path| path.display().to_string();
    let part = directory.join(format!("{name}.part"));
    let debs = part.join("debs");
    if part.exists() {
        std::fs::remove_dir_all(&part).map_err(|error| format!("{}: {error}", text(&part)))?;
    }
    std::fs::create_dir_all(debs.join("partial")).map_err(|error| format!("{}: {error}", text(&debs)))?;
    let archives = format!("Dir::Cache::archives={}", text(&debs));
    // Without locks: nothing of the machine's own packages is touched, and an ordinary user may not take them.
    let mut words =
        vec!["apt-get", "-q", "-y", "-o", &archives, "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"];
    if packages.is_empty() {
        words.extend(["download", name]);
    } else {
        words.extend(["install", "--download-only", "--no-install-recommends", "--reinstall"]);
        words.extend(packages);
    }
    let downloaded = command(&words, &debs);
    if downloaded.is_err() && rustix::process::geteuid().is_root() {
        // Lists may be missing or so old that their packages are gone.
        say_on_failure(&["apt-get", "-q", "update"])?;
        command(&words, &debs)?;
    } else {
        downloaded?;
    }
    let root = part.join("root");
    std::fs::create_dir(&root).map_err(|error| format!("{}: {error}", text(&root)))?;
    let entries = std::fs::read_dir(&debs).map_err(|error| format!("{}: {error}", text(&debs)))?;
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        if path.extension().is_some_and(|extension| extension == "deb") {
            say_on_failure(&["dpkg-deb", "-x", &text(&path), &text(&root)])?;
        }
    }
    // Only what is complete gets its name.
    std::fs::rename(&root, &done).map_err(|error| format!("{}: {error}", text(&done)))?;
    std::fs::remove_dir_all(&part).map_err(|error| format!("{}: {error}", text(&part)))?;
    Ok(done)
}

fn say_on_failure(words: &[&str]) -> Result<Output, String> {
    command(words, Path::new("/"))
}

fn command(words: &[&str], directory: &Path) -> Result<Output, String> {
    let (program, arguments) = words.split_first().ok_or("an empty command")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{program}: {}: {last}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meta_package_names_its_kernel() {
        let reported = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-1-cloud-amd64\n  Suggests: linux-doc\n";
        assert_eq!(kernel_of(reported).as_deref(), Some("linux-image-6.1.0-1-cloud-amd64"));
        assert_eq!(kernel_of("linux-image-cloud-amd64\n  Depends: other\n"), None);
    }

    #[test]
    fn a_part_that_is_missing_is_a_failure_and_no_reason_to_skip() {
        assert!(Parts::new(Path::new("/nowhere"), Path::new("/nowhere"), None, None).is_err());
    }
}
