//! Reads and makes the messages of JSON-RPC 2.0. Pure.

use serde_json::{Value, json};

/// The input is not JSON, or too long or too deep.
pub const PARSE_ERROR: i64 = -32700;
/// The input is JSON, but not a request.
pub const INVALID_REQUEST: i64 = -32600;
/// The method does not exist.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are not those of the method.
pub const INVALID_PARAMS: i64 = -32602;
/// The server does as much at a time as it may.
pub const BUSY: i64 = -32000;
/// The version of the protocol is not one of this server's.
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// Longest id of a request, as JSON.
const MAX_ID: usize = 256;

/// An error of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    /// The number that JSON-RPC or the protocol gives it.
    pub code: i64,
    /// Description of the error.
    pub message: String,
    /// More for programs; null if there is nothing.
    pub data: Value,
}

impl RpcError {
    /// Makes an error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: Value::Null }
    }
}

/// A message of the client.
#[derive(Debug, PartialEq)]
pub enum Incoming {
    /// It wants an answer.
    Request {
        /// A string or a number.
        id: Value,
        /// Name of the method.
        method: String,
        /// Object with the parameters.
        params: Value,
    },
    /// It wants none.
    Notification {
        /// Name of the method.
        method: String,
        /// Object with the parameters.
        params: Value,
    },
    /// An answer of the client. This server asks nothing, so that none is expected.
    Response,
    /// It is none of these. The answer goes to the id, which is null where the message has none.
    Bad {
        /// The id of the answer.
        id: Value,
        /// Description of the error.
        error: RpcError,
    },
}

/// Reads one line of the client; `None` for an empty one.
pub fn read(line: &[u8]) -> Option<Incoming> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let bad = |id: Value, code, message: &str| Some(Incoming::Bad { id, error: RpcError::new(code, message) });
    // The parser refuses what lies more than 128 levels deep, so that no depth of a message is one of the stack.
    let Ok(value) = serde_json::from_slice::<Value>(line) else {
        return bad(Value::Null, PARSE_ERROR, "the message is not JSON, or too deep");
    };
    let Value::Object(mut message) = value else {
        return bad(Value::Null, INVALID_REQUEST, "a message is one object; batches are not part of the protocol");
    };
    let id = message.remove("id");
    let is_id = |id: &Value| (id.is_string() || id.is_i64() || id.is_u64()) && id.to_string().len() <= MAX_ID;
    let answer_to = id.clone().filter(is_id).unwrap_or_default();
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return bad(answer_to, INVALID_REQUEST, "jsonrpc must be \"2.0\"");
    }
    let Some(method) = message.remove("method") else {
        let is_answer = message.contains_key("result") || message.contains_key("error");
        return if is_answer {
            Some(Incoming::Response)
        } else {
            bad(answer_to, INVALID_REQUEST, "there is no method")
        };
    };
    let Value::String(method) = method else {
        return bad(answer_to, INVALID_REQUEST, "the method must be a string");
    };
    let params = message.remove("params").unwrap_or_else(|| json!({}));
    if !params.is_object() {
        return bad(answer_to, INVALID_PARAMS, "params must be an object");
    }
    Some(match id {
        None => Incoming::Notification { method, params },
        Some(id) if is_id(&id) => Incoming::Request { id, method, params },
        Some(_) => {
            return bad(Value::Null, INVALID_REQUEST, "an id is a string or a whole number of at most 256 bytes");
        }
    })
}

/// Makes the answer to a request.
pub fn answer(id: &Value, done: Result<Value, RpcError>) -> Value {
    match done {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => {
            let mut said = json!({ "code": error.code, "message": error.message });
            if !error.data.is_null() {
                said["data"] = error.data;
            }
            json!({ "jsonrpc": "2.0", "id": id, "error": said })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code(line: &str) -> (Value, i64) {
        match read(line.as_bytes()) {
            Some(Incoming::Bad { id, error }) => (id, error.code),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_is_no_request_is_an_error_that_names_its_id_where_it_has_one() {
        for (line, id, expected) in [
            ("{", json!(null), PARSE_ERROR),
            ("\u{feff}{}", json!(null), PARSE_ERROR),
            ("[]", json!(null), INVALID_REQUEST),
            ("7", json!(null), INVALID_REQUEST),
            (r#"{"id":1,"method":"ping"}"#, json!(1), INVALID_REQUEST),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, json!(1), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":"a"}"#, json!("a"), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":2,"method":7}"#, json!(2), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, json!(null), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, json!(null), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, json!(null), INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":3,"method":"ping","params":[1]}"#, json!(3), INVALID_PARAMS),
        ] {
            assert_eq!(code(line), (id, expected), "{line}");
        }
        assert_eq!(code(&format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"x"}}"#, "i".repeat(300))).1, INVALID_REQUEST);
    }

    #[test]
    fn a_deep_message_is_refused() {
        let deep =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}{}}}"#, "[".repeat(9000), "]".repeat(9000));
        assert_eq!(code(&deep), (Value::Null, PARSE_ERROR));
    }

    #[test]
    fn requests_notifications_and_answers_are_distinguished() {
        let request = read(br#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#);
        let expected = Incoming::Request { id: json!("a"), method: "tools/list".into(), params: json!({}) };
        assert_eq!(request, Some(expected));
        let reported = read(br#"{"jsonrpc":"2.0","method":"n","params":{"a":1}}"#);
        assert_eq!(reported, Some(Incoming::Notification { method: "n".into(), params: json!({"a": 1}) }));
        assert_eq!(read(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Some(Incoming::Response));
        assert_eq!(read(b" \r"), None);
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes);
        }
    }
}
