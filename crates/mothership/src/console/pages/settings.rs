//! Colours, keys and sessions.

use super::parts;
use crate::console::html::Html;
use crate::console::shell::{Section, Theme, lead_to, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Problem};
use axum::http::{HeaderValue, StatusCode, header};
use uuid::Uuid;

pub const THEME_COOKIE: &str = "nexus_theme";

/// Shows the page.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    let (app, now) = (&visit.context.app, visit.now());
    let keys = if visit.may("listApiKeys") { Some(app.store.api_keys(visit.account).await?) } else { None };
    let sessions = app.store.sessions(visit.account, now).await?;
    let is_owner = keys.is_some();
    let (mut theme, mut leave) = (Html::default(), Html::default());
    visit.form(&mut theme, "/settings/theme", "row")?;
    visit.form(&mut leave, "/logout", "row")?;
    let mut ends = Vec::new();
    for session in &sessions {
        let mut form = Html::default();
        visit.form(&mut form, &format!("/settings/sessions/{}/revoke", session.id), "")?;
        ends.push(form);
    }
    Ok(page(StatusCode::OK, visit.frame("Settings", Section::Settings), |html| {
        html.raw("<h1>Settings</h1><h2>Colours</h2>").add(&theme);
        for (one, name, word) in Theme::ALL {
            html.raw("<label>");
            let mut input = vec![("type", "radio"), ("name", "theme"), ("value", name)];
            if one == visit.theme {
                input.push(("checked", ""));
            }
            html.open("input", &input).text(word).raw("</label>");
        }
        html.raw("<button>Use</button></form>");
        html.raw(
            "<h2>Sessions</h2><div class=\"scroll\"><table><caption>Sessions of this account at the console</caption>",
        );
        html.raw("<thead><tr><th scope=\"col\">Key</th><th scope=\"col\">Role</th><th scope=\"col\">Started</th><th scope=\"col\">Used</th><th scope=\"col\"><span class=\"muted\">End</span></th></tr></thead><tbody>");
        for (session, form) in sessions.iter().zip(&ends) {
            html.raw("<tr>").leaf("td", &[("class", "cmd")], session.key_name.as_deref().unwrap_or("without a name"));
            html.leaf("td", &[("class", "num")], session.role.name()).raw("<td class=\"num\">");
            parts::time(html, session.created_at, now);
            html.raw("</td><td class=\"num\">");
            parts::time(html, session.seen_at, now);
            html.raw("</td><td class=\"num\">");
            if session.hash == visit.session {
                html.text("this one");
            } else if is_owner {
                html.add(form).raw("<button class=\"danger\">End</button></form>");
            }
            html.raw("</td></tr>");
        }
        html.raw("</tbody></table></div>").add(&leave).raw("<button>Sign out</button></form>");
        if let Some(keys) = &keys {
            html.raw("<h2>API keys</h2><div class=\"scroll\"><table><caption>Keys of this account</caption>");
            html.raw("<thead><tr><th scope=\"col\">Name</th><th scope=\"col\">Role</th><th scope=\"col\">Created</th><th scope=\"col\">Id</th></tr></thead><tbody>");
            for key in keys {
                html.raw("<tr>").leaf("td", &[("class", "cmd")], key.name.as_deref().unwrap_or("without a name"));
                html.leaf("td", &[("class", "num")], key.role.name()).raw("<td class=\"num\">");
                parts::time(html, key.created_at.0, now);
                html.raw("</td>").leaf("td", &[("class", "cmd")], &key.api_key_id).raw("</tr>");
            }
            html.raw("</tbody></table></div>");
        }
    }))
}

/// Sets the colours of this browser.
pub fn theme(visit: &Visit) -> Answer {
    let theme = Theme::read(visit.field("theme"));
    let mut answer = lead_to("/settings");
    let cookie = format!("{THEME_COOKIE}={}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax", theme.name());
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().append(header::SET_COOKIE, value);
    }
    answer
}

/// Ends a session of the account.
pub async fn revoke(visit: &Visit) -> Result<Answer, Problem> {
    // Who may delete a key may end what it signed in.
    visit.demand("deleteApiKey")?;
    let id: Uuid = visit.context.id("session_id")?;
    visit.context.app.store.revoke_session(visit.account, *id.as_bytes(), visit.now()).await?;
    Ok(lead_to("/settings"))
}
