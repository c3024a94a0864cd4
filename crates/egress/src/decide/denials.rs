//! Denials for reasons that lie in the egress instead of in the policy.

use crate::seams::ResolveError;
use nexus_policy::net::{Cause, Denial, DenyCode, Target};

/// Denies a request that breaks the rules of its protocol.
pub(crate) fn malformed(explanation: impl Into<String>) -> Denial {
    Denial {
        cause: Cause::Unreadable,
        code: DenyCode::InvalidDestination,
        rule: None,
        explanation: explanation.into(),
        allow_with: None,
    }
}

/// Denies an attempt because Nexus itself failed; nothing is allowed then.
pub(crate) fn internal(explanation: impl Into<String>) -> Denial {
    Denial { code: DenyCode::InternalError, ..malformed(explanation) }
}

/// Denies a name whose addresses cannot be used.
pub(crate) fn not_resolved(error: &ResolveError) -> Denial {
    Denial { cause: Cause::NotResolved, code: Cause::NotResolved.code(), ..malformed(error.to_string()) }
}

/// Denies an attempt beyond a limit of this sandbox.
pub(crate) fn too_many(explanation: impl Into<String>) -> Denial {
    Denial { cause: Cause::Budget, code: DenyCode::LimitExceeded, ..malformed(explanation) }
}

/// Denies a request for another host than that of its connection, to a server that also has a denied name.
pub(crate) fn names_another(target: &Target) -> Denial {
    let why = format!("the server of {target} has a denied name too, and the request is for another host");
    Denial { cause: Cause::Disagree, code: Cause::Disagree.code(), ..malformed(why) }
}
