//! Calls to a control plane: the client, and errors as a person sees them.

use crate::failure::Failure;
use nexus_api::client::{ClientConfig, ClientError, Http, PlainHttp, TlsFiles, tls_config};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// Makes the runtime of calls: this thread drives it.
pub fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::refused("runtime", format!("the calls cannot be made: {error}"), "free descriptors and run it again")
    })
}

/// Makes a client of one server.
pub fn http(
    server: &str,
    ca_pem: Option<&str>,
    identity: Option<(&str, &str)>,
    plain: PlainHttp,
) -> Result<Http, Failure> {
    let mut config = ClientConfig::new(server);
    config.plain = plain;
    if server.starts_with("https://") {
        let Some(ca_pem) = ca_pem else {
            let message = format!("The certificate of {server} cannot be checked: no authority is named");
            return Err(Failure::usage("ca", message, "Pass its certificates with --ca FILE."));
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = tls_config(&TlsFiles { ca_pem, identity }, provider)
            .map_err(|error| Failure::refused("ca", error.to_string(), "look at the file"))?;
        config.tls = Some(tls);
    }
    Http::new(config).map_err(|error| failure(&error))
}

/// Reads a small text file.
pub fn read_text(path: &Path, code: &'static str) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(code, format!("{} cannot be read: {error}", path.display()), "name another file")
    })
}

/// Advises what to do about a call that did not succeed.
pub fn failure(error: &ClientError) -> Failure {
    let (code, hint): (&'static str, String) = match error {
        ClientError::Address { .. } => ("server_address", "an address looks like http://127.0.0.1:4780".to_owned()),
        ClientError::InClear { .. } => (
            "plain_http",
            "use https with --ca, or http://127.0.0.1; --insecure-http sends keys in clear to anyone".to_owned(),
        ),
        ClientError::Stranger { .. } => (
            "server_owner",
            "is nexus up running? --server-uid UID names the user of a server that is not yours or root's".to_owned(),
        ),
        ClientError::Connect { .. } => {
            ("server_unreachable", "is it running? nexus up starts one on this machine".to_owned())
        }
        ClientError::Timeout { .. } => ("server_timeout", "run it again".to_owned()),
        ClientError::Broken { .. } => {
            ("connection_broken", "the call may have taken effect: look before you repeat it".to_owned())
        }
        ClientError::Answer { .. } => {
            ("answer_unreadable", "is this the address of a control plane of this version?".to_owned())
        }
        ClientError::Status { status: 401, .. } => ("unauthorized", "nexus login takes another API key".to_owned()),
        ClientError::Status { status: 403, .. } => ("forbidden", "this needs an API key with another role".to_owned()),
        ClientError::Status { status: 404, .. } => ("not_found", "look at the id".to_owned()),
        ClientError::Status { body, .. } => ("refused", body.hint.clone().unwrap_or_default()),
    };
    let mut message = error.to_string();
    if let ClientError::Status { body, .. } = error {
        if let Some(detail) = &body.detail {
            message = format!("{message}: {detail}");
        }
        if !body.code.is_empty() {
            message = format!("{message} ({})", body.code);
        }
    }
    Failure::refused(code, message.trim_end_matches('.').to_owned(), hint)
}

/// Reads an id that a person typed.
pub fn id<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| {
        let message = format!("{text:?} is not the id of a {what}");
        Failure::usage("id", message, format!("nexus {what} ls lists them"))
    })
}
