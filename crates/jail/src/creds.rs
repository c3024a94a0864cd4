//! Rights: ids, capabilities, limits, and the flags that keep them from coming back.

use crate::identity::Identity;
use crate::leave_out::{Wall, stands};
use crate::steps::{AtStep, Faults, Step, StepError};
use nexus_model::plan::INNER_ID;
use rustix::process::{DumpableBehavior, Gid, Signal, Uid};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};
use std::io;
use std::ops::Range;

/// Takes uid and gid 1000 and no other group. The user namespace has no uid 0, so the kernel's fix-up for leaving
/// uid 0 does not happen and the capabilities for the set-up stay.
pub fn become_inner(faults: Faults, identity: &Identity) -> Result<(), StepError> {
    faults.check(Step::BecomeInner)?;
    if !identity.by_root {
        // Already mapped; supplementary groups of an ordinary user cannot be dropped by an ordinary user.
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(INNER_ID), Gid::from_raw(INNER_ID));
    if stands(Wall::SupplementaryGroups) {
        rustix::thread::set_thread_groups(&[]).at(Step::BecomeInner, "setgroups")?;
    }
    rustix::thread::set_thread_res_gid(gid, gid, gid).at(Step::BecomeInner, "setresgid")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).at(Step::BecomeInner, "setresuid")
}

/// Takes another effective uid and keeps all rights. Returns what [`give_back_effective_uid`] needs.
pub fn take_effective_uid(uid: u32) -> io::Result<CapabilitiesSecureBits> {
    let before = rustix::thread::capabilities_secure_bits()?;
    rustix::thread::set_capabilities_secure_bits(before | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    match set_effective_uid(uid) {
        Ok(()) => Ok(before),
        Err(error) => rustix::thread::set_capabilities_secure_bits(before).map_err(Into::into).and(Err(error)),
    }
}

/// Is root again. The kernel made this process undumpable meanwhile, as after any change of the effective uid.
pub fn give_back_effective_uid(before: CapabilitiesSecureBits) -> io::Result<()> {
    set_effective_uid(0)?;
    rustix::thread::set_capabilities_secure_bits(before)?;
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

fn set_effective_uid(uid: u32) -> io::Result<()> {
    const SAME: libc::uid_t = libc::uid_t::MAX;
    // SAFETY: plain numbers. The system call and not the function of the C library: this process has one thread.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, SAME, uid, SAME) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a small file of `/proc`, whose size the kernel does not tell: one buffer holds it, where a growing one would need a
/// call for each of its sizes.
pub fn read_small(path: &str) -> io::Result<String> {
    let mut text = Vec::with_capacity(4096);
    io::Read::read_to_end(&mut io::Read::take(std::fs::File::open(path)?, 1 << 20), &mut text)?;
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Nothing that is executed from now on gains rights, and nothing has any. Comes after [`drop_bounding`], which takes a
/// capability.
pub fn drop_rights(faults: Faults) -> Result<(), StepError> {
    faults.check(Step::DropCapabilities)?;
    drop_capabilities().at(Step::DropCapabilities, "capability sets")?;
    faults.check(Step::NoNewPrivileges)?;
    if !stands(Wall::NoNewPrivileges) {
        return Ok(());
    }
    rustix::thread::set_no_new_privs(true).at(Step::NoNewPrivileges, "no_new_privs")
}

/// Nothing that is executed could gain one of them. What this process has stays, so it can be done before it is done
/// with them. The proof looks at every bit.
pub fn drop_bounding(faults: Faults) -> Result<(), StepError> {
    faults.check(Step::DropCapabilities)?;
    if !stands(Wall::BoundingSet) {
        return Ok(());
    }
    empty_bounding_set().at(Step::DropCapabilities, "the bounding set")
}

fn empty_bounding_set() -> io::Result<()> {
    for number in 0..64u32 {
        // SAFETY: prctl with plain numbers; reads or shrinks this thread's bounding set.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        if result != 0 {
            let error = io::Error::last_os_error();
            // The first number that this kernel does not know: all are dropped.
            if error.raw_os_error() == Some(libc::EINVAL) && number > 30 {
                break;
            }
            return Err(error);
        }
    }
    Ok(())
}

fn drop_capabilities() -> io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    if stands(Wall::Securebits) {
        rustix::thread::set_capabilities_secure_bits(locked)?;
    }
    if !stands(Wall::Capabilities) {
        return Ok(());
    }
    let none = CapabilitySet::empty();
    Ok(rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// PID 1 is a copy of the launcher: no process inside may trace it or read its memory, though the uid is the same.
pub fn not_dumpable(faults: Faults) -> Result<(), StepError> {
    faults.check(Step::NotDumpable)?;
    // Said in both cases: the kernel itself changes the flag when ids change (prctl(2), PR_SET_DUMPABLE).
    let behavior = if stands(Wall::NotDumpable) { DumpableBehavior::NotDumpable } else { DumpableBehavior::Dumpable };
    rustix::process::set_dumpable_behavior(behavior).at(Step::NotDumpable, "PR_SET_DUMPABLE")
}

/// Dies with the launcher. Must come after the last change of ids, which clears it (prctl(2), PR_SET_PDEATHSIG); a
/// launcher that died before is noticed because the channel is at its end.
pub fn die_with_parent(faults: Faults) -> Result<(), StepError> {
    faults.check(Step::ParentDeath)?;
    if !stands(Wall::ParentDeath) {
        return Ok(());
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(Step::ParentDeath, "PR_SET_PDEATHSIG")
}

/// Returns the addresses at which the kernel put the arguments and the environment of this program at exec (proc(5),
/// fields 48 to 51 of `/proc/PID/stat`). A fork has them at the same place.
pub fn find_strings() -> Result<[Range<usize>; 2], StepError> {
    let stat = read_small("/proc/self/stat").at(Step::WipeEnvironment, "/proc/self/stat")?;
    let error = || StepError::new(Step::WipeEnvironment, "/proc/self/stat has another form than proc(5) says");
    // Field 2 is a name in parentheses that may hold anything; fields are counted from after it, with number 3.
    let (_, rest) = stat.rsplit_once(") ").ok_or_else(error)?;
    let fields: Vec<usize> = rest.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    let range = |start: usize, end: usize| -> Result<Range<usize>, StepError> {
        match (fields.get(start - 3), fields.get(end - 3)) {
            (Some(&start), Some(&end)) if start != 0 && start <= end && end - start <= 64 << 20 => Ok(start..end),
            _ => Err(error()),
        }
    };
    Ok([range(48, 49)?, range(50, 51)?])
}

/// Overwrites what this process holds of its caller's arguments and environment. They lie at the top of the stack,
/// were copied by the fork, and would be readable by anything that managed to read PID 1 (vector G01).
pub fn wipe_strings(faults: Faults, strings: &[Range<usize>; 2]) -> Result<(), StepError> {
    faults.check(Step::WipeEnvironment)?;
    if !stands(Wall::EnvironmentWipe) {
        return Ok(());
    }
    for range in strings {
        // SAFETY: `find_strings` read this range in the process that this one is a fork of, with one thread, so the
        // kernel's strings of argv and environ lie there here too; the pages are private and writable, and this process
        // holds no reference into them: its own copies of arguments and environment were made before.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(range.start).write_bytes(0, range.len()) };
    }
    Ok(())
}
