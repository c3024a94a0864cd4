//! Cursors of lists: the last id of a page with a code that only this store writes, for this account and this list.

use super::answer::Problem;
use super::request::Context;
use crate::store::types::{Account, Page};
use aws_lc_rs::{constant_time, hmac};
use axum::http::StatusCode;
use data_encoding::BASE64URL_NOPAD;

const CODE: usize = 12;
const DEFAULT_LIMIT: i64 = 50;
const MAX_LIMIT: i64 = 200;

fn code(key: &[u8], account: Account, list: &str, id: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    context.update(b"cursor\0");
    context.update(account.id.as_bytes());
    context.update(list.as_bytes());
    context.update(b"\0");
    context.update(id);
    context.sign().as_ref().get(..CODE).unwrap_or_default().to_vec()
}

/// Returns the cursor after an entry.
pub fn write(key: &[u8], account: Account, list: &str, id: &[u8; 16]) -> String {
    BASE64URL_NOPAD.encode(&[id.as_slice(), &code(key, account, list, id)].concat())
}

/// Reads the page that a request asks for.
pub fn page(context: &Context, account: Account, list: &str) -> Result<Page, Problem> {
    let limit = context.number("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)? as u32;
    let Some(text) = context.parameter("cursor") else { return Ok(Page { before: None, limit }) };
    let fault = || Problem::new(StatusCode::BAD_REQUEST, "invalid_cursor", "The cursor is not one of this list.");
    let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| fault())?;
    let (id, given) = bytes.split_at_checked(16).ok_or_else(fault)?;
    let expected = code(&context.app.cursors, account, list, id);
    constant_time::verify_slices_are_equal(given, &expected).map_err(|_| fault())?;
    Ok(Page { before: Some(id.try_into().map_err(|_| fault())?), limit })
}
