//! Signing in with an API key, and signing out.

use crate::console::session::{is_secure, set_cookie};
use crate::console::shell::{Frame, Section, Theme, lead_to, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Context, Problem};
use crate::identity::{Secret, sha256};
use axum::http::{HeaderValue, StatusCode, header};
use nexus_api::mothership::Role;
use url::form_urlencoded;

/// Longest key that is looked up.
const MAX_KEY: usize = 200;

/// Returns the answer to a browser without a session: it comes back to its page afterwards.
pub fn ask(path: &str, query: &str) -> Answer {
    if path == "/" {
        return lead_to("/login");
    }
    let whole = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let next: String = form_urlencoded::byte_serialize(whole.as_bytes()).collect();
    lead_to(&format!("/login?next={next}"))
}

/// A page of this server, as a path. Anything else leads home.
fn own_path(next: Option<&str>) -> &str {
    let is_path = |next: &&str| {
        let mut bytes = next.bytes();
        bytes.next() == Some(b'/') && !matches!(bytes.next(), Some(b'/' | b'\\'))
    };
    let plain = |next: &&str| next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    next.filter(is_path).filter(plain).unwrap_or("/")
}

/// Shows the form.
pub fn show(status: StatusCode, theme: Theme, error: Option<&str>, next: Option<&str>) -> Answer {
    let frame = Frame { title: "Sign in", section: Section::None, theme, warning: None, waiting: None };
    page(status, frame, |html| {
        html.raw("<div class=\"card\"><h1>Nexus</h1>");
        if let Some(error) = error {
            html.leaf("p", &[("class", "error"), ("role", "alert"), ("id", "why")], error);
        }
        html.raw("<form method=\"post\" action=\"/login\">");
        html.open("input", &[("type", "hidden"), ("name", "next"), ("value", own_path(next))]);
        html.raw("<p><label for=\"key\">API key</label></p>");
        html.raw("<p><input id=\"key\" name=\"key\" type=\"password\" autocomplete=\"current-password\" required autofocus></p>");
        html.raw("<p><button class=\"primary\">Sign in</button></p></form>");
        html.raw("<p class=\"muted\">The key of an owner, an operator or a viewer. The first start of the server printed one.</p>");
        html.raw("</div>");
    })
}

/// Begins a session for the holder of a key.
pub async fn enter(context: &Context, form: &[(String, String)], theme: Theme) -> Result<Answer, Problem> {
    let app = &context.app;
    let field = |name: &str| form.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let key = field("key").map(str::trim).filter(|key| key.len() <= MAX_KEY).unwrap_or_default();
    let next = field("next");
    let Some(account) = app.store.key_by_hash(sha256(key.as_bytes())).await? else {
        return Ok(show(StatusCode::UNAUTHORIZED, theme, Some("The key is not known."), next));
    };
    if account.role == Role::Agent {
        let why = "A key of an agent cannot sign in: what an agent may do, it does by the API.";
        return Ok(show(StatusCode::FORBIDDEN, theme, Some(why), next));
    }
    let secret = Secret::make("nxs_")?;
    app.store.create_session(account, secret.hash, app.now()).await?;
    let mut answer = lead_to(own_path(next));
    put_cookie(&mut answer, &set_cookie(is_secure(app, &context.peer), &secret.text));
    Ok(answer)
}

/// Ends the session of the request.
pub async fn leave(visit: &Visit) -> Result<Answer, Problem> {
    let app = &visit.context.app;
    app.store.end_session(visit.account, visit.session, app.now()).await?;
    let mut answer = lead_to("/login");
    put_cookie(&mut answer, &set_cookie(is_secure(app, &visit.context.peer), ""));
    Ok(answer)
}

fn put_cookie(answer: &mut Answer, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        answer.headers_mut().append(header::SET_COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_no_other_server() {
        for next in ["/", "/directives?limit=5", "/directives/x?view=log"] {
            assert_eq!(own_path(Some(next)), next);
        }
        for next in
            ["", "x", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nb", "/a b", "/\t/evil"]
        {
            assert_eq!(own_path(Some(next)), "/", "{next:?}");
        }
    }
}
