//! The pages of the console, and the table of their names.

mod approvals;
mod audit;
mod changes;
mod directive;
mod directives;
mod facilities;
mod home;
pub mod login;
mod news;
mod parts;
mod policies;
mod receipt;
pub mod settings;
mod territories;

use super::visit::Visit;
use crate::http::{Answer, Problem, event_stream};

/// Returns how many requests wait for an answer, where the key may see them.
pub async fn count_waiting(visit: &Visit) -> Result<Option<usize>, Problem> {
    if !visit.may("listApprovals") {
        return Ok(None);
    }
    Ok(Some(approvals::waiting(visit).await?.len()))
}

/// Answers a request.
pub async fn handle(id: &str, visit: Visit) -> Result<Answer, Problem> {
    match id {
        "home" => home::show(&visit).await,
        "directives" => directives::show(&visit).await,
        "directive" => directive::show(&visit).await,
        "head" => directive::head(&visit).await,
        "log" => directive::log(&visit).await,
        "raw" => directive::raw(&visit).await,
        "events" => event_stream(visit.context).await,
        "cancel" => directive::cancel(&visit).await,
        "approvals" => approvals::show(&visit).await,
        "approval" => approvals::one(&visit).await,
        "approve" => approvals::approve(&visit).await,
        "deny" => approvals::deny(&visit).await,
        "territories" => territories::show(&visit).await,
        "territory" => territories::one(&visit).await,
        "drain" => territories::drain(&visit).await,
        "facilities" => facilities::show(&visit).await,
        "policies" => policies::show(&visit).await,
        "explain" => policies::explain(&visit).await,
        "replay" => policies::replay(&visit).await,
        "news" => news::show(&visit).await,
        "audit" => audit::show(&visit).await,
        "settings" => settings::show(&visit).await,
        "theme" => Ok(settings::theme(&visit)),
        "revoke" => settings::revoke(&visit).await,
        "leave" => login::leave(&visit).await,
        _ => Err(Problem::not_found()),
    }
}
