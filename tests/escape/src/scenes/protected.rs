//! B06, B07: names that run commands on the host when a person opens the directory with git, an editor or an agent. A
//! layered run may change them in its layer; the host's must stay as they were until they are accepted.

use super::options::Options;
use crate::answer::{Answer, Seen};
use crate::host::bench::{Bench, Job, Ran};
use crate::host::inspect::describe;
use crate::host::world::{WorldError, making};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);
const HOOK: &str = "printf '#!/bin/sh\\nid > /tmp/owned\\n'";

/// One attack: its row, what it does in the workspace, what it is after, and words that a report may use for it.
struct Attack {
    case: &'static str,
    script: &'static str,
    victim: &'static str,
}

const NAMES: &[Attack] = &[
    Attack {
        case: "hook_created",
        script: "$HOOK > .git/hooks/post-checkout && chmod 755 .git/hooks/post-checkout",
        victim: ".git/hooks/post-checkout",
    },
    Attack { case: "hook_replaced", script: "$HOOK > .git/hooks/pre-commit", victim: ".git/hooks/pre-commit" },
    Attack {
        case: "hooks_folder_replaced",
        script: "rm -rf .git/hooks && mkdir .git/hooks && $HOOK > .git/hooks/pre-push",
        victim: ".git/hooks",
    },
    Attack {
        case: "config_runs_a_command",
        script: "printf '[core]\\n\\tfsmonitor = id\\n' >> .git/config",
        victim: ".git/config",
    },
    Attack {
        case: "config_renamed_over",
        script: "printf '[core]\\n\\thooksPath = evil\\n' > c && mv c .git/config",
        victim: ".git/config",
    },
    Attack {
        case: "editor_task_created",
        script: "mkdir .vscode && echo '{}' > .vscode/tasks.json",
        victim: ".vscode",
    },
    Attack { case: "envrc_created", script: "echo id > .envrc", victim: ".envrc" },
    Attack { case: "mcp_replaced", script: "rm .mcp.json && echo '{\"evil\":1}' > .mcp.json", victim: ".mcp.json" },
    Attack {
        case: "claude_settings_created",
        script: "mkdir .claude && echo '{}' > .claude/settings.json",
        victim: ".claude",
    },
    Attack {
        case: "nexus_policy_created",
        script: "echo 'net: {mode: unrestricted}' > nexus.yaml",
        victim: "nexus.yaml",
    },
    Attack { case: "nested_hook_created", script: "$HOOK > sub/.git/hooks/post-merge", victim: "sub/.git/hooks" },
];

const LINKS: &[Attack] = &[
    Attack {
        case: "link_replaced_by_file",
        script: "rm .codex && mkdir .codex && echo x > .codex/config.toml",
        victim: ".codex",
    },
    Attack {
        case: "hooks_link_replaced",
        script: "rm sub/.git/hooks && mkdir sub/.git/hooks && $HOOK > sub/.git/hooks/pre-commit",
        victim: "sub/.git/hooks",
    },
    Attack {
        case: "parent_replaced_by_link",
        script: "cp -r .git evil && $HOOK > evil/hooks/pre-commit && rm -rf .git && ln -s evil .git",
        victim: ".git",
    },
];

/// A workspace of its own for each attack.
fn prepare(bench: &Bench, name: &str, linked: bool) -> Result<PathBuf, WorldError> {
    let world = &bench.world;
    let workspace = world.base.join(format!("w-{name}"));
    for repository in ["", "sub/"] {
        let git = workspace.join(format!("{repository}.git"));
        world.file(&git.join("HEAD"), "ref: refs/heads/main\n", 0o644)?;
        world.file(&git.join("config"), "[core]\n\trepositoryformatversion = 0\n", 0o644)?;
        world.file(&git.join("objects/keep"), "", 0o644)?;
        world.file(&git.join("refs/keep"), "", 0o644)?;
        if !(linked && repository == "sub/") {
            world.file(&git.join("hooks/pre-commit"), "#!/bin/sh\nexit 0\n", 0o755)?;
        }
    }
    world.file(&workspace.join(".mcp.json"), "{}\n", 0o644)?;
    world.file(&workspace.join("ordinary"), "before\n", 0o644)?;
    if linked {
        world.file(&workspace.join("elsewhere/keep"), "", 0o644)?;
        let link = |target: &Path, name: &str| {
            making(format!("link {name}"), std::os::unix::fs::symlink(target, workspace.join(name)))
        };
        link(Path::new("elsewhere"), ".codex")?;
        link(Path::new("../../elsewhere"), "sub/.git/hooks")?;
        link(Path::new("ordinary"), "ordinary-link")?;
        link(&world.base.join("side/target"), ".envrc")?;
        world.file(&world.base.join("side/target"), "as it was\n", 0o666)?;
    }
    // Directories made on the way belong to root when root plays for a user.
    if let Some(uid) = world.owner {
        give(&workspace, uid)?;
    }
    Ok(workspace)
}

fn give(path: &Path, uid: u32) -> Result<(), WorldError> {
    making("the owner", std::os::unix::fs::lchown(path, Some(uid), Some(uid)))?;
    if !path.is_symlink() && path.is_dir() {
        for entry in making("a listing", std::fs::read_dir(path))?.flatten() {
            give(&entry.path(), uid)?;
        }
    }
    Ok(())
}

fn play(bench: &Bench, workspace: &Path, script: &str) -> Result<Ran, WorldError> {
    let script = script.replace("$HOOK", HOOK);
    let line = format!("echo started; {{ {script}; }} && echo done");
    bench.run(&Job::new(&["--changes", "commit", "--json"], &["/bin/sh", "-c", &line]).within(workspace), LIMIT)
}

/// Returns whether the report lists the name, or a directory above it, as parked.
fn parked(ran: &Ran, victim: &str) -> bool {
    let listed = ran.report().and_then(|report| report.pointer("/changes/parked").map(ToString::to_string));
    listed.is_some_and(|listed| listed.contains(victim))
}

fn evaluate(ran: &Ran, before: &str, after: &str, victim: &str) -> Answer {
    let word = if !ran.text().contains("started") {
        "did-not-run"
    } else if before != after {
        "changed"
    } else if parked(ran, victim) {
        "held"
    } else if ran.text().contains("done") {
        "unlisted"
    } else {
        "refused-inside"
    };
    Answer::of(word).with(ran.summary())
}

fn attack(bench: &Bench, id: &str, attack: &Attack, linked: bool) -> Result<Seen, WorldError> {
    let workspace = prepare(bench, attack.case, linked)?;
    let victim = workspace.join(attack.victim);
    let before = describe(&victim);
    let ran = play(bench, &workspace, attack.script)?;
    Ok(Seen::new(id, attack.case, evaluate(&ran, &before, &describe(&victim), attack.victim)))
}

fn commit(bench: &Bench, id: &str, case: &str, script: &str, path: &str, linked: bool) -> Result<Seen, WorldError> {
    let workspace = prepare(bench, case, linked)?;
    let ran = play(bench, &workspace, script)?;
    let committed = describe(&workspace.join(path)).contains("after");
    Ok(Seen::new(id, case, Answer::choose(committed, "committed", "lost").with(ran.summary())))
}

/// Plays the attacks of B06.
pub fn protected_names(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let mut seen = NAMES.iter().map(|name| attack(bench, "B06", name, false)).collect::<Result<Vec<_>, _>>()?;
    seen.push(commit(bench, "B06", "ordinary_file", "echo after > ordinary", "ordinary", false)?);
    let script = "printf '[user]\\n\\tname = after\\n' >> .git/config";
    seen.push(commit(bench, "B06", "config_of_no_command", script, ".git/config", false)?);
    Ok(seen)
}

/// Plays the attacks of B07.
pub fn protected_links(bench: &Bench, _: &Options) -> Result<Vec<Seen>, WorldError> {
    let mut seen = LINKS.iter().map(|link| attack(bench, "B07", link, true)).collect::<Result<Vec<_>, _>>()?;
    let script = "rm ordinary-link && echo after > ordinary-link";
    seen.push(commit(bench, "B07", "ordinary_link_replaced", script, "ordinary-link", true)?);
    let workspace = prepare(bench, "write_through_link", true)?;
    let target = bench.world.base.join("side/target");
    let before = describe(&target);
    let ran = play(bench, &workspace, "echo evil > .envrc")?;
    let mut answer = evaluate(&ran, &before, &describe(&target), ".envrc");
    if answer.answer == "unlisted" {
        // Written somewhere private: the link's target on the host is what counts.
        "outside-unchanged".clone_into(&mut answer.answer);
    }
    seen.push(Seen::new("B07", "write_through_link", answer));
    Ok(seen)
}
