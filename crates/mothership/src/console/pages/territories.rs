//! Territories: the list, and one.

use super::parts;
use crate::console::html::Html;
use crate::console::shell::{Section, lead_to, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Problem};
use axum::http::StatusCode;
use nexus_api::mothership::{Territory, TerritoryStatus};
use nexus_model::ids::TerritoryId;

fn status(html: &mut Html, status: TerritoryStatus) {
    let (class, sign, word) = match status {
        TerritoryStatus::Online => ("state s-ok", "+", "Online"),
        TerritoryStatus::Draining => ("state s-wait", "~", "Draining"),
        TerritoryStatus::Offline => ("state s-bad", "×", "Offline"),
        TerritoryStatus::Decommissioned => ("state s-off", "−", "Revoked"),
    };
    html.element("span", &[("class", class)], |html| {
        html.raw("<span aria-hidden=\"true\">(").text(sign).raw(")</span> ").text(word);
    });
}

fn name(one: &Territory) -> String {
    one.display_name.clone().or_else(|| one.name.clone()).unwrap_or_else(|| one.territory_id.to_string())
}

/// Shows the list, the unhealthy first.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    let (app, now) = (&visit.context.app, visit.now());
    let mut found = app.store.territories(visit.account, None, app.config.times, now).await?;
    found.sort_by_key(|one| match one.status {
        TerritoryStatus::Offline => 0,
        TerritoryStatus::Draining => 1,
        TerritoryStatus::Online => 2,
        TerritoryStatus::Decommissioned => 3,
    });
    Ok(page(StatusCode::OK, visit.frame("Territories", Section::Territories), |html| {
        html.raw("<h1>Territories</h1>");
        if found.is_empty() {
            parts::empty(
                html,
                "There are no territories. On the new machine, with the token of the first command:",
                None,
            );
            parts::same_command(html, "nexus territory token");
            parts::same_command(html, "nexus territory join URL --data-dir DIR");
            return;
        }
        html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards")]);
        html.leaf("caption", &[], &format!("{} territories, the unhealthy first", found.len()));
        html.raw(
            "<thead><tr><th scope=\"col\">Status</th><th scope=\"col\">Name</th><th scope=\"col\">Directives</th>",
        );
        html.raw("<th scope=\"col\">Last heard</th><th scope=\"col\">Version</th></tr></thead><tbody>");
        for one in &found {
            html.open("tr", &[("data-row", "")]).raw("<td class=\"num\">");
            status(html, one.status);
            html.raw("</td><td class=\"cmd\">");
            let link = format!("/territories/{}", one.territory_id);
            html.leaf("a", &[("class", "row-link"), ("href", &link)], &name(one)).raw("</td>");
            let room = one.capacity.max_concurrent.map(|max| format!(" of {max}")).unwrap_or_default();
            html.leaf("td", &[("class", "num")], &format!("{}{room}", one.load)).raw("<td class=\"num\">");
            match one.last_seen_at {
                Some(seen) => parts::time(html, seen.0, now),
                None => drop(html.text("never")),
            }
            html.raw("</td>").leaf("td", &[("class", "num wide")], one.nexus_version.as_deref().unwrap_or(""));
            html.raw("</tr>");
        }
        html.raw("</tbody></table></div>");
        parts::same_command(html, "nexus territory ls");
    }))
}

async fn load(visit: &Visit) -> Result<Territory, Problem> {
    let id: TerritoryId = visit.context.id("territory_id")?;
    let app = &visit.context.app;
    let mut found = app.store.territories(visit.account, Some(id), app.config.times, visit.now()).await?;
    found.pop().ok_or_else(Problem::not_found)
}

/// Shows one territory.
pub async fn one(visit: &Visit) -> Result<Answer, Problem> {
    let (one, now) = (load(visit).await?, visit.now());
    let can_drain = visit.may("drainTerritory") && one.status == TerritoryStatus::Online;
    let mut form = Html::default();
    if can_drain {
        visit.form(&mut form, &format!("/territories/{}/drain", one.territory_id), "")?;
    }
    Ok(page(StatusCode::OK, visit.frame("Territory", Section::Territories), |html| {
        html.open("div", &[("class", "head")]).leaf("h1", &[], &name(&one));
        status(html, one.status);
        if can_drain {
            html.raw("<details class=\"confirm end\"><summary>Drain</summary>").add(&form);
            html.raw("<p>The territory finishes what it runs and takes nothing else.</p>");
            html.raw("<button class=\"danger\">Drain this territory</button></form></details>");
        }
        html.raw("</div><dl>");
        let mut fact = |term: &'static str, value: String| {
            if !value.is_empty() {
                html.leaf("dt", &[], term).leaf("dd", &[], &value);
            }
        };
        fact("Id", one.territory_id.to_string());
        let last_seen = one.last_seen_at.map(|seen| format!("{} ago", parts::span(now - seen.0)));
        fact("Last heard", last_seen.unwrap_or_else(|| "never".to_owned()));
        let room = one.capacity.max_concurrent.map(|max| format!(" of {max}")).unwrap_or_default();
        fact("Directives", format!("{}{room}", one.load));
        fact("Version", one.nexus_version.clone().unwrap_or_default());
        fact("Guarantees", one.guarantees.join(", "));
        let labels: Vec<String> = one.labels.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        fact("Labels", labels.join(", "));
        fact("Platform", one.platform.as_ref().map(ToString::to_string).unwrap_or_default());
        fact("Joined", one.created_at.to_string());
        html.raw("</dl>");
        parts::same_command(html, &format!("nexus territory show {}", one.territory_id));
    }))
}

/// Lets a territory take no directives any more.
pub async fn drain(visit: &Visit) -> Result<Answer, Problem> {
    visit.demand("drainTerritory")?;
    let id: TerritoryId = visit.context.id("territory_id")?;
    visit.context.app.store.drain(visit.account, id, visit.now()).await?;
    Ok(lead_to(&format!("/territories/{id}")))
}
