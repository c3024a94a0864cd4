//! P10: the same ten changes in a small and in a large workspace, run and committed.

use crate::failure::Failure;
use crate::options::{Options, P};
use crate::place::Place;
use crate::report::{Bound, Report};
use crate::stats::{Sample, ms};
use crate::{announce, failed};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

const SMALL: usize = 200;
const LARGE: usize = 200_000;
const WARM_UP: usize = 2;

/// Both sizes in turn.
pub fn measure(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    announce("change sets");
    let Some(runner) = place.runners.first() else { return Ok(()) };
    let mut sizes = [(SMALL, Sample::default()), (LARGE, Sample::default())];
    for (files, _) in &sizes {
        make_tree(&runner.directory.join(format!("tree-{files}")), *files)?;
    }
    let rounds = (options.rounds * 3 / 10).max(5);
    for round in 0..rounds + WARM_UP {
        for (files, sample) in &mut sizes {
            let script = format!("for i in 0 1 2 3 4 5 6 7 8 9; do echo {round} > d$i/f$i; done");
            let mut command = runner.command(place.nexus.as_ref());
            command.args(["run", "--changes", "commit", "--shell", &script]);
            command.current_dir(runner.directory.join(format!("tree-{files}")));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let start = Instant::now();
            let status = command.status().map_err(|error| failed(&format!("nexus: {error}")))?;
            let taken = start.elapsed();
            if !status.success() {
                return Err(failed(&format!("nexus run in a tree of {files} files ended with {status}")));
            }
            if round >= WARM_UP {
                sample.push(taken.as_secs_f64() * 1e6);
            }
        }
    }
    let [small, large] = sizes.map(|(_, sample)| sample.median().unwrap_or(f64::NAN));
    let rows = [(SMALL, small), (LARGE, large)].map(|(files, us)| vec![format!("{files} files"), ms(us)]).to_vec();
    report.table(&format!("Ten changed files, run and commit, {rounds} rounds in turn"), &["", "median"], rows);
    let what = format!("change set in {LARGE} files, to {SMALL}");
    report.evaluate(P::ChangeSets, &what, ms(large), large / small, "x small", Bound::AtMost(2.0));
    Ok(())
}

/// Makes files in directories of a hundred, named so that the first ten directories each hold the file that is changed.
fn make_tree(root: &Path, files: usize) -> Result<(), Failure> {
    let directories = (files / 100).max(10);
    let made = (0..files).try_for_each(|number| {
        let directory = root.join(format!("d{}", number % directories));
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join(format!("f{}", number % directories + number / directories * 1000)), b"x")
    });
    made.map_err(|error| failed(&format!("{}: {error}", root.display())))
}
