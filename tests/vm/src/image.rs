//! The initramfs: `nexus`, this program as init, their libraries, busybox, modules. Nothing else is in the machine.

use crate::cpio::Archive;
use crate::failure::Failure;
use crate::parts::Parts;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Programs of busybox that the cases call.
const APPLETS: &[&str] = &[
    "sh", "cat", "dd", "echo", "false", "id", "kill", "ls", "mkdir", "mount", "seq", "sleep", "test", "touch", "true",
    "umount",
];
/// Empty directories that are mount points, or that programs expect.
const DIRECTORIES: &[&str] =
    &["dev", "proc", "sys", "root.new", "usr", "usr/bin", "usr/lib", "usr/lib64", "usr/lib/modules"];
/// The old names of directories below /usr.
const LINKS: &[&str] = &["bin", "lib", "lib64"];
/// Makes the file system that layers need: tmpfs takes no `user.` attributes on old kernels.
const MKFS: &str = "/sbin/mke2fs";

/// Writes it, with the programs that were built last: the one that is running may have been replaced meanwhile.
pub fn write(file: &Path, parts: &Parts, built: &Path) -> Result<(), Failure> {
    let failed = |what: String| Failure::new(format!("the initramfs: {what}"), "build first: `cargo build`");
    let (nexus, own) = (built.join("nexus"), built.join("nexus-vm"));
    let programs: [(&str, &Path); 4] =
        [("nexus", &nexus), ("nexus-vm", &own), ("mke2fs", Path::new(MKFS)), ("busybox", &parts.busybox)];
    let mut libraries = BTreeSet::new();
    for (_, program) in &programs[..3] {
        libraries.extend(libraries_of(program).map_err(&failed)?);
    }
    let mut archive =
        File::create(file).map(|file| Archive::new(BufWriter::new(file))).map_err(|e| failed(e.to_string()))?;
    let mut add = || -> io::Result<()> {
        for name in DIRECTORIES {
            archive.directory(name)?;
        }
        for name in LINKS {
            archive.link(name, &format!("usr/{name}"))?;
        }
        for (name, program) in programs {
            archive.file(&format!("usr/bin/{name}"), true, &read(program)?)?;
        }
        for applet in APPLETS {
            archive.link(&format!("usr/bin/{applet}"), "busybox")?;
        }
        for library in &libraries {
            // The directory of Debian's libraries; the loader is named by its full path.
            let name = library.file_name().unwrap_or_default().to_string_lossy();
            let directory = if name.starts_with("ld-") { "usr/lib64" } else { "usr/lib" };
            archive.file(&format!("{directory}/{name}"), true, &read(library)?)?;
        }
        for module in &parts.modules {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            archive.file(&format!("usr/lib/modules/{name}"), false, &read(module)?)?;
        }
        archive.link("init", "usr/bin/nexus-vm")
    };
    add().and_then(|()| archive.finish().map(drop)).map_err(|error| failed(error.to_string()))
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(file).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("ldd").arg(program).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("ldd {}: {error}", program.display()))?;
    let (reported, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        return Ok(libraries(&reported));
    }
    // A static program has none.
    if said.contains("not a dynamic executable") {
        Ok(Vec::new())
    } else {
        Err(format!("ldd {}: {said}", program.display()))
    }
}

/// The paths that ldd(1) tells: behind an arrow, or alone for the loader.
fn libraries(reported: &str) -> Vec<PathBuf> {
    let paths = reported.lines().filter_map(|line| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path);
        path.split_whitespace().next().filter(|path| path.starts_with('/'))
    });
    paths.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_library_has_no_file() {
        let reported = "\tlinux-vdso.so.1 (0x7ffc)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(libraries(reported), ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from));
    }
}
