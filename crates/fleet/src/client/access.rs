//! Finds the control plane and the key of a user, and calls it.

use crate::args::ServerArgs;
use crate::client::call::{failure, http, read_text, runtime};
use crate::client::login;
use crate::failure::Failure;
use nexus_api::client::{ClientError, MothershipClient};
use std::future::Future;
use tokio::runtime::Runtime;

/// A user's connection to a control plane.
pub struct Access {
    /// The client with the key of the user.
    pub client: MothershipClient,
    runtime: Runtime,
}

impl Access {
    /// Finds the address and the key: flags, then variables, then the file of `nexus login`.
    pub fn of(args: &ServerArgs) -> Result<Self, Failure> {
        let known = login::read()?;
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let server = args.server.clone().or_else(|| variable("NEXUS_SERVER"));
        let server = server.or_else(|| known.as_ref().map(|known| known.server.clone())).ok_or_else(no_server)?;
        let key = match &args.key_file {
            Some(file) => Some(read_text(file, "key_file")?.trim().to_owned()),
            None => variable("NEXUS_API_KEY"),
        };
        // The key of another control plane goes nowhere.
        let known = known.filter(|known| known.server == server);
        let key = key.or_else(|| known.as_ref().map(|known| known.api_key.clone())).ok_or_else(no_key)?;
        let mut plain = args.plain;
        if let Some(known) = &known {
            plain.server_uid = plain.server_uid.or(known.server_uid);
            plain.insecure_http |= known.insecure_http;
        }
        let ca = match &args.ca {
            Some(file) => Some(read_text(file, "ca")?),
            None => known.and_then(|known| known.ca_pem),
        };
        let http = http(&server, ca.as_deref(), None, plain.rule())?;
        let client = MothershipClient::new(&http, &key).map_err(|error| failure(&error))?;
        Ok(Self { client, runtime: runtime()? })
    }

    /// Waits for a call.
    pub fn wait<T>(&self, call: impl Future<Output = Result<T, ClientError>>) -> Result<T, Failure> {
        self.runtime.block_on(call).map_err(|error| failure(&error))
    }

    /// Drives something on the runtime of the calls.
    pub fn drive<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

fn no_server() -> Failure {
    let message = "No control plane is named";
    Failure::usage("server", message, "Pass --server URL, set NEXUS_SERVER, or use nexus login once.")
}

fn no_key() -> Failure {
    let message = "There is no API key for this control plane";
    Failure::usage("api_key", message, "Pass --key-file FILE, set NEXUS_API_KEY, or use nexus login once.")
}
