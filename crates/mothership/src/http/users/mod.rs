//! Handlers of Mothership v1.

pub mod approvals;
mod audit;
mod directives;
mod facilities;
mod keys;
mod output;
mod policies;
mod server;
mod territories;

use super::answer::{Answer, Problem};
use super::events;
use super::request::Context;

/// Runs the handler of an operation.
pub async fn handle(id: &str, context: Context) -> Result<Answer, Problem> {
    match id {
        "healthz" => Ok(server::healthz()),
        "readyz" => server::readyz(&context).await,
        "metrics" => Ok(server::metrics(&context)),
        "openapi" => server::openapi(&context),
        "listAuditEvents" => audit::list(&context).await,
        "createEnrollmentToken" => keys::create_enrollment_token(&context).await,
        "createApiKey" => keys::create_api_key(&context).await,
        "listApiKeys" => keys::list_api_keys(&context).await,
        "deleteApiKey" => keys::delete_api_key(&context).await,
        "listTerritories" => territories::list(&context).await,
        "getTerritory" => territories::get(&context).await,
        "drainTerritory" => territories::drain(&context).await,
        "revokeTerritory" => territories::revoke(&context).await,
        "createFacility" => facilities::create(&context).await,
        "listFacilities" => facilities::list(&context).await,
        "getFacility" => facilities::get(&context).await,
        "createDirective" => directives::create(&context).await,
        "listFacilityDirectives" => directives::list_of_facility(&context).await,
        "listDirectives" => directives::list(&context).await,
        "getDirective" => directives::get(&context).await,
        "listApprovals" => approvals::list(&context).await,
        "getApproval" => approvals::get(&context).await,
        "approveDirective" => approvals::approve(&context).await,
        "rejectDirective" => approvals::reject(&context).await,
        "listPolicies" => policies::list(&context).await,
        "effectivePolicy" => policies::effective(&context).await,
        "putAccountPolicy" => policies::put(&context).await,
        "cancelDirective" => directives::cancel(&context).await,
        "getLogChunks" => output::log_chunks(&context).await,
        "getFacilityLogChunks" => output::facility_log_chunks(&context).await,
        "getDiff" => output::diff(&context).await,
        "getArtifacts" => output::artifacts(&context).await,
        "getArtifact" => output::artifact(&context).await,
        "getReceipt" => output::receipt(&context).await,
        "directiveEvents" if context.parameter("format").is_some() => output::events(&context).await,
        "directiveEvents" => events::stream(context).await,
        _ => Err(Problem::not_found()),
    }
}
