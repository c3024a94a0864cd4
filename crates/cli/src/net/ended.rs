//! Says what was blocked in the network of a run that has ended.

use nexus_egress::Denied;
use nexus_policy::net::DenyCode;
use nexus_runner::net::ended::NetworkEnd;

/// Blocked destinations that are listed.
const MOST_SHOWN: usize = 20;

/// Lines for a person: what was blocked, each with the flag that would allow it.
pub fn lines(ended: &NetworkEnd) -> Vec<String> {
    let mut lines: Vec<String> = ended.problem.iter().chain(&ended.notes).cloned().collect();
    let blocked = blocked(&ended.summary.denied);
    lines.extend(blocked.iter().take(MOST_SHOWN).map(|denied| line(denied)));
    // The summary is cut for allowed destinations, too; then nothing blocked is missing.
    let is_cut = ended.summary.truncated && !blocked.is_empty();
    if blocked.len() > MOST_SHOWN || is_cut {
        let more = blocked.len().saturating_sub(MOST_SHOWN);
        let more = if more == 0 {
            "perhaps others".to_owned()
        } else if is_cut {
            format!("more than {more} more")
        } else {
            format!("{more} more")
        };
        lines.push(format!("blocked: … and {more} (nexus net log)"));
    }
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

fn line(denied: &Denied) -> String {
    let Denied { host, port, count, explanation, allow_with, .. } = denied;
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
    format!("blocked: {what}{times}: {explanation}; {how}")
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
        lines(&NetworkEnd { summary: Summary { denied, ..Summary::default() }, ..NetworkEnd::default() })
    }

    #[test]
    fn each_flag_is_told_once_and_a_question_for_a_name_not_beside_its_connection() {
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
            ]
        );
    }

    #[test]
    fn a_summary_that_is_cut_counts_no_block_that_is_not_known() {
        let cut = |denied: Vec<Denied>| {
            let summary = Summary { denied, truncated: true, ..Summary::default() };
            lines(&NetworkEnd { summary, ..NetworkEnd::default() })
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
