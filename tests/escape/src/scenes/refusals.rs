//! A14, B13: when the driver must refuse to start.

use super::options::Options;
use crate::answer::{Answer, Seen};
use crate::host::bench::{Bench, Job, Ran};
use crate::host::fault::{Refuse, When};
use crate::host::world::{WorldError, making};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);
const COMMIT: &[&str] = &["--changes", "commit"];
const RAN: &str = "the-command-ran";

const fn refuse(call: i64, when: When, errno: i32) -> Refuse {
    Refuse { call, when, errno }
}

/// clone3's flags are out of a filter's sight, so it is absent and the driver has to use clone.
const NAMESPACES: &[Refuse] = &[
    refuse(libc::SYS_clone3, When::Always, libc::ENOSYS),
    refuse(libc::SYS_clone, When::Has(0, libc::CLONE_NEWUSER as u32), libc::ENOSPC),
    refuse(libc::SYS_unshare, When::Has(0, libc::CLONE_NEWUSER as u32), libc::ENOSPC),
];

/// Each step that must not be skipped, and how a kernel may deny it.
const STEPS: &[(&str, &[Refuse])] = &[
    ("landlock_absent", &[refuse(libc::SYS_landlock_create_ruleset, When::Always, libc::ENOSYS)]),
    ("landlock_refused", &[refuse(libc::SYS_landlock_restrict_self, When::Always, libc::EPERM)]),
    (
        "seccomp_absent",
        &[
            refuse(libc::SYS_seccomp, When::Always, libc::ENOSYS),
            refuse(libc::SYS_prctl, When::Equals(0, libc::PR_SET_SECCOMP as u32), libc::EINVAL),
        ],
    ),
    (
        "no_new_privs_refused",
        &[refuse(libc::SYS_prctl, When::Equals(0, libc::PR_SET_NO_NEW_PRIVS as u32), libc::EPERM)],
    ),
    ("user_namespaces_refused", NAMESPACES),
    ("pivot_root_refused", &[refuse(libc::SYS_pivot_root, When::Always, libc::EPERM)]),
    (
        "core_limit_refused",
        &[
            refuse(libc::SYS_prlimit64, When::Equals(1, libc::RLIMIT_CORE), libc::EPERM),
            refuse(libc::SYS_setrlimit, When::Equals(0, libc::RLIMIT_CORE), libc::EPERM),
        ],
    ),
    ("keyring_refused", &[refuse(libc::SYS_keyctl, When::Always, libc::EDQUOT)]),
];

/// `refused` only with the right code and without the command's word.
fn verdict(ran: &Ran) -> Answer {
    let ran_anyway = ran.stdout.contains(RAN);
    let word = match (ran_anyway, ran.code) {
        (true, _) => "ran",
        (false, Some(125)) => "refused",
        (false, _) => "neither",
    };
    Answer::of(word).with(ran.summary())
}

/// Starts with one security step denied by the kernel (OpenShell #803: a failed Landlock was taken for success).
pub fn missing_steps(bench: &Bench, options: &Options) -> Result<Vec<Seen>, WorldError> {
    let mut seen = Vec::new();
    for (case, refusals) in STEPS {
        let ran = bench.run(&Job::new(COMMIT, &["/bin/echo", RAN]).refusing(refusals), LIMIT)?;
        seen.push(Seen::new("A14", case, verdict(&ran)));
    }
    let unrelated = [refuse(libc::SYS_acct, When::Always, libc::EPERM)];
    let ran = bench.run(&Job::new(COMMIT, &["/bin/echo", RAN]).refusing(&unrelated), LIMIT)?;
    seen.push(Seen::new("A14", "unrelated_fault", verdict(&ran)));
    if !options.inject.is_empty() {
        let mut worst = Answer::of("refused");
        for step in &options.inject {
            let mut job = Job::new(COMMIT, &["/bin/echo", RAN]);
            job.variable = Some(("NEXUS_INJECT".to_owned(), step.clone()));
            let ran = bench.run(&job, LIMIT)?;
            if verdict(&ran).answer != "refused" {
                worst = verdict(&ran).with(format!("{step}: {}", ran.summary()));
            }
        }
        seen.push(Seen::new("A14", "inject_hook", worst));
    }
    Ok(seen)
}

/// A working directory outside the workspace (Codex CVE-2025-59532): refused as usage or as a failure to start.
pub fn working_directory(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let workspace = &bench.world.context.workspace;
    making("a directory in the workspace", std::fs::create_dir_all(workspace.join("inner")))?;
    let side = bench.world.base.join("side");
    let link = workspace.join("link-side");
    if !link.is_symlink() {
        making("a link out of the workspace", std::os::unix::fs::symlink(&side, &link))?;
    }
    let mut seen = Vec::new();
    for (case, directory) in [
        ("system", "/etc".into()),
        ("parent", bench.world.base.clone()),
        ("dot_dot", workspace.join("inner/../../side")),
        ("link_out", link),
        ("inner", workspace.join("inner")),
    ] {
        let directory = directory.to_string_lossy().into_owned();
        let job = Job::new(
            &["--changes", "commit", "--cwd", &directory],
            &["/bin/sh", "-c", "echo the-command-ran in $(pwd -P)"],
        );
        let ran = bench.run(&job, LIMIT)?;
        let answer = match (ran.stdout.contains(RAN), ran.code) {
            (false, Some(2 | 125)) => Answer::of("refused"),
            (true, _) if case == "inner" && !ran.stdout.contains("/ws/inner") => Answer::of("elsewhere"),
            (true, _) => Answer::of("ran"),
            _ => Answer::of("neither"),
        };
        seen.push(Seen::new("B13", case, answer.with(format!("{} {}", ran.stdout.trim(), ran.summary()))));
    }
    Ok(seen)
}
