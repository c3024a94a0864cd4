//! The searches for logins of earlier runs, in one file of the state directory. A file that is missing, damaged or not the
//! user's own only makes the next search slower.

use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const NAME: &str = "searches.json";
/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Reads the file; nothing where another user may have written it.
#[must_use]
pub fn read(state: &Path) -> Vec<u8> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut bytes = Vec::new();
    let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(state.join(NAME)) else { return bytes };
    let own = rustix::process::geteuid().as_raw();
    let meta = file
        .metadata()
        .ok()
        .filter(|meta| meta.is_file() && meta.uid() == own && meta.mode() & 0o022 == 0 && meta.len() <= MAX_BYTES);
    let Some(meta) = meta else { return bytes };
    // With room for all of it, so that it is read in one call.
    bytes.reserve_exact(meta.len() as usize + 1);
    if file.take(MAX_BYTES).read_to_end(&mut bytes).is_err() {
        bytes.clear();
    }
    bytes
}

/// Replaces the file.
pub fn write(state: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = state.join(format!(".{NAME}-{}", nexus_model::RunId::new()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut out| out.write_all(bytes))
        .and_then(|()| std::fs::rename(&fresh, state.join(NAME)));
    if written.is_err() && fresh.exists() {
        std::fs::remove_file(&fresh)?;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_file_that_the_user_alone_writes_is_read() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        assert_eq!(read(state), b"");
        write(state, b"one").unwrap();
        write(state, b"two").unwrap();
        assert_eq!(read(state), b"two");
        assert_eq!(std::fs::read_dir(state).unwrap().count(), 1, "nothing else stays");
        let file = state.join(NAME);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(read(state), b"");
        std::fs::rename(&file, state.join("other")).unwrap();
        std::fs::set_permissions(state.join("other"), std::fs::Permissions::from_mode(0o600)).unwrap();
        symlink("other", &file).unwrap();
        assert_eq!(read(state), b"", "a link");
    }
}
