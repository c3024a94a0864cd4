//! Converts the flags of `nexus run` to grants. They are applied after all profiles and override them.

use crate::args::{Changes, RunArgs};
use crate::net::args::{Net, NetFlags, NetMethods};
use nexus_policy::net::Methods;
use nexus_policy::profile::{ChangesMode, Grants, LimitKind, NetGrants, NetMode, Origin, Sourced};

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
    grants.add_protected(args.protect.iter().map(|name| flagged(name.clone(), "--protect")));
    network(&mut grants.net, &args.net);
    if args.allow_ptrace {
        grants.debug = Some(flagged(true, "--allow-ptrace"));
    }
    if args.cache {
        grants.cache = Some(flagged(true, "--cache"));
    }
    if args.is_direct() {
        grants.changes = Some(flagged(ChangesMode::Commit, args.direct_flag()));
    } else if let Some(changes) = args.changes {
        grants.changes = Some(flagged(mode(changes), "--changes"));
    }
}

fn network(net: &mut NetGrants, flags: &NetFlags) {
    let lists = [
        (&mut net.allow, &flags.allow, "--allow"),
        (&mut net.deny, &flags.deny, "--deny"),
        (&mut net.groups, &flags.allow_group, "--allow-group"),
        (&mut net.allow_private, &flags.allow_private, "--allow-private"),
    ];
    for (list, texts, flag) in lists {
        for text in texts {
            // A flag after a profile's same rule: the flag is the approval, so it counts.
            list.retain(|known| known.value != *text);
            list.push(flagged(text.clone(), flag));
        }
    }
    for port in &flags.allow_host_port {
        if !net.host_ports.iter().any(|known| known.value == *port) {
            net.host_ports.push(flagged(*port, "--allow-host-port"));
        }
    }
    if let Some(methods) = flags.net_methods {
        let methods = match methods {
            NetMethods::Any => Methods::Any,
            NetMethods::ReadOnly => Methods::ReadOnly,
        };
        net.restrict_methods(flagged(methods, "--net-methods"));
    }
    let has = net.effective_mode();
    let implied = [
        // A user who lists names means these and no others, whatever a profile opens.
        ("--allow", !flags.allow.is_empty()),
        ("--allow-group", !flags.allow_group.is_empty()),
        ("--ask", flags.ask.is_some()),
        // A private destination may stand beside an open network.
        ("--allow-private", !flags.allow_private.is_empty() && has != NetMode::Unrestricted),
    ];
    if let Some(net_flag) = flags.mode {
        let mode = match net_flag {
            Net::None => NetMode::None,
            Net::Allowlist => NetMode::Allowlist,
            Net::Unrestricted => NetMode::Unrestricted,
        };
        net.mode = Some(flagged(mode, "--net"));
    } else if let Some((flag, _)) = implied.into_iter().find(|(_, given)| *given)
        && has != NetMode::Allowlist
    {
        net.mode = Some(flagged(NetMode::Allowlist, flag));
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
