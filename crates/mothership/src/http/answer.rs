//! Answers: JSON, and errors in the one form of the contract.

use crate::store::StoreError;
use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use nexus_api::ErrorBody;
use nexus_model::directive::Refusal;
use serde::Serialize;
use uuid::Uuid;

/// Answer to a request.
pub type Answer = Response<Body>;

/// An error that the caller gets.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    error: String,
    detail: Option<String>,
    hint: Option<String>,
    retry_after: Option<u32>,
}

impl Problem {
    /// Returns an error with a status, a code and a sentence.
    pub fn new(status: StatusCode, code: &'static str, error: impl Into<String>) -> Self {
        Self { status, code, error: error.into(), detail: None, hint: None, retry_after: None }
    }

    /// The one answer for an object that does not exist or belongs to another account.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "The object does not exist.")
    }

    /// The caller has not proved its identity.
    pub fn unauthorized(error: &'static str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", error)
    }

    /// The caller is known and may not do this.
    pub fn forbidden(error: &'static str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", error)
    }

    /// A value is not allowed.
    pub fn invalid(code: &'static str, error: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, error)
    }

    /// The present state does not allow the request.
    pub fn conflict(code: &'static str, error: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, error)
    }

    /// The caller asks too often.
    pub fn too_many(error: &'static str, seconds: u32) -> Self {
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", error);
        problem.retry_after = Some(seconds.clamp(1, 300));
        problem
    }

    /// The same call succeeds a moment later.
    pub fn busy(code: &'static str, error: &'static str) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, error);
        problem.retry_after = Some(2);
        problem
    }

    /// Adds more about the cause.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds an action that the caller can take.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns what a page says about the error.
    pub fn facts(&self) -> (StatusCode, &'static str, &str, Option<&str>) {
        (self.status, self.code, &self.error, self.hint.as_deref().or(self.detail.as_deref()))
    }

    /// Returns the answer.
    pub fn answer(self) -> Answer {
        let request_id = Uuid::now_v7().to_string();
        let body = ErrorBody {
            error: self.error,
            detail: self.detail,
            code: self.code.to_owned(),
            hint: self.hint,
            request_id: request_id.clone(),
        };
        let mut answer = json(self.status, &body);
        let headers = answer.headers_mut();
        if let Ok(id) = request_id.parse() {
            headers.insert("x-request-id", id);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

impl Problem {
    /// Returns whether the server failed, and not the request.
    pub fn is_of_the_server(&self) -> bool {
        self.status.is_server_error()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::not_found(),
            StoreError::Full => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "store_full",
                "The store of the server is full. Try again when the operator has made room.",
            ),
            StoreError::Policy { why } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "policy_broken",
                "The policy document of the account does not count any more: nothing is created or started.",
            )
            .detail(why)
            .hint("An owner puts another one in its place: nexus policy apply --fleet FILE."),
            StoreError::TooManyApprovals => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_approvals",
                "Too many approvals of the account wait for an answer.",
            ),
            StoreError::TerritoryGone { territory } => Self::conflict(
                "territory_gone",
                format!("The facility lies on the territory {territory}, which has no access any more."),
            )
            .hint("Create another facility. Its files are on the machine of the territory alone."),
            StoreError::Text => Self::invalid("invalid_field", "A text holds the character U+0000."),
            // The cause stands in no answer: it may name paths and statements.
            _ => Self::busy("store_failed", "The store of the server failed. Try again."),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::conflict(refusal.code(), format!("The report was refused: {refusal}."))
    }
}

/// Returns a JSON answer.
pub fn json<T: Serialize>(status: StatusCode, body: &T) -> Answer {
    match serde_json::to_vec(body) {
        Ok(bytes) => bytes_answer(status, "application/json", bytes),
        Err(_) => bytes_answer(StatusCode::INTERNAL_SERVER_ERROR, "application/json", b"{}".to_vec()),
    }
}

/// Returns an answer with these bytes.
pub fn bytes_answer(status: StatusCode, kind: &'static str, bytes: Vec<u8>) -> Answer {
    let mut answer = Response::new(Body::from(bytes));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    answer
}

/// Returns a JSON answer with status 200.
pub fn ok<T: Serialize>(body: &T) -> Answer {
    json(StatusCode::OK, body)
}

/// Returns a JSON answer with status 201.
pub fn created<T: Serialize>(body: &T) -> Answer {
    json(StatusCode::CREATED, body)
}
