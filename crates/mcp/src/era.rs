//! Distinguishes the two generations of the protocol. Pure.
//!
//! ```text
//!  2024-11-05 … 2025-11-25   initialize, then requests as they are
//!  2026-07-28                no handshake: each request says its version and what the client can do, in `_meta`
//! ```
//! Both are served side by side: each request is of the generation that it says itself. The server keeps only that a client has initialized it.

use crate::rpc::{INVALID_PARAMS, RpcError, UNSUPPORTED_VERSION};
use serde_json::{Value, json};

/// The generation without a handshake.
pub const MODERN: &str = "2026-07-28";
/// Those with one, the latest first.
pub const LEGACY: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The first method of the generation without a handshake.
pub const DISCOVER: &str = "server/discover";
/// Method of the handshake.
pub const INITIALIZE: &str = "initialize";

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const ABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";
/// Time for which a client may keep the list of tools, which never changes while the server lives.
const KEPT_MS: u64 = 3_600_000;

/// The generation of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With a handshake.
    Legacy,
    /// The generation without a handshake.
    Modern,
}

/// Finds the generation of a request.
pub fn of(method: &str, params: &Value, is_initialized: bool) -> Result<Era, RpcError> {
    let meta = params.get("_meta");
    let version = meta.and_then(|meta| meta.get(VERSION_KEY));
    match version {
        None if matches!(method, INITIALIZE | "ping") || (is_initialized && method != DISCOVER) => Ok(Era::Legacy),
        None => Err(RpcError::new(
            INVALID_PARAMS,
            format!(
                "params._meta must say {VERSION_KEY} and {ABILITIES_KEY}, or the client must send {INITIALIZE} first"
            ),
        )),
        Some(Value::String(version)) if version == MODERN => {
            if meta.and_then(|meta| meta.get(ABILITIES_KEY)).is_some_and(Value::is_object) {
                return Ok(Era::Modern);
            }
            Err(RpcError::new(INVALID_PARAMS, format!("params._meta must say {ABILITIES_KEY}, an object")))
        }
        Some(Value::String(version)) => Err(RpcError {
            code: UNSUPPORTED_VERSION,
            message: format!("this server does not speak version {version} of the protocol"),
            data: json!({ "supported": [MODERN], "requested": version }),
        }),
        Some(_) => Err(RpcError::new(INVALID_PARAMS, format!("{VERSION_KEY} must be a string"))),
    }
}

/// Returns the version that answers a handshake: that of the client, or the latest one that has a handshake.
pub fn negotiated(params: &Value) -> &'static str {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    LEGACY.iter().copied().find(|version| Some(*version) == asked).unwrap_or(LEGACY[0])
}

/// Describes this server.
pub fn server() -> Value {
    json!({ "name": "nexus", "title": "Nexus", "version": env!("CARGO_PKG_VERSION") })
}

/// Adds to a result what its generation wants; `is_cacheable` where it is the same for every request.
pub fn in_form_of(era: Era, mut result: Value, is_cacheable: bool) -> Value {
    if era == Era::Modern {
        result["resultType"] = json!("complete");
        result["_meta"] = json!({ SERVER_KEY: server() });
        if is_cacheable {
            result["ttlMs"] = json!(KEPT_MS);
            result["cacheScope"] = json!("private");
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(version: &str) -> Value {
        json!({ "_meta": { VERSION_KEY: version, ABILITIES_KEY: {} } })
    }

    #[test]
    fn each_request_is_of_the_generation_that_it_says() {
        assert_eq!(of("tools/list", &with(MODERN), false), Ok(Era::Modern));
        assert_eq!(of("tools/list", &with(MODERN), true), Ok(Era::Modern));
        assert_eq!(of(DISCOVER, &with(MODERN), false), Ok(Era::Modern));
        assert_eq!(of("tools/list", &json!({}), true), Ok(Era::Legacy));
        assert_eq!(of(INITIALIZE, &json!({}), false), Ok(Era::Legacy));
        assert_eq!(of("ping", &json!({}), false), Ok(Era::Legacy));
    }

    #[test]
    fn a_request_that_does_not_say_enough_is_refused() {
        let code = |params: Value| of("tools/list", &params, false).unwrap_err().code;
        assert_eq!(code(json!({})), INVALID_PARAMS);
        assert_eq!(code(json!({ "_meta": { VERSION_KEY: MODERN } })), INVALID_PARAMS);
        assert_eq!(code(json!({ "_meta": { VERSION_KEY: 7, ABILITIES_KEY: {} } })), INVALID_PARAMS);
        assert_eq!(
            of(DISCOVER, &json!({}), true).unwrap_err().code,
            INVALID_PARAMS,
            "a legacy client has no such method"
        );
        let unknown = of("tools/list", &with("2031-01-01"), true).unwrap_err();
        assert_eq!(unknown.code, UNSUPPORTED_VERSION);
        assert_eq!(unknown.data, json!({ "supported": [MODERN], "requested": "2031-01-01" }));
    }

    #[test]
    fn a_handshake_is_answered_with_the_clients_version_or_the_latest() {
        for version in LEGACY {
            assert_eq!(negotiated(&json!({ "protocolVersion": version })), *version);
        }
        for other in [json!({}), json!({ "protocolVersion": MODERN }), json!({ "protocolVersion": 3 })] {
            assert_eq!(negotiated(&other), LEGACY[0]);
        }
    }

    #[test]
    fn only_the_new_generation_gets_its_fields() {
        assert_eq!(in_form_of(Era::Legacy, json!({ "a": 1 }), true), json!({ "a": 1 }));
        let modern = in_form_of(Era::Modern, json!({ "a": 1 }), true);
        assert_eq!(modern["resultType"], "complete");
        assert_eq!(modern["cacheScope"], "private");
        assert_eq!(in_form_of(Era::Modern, json!({}), false).get("ttlMs"), None);
    }
}
