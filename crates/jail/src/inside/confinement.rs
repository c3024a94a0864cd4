//! Landlock and seccomp, the confinement that the kernel keeps around every process inside.

use crate::inside::rootfs;
use crate::leave_out::{Wall, stands};
use crate::seccomp;
use crate::steps::{AtStep, Faults, Step, StepError};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::path::{Path, PathBuf};

/// Minimum version of Landlock that is accepted: with REFER, without which renames between directories would break.
pub const MIN_ABI: i32 = 2;

/// Returns the version of Landlock that this kernel has; 0 stands for none.
#[must_use]
pub fn landlock_abi() -> i32 {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes no structure and only returns a number (landlock_create_ruleset(2)).
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    i32::try_from(abi).unwrap_or(0).max(0)
}

fn known(abi: i32) -> ABI {
    match abi {
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => ABI::V6,
    }
}

/// Restricts files a second time, by another part of the kernel than the mounts; and signals and abstract sockets to
/// the sandbox where the kernel can do that. It does not restrict TCP.
pub fn restrict_files(faults: Faults, abi: i32, writable: &[PathBuf]) -> Result<(), StepError> {
    faults.check(Step::Landlock)?;
    if abi < MIN_ABI {
        let detail = format!("this kernel's Landlock has version {abi}, at least {MIN_ABI} (Linux 5.19) is needed");
        return Err(StepError::new(Step::Landlock, detail));
    }
    restrict(known(abi), writable).map_err(|error| StepError::new(Step::Landlock, error))
}

fn restrict(abi: ABI, writable: &[PathBuf]) -> Result<(), String> {
    let text = |error: &dyn std::error::Error| format!("{error}");
    let all = AccessFs::from_all(abi);
    let read = if stands(Wall::LandlockFiles) { AccessFs::from_read(abi) } else { all };
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)
        .map_err(|error| text(&error))?;
    if abi >= ABI::V6 && stands(Wall::LandlockScope) {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(|error| text(&error))?;
    }
    let mut created = ruleset.create().map_err(|error| text(&error))?;
    if !stands(Wall::NoNewPrivileges) {
        created = created.no_new_privs(false);
    }
    created = created.add_rule(rule(Path::new("/"), read)?).map_err(|error| text(&error))?;
    let scratch = rootfs::scratch_places().map(|place| (place, true));
    for (place, is_dir) in scratch.chain(writable.iter().map(|place| (place.clone(), place.is_dir()))) {
        let rights = if is_dir { all } else { all & AccessFs::from_file(abi) };
        created = created.add_rule(rule(&place, rights)?).map_err(|error| format!("{}: {error}", place.display()))?;
    }
    let status = created.restrict_self().map_err(|error| text(&error))?;
    // The library accepts less support unless it is configured otherwise. It was configured otherwise, and this checks that.
    if status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs == stands(Wall::NoNewPrivileges) {
        Ok(())
    } else {
        Err(format!("only {:?}", status.ruleset))
    }
}

fn rule(path: &Path, rights: BitFlags<AccessFs>) -> Result<PathBeneath<PathFd>, String> {
    let fd = PathFd::new(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(PathBeneath::new(fd, rights))
}

/// From here on system calls are filtered, for this process and everything that it starts.
pub fn filter_calls(faults: Faults, program: &seccomp::Program) -> Result<(), StepError> {
    faults.check(Step::Seccomp)?;
    if !stands(Wall::Seccomp) {
        return Ok(());
    }
    seccomp::install(program).at(Step::Seccomp, "the filter")
}
