//! Workspaces with mounts in them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::process::Command;
use support::{benches, needs_root, stderr, stdout};

/// Mounts in the mount namespace of one `sh`, which then runs `nexus`: nothing is left on the host, however it ends.
#[test]
fn a_mount_inside_the_workspace_is_refused_by_name() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        let (dir, file) = (bench.workspace.join("m n"), bench.write("file", "under\n"));
        fs::create_dir(&dir).unwrap();
        bench.give(&dir);
        let identity =
            bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
        let other = bench.base.path().join("other");
        fs::write(&other, "over\n").unwrap();
        for (mount, at) in [
            (format!("mount -t tmpfs none '{0}' && chmod 777 '{0}'", dir.display()), &dir),
            (format!("mount --bind '{}' '{}'", other.display(), file.display()), &file),
        ] {
            let run = |flags: &str, script: &str| {
                let nexus = bench.program().display();
                let line = format!("{mount} && exec {identity}{nexus} run {flags} --shell '{script}'");
                let mut command: Command = bench.command_as_root("unshare");
                command.args(["-m", "sh", "-c", &line]).output().unwrap()
            };
            let refused = run("--changes=commit", "touch made");
            let text = stderr(&refused);
            assert_eq!(refused.status.code(), Some(125), "{} {at:?}: {text}", bench.who());
            let name = at.display().to_string();
            assert!(text.contains(&name) && text.contains("--direct"), "{} {at:?}: {text}", bench.who());
            assert!(!bench.workspace.join("made").exists());
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
            // What the message advises works.
            let direct = run("--direct", "echo x > \"m n/x\"; cat \"m n/x\" file");
            assert_eq!(direct.status.code(), Some(0), "{} {at:?}: {}", bench.who(), stderr(&direct));
            assert_eq!(stdout(&direct), if *at == dir { "x\nunder\n" } else { "x\nover\n" }, "{}", bench.who());
            fs::remove_file(dir.join("x")).ok();
        }
        let smaller = bench.workspace.join("sub");
        fs::create_dir(&smaller).unwrap();
        bench.give(&smaller);
        let line = format!(
            "mount -t tmpfs none '{}' && cd sub && exec {identity}{} run --shell 'echo x > x'",
            dir.display(),
            bench.program().display()
        );
        let output = bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(smaller.join("x").exists());
    }
}

/// A mount whose program never answers, in the mount namespace of the script alone.
const SILENT: &str = "import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
at, uid = sys.argv[1], int(sys.argv[2])
fd = os.open('/dev/fuse', os.O_RDWR)
options = b'fd=%d,rootmode=40000,user_id=%d,group_id=%d' % (fd, uid, uid)
if libc.mount(b'silent', at.encode(), b'fuse', 0, options):
    sys.exit('mount: %d' % ctypes.get_errno())
open(sys.argv[3], 'w').close()
time.sleep(60)
";

#[test]
fn no_advice_waits_for_a_file_system_that_does_not_answer() {
    if !needs_root() || !std::path::Path::new("/dev/fuse").exists() {
        return;
    }
    for bench in benches() {
        let at = bench.home.join("silent");
        fs::create_dir(&at).unwrap();
        bench.give(&at);
        let script = bench.base.path().join("silent.py");
        fs::write(&script, SILENT).unwrap();
        let (user, at) = (bench.user.unwrap_or(0), at.display());
        let identity =
            bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
        bench.write(".git", format!("gitdir: {at}/main/.git/worktrees/lw\n"));
        let complaint = format!("echo \"cat: {at}/x: No such file or directory\" >&2; exit 1");
        let worktree = "echo \"fatal: not a git repository\" >&2; exit 1".to_owned();
        for (number, (flags, words)) in
            [("", &complaint), ("-q", &complaint), ("", &worktree), ("-q", &worktree)].into_iter().enumerate()
        {
            let ready = bench.base.path().join(format!("ready{number}"));
            let nexus = bench.program().display();
            let line = format!(
                "python3 {} '{at}' {user} '{ready}' & server=$!; while ! [ -e '{ready}' ]; do kill -0 $server || exit 99; sleep 0.05; done; \
                 timeout -s KILL 20 {identity}{nexus} run --changes discard {flags} --shell '{words}'; code=$?; \
                 kill $server; exit $code",
                script.display(),
                ready = ready.display(),
            );
            let begun = std::time::Instant::now();
            let output = bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap();
            let (code, told) = (output.status.code(), stderr(&output));
            assert_eq!(code, Some(1), "{} {flags} {words}: {:?}: {told}", bench.who(), begun.elapsed());
            assert!(!told.contains("is there outside"), "{}: {told}", bench.who());
        }
    }
}

#[test]
fn without_home_the_machines_own_table_names_the_home() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        // The state of root is not in a home.
        let Some(user) = bench.user else { continue };
        let file = |name: &str, text: String| {
            let path = bench.base.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let table =
            file("passwd", format!("root:x:0:0::/:/bin/sh\nx:x:{user}:{user}::{}:/bin/sh\n", bench.home.display()));
        let other = file("other", "y:x:4:4::/:/bin/sh\n".to_owned());
        // A program that asked the C library would load this module and find no user.
        let modules = file("nsswitch.conf", "passwd: nosuchmodule\n".to_owned());
        let identity = format!("setpriv --reuid {user} --regid {user} --clear-groups ");
        let run = |table: &str, home: &str| {
            let nexus = bench.program().display();
            let line = format!(
                "mount --bind {table} /etc/passwd && mount --bind {modules} /etc/nsswitch.conf && \
                 exec env -u HOME -u NEXUS_STATE_DIR {home} {identity}{nexus} run -- pwd"
            );
            bench.command_as_root("unshare").args(["-m", "sh", "-c", &line]).output().unwrap()
        };
        for home in ["", "HOME="] {
            let found = run(&table, home);
            assert_eq!(found.status.code(), Some(0), "{} {home}: {}", bench.who(), stderr(&found));
        }
        assert!(bench.home.join(".local/state/nexus").exists(), "{}", bench.who());
        let missing = run(&other, "");
        assert_eq!(missing.status.code(), Some(125), "{}", bench.who());
        assert!(stderr(&missing).contains("HOME"), "{}: {}", bench.who(), stderr(&missing));
    }
}

/// The host of the test below: what is mounted below the base is compared before and after a run, and it mounts the secret
/// directory while the command runs.
const SHARED_HOST: &str = r#"
cd "$BASE" && mount --bind "$BASE" "$BASE" && mount --make-shared "$BASE" && cd "$WORKSPACE" || exit 90
own() { grep -F "$BASE" /proc/self/mountinfo | cut -d" " -f4-7 | sort; }
own > "$BASE/before"
(
    for i in $(seq 500); do [ -e "$BASE/signal/begun" ] && break; sleep 0.02; done
    own > "$BASE/during"
    for place in "$BASE/shown" "$WORKSPACE"; do mount --bind "$BASE/secret" "$place/later" || exit 91; done
    touch "$BASE/signal/mounted"
) &
$IDENTITY "$NEXUS" run $FLAGS --hide-secrets --rw "$BASE/signal" "$SHOWN_AS" "$BASE/shown" --shell "
    touch $BASE/signal/begun
    for i in \$(seq 500); do [ -e $BASE/signal/mounted ] && break; sleep 0.02; done
    find $BASE/shown/later $WORKSPACE/later -mindepth 1
    cat $WORKSPACE/.env 2>/dev/null
    echo ended"
wait $!
for place in "$BASE/shown" "$WORKSPACE"; do umount "$place/later" || exit 92; done
own > "$BASE/after"
rm "$BASE"/signal/*
"#;

/// With systemd every mount of the host is shared, so that a copy of one takes part in what is mounted on either side.
#[test]
fn shared_mounts_of_the_host_carry_no_mount_in_or_out() {
    if !needs_root() {
        return;
    }
    for bench in benches() {
        let base = bench.base.path();
        let places = ["shown", "secret", "signal"].map(|name| base.join(name));
        for place in places.iter().chain([&bench.workspace]) {
            fs::create_dir_all(place.join("later")).unwrap();
        }
        fs::remove_dir(base.join("signal/later")).unwrap();
        fs::write(base.join("secret/of-the-host"), "secret\n").unwrap();
        let socket = std::os::unix::net::UnixListener::bind(base.join("shown/socket")).unwrap();
        bench.write(".env", "key\n");
        bench.write(".git/x", "key\n");
        bench.write(".git/config", "[core]\n\tbare = false\n");
        places.iter().chain([&bench.workspace]).for_each(|place| bench.give(place));
        let identity =
            bench.user.map_or(String::new(), |uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups "));
        for flags in ["", "--direct", "--direct --hide .git/x"] {
            for shown_as in ["--ro", "--rw"] {
                fs::remove_file(base.join("during")).ok();
                let what = format!("{} {flags} {shown_as}", bench.who());
                let output = bench
                    .command_as_root("unshare")
                    .args(["-m", "bash", "-c", SHARED_HOST])
                    .env("BASE", base)
                    .env("WORKSPACE", &bench.workspace)
                    .env("IDENTITY", &identity)
                    .env("NEXUS", bench.program())
                    .env("FLAGS", flags)
                    .env("SHOWN_AS", shown_as)
                    .output()
                    .unwrap();
                assert_eq!(output.status.code(), Some(0), "{what}: {}", stderr(&output));
                assert_eq!(stdout(&output), "ended\n", "{what}: {}", stderr(&output));
                let mounts = ["before", "during", "after"].map(|name| fs::read_to_string(base.join(name)).unwrap());
                assert!(mounts[0].contains("shared:"), "{what}: {}", mounts[0]);
                assert_eq!(mounts[0], mounts[1], "{what}, while the command runs");
                assert_eq!(mounts[0], mounts[2], "{what}, after the run");
            }
        }
        drop(socket);
    }
}
