//! Real clients against real servers, through the egress: what they do inside is what they do outside, and what is not
//! allowed is refused at once, with its reason.
//!
//! The servers and names of `support::world` are the same for every client: `allowed.test` and `other.test` lead to the
//! same servers, so that a difference between them is the product's doing. What each script of `tests/clients/` prints
//! is compared.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

#[path = "clients/registries.rs"]
mod registries;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::world::{Ran, World, world};
use support::{Bench, benches, is_root, stderr, stdout, user};

/// A refused client ends this long after the same client would have ended that reached its server.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A client and what it needs.
struct Client {
    /// The script of `tests/clients/` without `.sh`.
    name: &'static str,
    /// The ports of its server.
    ports: &'static [u16],
    /// Further flags of `nexus run`.
    flags: &'static [&'static str],
}

const fn client(name: &'static str, ports: &'static [u16]) -> Client {
    Client { name, ports, flags: &[] }
}

const CURL: Client = client("curl", &[80, 443]);
const GIT_HTTPS: Client = client("git_https", &[443]);
const GIT_SSH: Client = client("git_ssh", &[22]);
const PIP: Client = client("pip", &[443]);
const NPM: Client = client("npm", &[443]);
const CARGO: Client = client("cargo", &[443]);
const APT: Client = client("apt", &[80, 443]);
const PSQL: Client = client("psql", &[5432]);
const REDIS: Client = client("redis", &[6379]);
const STATIC_TCP: Client = client("static_tcp", &[6379]);
const REQUESTS: Client = client("python_requests", &[443]);
const HTTPX: Client = client("python_httpx", &[443]);
const AIOHTTP: Client = client("python_aiohttp", &[443]);
const NODE: Client = client("node", &[443]);
// Debian's Java reads its security settings from a directory in /etc, which the profile shows.
const JAVA: Client = Client { name: "java", ports: &[443], flags: &["--profile", "java"] };

const ALL: &[&Client] = &[
    &CURL,
    &GIT_HTTPS,
    &GIT_SSH,
    &PIP,
    &NPM,
    &CARGO,
    &APT,
    &PSQL,
    &REDIS,
    &STATIC_TCP,
    &REQUESTS,
    &HTTPX,
    &AIOHTTP,
    &NODE,
    &JAVA,
];

/// The environment of a script, inside and outside: whom to ask, and where the certificates of the world are.
fn environment(world: &World, host: &str) -> Vec<(String, String)> {
    static RUN: AtomicU32 = AtomicU32::new(0);
    let certificates = "/etc/ssl/certs/ca-certificates.crt";
    let own = [
        ("HOST", host.to_owned()),
        ("TOOLS", world.tools().to_str().unwrap().to_owned()),
        ("SRV", world.served().to_str().unwrap().to_owned()),
        ("RUN", format!("run-{}", RUN.fetch_add(1, Ordering::Relaxed))),
    ];
    let fixed = [
        // Node, pip and Python come with authorities of their own.
        ("NODE_EXTRA_CA_CERTS", certificates),
        ("PIP_CERT", certificates),
        ("REQUESTS_CA_BUNDLE", certificates),
        ("SSL_CERT_FILE", certificates),
        ("GIT_AUTHOR_NAME", "Ada"),
        ("GIT_AUTHOR_EMAIL", "ada@example.com"),
        ("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z"),
        ("GIT_COMMITTER_NAME", "Ada"),
        ("GIT_COMMITTER_EMAIL", "ada@example.com"),
        ("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z"),
    ];
    let fixed = fixed.map(|(name, value)| (name, value.to_owned()));
    own.into_iter().chain(fixed).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn script(world: &World, client: &Client) -> [String; 2] {
    ["sh".to_owned(), world.tools().join(format!("clients/{}.sh", client.name)).to_str().unwrap().to_owned()]
}

/// The client without `nexus`, as an ordinary user.
fn outside(client: &Client, host: &str) -> Ran {
    let world = world();
    let bench = Bench::new(is_root().then(user));
    let mut environment = environment(world, host);
    environment.push(("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()));
    environment.push(("HOME".into(), bench.home.to_str().unwrap().into()));
    world.run(&bench, Some(user()), &environment, &script(world, client))
}

/// The client inside, with these rules; in an empty workspace that keeps nothing.
fn inside(bench: &Bench, client: &Client, rules: &[String], host: &str) -> Ran {
    let world = world();
    let mut arguments: Vec<String> = ["run", "--changes", "discard", "--ro"].map(str::to_owned).into();
    arguments.push(world.tools().to_str().unwrap().to_owned());
    for (name, value) in environment(world, host) {
        arguments.extend(["--env".to_owned(), format!("{name}={value}")]);
    }
    arguments.extend(client.flags.iter().map(|flag| (*flag).to_owned()));
    arguments.extend_from_slice(rules);
    arguments.push("--".to_owned());
    arguments.extend(script(world, client));
    world.nexus(bench, &arguments)
}

/// `--allow` for each port of the client.
fn allow(client: &Client, host: &str) -> Vec<String> {
    client.ports.iter().flat_map(|port| ["--allow".to_owned(), format!("{host}:{port}")]).collect()
}

/// The client works against `allowed.test` as outside, and is refused by `other.test`, as root and as a user.
fn works_and_is_refused(client: &Client) {
    let name = client.name;
    let wanted = outside(client, "allowed.test");
    assert!(wanted.output.status.success(), "{name} outside: {}", stderr(&wanted.output));
    for bench in benches() {
        let who = bench.who();
        let rules = allow(client, "allowed.test");
        let found = inside(&bench, client, &rules, "allowed.test");
        let context = format!("{name}, {who}: {}", stderr(&found.output));
        assert_eq!(found.output.status.code(), Some(0), "{context}");
        assert_eq!(stdout(&found.output), stdout(&wanted.output), "{context}");

        let refused = inside(&bench, client, &rules, "other.test");
        let told = stderr(&refused.output);
        let code = refused.output.status.code().unwrap();
        assert!(code != 0 && code != 124 && code != 125, "{name}, {who}: exit code {code}: {told}");
        assert!(told.contains("blocked: other.test"), "{name}, {who}: no reason: {told}");
        assert!(told.contains("--allow other.test"), "{name}, {who}: no flag that would allow it: {told}");
        assert!(refused.took < wanted.took + AT_ONCE, "{name}, {who}: refused after {:?}: {told}", refused.took);
        eprintln!(
            "{name}, {who}: {:.1?} outside, {:.1?} inside, refused in {:.1?}",
            wanted.took, found.took, refused.took
        );
    }
}

/// Otherwise a refusal inside would prove nothing.
#[test]
fn every_client_works_outside_against_the_name_that_is_refused_inside() {
    for client in ALL {
        let [allowed, other] = ["allowed.test", "other.test"].map(|host| outside(client, host));
        for (host, ran) in [("allowed.test", &allowed), ("other.test", &other)] {
            assert!(ran.output.status.success(), "{}, {host}: {}", client.name, stderr(&ran.output));
        }
        let printed = stdout(&allowed.output);
        assert!(!printed.trim().is_empty(), "{} prints nothing to compare", client.name);
        assert_eq!(printed, stdout(&other.output), "{}", client.name);
        eprintln!("{}: {:.1?}, {:.1?} outside", client.name, allowed.took, other.took);
    }
}

/// Nor would one of these names.
#[test]
fn every_name_of_the_world_leads_to_the_servers() {
    for host in ["a.allowed.test", "private.test", "mixed.test", "v4.test", "v6.test"] {
        let ran = outside(&CURL, host);
        assert!(ran.output.status.success(), "{host}: {}", stderr(&ran.output));
    }
    let ran = outside(&CURL, "no-such.test");
    assert_eq!(ran.output.status.code(), Some(6), "curl could not resolve it: {}", stderr(&ran.output));
}

#[test]
fn curl_over_http_and_https_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&CURL);
}

#[test]
fn git_clones_and_pushes_over_https_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&GIT_HTTPS);
}

#[test]
fn git_clones_and_pushes_over_ssh_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&GIT_SSH);
}

#[test]
fn pip_installs_a_wheel_and_a_source_archive_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&PIP);
}

#[test]
fn npm_installs_from_a_lock_file_and_without_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&NPM);
}

#[test]
fn cargo_fetches_from_a_sparse_index_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&CARGO);
}

#[test]
fn apt_get_updates_and_downloads_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&APT);
}

#[test]
fn psql_with_and_without_tls_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&PSQL);
}

#[test]
fn redis_cli_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&REDIS);
}

#[test]
fn a_static_program_that_knows_no_proxy_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&STATIC_TCP);
}

#[test]
fn python_requests_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&REQUESTS);
}

#[test]
fn python_httpx_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&HTTPX);
}

#[test]
fn python_aiohttp_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&AIOHTTP);
}

#[test]
fn node_fetch_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&NODE);
}

#[test]
fn java_http_client_works_where_allowed_and_is_refused_at_once_elsewhere() {
    works_and_is_refused(&JAVA);
}

/// The name is allowed; where it leads is not.
#[test]
fn an_allowed_name_that_leads_to_a_private_address_is_refused_unless_that_is_allowed_too() {
    let wanted = outside(&CURL, "private.test");
    for bench in benches() {
        for host in ["private.test", "mixed.test"] {
            let refused = inside(&bench, &CURL, &allow(&CURL, host), host);
            let told = stderr(&refused.output);
            assert!(!refused.output.status.success(), "{}, {host}: {told}", bench.who());
            assert!(told.contains(&format!("--allow-private {host}")), "{}, {host}: {told}", bench.who());
        }
        let private: Vec<_> =
            CURL.ports.iter().flat_map(|port| ["--allow-private".to_owned(), format!("private.test:{port}")]).collect();
        let found = inside(&bench, &CURL, &private, "private.test");
        assert_eq!(stdout(&found.output), stdout(&wanted.output), "{}: {}", bench.who(), stderr(&found.output));
    }
}

/// One family is enough, and a wildcard reaches the names below it.
#[test]
fn names_of_one_address_family_and_names_under_a_wildcard_work() {
    for bench in benches() {
        for (host, rule) in [("v4.test", "v4.test"), ("v6.test", "v6.test"), ("a.allowed.test", "*.allowed.test")] {
            for client in [&CURL, &STATIC_TCP] {
                let wanted = outside(client, host);
                let found = inside(&bench, client, &allow(client, rule), host);
                let context = format!("{}, {}, {host}: {}", client.name, bench.who(), stderr(&found.output));
                assert!(found.output.status.success(), "{context}");
                assert_eq!(stdout(&found.output), stdout(&wanted.output), "{context}");
            }
        }
        let apex = inside(&bench, &STATIC_TCP, &allow(&STATIC_TCP, "*.allowed.test"), "allowed.test");
        assert!(!apex.output.status.success(), "{}: the apex is not beneath itself", bench.who());
    }
}

/// The flag of the summary is not just text.
#[test]
fn the_flags_that_the_summary_offers_let_the_client_work() {
    for (bench, client) in benches().iter().flat_map(|bench| [(bench, &CURL), (bench, &REDIS)]) {
        let wanted = outside(client, "other.test");
        let mut rules = allow(client, "allowed.test");
        // A client stops at its first refusal: one round for each port, and one for a name that was not even looked up.
        let mut found = inside(bench, client, &rules, "other.test");
        for _ in 0..=client.ports.len() {
            if found.output.status.success() {
                break;
            }
            let told = stderr(&found.output);
            let offered = told.split_whitespace().skip_while(|word| *word != "--allow").nth(1);
            let offered = offered.unwrap_or_else(|| panic!("{}, {}: no flag: {told}", client.name, bench.who()));
            assert!(offered.starts_with("other.test"), "{offered}: {told}");
            rules.extend(["--allow".to_owned(), offered.to_owned()]);
            found = inside(bench, client, &rules, "other.test");
        }
        let context = format!("{}, {}, {rules:?}: {}", client.name, bench.who(), stderr(&found.output));
        assert!(found.output.status.success(), "{context}");
        assert_eq!(stdout(&found.output), stdout(&wanted.output), "{context}");
    }
}
