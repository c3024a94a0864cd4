//! Tells whether a partial clone may fetch the objects that it lacks from a repository on the same machine.

use crate::config::parse;
use crate::small::read_small;
use nexus_beneath::{Workspace, is_gone, join};
use std::os::fd::AsFd as _;

/// Reports whether the configuration of a repository has a remote that is a path. `trees` are its git directories. One that is not
/// understood, or says that others count as well, may have such a remote.
pub fn may_fetch_here(trees: &[(&Workspace, &[u8])]) -> bool {
    trees.iter().any(|(tree, git_dir)| match tree.dir(git_dir).and_then(|dir| read_small(dir.as_fd(), b"config")) {
        Ok(Some(text)) => names_path(&text),
        Err(error) if is_gone(&error) => false,
        Ok(None) | Err(_) => {
            tree.stat(&join(git_dir, b"config")).map_or(true, |meta| meta.is_some_and(|meta| !meta.is_whiteout()))
        }
    })
}

/// Reports whether a configuration has a remote that is a path, as far as it says so itself.
fn names_path(text: &[u8]) -> bool {
    let Ok(settings) = parse(text) else { return true };
    settings.iter().any(|one| match (&*one.section, &*one.name) {
        ("remote", "url") => one.value.as_deref().is_some_and(is_path),
        ("url", _) | ("include" | "includeif", "path") => true,
        _ => false,
    })
}

/// Reports whether a URL is a path: `HOST:PATH` and `HELPER::ADDRESS` have a colon before the first slash.
fn is_path(url: &[u8]) -> bool {
    match url.windows(3).position(|three| three == b"://") {
        Some(at) => url[..at].eq_ignore_ascii_case(b"file"),
        None => url.iter().find(|byte| b":/".contains(byte)) != Some(&b':'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_that_is_a_path_is_distinguished_from_others() {
        for (url, wanted) in [
            ("/srv/a", true),
            ("../a", true),
            ("a", true),
            ("file:///srv/a", true),
            ("FILE:///srv/a", true),
            ("./a:b", true),
            ("https://h/a", false),
            ("ssh://h/a", false),
            ("h:a", false),
            ("u@h:/srv/a", false),
            ("ext::sh -c x", false),
        ] {
            assert_eq!(is_path(url.as_bytes()), wanted, "{url}");
            let text = format!("[remote \"o\"]\n\turl = {url}\n\tpromisor = true\n");
            assert_eq!(names_path(text.as_bytes()), wanted, "{url}");
        }
        for (text, wanted) in [
            ("[core]\nbare = false\n", false),
            ("[remote \"o\"]\nfetch = +refs/heads/*:refs/remotes/o/*\n", false),
            ("[url \"/srv/\"]\ninsteadOf = https://h/\n", true),
            ("[include]\npath = x\n", true),
            ("[core", true),
        ] {
            assert_eq!(names_path(text.as_bytes()), wanted, "{text}");
        }
    }
}
