//! The router, built from the table of routes. No handler runs before the rights of its route were checked.

use super::answer::{Answer, Problem};
use super::request::{Context, Peer, Principal};
use super::{auth, conduits, users};
use crate::app::Shared;
use crate::slots::Slot;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::http::{StatusCode, header};
use axum::routing::{MethodFilter, MethodRouter, on};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use nexus_api::routes::{CONDUITS, MOTHERSHIP, Method, Route};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Name under which a server on loopback shows its console.
pub const CONSOLE_HOST: &str = "nexus.localhost";
/// Time that a request's body may take.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Returns the router of a server.
pub fn router(app: &Shared) -> Router {
    let mut paths: BTreeMap<&str, MethodRouter> = BTreeMap::new();
    for route in CONDUITS.iter().chain(MOTHERSHIP) {
        let filter = match route.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Put => MethodFilter::PUT,
            Method::Delete => MethodFilter::DELETE,
        };
        let shared = app.clone();
        let handler = move |parameters: Result<RawPathParams, RawPathParamsRejection>, request: Request| {
            let app = shared.clone();
            async move {
                let answered = match parameters {
                    Ok(parameters) => handle(&app, route, &parameters, request).await,
                    // No object has such a name.
                    Err(_) => Err(Problem::not_found().detail("The path is not UTF-8.")),
                };
                let answer = answered.unwrap_or_else(Problem::answer);
                let status = answer.status();
                app.metrics.answer(status.as_u16());
                if status == StatusCode::INSUFFICIENT_STORAGE {
                    app.fullness.note(app.config.clock.boot());
                }
                answer
            }
        };
        let known = paths.remove(route.path).unwrap_or_default();
        paths.insert(route.path, known.merge(on(filter, handler)));
    }
    let mut router = Router::new();
    for (path, methods) in paths {
        router = router.route(path, methods.fallback(|| async { method_not_allowed() }));
    }
    router
}

fn method_not_allowed() -> Answer {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "The path does not take this method.").answer()
}

async fn handle(
    app: &Shared,
    route: &'static Route,
    parameters: &RawPathParams,
    request: Request,
) -> Result<Answer, Problem> {
    let (parts, body) = request.into_parts();
    let peer = *parts.extensions.get::<Peer>().ok_or_else(|| Problem::unauthorized("The connection is not known."))?;
    check_one_host(&parts.headers)?;
    check_host(app, &parts.headers)?;
    check_origin(app, &parts.headers)?;
    let parameters: Vec<(String, String)> =
        parameters.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let directive = parameters.iter().find(|(name, _)| name == "directive_id").map(|(_, value)| value.as_str());
    let caller = auth::check(app, route, &parts.headers, &peer, directive).await?;
    if let (Some(slot), false) = (parts.extensions.get::<Arc<Slot>>(), matches!(caller, Principal::Anyone)) {
        slot.keep();
    }
    if route.later {
        return Err(Problem::not_found().detail("This server does not offer the call yet."));
    }
    let body = if route.method == Method::Get { Vec::new() } else { read(body, &parts.headers, limit(route)).await? };
    let context = Context {
        app: app.clone(),
        caller,
        parameters,
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
        peer,
    };
    match conduits::handle(route.id, &context).await {
        Some(answer) => answer,
        None => users::handle(route.id, context).await,
    }
}

/// A request with several hosts is for none (RFC 9112, 3.2): a proxy in front may have looked at another one.
pub fn check_one_host(headers: &header::HeaderMap) -> Result<(), Problem> {
    if headers.get_all(header::HOST).iter().nth(1).is_none() {
        return Ok(());
    }
    Err(Problem::new(StatusCode::BAD_REQUEST, "bad_request", "The request has more than one Host."))
}

/// A server on loopback answers only to the names of loopback: a page of a browser that reaches it under another name is not
/// from this machine.
pub fn check_host(app: &Shared, headers: &header::HeaderMap) -> Result<(), Problem> {
    if !app.loopback {
        return Ok(());
    }
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    // The console has a name of its own: cookies do not tell apart the ports of one name.
    let local = name.eq_ignore_ascii_case("localhost")
        || name.eq_ignore_ascii_case(CONSOLE_HOST)
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let public = app.config.public_url.as_deref().and_then(|url| url::Url::parse(url).ok());
    let public = public.as_ref().and_then(|url| url.host_str()).is_some_and(|known| known.eq_ignore_ascii_case(name));
    if local || public { Ok(()) } else { Err(Problem::forbidden("The server answers only under its own name.")) }
}

/// A server on loopback answers to no page of another origin: the browser of the user would speak for that page.
fn check_origin(app: &Shared, headers: &header::HeaderMap) -> Result<(), Problem> {
    let known = |origin: &header::HeaderValue| {
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
        origin.to_str().is_ok_and(|origin| {
            let own = origin.split_once("://").is_some_and(|(_, name)| name.eq_ignore_ascii_case(host));
            let public = app.config.public_url.as_deref().and_then(|url| url::Url::parse(url).ok());
            own || public.is_some_and(|url| url.origin().ascii_serialization().eq_ignore_ascii_case(origin))
        })
    };
    let is_foreign = app.loopback && !headers.get_all(header::ORIGIN).iter().all(known);
    if is_foreign { Err(Problem::forbidden("The server does not answer to pages of other origins.")) } else { Ok(()) }
}

/// Largest body of a route, in bytes.
fn limit(route: &Route) -> usize {
    match route.id {
        "finished" => 16 * 1024 * 1024,
        "logChunk" => 512 * 1024,
        "artifactChunk" => 3 * 1024 * 1024,
        "enroll" => 128 * 1024,
        _ => 1024 * 1024,
    }
}

async fn read(body: Body, headers: &header::HeaderMap, limit: usize) -> Result<Vec<u8>, Problem> {
    let kind = headers.get(header::CONTENT_TYPE);
    let is_json = |kind: &header::HeaderValue| {
        kind.to_str().is_ok_and(|kind| {
            kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
        })
    };
    // A page of a browser may send a body without a type anywhere, and JSON only where the server allows it.
    if kind.map_or(!body.is_end_stream(), |kind| !is_json(kind)) {
        let error = "The body must be JSON, with the header Content-Type: application/json.";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", error));
    }
    let whole = tokio::time::timeout(BODY_TIME, Limited::new(body, limit).collect()).await;
    match whole {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("The body must have at most {limit} bytes."),
        )),
        Ok(Err(_)) => Err(Problem::new(StatusCode::BAD_REQUEST, "body_broken", "The body did not arrive whole.")),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_slow", "The body did not arrive in time.")),
    }
}
