//! The flags of `nexus run` as grants. They come after all profiles, so they beat them.

use crate::args::{Changes, Net, RunArgs};
use nexus_policy::profile::{ChangesMode, Grants, LimitKind, NetMode, Origin, Sourced};

/// Adds what the flags say, except for paths and variables, which are bytes and stay with their own readers.
pub fn add(grants: &mut Grants, args: &RunArgs) {
    let limits = [
        (LimitKind::Memory, args.memory),
        (LimitKind::Cpus, args.cpus.map(u64::from)),
        (LimitKind::Pids, args.pids.map(u64::from)),
        (LimitKind::Disk, args.disk),
        (LimitKind::Timeout, args.timeout),
        (LimitKind::MaxOutput, args.max_output),
    ];
    for (kind, value) in limits {
        if let Some(value) = value {
            grants.limits.insert(kind, flagged(value, kind.flag()));
        }
    }
    for pattern in &args.hide {
        if !grants.hide.iter().any(|known| known.value == *pattern) {
            grants.hide.push(flagged(pattern.clone(), "--hide"));
        }
    }
    if let Some(net) = args.net {
        let mode = match net {
            Net::None => NetMode::None,
            Net::Allowlist => NetMode::Allowlist,
            Net::Unrestricted => NetMode::Unrestricted,
        };
        grants.net.mode = Some(flagged(mode, "--net"));
    }
    if args.direct {
        grants.changes = Some(flagged(ChangesMode::Commit, "--direct"));
    } else if let Some(changes) = args.changes {
        grants.changes = Some(flagged(mode(changes), "--changes"));
    }
}

fn flagged<T>(value: T, flag: &str) -> Sourced<T> {
    Sourced::new(value, Origin::Flag(flag.to_owned()))
}

fn mode(changes: Changes) -> ChangesMode {
    match changes {
        Changes::Commit => ChangesMode::Commit,
        Changes::Discard => ChangesMode::Discard,
        Changes::Review => ChangesMode::Review,
        Changes::Ask => ChangesMode::Ask,
    }
}
