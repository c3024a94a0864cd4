//! The URLs and refspecs that a remote may have without an accept. Pure.

use super::values::Value::Text;

/// Reports whether a URL is one that git reads itself, or a path. Another scheme starts the program
/// `git-remote-SCHEME`, `::` one of choice, and `-` would begin an option.
pub(super) fn is_plain_url(url: &[u8]) -> bool {
    let mut windows = url.windows(2);
    if url.is_empty() || url.starts_with(b"-") || !Text.fits(Some(url)) || windows.any(|two| two == b"::") {
        return false;
    }
    let Some(at) = url.windows(3).position(|three| three == b"://") else {
        // HOST:PATH, or a path. A host that begins with `-` is an option of ssh.
        return !url.split(|byte| *byte == b'@').any(|part| part.starts_with(b"-"));
    };
    let (scheme, rest) = (&url[..at], &url[at + 3..]);
    [&b"https"[..], b"http", b"ssh", b"git", b"file"].contains(&scheme)
        && !rest.split(|byte| *byte == b'@').any(|part| part.starts_with(b"-"))
}

/// Reports whether a refspec fetches branches into the remote's own names: never into the branches, or into what
/// another remote has.
pub(super) fn is_plain_refspec(spec: &[u8], remote: &[u8]) -> bool {
    let spec = spec.strip_prefix(b"+").unwrap_or(spec);
    let mut ends = spec.splitn(2, |byte| *byte == b':');
    let (from, to) = (ends.next().unwrap_or_default(), ends.next().unwrap_or_default());
    let own = [b"refs/remotes/", remote, b"/"].concat();
    from.starts_with(b"refs/heads/") && to.starts_with(&own) && Text.fits(Some(spec))
}

/// Reports whether a URL is a path into the workspace, as far as its text says so, or into a git directory: a push
/// would run the hooks there.
pub(super) fn leads_inside(url: &[u8], git_dir: &[u8]) -> bool {
    let is_colon_first = url.iter().find(|byte| b":/".contains(byte)) == Some(&b':');
    let path = url.strip_prefix(b"file://").unwrap_or(url);
    if path.len() == url.len() && is_colon_first {
        return false;
    }
    let names = || path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    if names().any(|name| nexus_beneath::fold::fold(name).as_ref() == b".git") {
        return true;
    }
    // From the top of the working tree, which the git directory lies in.
    let is_git = nexus_beneath::fold::fold(nexus_beneath::split(git_dir).1);
    let mut depth = git_dir.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count();
    depth -= usize::from(depth > 0 && is_git.as_ref() == b".git");
    let mut depth = Some(depth);
    for name in names() {
        depth = match (name, depth) {
            (b"..", Some(depth)) => depth.checked_sub(1),
            (_, depth) => depth.map(|depth| depth + usize::from(name != b"..")),
        };
    }
    !path.starts_with(b"/") && depth.is_some()
}
