//! Denials for reasons that lie in the egress instead of in the policy.

use nexus_policy::net::{Cause, Denial, DenyCode};

/// A request that breaks the rules of its protocol.
pub(crate) fn malformed(explanation: impl Into<String>) -> Denial {
    Denial {
        cause: Cause::Unreadable,
        code: DenyCode::InvalidDestination,
        rule: None,
        explanation: explanation.into(),
        allow_with: None,
    }
}

/// Nexus itself cannot do what it must; then nothing is allowed.
pub(crate) fn internal(explanation: impl Into<String>) -> Denial {
    Denial { code: DenyCode::InternalError, ..malformed(explanation) }
}

/// More at one time than this sandbox gets.
pub(crate) fn too_many(explanation: impl Into<String>) -> Denial {
    Denial { cause: Cause::Budget, code: DenyCode::LimitExceeded, ..malformed(explanation) }
}
