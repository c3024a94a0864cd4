//! P2: what an active allowlist costs at the start of a run, beside the same run without a network, in turn.

use crate::announce;
use crate::failure::Failure;
use crate::options::{Options, P};
use crate::place::Place;
use crate::report::{Bound, Report};
use crate::stats::{Sample, ms};
use crate::tools::argv;

const WARM_UP: usize = 5;
/// Milliseconds over P1.
const BOUND: Bound = Bound::AtMost(1.0);

/// One identity's two samples.
struct Pair {
    none: Sample,
    allowlist: Sample,
}

/// As root and as an ordinary user.
pub fn measure(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    announce("a run with an allowlist beside one without a network");
    let nexus = place.nexus.clone();
    let none = argv(&[&nexus, "run", "--", "/bin/true"]);
    let allowlist = argv(&[&nexus, "run", "--net", "allowlist", "--allow", "example.test", "--", "/bin/true"]);
    let mut pairs: Vec<Pair> =
        place.runners.iter().map(|_| Pair { none: Sample::default(), allowlist: Sample::default() }).collect();
    for round in 0..options.rounds + WARM_UP {
        for (runner, pair) in place.runners.iter_mut().zip(&mut pairs) {
            for (argv, sample) in [(&none, &mut pair.none), (&allowlist, &mut pair.allowlist)] {
                let us = runner.time(argv)?;
                if round >= WARM_UP {
                    sample.push(us);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for (runner, pair) in place.runners.iter().zip(&pairs) {
        for (name, sample) in [("no network", &pair.none), ("--net allowlist", &pair.allowlist)] {
            let cell = |percent| sample.percentile(percent).map_or("-".to_owned(), ms);
            rows.push(vec![runner.who.to_owned(), name.to_owned(), cell(50), cell(90)]);
        }
        let found = match (pair.none.median(), pair.allowlist.median()) {
            (Some(none), Some(allowlist)) => Ok((ms(allowlist), (allowlist - none) / 1000.0)),
            _ => Err("nothing was measured".to_owned()),
        };
        let what = format!("nexus run --net allowlist -- /bin/true, as {}", runner.who);
        report.hold(P::Allowlist, &what, found, "ms over P1", BOUND);
    }
    let title = format!("`nexus run … -- /bin/true`, {} rounds in turn, medians", options.rounds);
    report.table(&title, &["as", "", "median", "p90"], rows);
    Ok(())
}
