//! Paths of other programs as patterns of policies.

/// Returns the pattern of a path: `~`, a path from the root, or one of the workspace. With `whole` a path stands for all below
/// it.
pub(super) fn pattern(path: &str, home: Option<&str>, whole: bool) -> Result<String, String> {
    let (path, below) = match path.strip_suffix("/**").or_else(|| path.strip_suffix("/**/*")) {
        Some(before) => (if before.is_empty() { "/" } else { before }, true),
        None if path == "**" => (".", true),
        None => (path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path), whole),
    };
    if path.contains(['*', '?', '[', '{', '!']) {
        return Err("a pattern other than ** at the end is not carried over".to_owned());
    }
    let tail = |base: String| match (below, base.ends_with('/')) {
        (false, _) => base,
        (true, true) => base + "**",
        (true, false) => base + "/**",
    };
    if path == "~" || path.starts_with("~/") {
        let Some(home) = home else { return Err("the home directory is not known".to_owned()) };
        return Ok(tail(format!("host:{}{}", home.trim_end_matches('/'), &path[1..])));
    }
    if path.starts_with('/') {
        return Ok(tail(format!("host:{path}")));
    }
    let mut path = path;
    while let Some(rest) = path.strip_prefix("./") {
        path = rest;
    }
    if matches!(path, "." | "") {
        return Ok("workspace:**".to_owned());
    }
    Ok(tail(format!("workspace:/{path}")))
}
