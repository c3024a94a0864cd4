//! Handlers of facilities: create, list, read.

use crate::http::answer::{Answer, Problem, created, ok};
use crate::http::cursor;
use crate::http::request::Context;
use crate::store::types::NewFacility;
use nexus_api::Timestamp;
use nexus_api::mothership::{CreateFacility, CreatedFacility, FacilityKind, FacilityList};
use nexus_model::ids::FacilityId;

const LIST: &str = "facilities";

/// Creates a facility.
pub async fn create(context: &Context) -> Result<Answer, Problem> {
    let account = context.account()?;
    let request: CreateFacility = context.json()?;
    if request.retention_policy.is_some() {
        return Err(Problem::invalid("unavailable", "retention_policy is not available on this server."));
    }
    let named = request
        .name
        .as_ref()
        .is_none_or(|name| !name.is_empty() && name.len() <= 100 && !name.chars().any(char::is_control));
    if !named {
        return Err(Problem::invalid("invalid_field", "name must have 1 to 100 bytes and no control characters."));
    }
    match (request.kind, &request.repo_url) {
        (FacilityKind::ImportedPath, _) => {
            return Err(Problem::invalid(
                "unavailable",
                "Facilities of the kind imported_path are not available on this server.",
            ));
        }
        (FacilityKind::Empty, Some(_)) => {
            return Err(Problem::invalid("invalid_field", "repo_url belongs to facilities of the kind repo."));
        }
        (FacilityKind::Repo, url) if !url.as_deref().is_some_and(is_safe_repository) => {
            return Err(Problem::invalid(
                "invalid_repo_url",
                "repo_url must be an https URL without a user name, a password or a private host.",
            ));
        }
        _ => {}
    }
    let new =
        NewFacility { kind: request.kind, name: request.name, repo_url: request.repo_url, pin: request.territory_id };
    let now = context.app.now();
    let facility_id = context.app.store.create_facility(account, new, now).await?;
    Ok(created(&CreatedFacility { facility_id, kind: request.kind, created_at: Timestamp(now) }))
}

/// Returns whether a URL names a repository that a territory may clone: https, a host name, no credentials. The territory
/// resolves the name under the directive's own network policy.
fn is_safe_repository(text: &str) -> bool {
    let plain = text.len() <= 2000 && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let Ok(url) = url::Url::parse(text) else { return false };
    let domain =
        matches!(url.host(), Some(url::Host::Domain(name)) if name.contains('.') && !name.ends_with(".localhost"));
    plain
        && text.starts_with("https://")
        && url.scheme() == "https"
        && domain
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
}

/// Lists the facilities of the account.
pub async fn list(context: &Context) -> Result<Answer, Problem> {
    let account = context.account()?;
    let page = cursor::page(context, account, LIST)?;
    let facilities = context.app.store.facilities(account, page).await?;
    let last = facilities.last().filter(|_| facilities.len() == page.limit as usize);
    let next_cursor = last.map(|last| cursor::write(&context.app.cursors, account, LIST, last.facility_id.as_bytes()));
    Ok(ok(&FacilityList { facilities, next_cursor }))
}

/// Returns one facility.
pub async fn get(context: &Context) -> Result<Answer, Problem> {
    let id: FacilityId = context.id("facility_id")?;
    Ok(ok(&context.app.store.facility(context.account()?, id).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_https_urls_of_named_hosts_are_repositories() {
        for url in ["https://code.example/a/b.git", "https://code.example:8443/a"] {
            assert!(is_safe_repository(url), "{url}");
        }
        for url in [
            "",
            "/etc",
            "../x",
            "file:///etc",
            "ext::sh -c id",
            "fd::3",
            "ssh://-oProxyCommand=id/x",
            "-u./id",
            "--upload-pack=id",
            "git://code.example/a",
            "http://code.example/a",
            "http://127.0.0.1",
            "https://127.0.0.1/a",
            "https://[::1]/a",
            "https://169.254.169.254/a",
            "https://localhost/a",
            "https://user:word@code.example/a",
            "https://user@code.example/a",
            "https://code.example/a b",
            "https://code.example/a\nb",
            "https://code.example/a\\b",
            "https://2130706433/a",
        ] {
            assert!(!is_safe_repository(url), "{url}");
        }
    }
}
