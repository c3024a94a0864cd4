#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
//! Needs of package managers, from the texts of their own configuration.

use nexus_policy::net::packages::{
    Client, DefaultIndex, Login, Needs, read_apt_auth, read_apt_conf, read_apt_sources, read_cargo_config,
    read_cargo_index, read_deb822, read_npm, read_pip,
};
use std::collections::BTreeMap;

fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn urls(needs: &Needs) -> Vec<String> {
    let mut urls: Vec<String> = needs.endpoints.iter().map(nexus_policy::net::packages::Endpoint::url).collect();
    urls.sort();
    urls.dedup();
    urls
}

fn settings(needs: &Needs) -> Vec<String> {
    needs.settings.iter().map(|setting| format!("{}={}", setting.key, setting.value)).collect()
}

#[test]
fn pip_takes_indexes_certificates_and_proxies_from_files_and_environment() {
    let global = "[global]\nindex-url = https://global.test/simple/\ncert: /etc/ca.pem\nproxy = proxy.test:3128\n";
    let user = "# mine\n[global]\nindex_url = https://me:hunter2@mirror.test:8443/simple/\nextra-index-url =\n    https://one.test/s\n    http://two.test/s\n[install]\nfind-links = file:///wheels https://wheels.test/\ntrusted-host = two.test\n";
    let needs = read_pip(&[global, user], &BTreeMap::new()).unwrap();
    assert_eq!(
        urls(&needs),
        ["http://two.test/s", "https://mirror.test:8443/simple/", "https://one.test/s", "https://wheels.test/"]
    );
    assert_eq!(needs.default_index, DefaultIndex::Settled);
    assert_eq!(needs.ca_files.iter().collect::<Vec<_>>(), ["/etc/ca.pem"]);
    assert_eq!(needs.proxies.iter().map(|proxy| proxy.target.to_string()).collect::<Vec<_>>(), ["proxy.test:3128"]);
    assert!(settings(&needs).contains(&"index-url=https://mirror.test:8443/simple/".to_string()));
    let Login::Basic { user: name, password } = &needs.credentials[0].login else { panic!("{needs:?}") };
    assert_eq!((name.expose(), password.expose()), ("me", "hunter2"));
    let over =
        read_pip(&[user], &environment(&[("PIP_INDEX_URL", "https://env.test/simple"), ("PIP_CERT", "")])).unwrap();
    assert!(
        urls(&over).contains(&"https://env.test/simple".into())
            && !urls(&over).iter().any(|url| url.contains("mirror"))
    );
}

#[test]
fn a_client_without_settings_asks_for_its_own_default() {
    for needs in [
        read_pip(&["[global]\ntimeout = 5\n"], &BTreeMap::new()).unwrap(),
        read_pip(&["[download]\nindex-url = https://d.test/\n"], &BTreeMap::new()).unwrap(),
        read_npm(&["@mine:registry=https://mine.test/\n"], &BTreeMap::new()).unwrap(),
        read_cargo_config(&["[registries.mine]\nindex = \"sparse+https://mine.test/index/\"\n"], &BTreeMap::new())
            .unwrap(),
    ] {
        assert_eq!(needs.default_index, DefaultIndex::Ask, "{needs:?}");
    }
    assert_eq!(
        read_pip(&["[global]\nno-index = true\n"], &BTreeMap::new()).unwrap().default_index,
        DefaultIndex::Settled
    );
    let mut needs = Needs::default();
    needs.add_default("").unwrap_err();
    needs.add_default("https://index.test/simple\nfiles.test\n").unwrap();
    assert_eq!(urls(&needs), ["https://files.test/", "https://index.test/simple"]);
    assert_eq!(needs.default_index, DefaultIndex::Settled);
}

#[test]
fn npm_takes_registries_scopes_and_logins() {
    let text = "registry = https://r.test/npm/\n@a:registry=\"http://a.test:4873\"\n//r.test/npm/:_authToken=${TOKEN}\n//a.test:4873/:username=me\n//a.test:4873/:_password=c2VjcmV0\ncafile=/etc/ca.pem\nhttps-proxy=http://u:hunter2@p.test:8080\nproxy=null\nfund\n; note\n";
    let needs = read_npm(&[text], &environment(&[("TOKEN", "hunter2")])).unwrap();
    assert_eq!(urls(&needs), ["http://a.test:4873/", "https://r.test/npm/"]);
    assert_eq!(needs.default_index, DefaultIndex::Settled);
    assert_eq!(needs.proxies.len(), 1);
    assert_eq!(needs.ca_files.len(), 1);
    assert_eq!(needs.credentials.len(), 3);
    assert!(
        needs
            .credentials
            .iter()
            .any(|known| matches!(&known.login, Login::Token(token) if token.expose() == "hunter2"))
    );
    let over = read_npm(
        &[text],
        &environment(&[("npm_config_registry", "https://env.test/"), ("NPM_CONFIG_HTTPS_PROXY", "")]),
    )
    .unwrap();
    assert!(urls(&over).contains(&"https://env.test/".into()) && !urls(&over).contains(&"https://r.test/npm/".into()));
}

#[test]
fn cargo_follows_replacements_and_reads_where_an_index_downloads_from() {
    let home = "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+https://weak.test/index/\"\n[http]\nproxy = \"p.test:8080\"\ncainfo = \"/etc/ca.pem\"\n";
    let near = "[source.mirror]\nregistry = \"sparse+https://mirror.test/index/\"\n[registries.mine]\nindex = \"https://mine.test/git\"\ntoken = \"hunter2\"\n";
    let mut needs = read_cargo_config(&[home, near], &BTreeMap::new()).unwrap();
    assert_eq!(urls(&needs), ["https://mine.test/git", "https://mirror.test/index/"]);
    assert_eq!(needs.default_index, DefaultIndex::Settled);
    assert!(settings(&needs).contains(&"source.mirror.registry=sparse+https://mirror.test/index/".to_string()));
    assert_eq!((needs.proxies.len(), needs.ca_files.len(), needs.credentials.len()), (1, 1, 1));
    read_cargo_index(&mut needs, r#"{"dl": "https://files.test/{crate}/{version}", "api": "https://api.test"}"#)
        .unwrap();
    assert!(needs.endpoints.iter().any(|endpoint| endpoint.target.to_string() == "files.test:443"));
    let over = environment(&[
        ("CARGO_REGISTRIES_MY_OWN_INDEX", "sparse+https://env.test/"),
        ("CARGO_HTTP_PROXY", "p.test:1"),
        ("CARGO_HOME", "/x"),
    ]);
    let over = read_cargo_config(&[], &over).unwrap();
    assert_eq!((urls(&over), over.proxies.len()), (vec!["https://env.test/".to_string()], 1));
    let vendored = read_cargo_config(
        &["[source.crates-io]\nreplace-with='v'\n[source.v]\ndirectory='/vendor'\n"],
        &BTreeMap::new(),
    )
    .unwrap();
    assert!(vendored.endpoints.is_empty() && vendored.default_index == DefaultIndex::Settled);
    for circle in [
        "[source.crates-io]\nreplace-with='a'\n[source.a]\nreplace-with='crates-io'\n",
        "[source.crates-io]\nreplace-with='gone'\n",
        "[source]\ncrates-io = 1\n",
        "source = [",
    ] {
        read_cargo_config(&[circle], &BTreeMap::new()).unwrap_err();
    }
}

#[test]
fn apt_takes_both_forms_of_sources_proxies_and_logins() {
    let mut needs = Needs::default();
    read_apt_sources(&mut needs, "# x\ndeb [arch=amd64 signed-by=/k.gpg] http://one.test/debian stable main # y\ndeb-src https://two.test/debian stable main\ndeb cdrom:[x]/ stable main\ndeb mirror+https://list.test/m stable main\n").unwrap();
    let stanza = "Types: deb\nURIs: https://three.test/debian\n https://four.test:8443/debian\nSuites: stable\n\nTypes: deb\nEnabled: no\nURIs: https://off.test/\n\n# c\nURIs: file:///local\n";
    read_deb822(&mut needs, stanza).unwrap();
    assert_eq!(
        urls(&needs),
        [
            "http://one.test/debian",
            "https://four.test:8443/debian",
            "https://list.test/m",
            "https://three.test/debian",
            "https://two.test/debian",
        ]
    );
    let conf = "// c\nAcquire::http::Proxy \"http://p.test:3142\"; # d\nAcquire { https { Proxy \"DIRECT\"; CaInfo \"/etc/ca.pem\"; }; /* e */ http::Proxy::own.test \"http://q.test:1\"; };\nAPT::Install-Recommends \"0\";\n";
    read_apt_conf(&mut needs, conf).unwrap();
    assert_eq!(
        needs.proxies.iter().map(|proxy| proxy.target.to_string()).collect::<Vec<_>>(),
        ["p.test:3142", "q.test:1"]
    );
    assert_eq!(needs.ca_files.iter().collect::<Vec<_>>(), ["/etc/ca.pem"]);
    read_apt_auth(&mut needs, "machine two.test login me password hunter2\n");
    assert_eq!(needs.credentials.len(), 1);
    for bad in ["dep http://x.test a b", "deb", "deb [a http://x.test", "deb nonsense a b", "deb gopher://x.test a b"] {
        read_apt_sources(&mut Needs::default(), bad).unwrap_err();
    }
    for bad in ["A \"x", "/* x", "}"] {
        read_apt_conf(&mut Needs::default(), bad).unwrap_err();
    }
}

#[test]
fn no_credential_is_ever_shown() {
    let secret = "hunter2";
    let pip =
        read_pip(&["[global]\nindex-url = https://me:hunter2@m.test/s?token=hunter2#hunter2\n"], &BTreeMap::new())
            .unwrap();
    let npm = read_npm(
        &["registry=https://hunter2@m.test/\n//m.test/:_authToken=hunter2\n//m.test/:_auth=hunter2\n"],
        &BTreeMap::new(),
    )
    .unwrap();
    let cargo = read_cargo_config(&["[registries.m]\nindex='sparse+https://u:hunter2@m.test/'\ntoken='hunter2'\n[http]\nproxy='http://u:hunter2@p.test'\n"], &BTreeMap::new()).unwrap();
    let mut apt = Needs::default();
    read_apt_sources(&mut apt, "deb https://me:hunter2@m.test/debian a b\n").unwrap();
    read_apt_auth(&mut apt, "machine m.test login hunter2 password hunter2");
    for needs in [pip, npm, cargo, apt] {
        assert!(!needs.credentials.is_empty());
        assert!(!format!("{needs:?}").contains(secret), "{needs:?}");
        assert!(!format!("{:?}", needs.rules(Client::Pip)).contains(secret));
    }
    for error in [
        read_pip(&["[global]\nindex-url = https://me:hunter2@\n"], &BTreeMap::new()).unwrap_err(),
        read_pip(&["[global]\nindex-url = hunter2\n"], &BTreeMap::new()).unwrap_err(),
        read_pip(&["hunter2\n"], &BTreeMap::new()).unwrap_err(),
        read_npm(&["registry=ftp://me:hunter2@x.test\n"], &BTreeMap::new()).unwrap_err(),
        read_cargo_config(&["[registries.m]\ntoken=hunter2\n"], &BTreeMap::new()).unwrap_err(),
        read_cargo_index(&mut Needs::default(), "{\"dl\": hunter2}").unwrap_err(),
    ] {
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
}

#[test]
fn rules_of_a_group_are_exact_hosts_and_an_address_needs_its_own_flag() {
    let mut needs = read_pip(
        &["[global]\nindex-url = https://M.test/s\nextra-index-url = http://10.0.0.5:3141/ https://[fd00::5]/\n"],
        &BTreeMap::new(),
    )
    .unwrap();
    let (rules, left) = needs.rules(Client::Pip);
    assert_eq!(rules.iter().map(|rule| format!("{}:{}", rule.pattern, rule.ports)).collect::<Vec<_>>(), ["m.test:443"]);
    assert!(rules.iter().all(|rule| !rule.private && rule.tls == Some(true) && rule.source.text == "pkg:pip"));
    let mut flags: Vec<&str> = left.iter().map(|left| left.flag.as_str()).collect();
    flags.sort_unstable();
    assert_eq!(flags, ["--allow-private 10.0.0.5:3141", "--allow-private [fd00::5]:443"]);
    needs.add_default("0x7f.1").unwrap();
    assert_eq!(needs.rules(Client::Pip).1.len(), 3);
}
