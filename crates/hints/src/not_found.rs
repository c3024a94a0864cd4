//! Advice for a command that was not found inside: where the caller has it, and which flag shows it.
//!
//! The name comes from the command line, or from the last words of a shell inside. Those are hostile: only a plain name
//! is looked up, only on the caller's PATH, and the answer goes to the caller alone.

use crate::Ended;
use crate::nowhere;
use nexus_caller::profiles::tool_host;
use nexus_driver::NotStarted;
use nexus_driver::frames::ExecStage;
use nexus_model::plan::Access;
use nexus_policy::profile::Toolchain;
use nexus_profiles::toolchains::{is_system, prefix, showing as toolchain_showing};
use nexus_profiles::{Tool, ToolHost as Host};
use nexus_runner::plan::guarded::Guarded;
use std::path::{Path, PathBuf};

/// Returns what to do about a command that ended with 127.
pub fn advice(Ended { run, report, toolchains, .. }: Ended<'_>) -> Option<String> {
    let host = tool_host(run.plan.workspace.source.as_path(), run.network.is_some());
    match report.not_started.as_ref() {
        Some(NotStarted::Exec { stage: ExecStage::Exec, .. }) => {
            let name = run.plan.argv.first()?.as_path();
            let found = of_path(&host, name).or_else(|| host.find(&[name.to_str()?]));
            match found {
                Some(tool) => flag(&host, toolchains, &run.site.places.state, name, &tool),
                None if is_a_line(&run.plan.argv) => {
                    Some("the command is one word with spaces in it. --shell 'WORDS' runs it with a shell.".to_owned())
                }
                None if is_a_bind(name) => Some(
                    "a path with a colon is not a command. --ro SRC:DST shows a path of yours inside, and --rw SRC:DST lets \
                     the command write to it; -v prints a summary."
                        .to_owned(),
                ),
                None if raises_rights(&run.plan.argv) => Some(NO_RIGHTS.to_owned()),
                None => nowhere::advice(&run.plan, &host.path, name.to_str()?),
            }
        }
        Some(_) => None,
        None => {
            let name = report.last_words.missing_command()?;
            let tool = host.find(&[&name])?;
            let advice = flag(&host, toolchains, &run.site.places.state, Path::new(&name), &tool)?;
            Some(format!("perhaps: {advice}"))
        }
    }
}

const NO_RIGHTS: &str =
    "no process inside gains rights, so that sudo and su cannot work. Call the command without them.";

/// Reports whether a command would gain rights, if it were there.
fn raises_rights(argv: &[nexus_model::ByteText]) -> bool {
    argv.first().is_some_and(|name| [&b"sudo"[..], b"su", b"doas"].contains(&&name.0[..]))
}

/// Reports whether the user wrote `-v SRC:DST`, as for a container engine, where the command should begin.
fn is_a_bind(name: &Path) -> bool {
    let Some((source, target)) = name.to_str().and_then(|name| name.split_once(':')) else { return false };
    source.starts_with(['/', '.', '~']) && target.starts_with('/')
}

/// Reports whether the user wrote a line for a shell as one word.
fn is_a_line(argv: &[nexus_model::ByteText]) -> bool {
    matches!(argv, [one] if one.0.contains(&b' '))
}

/// Returns the program of an absolute path outside the workspace.
fn of_path(host: &Host, path: &Path) -> Option<Tool> {
    let entry = path.parent().filter(|_| path.is_absolute())?.to_owned();
    let real = host.file(path)?;
    Some(Tool { entry, file: path.to_owned(), real, in_workspace: Vec::new() })
}

/// Returns the sentence that names the profile, or the bind, that shows this program.
fn flag(host: &Host, known: &[Toolchain], state: &Path, name: &Path, tool: &Tool) -> Option<String> {
    if is_system(&tool.file) {
        // It is shown, so that something else is missing: its interpreter or its loader.
        return None;
    }
    let what = format!("{} is {} outside, and the sandbox does not show it", name.display(), tool.file.display());
    flag_after(&what, host, known, state, name, tool)
}

/// Continues a sentence about a program outside with the flag that shows it.
pub fn flag_after(
    what: &str,
    host: &Host,
    known: &[Toolchain],
    state: &Path,
    name: &Path,
    tool: &Tool,
) -> Option<String> {
    if is_left_out(host, tool) {
        // A profile or a bind would show it: the person looks at the link first, which an earlier run may have made.
        let real = tool.real.display();
        return Some(format!("{what}. It leads to {real}, which Nexus shows no run unasked; nexus explain says why."));
    }
    let called = if name.is_absolute() { name.to_owned() } else { PathBuf::from(tool.file.file_name()?) };
    if let Some(toolchain) = toolchain_showing(host, known, &called) {
        return Some(format!("{what}. --profile {} shows it.", toolchain.word()));
    }
    // The tool's own directory, or just the program under the name that PATH has for it.
    let (source, target) = match prefix(&tool.real, host) {
        Some(directory) => (directory, None),
        None => (tool.real.clone(), Some(&tool.file).filter(|file| **file != tool.real)),
    };
    let place = if target.is_some() { &tool.file } else { &tool.real };
    let is_state = state.starts_with(&source) || source.starts_with(state);
    let refused = Guarded::here(&nexus_caller::host::here())
        .refusal(&source, Access::ReadOnly, |path| path.symlink_metadata().is_ok());
    if is_state || refused.is_some() {
        return Some(format!("{what}. No flag shows that path; install it below /usr or into the workspace."));
    }
    let target = target.map_or_else(String::new, |target| format!(":{}", target.display()));
    let call = if name == place { String::new() } else { format!("; call it as {}", place.display()) };
    Some(format!("{what}. --ro {}{target} shows it{call}.", source.display()))
}

/// Reports whether a run without a flag leaves the program out because of the place to which its link leads.
fn is_left_out(host: &Host, tool: &Tool) -> bool {
    let name = tool.file.file_name().and_then(std::ffi::OsStr::to_str);
    let is_found = |name| host.for_auto().find_in(std::slice::from_ref(&tool.entry), &[name]).is_some();
    tool.file != tool.real && !name.is_some_and(is_found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Scene;

    fn told(scene: &Scene, name: &str) -> Option<String> {
        let tool = of_path(&scene.host, Path::new(name)).or_else(|| scene.host.find(&[name]))?;
        flag(&scene.host, &[], Path::new("/no/state"), Path::new(name), &tool)
    }

    #[test]
    fn the_profile_of_a_toolchain_is_named() {
        let mut scene = Scene::new();
        scene.file(".nvm/versions/node/v22/bin/node", "");
        scene.file(".nvm/versions/node/v22/bin/tsc", "");
        scene.on_path(".nvm/versions/node/v22/bin");
        for name in ["node", "tsc"] {
            let told = told(&scene, name).unwrap();
            assert!(told.ends_with("--profile node shows it."), "{told}");
        }
        let known = scene.host.find(&["tsc"]).unwrap();
        let again = flag(&scene.host, &[Toolchain::Node], Path::new("/no"), Path::new("tsc"), &known).unwrap();
        assert!(!again.contains("--profile"), "a profile that is in force does not help: {again}");
    }

    #[test]
    fn no_flag_is_named_for_a_link_that_a_run_may_have_made() {
        let mut scene = Scene::new();
        let secret = scene.file("work/secret/notes", "");
        scene.file(".venv/bin/keep", "");
        let link = secret.ancestors().nth(3).unwrap().join(".venv/bin/python3");
        std::os::unix::fs::symlink(&secret, link).unwrap();
        scene.on_path(".venv/bin");
        let told = told(&scene, "python3").unwrap();
        assert!(!told.contains("--") && told.contains("which Nexus shows no run unasked"), "{told}");
    }

    #[test]
    fn a_single_program_is_bound_alone() {
        let mut scene = Scene::new();
        let file = scene.file("bin/odd", "");
        // Before the first question: a view of the host lists each entry of PATH once.
        let link = scene.home().join("bin/link");
        std::os::unix::fs::symlink("odd", &link).unwrap();
        scene.on_path("bin");
        let flag = format!("--ro {0} shows it; call it as {0}.", file.display());
        assert!(told(&scene, "odd").unwrap().ends_with(&flag));
        let flag = format!("--ro {0}:{1} shows it; call it as {1}.", file.display(), link.display());
        assert!(told(&scene, "link").unwrap().ends_with(&flag));
        let whole = told(&scene, file.to_str().unwrap()).unwrap();
        assert!(whole.ends_with(&format!("--ro {} shows it.", file.display())), "{whole}");
    }

    #[test]
    fn a_name_that_is_nowhere_or_in_the_system_has_no_flag() {
        let mut scene = Scene::new();
        scene.host.path.push("/usr/bin".into());
        assert_eq!(told(&scene, "no-such-program"), None);
        assert_eq!(told(&scene, "env"), None);
        assert_eq!(told(&scene, "/usr/bin/env"), None);
    }

    #[test]
    fn credentials_are_not_offered() {
        let mut scene = Scene::new();
        scene.host.path.push("/root/.ssh".into());
        let tool = Tool {
            entry: "/root/.ssh".into(),
            file: "/root/.ssh/run".into(),
            real: "/root/.ssh/run".into(),
            in_workspace: Vec::new(),
        };
        let told = flag(&scene.host, &[], Path::new("/no"), Path::new("run"), &tool).unwrap();
        assert!(told.contains("No flag shows that path"), "{told}");
    }
}
