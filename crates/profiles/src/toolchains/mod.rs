//! Toolchains of the caller: found from PATH, shown read-only at their own place, and put on the PATH inside.
//!
//! Three rules hold for all of them:
//!
//! * Nothing in the workspace leads outside. A `.venv/bin/python` in it may be a link that an earlier run made, and to
//!   show its target would show any directory of the home (the link attack of the CVE-2024-0132 family).
//! * A tool's whole directory is shown only when it is plainly the tool's own; otherwise the file alone ([`prefix`]).
//! * Credentials and settings are never shown: no `~/.cargo/credentials.toml`, `.npmrc`, `.pypirc`, `.netrc`,
//!   `.m2/settings.xml`, git helpers. Where such a file lies in a directory that is shown, a file of Nexus's own is
//!   shown in its place (`logins`). HOME inside is empty and private, so tools make caches of their own.
//!
//! What a profile names is searched first. Then, unless it is switched off, everything else that the caller's PATH and
//! variables lead to (`auto`), with a stricter view of the host ([`ToolHost::for_auto`]): links lead to known places of toolchains
//! (`places`), owners count (`access`), and files are read with a bound (`reading`).

mod access;
mod adder;
mod command;
mod found;
mod git;
mod git_config;
mod go;
mod host;
mod java;
mod layout;
mod logins;
mod node;
mod perl;
mod php;
mod places;
mod python;
pub(crate) mod reading;
mod ruby;
mod rust;
mod searches;
mod shims;
mod walk;

pub use found::{Found, FoundBind, FoundHome, FoundSource};
pub use host::{Tool, ToolHost, is_system};
pub use layout::prefix;
pub use searches::Searches;

use crate::host::Host;
use adder::Adder;
use nexus_policy::profile::{Grants, NetMode, Origin, Sourced, Toolchain};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Finds the toolchains that the profile asks for and, unless it is switched off, those that the caller's PATH and
/// variables lead to. `command` is the name of the program that will run. `searches` loads the
/// cached searches of earlier runs, only when needed. Returns the updated cache as well.
pub fn find(
    grants: &Grants,
    caller: &Host,
    workspace: &Path,
    command: Option<&OsStr>,
    searches: impl FnOnce() -> Searches,
) -> (Found, Searches) {
    let mut found = Found::default();
    let is_auto = grants.shows_auto();
    if grants.toolchains.is_empty() && !is_auto {
        return (found, Searches::default());
    }
    let network = grants.net.effective_mode() != NetMode::None;
    let host = ToolHost::of(caller, workspace, network).with_searches(searches());
    for asked in &grants.toolchains {
        let from = Origin::Toolchain { name: asked.value.word(), asked: Box::new(asked.from.clone()) };
        look_for(asked.value, &mut Adder { found: &mut found, host: &host, from, auto: None });
    }
    // PATH inside follows the order of the caller's, so that the same program of two is found first.
    let rank = |entry: &Sourced<PathBuf>| host.path.iter().position(|known| *known == entry.value);
    if is_auto {
        let strict = host.for_auto();
        let from = Origin::Auto { because: String::new() };
        for toolchain in ALL {
            if !grants.toolchains.iter().any(|asked| asked.value == toolchain) {
                let auto = Some(toolchain.word());
                look_for(toolchain, &mut Adder { found: &mut found, host: &strict, from: from.clone(), auto });
            }
        }
        if let Some(name) = command {
            command::find(&mut Adder { found: &mut found, host: &strict, from, auto: Some("command") }, name);
        }
        let is_shown = |path: &Path| found.binds.iter().any(|bind| path.starts_with(&bind.target));
        let left_out: Vec<String> =
            strict.left_out().into_iter().filter(|(path, _)| !is_shown(path)).map(|(_, text)| text).collect();
        found.notes.extend(left_out);
    }
    found.path.sort_by_key(|entry| rank(entry).unwrap_or(usize::MAX));
    let searches = host.searches.take();
    (found, searches)
}

/// All toolchains that Nexus can find.
const ALL: [Toolchain; 9] = [
    Toolchain::Python,
    Toolchain::Node,
    Toolchain::Rust,
    Toolchain::Go,
    Toolchain::Java,
    Toolchain::Git,
    Toolchain::Ruby,
    Toolchain::Php,
    Toolchain::Perl,
];

/// Returns the first toolchain that would show the command, a name or an absolute path, and is not one of `known`.
pub fn showing(host: &ToolHost, known: &[Toolchain], command: &Path) -> Option<Toolchain> {
    ALL.into_iter().filter(|toolchain| !known.contains(toolchain)).find(|toolchain| {
        let mut found = Found::default();
        look_for(*toolchain, &mut Adder { found: &mut found, host, from: Origin::Standard, auto: None });
        // `join` of an absolute path is that path.
        let places = found.path.iter().map(|entry| entry.value.join(command));
        let own = command.is_absolute().then(|| command.to_owned());
        places.chain(own).any(|place| found.shows(&place, host))
    })
}

fn look_for(toolchain: Toolchain, to: &mut Adder<'_>) {
    match toolchain {
        Toolchain::Python => python::find(to),
        Toolchain::Node => node::find(to),
        Toolchain::Rust => rust::find(to),
        Toolchain::Go => go::find(to),
        Toolchain::Java => java::find(to),
        Toolchain::Git => git::find(to),
        Toolchain::Ruby => ruby::find(to),
        Toolchain::Php => php::find(to),
        Toolchain::Perl => perl::find(to),
    }
}
