//! The calls of users and programs.

use super::error::ClientError;
use super::http::Http;
use super::sse::EventStream;
use crate::audit::AuditEventList;
use crate::conduits::Stream;
use crate::events::EventList;
use crate::mothership::{
    ApiKeyList, Approval, ApprovalList, ApproveRequest, ArtifactList, CancelRequest, CreateApiKey, CreateDirective,
    CreateEnrollmentToken, CreateFacility, CreatedApiKey, CreatedDirective, CreatedFacility, Directive, DirectiveList,
    DirectiveStateAnswer, EffectivePolicy, EnrollmentToken, EventId, Facility, FacilityList, IDEMPOTENCY_HEADER,
    LogChunks, PolicyList, PutPolicy, RejectRequest, Territory, TerritoryList,
};
use crate::routes::{Method, fill, find};
use nexus_model::ids::{ApprovalId, DirectiveId, FacilityId, TerritoryId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Page of a list.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
    /// Largest number of entries.
    pub limit: Option<u32>,
}

/// Part of a directive's output.
#[derive(Debug, Clone, Copy)]
pub struct LogQuery {
    /// Stream to read.
    pub stream: Stream,
    /// Number of the last chunk that is known; -1 for none.
    pub after_seq: i64,
    /// Largest number of chunks.
    pub limit: Option<u32>,
    /// Attempt to read; absent means the latest.
    pub attempt: Option<u32>,
}

/// Client of Mothership v1.
#[derive(Clone)]
pub struct MothershipClient {
    http: Http,
}

impl MothershipClient {
    /// Returns a client that calls with this API key.
    pub fn new(http: &Http, api_key: &str) -> Result<Self, ClientError> {
        Ok(Self { http: http.with_bearer(api_key)? })
    }

    /// Creates an enrolment token.
    pub async fn create_enrollment_token(&self, body: &CreateEnrollmentToken) -> Result<EnrollmentToken, ClientError> {
        self.send("createEnrollmentToken", &[], "", Some(body)).await
    }

    /// Lists the territories.
    pub async fn territories(&self) -> Result<TerritoryList, ClientError> {
        self.get("listTerritories", &[], "").await
    }

    /// Reads one territory.
    pub async fn territory(&self, id: TerritoryId) -> Result<Territory, ClientError> {
        self.get("getTerritory", &[&id.to_string()], "").await
    }

    /// Lets a territory finish its directives and claim no others.
    pub async fn drain(&self, id: TerritoryId) -> Result<Territory, ClientError> {
        self.send("drainTerritory", &[&id.to_string()], "", None::<&()>).await
    }

    /// Takes every right from a territory.
    pub async fn revoke(&self, id: TerritoryId) -> Result<Territory, ClientError> {
        self.send("revokeTerritory", &[&id.to_string()], "", None::<&()>).await
    }

    /// Creates a facility.
    pub async fn create_facility(&self, body: &CreateFacility) -> Result<CreatedFacility, ClientError> {
        self.send("createFacility", &[], "", Some(body)).await
    }

    /// Lists the facilities.
    pub async fn facilities(&self, page: &ListQuery) -> Result<FacilityList, ClientError> {
        self.get("listFacilities", &[], &page.text()).await
    }

    /// Reads one facility.
    pub async fn facility(&self, id: FacilityId) -> Result<Facility, ClientError> {
        self.get("getFacility", &[&id.to_string()], "").await
    }

    /// Creates a directive. With an idempotency key the call can be repeated.
    pub async fn create_directive(
        &self,
        facility: FacilityId,
        body: &CreateDirective,
        idempotency_key: Option<&str>,
    ) -> Result<CreatedDirective, ClientError> {
        let keyed = match idempotency_key {
            Some(key) => Self { http: self.http.with_header(IDEMPOTENCY_HEADER, key)? },
            None => self.clone(),
        };
        keyed.send("createDirective", &[&facility.to_string()], "", Some(body)).await
    }

    /// Lists the directives of a facility, or of all.
    pub async fn directives(
        &self,
        facility: Option<FacilityId>,
        page: &ListQuery,
    ) -> Result<DirectiveList, ClientError> {
        match facility {
            Some(id) => self.get("listFacilityDirectives", &[&id.to_string()], &page.text()).await,
            None => self.get("listDirectives", &[], &page.text()).await,
        }
    }

    /// Reads one directive.
    pub async fn directive(&self, id: DirectiveId) -> Result<Directive, ClientError> {
        self.get("getDirective", &[&id.to_string()], "").await
    }

    /// Asks for the end of a directive.
    pub async fn cancel(&self, id: DirectiveId, body: &CancelRequest) -> Result<DirectiveStateAnswer, ClientError> {
        self.send("cancelDirective", &[&id.to_string()], "", Some(body)).await
    }

    /// Lists the approvals that are not over, the soonest end first; with `all` every one, the latest first.
    pub async fn approvals(&self, all: bool, page: &ListQuery) -> Result<ApprovalList, ClientError> {
        let text = match (all, page.text()) {
            (false, text) => text,
            (true, text) if text.is_empty() => "?all=true".to_owned(),
            (true, text) => format!("{text}&all=true"),
        };
        self.get("listApprovals", &[], &text).await
    }

    /// Reads one approval.
    pub async fn approval(&self, id: ApprovalId) -> Result<Approval, ClientError> {
        self.get("getApproval", &[&id.to_string()], "").await
    }

    /// Lists the policy documents that count for the account.
    pub async fn policies(&self) -> Result<PolicyList, ClientError> {
        self.get("listPolicies", &[], "").await
    }

    /// Reads what the documents leave, and the answer to a question about it.
    pub async fn effective_policy(&self, question: Option<&str>) -> Result<EffectivePolicy, ClientError> {
        let text = question.map(|question| format!("?question={}", fill("/{q}", &[question]).trim_start_matches('/')));
        self.get("effectivePolicy", &[], &text.unwrap_or_default()).await
    }

    /// Replaces or removes the document of the account.
    pub async fn put_account_policy(&self, body: &PutPolicy) -> Result<PolicyList, ClientError> {
        self.send("putAccountPolicy", &[], "", Some(body)).await
    }

    /// Approves a directive.
    pub async fn approve(&self, id: DirectiveId, body: &ApproveRequest) -> Result<DirectiveStateAnswer, ClientError> {
        self.send("approveDirective", &[&id.to_string()], "", Some(body)).await
    }

    /// Refuses a directive, or takes an approval back that no territory has used.
    pub async fn reject(&self, id: DirectiveId, body: &RejectRequest) -> Result<DirectiveStateAnswer, ClientError> {
        self.send("rejectDirective", &[&id.to_string()], "", Some(body)).await
    }

    /// Reads output of a directive.
    pub async fn log_chunks(&self, id: DirectiveId, query: &LogQuery) -> Result<LogChunks, ClientError> {
        let text = [
            Some(format!("?stream={}&after_seq={}", query.stream.name(), query.after_seq)),
            query.limit.map(|limit| format!("limit={limit}")),
            query.attempt.map(|attempt| format!("attempt={attempt}")),
        ];
        let text = text.into_iter().flatten().collect::<Vec<_>>().join("&");
        self.get("getLogChunks", &[&id.to_string()], &text).await
    }

    /// Follows the events of a directive, from the event after `last`.
    pub async fn events(&self, id: DirectiveId, last: Option<EventId>) -> Result<EventStream, ClientError> {
        let mut headers = vec![("accept", "text/event-stream".to_owned())];
        if let Some(last) = last {
            headers.push(("last-event-id", last.to_string()));
        }
        let response = self.http.stream(&path("directiveEvents", &[&id.to_string()]), &headers).await?;
        Ok(EventStream::new(self.http.server(), response.into_body()))
    }

    /// Reads the typed events of a directive.
    pub async fn event_list(&self, id: DirectiveId) -> Result<EventList, ClientError> {
        self.get("directiveEvents", &[&id.to_string()], "?format=list").await
    }

    /// Reads the diff of a directive, as bytes.
    pub async fn diff(&self, id: DirectiveId) -> Result<Vec<u8>, ClientError> {
        let path = path("getDiff", &[&id.to_string()]);
        Ok(self.http.fetch(Method::Get, &path, None, Duration::ZERO).await?.body.to_vec())
    }

    /// Lists the kept files of a directive.
    pub async fn artifacts(&self, id: DirectiveId) -> Result<ArtifactList, ClientError> {
        self.get("getArtifacts", &[&id.to_string()], "").await
    }

    /// Reads a piece of a kept file, from `offset` on. An empty answer is its end.
    pub async fn artifact(&self, id: DirectiveId, artifact: &str, offset: u64) -> Result<Vec<u8>, ClientError> {
        let path = format!("{}?offset={offset}", path("getArtifact", &[&id.to_string(), artifact]));
        Ok(self.http.fetch(Method::Get, &path, None, Duration::ZERO).await?.body.to_vec())
    }

    /// Reads the receipt of a directive.
    pub async fn receipt(&self, id: DirectiveId) -> Result<serde_json::Value, ClientError> {
        self.get("getReceipt", &[&id.to_string()], "").await
    }

    /// Creates an API key.
    pub async fn create_api_key(&self, body: &CreateApiKey) -> Result<CreatedApiKey, ClientError> {
        self.send("createApiKey", &[], "", Some(body)).await
    }

    /// Lists the API keys without their secrets.
    pub async fn api_keys(&self) -> Result<ApiKeyList, ClientError> {
        self.get("listApiKeys", &[], "").await
    }

    /// Deletes an API key.
    pub async fn delete_api_key(&self, id: &str) -> Result<(), ClientError> {
        let path = path("deleteApiKey", &[id]);
        self.http.fetch(Method::Delete, &path, None, Duration::ZERO).await.map(drop)
    }

    /// Reads audit events, the latest first.
    pub async fn audit_events(&self, before: Option<u64>, limit: u32) -> Result<AuditEventList, ClientError> {
        let before = before.map(|seq| format!("&before={seq}")).unwrap_or_default();
        self.get("listAuditEvents", &[], &format!("?limit={limit}{before}")).await
    }

    /// Reads audit events after a number, one a line, in the form `jsonl` or `ocsf`. An empty answer is their end.
    pub async fn audit_lines(&self, after: u64, ocsf: bool) -> Result<Vec<u8>, ClientError> {
        let format = if ocsf { "ocsf" } else { "jsonl" };
        let path = format!("{}?format={format}&after={after}", path("listAuditEvents", &[]));
        Ok(self.http.fetch(Method::Get, &path, None, Duration::ZERO).await?.body.to_vec())
    }

    async fn get<T: DeserializeOwned>(&self, id: &str, values: &[&str], query: &str) -> Result<T, ClientError> {
        self.http.call(Method::Get, &format!("{}{query}", path(id, values)), None, Duration::ZERO).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        id: &str,
        values: &[&str],
        query: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| self.http.unreadable(error.to_string()))?,
            None => b"{}".to_vec(),
        };
        let method = find(id).map_or(Method::Post, |route| route.method);
        self.http.call(method, &format!("{}{query}", path(id, values)), Some(body), Duration::ZERO).await
    }
}

/// Returns the path of an operation. The ids stand in the table of routes; a test calls each.
fn path(id: &str, values: &[&str]) -> String {
    find(id).map(|route| fill(route.path, values)).unwrap_or_default()
}

impl ListQuery {
    fn text(&self) -> String {
        let mut parts = Vec::new();
        if let Some(cursor) = &self.cursor {
            parts.push(format!("cursor={}", fill("/{c}", &[cursor]).trim_start_matches('/')));
        }
        if let Some(limit) = self.limit {
            parts.push(format!("limit={limit}"));
        }
        if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
    }
}
