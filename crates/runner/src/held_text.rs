//! Explains which program reads a protected name, where the reason would otherwise repeat the name (`CLAUDE.md (CLAUDE.md)`). Pure.

use nexus_layer::entries::protected::{DEFAULT_PROTECTED, DEFAULT_PROTECTED_OF_REPOSITORIES};
use std::borrow::Cow;

/// The first name of each part of the standard list, and what acts on the names of the part.
const PARTS: &[(&str, &str)] = &[
    ("nexus.yaml", "Nexus reads it"),
    (".mcp.json", "agents obey it"),
    (".vscode", "editors and debuggers act on it"),
    (".hg/hgrc*", "version control acts on it"),
    (".husky", "git starts what is in it"),
    (".envrc", "tools that build or fetch act on it"),
    (".pdbrc*", "interpreters read it when they start"),
    (".bashrc", "shells and sessions read it when they start"),
];
/// Words for the names that do not count below packages.
const OF_REPOSITORIES: &str = "tools and services act on it";

/// Returns the reason for which a path waits. `why` is the reason of the layer: a sentence, or a pattern of a name. A pattern that the
/// user added says itself.
pub fn reason(why: &str) -> Cow<'_, str> {
    let position = |name: &str| DEFAULT_PROTECTED.iter().position(|known| *known == name);
    let acts = match position(why) {
        Some(at) => PARTS
            .iter()
            .rev()
            .find(|(first, _)| position(first).is_some_and(|begin| begin <= at))
            .map(|(_, acts)| *acts),
        None => DEFAULT_PROTECTED_OF_REPOSITORIES.contains(&why).then_some(OF_REPOSITORIES),
    };
    acts.map_or(Cow::Borrowed(why), |acts| format!("{why}: {acts}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protected_name_has_a_reason_beside_itself() {
        for (name, said) in [
            ("nexus.yaml", "nexus.yaml: Nexus reads it"),
            ("CLAUDE.md", "CLAUDE.md: agents obey it"),
            (".vscode", ".vscode: editors and debuggers act on it"),
            (".husky", ".husky: git starts what is in it"),
            (".envrc", ".envrc: tools that build or fetch act on it"),
            ("sitecustomize.py", "sitecustomize.py: interpreters read it when they start"),
            (".zshrc", ".zshrc: shells and sessions read it when they start"),
            (".github/workflows", ".github/workflows: tools and services act on it"),
        ] {
            assert_eq!(reason(name), said);
        }
        for other in ["git hook", "git configuration: core.fsmonitor", "a-name-of-mine"] {
            assert_eq!(reason(other), other);
        }
        assert!(PARTS.iter().all(|(first, _)| DEFAULT_PROTECTED.contains(first)), "a part lost its first name");
    }
}
