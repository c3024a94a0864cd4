//! Runs a test again in namespaces of its own. The test's name comes from its thread and never from a literal, and the
//! inner run counts only if exactly one test ran in it and passed: a renamed test cannot become an empty one.

use std::process::Command;

/// Variable that names the network namespace in which the inner run must not be.
const OUTER: &str = "NEXUS_TEST_OUTER_NETNS";

/// Commands of a shell that make every address local.
pub const ALL_LOCAL: &str =
    "ip link set lo up && ip route add local default dev lo && ip -6 route add local default dev lo";

/// Reports whether this is the inner run of [`passes_again`].
pub fn is_inner() -> bool {
    let Ok(outer) = std::env::var(OUTER) else { return false };
    // This also refuses a value that a person set by hand: the test would then run in the network of the machine.
    assert!(outer.starts_with("net:["), "{OUTER} is {outer}; unset it");
    assert_ne!(outer, own_network(), "the inner run is in the network namespace of the outer one");
    true
}

/// Runs the test of this thread again. `command` ends with words that start a program in new namespaces; the test
/// program and its arguments are added.
pub fn passes_again(command: &mut Command) {
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main").expect("a test runs in a thread that has its name");
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--include-ignored"]).env(OUTER, own_network());
    let output = command.output().expect("unshare (util-linux) and ip (iproute2) are needed");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Indented: a line that begins with `test result` would be added to the count of the outer run.
    for line in out.lines().chain(err.lines()) {
        println!("  inner: {line}");
    }
    assert!(output.status.success(), "{name} failed in its namespaces: {}", output.status);
    assert!(one_passed(&out), "{name}: its inner run did not run exactly one test");
}

/// Reports whether the output of a test program shows that one test ran in it and passed.
pub fn one_passed(output: &str) -> bool {
    let mut results = output.lines().filter(|line| line.starts_with("test result: "));
    let one = results.next().is_some_and(|line| line.starts_with("test result: ok. 1 passed; 0 failed; 0 ignored;"));
    one && results.next().is_none()
}

fn own_network() -> String {
    std::fs::read_link("/proc/self/ns/net").unwrap().into_os_string().into_string().unwrap()
}
