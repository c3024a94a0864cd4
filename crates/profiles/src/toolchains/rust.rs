//! Rust. rustup's `cargo` and `rustc` are one program that starts the chosen toolchain from `RUSTUP_HOME`, which is
//! shown read-only. `CARGO_HOME` has the path that it has outside, and is private and empty except for earlier downloads:
//! crates and git checkouts read-only when there is no network, and the settings without anything that could be a secret
//! or a command of the host. With a network cargo downloads into its private directory, since it cannot add to a read-only
//! one. The path is the same because the fingerprints of a build hold it: with another one cargo compiles everything again
//! in a run after a build outside, and outside after a run.

use super::adder::Adder;
use super::host::{self, Tool};
use super::reading;
use nexus_model::plan::HOME;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Shows the Rust toolchain, the settings of cargo and, without a network, its downloads.
pub fn find(to: &mut Adder<'_>) {
    let Some(tool) = to.find(&["cargo", "rustc"]) else {
        to.note("cargo was not found on PATH");
        return;
    };
    if is_rustup(&tool) {
        rustup(to, &tool);
    } else {
        to.show_program(&tool, "the directory of Rust");
    }
    let Some(cargo_home) = to.directory_of("CARGO_HOME", |_| true).or_else(|| to.host.in_home(".cargo")) else {
        return;
    };
    let usual = Path::new(HOME).join(".cargo");
    let kept = to.path_of("CARGO_HOME", ".cargo");
    let inside = match to.keep_home("CARGO_HOME", kept) {
        Some(path) => {
            // Programs that the command installs are private as before: the caller's own lie in the home that keeps its path.
            to.set("CARGO_INSTALL_ROOT", usual.as_os_str());
            path
        }
        None => usual,
    };
    if !to.host.network {
        const DOWNLOADS: &[(&str, &str, &[&str])] = &[
            ("registry", "downloaded crates", &["index", "cache", "src"]),
            ("git", "downloaded git dependencies", &["db", "checkouts"]),
        ];
        for (name, why, marks) in DOWNLOADS {
            let is_marked = |directory: &PathBuf| marks.iter().any(|name| directory.join(name).is_dir());
            if let Some(directory) = to.host.directory(&cargo_home.join(name)).filter(is_marked) {
                to.show_unsearched(&directory, &inside.join(name), why);
            }
        }
        to.set("CARGO_NET_OFFLINE", "true");
    }
    let settings = ["config.toml", "config"].iter().find_map(|name| to.host.settings(&cargo_home.join(name)));
    let Some(settings) = settings else { return };
    let text = reading::small(&settings).and_then(|bytes| String::from_utf8(bytes).ok());
    match text.ok_or_else(|| "it is not a small text".to_owned()).and_then(|text| without_secrets(&text)) {
        Ok(text) if text.is_empty() => {}
        Ok(text) => {
            to.show_made(text.into_bytes(), inside.join("config.toml"), "cargo's settings without secrets");
        }
        Err(error) => to.note(format!("{} is not shown: {error}", settings.display())),
    }
}

/// Reports whether a program is that of rustup, which has one for all names: a link to it, or the same file by a second name.
fn is_rustup(tool: &Tool) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    tool.real.file_name().is_some_and(|name| name == "rustup")
        || tool
            .real
            .parent()
            .and_then(|bin| identity(&bin.join("rustup")))
            .is_some_and(|one| Some(one) == identity(&tool.real))
}

fn rustup(to: &mut Adder<'_>, tool: &Tool) {
    let Some(home) = to
        .directory_of("RUSTUP_HOME", |directory| directory.join("toolchains").is_dir())
        .or_else(|| to.host.in_home(".rustup"))
    else {
        to.note("cargo is rustup's, and there is no RUSTUP_HOME");
        return;
    };
    to.show(&home, "the toolchains of rustup");
    to.set("RUSTUP_HOME", home.as_os_str());
    // A missing toolchain cannot be installed into a read-only directory.
    to.set("RUSTUP_AUTO_INSTALL", "0");
    to.because(|| format!("{} on PATH", tool.entry.display()));
    to.found_in_workspace(tool);
    if host::is_system(&tool.entry) {
        return;
    }
    // `~/.cargo/bin` holds programs alone; another directory may hold anything.
    let own = if to.auto.is_none() {
        tool.entry.ends_with(".cargo/bin") || tool.entry.ends_with("cargo/bin")
    } else {
        // A project may have a directory of that name.
        let usual = to.host.home.as_ref().map(|home| home.join(".cargo"));
        let named = to.host.caller.variable("CARGO_HOME").map(PathBuf::from);
        usual.into_iter().chain(named).any(|home| tool.entry == home.join("bin"))
    };
    match to.host.directory(&tool.entry) {
        Some(directory) if own => to.show_at(&directory, &tool.entry, "programs of cargo and rustup"),
        _ => {
            for name in ["cargo", "rustc", "rustdoc", "rustfmt", "cargo-fmt", "clippy-driver", "cargo-clippy", "rustup"]
            {
                let file = tool.entry.join(name);
                if let Some(real) = to.host.file_in(&tool.entry, name) {
                    to.show_at(&real, &file, "a program of rustup");
                }
            }
        }
    }
    to.path(&tool.entry);
}

/// Returns the part of cargo's settings that a build needs and that names neither a secret nor a program: sources of
/// crates, and code generation. `token`, `credential-provider`, runners, wrappers, `env` and aliases stay out, and so
/// does an address with a password in it.
fn without_secrets(text: &str) -> Result<String, String> {
    let all: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let mut kept = Table::new();
    let keep = |kept: &mut Table, section: &str, names: &[&str]| {
        let Some(Value::Table(from)) = all.get(section) else { return };
        let picked = picked(from, names);
        if !picked.is_empty() {
            kept.insert(section.to_owned(), Value::Table(picked));
        }
    };
    const SOURCE: &[&str] = &["replace-with", "registry", "local-registry", "directory", "git", "branch", "tag", "rev"];
    for (section, names) in
        [("source", SOURCE), ("registries", &["index", "protocol"][..]), ("target", &["rustflags"][..])]
    {
        let Some(Value::Table(entries)) = all.get(section) else { continue };
        let mut out = Table::new();
        for (name, entry) in entries {
            if let Value::Table(entry) = entry {
                out.insert(name.clone(), Value::Table(picked(entry, names)));
            }
        }
        kept.insert(section.to_owned(), Value::Table(out));
    }
    keep(&mut kept, "registry", &["default"]);
    keep(&mut kept, "build", &["rustflags", "rustdocflags", "target", "incremental", "jobs"]);
    keep(&mut kept, "net", &["retry", "offline"]);
    if kept.is_empty() {
        return Ok(String::new());
    }
    toml::to_string(&kept).map_err(|error| error.to_string())
}

fn picked(from: &Table, names: &[&str]) -> Table {
    let chosen = from.iter().filter(|(name, value)| names.contains(&name.as_str()) && !has_password(value));
    chosen.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Reports whether an address may hold a login: `https://user:password@host/`, a token in the place of the user, or a
/// query.
fn has_password(value: &Value) -> bool {
    let Value::String(text) = value else { return false };
    let Some((_, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.contains('@') || text.contains('?')
}

#[cfg(test)]
mod tests {
    use super::super::adder::tests::found_by;
    use super::super::found::{Found, FoundHome, FoundSource};
    use super::super::host::tests::Scene;
    use super::*;
    use nexus_policy::profile::Origin;

    fn scene() -> Scene {
        let mut scene = Scene::new();
        scene.file(".cargo/bin/rustup", "");
        std::os::unix::fs::symlink("rustup", scene.home().join(".cargo/bin/cargo")).unwrap();
        scene.file(".cargo/credentials.toml", "token = \"secret\"");
        scene.file(".cargo/registry/cache/x.crate", "");
        scene.file(".rustup/settings.toml", "");
        scene.on_path(".cargo/bin");
        scene
    }

    fn targets(found: &Found) -> Vec<String> {
        found.binds.iter().map(|bind| bind.target.display().to_string()).collect()
    }

    #[test]
    fn rustup_is_shown_with_what_was_downloaded_and_without_credentials() {
        let scene = scene();
        let found = found_by(&scene, find);
        let home = scene.home().display().to_string();
        assert_eq!(
            targets(&found),
            [format!("{home}/.rustup"), format!("{home}/.cargo/bin"), format!("{home}/.cargo/registry")]
        );
        assert_eq!(found.homes, [FoundHome { variable: "CARGO_HOME", path: scene.home().join(".cargo") }]);
        assert_eq!(found.env["CARGO_HOME"].value, scene.home().join(".cargo").as_os_str());
        assert_eq!(found.env["RUSTUP_HOME"].value, scene.home().join(".rustup").as_os_str());
        assert_eq!(found.path[0].value, scene.home().join(".cargo/bin"));
    }

    #[test]
    fn with_a_network_the_downloads_are_private() {
        let mut scene = scene();
        scene.host.network = true;
        let found = found_by(&scene, find);
        assert!(!targets(&found).iter().any(|target| target.ends_with("registry")));
        assert!(!found.env.contains_key("CARGO_NET_OFFLINE"));
    }

    #[test]
    fn a_home_without_room_at_its_path_is_the_usual_one() {
        for (value, other) in
            [("HOME/.rustup/x", None), ("HOME/mod", Some("mod")), ("HOME/mod/x", Some("mod")), ("HOME/a", Some("a/b"))]
        {
            let mut scene = scene();
            let value = value.replace("HOME", scene.home().to_str().unwrap());
            scene.host.caller.variables.insert("CARGO_HOME".into(), value.clone().into());
            let mut found = Found::default();
            found.homes.extend(other.map(|other| FoundHome { variable: "GOMODCACHE", path: scene.home().join(other) }));
            find(&mut Adder { found: &mut found, host: &scene.host, from: Origin::Standard, auto: None });
            assert!(found.homes.iter().all(|home| home.variable != "CARGO_HOME"), "{value}: {:?}", found.homes);
            assert!(!targets(&found).iter().any(|target| target.starts_with(&value)), "{value}: {:?}", targets(&found));
        }
    }

    #[test]
    fn the_home_of_cargo_keeps_its_path_where_it_can_be_private() {
        let homes = |value: &str| {
            let mut scene = scene();
            scene
                .host
                .caller
                .variables
                .insert("CARGO_HOME".into(), value.replace("HOME", scene.home().to_str().unwrap()).into());
            let found = found_by(&scene, find);
            let homes: Vec<_> = found.homes.iter().map(|home| home.path.clone()).collect();
            assert_eq!(found.env.contains_key("CARGO_HOME"), !homes.is_empty());
            (homes.first().cloned(), scene.home())
        };
        let (kept, home) = homes("HOME//other/cargo/");
        assert_eq!(kept, Some(home.join("other/cargo")));
        // A relative one counts for no program.
        let (kept, home) = homes("cargo");
        assert_eq!(kept, Some(home.join(".cargo")));
        for elsewhere in [
            "HOME",
            "HOME/code/ws",
            "HOME/code/ws/.cargo",
            "/usr/local/cargo",
            "/etc/cargo",
            "/cargo",
            "/",
            "/srv/../x",
        ] {
            assert_eq!(homes(elsewhere).0, None, "{elsewhere}");
        }
    }

    #[test]
    fn the_settings_keep_what_a_build_needs_and_lose_every_secret() {
        let text = r#"
[source.crates-io]
replace-with = "mirror"
[source.mirror]
registry = "sparse+https://crates.example/index/"
[source.private]
registry = "https://me:secret1@crates.example/"
[registries.corp]
index = "sparse+https://corp.example/"
token = "secret2"
credential-provider = ["/bin/secret3"]
[registry]
token = "secret4"
default = "corp"
[build]
rustc-wrapper = "/home/me/secret5"
jobs = 2
[env]
API_KEY = "secret6"
[alias]
x = "run --release"
[target.x86_64-unknown-linux-gnu]
runner = "secret7"
rustflags = ["-Cdebuginfo=0"]
[http]
proxy = "http://me:secret8@proxy"
"#;
        let kept = without_secrets(text).unwrap();
        assert!(!kept.contains("secret"), "{kept}");
        for needed in [
            "replace-with = \"mirror\"",
            "crates.example/index",
            "corp.example",
            "default = \"corp\"",
            "jobs = 2",
            "debuginfo",
        ] {
            assert!(kept.contains(needed), "{needed}: {kept}");
        }
        assert_eq!(without_secrets("[env]\nA = \"b\"\n").unwrap(), "");
        assert!(without_secrets("[").is_err());

        let scene = scene();
        scene.file(".cargo/config.toml", text);
        let found = found_by(&scene, find);
        let made = found.binds.iter().find(|bind| bind.target.ends_with("config.toml")).unwrap();
        assert!(matches!(&made.source, FoundSource::Made(bytes) if bytes == kept.as_bytes()));
    }
}
