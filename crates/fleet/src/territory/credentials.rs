//! Certificate and key of a territory, in one file of its data directory.

use crate::client::call::{failure, http};
use crate::failure::Failure;
use nexus_api::client::{ConduitsClient, PlainHttp, TerritoryIdentity};
use nexusd::territory::Identity;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Name of the file.
pub const FILE: &str = "certificate.json";
/// Name of the file while it is written.
const HIDDEN: &str = ".new-certificate";

/// Certificate, key and the authority of the server, as PEM text.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Credentials {
    /// Certificate of the territory.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// Certificates that may sign that of the server.
    pub authority: String,
}

impl Credentials {
    /// Reads the file that the identity names.
    pub fn read(data_dir: &Path, name: &str) -> Result<Self, Failure> {
        let path = data_dir.join(name);
        let refused = |why: String| {
            let message = format!("The certificate in {} cannot be used: {why}", path.display());
            Failure::refused("certificate", message, "Join again with another data directory.")
        };
        let text = std::fs::read(&path).map_err(|error| refused(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| refused(error.to_string()))
    }

    /// Writes the file whole and synced: a machine that stops meanwhile has the one before.
    pub fn write(&self, data_dir: &Path) -> Result<(), Failure> {
        let hidden = data_dir.join(HIDDEN);
        let written = (|| -> io::Result<()> {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&hidden)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            std::fs::rename(&hidden, data_dir.join(FILE))?;
            File::open(data_dir)?.sync_all()
        })();
        written.map_err(|error| {
            let message = format!("{} cannot be written: {error}", data_dir.join(FILE).display());
            Failure::refused("certificate", message, "look at its disk")
        })
    }

    /// Makes the client that proves itself by this certificate.
    pub fn client(&self, server: &str, plain: PlainHttp) -> Result<ConduitsClient, Failure> {
        let http = http(server, Some(&self.authority), Some((&self.certificate, &self.key)), plain)?;
        ConduitsClient::new(&http, &TerritoryIdentity::Certificate).map_err(|error| failure(&error))
    }
}

/// Makes the client of a territory that has joined.
pub fn client(data_dir: &Path, identity: &Identity, plain: PlainHttp) -> Result<ConduitsClient, Failure> {
    if let Some(name) = &identity.certificate {
        return Credentials::read(data_dir, name)?.client(&identity.server, plain);
    }
    let http = http(&identity.server, None, None, plain)?;
    let proof = TerritoryIdentity::Header(identity.territory_id);
    ConduitsClient::new(&http, &proof).map_err(|error| failure(&error))
}

/// Makes a key, and the request for its certificate as PEM text.
pub fn key_and_request() -> Result<(rcgen::KeyPair, String), Failure> {
    let made = || -> Result<_, rcgen::Error> {
        let key = rcgen::KeyPair::generate()?;
        let request = rcgen::CertificateParams::new(Vec::<String>::new())?.serialize_request(&key)?.pem()?;
        Ok((key, request))
    };
    made().map_err(|error| {
        Failure::refused("certificate", format!("a key for this territory cannot be made: {error}"), "run it again")
    })
}
