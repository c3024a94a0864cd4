//! The audit chain.

use super::parts;
use crate::console::shell::{Section, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Problem};
use axum::http::StatusCode;

const LIMIT: u32 = 100;

/// Shows events, the latest first, and on request checks the whole chain.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    visit.demand("listAuditEvents")?;
    let (app, now) = (&visit.context.app, visit.now());
    let before = match visit.context.number("before", i64::MAX, 0, i64::MAX)? {
        i64::MAX => None,
        seq => Some(seq as u64),
    };
    let found = app.store.audit_page(visit.account, None, before, LIMIT).await?;
    let checked = match visit.context.parameter("verify") {
        Some(_) => Some(app.store.verify_audit(visit.account).await?),
        None => None,
    };
    Ok(page(StatusCode::OK, visit.frame("Audit", Section::Audit), |html| {
        html.raw("<h1>Audit</h1>");
        html.element("p", &[("class", "row")], |html| {
            html.text(&format!("Events {} to {}. ", found.first_seq, found.head.seq));
            html.raw("<a class=\"button\" href=\"/audit?verify=1\">Verify the chain</a>");
        });
        if let Some((count, faults)) = &checked {
            html.open("div", &[("role", "status")]);
            if faults.is_empty() {
                html.leaf("p", &[("class", "state s-ok")], &format!("The chain of {count} events is whole."));
            } else {
                html.leaf("p", &[("class", "state s-bad")], "The chain was changed:").raw("<ul>");
                for fault in faults {
                    html.leaf("li", &[], &fault.to_string());
                }
                html.raw("</ul>");
            }
            html.raw("</div>");
        }
        if found.events.is_empty() {
            parts::empty(html, "There are no events here.", None);
            return;
        }
        html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards")]);
        html.leaf("caption", &[], "Events, the latest first");
        html.raw("<thead><tr><th scope=\"col\">No.</th><th scope=\"col\">When</th><th scope=\"col\">Who</th>");
        html.raw(
            "<th scope=\"col\">Act</th><th scope=\"col\">Object</th><th scope=\"col\">Detail</th></tr></thead><tbody>",
        );
        for event in &found.events {
            html.raw("<tr>").leaf("td", &[("class", "num")], &event.seq.to_string()).raw("<td class=\"num\">");
            parts::time(html, event.at.0, now);
            html.raw("</td>");
            let id = event.actor.id.as_deref().map(|id| id.get(24..).unwrap_or(id)).unwrap_or_default();
            let role = event.actor.role.map_or("", |role| role.name());
            let who = format!("{} {role} {id}", event.actor.kind.replace('_', " "));
            html.leaf("td", &[("class", "num"), ("title", event.actor.id.as_deref().unwrap_or(""))], who.trim());
            html.leaf("td", &[("class", "num")], &event.action).raw("<td class=\"num\">");
            match event.object.split_once('/') {
                Some(("directive", id)) => {
                    let link = [("class", "mono"), ("href", &*format!("/directives/{id}"))];
                    html.text("directive ").leaf("a", &link, id.get(24..).unwrap_or(id));
                }
                _ => drop(html.text(&event.object)),
            }
            html.raw("</td>").leaf("td", &[("class", "cmd")], &event.detail.to_string()).raw("</tr>");
        }
        html.raw("</tbody></table></div>");
        if let Some(last) = found.events.last().filter(|last| last.seq > found.first_seq) {
            let link = format!("/audit?before={}", last.seq);
            html.raw("<p>").leaf("a", &[("class", "button"), ("href", &link)], "Older").raw("</p>");
        }
        parts::same_command(html, "nexus audit export | nexus audit verify");
    }))
}
