//! Rows of section B that run inside: the file system view and the workspace.

use super::case::{Case, How, Kind, Stage, bad, good, row};
use crate::answer::Answer;
use crate::context::Context;
use crate::probes::{a_syscalls, b_files as f, b_modes as m, b_view as v, confinement as w, mounts};
use std::path::Path;

const HIDDEN: &[&str] = &["ENOENT", "EACCES"];
const PRIVATE: &[&str] = &["EROFS", "EACCES", "EPERM", "ENOENT", "private"];
const READ_ONLY: &[&str] = &["EROFS", "EACCES", "EPERM"];
const NO_LINK: &[&str] = &["EXDEV", "EPERM", "EROFS", "EACCES"];
const MASKED: &[&str] = &["empty", "EACCES", "EPERM", "ENOENT"];
const NO_WRITE: &[&str] = &["EACCES", "EROFS", "ENOENT", "EPERM"];
const NO_BITS: &[&str] = &["EPERM", "EACCES"];
const NO_CALL: &[&str] = &["ENOSYS", "EPERM"];

/// Cases of the view, links, read-only directories and masks.
pub const CASES: &[Case] = &[
    bad("B01", "home_canary", |c| v::read(&c.canary_home), HIDDEN),
    bad("B01", "tmp_canary", |c| v::read(&c.canary_tmp), HIDDEN),
    bad("B01", "side_canary", |c| v::read(&c.canary_side), HIDDEN),
    bad("B01", "proc_root", v::through_proc_root, HIDDEN),
    bad("B01", "dot_dot", v::dot_dot, HIDDEN),
    bad("B01", "shadow", |_| v::read("/etc/shadow"), HIDDEN),
    bad("B01", "var_log", |_| Answer::from_io(std::fs::read_dir("/var/log")), HIDDEN),
    bad("B01", "stat_above_root", w::stat_above_root, &["ENOENT"]),
    bad("B01", "read_above_root", w::read_above_root, &["ENOENT"]),
    bad("B01", "shadow_above_root", w::shadow_above_root, HIDDEN),
    bad("B01", "every_mount", mounts::every_mount, &["as-planned"]),
    good("B01", "own_file", |c| v::read(c.workspace.join("own-file"))),
    good("B01", "system_file", |_| v::read("/usr/bin/env")),
    bad("B02", "root", |c| v::create_in(c, "/"), PRIVATE),
    bad("B02", "refused_root", w::create_in_root, READ_ONLY),
    bad("B02", "etc", |c| v::create_in(c, "/etc"), PRIVATE),
    bad("B02", "usr", |c| v::create_in(c, "/usr"), PRIVATE),
    bad("B02", "usr_bin", |c| v::create_in(c, "/usr/bin"), PRIVATE),
    bad("B02", "home", |c| v::create_in(c, "/home"), PRIVATE),
    bad("B02", "var", |c| v::create_in(c, "/var"), PRIVATE),
    bad("B02", "var_tmp", |c| v::create_in(c, "/var/tmp"), PRIVATE),
    bad("B02", "tmp", |c| v::create_in(c, "/tmp"), PRIVATE),
    bad("B02", "run", |c| v::create_in(c, "/run"), PRIVATE),
    bad(
        "B02",
        "beside_workspace",
        |c| v::create_in(c, &c.canary_side.parent().unwrap_or(Path::new("/")).to_string_lossy()),
        PRIVATE,
    ),
    Case { expect: &["on-host"], ..good("B02", "workspace", |c| v::create_in(c, &c.workspace.to_string_lossy())) },
    bad("B03", "link_to_canary", |c| f::read_prepared_link(c, "link-canary", Path::new("")), HIDDEN),
    bad("B03", "link_to_root", |c| f::read_prepared_link(c, "link-root", &c.canary_side), HIDDEN),
    bad("B03", "link_dot_dot", |c| f::read_prepared_link(c, "link-up", &c.canary_side), HIDDEN),
    bad("B03", "own_link", f::read_own_link, HIDDEN),
    good("B03", "inner_link", f::read_inner_link),
    bad("B04", "system_file", f::link_system_file, NO_LINK),
    bad("B04", "read_only_file", f::link_read_only_file, NO_LINK),
    bad("B04", "descriptor", f::link_descriptor, NO_LINK),
    good("B04", "own_file", f::link_own_file),
    bad("B05", "write", f::write_read_only, READ_ONLY),
    bad("B05", "write_elsewhere", w::write_elsewhere, READ_ONLY),
    bad("B05", "reopen", f::reopen_read_only, READ_ONLY),
    bad("B05", "truncate", f::truncate_read_only, READ_ONLY),
    bad("B05", "chmod", f::chmod_read_only, READ_ONLY),
    bad("B05", "create", f::create_read_only, READ_ONLY),
    bad("B05", "unlink", f::unlink_read_only, READ_ONLY),
    bad("B05", "rename", f::rename_read_only, READ_ONLY),
    bad("B05", "touch", f::touch_read_only, READ_ONLY),
    bad("B05", "remount", a_syscalls::remount_writable, &["EPERM", "ENOSYS"]),
    good("B05", "read", f::read_read_only),
    bad("B08", "sysrq", |_| v::open_for_writing("/proc/sysrq-trigger"), NO_WRITE),
    bad("B08", "kcore", |_| v::content("/proc/kcore"), MASKED),
    bad("B08", "kmsg", |_| v::read("/proc/kmsg"), NO_WRITE),
    bad("B08", "keys", |_| v::content("/proc/keys"), MASKED),
    bad("B08", "key-users", |_| v::content("/proc/key-users"), MASKED),
    bad("B08", "kallsyms", |_| v::content("/proc/kallsyms"), MASKED),
    bad("B08", "covers", mounts::covers, &["covered"]),
    bad("B08", "own_switch", w::own_switch, NO_WRITE),
    bad("B08", "timer_list", |_| v::content("/proc/timer_list"), MASKED),
    bad("B08", "cmdline", |_| v::content("/proc/cmdline"), MASKED),
    bad("B08", "interrupts", |_| v::content("/proc/interrupts"), MASKED),
    bad("B08", "softirqs", |_| v::content("/proc/softirqs"), MASKED),
    bad("B08", "drop_caches", |_| v::open_for_writing("/proc/sys/vm/drop_caches"), NO_WRITE),
    bad("B08", "hostname", |_| v::open_for_writing("/proc/sys/kernel/hostname"), NO_WRITE),
    bad("B08", "irq", |_| v::open_for_writing("/proc/irq/default_smp_affinity"), NO_WRITE),
    bad(
        "B08",
        "sys",
        |_| {
            v::open_any_for_writing(&[
                "/sys/kernel/mm/transparent_hugepage/enabled",
                "/sys/kernel/mm/ksm/run",
                "/sys/power/state",
            ])
        },
        NO_WRITE,
    ),
    bad("B08", "cgroup", v::make_cgroup, NO_WRITE),
    Case { expect: &["bytes"], ..good("B08", "maps", |_| v::content("/proc/self/maps")) },
    Case { expect: &["bytes"], ..good("B08", "meminfo", |_| v::content("/proc/meminfo")) },
    bad("B14", "uncover_file", |c| w::uncover(c, 0), READ_ONLY),
    bad("B14", "uncover_directory", |c| w::uncover(c, 1), READ_ONLY),
    bad("B14", "read", w::read_hidden, &["EACCES"]),
    good("B14", "neighbour", w::change_neighbour),
    bad("B10", "listing", v::dev_is_minimal, &["minimal"]),
    bad("B10", "kmsg", |_| v::read("/dev/kmsg"), HIDDEN),
    bad("B10", "kvm", |_| v::read("/dev/kvm"), HIDDEN),
    bad("B10", "loop", |_| v::read("/dev/loop-control"), HIDDEN),
    bad("B10", "fuse", |_| v::read("/dev/fuse"), HIDDEN),
    good("B10", "works", v::dev_works),
];

const fn attack(
    name: &'static str,
    stage: Stage,
    probe: fn(&Context) -> Answer,
    expect: &'static [&'static str],
) -> Case {
    row("B09", name, Kind::Malicious, How::Probe(stage, probe), expect)
}

const fn direct(name: &'static str, probe: fn(&Context) -> Answer, expect: &'static [&'static str]) -> Case {
    attack(name, Stage::Direct, probe, expect)
}

const fn layered(name: &'static str, probe: fn(&Context) -> Answer, expect: &'static [&'static str]) -> Case {
    attack(name, Stage::Layered, probe, expect)
}

const fn twin(name: &'static str, stage: Stage, probe: fn(&Context) -> Answer) -> Case {
    row("B09", name, Kind::Harmless, How::Probe(stage, probe), &["ok"])
}

fn whiteout(context: &Context) -> Answer {
    m::mknod(context, "whiteout", libc::S_IFCHR, 0, 0)
}

fn null_node(context: &Context) -> Answer {
    m::mknod(context, "char", libc::S_IFCHR, 1, 3)
}

fn block_node(context: &Context) -> Answer {
    m::mknod(context, "block", libc::S_IFBLK, 7, 0)
}

fn fifo(context: &Context) -> Answer {
    let answer = m::mknod(context, "fifo", libc::S_IFIFO, 0, 0);
    // A commit may bring it, and the same probe is played again in the same directory.
    m::forget(context, "fifo");
    answer
}

/// B09, in a layer and directly on the workspace.
pub const MODES: &[Case] = &[
    layered("char", null_node, NO_BITS),
    layered("block", block_node, NO_BITS),
    layered("whiteout", whiteout, NO_BITS),
    layered("rename_whiteout", m::rename_whiteout, &["EPERM", "EINVAL", "ENOSYS"]),
    layered("chmod_setuid", |c| m::chmod(c, 0o4755), NO_BITS),
    layered("old_chmod", m::old_chmod, NO_BITS),
    layered("chmod_high_bits", m::chmod_high_bits, NO_BITS),
    layered("fchmod", m::fchmod, NO_BITS),
    layered("fchmodat2", m::fchmodat2, NO_CALL),
    layered("open", m::open_setuid, NO_BITS),
    layered("creat", m::creat_setuid, NO_BITS),
    layered("openat2", m::openat2_setuid, NO_CALL),
    layered("tmpfile", m::tmpfile_setuid, &["EPERM", "EACCES", "EOPNOTSUPP"]),
    layered("mknod_regular", m::mknod_setuid, NO_BITS),
    layered("capability", m::file_capability, &["EPERM", "ENOSYS", "EACCES"]),
    layered("mount_flags", m::mount_flags, &["nosuid,nodev"]),
    layered("chmod_both", |c| m::chmod(c, 0o6755), NO_BITS),
    twin("setgid_directory", Stage::Layered, m::setgid_directory),
    twin("fifo", Stage::Layered, fifo),
    twin("chmod_plain", Stage::Layered, |c| m::chmod(c, 0o755)),
    twin("rename_plain", Stage::Layered, m::rename_plain),
    direct("direct_char", null_node, NO_BITS),
    direct("direct_block", block_node, NO_BITS),
    direct("direct_whiteout", whiteout, NO_BITS),
    direct("direct_rename_whiteout", m::rename_whiteout, &["EPERM", "EINVAL", "ENOSYS"]),
    direct("direct_chmod_setuid", |c| m::chmod(c, 0o4755), NO_BITS),
    direct("direct_chmod_setgid", |c| m::chmod(c, 0o2755), NO_BITS),
    direct("direct_old_chmod", m::old_chmod, NO_BITS),
    direct("direct_chmod_high_bits", m::chmod_high_bits, NO_BITS),
    direct("direct_fchmod", m::fchmod, NO_BITS),
    direct("direct_fchmodat2", m::fchmodat2, NO_CALL),
    direct("direct_open", m::open_setuid, NO_BITS),
    direct("direct_creat", m::creat_setuid, NO_BITS),
    direct("direct_openat2", m::openat2_setuid, NO_CALL),
    direct("direct_tmpfile", m::tmpfile_setuid, NO_BITS),
    direct("direct_mknod_regular", m::mknod_setuid, NO_BITS),
    direct("direct_mkdir_setgid", m::mkdir_setgid, NO_BITS),
    direct("direct_capability", m::file_capability, &["EPERM", "ENOSYS", "EACCES"]),
    row("B01", "every_direct_mount", Kind::Malicious, How::Probe(Stage::Direct, mounts::every_mount), &["as-planned"]),
    direct("direct_mount_flags", m::mount_flags, &["nosuid,nodev"]),
    twin("direct_fifo", Stage::Direct, fifo),
    twin("direct_chmod_plain", Stage::Direct, |c| m::chmod(c, 0o755)),
    twin("direct_rename_plain", Stage::Direct, m::rename_plain),
];
