//! Files of a server that other users must not read or change: the proxy's secret, the TLS key, the certificate.

use crate::failure::Failure;
use nexus_mothership::TlsIdentity;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Rights that other users may have on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// None. A group may read it: the proxy or a service may be a member.
    Nothing,
    /// Everybody may read it.
    Read,
}

impl Others {
    /// The bits of a mode that the file must not have.
    fn refused_bits(self) -> u32 {
        match self {
            Self::Nothing => 0o027,
            Self::Read => 0o022,
        }
    }
}

/// Reads a small file of root or of this user that no other user can change. The error is a reason for a person.
pub fn read_own(path: &Path, others: Others) -> Result<String, String> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let file = file.map_err(|error| error.to_string())?;
    let meta = file.metadata().map_err(|error| error.to_string())?;
    if !meta.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let is_trusted = meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw();
    if !is_trusted || meta.mode() & others.refused_bits() != 0 {
        let right = if others == Others::Read { "change it" } else { "read or change it" };
        return Err(format!("other users can {right}"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MAX_BYTES { Err("it is larger than 1 MiB".to_owned()) } else { Ok(text) }
}

/// The files of a server's certificate.
#[derive(Debug, Clone)]
pub struct TlsPaths {
    /// The certificate chain, in which the server's own comes first.
    pub certificate: PathBuf,
    /// The private key of the server's certificate.
    pub key: PathBuf,
}

impl TlsPaths {
    /// Returns the paths when both were given; the command line takes neither or both.
    pub fn of(certificate: Option<&Path>, key: Option<&Path>) -> Option<Self> {
        Some(Self { certificate: certificate?.to_owned(), key: key?.to_owned() })
    }

    /// Reads both files.
    pub fn read(&self) -> Result<TlsIdentity, Failure> {
        let refused = |path: &Path, hint: &str, why: &str| {
            let message = format!("{} cannot be used: {why}", path.display());
            Failure::usage("listener_certificate", message, hint)
        };
        let certificate_pem = read_own(&self.certificate, Others::Read)
            .map_err(|why| refused(&self.certificate, "It holds the certificate chain as PEM text.", &why))?;
        let key_pem = read_own(&self.key, Others::Nothing).map_err(|why| {
            refused(&self.key, "Give the key to the user of the server alone: mode 600, or 640 for a group.", &why)
        })?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        Ok(TlsIdentity { certificate_pem, key_pem, provider })
    }
}
