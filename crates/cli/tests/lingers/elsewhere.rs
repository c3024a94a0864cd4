//! Sandboxes that the next command cannot see: it runs in another pid namespace, or /proc hides them.

use crate::held::{Frozen, first_of, freezer, state_of};
use crate::support::{self, Bench, benches, needs_root, processes_with, random, stderr, wait_for, wait_until};
use crate::{PATIENCE, kill_and_leave, recorded, run_and_leave, started};
use std::process::{Command, Output};

/// Runs `nexus` with these arguments in a pid namespace of its own, which has a boot id of its own too, or where /proc hides
/// the processes of others.
fn elsewhere(bench: &Bench, args: &[&str], hides: bool) -> Output {
    let (uid, program) = (bench.user.unwrap_or(0), bench.nexus([] as [&str; 0]).get_program().to_owned());
    let drop = if uid == 0 { String::new() } else { format!("setpriv --reuid {uid} --regid {uid} --clear-groups") };
    let (flags, before): (&[&str], _) = if hides {
        (&["-m"], "mount -t proc -o hidepid=2 proc /proc")
    } else {
        (
            &["-m", "-p", "-f", "--mount-proc"],
            "mount --bind /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id",
        )
    };
    let script = format!("{before} || exit 77; cd $WORKSPACE; exec {drop} \"$@\"");
    let mut command = Command::new("unshare");
    command.args(flags).args(["--propagation", "private", "bash", "-c", &script, "bash"]).arg(program).args(args);
    command.env("NEXUS_STATE_DIR", &bench.state).env("HOME", &bench.home).env("WORKSPACE", &bench.workspace);
    command.output().unwrap()
}

#[test]
fn a_container_never_takes_a_sandbox_outside_for_gone() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        for is_killed in [false, true] {
            let flags = ["--changes", "commit"];
            let held = if is_killed {
                kill_and_leave(&bench, &flags, &bench.workspace)
            } else {
                run_and_leave(&bench, &flags).0
            };
            let run = recorded(&bench);
            let what = format!("{} {is_killed}", bench.who());
            let list = elsewhere(&bench, &["changes", "list"], false);
            let said = stderr(&list);
            assert_eq!(list.status.code(), Some(0), "{what}: {said}");
            assert!(said.contains("another container") && !said.contains("parked"), "{what}: {said}");
            let file = bench.state.join("runs").join(&run);
            assert!(said.contains(file.to_str().unwrap()), "{what}: {said}");
            let accept = elsewhere(&bench, &["changes", "accept", "--run", &run], false);
            assert_eq!(accept.status.code(), Some(125), "{what}: {}", stderr(&accept));
            assert!(stderr(&accept).contains("another container"), "{what}: {}", stderr(&accept));
            assert!(file.exists() && !bench.workspace.join("made").exists(), "{what}: taken for gone");
            if !is_killed {
                // The way out for a person who knows that it is gone.
                let left = file.with_extension("left");
                assert!(said.contains(left.to_str().unwrap()), "{what}: {said}");
                std::fs::remove_file(&file).unwrap();
                std::fs::remove_file(&left).unwrap();
                let list = support::stdout(&elsewhere(&bench, &["changes", "list"], false));
                assert!(list.contains(&run), "{what}: {list}");
            }
            let reject = elsewhere(&bench, &["changes", "reject", "--run", &run], false);
            assert_eq!(reject.status.code(), Some(0), "{what}: {}", stderr(&reject));
            assert!(bench.leftovers().is_empty(), "{what}: {:?}", bench.leftovers());
            held.let_go();
        }
    }
}

#[test]
fn a_kill_in_another_container_is_not_said_to_be_a_reboot() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        let held = kill_and_leave(&bench, &["--changes", "commit"], &bench.workspace);
        held.let_go();
        let file = bench.state.join("runs").join(recorded(&bench));
        let record = std::fs::read_to_string(&file).unwrap();
        // Its nexus was killed after it had seen the end of the sandbox.
        let (first, end) = (record.find(",\"first\"").unwrap(), record.rfind('}').unwrap());
        std::fs::write(&file, format!("{}{}}}", &record[..first], " ".repeat(end - first))).unwrap();
        let list = elsewhere(&bench, &["changes", "list"], false);
        let said = stderr(&list);
        assert!(said.contains("its changes are parked"), "{}: {said}", bench.who());
        assert!(said.contains("not known whether its machine went down"), "{}: {said}", bench.who());
        assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0), "{}", bench.who());
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}

#[test]
fn a_direct_run_of_a_container_stops_runs_outside() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        let held = kill_and_leave(&bench, &["--direct"], &bench.workspace);
        let run = recorded(&bench);
        let beside = elsewhere(&bench, &["run", "--direct", "--", "true"], false);
        let said = stderr(&beside);
        assert_eq!(beside.status.code(), Some(125), "{}: it runs beside the other: {said}", bench.who());
        assert!(said.contains("another container") && said.contains(&run), "{}: {said}", bench.who());
        held.let_go();
        wait_until("a run", PATIENCE, || bench.run(["run", "--direct", "--", "true"]).status.success());
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}

#[test]
fn a_proc_that_hides_a_frozen_sandbox_ends_no_run() {
    let Some(freezer) = freezer() else { return };
    for bench in benches() {
        let words = format!("600.{}", random());
        let mut command = bench.nexus(["run", "--changes", "commit"]);
        command.args(["--shell", &format!("echo work > made; exec sleep {words}")]);
        let mut child = started(command);
        let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let found = || processes_with(&words).into_iter().find(|pid| name(*pid) == "sleep\n");
        let first = wait_for("the command", PATIENCE, || found().and_then(first_of));
        wait_until("the start", PATIENCE, || state_of(first) == Some('S'));
        let frozen = Frozen::freeze(&freezer, first);
        child.kill().unwrap();
        child.wait().unwrap();
        let run = recorded(&bench);
        let hides = bench.user.is_some();
        let list = elsewhere(&bench, &["changes", "list"], hides);
        let accept = elsewhere(&bench, &["changes", "accept", "--run", &run], hides);
        let is_there = bench.state.join("runs").join(&run).exists();
        frozen.thaw();
        assert!(!stderr(&list).contains("parked"), "{}: {}", bench.who(), stderr(&list));
        assert_eq!(accept.status.code(), Some(125), "{}: {}", bench.who(), stderr(&accept));
        assert!(is_there, "{}: taken for gone", bench.who());
        wait_until("an accept", PATIENCE, || bench.run(["changes", "accept", "--run", &run]).status.success());
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}
