//! apt: `sources.list`, `*.sources` (deb822), `apt.conf`, and logins from `auth.conf`.

use super::endpoint::{Credential, Endpoint, Login, Secret};
use super::needs::{DefaultIndex, Needs, PackagesError};

/// Reads a `sources.list`: `deb [OPTIONS] URI SUITE COMPONENTS`.
pub fn read_apt_sources(needs: &mut Needs, text: &str) -> Result<(), PackagesError> {
    needs.default_index = DefaultIndex::Settled;
    for (raw, line) in text.lines().zip(1..) {
        let content = raw.split('#').next().unwrap_or_default().trim();
        let Some((kind, rest)) = content.split_once(char::is_whitespace) else {
            if content.is_empty() {
                continue;
            }
            return Err(PackagesError::Line { line, why: "it has one word only" });
        };
        if !matches!(kind, "deb" | "deb-src") {
            return Err(PackagesError::Line { line, why: "it begins with neither deb nor deb-src" });
        }
        let rest = match rest.trim_start().strip_prefix('[') {
            Some(options) => options.split_once(']').ok_or(PackagesError::Line { line, why: "a bracket is open" })?.1,
            None => rest,
        };
        let uri = rest.split_whitespace().next().ok_or(PackagesError::Line { line, why: "it has no URI" })?;
        source(needs, &format!("sources.list:{line}"), uri)?;
    }
    Ok(())
}

/// Reads a deb822 file: stanzas with `URIs:`, switched off by `Enabled: no`.
pub fn read_deb822(needs: &mut Needs, text: &str) -> Result<(), PackagesError> {
    needs.default_index = DefaultIndex::Settled;
    let (mut uris, mut enabled, mut in_uris) = (Vec::<String>::new(), true, false);
    // An empty line more ends the last stanza.
    for (raw, line) in text.lines().chain([""]).zip(1..) {
        if raw.starts_with('#') {
            continue;
        }
        if raw.trim().is_empty() {
            if enabled {
                uris.iter().try_for_each(|uri| source(needs, "URIs", uri))?;
            }
            (uris, enabled, in_uris) = (Vec::new(), true, false);
        } else if raw.starts_with([' ', '\t']) {
            if in_uris {
                uris.extend(raw.split_whitespace().map(String::from));
            }
        } else {
            let (field, value) = raw.split_once(':').ok_or(PackagesError::Line { line, why: "it is not a field" })?;
            in_uris = field.eq_ignore_ascii_case("uris");
            if in_uris {
                uris.extend(value.split_whitespace().map(String::from));
            } else if field.eq_ignore_ascii_case("enabled") {
                enabled = !matches!(value.trim().to_ascii_lowercase().as_str(), "no" | "false" | "0" | "off");
            }
        }
    }
    Ok(())
}

/// Takes a URI of a source. Local ones need no network.
fn source(needs: &mut Needs, key: &str, uri: &str) -> Result<(), PackagesError> {
    // `mirror+https:`, `tor+http:`: the part after the plus says what is spoken.
    let scheme = uri.split(':').next().unwrap_or_default();
    let bare = match scheme.rsplit_once('+') {
        Some((_, inner)) => &uri[scheme.len() - inner.len()..],
        None => uri,
    };
    if ["file:", "copy:", "cdrom:"].iter().any(|local| bare.starts_with(local)) {
        return Ok(());
    }
    let endpoint = needs.endpoint(key, bare)?;
    needs.endpoints.insert(endpoint);
    Ok(())
}

/// Reads `apt.conf` text: proxies and CA files, in the flat and in the nested form.
pub fn read_apt_conf(needs: &mut Needs, text: &str) -> Result<(), PackagesError> {
    let mut scopes: Vec<String> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for token in tokens(text)? {
        match token.as_str() {
            "{" => scopes.push(std::mem::take(&mut words).join("")),
            "}" => {
                scopes.pop().ok_or(PackagesError::Line { line: 0, why: "a brace is closed that was not opened" })?;
                words.clear();
            }
            ";" => {
                if let [name, value] = std::mem::take(&mut words).as_slice() {
                    let path = scopes.iter().chain([name]).map(String::as_str).filter(|part| !part.is_empty());
                    setting(needs, &path.collect::<Vec<_>>().join("::"), value)?;
                }
            }
            word => words.push(word.into()),
        }
    }
    Ok(())
}

fn setting(needs: &mut Needs, path: &str, value: &str) -> Result<(), PackagesError> {
    let lower = path.to_ascii_lowercase();
    let parts: Vec<&str> = lower.split("::").collect();
    match parts.as_slice() {
        // `DIRECT` means none; a proxy may be for one host only.
        ["acquire", "http" | "https", "proxy"] | ["acquire", "http" | "https", "proxy", _]
            if !value.is_empty() && !matches!(value, "DIRECT" | "false") =>
        {
            needs.proxy(path, value)
        }
        ["acquire", "https", "cainfo"] | ["acquire", "https", _, "cainfo"] if !value.is_empty() => {
            needs.ca_file(path, value);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns words, quoted words without their quotes, and `{`, `}`, `;`. Comments are `//`, `#` at the start of a word,
/// `/* */`.
fn tokens(text: &str) -> Result<Vec<String>, PackagesError> {
    let mut found: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut rest = text;
    let line_of = |rest: &str| text[..text.len() - rest.len()].lines().count().max(1);
    while let Some(next) = rest.chars().next() {
        if word.is_empty() && (rest.starts_with("//") || next == '#') {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        if word.is_empty() && rest.starts_with("/*") {
            let end = rest.find("*/").ok_or(PackagesError::Line { line: line_of(rest), why: "a comment is open" })?;
            rest = &rest[end + 2..];
            continue;
        }
        let (token, length) = match next {
            '"' => {
                let end = rest[1..].find('"');
                let end = end.ok_or(PackagesError::Line { line: line_of(rest), why: "a quotation mark is open" })?;
                (Some(rest[1..=end].to_string()), end + 2)
            }
            '{' | '}' | ';' => (Some(next.to_string()), 1),
            space if space.is_whitespace() => (None, space.len_utf8()),
            letter => {
                word.push(letter);
                rest = &rest[letter.len_utf8()..];
                continue;
            }
        };
        if !word.is_empty() {
            found.push(std::mem::take(&mut word));
        }
        found.extend(token);
        rest = &rest[length..];
    }
    if !word.is_empty() {
        found.push(word);
    }
    Ok(found)
}

/// Reads logins of `auth.conf` (netrc form: `machine HOST login USER password SECRET`) for the known endpoints.
pub fn read_apt_auth(needs: &mut Needs, text: &str) {
    let (mut machine, mut user) = (None, "");
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match word {
            "machine" => (machine, user) = (Some(value), ""),
            "login" => user = value,
            "password" => {
                let Some(place) = machine else { continue };
                let login = Login::Basic { user: Secret::new(user), password: Secret::new(value) };
                // apt gives a login without a scheme over TLS only.
                let url = if place.contains("://") { place.to_string() } else { format!("https://{place}") };
                if let Ok((Endpoint { target, path, .. }, _)) = Endpoint::parse("auth.conf", &url) {
                    needs.credentials.push(Credential { target, path, login });
                }
            }
            _ => {}
        }
    }
}
