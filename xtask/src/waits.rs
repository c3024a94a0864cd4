//! `check-waits`: the host side waits for nothing that the inside of a sandbox also holds, unless there is a bound.
//!
//! ```text
//!  sources of the host side, without tests ─▶ calls that may wait ─▶ compared with `waits_allowed`: file, call, how often
//! ```
//! A call counts by its text: the check knows no types, so it finds some calls that only have the name of one that waits. Each
//! is in the list with the reason why it holds nothing up. One more call in the same file fails the check, and so does an
//! entry of the list that has no call any more.
//!
//! `.read(`, `.write(` and `.write_all(` are not among the calls: nearly all of them are on files of nexus's own, on memory or on
//! futures, and a list of seventy reasons would be read by no person. What they wait for is held by tests that try it with every
//! descriptor that a command shares (S-873, S-884): each of those is set to O_NONBLOCK where it is made.

use std::collections::BTreeMap;
use std::path::Path;

use crate::failure::Failure;
use crate::rust_text::code_only;
use crate::sources;
use crate::waits_allowed::{ALLOWED, Entry};
use crate::workspace::Workspace;

/// The crates that run on the host beside a sandbox, and the control plane, whose callers are hostile. Of `jail` the launcher's half: it talks to children in which nothing
/// hostile runs yet, but file systems of the host and frozen control groups can hold those up.
const HOST_SIDE: &[&str] = &[
    "crates/doctor/src",
    "crates/driver/src",
    "crates/facility/src",
    "crates/fleet/src",
    "crates/mothership/src",
    "crates/nexusd/src",
    "crates/jail/src/launcher",
    "crates/drivers/namespace/src",
    "crates/beneath/src",
    "crates/egress/src",
    "crates/git/src",
    "crates/hints/src",
    "crates/history/src",
    "crates/layer/src",
    "crates/mcp/src",
    "crates/profiles/src",
    "crates/receipt/src",
    "crates/runner/src",
    "crates/sessions/src",
    "crates/snapshot/src",
    "crates/terminal/src",
    "crates/warm/src",
    "crates/caller/src",
    "crates/changes/src",
    "crates/cli/src",
];

/// Calls that wait until another process writes, reads, ends or lets go, and calls that open a path: a FIFO there waits for
/// its other side.
const CALLS: &[&str] = &[
    "channel.receive(",
    "receive::<",
    "channel.send(",
    ".hear()",
    ".wait()",
    ".wait_with_output()",
    ".output()",
    ".status()",
    ".recv()",
    ".read_to_end(",
    ".read_to_string(",
    ".read_exact(",
    "io::copy(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::copy(",
    "File::open(",
    "FlockOperation::LockExclusive",
    "FlockOperation::LockShared",
    "UnixStream::connect(",
    "TcpStream::connect(",
    "net::connect(",
    "sendmsg(",
    "descriptors::send(",
    "descriptors::receive(",
    "recvmsg(",
    "io::read(",
    POLL,
];

/// Stands for poll(2) without a time.
const POLL: &str = "poll(…, None)";

/// Compares the host side with the list; every difference is named.
pub fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut found = BTreeMap::new();
    for directory in HOST_SIDE {
        for source in sources::below(&workspace.root, Path::new(directory))? {
            let path = source.path.display().to_string();
            if !path.ends_with("tests.rs") {
                found.insert(path, calls(&source.text));
            }
        }
    }
    let differences = differences(&found, ALLOWED);
    if differences.is_empty() {
        println!("check-waits: {} files of the host side keep the rule", found.len());
        return Ok(());
    }
    Err(Failure::new(
        format!("the host side may wait for what a sandbox holds:\n  {}", differences.join("\n  ")),
        "use a call that does not wait, or give it a bound; then say in xtask/src/waits_allowed.rs why it is one",
    ))
}

/// The calls of a source that may wait, each with its lines. Tests within the file do not count.
fn calls(source: &str) -> BTreeMap<&'static str, Vec<usize>> {
    let mut found: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let code = code_only(source);
    for (number, line) in (1..).zip(code.lines().take_while(|line| !line.trim_start().starts_with("mod tests {"))) {
        for call in CALLS {
            let times = match *call {
                POLL => usize::from(line.contains("poll(") && line.contains(", None)")),
                text => line.matches(text).count(),
            };
            if times > 0 {
                found.entry(call).or_default().extend(std::iter::repeat_n(number, times));
            }
        }
    }
    found
}

fn differences(found: &BTreeMap<String, BTreeMap<&str, Vec<usize>>>, allowed: &[Entry]) -> Vec<String> {
    let mut all = Vec::new();
    for (path, calls) in found {
        let entry = allowed.iter().find(|(file, _, _)| file == path).map_or(&[][..], |(_, calls, _)| calls);
        for (call, lines) in calls {
            let most = entry.iter().find(|(known, _)| known == call).map_or(0, |(_, count)| *count);
            if lines.len() > most {
                all.push(format!("{path}: {call} stands in the lines {lines:?}, and the list has {most}"));
            }
        }
    }
    for (path, calls, _) in allowed {
        for (call, count) in *calls {
            let there = found.get(*path).and_then(|calls| calls.get(call)).map_or(0, Vec::len);
            if there < *count {
                all.push(format!("{path}: the list has {call} {count} times, and it is there {there} times"));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(source: &str, allowed: &[Entry]) -> Vec<String> {
        differences(&BTreeMap::from([("a.rs".to_owned(), calls(source))]), allowed)
    }

    #[test]
    fn a_new_call_that_may_wait_for_the_inside_is_found() {
        for line in [
            "let frame = channel.receive()?;",
            "let (frame, _) = self.channel.receive::<GuestFrame>()?;",
            "let event = session.hear()?;",
            "File::from(stdout).read_to_end(&mut bytes)?;",
            "let text = std::fs::read_to_string(workspace.join(name))?;",
            "child.wait()?;",
            "match poll(&mut list, None) {",
            "rustix::fs::flock(&file, FlockOperation::LockExclusive)?;",
            "let socket = UnixStream::connect(path)?;",
            "match rustix::io::read(fd, &mut buffer) {",
            "rustix::net::sendmsg(&socket, &parts, &mut control, flags)?;",
        ] {
            assert_eq!(evaluated(&format!("fn f() {{\n    {line}\n}}"), &[]).len(), 1, "{line}");
        }
    }

    #[test]
    fn the_list_is_neither_too_long_nor_too_short() {
        let allowed: &[Entry] = &[("a.rs", &[(".wait()", 1)], "it is dead")];
        assert!(evaluated("child.wait()?;", allowed).is_empty());
        assert_eq!(evaluated("one.wait()?; two.wait()?;", allowed).len(), 1, "a second one beside an allowed one");
        assert_eq!(evaluated("", allowed).len(), 1, "an entry without a call");
    }

    #[test]
    fn calls_with_a_bound_words_and_tests_are_left_alone() {
        let bounded =
            "self.channel.receive_ready(&mut partial)?;\npoll(&mut list, Some(&time))?;\nsession.hear_ready()?;";
        assert!(evaluated(bounded, &[]).is_empty());
        assert!(evaluated("// child.wait() waits\nlet why = \"child.wait()\";", &[]).is_empty());
        assert!(evaluated("#[cfg(test)]\nmod tests {\n    child.wait()\n}", &[]).is_empty());
    }

    #[test]
    fn every_entry_of_the_list_has_a_known_call_and_a_reason() {
        for (path, calls, why) in ALLOWED {
            assert!(!why.is_empty() && !calls.is_empty(), "{path}");
            assert!(calls.iter().all(|(call, count)| CALLS.contains(call) && *count > 0), "{path}");
        }
    }
}
