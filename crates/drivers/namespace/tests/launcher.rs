//! State that a launcher process keeps from one launch to the next may not show: a sandbox on its template is like one
//! that was built from nothing, follows the host, and finds nothing of another sandbox in its network.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../../tests/support/skip.rs"]
mod skip;
mod support;

use nexus_driver::Driver;
use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::Launcher;
use nexus_model::Plan;
use nexus_model::plan::{Access, Bind, PlanDraft, Writes};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, begun, launcher, launcher_program};

/// Script that prints everything a command can see of its root.
const LOOK: &str = "cd /; ls -1Ap / /dev /etc /var /home /proc/self/fd | grep -v -E '^[0-9]+$'; cat /etc/passwd /etc/hosts; umask; id; \
    stat -c '%n %a' /tmp /var/tmp /home/nexus /run /dev/shm; readlink /bin /var/run /etc/mtab /dev/fd; \
    for f in / /usr /etc/passwd /proc/sys/kernel/core_pattern /home /var; do (: > $f/x) 2>/dev/null && echo wrote $f; done; \
    for f in /tmp /var/tmp /home/nexus /run /dev/shm; do : > $f/x && echo wrote $f; done; \
    for f in keys kallsyms timer_list; do wc -c < /proc/$f; done; tty; cat /proc/self/uid_map; echo pids /proc/[0-9]*";

/// Script that prints each mount with its options.
const MOUNTS: &str = "while read -r id parent dev root place options rest; do [[ $root = / || $place = /usr || $place = /etc/* ]] && \
    echo $place ${options%%,relatime*} ${rest##* - }; done < /proc/self/mountinfo | cut -d' ' -f1-3";

fn sorted(text: &str) -> BTreeSet<&str> {
    text.lines().collect()
}

/// Paths in the root, in private directories, and in a directory that only this sandbox has.
const TARGETS: [&str; 5] =
    ["/workspace", "/srv/project/deep", "/tmp/project", "/home/somebody/project", "/var/lib/project"];

/// A plan that asks for further places, and hides one.
fn with_places(bench: &Bench, target: &Path, script: &str) -> PlanDraft {
    let mut draft = bench.draft(target, script);
    draft.binds = vec![bench.bind("/opt/tool/x"), bench.bind("/bound")];
    draft.hidden = vec!["file".into()];
    draft
}

#[test]
fn a_sandbox_on_a_template_is_like_one_built_from_nothing() {
    let bench = Bench::new();
    for target in TARGETS {
        let target = Path::new(target);
        let plan = |script: &str| with_places(&bench, target, script);
        let script = format!("{LOOK}; cat file; ls -1A /opt/tool /bound {}", target.parent().unwrap().display());
        let remote = launcher(&["2", "true"]);
        let expected = in_own_process(&bench, plan(&format!("({script}); true")));
        // The caller's mask, although the set-up has its own.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap().trim();
        assert!(expected.lines().any(|line| line == mask), "{mask}: {expected}");
        for _ in 0..2 {
            let seen = bench.output(Some(&remote), plan(&format!("({script}); true")));
            assert_eq!(seen, expected, "{}", target.display());
        }
        remote.stop().unwrap();
    }
}

#[test]
fn an_error_of_preparation_arrives_as_the_driver_returned_it() {
    let bench = Bench::new();
    let remote = launcher(&["0", "false"]);
    let mut required = bench.draft(Path::new("/workspace"), "true");
    required.required = [nexus_model::Guarantee::KernelSeparate].into();
    let mut trusted = bench.draft(Path::new("/workspace"), "true");
    trusted.profile = nexus_model::spec::SandboxProfile::Trusted;
    for (draft, code) in [(required, "guarantee"), (trusted, "profile")] {
        let plan = Plan::new(draft).unwrap();
        let (here, there) = (bench.driver.prepare(&plan).unwrap_err(), remote.prepare(&plan).unwrap_err());
        assert_eq!((&here, there.code()), (&there, code));
    }
    let plan = Plan::new(bench.draft(Path::new("/workspace"), "true")).unwrap();
    assert_eq!(remote.prepare(&plan), bench.driver.prepare(&plan));
    remote.stop().unwrap();
}

#[test]
fn threads_that_share_a_launcher_get_their_own_sandboxes() {
    let bench = Bench::new();
    let remote = launcher(&["2", "true", "1"]);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (bench, remote) = (&bench, &remote);
            scope.spawn(move || {
                for turn in 0..5 {
                    let script = format!("echo {thread} {turn}");
                    let seen = bench.output(Some(remote), bench.draft(Path::new("/workspace"), &script));
                    assert_eq!(seen, format!("{thread} {turn}\n"));
                }
            });
        }
    });
    remote.stop().unwrap();
}

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_warm_sandbox_is_like_one_built_from_nothing() {
    let bench = Bench::new();
    // With networks of their own, and with pooled ones.
    for keep in [["0", "false", "1"], ["2", "true", "1"]] {
        for target in TARGETS {
            let target = Path::new(target);
            let plan = |script: &str| with_places(&bench, target, script);
            let script = format!("{LOOK}; cat file; ls -1A /opt/tool /bound {}", target.parent().unwrap().display());
            let script = format!("readlink /proc/self/ns/pid; ({script}); true");
            let expected = in_own_process(&bench, plan(&script));
            let (_, expected) = expected.split_once('\n').unwrap();
            let remote = launcher(&keep);
            bench.output(Some(&remote), bench.draft(target, "true"));
            // A launcher drops the one that waits when something that it was built from has changed on the machine (a
            // mount of another program, say), so one of a few runs has to take it.
            let took_the_waiting_one = (0..5).any(|_| {
                let (waiting, _) = begun(&remote, SOON).expect("one is begun");
                let seen = bench.output(Some(&remote), plan(&script));
                let (namespace, seen) = seen.split_once('\n').unwrap();
                assert_eq!(seen, expected, "{}", target.display());
                namespace == waiting
            });
            assert!(took_the_waiting_one, "{}", target.display());
            remote.stop().unwrap();
        }
    }
}

#[test]
fn a_warm_sandbox_takes_layers_and_keeps_no_descriptor() {
    let bench = Bench::new();
    let remote = launcher(&["0", "false", "1"]);
    let run = |script: &str| bench.output(Some(&remote), bench.layered(Path::new("/workspace"), script));
    run("true");
    for turn in 0..3 {
        let (waiting, pid) = begun(&remote, SOON).expect("one is begun");
        let held = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let held: Vec<_> = held.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap()).collect();
        assert_eq!(held.iter().filter(|path| path.as_path() != Path::new("/dev/null")).count(), 3, "{held:?}");
        let script = "readlink /proc/self/ns/pid; ls /proc/1/fd 2>/dev/null | wc -l; echo new > file; cat file; ls -A";
        let seen = run(script);
        assert_eq!(seen, format!("{waiting}\n0\nnew\nfile\n"), "turn {turn}");
        assert_eq!(std::fs::read_to_string(bench.path("layer/upper/file")).unwrap(), "new\n");
    }
    assert_eq!(std::fs::read_to_string(bench.path("workspace/file")).unwrap(), "old\n");
    remote.stop().unwrap();
}

#[test]
fn a_warm_sandbox_ends_with_its_launcher() {
    let bench = Bench::new();
    let remote = launcher(&["0", "false", "2"]);
    bench.output(Some(&remote), bench.draft(Path::new("/workspace"), "true"));
    begun(&remote, SOON).expect("one is begun");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", remote.pid())).unwrap();
    let pid = rustix::process::Pid::from_raw(remote.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    remote.stop().unwrap();
    let deadline = Instant::now() + SOON;
    let lives =
        |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while children.split_ascii_whitespace().any(lives) {
        assert!(Instant::now() < deadline, "{children}");
        std::thread::yield_now();
    }
}

/// Built by the launcher too, but without a template: a bind below `/etc` does not fit on one.
fn in_own_process(bench: &Bench, mut draft: nexus_model::plan::PlanDraft) -> String {
    let remote = launcher(&["0", "false"]);
    draft.binds.push(bench.bind("/etc/without-template"));
    let text = bench.output(Some(&remote), draft);
    remote.stop().unwrap();
    text.replace("without-template/\n", "")
}

#[test]
fn a_device_is_shown_to_the_sandbox_that_asked_for_it_alone() {
    let device = Path::new("/dev/net/tun");
    if !device.exists() {
        skip::skipped("this machine has no /dev/net/tun");
        return;
    }
    let bench = Bench::new();
    let look = "ls -l /dev/net/tun | cut -c1; chmod 777 /dev/net/tun || echo kept; ls /dev/net";
    let script = format!("({look}) 2>/dev/null; true");
    let access = tun();
    let with_device = || {
        let mut draft = bench.draft(Path::new("/workspace"), &script);
        draft.binds = vec![Bind { source: device.into(), target: device.into(), access }];
        draft
    };
    for keep in [&["0", "false"], &["1", "true"]] {
        let remote = launcher(keep);
        let without = || bench.output(Some(&remote), bench.draft(Path::new("/workspace"), &script));
        assert_eq!(without(), "kept\n", "{keep:?}");
        assert_eq!(bench.output(Some(&remote), with_device()), "c\nkept\ntun\n", "{keep:?}");
        assert_eq!(without(), "kept\n", "{keep:?}");
        remote.stop().unwrap();
    }
}

/// Access to `/dev/net/tun`.
fn tun() -> Access {
    let number = rustix::fs::stat("/dev/net/tun").unwrap().st_rdev;
    Access::Device { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
}

#[test]
fn a_device_that_took_the_place_of_another_is_refused() {
    let device = Path::new("/dev/net/tun");
    if !device.exists() {
        skip::skipped("this machine has no /dev/net/tun");
        return;
    }
    let bench = Bench::new();
    for keep in [&["0", "false"], &["1", "true"]] {
        let remote = launcher(keep);
        let mut draft = bench.draft(Path::new("/workspace"), "true");
        // As if /dev/net/tun had been the device 10:1 when it was looked at.
        let access = Access::Device { major: 10, minor: 1 };
        draft.binds = vec![Bind { source: device.into(), target: device.into(), access }];
        let message = bench.run(Some(&remote), draft).unwrap_err();
        assert!(message.contains("10:200 now, and 10:1 was allowed"), "{keep:?}: {message}");
        remote.stop().unwrap();
    }
}

#[test]
fn a_sandbox_on_a_template_has_no_mount_that_one_built_from_nothing_has_not() {
    let bench = Bench::new();
    let remote = launcher(&["1", "true"]);
    let seen = bench.output(Some(&remote), bench.draft(Path::new("/workspace"), MOUNTS));
    let expected = in_own_process(&bench, bench.draft(Path::new("/workspace"), MOUNTS));
    remote.stop().unwrap();
    let mut difference: BTreeSet<&str> = sorted(&seen).difference(&sorted(&expected)).copied().collect();
    // Below the own /proc lies the one of the user `nobody` that the kernel wants to see, and below /dev/shm the file system of
    // which it and the other private directories are parts.
    difference.retain(|line| !line.starts_with("/proc ") && *line != "/dev/shm rw,nosuid,nodev -");
    assert!(difference.is_empty(), "{difference:?}\nbeside\n{expected}");
    assert!(seen.contains("/usr ro,nosuid,nodev"), "{seen}");
}

#[test]
fn layers_on_disk_and_in_memory_work_on_a_template() {
    let bench = Bench::new();
    let remote = launcher(&["1", "true"]);
    let script = "echo new > file && mkdir -p d && mv d e && cat file";
    let text = bench.output(Some(&remote), bench.layered(Path::new("/workspace"), script));
    assert_eq!(text, "new\n");
    assert_eq!(std::fs::read_to_string(bench.path("workspace/file")).unwrap(), "old\n");
    assert_eq!(std::fs::read_to_string(bench.path("layer/upper/file")).unwrap(), "new\n");
    let mut draft = bench.draft(Path::new("/workspace"), "echo new > file; head -c 2M /dev/zero > big; cat file");
    draft.workspace.writes = Writes::MemoryLayer { bytes: 1 << 20 };
    let text = bench.output(Some(&remote), draft);
    assert!(text.contains("No space left") && text.ends_with("new\n"), "{text}");
    remote.stop().unwrap();
}

#[test]
fn a_network_serves_again_only_when_nothing_was_left_in_it() {
    let bench = Bench::new();
    let network = |remote: &Launcher, script: &str| {
        let script = format!("readlink /proc/self/ns/net; {script}");
        bench.output(Some(remote), bench.draft(Path::new("/workspace"), &script))
    };
    let remote = launcher(&["2", "true"]);
    let first = network(&remote, "true");
    assert_eq!(network(&remote, "true"), first, "a network that nothing touched is used again");
    // Refused, and yet a packet has crossed the loopback device.
    assert_eq!(network(&remote, "(: > /dev/tcp/127.0.0.1/9) 2>/dev/null; true"), first);
    assert_ne!(network(&remote, "true"), first, "a network that moved packets is not");
    remote.stop().unwrap();
    // Without reuse none serves twice. (A number may come again, but the next one was made already.)
    let remote = launcher(&["2", "false"]);
    let all: Vec<String> = (0..4).map(|_| network(&remote, "true")).collect();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    remote.stop().unwrap();
}

/// A process that holds a mount namespace, so that a test mounts nothing on the machine. A launcher visits the
/// namespaces of its templates, so `nsenter` of the launcher itself may end in one of those.
struct OtherMounts(std::process::Child);

impl OtherMounts {
    fn new() -> Self {
        let mut holder = Command::new("unshare");
        holder.args(["--mount", "--propagation", "private", "cat"]);
        let holder = Self(holder.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        let mounts = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
        let private = |pid: &str| {
            let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
            !mounts.contains(" shared:")
        };
        let (pid, deadline) = (holder.0.id().to_string(), Instant::now() + SOON);
        while mounts(&pid) == mounts("self") || !private(&pid) {
            assert!(Instant::now() < deadline, "no mount namespace of its own");
            std::thread::yield_now();
        }
        holder
    }

    /// A program in this mount namespace.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.0.id().to_string(), "-m"]).arg(program);
        command
    }

    /// Runs a script that must succeed.
    fn run(&self, script: &str) {
        let output = self.command("sh").args(["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Unmounts a file system once no process has a file of it open: a launcher may be reading one at that moment.
    fn unmount(&self, path: &str) {
        let deadline = Instant::now() + SOON;
        while !self.command("umount").arg(path).output().unwrap().status.success() {
            assert!(Instant::now() < deadline, "{path} stays busy");
        }
    }
}

impl Drop for OtherMounts {
    fn drop(&mut self) {
        // It may have ended on its own.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn the_next_sandbox_sees_what_changed_on_the_host() {
    if !rustix::process::geteuid().is_root() {
        skip::skipped("only root can mount on the host");
        return;
    }
    let bench = Bench::new();
    let host = OtherMounts::new();
    let mut program = host.command(launcher_program());
    program.args(["1", "true", "1"]);
    let remote = Launcher::start(program, Namespace::with_defaults()).unwrap();
    bench.output(Some(&remote), bench.draft(Path::new("/workspace"), "true"));
    let on_host = |script: &str| host.run(script);
    let mut begun_before = 0;
    let mut look = || {
        // One that was pre-forked before the change, too, unless the one before is too young for that.
        let within = Duration::from_millis(if begun_before == 0 { 2000 } else { 500 });
        begun_before += usize::from(begun(&remote, within).is_some());
        bench.output(Some(&remote), bench.draft(Path::new("/workspace"), "ls -1A /usr/local; cat /etc/ssl/openssl.cnf"))
    };
    on_host("mount -t tmpfs none /etc/ssl; echo first > /etc/ssl/openssl.cnf");
    assert!(look().ends_with("first\n"));
    on_host("mount -t tmpfs none /usr/local; touch /usr/local/mounted-later");
    assert!(look().starts_with("mounted-later\n"), "a mount is noticed");
    on_host("echo second > /etc/ssl/new; mv /etc/ssl/new /etc/ssl/openssl.cnf");
    assert!(look().ends_with("second\n"), "a file put in the place of another is noticed");
    on_host("echo linked > /usr/local/target; ln -sf /usr/local/target /etc/ssl/openssl.cnf");
    assert!(look().ends_with("linked\n"));
    on_host("echo replaced > /usr/local/new; mv /usr/local/new /usr/local/target");
    assert!(look().ends_with("replaced\n"), "another file where a shown link leads is noticed");
    on_host("ln -sf /usr/share/dict /etc/ssl/openssl.cnf; rm /etc/ssl/openssl.cnf; echo third > /etc/ssl/openssl.cnf");
    host.unmount("/usr/local");
    assert!(!look().contains("mounted-later"), "an unmount is noticed");
    assert!(begun_before > 0, "none was ever begun before a change");
    remote.stop().unwrap();
}

#[test]
fn a_mount_below_the_system_is_closed_too() {
    if !rustix::process::geteuid().is_root() {
        skip::skipped("only root can mount");
        return;
    }
    let (bench, host) = (Bench::new(), OtherMounts::new());
    host.run("mount -t tmpfs -o mode=1777 none /usr/local; touch /usr/local/there");
    let mut program = host.command(launcher_program());
    program.args(["1", "true"]);
    let remote = Launcher::start(program, Namespace::with_defaults()).unwrap();
    let script =
        "ls /usr/local; : 2>/dev/null > /usr/local/made && echo made; grep ' /usr/local ' /proc/self/mountinfo";
    let seen = bench.output(Some(&remote), bench.draft(Path::new("/workspace"), script));
    remote.stop().unwrap();
    assert!(seen.starts_with("there\n") && !seen.contains("made"), "{seen}");
    assert!(seen.contains(" /usr/local ro,nosuid,nodev"), "{seen}");
}

#[test]
fn no_sandbox_sees_the_places_or_processes_of_another() {
    let bench = Bench::new();
    let remote = launcher(&["1", "true"]);
    let first = bench.draft(Path::new("/srv/secret-name/project"), "touch /tmp/mine; sleep 0.01");
    bench.output(Some(&remote), first);
    let look = "find / -xdev -name 'secret-name' 2>/dev/null; ls -A /srv /tmp; ls -d /proc/[0-9]* | wc -l";
    let seen = bench.output(Some(&remote), bench.draft(Path::new("/workspace"), look));
    assert!(!seen.contains("secret-name") && !seen.contains("mine"), "{seen}");
    remote.stop().unwrap();
}

/// As if the kernel were an old one.
#[cfg(feature = "inject")]
#[test]
fn where_detached_layers_are_refused_attached_ones_serve() {
    let bench = Bench::new();
    let remote = launcher(&["0", "false", "0", "detached_layers"]);
    let script = "echo new > file && mkdir d && mv d e && cat file";
    assert_eq!(bench.output(Some(&remote), bench.layered(Path::new("/workspace"), script)), "new\n");
    assert_eq!(std::fs::read_to_string(bench.path("workspace/file")).unwrap(), "old\n");
    assert_eq!(std::fs::read_to_string(bench.path("layer/upper/file")).unwrap(), "new\n");
    let mut draft = bench.draft(Path::new("/workspace"), "echo new > file; cat file");
    draft.workspace.writes = Writes::MemoryLayer { bytes: 1 << 20 };
    assert_eq!(bench.output(Some(&remote), draft), "new\n");
    remote.stop().unwrap();
}

/// Each step fails in turn in a launcher: it is named, and the command never starts.
#[cfg(feature = "inject")]
#[test]
fn a_step_that_fails_in_a_launcher_is_named_and_nothing_starts() {
    use nexus_driver_namespace::Step;
    use nexus_model::ExitStatus;
    let bench = Bench::new();
    let marker = bench.path("workspace/marker");
    let (mut reached, mut ahead) = (BTreeSet::new(), 0);
    for step in Step::ALL {
        let remote = launcher(&["0", "false", "0", step.name()]);
        let pooled = launcher(&["1", "true", "1", step.name()]);
        let ways = [(&remote, false), (&remote, true), (&pooled, false), (&pooled, false), (&pooled, true)];
        for (launcher, layered) in ways {
            if std::ptr::eq(launcher, &raw const pooled) {
                // If the step does not prevent the pre-fork.
                ahead += usize::from(begun(launcher, Duration::from_millis(50)).is_some());
            }
            let target = Path::new("/workspace");
            let script = "echo STARTED; touch marker";
            let draft = if layered { bench.layered(target, script) } else { bench.draft(target, script) };
            match bench.run(Some(launcher), draft) {
                Ok((text, status)) => {
                    assert_eq!((text.as_str(), status), ("STARTED\n", ExitStatus::Code(0)), "{}", step.name());
                    if !layered {
                        std::fs::remove_file(&marker).unwrap();
                    }
                }
                Err(reason) => {
                    assert!(reason.contains(step.name()), "{}: {reason}", step.name());
                    assert!(!marker.exists(), "{}", step.name());
                    assert!(!layered || !bench.path("layer/upper/marker").exists(), "{}", step.name());
                    reached.insert(step.name());
                }
            }
        }
        drop((remote, pooled));
    }
    for step in [Step::Template, Step::NetworkPool, Step::Loopback, Step::PivotRoot, Step::ReadOnlyRoot, Step::Seccomp]
    {
        assert!(reached.contains(step.name()), "no launch came to {}", step.name());
    }
    assert!(ahead > 0, "none was begun in advance");
}
