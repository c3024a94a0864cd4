//! Sessions: the cookie of a browser, and the tokens that its forms carry.

use crate::app::App;
use crate::http::{Peer, Problem};
use crate::identity::{random, sha256};
use crate::store::types::{Account, SecretHash};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use axum::http::{HeaderMap, header};
use data_encoding::BASE64URL_NOPAD;

/// Life of the cookie, in seconds.
const LIFE_SECONDS: u32 = 12 * 3_600;

/// Returns whether the browser speaks TLS, to this server or to a proxy before it.
pub fn is_secure(app: &App, peer: &Peer) -> bool {
    peer.tls || app.config.public_url.as_deref().is_some_and(|url| url.starts_with("https://"))
}

fn cookie_name(secure: bool) -> &'static str {
    // A browser takes a cookie of this name from this host over TLS alone.
    if secure { "__Host-nexus" } else { "nexus" }
}

/// Returns the header that gives a session to the browser; an empty secret takes it back.
pub fn set_cookie(secure: bool, secret: &str) -> String {
    let (name, end) = (cookie_name(secure), if secure { "; Secure" } else { "" });
    let life = if secret.is_empty() { 0 } else { LIFE_SECONDS };
    format!("{name}={secret}; Path=/; Max-Age={life}; HttpOnly; SameSite=Lax{end}")
}

/// Returns the value of a cookie.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Returns the session of a request.
pub async fn check(app: &App, peer: &Peer, headers: &HeaderMap) -> Result<Option<(Account, SecretHash)>, Problem> {
    let Some(secret) = cookie(headers, cookie_name(is_secure(app, peer))) else { return Ok(None) };
    let hash = sha256(secret.as_bytes());
    Ok(app.store.session(hash, app.now()).await?.map(|account| (account, hash)))
}

/// Random bytes before a token.
const MASK: usize = 16;

fn token(app: &App, session: &SecretHash) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &app.cursors));
    context.update(b"console form\0");
    context.update(session);
    let mut token = [0; 32];
    token.copy_from_slice(context.sign().as_ref());
    token
}

/// Bytes that hide a token: an answer that is compressed on its way tells nothing about the token by its length.
fn masked(mask: &[u8], token: &[u8; 32]) -> Vec<u8> {
    let stream = sha256(mask);
    token.iter().zip(stream).map(|(byte, hide)| byte ^ hide).collect()
}

/// Returns the token of a session for a form. It looks different in each answer.
pub fn form_token(app: &App, session: &SecretHash) -> Result<String, Problem> {
    let mask: [u8; MASK] = random()?;
    Ok(BASE64URL_NOPAD.encode(&[&mask[..], &masked(&mask, &token(app, session))].concat()))
}

/// Returns whether a form carries the token of the session.
pub fn is_own(app: &App, session: &SecretHash, given: &str) -> bool {
    let Ok(bytes) = BASE64URL_NOPAD.decode(given.as_bytes()) else { return false };
    let Some((mask, hidden)) = bytes.split_at_checked(MASK) else { return false };
    verify_slices_are_equal(hidden, &masked(mask, &token(app, session))).is_ok()
}

/// Returns whether a page of this server sent the request, as its browser says.
pub fn is_same_origin(app: &App, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin";
    }
    let Some(origin) = text("origin") else { return false };
    let host = text("host").unwrap_or_default();
    let public = app.config.public_url.as_deref().and_then(|url| url::Url::parse(url).ok());
    origin.split_once("://").is_some_and(|(_, name)| name.eq_ignore_ascii_case(host))
        || public.is_some_and(|url| url.origin().ascii_serialization().eq_ignore_ascii_case(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "a=1; xnexus=2; nexus=3; nexus=4".parse().unwrap());
        assert_eq!(cookie(&headers, "nexus"), Some("3"));
        assert_eq!(cookie(&headers, "__Host-nexus"), None);
    }

    #[test]
    fn the_cookie_of_a_session_is_for_this_server_and_no_script() {
        let plain = set_cookie(false, "x");
        assert_eq!(plain, "nexus=x; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax");
        assert!(set_cookie(true, "x").starts_with("__Host-nexus=x;") && set_cookie(true, "x").ends_with("; Secure"));
        assert!(set_cookie(true, "").contains("Max-Age=0"));
    }
}
