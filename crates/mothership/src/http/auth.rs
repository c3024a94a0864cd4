//! Rights: each route says which it needs, and this module alone checks them.

use super::answer::Problem;
use super::request::{Context, Peer, Principal};
use crate::app::App;
use crate::config::TerritoryAuth;
use crate::identity::{TokenClaims, sha256};
use crate::rights::{Identity, Known, Proof};
use crate::store::types::{Account, Certificate, SecretHash, Territory};
use axum::http::HeaderMap;
use data_encoding::HEXLOWER_PERMISSIVE;
use nexus_api::conduits::{FINGERPRINT_HEADER, PROXY_SECRET_HEADER, TERRITORY_HEADER, TERRITORY_SECRET_HEADER};
use nexus_api::routes::{Access, Route};
use std::time::{Duration, Instant};

/// Returns the caller when it has the rights of the route.
pub async fn check(
    app: &App,
    route: &Route,
    headers: &HeaderMap,
    peer: &Peer,
    directive: Option<&str>,
) -> Result<Principal, Problem> {
    match route.access {
        // The body of an enrolment carries its proof.
        Access::Public | Access::EnrollmentToken => Ok(Principal::Anyone),
        Access::Territory => Ok(Principal::Daemon(territory(app, headers, peer).await?)),
        Access::Directive => {
            let territory = territory(app, headers, peer).await?;
            // An end may be reported late, with its output, events and kept files: the daemon was away, and its token ran out meanwhile.
            let late = matches!(route.id, "finished" | "logChunk" | "events" | "artifact" | "artifactChunk");
            let claims = directive_token(app, headers, territory, directive, late)?;
            Ok(Principal::Holder(territory, claims))
        }
        Access::Roles(_) if route.id == "metrics" => counters(app, headers, route).await,
        Access::Roles(roles) => {
            let account = check_key(app, headers).await?;
            if roles.contains(&account.role) {
                Ok(Principal::User(account))
            } else {
                Err(Problem::forbidden("The role of the API key does not allow this call."))
            }
        }
    }
}

/// Time that the store has to confirm a key that reads the counters.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);

/// An operator needs the counters most while the store does not answer: a key that has read them lately reads them then, too.
async fn counters(app: &App, headers: &HeaderMap, route: &Route) -> Result<Principal, Problem> {
    let known = bearer(headers)?.map(|key| sha256(key.as_bytes())).filter(|key| app.rights.is_reader(key));
    let asked = tokio::time::timeout(CONFIRMED_WITHIN, check_key(app, headers));
    let account = match (asked.await, known) {
        (Ok(Err(problem)), Some(_)) if problem.is_of_the_server() => return Ok(Principal::Anyone),
        (Err(_), Some(_)) => return Ok(Principal::Anyone),
        (Err(_), None) => return Err(Problem::busy("store_failed", "The store of the server does not answer.")),
        (Ok(answer), _) => answer?,
    };
    if !matches!(route.access, Access::Roles(roles) if roles.contains(&account.role)) {
        return Err(Problem::forbidden("The role of the API key does not allow this call."));
    }
    if let Some(key) = bearer(headers)? {
        app.rights.note_reader(sha256(key.as_bytes()));
    }
    Ok(Principal::User(account))
}

/// Returns the account of the request's API key.
pub async fn check_key(app: &App, headers: &HeaderMap) -> Result<Account, Problem> {
    let key = bearer(headers)?.ok_or_else(|| Problem::unauthorized("The call needs an API key."))?;
    let proof = Proof::ApiKey(sha256(key.as_bytes()));
    match identity(app, proof).await? {
        Some(Identity::Account(account)) => Ok(account),
        _ => Err(Problem::unauthorized("The API key is not known.")),
    }
}

/// Returns the identity that this proof is for, if the store knows it.
async fn identity(app: &App, proof: Proof) -> Result<Option<Identity>, Problem> {
    let asked = match app.rights.find(&proof) {
        Known::Confirmed(identity) => return Ok(Some(identity)),
        Known::Nothing(revocations) => (revocations, Instant::now()),
    };
    let found = match proof {
        Proof::ApiKey(hash) => app.store.key_by_hash(hash).await?.map(Identity::Account),
        Proof::Id(id) => app.store.territory_by_id(id).await?.map(Identity::Territory),
        Proof::Key(_) | Proof::Fingerprint(_) => match certificate(app, proof).await? {
            None => None,
            Some(certificate) => {
                if certificate.replaces.is_some() {
                    // Its first use: a copy of the one before is worth nothing from now on.
                    app.store.end_replaced(certificate).await?;
                    app.revoked();
                }
                Some(Identity::Territory(certificate.territory))
            }
        },
    };
    if let Some(found) = found {
        app.rights.note(proof, found, asked);
    }
    Ok(found)
}

async fn certificate(app: &App, proof: Proof) -> Result<Option<Certificate>, Problem> {
    Ok(match proof {
        Proof::Key(key) => app.store.certificate_by_key(key).await?,
        Proof::Fingerprint(fingerprint) => app.store.certificate_by_fingerprint(fingerprint).await?,
        Proof::Id(_) | Proof::ApiKey(_) => None,
    })
}

/// Returns the hash of the public key of the caller's certificate; `None` where no certificate identifies a territory.
pub async fn certificate_of(context: &Context) -> Result<Option<SecretHash>, Problem> {
    let proof = proof(&context.app, &context.headers, &context.peer)?;
    Ok(certificate(&context.app, proof).await?.map(|certificate| certificate.key))
}

/// Looks again whether the daemon of a request that waits still has its rights.
pub async fn recheck_territory(context: &Context) -> Result<(), Problem> {
    territory(&context.app, &context.headers, &context.peer).await.map(drop)
}

/// Returns whether the caller of an open stream still has its rights.
pub async fn is_still(context: &Context, account: Account) -> bool {
    let app = &context.app;
    let now = match context.caller {
        Principal::Person(_, session) => app.store.session(session, app.now()).await.unwrap_or_default(),
        _ => check_key(app, &context.headers).await.ok(),
    };
    now.is_some_and(|now| now.id == account.id)
}

fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let parts = single(headers, "authorization")?.and_then(|value| value.split_once(' '));
    let is_good = |(scheme, token): &(&str, &str)| {
        scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= 4096
    };
    Ok(parts.filter(is_good).map(|(_, token)| token))
}

async fn territory(app: &App, headers: &HeaderMap, peer: &Peer) -> Result<Territory, Problem> {
    match identity(app, proof(app, headers, peer)?).await? {
        Some(Identity::Territory(territory)) => Ok(territory),
        _ => Err(Problem::unauthorized("The territory is not known, or was revoked.")),
    }
}

/// Returns what the request shows as the identity of a territory.
fn proof(app: &App, headers: &HeaderMap, peer: &Peer) -> Result<Proof, Problem> {
    let text = |name| single(headers, name);
    let missing = || Problem::unauthorized("The call needs the identity of a territory.");
    let id = || text(TERRITORY_HEADER)?.and_then(|id| id.parse().ok()).map(Proof::Id).ok_or_else(missing);
    match &app.config.territory_auth {
        TerritoryAuth::Mtls => peer.key.map(Proof::Key).ok_or_else(missing),
        TerritoryAuth::Proxy { .. } => {
            // Every other client could write the header too.
            if !is_proxy(&app.config.territory_auth, headers, peer) {
                return Err(missing());
            }
            text(FINGERPRINT_HEADER)?.and_then(fingerprint).map(Proof::Fingerprint).ok_or_else(missing)
        }
        TerritoryAuth::Process(secret) => {
            if !text(TERRITORY_SECRET_HEADER)?.is_some_and(|given| secret.matches(given)) {
                return Err(missing());
            }
            id()
        }
        TerritoryAuth::Header => id(),
    }
}

/// Returns whether a proxy that the operator named has sent the request: by its address and, where there is one, by its secret.
pub fn is_proxy(auth: &TerritoryAuth, headers: &HeaderMap, peer: &Peer) -> bool {
    let TerritoryAuth::Proxy { trusted, secret } = auth else { return false };
    trusted.iter().any(|one| one.to_canonical() == peer.address.ip().to_canonical())
        && secret.as_ref().is_none_or(|secret| {
            single(headers, PROXY_SECRET_HEADER).is_ok_and(|given| given.is_some_and(|given| secret.matches(given)))
        })
}

/// Returns a header that names the caller. A second line of it is refused: a proxy that appends its own leaves the client's.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next();
    if lines.next().is_some() {
        return Err(Problem::unauthorized("A header that names the caller stands in the request more than once."));
    }
    Ok(first.and_then(|value| value.to_str().ok()))
}

/// Reads a SHA-256 fingerprint in hexadecimal, with colons or without, with an algorithm in front or without.
fn fingerprint(text: &str) -> Option<SecretHash> {
    let text = text.trim();
    let digits = text.strip_prefix("sha256:").or_else(|| text.strip_prefix("SHA256:")).unwrap_or(text).replace(':', "");
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?.try_into().ok()
}

fn directive_token(
    app: &App,
    headers: &HeaderMap,
    territory: Territory,
    directive: Option<&str>,
    late: bool,
) -> Result<TokenClaims, Problem> {
    let token = bearer(headers)?.ok_or_else(|| Problem::unauthorized("The call needs a directive token."))?;
    let claims = app.tokens.verify(token).map_err(|_| Problem::unauthorized("The directive token is not valid."))?;
    if directive.is_none_or(|id| id != claims.sub.to_string()) {
        return Err(Problem::forbidden("The directive token is for another directive."));
    }
    if claims.territory != territory.id {
        return Err(Problem::forbidden("The directive token is for another territory."));
    }
    if !late && app.config.clock.steady() >= claims.exp.saturating_mul(1000) {
        return Err(Problem::unauthorized("The directive token has expired."));
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_in_the_forms_of_proxies() {
        let plain = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        assert_eq!(fingerprint(&plain), Some([0xab; 32]));
        assert_eq!(fingerprint(&colons), Some([0xab; 32]));
        assert_eq!(fingerprint(&format!("sha256:{plain}")), Some([0xab; 32]));
        for text in ["", "ab", &plain[1..], &plain.replace('a', "g")] {
            assert_eq!(fingerprint(text), None, "{text}");
        }
    }
}
