//! The plays: each way in which changes reach a workspace.

use super::play::{Play, Scenario, demand, demand_gone};
use crate::tree::Tree;
use crate::world::World;
use std::fmt::Write as _;
use std::io;

/// All of them.
pub const ALL: &[Scenario] = &[
    Scenario { name: "small", setup: few, act: small },
    Scenario { name: "large", setup: many, act: large },
    Scenario { name: "mixed", setup: assorted, act: mixed },
    Scenario { name: "deletes", setup: assorted, act: deletes },
    Scenario { name: "review", setup: assorted, act: review },
    Scenario { name: "partial", setup: assorted, act: partial },
    Scenario { name: "patch", setup: assorted, act: patch },
    Scenario { name: "protected", setup: few, act: protected },
    Scenario { name: "killed", setup: few, act: killed },
    Scenario { name: "two-runs", setup: few, act: two_runs },
];

fn few(world: &World) -> io::Result<()> {
    (1..=6).try_for_each(|number| world.write(&format!("f{number}"), &format!("old {number}\n")))
}

fn many(world: &World) -> io::Result<()> {
    for number in 0..1200 {
        world.write(&format!("d{}/f{number}", number % 12), &format!("old {number}\n"))?;
    }
    Ok(())
}

fn assorted(world: &World) -> io::Result<()> {
    few(world)?;
    let mut long = String::new();
    for number in 0..60 {
        writeln!(long, "line {number}").map_err(io::Error::other)?;
    }
    world.write("text", &long)?;
    world.write("big", &"old ".repeat(60_000))?;
    for name in ["dir/a", "dir/b", "dir/deep/c", "gone/a", "gone/b/c", "whole/x", "whole/y"] {
        world.write(name, &format!("old {name}\n"))?;
    }
    Ok(())
}

fn commit(play: &mut Play, script: &str) -> Result<Tree, String> {
    play.nexus(&["run", "--changes", "commit", "--", "sh", "-c", script])?;
    play.stage("run --changes commit", true)
}

fn park(play: &mut Play, script: &str) -> Result<Tree, String> {
    play.nexus(&["run", "--changes", "review", "--", "sh", "-c", script])?;
    play.stage("run --changes review", true)
}

const EDIT_FOUR: &str = "for i in 1 2 3 4; do echo new $i > f$i; done";

fn small(play: &mut Play) -> Result<(), String> {
    let tree = commit(play, EDIT_FOUR)?;
    demand(&tree, "f4", "new 4\n")
}

fn large(play: &mut Play) -> Result<(), String> {
    let tree =
        commit(play, "for f in d*/f*; do echo new >> $f; done; for i in $(seq 200); do echo $i > added$i; done")?;
    demand(&tree, "d0/f0", "old 0\nnew\n")?;
    demand(&tree, "added200", "200\n")
}

const MIXED: &str = "rm -r dir; echo file > dir; rm f1; mkdir f1; echo in > f1/in; ln -s f3 link; rm f2; ln -s f3 f2; \
    chmod 600 f3; mv f4 moved; mkdir -p new/deep; echo a > new/deep/a; head -c 300000 /dev/zero | tr '\\0' n > big; \
    rm -r whole; mkdir whole; echo z > whole/z";

fn mixed(play: &mut Play) -> Result<(), String> {
    let tree = commit(play, MIXED)?;
    demand(&tree, "dir", "file\n")?;
    demand(&tree, "f1/in", "in\n")?;
    demand_gone(&tree, "whole/x")
}

fn deletes(play: &mut Play) -> Result<(), String> {
    let tree = commit(play, "rm f1 f2 f3 text; rm -r gone dir/deep; echo new > f4")?;
    demand_gone(&tree, "gone/b/c")?;
    demand(&tree, "f4", "new\n")
}

fn review(play: &mut Play) -> Result<(), String> {
    let before = park(play, MIXED)?;
    demand(&before, "f1", "old 1\n")?;
    play.nexus(&["changes", "accept"])?;
    let tree = play.stage("changes accept", true)?;
    demand(&tree, "f1/in", "in\n")
}

fn partial(play: &mut Play) -> Result<(), String> {
    park(play, "echo new > dir/a; rm dir/b; echo n > dir/new; for i in 1 2 3; do echo new $i > f$i; done; rm -r gone")?;
    play.nexus(&["changes", "accept", "dir"])?;
    let tree = play.stage("changes accept dir", true)?;
    demand(&tree, "dir/new", "n\n")?;
    demand(&tree, "f1", "old 1\n")?;
    play.nexus(&["changes", "accept", "f1", "f2"])?;
    let tree = play.stage("changes accept f1 f2", true)?;
    demand(&tree, "f2", "new 2\n")?;
    play.nexus(&["changes", "accept"])?;
    let tree = play.stage("changes accept", true)?;
    demand_gone(&tree, "gone")
}

fn patch(play: &mut Play) -> Result<(), String> {
    park(play, "sed -i 's/^line 3$/third/; s/^line 50$/fiftieth/' text; echo new > f1")?;
    play.answer(&["changes", "accept", "--patch", "text"], "y\nn\n")?;
    let tree = play.stage("changes accept --patch text", true)?;
    demand(&tree, "f1", "old 1\n")?;
    play.nexus(&["changes", "accept"])?;
    let tree = play.stage("changes accept", true)?;
    demand(&tree, "f1", "new\n")
}

fn protected(play: &mut Play) -> Result<(), String> {
    let tree =
        commit(play, "echo new > f1; echo new > f2; echo hook > .envrc; mkdir .vscode; echo {} > .vscode/tasks.json")?;
    demand(&tree, "f1", "new\n")?;
    demand_gone(&tree, ".envrc")?;
    play.nexus(&["changes", "accept", "--protected"])?;
    let tree = play.stage("changes accept --protected", true)?;
    demand(&tree, ".envrc", "hook\n")
}

/// A commit that is killed between two of its steps, and a later command that brings it to an end.
fn killed(play: &mut Play) -> Result<(), String> {
    let words = ["run", "--changes", "commit", "--", "sh", "-c", "for i in 1 2 3 4 5 6; do echo new $i > f$i; done"];
    let calls = "renameat,renameat2,rename";
    let inject = format!("inject={calls}:signal=KILL:when={}", 2 + play.random.below(8));
    let trace = format!("trace={calls}");
    // Without -f: only the process that commits is traced, and not the sandbox.
    let ended = play
        .world
        .start(&["strace", "-o", "/dev/null", "-e", &trace, "-e", &inject], &words, "")?
        .wait()
        .map_err(|error| error.to_string())?;
    let old = play.stages.first().map(|stage| stage.trees.clone()).unwrap_or_default();
    let mut new = old.clone();
    for tree in &mut new {
        for number in 1..=6 {
            if let Some(entry) = tree.get_mut(&format!("f{number}")) {
                entry.content = crate::tree::Content::File(format!("new {number}\n").into_bytes());
            }
        }
    }
    if ended.code == Some(0) {
        let tree = play.stage("run --changes commit", true)?;
        return demand(&tree, "f6", "new 6\n");
    }
    let both: Vec<Tree> = old.into_iter().chain(new).collect();
    play.stage_of("a commit that was killed", both.clone(), Vec::new(), false)?;
    play.nexus(&["changes", "list"])?;
    let workspace = play.world.workspace();
    let recovered = play.world.nexus(&workspace, &["changes", "recover"])?;
    if recovered.code != Some(0) && recovered.code != Some(2) {
        return Err(format!("`nexus changes recover`: {}", recovered.describe()));
    }
    play.stage_of("changes recover", both, Vec::new(), true)
}

/// Two runs of one directory that overlap and change different files.
fn two_runs(play: &mut Play) -> Result<(), String> {
    let first = "echo A > f1; echo A > f2; echo A > fa; sleep 0.3";
    let second = "echo B > f3; echo B > f4; rm f5; sleep 0.05";
    let old = play.world.tree()?;
    let running = play.world.start(&[], &["run", "--changes", "commit", "--", "sh", "-c", first], "")?;
    play.nexus(&["run", "--changes", "commit", "--", "sh", "-c", second])?;
    let of_second = play.world.tree()?;
    let ended = running.wait().map_err(|error| error.to_string())?;
    if ended.code != Some(0) {
        return Err(format!("the first run: {}", ended.describe()));
    }
    let both = play.world.tree()?;
    demand(&both, "fa", "A\n")?;
    demand(&both, "f3", "B\n")?;
    let mut of_first = both.clone();
    for name in ["f3", "f4", "f5"] {
        if let Some(entry) = old.get(name) {
            of_first.insert(name.to_owned(), entry.clone());
        }
    }
    play.stage_of("two runs", vec![both], vec![of_first, of_second], true)
}
