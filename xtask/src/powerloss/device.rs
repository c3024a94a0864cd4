//! A disk whose writes and flushes are logged: a loop device on a file that this program serves by FUSE.

use super::fuse::{self, Request};
use super::log::Event;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The events of all disks in the order in which they happened.
#[derive(Debug, Default, Clone)]
pub struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    /// Returns the number of events so far.
    pub fn position(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Takes all events.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// A disk with an ext4 file system, mounted.
pub struct Disk {
    image: Arc<Mutex<Vec<u8>>>,
    place: PathBuf,
    mounted: PathBuf,
    attached: Option<Loop>,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl Disk {
    /// Makes a disk of `size` bytes with an empty file system and mounts it at `target`. The FUSE mount is made at
    /// `place`, an existing file.
    pub fn make(number: usize, size: usize, place: &Path, target: &Path, log: &Recorder) -> io::Result<Self> {
        let image = Arc::new(Mutex::new(vec![0; size]));
        let connection = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=100600,user_id=0,group_id=0", connection.as_raw_fd());
        let options = CString::new(options).map_err(io::Error::other)?;
        mount("nexus-powerloss", place, "fuse", MountFlags::NODEV | MountFlags::NOSUID, options.as_c_str())?;
        let (served, log) = (Arc::clone(&image), log.clone());
        let server = std::thread::spawn(move || serve(connection, number, &served, &log));
        let mut disk =
            Self { image, place: place.to_owned(), mounted: target.to_owned(), attached: None, server: Some(server) };
        let attached = Loop::attach(place)?;
        let device = attached.0.clone();
        disk.attached = Some(attached);
        format(&device)?;
        mount_ext4(&device, target)?;
        Ok(disk)
    }

    /// Returns the bytes of the disk as they are now.
    pub fn bytes(&self) -> Vec<u8> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Unmounts everything and waits for the end of the server.
    pub fn close(mut self) -> io::Result<()> {
        self.undo()
    }

    fn undo(&mut self) -> io::Result<()> {
        let Some(server) = self.server.take() else { return Ok(()) };
        if self.attached.is_some() {
            leave(&self.mounted);
        }
        drop(self.attached.take());
        unmount(&self.place, UnmountFlags::DETACH)?;
        server.join().map_err(|_| io::Error::other("the server of a disk panicked"))?
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            eprintln!("powerloss: a disk cannot be taken away: {error}");
        }
    }
}

/// A loop device on a file.
pub struct Loop(pub PathBuf);

impl Loop {
    /// Attaches a free loop device.
    pub fn attach(file: &Path) -> io::Result<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim())));
        }
        Ok(Self(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        match Command::new("losetup").arg("--detach").arg(&self.0).status() {
            Ok(status) if status.success() => {}
            other => eprintln!("powerloss: {} stays attached: {other:?}", self.0.display()),
        }
    }
}

fn format(device: &Path) -> io::Result<()> {
    let words = ["-q", "-F", "-b", "4096", "-N", "16384", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
    let output = Command::new("mke2fs").args(["-t", "ext4"]).args(words).arg(device).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("mke2fs: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// Mounts the file system of a device; its journal is replayed if need be.
pub fn mount_ext4(device: &Path, target: &Path) -> io::Result<()> {
    mount(device, target, "ext4", MountFlags::NOATIME, None)?;
    Ok(())
}

/// Unmounts; a file that a process still has open goes when it is closed.
pub fn leave(target: &Path) {
    // What a command left behind may take a moment to go, and a file system that is unmounted lazily would still be
    // attached when its device is used again.
    for _ in 0..200 {
        match unmount(target, UnmountFlags::empty()) {
            Err(rustix::io::Errno::BUSY) => std::thread::sleep(std::time::Duration::from_millis(10)),
            _ => return,
        }
    }
    eprintln!("powerloss: {} is still in use and is unmounted lazily", target.display());
    if let Err(error) = unmount(target, UnmountFlags::DETACH) {
        eprintln!("powerloss: {} stays mounted: {error}", target.display());
    }
}

/// Answers the kernel until the file is unmounted.
fn serve(mut connection: File, disk: usize, image: &Mutex<Vec<u8>>, log: &Recorder) -> io::Result<()> {
    let mut buffer = vec![0; fuse::REQUEST];
    loop {
        let length = match connection.read(&mut buffer) {
            Ok(length) => length,
            Err(error) => match error.raw_os_error() {
                // ENODEV: unmounted. ENOENT: the request was taken back. EINTR, EAGAIN: again.
                Some(19) => return Ok(()),
                Some(2 | 4 | 11) => continue,
                _ => return Err(error),
            },
        };
        let bytes = buffer.get(..length).unwrap_or_default();
        let Some(numbered) = fuse::parse(bytes) else {
            return Err(io::Error::other("the kernel sent a request that is too short"));
        };
        let answer = {
            let mut image = image.lock().unwrap_or_else(PoisonError::into_inner);
            answer(&numbered, disk, &mut image, log)
        };
        if let Some(answer) = answer {
            match connection.write(&answer) {
                Ok(_) => {}
                // The request was interrupted.
                Err(error) if error.raw_os_error() == Some(2) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn answer(numbered: &fuse::Numbered<'_>, disk: usize, image: &mut [u8], log: &Recorder) -> Option<Vec<u8>> {
    let unique = numbered.unique;
    Some(match numbered.request {
        Request::Init { read_ahead } => fuse::reply(unique, &fuse::init_body(read_ahead)),
        Request::Attributes => fuse::reply(unique, &fuse::attributes_body(image.len() as u64)),
        Request::Open => fuse::reply(unique, &fuse::open_body()),
        Request::Read { offset, size } => {
            let begin = (offset as usize).min(image.len());
            let end = begin.saturating_add(size as usize).min(image.len());
            fuse::reply(unique, image.get(begin..end).unwrap_or_default())
        }
        Request::Write { offset, data } => {
            let begin = offset as usize;
            let Some(place) = image.get_mut(begin..begin.saturating_add(data.len())) else {
                return Some(fuse::refusal(unique));
            };
            place.copy_from_slice(data);
            log.add(Event::Write { disk, offset, data: data.to_vec() });
            fuse::reply(unique, &fuse::written_body(data.len()))
        }
        Request::Sync => {
            log.add(Event::Flush { disk });
            fuse::reply(unique, &[])
        }
        Request::Close => fuse::reply(unique, &[]),
        Request::Silent => return None,
        Request::Other => fuse::refusal(unique),
    })
}
