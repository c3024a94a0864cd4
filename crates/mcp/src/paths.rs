//! Decides which paths a tool may name. Pure: it looks at no file, and a command inside looks at what the path leads to.

use nexus_caller::failure::Failure;
use std::path::{Component, Path, PathBuf};

/// Longest path, as for the kernel.
const MAX_PATH: usize = 4096;

/// Returns the path below the workspace that a text names, relative to it; the workspace itself is `.`.
pub fn beneath(text: &str, workspace: &Path) -> Result<PathBuf, Failure> {
    let refuse = |why: &str| {
        let hint = "Name a path relative to the workspace, without `..`.";
        Err(Failure::refused("path", format!("The path {text:?} is refused: {why}"), hint))
    };
    if text.is_empty() {
        return refuse("it is empty");
    }
    if text.contains('\0') {
        return refuse("it holds a NUL byte");
    }
    if text.len() > MAX_PATH {
        return refuse("it is longer than 4096 bytes");
    }
    let path = Path::new(text);
    let path = if path.is_absolute() {
        match path.strip_prefix(workspace) {
            Ok(rest) => rest,
            Err(_) => return refuse("it does not lie in the workspace"),
        }
    } else {
        path
    };
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => found.push(name),
            Component::CurDir => {}
            Component::ParentDir => return refuse("`..` is not followed"),
            Component::RootDir | Component::Prefix(_) => return refuse("it does not lie in the workspace"),
        }
    }
    Ok(if found.as_os_str().is_empty() { PathBuf::from(".") } else { found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_beneath_the_workspace_is_relative_to_it() {
        let of = |text: &str| beneath(text, Path::new("/work/space")).unwrap();
        for (text, expected) in [
            ("a", "a"),
            ("./a//b/.", "a/b"),
            (".", "."),
            ("/work/space", "."),
            ("/work/space/a/b", "a/b"),
            ("%2e%2e%2fetc", "%2e%2e%2fetc"),
            ("..\\x", "..\\x"),
            ("...", "..."),
            ("-rf", "-rf"),
        ] {
            assert_eq!(of(text), Path::new(expected), "{text}");
        }
    }

    #[test]
    fn every_other_path_is_refused() {
        let long = "x/".repeat(3000);
        for text in [
            "",
            "..",
            "../x",
            "a/../../x",
            "a//../..",
            "a/..",
            "/",
            "/etc/passwd",
            "/work/spaceship/x",
            "/work/space/../x",
            "a\0b",
            &long,
        ] {
            assert_eq!(beneath(text, Path::new("/work/space")).unwrap_err().code, "path", "{text:?}");
        }
    }
}
