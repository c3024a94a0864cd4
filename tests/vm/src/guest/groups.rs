//! Limits by cgroup v2: root's, and those of an ordinary user who was given a subtree.

use super::case::Case;
use super::world::{
    GROUPS, USER, Who, World, ensure, group_with, groups, of_root, of_user, processes, setting, wait_for,
};
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

pub const CASES: &[Case] = &[
    ("the_memory_limit_of_root_kills_the_whole_sandbox_and_is_told", |world| memory(&world.root, &of_root())),
    ("the_cpu_limit_of_root_throttles", |world| cpu(&world.root, &of_root())),
    ("a_group_holds_the_sandbox_with_its_limits_and_not_nexus", held),
    ("a_sandbox_is_born_in_its_group_and_never_moved_there", born_inside),
    ("a_user_without_a_subtree_is_refused_a_limit", |world| {
        let run = world.user.json(&["--direct", "--memory", "64M", "--", "true"])?;
        run.ended(125, "driver_failed")?;
        Ok(Some(run.message()))
    }),
    ("a_user_outside_of_its_subtree_is_refused_a_limit", outside),
    ("the_memory_limit_of_a_user_kills_the_whole_sandbox_and_is_told", |world| delegated(world, memory)),
    ("the_cpu_limit_of_a_user_throttles", |world| delegated(world, cpu)),
    ("no_group_is_left_of_any_run", |_| {
        let left = [groups(&of_root()), groups(&of_user())].concat();
        ensure(left.is_empty(), || format!("{left:?}"))?;
        Ok(None)
    }),
];

/// A buffer larger than the limit; the shell that waits beside it would survive if only the greedy process died.
const GREEDY: &str = "dd if=/dev/zero of=/dev/null bs=200M count=1 & sleep 60; echo survived";
const MODEST: &str = "dd if=/dev/zero of=/dev/null bs=2M count=1; echo survived";

fn memory(who: &Who, base: &Path) -> Result<Option<String>, String> {
    let modest = who.json(&["--direct", "--memory", "64M", "--shell", MODEST])?;
    modest.ended(0, "exit")?;
    ensure(modest.stdout().contains("survived"), || "the modest command said nothing".to_owned())?;
    let greedy = who.json(&["--direct", "--memory", "64M", "--timeout", "50s", "--shell", GREEDY])?;
    greedy.ended(137, "oom")?;
    ensure(!greedy.stdout().contains("survived"), || "a process of the sandbox survived".to_owned())?;
    ensure(groups(base).is_empty(), || format!("left: {:?}", groups(base)))?;
    Ok(None)
}

fn cpu(who: &Who, base: &Path) -> Result<Option<String>, String> {
    let live = who.start(&["--direct", "--cpus", "0.2", "--timeout", "250s", "--shell", "while :; do :; done"])?;
    let group = group_with(base, 2)?;
    ensure(setting(&group, "cpu.max")? == "20000 100000", || setting(&group, "cpu.max").unwrap_or_default())?;
    let throttled = || number_in(&setting(&group, "cpu.stat").ok()?, "nr_throttled").filter(|times| *times >= 5);
    let times = wait_for("throttling", throttled)?;
    live.end()?;
    ensure(!group.exists(), || format!("{} is left", group.display()))?;
    Ok(Some(format!("throttled in {times} periods")))
}

fn held(world: &World) -> Result<Option<String>, String> {
    let who = &world.root;
    let live = who.start(&["--direct", "--memory", "64M", "--timeout", "250s", "--", "sleep", "240"])?;
    let group = group_with(&of_root(), 2)?;
    for (file, wanted) in [("memory.max", "67108864"), ("memory.oom.group", "1")] {
        let found = setting(&group, file)?;
        ensure(found == wanted, || format!("{file} is {found} and not {wanted}"))?;
    }
    ensure(!processes(&group).contains(&live.pid()), || "nexus itself is in the group".to_owned())?;
    // A process of nexus that dies takes the sandbox along, and the next run removes the group.
    drop(live);
    wait_for("the death of the sandbox", || processes(&group).is_empty().then_some(()))?;
    who.json(&["--direct", "--", "true"])?.ended(0, "exit")?;
    gone(&group)?;
    Ok(None)
}

/// The kernel's own record of processes that are moved between groups. Its positive control is a process that is moved.
fn born_inside(world: &World) -> Result<Option<String>, String> {
    let events = Path::new("/sys/kernel/tracing");
    let write = |name: &str, text: &str| {
        fs::write(events.join(name), text).map_err(|error| format!("{}: {error}", events.join(name).display()))
    };
    let moved = || fs::read_to_string(events.join("trace")).map_err(|error| format!("trace: {error}"));
    write("trace", "")?;
    write("events/cgroup/cgroup_attach_task/enable", "1")?;
    world.root.json(&["--direct", "--memory", "64M", "--", "true"])?.ended(0, "exit")?;
    let by_nexus = moved()?.lines().filter(|line| line.contains("cgroup_attach_task:")).count();
    let control = Path::new(GROUPS).join("control");
    fs::create_dir(&control).map_err(|error| format!("{}: {error}", control.display()))?;
    let script = format!("echo $$ > {}/cgroup.procs", control.display());
    let status = Command::new("/bin/sh").args(["-c", &script]).status().map_err(|error| format!("sh: {error}"))?;
    let by_shell = moved()?.lines().filter(|line| line.contains("cgroup_attach_task:")).count();
    write("events/cgroup/cgroup_attach_task/enable", "0")?;
    fs::remove_dir(&control).map_err(|error| format!("{}: {error}", control.display()))?;
    ensure(status.success() && by_shell > by_nexus, || "the record does not show a process that was moved".to_owned())?;
    ensure(by_nexus == 0, || format!("{by_nexus} processes were moved"))?;
    Ok(None)
}

/// Delegates as an administrator does for a user: a directory of their own with the controllers, and the files to
/// manage it (cgroups(7), delegation).
fn delegate() -> Result<(), String> {
    let reported = |path: &Path, error: &std::io::Error| format!("{}: {error}", path.display());
    for directory in [Path::new(GROUPS).to_owned(), of_root()] {
        if !directory.exists() {
            fs::create_dir(&directory).map_err(|error| reported(&directory, &error))?;
        }
        let file = directory.join("cgroup.subtree_control");
        fs::write(&file, "+memory +cpu").map_err(|error| reported(&file, &error))?;
    }
    let own = of_user();
    if !own.exists() {
        fs::create_dir(&own).map_err(|error| reported(&own, &error))?;
    }
    for name in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        let path = own.join(name);
        chown(&path, Some(USER), Some(USER)).map_err(|error| reported(&path, &error))?;
    }
    Ok(())
}

/// The user owns the subtree, but the process that asks does not live there: the kernel lets no user move or start a
/// process across a border that the user does not own.
fn outside(world: &World) -> Result<Option<String>, String> {
    delegate()?;
    let run = world.user.json(&["--direct", "--memory", "64M", "--", "true"])?;
    run.ended(125, "driver_failed")?;
    ensure(groups(&of_user()).is_empty(), || format!("left: {:?}", groups(&of_user())))?;
    Ok(Some(run.message()))
}

/// Runs a case from inside of the user's subtree: this process enters a leaf of it, and what it starts begins there.
fn delegated(world: &World, case: fn(&Who, &Path) -> Result<Option<String>, String>) -> Result<Option<String>, String> {
    delegate()?;
    let enter = |directory: &Path| {
        fs::write(directory.join("cgroup.procs"), std::process::id().to_string())
            .map_err(|error| format!("{}: {error}", directory.display()))
    };
    let leaf = of_user().join("session");
    fs::create_dir(&leaf).map_err(|error| format!("{}: {error}", leaf.display()))?;
    enter(&leaf)?;
    let done = case(&world.user, &of_user());
    enter(Path::new(GROUPS))?;
    fs::remove_dir(&leaf).map_err(|error| format!("{}: {error}", leaf.display()))?;
    done
}

fn gone(group: &Path) -> Result<(), String> {
    wait_for(&format!("the end of {}", group.display()), || (!group.exists()).then_some(()))
}

fn number_in(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        assert_eq!(number_in("nr_periods 7\nnr_throttled 5\n", "nr_throttled"), Some(5));
        assert_eq!(number_in("nr_periods 7\n", "nr_throttled"), None);
    }
}
