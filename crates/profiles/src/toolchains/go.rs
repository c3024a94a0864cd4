//! Go: its directory, and the module cache, at its own path, read-only when there is no network. GOPATH and the build cache are
//! private. Results of builds hold the paths of modules, so that with another path everything would be compiled again.

use super::adder::Adder;
use nexus_model::plan::HOME;
use std::path::{Path, PathBuf};

/// Shows Go and, without a network, the downloaded modules.
pub fn find(to: &mut Adder<'_>) {
    let Some(tool) = to.find(&["go"]) else {
        to.note("go was not found on PATH");
        return;
    };
    to.show_program(&tool, "the directory of Go");
    let first = to.host.text_of("GOPATH").and_then(|all| all.split(':').next().map(str::to_owned));
    let usual = match &first {
        Some(path) => Some(Path::new(path).join("pkg/mod")),
        None => to.path_of("GOMODCACHE", "go/pkg/mod"),
    };
    let named = to.host.caller.variable("GOMODCACHE").map(PathBuf::from).filter(|path| path.is_absolute());
    let kept = to.keep_home("GOMODCACHE", named.or(usual));
    if to.host.network {
        return;
    }
    let modules =
        to.directory_of("GOMODCACHE", |directory| directory.join("cache").is_dir()).or_else(|| match &first {
            Some(path) => to.host.directory(&Path::new(path).join("pkg/mod")),
            None => to.host.in_home("go/pkg/mod"),
        });
    let is_auto = to.auto.is_some();
    if let Some(modules) = modules.filter(|modules| !is_auto || modules.join("cache").is_dir()) {
        let inside = kept.unwrap_or_else(|| Path::new(HOME).join("go/pkg/mod"));
        to.show_unsearched(&modules, &inside, "downloaded modules");
    }
    // Fails at once and clearly, instead of after the time limit of a resolver that cannot answer.
    to.set("GOPROXY", "off");
}

#[cfg(test)]
mod tests {
    use super::super::adder::tests::found_by;
    use super::super::host::tests::Scene;
    use super::*;

    #[test]
    fn go_is_shown_with_its_modules() {
        let mut scene = Scene::new();
        scene.file("sdk/go1.25/bin/go", "");
        scene.file("go/pkg/mod/cache/x", "");
        scene.file(".config/go/env", "GOPROXY=https://me:secret@proxy");
        scene.on_path("sdk/go1.25/bin");
        let found = found_by(&scene, find);
        let targets: Vec<_> = found.binds.iter().map(|bind| bind.target.clone()).collect();
        assert_eq!(targets, [scene.home().join("sdk/go1.25"), scene.home().join("go/pkg/mod")]);
        assert_eq!(found.env["GOMODCACHE"].value, scene.home().join("go/pkg/mod").as_os_str());
        assert_eq!(found.env["GOPROXY"].value, "off");
    }
}
