//! Reports the connections that the egress blocked during a run.

use nexus_egress::Denied;
use nexus_model::ByteText;
use nexus_policy::net::{DenyCode, Name, Origin, Pattern, Policy, Port, Rule, builtin_groups};
use nexus_policy::profile::closest;
use nexus_runner::net::ended::NetworkEnd;

/// Blocked destinations that are listed.
const MAX_SHOWN: usize = 20;

/// Flags that one line has.
const MAX_FLAGS: usize = 20;

/// Hosts of a group that are named beside one of them.
const MAX_OF_GROUP: usize = 8;

/// Returns the group of the package client that a command is, read from the caller's own settings when a run asks for it.
pub fn client_group(argv: &[ByteText]) -> Option<&'static str> {
    let name = |word: &ByteText| word.as_path().file_name().map(|name| name.to_string_lossy().into_owned());
    let words: Vec<String> = argv.iter().filter_map(name).take(3).collect();
    let client = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [python, "-m", module] if python.starts_with("python") => module,
        [first, ..] => first,
        [] => return None,
    };
    match client {
        "pip" | "pip3" | "uv" => Some("pkg:pip"),
        "npm" | "npx" | "yarn" | "pnpm" => Some("pkg:npm"),
        "cargo" => Some("pkg:cargo"),
        "apt" | "apt-get" => Some("pkg:apt"),
        _ => None,
    }
}

/// A single name that a rule allows.
pub struct Named {
    /// Name that was looked up.
    pub host: String,
    /// True for a name of a group, of which a command needs several.
    pub of_group: bool,
}

/// Lists the single names that rules allow.
pub fn named(policy: &Policy) -> Vec<Named> {
    let name = |rule: &Rule| match &rule.pattern {
        Pattern::Exact(name) => {
            Some(Named { host: name.as_str().to_owned(), of_group: rule.source.origin == Origin::Group })
        }
        Pattern::Below(_) => None,
    };
    policy.allowed_names().iter().filter_map(name).collect()
}

/// Lines for a person: what was blocked, each with the flag that would allow it, and then the flags for all of it. `named` are
/// the names that rules allow: a blocked host that is nearly one of them was perhaps meant. `client` is the group of the
/// command, if it is a package client.
pub fn lines(ended: &NetworkEnd, named: &[Named], client: Option<&str>) -> Vec<String> {
    let mut lines: Vec<String> = ended.problem.iter().chain(&ended.notes).cloned().collect();
    let blocked = blocked(&ended.summary.denied);
    lines.extend(blocked.iter().take(MAX_SHOWN).map(|denied| line(denied, named)));
    // The summary is cut for allowed destinations, too; then nothing blocked is missing.
    let is_cut = ended.summary.truncated && !blocked.is_empty();
    if blocked.len() > MAX_SHOWN || is_cut {
        let more = blocked.len().saturating_sub(MAX_SHOWN);
        let more = if more == 0 {
            "perhaps others".to_owned()
        } else if is_cut {
            format!("more than {more} more")
        } else {
            format!("{more} more")
        };
        lines.push(format!("blocked: … and {more} (nexus net log)"));
    }
    lines.extend(all_at_once(&blocked, client));
    lines.extend(rest_of_group(ended, &blocked, named));
    if ended.summary.audit_lost > 0 {
        let lost = ended.summary.audit_lost;
        lines.push(format!("the record of the network did not take {lost} lines: what is not recorded is blocked"));
    }
    lines
}

/// Returns one entry for each flag that would help, and one for each destination that no flag opens. A name that was
/// asked for says nothing more once a connection to its host was blocked.
fn blocked(denied: &[Denied]) -> Vec<&Denied> {
    let mut kept: Vec<&Denied> = Vec::new();
    for one in denied {
        let by_connection = |other: &&Denied| other.host == one.host && other.code != DenyCode::DnsDenied;
        if one.code == DenyCode::DnsDenied && denied.iter().any(|other| by_connection(&other)) {
            continue;
        }
        let same = |other: &Denied| match &one.allow_with {
            Some(flag) => other.allow_with.as_ref() == Some(flag),
            None => (&other.host, other.port, other.code) == (&one.host, one.port, one.code),
        };
        if !kept.iter().any(|other| same(other)) {
            kept.push(one);
        }
    }
    kept
}

/// Returns the line with which one more run is enough: the flags for all that was blocked, and the group that holds it.
fn all_at_once(blocked: &[&Denied], client: Option<&str>) -> Option<String> {
    let flags: Vec<&str> = blocked.iter().filter_map(|denied| denied.allow_with.as_deref()).collect();
    let by_name = flags.iter().any(|flag| flag.starts_with("--allow "));
    let group = group_of(blocked).or_else(|| client.filter(|_| by_name).map(str::to_owned));
    let all = (2..=MAX_FLAGS).contains(&flags.len()).then(|| flags.join(" "));
    match (all, group) {
        (Some(all), Some(group)) if Some(&*group) == client => {
            Some(format!("to allow all of that: {all}; --allow-group {group} has the hosts of your own settings"))
        }
        (None, Some(group)) if Some(&*group) == client => {
            Some(format!("--allow-group {group} has the hosts of your own settings"))
        }
        (Some(all), Some(group)) => Some(format!("to allow all of that: --allow-group {group}, or {all}")),
        (Some(all), None) => Some(format!("to allow all of that: {all}")),
        (None, Some(group)) => Some(format!("--allow-group {group} allows that, too")),
        (None, None) => None,
    }
}

/// Returns the flags for the hosts of a group that the command did not get to, since another one of the group leads to a private
/// address: behind a mirror all of them do, and each would cost one more run. A group comes from the caller's own choice alone.
fn rest_of_group(ended: &NetworkEnd, blocked: &[&Denied], named: &[Named]) -> Option<String> {
    let group = || named.iter().filter(|one| one.of_group).map(|one| one.host.as_str());
    let private = |denied: &&&Denied| denied.code == DenyCode::PrivateDestination && denied.allow_with.is_some();
    let first = blocked.iter().filter(private).find(|denied| group().any(|host| host == denied.host))?;
    let is_known = |host: &str| {
        blocked.iter().any(|denied| denied.host == host)
            || ended.summary.allowed.iter().any(|allowed| allowed.host == host)
    };
    let mut rest: Vec<&str> = group().filter(|host| !is_known(host)).collect();
    rest.sort_unstable();
    rest.dedup();
    if rest.is_empty() || rest.len() > MAX_OF_GROUP {
        return None;
    }
    let flags: Vec<String> = rest.iter().map(|host| format!("--allow-private {host}:{}", first.port)).collect();
    Some(format!("behind the same mirror the other hosts of the group need the same: {}", flags.join(" ")))
}

/// Returns the group of code hosts that allows everything that was blocked and that a flag opens. Groups of package clients are
/// read from the clients' own settings, when they are asked for.
fn group_of(blocked: &[&Denied]) -> Option<String> {
    let wanted: Vec<(Name, Port)> = blocked
        .iter()
        .filter(|denied| denied.allow_with.as_deref().is_some_and(|flag| flag.starts_with("--allow ")))
        .map(|denied| Some((Name::parse(&denied.host).ok()?, Port::new(denied.port).ok()?)))
        .collect::<Option<_>>()?;
    let allows = |rule: &Rule, (name, port): &(Name, Port)| {
        let is_named = match &rule.pattern {
            Pattern::Exact(exact) => exact == name,
            Pattern::Below(base) => name.parents().any(|parent| parent == base.as_str()),
        };
        is_named && rule.ports.contains(*port)
    };
    let groups = builtin_groups().ok()?;
    let holds_all = |rules: &Vec<Rule>| wanted.iter().all(|one| rules.iter().any(|rule| allows(rule, one)));
    groups.into_iter().find(|(_, rules)| !wanted.is_empty() && holds_all(rules)).map(|(name, _)| name)
}

/// Reports whether two hosts differ in one part alone, which is long enough that a few letters of difference are a slip: api and
/// raw are two hosts.
fn is_slip(host: &str, name: &str) -> bool {
    const MIN_PART: usize = 5;
    let (left, right): (Vec<&str>, Vec<&str>) = (host.split('.').collect(), name.split('.').collect());
    let mut other = left.iter().zip(&right).filter(|(one, two)| one != two);
    match (left.len() == right.len(), other.next(), other.next()) {
        (true, Some((one, two)), None) => one.len() >= MIN_PART && closest(one, [*two]).is_some(),
        _ => false,
    }
}

fn line(denied: &Denied, named: &[Named]) -> String {
    let Denied { host, port, count, explanation, allow_with, code } = denied;
    let what = match (host.as_str(), port) {
        ("", _) => "a request".to_owned(),
        (host, 0) => host.to_owned(),
        (host, port) if host.contains(':') => format!("[{host}]:{port}"),
        (host, port) => format!("{host}:{port}"),
    };
    let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
    let how = match allow_with {
        Some(flag) => format!("allow it with {flag}"),
        None => "no flag opens it".to_owned(),
    };
    let is_unknown = matches!(code, DenyCode::NotInAllowlist | DenyCode::DnsDenied);
    let meant = named.iter().map(|one| one.host.as_str()).find(|name| is_unknown && is_slip(host, name));
    let meant = meant.map(|meant| format!(" (a rule allows {meant}: is one of them a slip?)")).unwrap_or_default();
    format!("blocked: {what}{times}: {explanation}{meant}; {how}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_egress::Summary;

    fn denied(host: &str, port: u16, code: DenyCode, flag: Option<&str>) -> Denied {
        let allow_with = flag.map(str::to_owned);
        Denied { host: host.into(), port, code, count: 1, allow_with, explanation: "no".into() }
    }

    fn told(denied: Vec<Denied>) -> Vec<String> {
        lines(&NetworkEnd { summary: Summary { denied, ..Summary::default() }, ..NetworkEnd::default() }, &[], None)
    }

    fn by_rule(host: &str) -> Named {
        Named { host: host.to_owned(), of_group: false }
    }

    #[test]
    fn the_other_hosts_of_a_group_behind_a_mirror_are_named_at_once() {
        let end = |code, flag| {
            let denied = vec![denied("index.test", 443, code, flag)];
            let allowed = nexus_egress::Allowed {
                host: "done.test".into(),
                port: 443,
                connections: 1,
                bytes_up: 0,
                bytes_down: 0,
            };
            NetworkEnd {
                summary: Summary { denied, allowed: vec![allowed], ..Summary::default() },
                ..NetworkEnd::default()
            }
        };
        let of_group = |host: &str| Named { host: host.to_owned(), of_group: true };
        let group = ["index.test", "files.test", "done.test"].map(of_group);
        let flag = Some("--allow-private index.test:443");
        let all = lines(&end(DenyCode::PrivateDestination, flag), &group, Some("pkg:pip"));
        assert_eq!(
            all.last().unwrap(),
            "behind the same mirror the other hosts of the group need the same: --allow-private files.test:443"
        );
        let none =
            |ended: NetworkEnd, named: &[Named]| !lines(&ended, named, None).iter().any(|line| line.contains("mirror"));
        assert!(none(end(DenyCode::PrivateDestination, flag), &["index.test", "files.test"].map(by_rule)));
        assert!(none(end(DenyCode::PrivateDestination, None), &group), "no flag opens it");
        assert!(none(end(DenyCode::NotInAllowlist, flag), &group));
        let many: Vec<Named> =
            (0..20).map(|n| of_group(&format!("h{n}.test"))).chain([of_group("index.test")]).collect();
        assert!(none(end(DenyCode::PrivateDestination, flag), &many), "a long line helps nobody");
    }

    #[test]
    fn one_line_allows_all_that_was_blocked() {
        let two = |hosts: [&str; 2]| {
            let one = |host: &str| denied(host, 443, DenyCode::NotInAllowlist, Some(&format!("--allow {host}:443")));
            told(hosts.map(one).into()).pop().unwrap()
        };
        assert_eq!(two(["a.test", "b.test"]), "to allow all of that: --allow a.test:443 --allow b.test:443");
        let groups = builtin_groups().unwrap();
        let exact = |rule: &Rule| matches!(rule.pattern, Pattern::Exact(_)).then(|| rule.pattern.to_string());
        let (group, hosts) = groups
            .iter()
            .map(|(group, rules)| (group, rules.iter().filter_map(exact).collect::<Vec<_>>()))
            .find(|(_, hosts)| hosts.len() >= 2)
            .unwrap();
        let line = two([&hosts[0], &hosts[1]]);
        assert!(line.starts_with(&format!("to allow all of that: --allow-group {group}, or --allow ")), "{line}");
        assert!(!two([&hosts[0], "b.test"]).contains("--allow-group"));
        let alone = told(vec![denied("a.test", 443, DenyCode::NotInAllowlist, Some("--allow a.test:443"))]);
        assert_eq!(alone.len(), 1, "one flag is said once");
    }

    #[test]
    fn the_group_of_a_package_client_is_named() {
        let of = |line: &str| client_group(&line.split(' ').map(ByteText::from).collect::<Vec<_>>());
        assert_eq!((of("npm i"), of("/usr/bin/pip3 install x")), (Some("pkg:npm"), Some("pkg:pip")));
        assert_eq!((of("python3 -m pip install x"), of("cargo build")), (Some("pkg:pip"), Some("pkg:cargo")));
        assert_eq!((of("python3 -m pytest"), of("make npm"), of("sh")), (None, None, None));
        let denied = vec![denied("a.test", 443, DenyCode::NotInAllowlist, Some("--allow a.test:443"))];
        let ended = NetworkEnd { summary: Summary { denied, ..Summary::default() }, ..NetworkEnd::default() };
        let line = |client| lines(&ended, &[], client).pop().unwrap();
        assert_eq!(line(Some("pkg:npm")), "--allow-group pkg:npm has the hosts of your own settings");
        assert!(!line(None).contains("--allow-group"));
    }

    #[test]
    fn a_slip_in_a_host_is_named() {
        let end = |code| {
            let denied = vec![denied("exmaple.test", 443, code, None)];
            let ended = NetworkEnd { summary: Summary { denied, ..Summary::default() }, ..NetworkEnd::default() };
            lines(&ended, &["example.test", "other.test", "exmaple.tset"].map(by_rule), None).remove(0)
        };
        let text = end(DenyCode::NotInAllowlist);
        assert!(text.contains(": no (a rule allows example.test: is one of them a slip?); no flag opens it"), "{text}");
        assert!(!end(DenyCode::SniMismatch).contains("slip"));
        assert!(!is_slip("raw.code.test", "api.code.test") && !is_slip("example.test", "example.test"));
        assert!(is_slip("api.exmaple.test", "api.example.test") && !is_slip("example.test", "www.example.test"));
        let short = line(&denied("db.test", 0, DenyCode::DnsDenied, None), &[by_rule("web.test")]);
        assert!(!short.contains("slip"), "{short}");
    }

    #[test]
    fn each_flag_is_shown_once_and_a_question_for_a_name_not_beside_its_connection() {
        let flag = Some("--allow a.test:443");
        let lines = told(vec![
            denied("a.test", 0, DenyCode::DnsDenied, flag),
            denied("a.test", 443, DenyCode::NotInAllowlist, flag),
            denied("a.test", 443, DenyCode::SniMismatch, None),
            denied("b.test", 0, DenyCode::DnsDenied, Some("--allow b.test:443")),
        ]);
        assert_eq!(
            lines,
            [
                "blocked: a.test:443: no; allow it with --allow a.test:443",
                "blocked: a.test:443: no; no flag opens it",
                "blocked: b.test: no; allow it with --allow b.test:443",
                "to allow all of that: --allow a.test:443 --allow b.test:443",
            ]
        );
    }

    #[test]
    fn a_summary_that_is_cut_counts_no_block_that_is_not_known() {
        let cut = |denied: Vec<Denied>| {
            let summary = Summary { denied, truncated: true, ..Summary::default() };
            lines(&NetworkEnd { summary, ..NetworkEnd::default() }, &[], None)
        };
        assert_eq!(cut(Vec::new()), [""; 0], "many allowed destinations, and nothing blocked");
        let one = cut(vec![denied("a.test", 443, DenyCode::NotInAllowlist, None)]);
        assert_eq!(one[1], "blocked: … and perhaps others (nexus net log)");
        let many = (1..=25).map(|port| denied("a.test", port, DenyCode::PortNotAllowed, None));
        assert_eq!(cut(many.collect())[20], "blocked: … and more than 5 more (nexus net log)");
    }

    #[test]
    fn the_list_ends_after_twenty() {
        let many = |count: u16| {
            let all = (1..=count).map(|port| denied("a.test", port, DenyCode::PortNotAllowed, None));
            told(all.collect())
        };
        assert_eq!(many(20).len(), 20);
        let lines = many(25);
        assert_eq!(lines.len(), 21);
        assert_eq!(lines[20], "blocked: … and 5 more (nexus net log)");
    }
}
