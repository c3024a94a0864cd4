//! Enrolment, the certificate of a territory and the authority that signs it.

use super::territory::Capacity;
use crate::labels::Labels;
use crate::lenient;
use nexus_model::ids::TerritoryId;
use serde::{Deserialize, Serialize};

/// Kind of machine that a territory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum TerritoryKind {
    #[default]
    Server,
    Desktop,
    Mobile,
    Bridge,
}

impl TerritoryKind {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Desktop => "desktop",
            Self::Mobile => "mobile",
            Self::Bridge => "bridge",
        }
    }
}

/// Body of `POST /conduits/v1/territories/enroll`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct EnrollRequest {
    pub enroll_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<TerritoryKind>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub platform: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub labels: Option<Labels>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub metadata: Option<EnrollMetadata>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csr_pem: Option<String>,
}

/// Facts about a territory at its enrolment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct EnrollMetadata {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub capacity: Option<Capacity>,
}

/// Answer to an enrolment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnrollAnswer {
    pub territory_id: TerritoryId,
    pub kind: TerritoryKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtls_client_cert_pem: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_pem: Option<String>,
    pub config: TerritoryConfig,
}

/// Intervals that a server proposes to a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerritoryConfig {
    pub poll_interval_seconds: u32,
    pub heartbeat_interval_seconds: u32,
    pub lease_ttl_seconds: u32,
}

/// Body of `POST /conduits/v1/territories/certificate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRequest {
    pub csr_pem: String,
}

/// Answer with a renewed certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateAnswer {
    pub mtls_client_cert_pem: String,
    pub ca_bundle_pem: String,
}

/// Answer to `GET /conduits/v1/ca`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaAnswer {
    pub ca_bundle_pem: String,
}
