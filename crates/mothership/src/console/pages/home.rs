//! The first page: what needs a person, what is wrong, what runs, what ended last.

use super::{approvals, parts};
use crate::console::html::Html;
use crate::console::shell::{Section, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Problem};
use crate::store::types::{DirectiveLine, Page};
use axum::http::StatusCode;
use nexus_api::mothership::{Territory, TerritoryStatus};
use nexus_model::directive::State;
use url::form_urlencoded;

/// Directives that the page shows of each kind.
const SHOWN: usize = 20;

/// Age of the failures that the page groups by their reason: one hour.
const RECENT_MS: i64 = 3_600_000;

/// Returns the reasons of directives that failed for another reason than their own command, with their number, the most frequent first.
fn failures(ended: &[DirectiveLine], now: i64) -> Vec<(String, usize)> {
    let mut all: Vec<(String, usize)> = Vec::new();
    let is_recent = |one: &&DirectiveLine| one.ended_at.is_some_and(|at| at > now - RECENT_MS);
    for one in ended.iter().filter(is_recent).filter(|one| one.state == State::Failed) {
        let Some(reason) = one.reason.clone().filter(|reason| reason != "exit") else { continue };
        match all.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => all.push((reason, 1)),
        }
    }
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all
}

fn unhealthy(html: &mut Html, lost: &[&Territory], failures: &[(String, usize)], now: i64) {
    if lost.is_empty() && failures.is_empty() {
        return;
    }
    html.leaf("h2", &[], &format!("Unhealthy {}", lost.len() + failures.len())).raw("<ul>");
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
    for (reason, count) in failures {
        let mut link = form_urlencoded::Serializer::new("/directives?".to_owned());
        // A reason of several words does not fit a filter.
        let word = if reason.contains(char::is_whitespace) { String::new() } else { format!(" reason:{reason}") };
        link.append_pair("q", &format!("state:failed since:1h{word}"));
        html.raw("<li>").leaf("a", &[("href", &link.finish())], &format!("{count} failed"));
        html.text(&format!(" in the last hour: {reason}")).raw("</li>");
    }
    html.raw("</ul>");
}

/// Shows the page.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    let (app, now) = (&visit.context.app, visit.now());
    let times = app.config.times;
    let territories = app.store.territories(visit.account, None, times, now).await?;
    let live = app.store.live_directives(visit.account, 200, times, now).await?;
    let latest = app.store.directive_lines(visit.account, None, Page { before: None, limit: 100 }).await?;
    let failures = failures(&latest, now);
    let mut bar = Html::default();
    let waiting = approvals::waiting(visit).await?;
    parts::news(&mut bar, &latest, &waiting);
    let ended: Vec<_> = latest.into_iter().filter(|one| one.state.is_terminal()).take(SHOWN).collect();
    // What waits for an approval stands above, and is in no queue.
    let in_queue = live.directives.iter().filter(|one| one.state != State::AwaitingApproval).map(DirectiveLine::from);
    let (queued, running): (Vec<_>, Vec<_>) = in_queue.partition(|one| one.started_at.is_none());
    Ok(page(StatusCode::OK, visit.frame("Home", Section::Home), |html| {
        html.raw("<h1>Home</h1>").add(&bar);
        if waiting.is_empty() {
            html.raw("<p id=\"nothing\">Nothing waits for you.</p>");
        } else {
            html.leaf("h2", &[], &format!("Needs you {}", waiting.len()));
            let first = &waiting[..waiting.len().min(SHOWN)];
            approvals::table(html, "Requests that wait for an answer, the soonest end first", first, now);
        }
        let lost: Vec<_> = territories.iter().filter(|one| one.status == TerritoryStatus::Offline).collect();
        unhealthy(html, &lost, &failures, now);
        let more = |count: usize| if count > SHOWN { format!(", the first {SHOWN}") } else { String::new() };
        html.leaf("h2", &[], &format!("Running {}{}", live.running, more(running.len())));
        if running.is_empty() {
            parts::empty(html, "Nothing runs.", None);
        } else {
            parts::directives(html, "Directives that run", &running[..running.len().min(SHOWN)], now);
        }
        if live.queued > 0 {
            let oldest = queued.iter().map(|one| now - one.created_at).max().unwrap_or_default();
            let more = |count| format!(", the oldest for {}{}", parts::span(oldest), more(count));
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
        parts::same_command(html, "nexus approvals ls --fleet");
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::ids::DirectiveId;

    #[test]
    fn failures_of_one_reason_are_listed_together_and_those_of_commands_are_not() {
        let line = |state, reason: Option<&str>, ended_at| DirectiveLine {
            id: DirectiveId::new(),
            state,
            reason: reason.map(str::to_owned),
            exit_code: None,
            command: String::new(),
            created_at: 0,
            started_at: None,
            ended_at: Some(ended_at),
        };
        let now = 2 * RECENT_MS;
        let all = [
            line(State::Failed, Some("exit"), now),
            line(State::Failed, None, now),
            line(State::Failed, Some("disk"), now),
            line(State::Failed, Some("image_pull"), now),
            line(State::Failed, Some("image_pull"), now - RECENT_MS + 1),
            line(State::Failed, Some("image_pull"), now - RECENT_MS),
            line(State::Rejected, Some("policy"), now),
        ];
        assert_eq!(failures(&all, now), [("image_pull".to_owned(), 2), ("disk".to_owned(), 1)]);
    }
}
