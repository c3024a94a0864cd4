//! The basic run on this machine's kernel, and what `nexus doctor` says of it.

use super::case::Case;
use super::world::{Who, ensure};
use std::fs;
use std::path::Path;

/// Version of Debian 12's kernel: the oldest kernel of the promises.
const OLDEST: &str = "6.1.";

pub const CASES: &[Case] = &[
    ("the_kernel_is_the_oldest_that_is_promised", |_| oldest()),
    ("doctor_says_to_the_user_that_commands_can_be_run", |world| doctor(&world.user, true)),
    ("doctor_tells_root_the_truth_about_a_layered_run", |world| doctor(&world.root, true)),
    ("a_layered_run_of_the_user_commits_its_change", |world| layered(&world.user)),
    ("a_direct_run_of_the_user_writes_its_change", |world| direct(&world.user)),
    ("a_layered_run_of_root_commits_its_change", |world| layered(&world.root)),
    ("a_run_in_a_folder_that_the_kernel_cannot_map_is_refused_whole", |world| refused(&world.root)),
    ("a_direct_run_of_root_writes_its_change", |world| direct(&world.root)),
    ("more_processes_than_allowed_are_refused", |world| {
        few_processes(&world.root)?;
        few_processes(&world.user)
    }),
];

/// On another one these cases would say nothing of the promise.
fn oldest() -> Result<Option<String>, String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").map_err(|error| format!("osrelease: {error}"))?;
    ensure(release.starts_with(OLDEST), || format!("it is {release}"))?;
    Ok(None)
}

/// Prints all that doctor says; its verdict must be what a run then shows.
fn doctor(who: &Who, must_work: bool) -> Result<Option<String>, String> {
    let output = who.nexus(&["doctor"]).output().map_err(|error| format!("nexus: {error}"))?;
    for line in String::from_utf8_lossy(&output.stdout).lines().chain(String::from_utf8_lossy(&output.stderr).lines()) {
        println!("vm: doctor ({}): {line}", who.name);
    }
    let run = who.json(&["--changes", "discard", "--", "true"])?;
    ensure(output.status.success() == (run.code == 0), || {
        format!("doctor ended with {}, a run with {}: {}", output.status, run.code, run.message())
    })?;
    ensure(!must_work || run.code == 0, || run.message())?;
    Ok((run.code != 0).then(|| run.message()))
}

fn layered(who: &Who) -> Result<Option<String>, String> {
    let file = who.workspace.join("layered");
    let run = who.json(&["--shell", "echo layered > layered; cat layered"])?;
    run.ended(0, "exit")?;
    let committed = run.reported.pointer("/changes/state").and_then(|state| state.as_str()) == Some("committed");
    ensure(committed, || format!("the changes are {}", run.reported["changes"]))?;
    ensure(fs::read_to_string(&file).is_ok_and(|text| text == "layered\n"), || "the file is not there".to_owned())?;
    Ok(None)
}

/// This kernel maps no ids on tmpfs: then nothing may have happened, and the message says what is missing.
fn refused(who: &Who) -> Result<Option<String>, String> {
    let directory = Path::new("/tmp/workspace");
    fs::create_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let run = who.json(&["--workspace", "/tmp/workspace", "--shell", "echo layered > layered"])?;
    run.ended(125, "driver_failed")?;
    ensure(!directory.join("layered").exists(), || "the refused command wrote to the workspace".to_owned())?;
    Ok(Some(format!("refused on this kernel: {}", run.message())))
}

fn direct(who: &Who) -> Result<Option<String>, String> {
    let run = who.json(&["--direct", "--shell", "echo direct > direct; id -u"])?;
    run.ended(0, "exit")?;
    let written = fs::read_to_string(who.workspace.join("direct"));
    ensure(written.is_ok_and(|text| text == "direct\n"), || format!("not written; {}", run.stdout()))?;
    Ok(None)
}

/// The harmless twin has as many as it may.
fn few_processes(who: &Who) -> Result<Option<String>, String> {
    let script = |count: u32| format!("for i in $(seq {count}); do sleep 5 & done; echo all of them; kill $(jobs -p)");
    let fits = who.json(&["--direct", "--pids", "16", "--shell", &script(4)])?;
    ensure(fits.stdout().contains("all of them"), || format!("four processes of 16: {}", fits.reported["output"]))?;
    let exceeds = who.json(&["--direct", "--pids", "16", "--shell", &script(40)])?;
    ensure(!exceeds.stdout().contains("all of them"), || "40 processes of 16 were all started".to_owned())?;
    ensure(exceeds.reported["reason"] != "driver_failed", || format!("it never ran: {}", exceeds.reported))?;
    Ok(None)
}
