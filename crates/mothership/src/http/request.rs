//! A request whose rights were checked, and readers of its parts.

use super::answer::Problem;
use crate::app::Shared;
use crate::identity::TokenClaims;
use crate::store::types::{Account, Holding, SecretHash, Territory};
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::str::FromStr;
use url::form_urlencoded;

/// The other side of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    pub address: SocketAddr,
    /// Hash of the public key of the client certificate.
    pub key: Option<SecretHash>,
    /// The connection is encrypted.
    pub tls: bool,
}

/// Principal whose rights were checked.
#[derive(Debug, Clone, Copy)]
pub enum Principal {
    Anyone,
    /// A user or program.
    User(Account),
    /// A person at the console, with the hash of the session's secret.
    Person(Account, SecretHash),
    Daemon(Territory),
    /// A daemon with a token for the directive of the path.
    Holder(Territory, TokenClaims),
}

/// A request whose rights were checked.
pub struct Context {
    pub app: Shared,
    pub caller: Principal,
    /// Parameters of the path.
    pub parameters: Vec<(String, String)>,
    pub query: String,
    pub headers: HeaderMap,
    /// Body of the answer.
    pub body: Vec<u8>,
    /// Other side of the connection.
    pub peer: Peer,
}

impl Context {
    /// Returns the account of the caller.
    pub fn account(&self) -> Result<Account, Problem> {
        match self.caller {
            Principal::User(account) | Principal::Person(account, _) => Ok(account),
            _ => Err(Problem::unauthorized("The call needs an API key.")),
        }
    }

    /// Returns the territory of the caller.
    pub fn territory(&self) -> Result<Territory, Problem> {
        match self.caller {
            Principal::Daemon(territory) | Principal::Holder(territory, _) => Ok(territory),
            _ => Err(Problem::unauthorized("The call needs the identity of a territory.")),
        }
    }

    /// Returns the territory and the claim that its token names.
    pub fn holding(&self) -> Result<(Territory, Holding), Problem> {
        match self.caller {
            Principal::Holder(territory, claims) => {
                Ok((territory, Holding { directive: claims.sub, fence: claims.fence }))
            }
            _ => Err(Problem::unauthorized("The call needs a directive token.")),
        }
    }

    /// Reads an id of the path. A text that is not an id names no object.
    pub fn id<T: FromStr>(&self, name: &str) -> Result<T, Problem> {
        let text = self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        text.and_then(|text| text.parse().ok()).ok_or_else(Problem::not_found)
    }

    /// Reads the body. A body without bytes is an empty object.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        read_json(if self.body.is_empty() { b"{}" } else { &self.body })
    }

    /// Reads a parameter of the query.
    pub fn parameter(&self, name: &str) -> Option<String> {
        form_urlencoded::parse(self.query.as_bytes())
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.into_owned())
    }

    /// Reads a number of the query within bounds.
    pub fn number(&self, name: &'static str, default: i64, min: i64, max: i64) -> Result<i64, Problem> {
        let Some(text) = self.parameter(name) else { return Ok(default) };
        let number = text.parse::<i64>().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "invalid_query",
                format!("{name} must be a number from {min} to {max}."),
            )
        })
    }

    /// Reads the attempt of the query.
    pub fn attempt(&self) -> Result<Option<u32>, Problem> {
        Ok(match self.parameter("attempt") {
            None => None,
            Some(_) => Some(self.number("attempt", 1, 0, i64::from(u32::MAX))? as u32),
        })
    }

    /// Returns the text of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Reads JSON: a text that is not JSON is 400, and JSON of another form is 422.
pub fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // A list is not an object whose members have no names.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Problem::invalid("invalid_field", "The body must be a JSON object."));
    }
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => {
            Problem::invalid("invalid_field", "The body does not have the form of this call.").detail(error.to_string())
        }
        _ => Problem::new(StatusCode::BAD_REQUEST, "invalid_json", "The body is not JSON.").detail(error.to_string()),
    })
}
