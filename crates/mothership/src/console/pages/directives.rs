//! The list of directives.

use super::{approvals, parts};
use crate::console::filter::{self, Filter};
use crate::console::shell::{Section, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Problem};
use crate::store::types::{DirectiveLine, Page};
use axum::http::StatusCode;
use nexus_model::ids::DirectiveId;
use url::form_urlencoded;

const DEFAULT_LIMIT: i64 = 100;
const MAX_LIMIT: i64 = 10_000;

/// Directives that a filter looks at.
const MAX_LOOKED_AT: usize = 20_000;
const STEP: u32 = 1_000;

/// The part of a list that a page shows.
struct Part {
    lines: Vec<DirectiveLine>,
    /// Last directive that was looked at, where there may be older ones.
    last: Option<DirectiveId>,
}

async fn find(visit: &Visit, filter: &Filter, before: Option<DirectiveId>, limit: u32) -> Result<Part, Problem> {
    let (store, now) = (&visit.context.app.store, visit.now());
    let step = if filter.looks_at_rows() { STEP } else { limit };
    let (mut lines, mut last, mut looked_at) = (Vec::new(), before, 0);
    loop {
        let wanted = Page { before: last.map(|id| *id.as_bytes()), limit: step };
        let found = store.directive_lines(visit.account, filter.facility, wanted).await?;
        looked_at += found.len();
        let is_whole = found.len() < step as usize;
        for one in found {
            if filter.is_too_old(&one, now) {
                return Ok(Part { lines, last: None });
            }
            last = Some(one.id);
            if filter.takes(&one) {
                lines.push(one);
                if lines.len() == limit as usize {
                    return Ok(Part { lines, last });
                }
            }
        }
        if is_whole {
            return Ok(Part { lines, last: None });
        }
        if looked_at >= MAX_LOOKED_AT {
            return Ok(Part { lines, last });
        }
    }
}

/// Shows the list, the latest first. `before` is the id of the last directive of the page before, `q` the words of a filter.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    let (now, context) = (visit.now(), &visit.context);
    let limit = context.number("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)? as u32;
    let given = |name: &'static str| context.parameter(name).filter(|text| !text.trim().is_empty());
    let invalid = |error: &str| Problem::new(StatusCode::BAD_REQUEST, "invalid_query", error);
    let before = given("before").map(|id| id.parse::<DirectiveId>());
    let before = before.transpose().map_err(|_| invalid("before must be the id of a directive."))?;
    // Links to the directives of a facility name it alone.
    let of_facility = given("facility").map(|id| format!("facility:{}", id.trim()));
    let words: Vec<String> = of_facility.into_iter().chain(given("q")).collect();
    let text = words.join(" ").trim().to_owned();
    let filter = Filter::read(&text).map_err(|why| invalid(&why))?;
    let part = find(visit, &filter, before, limit).await?;
    let asked = approvals::waiting(visit).await?;
    Ok(page(StatusCode::OK, visit.frame("Directives", Section::Directives), |html| {
        html.raw("<h1>Directives</h1>");
        html.raw("<form method=\"get\" action=\"/directives\" class=\"row\"><label for=\"filter\">Filter</label>");
        let most = filter::MAX_LENGTH.to_string();
        let input = [("id", "filter"), ("name", "q"), ("type", "text"), ("value", &*text), ("maxlength", &most)];
        html.open("input", &input).raw("<button>Filter</button>");
        html.raw("<span class=\"muted\">state:failed -reason:exit since:24h facility:ID, or words of the command</span></form>");
        if before.is_none() && text.is_empty() {
            parts::news(html, &part.lines, &asked);
        }
        if part.lines.is_empty() && text.is_empty() {
            let command = "nexus directive create --facility ID --follow -- echo hello";
            parts::empty(html, "There are no directives. This creates one:", Some(command));
            return;
        }
        if part.lines.is_empty() {
            html.element("p", &[("class", "empty")], |html| {
                let more = if part.last.is_some() { " among those that were looked at" } else { "" };
                html.text(&format!("No directive is as the filter says{more}: {text} "));
                html.raw("<a href=\"/directives\">Clear the filter</a>");
            });
        } else {
            let caption = format!("{} directives, the latest first", part.lines.len());
            parts::directives(html, &caption, &part.lines, now);
        }
        if let Some(last) = part.last.map(|id| id.to_string()) {
            let mut link = form_urlencoded::Serializer::new("/directives?".to_owned());
            link.append_pair("before", &last).append_pair("limit", &limit.to_string());
            if !text.is_empty() {
                link.append_pair("q", &text);
            }
            html.raw("<p>").leaf("a", &[("class", "button"), ("href", &link.finish())], "Older").raw("</p>");
        }
        parts::same_command(html, "nexus directive ls");
    }))
}
