//! Package installs from the registries of this machine, with the groups that are read from its clients' configuration.
//!
//! `cargo xtask registries` has asked the clients for their registries and written an operator's `config.toml` that
//! trusts these addresses: a mirror often lies in a private range. Without it only public registries are reached.

use super::support::world::world;
use super::support::{Bench, benches, is_root, stderr, stdout, user};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Settings of the machine's clients that stand in the environment.
const SETTINGS: &[&str] =
    &["PIP_", "npm_config_", "NPM_CONFIG_", "CARGO_REGISTR", "CARGO_SOURCE_", "CARGO_HTTP_", "CARGO_NET_"];
const CERTIFICATES: &[&str] = &["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"];

/// Settings that stand in files of the home directory.
const FILES: &[&str] = &[".pip/pip.conf", ".config/pip/pip.conf", ".npmrc", ".cargo/config.toml"];

/// Returns the file that `cargo xtask registries` wrote, or an empty file.
fn operator(bench: &Bench) -> PathBuf {
    let written = Path::new(env!("CARGO_TARGET_TMPDIR")).join("operator/config.toml");
    let own = bench.base.path().join("operator.toml");
    if written.exists() {
        fs::copy(written, &own).unwrap();
    } else {
        eprintln!("no operator's settings: run cargo xtask registries, if the registries have private addresses");
        fs::write(&own, "").unwrap();
    }
    own
}

/// The user's own client configuration, in a home that is the test's.
fn configure(bench: &Bench) {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return };
    for name in FILES {
        let (from, to) = (home.join(name), bench.home.join(name));
        if from.exists() {
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(from, &to).unwrap();
        }
    }
    if let Some(uid) = bench.user {
        let status = Command::new("chown").args(["-R", &format!("{uid}:{uid}")]).arg(&bench.home).status().unwrap();
        assert!(status.success());
    }
}

/// Runs words on the machine's network as the bench's user, with the machine's client configuration.
fn on_the_machine(bench: &Bench, words: &[&str]) -> Output {
    let tools = world().tools();
    let mount = bench.base.path().join("etc");
    fs::create_dir_all(&mount).unwrap();
    let mut command = Command::new("timeout");
    command.args(["120", "unshare", "--mount"]);
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--", "bash"]).arg(tools.join("clients/operator.sh")).arg(operator(bench)).arg(&mount);
    let uid = bench.user.unwrap_or_else(user).to_string();
    if is_root() && bench.user.is_some() {
        command.args(["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups", "--"]);
    } else if !is_root() {
        command.args(["unshare", "--user", &format!("--map-user={uid}"), &format!("--map-group={uid}"), "--"]);
    }
    let path = format!("{0}/venv/bin:{0}/toolchain/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", tools.display());
    command.args(["env", "-i"]).arg(format!("PATH={path}"));
    command.arg(format!("HOME={}", bench.home.display())).arg(format!("NEXUS_STATE_DIR={}", bench.state.display()));
    for (name, value) in std::env::vars() {
        if SETTINGS.iter().any(|start| name.starts_with(start)) || CERTIFICATES.contains(&name.as_str()) {
            command.arg(format!("{name}={value}"));
        }
    }
    command.args(words).current_dir(&bench.workspace).stdin(Stdio::null()).output().unwrap()
}

/// The script inside with these flags.
fn nexus(bench: &Bench, script: &str, flags: &[&str]) -> Output {
    let tools = world().tools();
    let (program, path) =
        (bench.nexus([] as [&str; 0]), format!("{0}/venv/bin:{0}/toolchain/bin:/usr/bin:/bin", tools.display()));
    let (program, tools, path) =
        (program.get_program().to_str().unwrap(), tools.to_str().unwrap(), format!("PATH={path}"));
    let mut words = vec![program, "run", "--changes", "discard", "--ro", tools, "--env", &path];
    words.extend_from_slice(flags);
    words.extend(["--", "sh", script]);
    on_the_machine(bench, &words)
}

fn installs(client: &str) {
    let script = world().tools().join(format!("clients/registry_{client}.sh"));
    let script = script.to_str().unwrap();
    let group = format!("pkg:{client}");
    for bench in benches() {
        configure(&bench);
        // Also so that cargo has used its index before: that is how it tells where it is.
        let cargo_home = format!("CARGO_HOME={}", bench.home.join(".cargo").display());
        let outside = on_the_machine(&bench, &["env", &cargo_home, "sh", script]);
        let context = format!("{client}, {}, outside: {}", bench.who(), stderr(&outside));
        assert!(outside.status.success(), "{context}");
        let status = Command::new("find").arg(&bench.workspace).args(["-mindepth", "1", "-delete"]).status().unwrap();
        assert!(status.success());

        let inside = nexus(&bench, script, &["--allow-group", &group]);
        let context = format!("{client}, {}: {}", bench.who(), stderr(&inside));
        assert_eq!((inside.status.code(), stdout(&inside)), (Some(0), stdout(&outside)), "{context}");

        let mut rules = vec!["--net", "allowlist"];
        if client == "apt" {
            // Without its group it does not even know where to go.
            let sources = ["/etc/apt/sources.list", "/etc/apt/sources.list.d"];
            rules.extend(sources.into_iter().filter(|path| Path::new(path).exists()).flat_map(|path| ["--ro", path]));
        }
        let refused = nexus(&bench, script, &rules);
        let context = format!("{client}, {}: {}", bench.who(), stderr(&refused));
        assert!(!refused.status.success(), "{context}");
        assert!(stderr(&refused).contains("--allow "), "{context}");
    }
}

#[test]
fn pip_installs_from_the_registry_of_this_machine() {
    installs("pip");
}

#[test]
fn npm_installs_from_the_registry_of_this_machine() {
    installs("npm");
}

#[test]
fn cargo_fetches_from_the_registry_of_this_machine() {
    installs("cargo");
}

#[test]
fn apt_get_updates_from_the_repositories_of_this_machine() {
    installs("apt");
}
