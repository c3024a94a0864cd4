//! Recovery of a run that was killed after it had filled the disk of the state directory.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::process::Command;
use support::traces::{Lone, lone_benches};
use support::{needs_root, stderr, stdout};

/// Fills the disk, is killed with its `nexus`, and returns what the script `then` printed, errors included.
fn after_a_kill(bench: &Lone, changes: &str, then: &str) -> String {
    let uid = bench.user.unwrap_or(0);
    let drop = if uid == 0 { String::new() } else { format!("setpriv --reuid {uid} --regid {uid} --clear-groups ") };
    let fills = "exec > /dev/null 2>&1; head -c 9M /dev/zero > more; head -c 100M /dev/zero > big; sleep 1000";
    let script = format!(
        "exec 2>&1; $0 run --changes {changes} --shell '{fills}' > /dev/null & child=$!
         for i in $(seq 1000); do [ $(stat -f -c %a $STATE) = 0 ] && break; sleep 0.01; done; sleep 0.2
         kill -9 $child; wait $child; run=$(ls $STATE/layers | grep -- -); [ -n \"$run\" ] || exit 1; {then}; true"
    );
    let line = format!(
        "set -e; mount -t tmpfs -o size=16m,uid={uid},gid={uid},mode=700 none $STATE; cd $WORKSPACE; \
         exec {drop}bash -c \"$SCRIPT\" \"$0\""
    );
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "bash", "-c", &line])
        .arg(bench.program())
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", &bench.home)
        .envs([("NEXUS_STATE_DIR", &bench.state), ("STATE", &bench.state), ("WORKSPACE", &bench.workspace)])
        .env("SCRIPT", script)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = stdout(&output) + &stderr(&output);
    assert!(output.status.success(), "{}: {said}", bench.who());
    said
}

#[test]
fn changes_that_a_full_disk_keeps_from_being_parked_are_listed_and_can_be_rejected() {
    if !needs_root() {
        return;
    }
    for bench in lone_benches() {
        let then = "echo == list; $0 changes list; echo == show; $0 changes show; echo == accept; \
                    $0 changes accept --run $run; echo == direct; $0 run --direct -- echo direct; \
                    echo == reject; $0 changes reject --run $run; echo == end; $0 changes list; $0 run -- echo third";
        let said = after_a_kill(&bench, "review", then);
        let part = |name: &str| {
            let (_, rest) = said.split_once(&format!("== {name}\n")).unwrap();
            rest.split("== ").next().unwrap().to_owned()
        };
        assert!(!said.contains("half applied"), "{}: {said}", bench.who());
        let list = part("list");
        for words in ["the disk of the state directory is full", "nexus changes reject --run", "[not parked: no room]"]
        {
            assert!(list.contains(words), "{}: {list}", bench.who());
        }
        for name in ["show", "accept"] {
            assert!(part(name).contains("are not parked, because the disk is full"), "{}: {said}", bench.who());
        }
        assert!(part("direct").contains("the run cannot be recorded"), "{}: for its own reason: {said}", bench.who());
        assert!(part("reject").contains("are gone"), "{}: {said}", bench.who());
        let end = part("end");
        assert!(end.starts_with("No changes wait") && end.ends_with("third\n"), "{}: {end}", bench.who());
    }
}

#[test]
fn changes_that_are_to_be_discarded_do_not_fill_the_disk_after_a_kill() {
    if !needs_root() {
        return;
    }
    for bench in lone_benches() {
        let said = after_a_kill(&bench, "discard", "$0 changes list; $0 run -- echo second");
        assert!(said.contains("were to be discarded and are"), "{}: {said}", bench.who());
        assert!(said.contains("No changes wait") && said.ends_with("second\n"), "{}: {said}", bench.who());
    }
}

#[test]
fn changes_are_parked_as_soon_as_there_is_room() {
    if !needs_root() {
        return;
    }
    for bench in lone_benches() {
        let then = "$0 changes list; truncate -s 0 \
                    $STATE/layers/$run/upper/more; echo == later; $0 changes accept --run $run; ls; $0 changes list";
        let said = after_a_kill(&bench, "review", then);
        let (_, later) = said.split_once("== later\n").unwrap();
        assert!(later.contains("its changes are parked") && later.contains("\nbig\n"), "{}: {said}", bench.who());
        assert!(later.ends_with("No changes wait for a decision.\n"), "{}: {said}", bench.who());
    }
}
