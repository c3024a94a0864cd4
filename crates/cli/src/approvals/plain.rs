//! Checks that a run asks for no additional rights: a `skip` rule in a policy exempts a command from approval, not its rights.
//!
//! The whole command line is compared, so that a flag that comes later is one that asks for more until it is named here.

use crate::args::{Changes, RunArgs};
use crate::net::args::{Net, NetFlags};
use nexus_model::Plan;
use nexus_model::plan::Access;
use nexus_policy::document::RunRights;
use nexus_profiles::toolchains::is_system;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Returns the rights of a run as rules about commands count them.
pub fn rights(args: &RunArgs, plan: &Plan) -> RunRights {
    if has_plain_flags(args) && is_of_system(plan) { RunRights::Plain } else { RunRights::Other }
}

/// Reports whether no flag gives anything: these say where it runs, what is shown of it, and what is taken away.
fn has_plain_flags(args: &RunArgs) -> bool {
    let plain = RunArgs {
        workspace: args.workspace.clone(),
        cwd: args.cwd.clone(),
        hide: args.hide.clone(),
        hide_secrets: args.hide_secrets,
        protect: args.protect.clone(),
        no_stdin: args.no_stdin,
        require: args.require.clone(),
        net: NetFlags {
            mode: args.net.mode.filter(|mode| *mode == Net::None),
            deny: args.net.deny.clone(),
            ..NetFlags::default()
        },
        changes: args.changes.filter(|changes| matches!(changes, Changes::Discard | Changes::Review)),
        json: args.json,
        quiet: args.quiet,
        verbose: args.verbose,
        shell: args.shell.clone(),
        command: args.command.clone(),
        ..RunArgs::default()
    };
    *args == plain
}

/// Reports whether the program that the command names is one of the system: any other of that name is another program.
fn is_of_system(plan: &Plan) -> bool {
    let Some(name) = plan.argv.first().map(nexus_model::ByteText::as_path) else { return false };
    if name.as_os_str().as_bytes().contains(&b'/') {
        return found(plan, &plan.cwd.as_path().join(name)).unwrap_or(false);
    }
    let Some((_, path)) = plan.env.iter().find(|(name, _)| name.0 == b"PATH") else { return false };
    // An empty or relative entry is the working directory or below it.
    let entry = |entry: PathBuf| if entry.is_absolute() { found(plan, &entry.join(name)) } else { Some(false) };
    std::env::split_paths(path.as_os_str()).find_map(entry).unwrap_or(false)
}

/// Reports whether a path inside leads to a program of the system; `None` where nothing is there.
fn found(plan: &Plan, path: &Path) -> Option<bool> {
    let workspace = (plan.workspace.target.as_path(), plan.workspace.source.as_path(), false);
    let binds = plan.binds.iter().map(|bind| {
        let is_written = bind.access != Access::ReadOnly;
        (bind.target.as_path(), bind.source.as_path(), !is_written)
    });
    let shown = binds.chain([workspace]).filter(|(target, _, _)| path.starts_with(target));
    // The innermost mount is the one that is seen.
    let shown = shown.max_by_key(|(target, _, _)| target.components().count());
    let (place, may_be) = match shown {
        Some((target, source, may_be)) => {
            let rest = path.strip_prefix(target).ok()?;
            (if rest.as_os_str().is_empty() { source.to_owned() } else { source.join(rest) }, may_be)
        }
        None if is_system(path) => (path.to_owned(), true),
        None => return None,
    };
    place.symlink_metadata().ok()?;
    let is_program =
        |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    let real = std::fs::canonicalize(&place).ok();
    Some(may_be && real.is_some_and(|real| is_system(&real) && is_program(&real)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::ByteText;
    use nexus_model::plan::{Bind, PlanDraft};

    #[test]
    fn flags_that_give_something_are_not_those_of_a_plain_run() {
        let plain = || RunArgs { command: vec!["true".into()], ..RunArgs::default() };
        assert!(has_plain_flags(&plain()));
        let narrow = RunArgs {
            net: NetFlags { mode: Some(Net::None), deny: vec!["a.test".into()], ..NetFlags::default() },
            changes: Some(Changes::Discard),
            hide_secrets: true,
            quiet: true,
            ..plain()
        };
        assert!(has_plain_flags(&narrow));
        for more in [
            RunArgs { rw: vec!["/x".into()], ..plain() },
            RunArgs { env: vec!["A=1".into()], ..plain() },
            RunArgs { direct: true, ..plain() },
            RunArgs { changes: Some(Changes::Commit), ..plain() },
            RunArgs { net: NetFlags { mode: Some(Net::Unrestricted), ..NetFlags::default() }, ..plain() },
            RunArgs { timeout: Some(1), ..plain() },
        ] {
            assert!(!has_plain_flags(&more), "{more:?}");
        }
    }

    #[test]
    fn a_program_is_the_systems_where_nothing_else_of_that_name_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(base.join("ws/bin")).unwrap();
        std::fs::create_dir_all(base.join("tools")).unwrap();
        for name in ["ws/bin/true", "tools/ls"] {
            std::fs::copy("/usr/bin/true", base.join(name)).unwrap();
        }
        let workspace = base.join("ws");
        let plan = |words: &[&str], path: &str| {
            let words = words.iter().map(|word| ByteText::from(Path::new(word)));
            let mut draft = PlanDraft::direct(&workspace, words, Path::new("/marker"));
            draft.env.push((ByteText(b"PATH".to_vec()), ByteText(path.as_bytes().to_vec())));
            draft.binds.push(Bind {
                source: base.join("tools").into(),
                target: Path::new("/opt/tools").into(),
                access: Access::ReadOnly,
            });
            Plan::new(draft).unwrap()
        };
        let in_workspace = format!("{}/bin:/usr/bin", workspace.display());
        for (words, path, expected) in [
            (&["true"][..], "/usr/bin:/bin", true),
            (&["/usr/bin/true"], "/none", true),
            (&["true"], "/opt/tools:/usr/bin", true),
            (&["ls"], "/opt/tools:/usr/bin", false),
            (&["true"], &in_workspace, false),
            (&["ls"], &in_workspace, true),
            (&["true"], ":/usr/bin", false),
            (&["true"], "bin:/usr/bin", false),
            (&["bin/true"], "/usr/bin", false),
            (&["nothing-has-this-name"], "/usr/bin", false),
        ] {
            assert_eq!(is_of_system(&plan(words, path)), expected, "{words:?} {path}");
        }
    }
}
