//! Calls of the host side that may wait, and why none of them waits without a bound for the inside of a sandbox.

/// Calls of one file: how often each is there, and the reason why none of them waits without a bound for the inside.
pub type Entry = (&'static str, &'static [(&'static str, usize)], &'static str);

/// In order of path.
pub const ALLOWED: &[Entry] = &[
    ("crates/cli/src/doctor/mod.rs", &[(".output()", 1)], "The trial of nexus doctor: a command of nexus's own."),
    ("crates/cli/src/fleet/call.rs", &[("fs::read_to_string(", 1)], "A file that a flag names."),
    ("crates/cli/src/fleet/enroll.rs", &[("fs::read(", 1)], "The certificate in the data directory of the territory."),
    ("crates/cli/src/fleet/follow.rs", &[(".status()", 1)], "The status of an HTTP answer, and not of a process."),
    (
        "crates/cli/src/fleet/login.rs",
        &[(".read_to_string(", 2)],
        "A regular file of the user's configuration; a secret that the caller passes on standard input.",
    ),
    (
        "crates/cli/src/fleet/serve.rs",
        &[(".read_to_string(", 1)],
        "A regular file that a flag names, with the secret of a proxy: at most 4 KiB.",
    ),
    (
        "crates/cli/src/fleet/services.rs",
        &[("poll(…, None)", 1)],
        "A signal that ends the daemon: a process that serves has nothing else to wait for.",
    ),
    ("crates/cli/src/net/ask.rs", &[(".recv()", 1)], "A thread of its own waits for questions of this process."),
    (
        "crates/cli/src/net/listening.rs",
        &[("File::open(", 1), ("fs::read_to_string(", 1)],
        "Files of proc, and the executable of a process of this machine that listens on a port, read up to a bound.",
    ),
    ("crates/cli/src/net/log.rs", &[("File::open(", 1)], "Records in the state directory."),
    ("crates/cli/src/net/saved.rs", &[("File::open(", 1)], "The directory of the user's profiles."),
    (
        "crates/cli/src/profile/trust.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    (
        "crates/cli/src/receipt/verify.rs",
        &[(".read_to_string(", 1), ("fs::read_to_string(", 1), ("File::open(", 1)],
        "Files that the person names who verifies a receipt.",
    ),
    (
        "crates/cli/src/run/ask.rs",
        &[("poll(…, None)", 1), ("io::read(", 1)],
        "Waits for the person at the terminal, or a signal, after the sandbox has ended.",
    ),
    (
        "crates/cli/src/run/foreground.rs",
        &[("io::read(", 1)],
        "The standard input of the caller, of which no sandbox has an end, after poll(2) found something there.",
    ),
    (
        "crates/cli/src/run/slow_end.rs",
        &[("poll(…, None)", 1)],
        "A thread that waits for signals to this process and for its own end; the end of a run waits for no sandbox then.",
    ),
    (
        "crates/cli/src/session/client.rs",
        &[("io::read(", 1)],
        "The socket of a client, a process of the same user outside; it is set to O_NONBLOCK.",
    ),
    ("crates/cli/src/session/command.rs", &[("io::read(", 1)], "The output of an exec, set to O_NONBLOCK."),
    (
        "crates/cli/src/session/link.rs",
        &[("io::read(", 1)],
        "The socket of a supervisor, a process of nexus's own; it is set to O_NONBLOCK.",
    ),
    ("crates/cli/src/session/logs.rs", &[(".output()", 1)], "The output that was kept, not a process."),
    (
        "crates/cli/src/session/process.rs",
        &[("fs::read_to_string(", 1)],
        "The state of a supervisor in /proc, which waits for no process.",
    ),
    (
        "crates/cli/src/session/store.rs",
        &[("fs::read(", 1), ("File::open(", 3), ("net::connect(", 1)],
        "Files and the lock of the state directory, held for some calls; the socket of a supervisor, set to O_NONBLOCK.",
    ),
    ("crates/cli/src/session/supervisor.rs", &[(".output()", 1)], "The output that was kept, not a process."),
    (
        "crates/cli/src/session/view.rs",
        &[("poll(…, None)", 1), ("io::read(", 1)],
        "Waits for the supervisor of a sandbox, a process of nexus's own; a signal ends the client.",
    ),
    ("crates/cli/src/terminal/hold.rs", &[("io::read(", 1)], "An event of this process, set to O_NONBLOCK."),
    (
        "crates/driver/src/conformance.rs",
        &[(".hear()", 3), (".wait()", 5)],
        "The suite that drivers are tested with; no product calls it.",
    ),
    (
        "crates/driver/src/fake.rs",
        &[("receive::<", 1), ("channel.send(", 2)],
        "The scripted driver of tests: both ends are its own.",
    ),
    (
        "crates/drivers/namespace/src/closer.rs",
        &[("descriptors::send(", 1), ("descriptors::receive(", 1)],
        "The socket between a launcher and its closer, of which no sandbox has an end; the launcher sends without waiting.",
    ),
    ("crates/drivers/namespace/src/core_pattern.rs", &[("fs::read(", 1)], "A file of proc."),
    ("crates/drivers/namespace/src/inventory.rs", &[("fs::read_to_string(", 2)], "Files of proc."),
    (
        "crates/drivers/namespace/src/launcher/client.rs",
        &[("receive::<", 1), ("channel.send(", 1), (".wait()", 1)],
        "The socket between a program and its launcher process, of which no sandbox has an end; the launcher itself, after its socket was closed.",
    ),
    (
        "crates/drivers/namespace/src/launcher/server.rs",
        &[("receive::<", 1), ("channel.send(", 8), ("File::open(", 1)],
        "The socket between a program and its launcher process, of which no sandbox has an end; a namespace in proc.",
    ),
    ("crates/drivers/namespace/src/members.rs", &[("fs::read_to_string(", 1)], "A file of proc."),
    (
        "crates/drivers/namespace/src/process.rs",
        &[(".wait()", 1)],
        "PID 1 of a sandbox, which was killed or has ended.",
    ),
    ("crates/drivers/namespace/src/probe.rs", &[("fs::read_to_string(", 2)], "Files of proc."),
    ("crates/egress/src/dial.rs", &[("TcpStream::connect(", 2)], "Futures, within the time that a connection has."),
    (
        "crates/egress/src/dns/serve.rs",
        &[(".read_exact(", 1)],
        "A future, within the time that its caller gives a question.",
    ),
    ("crates/egress/src/http/order.rs", &[(".status()", 1)], "The status of an error, not of a process."),
    (
        "crates/egress/src/system.rs",
        &[(".read_to_end(", 1), ("File::open(", 1)],
        "The hosts file of the machine, up to a bound.",
    ),
    (
        "crates/facility/src/beneath.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    ("crates/layer/src/compare.rs", &[(".read_exact(", 1)], "Regular files, opened without waiting, up to a bound."),
    (
        "crates/layer/src/diff/accept.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    (
        "crates/layer/src/diff/read.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    ("crates/layer/src/facts.rs", &[(".read_to_end(", 1)], "A regular file, opened without waiting, up to a bound."),
    ("crates/layer/src/git_index.rs", &[(".read_to_end(", 2)], "Regular files, opened without waiting, up to a bound."),
    (
        "crates/layer/src/index_at_start.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    (
        "crates/layer/src/git_index/damage.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    (
        "crates/layer/src/git_index/lengths.rs",
        &[(".read_to_end(", 1)],
        "Regular files, opened without waiting, up to a bound.",
    ),
    (
        "crates/layer/src/git_index/in_place.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    (
        "crates/layer/src/git_packs/known.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    (
        "crates/layer/src/leads/git.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    ("crates/layer/src/opened.rs", &[(".read_to_end(", 1)], "A regular file of the state directory, up to a bound."),
    ("crates/layer/src/started.rs", &[("fs::read_to_string(", 2)], "Files of proc."),
    (
        "crates/layer/src/state_file.rs",
        &[(".read_to_end(", 1)],
        "A regular file of the state directory, up to a bound.",
    ),
    (
        "crates/jail/src/launcher/overlay_compat.rs",
        &[("descriptors::send(", 1), ("descriptors::receive(", 1)],
        "The socket between a launcher and its child, of which no sandbox has an end; received after poll(2), within ten seconds.",
    ),
    (
        "crates/jail/src/launcher/template.rs",
        &[("io::read(", 2)],
        "Pipes between a launcher and its builder, of which no sandbox has an end; the launcher reads after poll(2), within ten seconds.",
    ),
    (
        "crates/nexusd/src/claims.rs",
        &[(".read_to_end(", 1), ("File::open(", 1)],
        "A note of the daemon in its own directory: a regular file, up to a bound; the directory itself, to sync it.",
    ),
    ("crates/nexusd/src/run/engine.rs", &[("fs::read(", 1)], "The receipt that this process has just written."),
    (
        "crates/nexusd/src/territory.rs",
        &[("File::open(", 1), ("fs::read(", 1)],
        "The data directory of the daemon, to sync it, and its own file of identity.",
    ),
    (
        "crates/nexusd/src/trial.rs",
        &[(".hear()", 1), (".wait()", 1)],
        "The trial sandbox, a command of nexus's own, which the launcher kills at its deadline.",
    ),
    (
        "crates/profiles/src/clients/ask.rs",
        &[(".wait()", 1)],
        "A client of the user that has closed its output or was killed.",
    ),
    (
        "crates/profiles/src/clients/reader.rs",
        &[("fs::read_to_string(", 1)],
        "Settings of package clients, before the sandbox starts.",
    ),
    (
        "crates/profiles/src/owned.rs",
        &[(".read_to_string(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    (
        "crates/profiles/src/toolchains/reading.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    (
        "crates/profiles/src/workspace_file.rs",
        &[(".read_to_end(", 1)],
        "A regular file, opened without waiting, up to a bound.",
    ),
    (
        "crates/receipt/src/store/files.rs",
        &[(".read_to_end(", 1), ("File::open(", 1)],
        "A regular file of the state directory, up to a bound; and a file that the person names who verifies a receipt.",
    ),
    (
        "crates/receipt/src/verify.rs",
        &[(".read_to_end(", 1), ("File::open(", 1)],
        "A file that the person names who verifies a receipt.",
    ),
    (
        "crates/runner/src/live/input/source.rs",
        &[("io::read(", 1)],
        "A pipe that this process fills, set to O_NONBLOCK.",
    ),
    ("crates/runner/src/live/pipes.rs", &[("File::open(", 1)], "The null device."),
    ("crates/runner/src/live/pump.rs", &[("io::read(", 1)], "The output of the command, set to O_NONBLOCK."),
    (
        "crates/runner/src/live/relay.rs",
        &[("io::read(", 1)],
        "Sockets that are set to O_NONBLOCK before a relay gets them.",
    ),
    ("crates/runner/src/net/addresses.rs", &[("fs::read_to_string(", 2)], "Files of proc."),
    ("crates/runner/src/net/record.rs", &[("File::open(", 2)], "Records in the state directory."),
    ("crates/runner/src/plan/devices.rs", &[("fs::read_to_string(", 1)], "A file of proc."),
    ("crates/runner/src/plan/git_host.rs", &[("fs::read(", 1)], "The table of users."),
    ("crates/runner/src/plan/mounts.rs", &[("fs::read(", 1)], "A file of proc."),
    ("crates/runner/src/plan/watch.rs", &[(".read_to_end(", 2)], "Files opened without waiting, up to a bound."),
    ("crates/runner/src/state/commit_lock.rs", &[("fs::read_to_string(", 2)], "Files of proc."),
    ("crates/runner/src/state/generated.rs", &[("fs::read(", 1)], "A file in the state directory."),
    ("crates/runner/src/run/held.rs", &[(".wait()", 1)], "PID 1 of a sandbox, which was killed or has ended."),
    ("crates/runner/src/run/report.rs", &[(".output()", 1)], "The output that was kept, not a process."),
    ("crates/runner/src/state/left.rs", &[("fs::read_to_string(", 2)], "Files of proc."),
    (
        "crates/runner/src/state/note.rs",
        &[("File::open(", 2)],
        "A layer's directory, which is synced, and a file of proc.",
    ),
    (
        "crates/runner/src/state/record.rs",
        &[(".read_to_end(", 1), ("File::open(", 2)],
        "Records in the state directory, and the null device.",
    ),
];
