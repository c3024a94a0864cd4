//! Node with npm and npx. nvm and fnm put the version's own `bin` on PATH; volta puts a shim there that writes its own
//! state before it starts anything, so the version that it would choose is looked up instead.

use super::adder::Adder;
use super::host::{self, Tool};
use super::reading;
use std::path::{Path, PathBuf};

/// Shows Node and npm, or the version that volta chooses.
pub fn find(to: &mut Adder<'_>) {
    let Some(mut tool) = to.find(&["node"]) else {
        to.note("node was not found on PATH");
        return;
    };
    offline(to);
    if is_shim(&tool) && volta(to, &tool).is_none() && to.auto.is_some() {
        let after = to.host.path.iter().skip_while(|entry| **entry != tool.entry).skip(1);
        let after: Vec<PathBuf> = after.filter(|entry| !host::is_shims(entry)).cloned().collect();
        match to.host.find_in(&after, &["node"]).filter(|next| !is_shim(next)) {
            Some(next) => tool = next,
            None => return,
        }
        to.because(|| format!("{} on PATH", tool.entry.display()));
    }
    if is_shim(&tool) {
        match volta(to, &tool) {
            Some((bin, real)) => {
                let node = Tool { real, file: bin.join("node"), entry: bin, ..tool };
                to.show_program(&node, "the version of Node that volta chooses");
            }
            None => to.note("volta has no default version of Node: volta install node"),
        }
        return;
    }
    to.show_program(&tool, "the directory of Node and npm");
}

fn is_shim(tool: &Tool) -> bool {
    tool.real.file_name().is_some_and(|name| name == "volta-shim")
}

/// Lets npm fail at once where there is no network: it would try each name again for more than a minute. A `.npmrc` of the
/// workspace may have a setting of its own, which a variable would hide. npm and tools with the library update-notifier do
/// not look for newer versions: the home is new each time, so that each run would ask for the registry.
fn offline(to: &mut Adder<'_>) {
    if to.host.network {
        return;
    }
    to.set("npm_config_update_notifier", "false");
    to.set("NO_UPDATE_NOTIFIER", "1");
    if to.host.workspace.join(".npmrc").symlink_metadata().is_err() {
        to.set("npm_config_fetch_retries", "0");
    }
}

/// Returns the `bin` directory of volta's default version for a shim `VOLTA_HOME/bin/node`, and the program in it.
fn volta(to: &Adder<'_>, tool: &Tool) -> Option<(PathBuf, PathBuf)> {
    let home = to.host.directory(tool.entry.parent()?)?;
    let text = reading::small(&to.host.file(&home.join("tools/user/platform.json"))?)?;
    let platform: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let version = platform.pointer("/node/runtime")?.as_str()?;
    let plain = Path::new(version).components().count() == 1 && !version.contains("..");
    let bin = home.join("tools/image/node").join(version).join("bin");
    // An earlier run may have put a link in the place of a version.
    let node = to.host.file_in(&bin, "node").filter(|node| plain && node.starts_with(&bin))?;
    Some((bin, node))
}

#[cfg(test)]
mod tests {
    use super::super::adder::tests::found_by;
    use super::super::host::tests::Scene;
    use super::*;

    #[test]
    fn npm_fails_at_once_without_a_network_alone() {
        const RETRIES: &str = "npm_config_fetch_retries";
        const NOTIFIER: &str = "npm_config_update_notifier";
        let mut scene = Scene::new();
        scene.file(".nvm/versions/node/v22.1.0/bin/node", "");
        scene.on_path(".nvm/versions/node/v22.1.0/bin");
        scene.host.network = false;
        assert_eq!(found_by(&scene, find).env[RETRIES].value, "0");
        assert_eq!(found_by(&scene, find).env[NOTIFIER].value, "false");
        assert_eq!(found_by(&scene, find).env["NO_UPDATE_NOTIFIER"].value, "1");
        scene.host.network = true;
        for name in [RETRIES, NOTIFIER, "NO_UPDATE_NOTIFIER"] {
            assert!(!found_by(&scene, find).env.contains_key(name), "{name}");
        }
        scene.host.network = false;
        let workspace = scene.host.workspace.clone();
        std::fs::create_dir_all(&workspace).unwrap();
        std::fs::write(workspace.join(".npmrc"), "fetch-retries=5\n").unwrap();
        assert!(!found_by(&scene, find).env.contains_key(RETRIES), "the user's own setting stays");
        assert_eq!(found_by(&scene, find).env[NOTIFIER].value, "false", "nothing can be asked for");
    }

    #[test]
    fn the_version_of_nvm_and_of_volta_is_shown_and_nothing_else_of_the_home() {
        let mut scene = Scene::new();
        scene.file(".npmrc", "//registry/:_authToken=secret");
        scene.file(".nvm/versions/node/v22.1.0/bin/node", "");
        scene.on_path(".nvm/versions/node/v22.1.0/bin");
        let found = found_by(&scene, find);
        let home = scene.home();
        assert_eq!(
            found.binds.iter().map(|bind| &bind.target).collect::<Vec<_>>(),
            [&home.join(".nvm/versions/node/v22.1.0")]
        );
        assert_eq!(found.path[0].value, home.join(".nvm/versions/node/v22.1.0/bin"));

        let mut scene = Scene::new();
        scene.file(".volta/bin/volta-shim", "");
        std::os::unix::fs::symlink("volta-shim", scene.home().join(".volta/bin/node")).unwrap();
        scene.file(".volta/tools/user/platform.json", r#"{"node":{"runtime":"20.9.0","npm":null}}"#);
        scene.file(".volta/tools/image/node/20.9.0/bin/node", "");
        scene.on_path(".volta/bin");
        let found = found_by(&scene, find);
        assert_eq!(found.binds[0].target, scene.home().join(".volta/tools/image/node/20.9.0"));
        assert_eq!(found.binds.len(), 1);
    }
}
