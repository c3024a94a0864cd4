//! The first page: what needs a person, what is wrong, what runs, what ended last.

use super::{approvals, parts};
use crate::console::shell::{Section, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Problem};
use crate::store::types::{DirectiveLine, Page};
use axum::http::StatusCode;
use nexus_api::mothership::TerritoryStatus;
use nexus_model::directive::State;

/// Directives that the page shows of each kind.
const SHOWN: usize = 20;

/// Shows the page.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    let (app, now) = (&visit.context.app, visit.now());
    let times = app.config.times;
    let territories = app.store.territories(visit.account, None, times, now).await?;
    let live = app.store.live_directives(visit.account, 200, times, now).await?;
    let latest = app.store.directive_lines(visit.account, None, Page { before: None, limit: 100 }).await?;
    let ended: Vec<_> = latest.into_iter().filter(|one| one.state.is_terminal()).take(SHOWN).collect();
    let waiting = approvals::waiting(visit).await?;
    // What waits for an approval stands above, and is in no queue.
    let in_queue = live.directives.iter().filter(|one| one.state != State::AwaitingApproval).map(DirectiveLine::from);
    let (queued, running): (Vec<_>, Vec<_>) = in_queue.partition(|one| one.started_at.is_none());
    Ok(page(StatusCode::OK, visit.frame("Home", Section::Home), |html| {
        html.raw("<h1>Home</h1>");
        if !waiting.is_empty() {
            html.leaf("h2", &[], &format!("Needs you {}", waiting.len()));
            let first = &waiting[..waiting.len().min(SHOWN)];
            approvals::table(html, "Requests that wait for an answer, the soonest end first", first, now);
        }
        let lost: Vec<_> = territories.iter().filter(|one| one.status == TerritoryStatus::Offline).collect();
        if !lost.is_empty() {
            html.leaf("h2", &[], &format!("Unhealthy {}", lost.len())).raw("<ul>");
            for one in lost {
                let id = one.territory_id.to_string();
                html.raw("<li>");
                let name = one.display_name.as_ref().or(one.name.as_ref()).unwrap_or(&id);
                html.leaf("a", &[("href", &format!("/territories/{id}"))], name).text(" is offline");
                match one.last_seen_at {
                    Some(seen) => html.text(&format!(", last heard {} ago", parts::span(now - seen.0))),
                    None => html.text(" and was never heard"),
                };
                html.raw("</li>");
            }
            html.raw("</ul>");
        }
        let more = |count: usize| if count > SHOWN { format!(", the first {SHOWN}") } else { String::new() };
        html.leaf("h2", &[], &format!("Running {}{}", live.running, more(running.len())));
        if running.is_empty() {
            parts::empty(html, "Nothing runs.", None);
        } else {
            parts::directives(html, "Directives that run", &running[..running.len().min(SHOWN)], now);
        }
        if live.queued > 0 {
            html.leaf("h2", &[], &format!("Queued {}{}", live.queued, more(queued.len())));
            parts::directives(html, "Directives that wait", &queued[..queued.len().min(SHOWN)], now);
        }
        html.raw("<h2>Ended last</h2>");
        if ended.is_empty() {
            let command = "nexus directive create --facility ID --follow -- echo hello";
            parts::empty(html, "No directive has ended yet. This creates one:", Some(command));
        } else {
            parts::directives(html, "Directives that are over", &ended, now);
        }
    }))
}
