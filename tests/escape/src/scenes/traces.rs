//! B11, E10: what one run leaves for the next, and what many runs leave on the host.

use super::options::Options;
use crate::answer::{Answer, Seen};
use crate::host::bench::{Bench, Job};
use crate::host::inspect::{end_strays, processes_with};
use crate::host::world::WorldError;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const COMMIT: &[&str] = &["--changes", "commit"];

/// Two runs, one after the other, on one workspace.
pub fn between_runs(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let label = format!("{}-left", bench.world.context.token);
    let places = [
        ("tmp", "/tmp".to_owned()),
        ("shared_memory", "/dev/shm".to_owned()),
        ("var_tmp", "/var/tmp".to_owned()),
        ("home", "$HOME".to_owned()),
        ("workspace", bench.world.context.workspace.to_string_lossy().into_owned()),
    ];
    let daemon = bench.world.attack(&["act", "daemon", &label, "20"]).join(" ");
    let leave: Vec<String> = places.iter().map(|(_, place)| format!("echo x > {place}/{label}; ")).collect();
    let leave = leave.concat();
    let first = format!("{leave} {daemon}; echo left");
    let inspect: Vec<String> =
        places.iter().map(|(case, place)| format!("test -e {place}/{label} && echo has-{case}; ")).collect();
    let inspect = inspect.concat();
    let second = format!("{inspect} echo looked");
    let left = bench.run(&Job::new(COMMIT, &["/bin/sh", "-c", &first]), LIMIT)?;
    let found = bench.run(&Job::new(COMMIT, &["/bin/sh", "-c", &second]), LIMIT)?;
    // The host looks for the detached process of the first run: the second has its own /proc and may not lie about it.
    let survivors = processes_with(&format!("act\0daemon\0{label}")).len();
    end_strays(&label);
    let played = left.text().contains("left") && found.text().contains("looked");
    let mut seen = Vec::new();
    for (case, place) in &places {
        let has = found.text().contains(&format!("has-{case}"));
        let answer = if played {
            Answer::choose(has, "seen", "absent")
        } else {
            Answer::of("did-not-run").with(found.summary())
        };
        seen.push(Seen::new("B11", case, answer));
        let host = place.replace("$HOME", &bench.world.home.to_string_lossy());
        let path = Path::new(&host).join(&label);
        if path.exists() && fs::remove_file(&path).is_err() {
            eprintln!("nexus-escape: left behind {}", path.display());
        }
    }
    let answer = if played { Answer::choose(survivors == 0, "absent", "seen") } else { Answer::of("did-not-run") };
    seen.push(Seen::new("B11", "process", answer));
    Ok(seen)
}

/// Counts of what a run could leave behind. Records of runs (`runs`, `receipts`) are meant to stay.
fn census(bench: &Bench) -> BTreeMap<String, usize> {
    let entries = |path: &Path| fs::read_dir(path).map_or(0, Iterator::count);
    let mut counts = BTreeMap::new();
    let lines = |path: &str| fs::read_to_string(path).map_or(0, |text| text.lines().count());
    counts.insert("mounts".to_owned(), lines("/proc/self/mountinfo"));
    counts.insert("processes".to_owned(), processes_with(&bench.world.context.token).len());
    counts.insert("tmp".to_owned(), entries(Path::new("/tmp")));
    counts.insert("shared memory".to_owned(), entries(Path::new("/dev/shm")));
    counts.insert("home".to_owned(), entries(&bench.world.home));
    counts.insert("workspace".to_owned(), entries(&bench.world.context.workspace));
    counts.insert("cgroups".to_owned(), directories(Path::new("/sys/fs/cgroup"), 6));
    let state = bench.world.base.join("state");
    for entry in fs::read_dir(&state).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "runs" && name != "receipts" {
            counts.insert(format!("state/{name}"), entries(&entry.path()));
        }
    }
    counts
}

fn directories(root: &Path, depth: usize) -> usize {
    if depth == 0 {
        return 0;
    }
    let inner = fs::read_dir(root).into_iter().flatten().flatten();
    inner
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| 1 + directories(&entry.path(), depth - 1))
        .sum()
}

/// Fifty runs of `true` after a few that may build caches.
pub fn fifty_runs(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let job = Job::new(COMMIT, &["/bin/true"]);
    let mut failed = None;
    let mut repeat = |count| -> Result<(), WorldError> {
        for _ in 0..count {
            let ran = bench.run(&job, LIMIT)?;
            if ran.code != Some(0) {
                failed = Some(ran.summary());
            }
        }
        Ok(())
    };
    repeat(3)?;
    let before = census(bench);
    repeat(50)?;
    let after = census(bench);
    let grown: Vec<String> = after
        .iter()
        .map(|(name, count)| (name, *count, before.get(name).copied().unwrap_or(0)))
        // Others use the host too: a handful is noise, one per run is a leak.
        .filter(|(_, now, then)| *now > then + 10)
        .map(|(name, now, then)| format!("{name} {then} to {now}"))
        .collect();
    let worked = failed.map_or_else(|| Answer::of("exit:0"), |why| Answer::of("failed").with(why));
    Ok(vec![
        Seen::new("E10", "fifty_runs", Answer::choose(grown.is_empty(), "steady", "grew").with(grown.join(", "))),
        Seen::new("E10", "every_run_worked", worked),
    ])
}
