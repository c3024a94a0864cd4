//! The console: pages for people, made on the server.
//!
//! ```text
//!  browser ─▶ host, origin ─▶ session (cookie) ─▶ form token ─▶ page (pages/) ─▶ html: values are text ─▶ guard: headers
//!                                                               └▶ the store, by the account of the session
//! ```
//! * `html` – markup by construction; `ansi`, `log` and `search` – output of sandboxes as rows of text.
//! * `filter` – words that choose directives of a list.
//! * `shell` – the frame of a page, its policy; `assets` – style, script, icon.
//! * `session` – cookies and tokens of forms; `visit` – a request that was checked.
//!
//! Rights are those of the operation of the API that an action stands for. Everything works without the script.

mod ansi;
mod assets;
mod filter;
mod html;
mod log;
mod pages;
mod search;
mod session;
mod shell;
mod visit;

use crate::app::Shared;
use crate::http::{Answer, Context, Peer, Principal, Problem, check_host, check_one_host};
use crate::slots::Slot;
use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{MethodFilter, MethodRouter, on};
use http_body_util::{BodyExt, Limited};
use shell::Theme;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use url::form_urlencoded;
use visit::Visit;

/// Largest body of a form, in bytes.
const MAX_FORM: usize = 64 * 1024;
const FORM_TIME: Duration = Duration::from_secs(10);

/// Right that a page needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Session,
}

/// A page or an action: its method, its path, who may ask for it.
struct Place {
    id: &'static str,
    post: bool,
    path: &'static str,
    needs: Needs,
}

const fn page(id: &'static str, path: &'static str) -> Place {
    Place { id, post: false, path, needs: Needs::Session }
}

const fn act(id: &'static str, path: &'static str) -> Place {
    Place { id, post: true, path, needs: Needs::Session }
}

const PLACES: &[Place] = &[
    Place { id: "login", post: false, path: "/login", needs: Needs::Nothing },
    Place { id: "enter", post: true, path: "/login", needs: Needs::Nothing },
    Place { id: "static", post: false, path: "/static/{name}", needs: Needs::Nothing },
    page("home", "/"),
    page("directives", "/directives"),
    page("directive", "/directives/{directive_id}"),
    page("head", "/directives/{directive_id}/head"),
    page("log", "/directives/{directive_id}/log"),
    page("raw", "/directives/{directive_id}/raw"),
    page("events", "/directives/{directive_id}/events"),
    act("cancel", "/directives/{directive_id}/cancel"),
    page("approvals", "/approvals"),
    page("approval", "/approvals/{approval_id}"),
    act("approve", "/approvals/{approval_id}/approve"),
    act("deny", "/approvals/{approval_id}/deny"),
    page("territories", "/territories"),
    page("territory", "/territories/{territory_id}"),
    act("drain", "/territories/{territory_id}/drain"),
    page("facilities", "/facilities"),
    page("policies", "/policies"),
    page("explain", "/policies/explain"),
    page("replay", "/policies/replay"),
    act("replay", "/policies/replay"),
    page("news", "/news"),
    page("audit", "/audit"),
    page("settings", "/settings"),
    act("theme", "/settings/theme"),
    act("revoke", "/settings/sessions/{session_id}/revoke"),
    act("leave", "/logout"),
];

/// Adds the console to the routes of the APIs.
pub fn with_console(app: &Shared, mut router: Router) -> Router {
    let mut paths: BTreeMap<&str, MethodRouter> = BTreeMap::new();
    for place in PLACES {
        let shared = app.clone();
        let handler = move |parameters: RawPathParams, request: Request| {
            let app = shared.clone();
            async move { answer(&app, place, &parameters, request).await }
        };
        let filter = if place.post { MethodFilter::POST } else { MethodFilter::GET };
        let known = paths.remove(place.path).unwrap_or_default();
        paths.insert(place.path, known.merge(on(filter, handler)));
    }
    for (path, methods) in paths {
        router = router.route(path, methods.fallback(|| async { not_allowed() }));
    }
    router.fallback(|request: Request| async move { elsewhere(&request) })
}

fn not_allowed() -> Answer {
    let error = "The path does not take this method.";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", error).answer()
}

/// A path that is none: a page for a browser, and JSON for everybody else.
fn elsewhere(request: &Request) -> Answer {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_api = ["/mothership/", "/conduits/"].iter().any(|prefix| request.uri().path().starts_with(prefix));
    if is_api || !accept.contains("text/html") {
        return Problem::not_found().answer();
    }
    let mut answer = shell::error_page(&Problem::not_found(), theme(request.headers()), false);
    shell::guard(&mut answer);
    answer
}

fn theme(headers: &HeaderMap) -> Theme {
    Theme::read(session::cookie(headers, pages::settings::THEME_COOKIE))
}

async fn answer(app: &Shared, place: &'static Place, parameters: &RawPathParams, request: Request) -> Answer {
    let theme = theme(request.headers());
    let mut answer = match handle(app, place, parameters, request).await {
        Ok(answer) => answer,
        Err(Failure { problem, signed_in }) => shell::error_page(&problem, theme, signed_in),
    };
    shell::guard(&mut answer);
    app.metrics.answer(answer.status().as_u16());
    answer
}

/// A request that failed, and whether it had a session.
struct Failure {
    problem: Problem,
    signed_in: bool,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { problem, signed_in: false }
    }
}

async fn handle(
    app: &Shared,
    place: &'static Place,
    parameters: &RawPathParams,
    request: Request,
) -> Result<Answer, Failure> {
    let (parts, body) = request.into_parts();
    let peer = *parts.extensions.get::<Peer>().ok_or_else(|| Problem::unauthorized("The connection is not known."))?;
    check_one_host(&parts.headers)?;
    check_host(app, &parts.headers)?;
    if place.post && !session::is_same_origin(app, &parts.headers) {
        return Err(Problem::forbidden("The form is not from a page of this server.").into());
    }
    let found = match place.needs {
        Needs::Nothing => None,
        Needs::Session => session::check(app, &peer, &parts.headers).await?,
    };
    let is_open = place.needs == Needs::Nothing;
    let query = parts.uri.query().unwrap_or_default().to_owned();
    if found.is_none() && !is_open {
        let accepts = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // A script asks for pieces of pages and for events: a page to log in is none.
        if place.post || !accepts.contains("text/html") || matches!(place.id, "head" | "log" | "events" | "news") {
            return Err(Problem::unauthorized("You are not signed in.").into());
        }
        return Ok(pages::login::ask(parts.uri.path(), &query));
    }
    if let (Some(slot), true) = (parts.extensions.get::<Arc<Slot>>(), found.is_some()) {
        slot.keep();
    }
    let theme = theme(&parts.headers);
    let form = if place.post { read(body, &parts.headers).await? } else { Vec::new() };
    let parameters = parameters.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let caller = found.map_or(Principal::Anyone, |(account, session)| Principal::Person(account, session));
    let headers = parts.headers;
    let context = Context { app: app.clone(), caller, parameters, query, headers, body: Vec::new(), peer };
    let Some((account, session)) = found else { return Ok(open_place(place, context, &form, theme).await?) };
    let mut visit = Visit { context, account, session, form, theme, waiting: None };
    if place.post && !visit.field("token").is_some_and(|token| session::is_own(app, &session, token)) {
        let problem = Problem::forbidden("The form is too old, or not from this session. Load the page again.");
        return Err(Failure { problem, signed_in: true });
    }
    let is_page = !place.post && !matches!(place.id, "head" | "log" | "events" | "news" | "raw");
    if is_page {
        visit.waiting = pages::count_waiting(&visit).await?;
    }
    pages::handle(place.id, visit).await.map_err(|problem| Failure { problem, signed_in: true })
}

async fn open_place(
    place: &Place,
    context: Context,
    form: &[(String, String)],
    theme: Theme,
) -> Result<Answer, Problem> {
    match place.id {
        "static" => {
            let name = context.parameters.first().map(|(_, name)| name.as_str()).unwrap_or_default();
            assets::serve(name)
        }
        "enter" => pages::login::enter(&context, form, theme).await,
        _ => Ok(pages::login::show(StatusCode::OK, theme, None, context.parameter("next").as_deref())),
    }
}

async fn read(body: Body, headers: &HeaderMap) -> Result<Vec<(String, String)>, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/x-www-form-urlencoded") {
        let error = "The body must be a form.";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", error));
    }
    let broken = || Problem::new(StatusCode::BAD_REQUEST, "body_broken", "The form did not arrive whole.");
    let whole = tokio::time::timeout(FORM_TIME, Limited::new(body, MAX_FORM).collect()).await;
    let bytes = whole.map_err(|_| broken())?.map_err(|_| broken())?.to_bytes();
    Ok(form_urlencoded::parse(&bytes).map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
}
