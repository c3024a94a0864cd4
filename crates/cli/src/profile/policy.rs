//! Applies policy documents to a run: a flag that asks for more refuses the run, and so does a profile that would
//! hold only in part; limits are lowered; paths that are denied in the workspace are hidden.
//!
//! ```text
//!  grants, flags ─▶ limits, mode (with the operator's settings) ─▶ obey: sandbox, secrets, paths, destinations,
//!                                                                  approvals ─▶ grants, or a refusal that names the line
//!                                                       the network: `nexus_runner::net::rules` narrows it
//! ```

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::net::args::AskOn;
use crate::policies::{CODE, HINT, allowed, secret};
use nexus_model::plan::Access;
use nexus_policy::document::{Act, Answer, BudgetKind, Destination, Effective, PathPattern, Question};
use nexus_policy::profile::{ChangesMode, Grants, LimitKind, NetMode, Origin, Sourced};
use nexus_profiles::{Found, FoundSource, Host};
use nexus_runner::live::full_output::FilePlace;
use nexus_runner::plan::mounts;
use nexus_runner::plan::resolve::ResolvedRun;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories of the host that every run shows.
const OF_SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Applies the documents to the grants of a run.
pub fn obey(policies: &Effective, grants: &mut Grants, args: &RunArgs, caller: &Host) -> Result<(), Failure> {
    if policies.is_empty() {
        return Ok(());
    }
    let isolation = nexus_model::spec::SandboxProfile::Untrusted;
    allowed(&policies.ask(&Question::Sandbox(isolation)), "the run has the isolation untrusted")?;
    for name in &args.env_secret {
        secret(policies, name)?;
    }
    for name in
        args.secret.iter().filter_map(|flag| nexus_runner::secrets::Request::parse(flag).ok()).map(|one| one.name)
    {
        allowed(&policies.ask(&Question::Secret(name.clone())), &format!("--secret {name} gives a secret"))?;
    }
    changes(policies, grants, args)?;
    destinations(policies, grants, args)?;
    questions(policies, args)?;
    paths(policies, grants, args, caller)
}

/// Refuses questions about connections that no answer of the run's own terminal, or none at all, may open.
fn questions(policies: &Effective, args: &RunArgs) -> Result<(), Failure> {
    let Some((on, asks)) = args.net.ask.zip(policies.answer(Act::Egress)) else { return Ok(()) };
    let users = policies.quorum().filter(|users| users.value > 1 && asks.value == Answer::NeedsApproval);
    if let Some(users) = users {
        // All of this state directory is one user's.
        let message =
            format!("A policy wants an approval by {} users ({}), and this machine knows one", users.value, users.from);
        return Err(Failure::refused(CODE, message, "Leave --ask out, and name the destinations with --allow."));
    }
    let (message, hint) = match (asks.value, on) {
        (Answer::Skip, _) | (Answer::NeedsApproval, AskOn::Approvals) => return Ok(()),
        (Answer::NeedsApproval, AskOn::Terminal) => {
            let message =
                format!("A policy lets another session alone answer questions about connections ({})", asks.from);
            (message, "With --ask=approvals they are asked there.")
        }
        (Answer::Forbidden, _) => {
            (format!("A policy lets no person be asked about connections ({})", asks.from), "Leave --ask out.")
        }
    };
    Err(Failure::refused(CODE, message, hint))
}

/// Keeps changes from coming into the workspace without a person, or at all.
fn changes(policies: &Effective, grants: &mut Grants, args: &RunArgs) -> Result<(), Failure> {
    let mode = grants.changes.as_ref().map(|changes| changes.value);
    let writes = policies.writes_workspace();
    let forbids = policies.answer(Act::Changes).filter(|answer| answer.value == Answer::Forbidden);
    if mode != Some(ChangesMode::Discard) || args.is_direct() {
        let why = writes.forbidden.first().map(ToString::to_string);
        let why = why.or_else(|| forbids.map(|answer| answer.from.to_string()));
        if let Some(why) = why {
            let message = format!("A policy lets no change come into this workspace: {why}");
            return Err(Failure::refused(
                CODE,
                message,
                "With --changes discard the command runs, and its changes go.",
            ));
        }
    }
    let asks = policies.answer(Act::Changes).filter(|answer| answer.value == Answer::NeedsApproval);
    if let Some(asks) = asks {
        if args.is_direct() || mode == Some(ChangesMode::Commit) {
            let message = format!("A policy lets changes come into the workspace only by an accept ({})", asks.from);
            return Err(Failure::refused(CODE, message, "With --changes review they wait for one."));
        }
        if mode.is_none() {
            grants.changes = Some(Sourced::new(ChangesMode::Review, asks.from.clone()));
        }
    }
    Ok(())
}

fn destinations(policies: &Effective, grants: &mut Grants, args: &RunArgs) -> Result<(), Failure> {
    for (kind, asked) in
        [(BudgetKind::EgressBytes, args.net.max_egress_bytes), (BudgetKind::Connections, args.net.max_connections)]
    {
        if let Some(asked) = asked {
            allowed(&policies.ask(&Question::Budget(kind, asked)), &format!("{} asks for {asked}", kind.flag()))?;
        }
    }
    for rule in grants.net.allow.iter().filter(|rule| rule.from.is_flag()) {
        // What cannot be read is refused where rules are read.
        let Ok(asked) = Destination::parse(&rule.value) else { continue };
        allowed(&policies.ask(&Question::Reach(asked)), &format!("{} asks for {}", rule.from, rule.value))?;
    }
    if let Some(max) = policies.max_mode().filter(|max| max.value != NetMode::Unrestricted) {
        let private = grants.net.allow_private.first().map(|rule| format!("{} asks for {}", rule.from, rule.value));
        let port = grants.net.host_ports.first().map(|port| format!("{} asks for {}", port.from, port.value));
        if let Some(asks) = private.or(port) {
            let message = format!("{asks}, and a policy allows at most --net {} ({})", max.value.word(), max.from);
            return Err(Failure::refused(CODE, message, HINT));
        }
    }
    if let Some(methods) = policies.methods() {
        grants.net.restrict_methods(methods);
    }
    Ok(())
}

fn paths(policies: &Effective, grants: &mut Grants, args: &RunArgs, caller: &Host) -> Result<(), Failure> {
    if !policies.limits_paths() {
        return Ok(());
    }
    allowed(&policies.reads_workspace(), "a run reads its workspace")?;
    for denied in policies.denied_in_workspace() {
        let Some(path) = denied.value.in_workspace() else {
            return Err(Failure::refused(CODE, format!("A policy denies the whole workspace ({})", denied.from), HINT));
        };
        grants.hide.push(Sourced::new(format!("/{path}"), denied.from.clone()));
        grants.add_protected([Sourced::new(path, denied.from)]);
    }
    for denied in policies.denied_on_host() {
        let is_of_system =
            |root: &str| PathPattern::of_host(Path::new(root), true).is_some_and(|root| root.covers(&denied.value));
        if OF_SYSTEM.iter().any(|root| is_of_system(root)) {
            let message = format!("A policy denies {} ({}), and every run shows the system", denied.value, denied.from);
            return Err(Failure::refused(CODE, message, "Take the path out of fs.deny: it cannot be kept here."));
        }
    }
    for name in &grants.etc {
        let shown = Path::new("/etc").join(&name.value);
        let Some(pattern) = PathPattern::of_host(&shown, true) else { continue };
        if let Some(denied) = policies.denied_on_host().iter().find(|denied| denied.value.overlaps(&pattern)) {
            let message =
                format!("{} would show {}, and a policy denies it ({})", name.from, shown.display(), denied.from);
            return Err(Failure::refused(CODE, message, HINT));
        }
    }
    let here = |path: &Path| std::env::current_dir().map_or_else(|_| path.to_owned(), |here| here.join(path));
    for (texts, writes, flag) in [(&args.ro, false, "--ro"), (&args.rw, true, "--rw")] {
        for text in texts {
            host_path(policies, &here(&crate::bind_text::split(text).0), writes, &Origin::Flag(flag.to_owned()))?;
        }
    }
    for (paths, flag) in [(&args.device, "--device"), (&args.allow_socket, "--allow-socket")] {
        for path in paths {
            host_path(policies, &here(path), true, &Origin::Flag(flag.to_owned()))?;
        }
    }
    for (rules, writes) in [(&grants.ro, false), (&grants.rw, true)] {
        for rule in rules {
            host_path(policies, &of_home(&rule.value.src, caller), writes, &rule.from)?;
        }
    }
    Ok(())
}

/// Refuses a file that a flag asks for where the documents do not let it be written.
pub fn file(policies: &Effective, place: &FilePlace) -> Result<(), Failure> {
    if !policies.limits_paths() {
        return Ok(());
    }
    let path = place.path();
    let asks = format!("{} would write {}", place.asked(), path.display());
    match PathPattern::of_host(&path, false) {
        Some(pattern) => {
            allowed(&policies.ask(&Question::Write(pattern)), &asks)?;
            not_denied_elsewhere(policies, &path, false, &asks)
        }
        None => Err(Failure::refused(CODE, format!("{asks}, whose name no policy can hold"), HINT)),
    }
}

/// Refuses a writable bind of a part of the workspace where changes of it may not come, or only by an accept, or where its disk is
/// limited: it is written past the layer that holds all three.
pub fn binds(policies: &Effective, run: &ResolvedRun) -> Result<(), Failure> {
    let of_changes = policies.answer(Act::Changes).filter(|answer| answer.value != Answer::Skip);
    let of_changes = of_changes.map(|answer| (format!("changes: {}", answer.value.word()), answer.from.to_string()));
    let of_paths = policies.writes_workspace().forbidden.first().map(|why| ("fs.write".to_owned(), why.to_string()));
    let of_disk = policies.limits().get(&LimitKind::Disk);
    let of_disk = of_disk.map(|limit| ("limits.disk".to_owned(), limit.from.to_string()));
    let Some((what, from)) = of_changes.or(of_paths).or(of_disk) else { return Ok(()) };
    let workspace = run.plan.workspace.source.as_path();
    for bind in run.plan.binds.iter().filter(|bind| bind.access == Access::ReadWrite) {
        let source = bind.source.as_path();
        let is_apart = mounts::overlap(source, workspace).map(|overlaps| !overlaps);
        match is_apart {
            Ok(true) => {}
            Ok(false) => {
                let message = format!(
                    "{} is a part of the workspace, and a command would write it past its layer; a policy says {what} ({from})",
                    source.display()
                );
                let hint = "Leave the bind out: the workspace is writable without it, and its changes are kept apart.";
                return Err(Failure::refused(CODE, message, hint));
            }
            Err(error) => {
                let message = format!("{} cannot be compared with the workspace: {error}", source.display());
                return Err(Failure::refused(CODE, message, HINT));
            }
        }
    }
    Ok(())
}

fn of_home(text: &str, caller: &Host) -> PathBuf {
    match (text.strip_prefix("~/"), &caller.home) {
        (Some(rest), Some(home)) => home.join(rest),
        (_, _) => PathBuf::from(text),
    }
}

/// Refuses a path that documents do not allow, as it is written and as it really is.
fn host_path(policies: &Effective, path: &Path, writes: bool, from: &Origin) -> Result<(), Failure> {
    let verb = if writes { "write" } else { "show" };
    let asks = format!("{from} would {verb} {}", path.display());
    // A path that is not there shows nothing, and a path with .. is asked about as it really is.
    let real = std::fs::canonicalize(path).ok();
    let written = (!path.as_os_str().as_bytes().ends_with(b"/..")).then(|| path.to_owned());
    let written = written.filter(|path| path.components().all(|part| part != std::path::Component::ParentDir));
    let with_below = real.as_ref().is_none_or(|real| real.is_dir());
    for path in real.iter().chain(&written) {
        let Some(pattern) = PathPattern::of_host(path, with_below) else {
            let message = format!("{asks}, whose name no policy can hold");
            return Err(Failure::refused(CODE, message, HINT));
        };
        allowed(&policies.ask(&Question::Read(pattern.clone())), &asks)?;
        if writes {
            allowed(&policies.ask(&Question::Write(pattern)), &asks)?;
        }
    }
    real.map_or(Ok(()), |real| not_denied_elsewhere(policies, &real, with_below, &asks))
}

/// Refuses a path that another mount shows under a name which documents deny. What they allow stays a matter of the name that is
/// asked for.
fn not_denied_elsewhere(policies: &Effective, path: &Path, with_below: bool, asks: &str) -> Result<(), Failure> {
    let denied = policies.denied_on_host();
    if denied.is_empty() {
        return Ok(());
    }
    let names = mounts::other_names(path).map_err(|error| {
        Failure::refused(CODE, format!("{asks}, and the mounts of this machine cannot be read: {error}"), HINT)
    })?;
    for name in names {
        let pattern = PathPattern::of_host(&name, with_below);
        let is_meant =
            |denied: &&Sourced<PathPattern>| pattern.as_ref().is_none_or(|pattern| denied.value.overlaps(pattern));
        if let Some(denied) = denied.iter().find(is_meant) {
            let message =
                format!("{asks}, which is {} too, and a policy denies that ({})", name.display(), denied.from);
            return Err(Failure::refused(CODE, message, HINT));
        }
    }
    Ok(())
}

/// Removes automatically found tools that the policy does not allow to show, and refuses those that a profile or flag
/// asked for.
pub fn tools(policies: &Effective, found: &mut Found) -> Result<(), Failure> {
    if !policies.limits_paths() {
        return Ok(());
    }
    let mut left_out = Vec::new();
    let mut refused = None;
    found.binds.retain(|bind| {
        let FoundSource::Path(path) = &bind.source else { return true };
        match host_path(policies, path, false, &bind.from) {
            Ok(()) => true,
            Err(_) if bind.from.auto_reason().is_some() => {
                left_out.push(format!("{} ({}) is not shown: a policy does not allow it", path.display(), bind.why));
                false
            }
            Err(failure) => {
                refused.get_or_insert(failure);
                false
            }
        }
    });
    found.notes.extend(left_out);
    refused.map_or(Ok(()), Err)
}
