//! The parts of the confinement one by one: each is left out of a sandbox, and rows must notice.
//!
//! Parts cover each other, so that a row may be refused by a second one. [`CONFINEMENT`] names with each part the others that
//! cover it ("beside"). Each is played twice, with the enforcement proof left out:
//!
//! ```text
//!  beside left out            the rows named with the wall are refused: by this wall alone
//!  beside and wall left out   each of these rows must get through, or the row says nothing about the wall
//! ```
//! With all rows instead of the named ones the second play shows every row that notices the wall.

use crate::cases::{self, Case};
use crate::host::bench::Bench;
use crate::host::world::World;
use crate::report::Column;
use crate::suite::{self, Plan, SuiteError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A row, by vector and name.
type Row = (&'static str, &'static str);

/// One part of the confinement, the parts that cover it, and the rows that notice its loss.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The wall's name in the driver.
    pub wall: &'static str,
    /// Parts that refuse the same rows.
    pub beside: &'static [&'static str],
    /// Rows that notice.
    pub rows: &'static [Row],
    /// Set when only root's sandboxes have it.
    pub root_only: bool,
}

const fn wall(wall: &'static str, beside: &'static [&'static str], rows: &'static [Row]) -> Entry {
    Entry { wall, beside, rows, root_only: false }
}

const fn of_root(wall: &'static str, beside: &'static [&'static str], rows: &'static [Row]) -> Entry {
    Entry { wall, beside, rows, root_only: true }
}

/// The proof ends the launch where it sees that a wall is missing.
const PROOF: &str = "proof";

/// Each wall with the rows that notice its loss.
pub const CONFINEMENT: &[Entry] = &[
    wall("landlock_files", &["read_only_root"], &[("B02", "refused_root")]),
    wall("landlock_files", &["read_only_proc"], &[("B08", "own_switch")]),
    wall("landlock_files", &["read_only_binds"], &[("B05", "write_elsewhere")]),
    wall("landlock_scope", &["network_namespace"], &[("A12", "connect")]),
    wall("seccomp", &[], &[("A01", "seccomp_mode"), ("A06", "unshare_user"), ("A08", "keyctl"), ("A08", "ptrace_me")]),
    wall("no_new_privileges", &[], &[("A01", "no_new_privs")]),
    wall("securebits", &[], &[("A01", "securebits")]),
    wall("capabilities", &[], &[("A01", "init_capabilities")]),
    wall("bounding_set", &[], &[("A01", "capabilities")]),
    wall(
        "not_dumpable",
        &[],
        &[("A03", "init_memory"), ("A03", "init_environment"), ("A03", "init_maps"), ("A03", "init_descriptors")],
    ),
    wall("detach_host", &[], &[("B01", "stat_above_root"), ("B01", "every_mount"), ("A13", "tmp_above_root")]),
    wall("masked_proc", &[], &[("B08", "covers"), ("B08", "kallsyms")]),
    wall("read_only_proc", &[], &[("B01", "every_mount")]),
    wall("read_only_proc", &["landlock_files"], &[("B08", "own_switch")]),
    wall("read_only_root", &[], &[("B01", "every_mount")]),
    wall("read_only_root", &["landlock_files"], &[("B02", "refused_root")]),
    wall("read_only_system", &[], &[("B01", "every_mount")]),
    wall("read_only_binds", &["landlock_files"], &[("B05", "write_elsewhere"), ("B05", "write"), ("B05", "unlink")]),
    wall("read_only_binds", &[], &[("B05", "chmod"), ("B05", "touch"), ("B01", "every_mount")]),
    wall("hidden_covers", &[], &[("B14", "uncover_file"), ("B14", "uncover_directory")]),
    wall("nosuid", &[], &[("B01", "every_mount"), ("B01", "every_direct_mount"), ("B09", "mount_flags")]),
    wall("nodev", &[], &[("B01", "every_mount"), ("B01", "every_direct_mount"), ("B09", "mount_flags")]),
    of_root("supplementary_groups", &[], &[("A04", "groups")]),
    of_root("id_map", &[], &[("A04", "uid_map"), ("A04", "gid_map")]),
    wall("network_namespace", &[], &[("A02", "net"), ("A12", "listed")]),
    wall("network_namespace", &["landlock_scope"], &[("A12", "connect")]),
    wall("no_route", &[], &[("A02", "no_route")]),
    wall("ipc_namespace", &[], &[("A02", "ipc"), ("A16", "shm"), ("A16", "mqueue")]),
    wall("uts_namespace", &[], &[("A02", "uts")]),
    wall("cgroup_namespace", &[], &[("A02", "cgroup")]),
    wall("keyring", &["seccomp"], &[("A08", "callers_key")]),
    wall("seccomp", &["keyring"], &[("A08", "callers_key")]),
    wall("core_limit", &[], &[("A17", "limit")]),
    wall("process_limit", &[], &[("E01", "forks"), ("E01", "threads")]),
    wall("terminal_limit", &[], &[("E13", "terminals")]),
    wall("scratch_size", &[], &[("E03", "tmp"), ("E04", "tmp")]),
    wall("environment_wipe", &["not_dumpable"], &[("A13", "callers_environment"), ("A03", "secret_in_memory")]),
    wall("launcher_descriptors", &["not_dumpable"], &[("A15", "open_directories")]),
    wall("launcher_descriptors", &["command_descriptors"], &[("A15", "descriptors")]),
    wall("command_descriptors", &["launcher_descriptors"], &[("A15", "descriptors")]),
    wall("parent_death", &[], &[("A11", "killed_supervisor_of_a_stopped_init")]),
];

/// One line of the result.
#[derive(Debug)]
pub struct Noticed {
    /// Entry of the table.
    pub entry: &'static Entry,
    /// Column that was played.
    pub column: Column,
    /// The rows that the wall alone refused, and that got through without it.
    pub by: Vec<Row>,
    /// Differences from the entry.
    pub problems: Vec<String>,
}

/// Plays all entries, or one of them. With `all_rows` every row is played, and the named ones need only be among those
/// that notice.
pub fn play_confinement(plan: &Plan, only: Option<&str>, all_rows: bool) -> Result<Vec<Noticed>, SuiteError> {
    crate::host::stale::clear();
    let mut found = Vec::new();
    for column in [Column::Root, Column::User] {
        let owner = match column {
            Column::User => plan.as_user,
            _ => None,
        };
        if column == Column::User && owner.is_none() || column == Column::Root && !plan.as_self {
            continue;
        }
        let world = World::make(if owner.is_some() { "user" } else { "roo" }, owner, &plan.attacker)?;
        let driver = suite::real_driver(plan, &world)?;
        let stop = plan.stop.clone().unwrap_or_default();
        let mut bench = Bench { driver, world, leave_out: String::new(), stop: Arc::clone(&stop) };
        let by_root = bench.world.context.has_groups;
        let entries = CONFINEMENT.iter().filter(|entry| only.is_none_or(|only| entry.wall == only));
        for entry in entries.filter(|entry| by_root || !entry.root_only) {
            found.push(play_wall(plan, &mut bench, column, entry, all_rows)?);
        }
    }
    Ok(found)
}

fn play_wall(
    plan: &Plan,
    bench: &mut Bench,
    column: Column,
    entry: &'static Entry,
    all_rows: bool,
) -> Result<Noticed, SuiteError> {
    let mut rows = plan.clone_for(if all_rows { &[] } else { entry.rows });
    let with = answers(&mut rows, bench, entry.beside)?;
    let left_out: Vec<&str> = entry.beside.iter().copied().chain([entry.wall]).collect();
    let without = answers(&mut rows, bench, &left_out)?;
    let mut problems = Vec::new();
    let mut by = Vec::new();
    for case in cases::all() {
        let key = (case.id, case.name);
        let (Some(with), Some(without)) = (with.get(&key), without.get(&key)) else { continue };
        if case.accepts(with) && got_through(case, without) {
            by.push(key);
        } else if entry.rows.contains(&key) {
            problems.push(format!("{}/{} answers {with} with the wall and {without} without it", case.id, case.name));
        }
    }
    for (id, name) in entry.rows {
        if !with.contains_key(&(*id, *name)) {
            problems.push(format!("{id}/{name} was not played"));
        }
    }
    Ok(Noticed { entry, column, by, problems })
}

/// Answers that come from a probe's own trouble or from a sandbox that did not start show no hole.
fn got_through(case: &Case, answer: &str) -> bool {
    let broken = ["hung", "no-answer", "no-pipe", "no-fork", "panicked", "host-unknown", "refused", "driver_failed"];
    !case.accepts(answer) && !broken.contains(&answer)
}

/// Plays rows with parts of the confinement left out, and the proof with them, which would end the launch.
fn answers(plan: &mut Plan, bench: &mut Bench, left_out: &[&str]) -> Result<BTreeMap<Row, String>, SuiteError> {
    bench.leave_out = [&[PROOF], left_out].concat().join(",");
    let seen = match suite::play_column(plan, bench) {
        Ok(seen) => seen,
        Err(SuiteError::NotPlayed { summary }) => {
            eprintln!("nexus-escape: without {}: {summary}", bench.leave_out);
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let row = |id: &str, case: &str| cases::all().find(|known| known.id == id && known.name == case);
    let named = seen.into_iter().filter_map(|one| Some((row(&one.id, &one.case)?, one.answer.answer)));
    Ok(named.map(|(case, answer)| ((case.id, case.name), answer)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_wall_is_without_a_row_that_notices_its_loss() {
        // The proof is left out of each play. The test `a_proof_that_fails_ends_the_launch` of the command holds it.
        let listed: BTreeSet<&str> = CONFINEMENT.iter().map(|entry| entry.wall).chain([PROOF]).collect();
        let parts: BTreeSet<&str> = nexus_driver_namespace::Wall::ALL.iter().map(|wall| wall.name()).collect();
        assert_eq!(listed, parts);
        for entry in CONFINEMENT {
            assert!(!entry.rows.is_empty(), "{}", entry.wall);
            assert!(entry.beside.iter().all(|name| parts.contains(name)), "{}", entry.wall);
            for (id, name) in entry.rows {
                let case = cases::all().find(|case| case.id == *id && case.name == *name);
                assert!(case.is_some_and(|case| case.kind == cases::Kind::Malicious), "{}: {id}/{name}", entry.wall);
            }
        }
    }

    /// The row `B08/covers` looks at each of them.
    #[test]
    fn each_covered_file_of_proc_has_a_row() {
        let source = include_str!("../../../crates/jail/src/inside/rootfs.rs");
        let list = |start: &str| {
            let rest = source.split_once(start).expect("the list").1;
            let names = rest.split_once("];").expect("its end").0.split(',');
            names.map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty()).collect::<Vec<_>>()
        };
        let all = [list("const MASKED: &[&str] = &["), list("const MASKED_DIRECTORIES: &[&str] = &[")].concat();
        assert_eq!(all, crate::probes::mounts::COVERED);
    }
}
