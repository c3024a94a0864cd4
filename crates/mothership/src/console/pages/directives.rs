//! The list of directives.

use super::parts;
use crate::console::shell::{Section, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Problem};
use crate::store::types::Page;
use axum::http::StatusCode;
use nexus_model::ids::{DirectiveId, FacilityId};
use url::form_urlencoded;

const DEFAULT_LIMIT: i64 = 100;
const MAX_LIMIT: i64 = 10_000;

/// Shows the list, the latest first. `before` is the id of the last directive of the page before.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    let (app, now, context) = (&visit.context.app, visit.now(), &visit.context);
    let limit = context.number("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)? as u32;
    let given = |name: &'static str| context.parameter(name).filter(|text| !text.trim().is_empty());
    let invalid = |error: &'static str| Problem::new(StatusCode::BAD_REQUEST, "invalid_query", error);
    let before = given("before").map(|id| id.parse::<DirectiveId>());
    let before = before.transpose().map_err(|_| invalid("before must be the id of a directive."))?;
    let facility = given("facility").map(|id| id.trim().parse::<FacilityId>());
    let facility = facility.transpose().map_err(|_| invalid("facility must be the id of a facility."))?;
    let wanted = Page { before: before.map(|id| *id.as_bytes()), limit };
    let found = app.store.directive_lines(visit.account, facility, wanted).await?;
    let next = found.last().filter(|_| found.len() == limit as usize).map(|last| last.id.to_string());
    Ok(page(StatusCode::OK, visit.frame("Directives", Section::Directives), |html| {
        html.raw("<h1>Directives</h1>");
        html.raw("<form method=\"get\" action=\"/directives\" class=\"row\"><label for=\"filter\">Facility</label>");
        let text = facility.map(|id| id.to_string()).unwrap_or_default();
        let filter = [("id", "filter"), ("name", "facility"), ("type", "text"), ("value", &text), ("maxlength", "36")];
        html.open("input", &filter).raw("<button>Filter</button></form>");
        if found.is_empty() {
            match facility {
                Some(id) => {
                    html.element("p", &[("class", "empty")], |html| {
                        html.text(&format!("The facility {id} has no directives here. "));
                        html.raw("<a href=\"/directives\">Show those of all facilities</a>");
                    });
                }
                None => parts::empty(
                    html,
                    "There are no directives. This creates one:",
                    Some("nexus directive create --facility ID --follow -- echo hello"),
                ),
            }
            return;
        }
        let caption = format!("{} directives, the latest first", found.len());
        parts::directives(html, &caption, &found, now);
        if let Some(next) = next {
            let mut link = form_urlencoded::Serializer::new("/directives?".to_owned());
            link.append_pair("before", &next).append_pair("limit", &limit.to_string());
            if let Some(facility) = facility {
                link.append_pair("facility", &facility.to_string());
            }
            html.raw("<p>").leaf("a", &[("class", "button"), ("href", &link.finish())], "Older").raw("</p>");
        }
        parts::same_command(html, "nexus directive ls");
    }))
}
