//! npm: `.npmrc` files and `npm_config_*` variables.

use super::endpoint::{Credential, Endpoint, Login, Secret};
use super::ini::{self, Dialect, Entry};
use super::needs::{DefaultIndex, Needs, PackagesError};
use std::collections::BTreeMap;

/// Reads what npm would: `files` from the weakest (global) to the strongest (project), then the environment over them.
pub fn read_npm(files: &[&str], environment: &BTreeMap<String, String>) -> Result<Needs, PackagesError> {
    let mut settled: BTreeMap<String, String> = BTreeMap::new();
    for text in files {
        for Entry { key, value, .. } in ini::read(text, Dialect::Npm)? {
            settled.insert(key, expanded(&value, environment));
        }
    }
    for (name, value) in environment {
        let key = name.get(..11).filter(|prefix| prefix.eq_ignore_ascii_case("npm_config_")).map(|_| &name[11..]);
        let Some(key) = key.filter(|_| !value.is_empty()) else { continue };
        // `//host/:_authToken` and scopes keep their underscores; plain keys are spelt with dashes.
        let plain = !key.starts_with("//") && !key.starts_with('@') && !key.starts_with('_');
        settled.insert(if plain { key.to_ascii_lowercase().replace('_', "-") } else { key.into() }, value.clone());
    }
    let mut needs = Needs::default();
    let mut users: BTreeMap<String, (Option<String>, Option<String>)> = BTreeMap::new();
    for (key, value) in &settled {
        match key.as_str() {
            "registry" => {
                needs.index(key, value)?;
                needs.default_index = DefaultIndex::Settled;
            }
            "proxy" | "https-proxy" | "http-proxy" if !matches!(value.as_str(), "null" | "false") => {
                needs.proxy(key, value)?;
            }
            "cafile" => needs.ca_file(key, value),
            scoped if scoped.starts_with('@') && scoped.ends_with(":registry") => needs.index(key, value)?,
            bound if bound.starts_with("//") => login(&mut needs, &mut users, bound, value)?,
            // Everything else changes how npm works, not where it connects; logins without a host are refused by npm.
            _ => {}
        }
    }
    for (place, (user, password)) in users {
        let basic = Login::Basic {
            user: Secret::new(user.unwrap_or_default()),
            password: Secret::new(password.unwrap_or_default()),
        };
        bind(&mut needs, &place, basic)?;
    }
    Ok(needs)
}

/// Reads `//host/path/:_authToken` and its relatives.
fn login(
    needs: &mut Needs,
    users: &mut BTreeMap<String, (Option<String>, Option<String>)>,
    key: &str,
    value: &str,
) -> Result<(), PackagesError> {
    let Some((place, what)) = key.rsplit_once(':') else { return Ok(()) };
    match what {
        "_authToken" => bind(needs, place, Login::Token(Secret::new(value)))?,
        "_auth" => bind(needs, place, Login::Encoded(Secret::new(value)))?,
        "username" => users.entry(place.into()).or_default().0 = Some(value.into()),
        "_password" => users.entry(place.into()).or_default().1 = Some(value.into()),
        // Client certificates and mail addresses.
        _ => {}
    }
    Ok(())
}

fn bind(needs: &mut Needs, place: &str, login: Login) -> Result<(), PackagesError> {
    // npm binds a login to host and path whatever the scheme; what the index uses is the port that it belongs to.
    let fail = |why| PackagesError::Endpoint { key: "login".into(), why };
    let (endpoint, _) = Endpoint::parse("login", &format!("https:{place}")).map_err(fail)?;
    needs.credentials.push(Credential { target: endpoint.target, path: endpoint.path, login });
    Ok(())
}

/// Expands `${NAME}` and `${NAME?}`. A variable that is not set stays as it is, as npm leaves it, except with the
/// question mark.
fn expanded(value: &str, environment: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let name = &rest[start + 2..start + length];
        let (name, optional) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
        out.push_str(&rest[..start]);
        match environment.get(name) {
            Some(found) => out.push_str(found),
            None if optional => {}
            None => out.push_str(&rest[start..=start + length]),
        }
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    out
}
