//! The list of facilities.

use super::parts;
use crate::console::shell::{Section, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Problem};
use crate::store::types::Page;
use axum::http::StatusCode;
use nexus_model::ids::FacilityId;

const LIMIT: u32 = 100;

/// Shows the list, the latest first.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    let (app, now) = (&visit.context.app, visit.now());
    let before = visit.context.parameter("before").map(|id| id.parse::<FacilityId>()).transpose();
    let before = before
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "invalid_query", "before must be the id of a facility."))?;
    let wanted = Page { before: before.map(|id| *id.as_bytes()), limit: LIMIT };
    let found = app.store.facilities(visit.account, wanted).await?;
    Ok(page(StatusCode::OK, visit.frame("Facilities", Section::Facilities), |html| {
        html.raw("<h1>Facilities</h1>");
        if found.is_empty() {
            parts::empty(html, "There are no facilities. This creates one:", Some("nexus facility create"));
            return;
        }
        html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards")]);
        html.leaf("caption", &[], &format!("{} facilities, the latest first", found.len()));
        html.raw("<thead><tr><th scope=\"col\">Facility</th><th scope=\"col\">Kind</th><th scope=\"col\">Name or repository</th>");
        html.raw("<th scope=\"col\">Territory</th><th scope=\"col\">Created</th></tr></thead><tbody>");
        for one in &found {
            let id = one.facility_id.to_string();
            html.open("tr", &[("data-row", "")]).raw("<td class=\"num\">");
            let link = [("class", "row-link mono"), ("href", &*format!("/directives?facility={id}")), ("title", &id)];
            html.leaf("a", &link, id.get(24..).unwrap_or(&id)).raw("</td>");
            html.leaf("td", &[("class", "num")], one.kind.name());
            let name = one.name.as_ref().or(one.repo_url.as_ref()).map_or("", String::as_str);
            html.leaf("td", &[("class", "cmd")], name).raw("<td class=\"num\">");
            if let Some(territory) = one.territory_id.map(|id| id.to_string()) {
                let link = [("class", "mono"), ("href", &*format!("/territories/{territory}"))];
                html.leaf("a", &link, territory.get(24..).unwrap_or(&territory));
            }
            html.raw("</td><td class=\"num\">");
            parts::time(html, one.created_at.0, now);
            html.raw("</td></tr>");
        }
        html.raw("</tbody></table></div>");
        if let Some(last) = found.last().filter(|_| found.len() == LIMIT as usize) {
            let link = format!("/facilities?before={}", last.facility_id);
            html.raw("<p>").leaf("a", &[("class", "button"), ("href", &link)], "Older").raw("</p>");
        }
        parts::same_command(html, "nexus facility ls");
    }))
}
