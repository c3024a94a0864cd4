//! Directives and requests that are newer than a list on the screen. The page counts them, and the reader decides when it shows them.

use crate::console::html::Html;
use crate::console::shell::fragment;
use crate::console::visit::Visit;
use crate::http::{Answer, Problem};
use crate::store::types::Page;
use axum::http::StatusCode;
use nexus_model::ids::{ApprovalId, DirectiveId};

use super::approvals;

/// New directives that are counted.
const MAX_COUNTED: u32 = 100;

/// Counts what is newer than what a page has.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    let parameter = |name| visit.context.parameter(name);
    // Ids of both kinds grow with time.
    let directive = parameter("directive").and_then(|id| id.parse::<DirectiveId>().ok()).map(|id| id.to_string());
    let approval = parameter("approval").and_then(|id| id.parse::<ApprovalId>().ok()).map(|id| id.to_string());
    let is_newer = |id: String, known: Option<&String>| known.is_none_or(|known| id > *known);
    let latest = Page { before: None, limit: MAX_COUNTED };
    let lines = visit.context.app.store.directive_lines(visit.account, None, latest).await?;
    let directives = lines.iter().filter(|one| is_newer(one.id.to_string(), directive.as_ref())).count();
    let waiting = approvals::waiting(visit).await?;
    let asked = waiting.iter().filter(|one| is_newer(one.approval_id.to_string(), approval.as_ref())).count();
    let count = directives + asked;
    let mut html = Html::default();
    let asks = if waiting.is_empty() { String::new() } else { waiting.len().to_string() };
    html.open("p", &[("data-count", &count.to_string()), ("data-asks", &asks)]);
    let more = if directives == MAX_COUNTED as usize { " or more" } else { "" };
    let both = match (directives, asked) {
        (0, asked) => format!("{asked} new requests"),
        (directives, 0) => format!("{directives}{more} new directives"),
        (directives, asked) => format!("{directives}{more} new directives, {asked} new requests"),
    };
    html.text(&format!("{both}: show")).close("p");
    Ok(fragment(StatusCode::OK, html))
}
