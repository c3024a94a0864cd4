//! Every route of both APIs, with the rights that it needs. The server is built from this table, and tests hold it against
//! the documents of `docs/protocol`.

use crate::mothership::Role;

/// HTTP method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of HTTP")]
pub enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// Rights that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Every caller may call the route.
    Public,
    /// The body carries an enrolment token.
    EnrollmentToken,
    /// The caller is a territory.
    Territory,
    /// The caller is a territory with a token for the directive.
    Directive,
    /// The caller has an API key with one of these roles.
    Roles(&'static [Role]),
}

/// One entry of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Name of the operation, `operationId` in the documents.
    pub id: &'static str,
    /// Method of the request.
    pub method: Method,
    /// Path with its parameters in braces.
    pub path: &'static str,
    /// Rights that the route needs.
    pub access: Access,
    /// The route belongs to a later part of the product and answers 404.
    pub later: bool,
}

const READ: Access = Access::Roles(&[Role::Viewer, Role::Agent, Role::Operator, Role::Owner]);
const RUN: Access = Access::Roles(&[Role::Agent, Role::Operator, Role::Owner]);
const VIEW: Access = Access::Roles(&[Role::Viewer, Role::Operator, Role::Owner]);
const MANAGE: Access = Access::Roles(&[Role::Operator, Role::Owner]);
const OWN: Access = Access::Roles(&[Role::Owner]);

const fn route(id: &'static str, method: Method, path: &'static str, access: Access) -> Route {
    Route { id, method, path, access, later: false }
}

const fn later(id: &'static str, method: Method, path: &'static str, access: Access) -> Route {
    Route { id, method, path, access, later: true }
}

/// Routes of Conduits v1.
pub const CONDUITS: &[Route] = &[
    route("enroll", Method::Post, "/conduits/v1/territories/enroll", Access::EnrollmentToken),
    route("ca", Method::Get, "/conduits/v1/ca", Access::Public),
    route("renewCertificate", Method::Post, "/conduits/v1/territories/certificate", Access::Territory),
    route("territoryHeartbeat", Method::Post, "/conduits/v1/territories/heartbeat", Access::Territory),
    route("poll", Method::Post, "/conduits/v1/polls", Access::Territory),
    route("started", Method::Post, "/conduits/v1/directives/{directive_id}/started", Access::Directive),
    route("heartbeat", Method::Post, "/conduits/v1/directives/{directive_id}/heartbeat", Access::Directive),
    route("logChunk", Method::Post, "/conduits/v1/directives/{directive_id}/log_chunks", Access::Directive),
    route("events", Method::Post, "/conduits/v1/directives/{directive_id}/events", Access::Directive),
    route("connection", Method::Post, "/conduits/v1/directives/{directive_id}/connections", Access::Directive),
    route("artifact", Method::Post, "/conduits/v1/directives/{directive_id}/artifacts", Access::Directive),
    route(
        "artifactChunk",
        Method::Post,
        "/conduits/v1/directives/{directive_id}/artifacts/{artifact_id}",
        Access::Directive,
    ),
    route("finished", Method::Post, "/conduits/v1/directives/{directive_id}/finished", Access::Directive),
];

/// Routes of Mothership v1, and those without a version.
pub const MOTHERSHIP: &[Route] = &[
    route("healthz", Method::Get, "/healthz", Access::Public),
    route("readyz", Method::Get, "/readyz", Access::Public),
    route("metrics", Method::Get, "/metrics", VIEW),
    route("openapi", Method::Get, "/openapi.json", Access::Public),
    route("createEnrollmentToken", Method::Post, "/mothership/api/v1/enrollment_tokens", MANAGE),
    route("listTerritories", Method::Get, "/mothership/api/v1/territories", VIEW),
    route("getTerritory", Method::Get, "/mothership/api/v1/territories/{territory_id}", VIEW),
    route("drainTerritory", Method::Post, "/mothership/api/v1/territories/{territory_id}/drain", MANAGE),
    route("revokeTerritory", Method::Post, "/mothership/api/v1/territories/{territory_id}/revoke", MANAGE),
    route("createFacility", Method::Post, "/mothership/api/v1/facilities", MANAGE),
    route("listFacilities", Method::Get, "/mothership/api/v1/facilities", VIEW),
    route("getFacility", Method::Get, "/mothership/api/v1/facilities/{facility_id}", VIEW),
    route("createDirective", Method::Post, "/mothership/api/v1/facilities/{facility_id}/directives", RUN),
    route("listFacilityDirectives", Method::Get, "/mothership/api/v1/facilities/{facility_id}/directives", READ),
    route("listDirectives", Method::Get, "/mothership/api/v1/directives", READ),
    route("getDirective", Method::Get, "/mothership/api/v1/directives/{directive_id}", READ),
    route("getLogChunks", Method::Get, "/mothership/api/v1/directives/{directive_id}/log_chunks", READ),
    route(
        "getFacilityLogChunks",
        Method::Get,
        "/mothership/api/v1/facilities/{facility_id}/directives/{directive_id}/log_chunks",
        READ,
    ),
    route("directiveEvents", Method::Get, "/mothership/api/v1/directives/{directive_id}/events", READ),
    route("cancelDirective", Method::Post, "/mothership/api/v1/directives/{directive_id}/cancel", RUN),
    route("approveDirective", Method::Post, "/mothership/api/v1/directives/{directive_id}/approve", MANAGE),
    route("rejectDirective", Method::Post, "/mothership/api/v1/directives/{directive_id}/reject", MANAGE),
    route("getDiff", Method::Get, "/mothership/api/v1/directives/{directive_id}/diff", READ),
    route("getArtifacts", Method::Get, "/mothership/api/v1/directives/{directive_id}/artifacts", READ),
    route("getArtifact", Method::Get, "/mothership/api/v1/directives/{directive_id}/artifacts/{artifact_id}", READ),
    route("getReceipt", Method::Get, "/mothership/api/v1/directives/{directive_id}/receipt", READ),
    route("createApiKey", Method::Post, "/mothership/api/v1/api_keys", OWN),
    route("listApiKeys", Method::Get, "/mothership/api/v1/api_keys", OWN),
    route("deleteApiKey", Method::Delete, "/mothership/api/v1/api_keys/{api_key_id}", OWN),
    route("listApprovals", Method::Get, "/mothership/api/v1/approvals", VIEW),
    route("getApproval", Method::Get, "/mothership/api/v1/approvals/{approval_id}", VIEW),
    route("listPolicies", Method::Get, "/mothership/api/v1/policies", VIEW),
    route("effectivePolicy", Method::Get, "/mothership/api/v1/policies/effective", VIEW),
    route("putAccountPolicy", Method::Put, "/mothership/api/v1/policies/account", OWN),
    route("listAuditEvents", Method::Get, "/mothership/api/v1/audit_events", VIEW),
    later("listAccounts", Method::Get, "/mothership/api/v1/accounts", OWN),
    later("listUsers", Method::Get, "/mothership/api/v1/users", OWN),
];

/// Returns the route with this operation id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Route> {
    CONDUITS.iter().chain(MOTHERSHIP).find(|route| route.id == id)
}

/// Returns `path` with each parameter in braces replaced by the next of `values`. A value with a sign that has a meaning in a
/// path is written as percent and two digits.
#[must_use]
pub fn fill(path: &str, values: &[&str]) -> String {
    let mut out = String::new();
    let mut values = values.iter();
    for part in path.split('/').skip(1) {
        out.push('/');
        if part.starts_with('{') {
            for byte in values.next().copied().unwrap_or_default().bytes() {
                if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
                    out.push(char::from(byte));
                } else {
                    out.push('%');
                    out.push(hex_digit(byte >> 4));
                    out.push(hex_digit(byte & 15));
                }
            }
        } else {
            out.push_str(part);
        }
    }
    out
}

fn hex_digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_and_every_operation_stands_once() {
        let all: Vec<&Route> = CONDUITS.iter().chain(MOTHERSHIP).collect();
        let ids: BTreeSet<&str> = all.iter().map(|route| route.id).collect();
        let paths: BTreeSet<(&str, &str)> = all.iter().map(|route| (route.method.name(), route.path)).collect();
        assert_eq!((ids.len(), paths.len()), (all.len(), all.len()));
    }

    #[test]
    fn the_page_of_the_protocol_names_every_call_of_a_daemon() {
        let page = include_str!("../../../docs/protocol.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.contains("/conduits/v1/")).collect();
        for (row, route) in rows.iter().zip(CONDUITS) {
            let begin = format!("| `{}` | `{} {}` |", route.id, route.method.name(), route.path);
            assert!(row.starts_with(&begin), "{row}");
        }
        assert_eq!(rows.len(), CONDUITS.len());
    }

    #[test]
    fn a_parameter_cannot_leave_its_place_in_the_path() {
        let path = find("getDiff").unwrap().path;
        assert_eq!(fill(path, &["a/../b?c"]), "/mothership/api/v1/directives/a%2F..%2Fb%3Fc/diff");
        assert_eq!(fill("/a/{b}/c/{d}", &["1", "2"]), "/a/1/c/2");
    }
}
