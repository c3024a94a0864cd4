//! Java, Maven and Gradle: the system's with their tables in `/etc`, or those of sdkman. Downloaded artifacts are
//! read-only when there is no network; `settings.xml` and `gradle.properties` may hold passwords and are not shown.

use super::adder::Adder;
use super::host;
use super::layout;
use super::places;
use nexus_model::plan::HOME;
use std::path::{Path, PathBuf};

/// Shows Java, Maven and Gradle with their tables and, without a network, their downloaded artifacts.
pub fn find(to: &mut Adder<'_>) {
    let is_auto = to.auto.is_some();
    let named = if is_auto { java_home(to) } else { None };
    match to.find(&["javac", "java"]) {
        None if named.is_none() => {
            to.note("java was not found on PATH");
            if is_auto {
                return;
            }
        }
        None => {}
        Some(tool) => {
            to.show_program(&tool, "the directory of Java");
            let home = tool.real.parent().and_then(Path::parent).filter(|home| home.join("lib").is_dir());
            // With `auto` a variable is there inside if the caller has it or the home needs it.
            if let Some(home) = home.filter(|home| !is_auto || !host::is_system(home)) {
                to.set("JAVA_HOME", home.as_os_str());
            }
        }
    }
    to.tables(|| tables(Path::new("/etc"), "java"));
    let mut has_tool = false;
    for name in ["mvn", "gradle"] {
        if let Some(tool) = to.find(&[name]) {
            to.show_program(&tool, "the directory of a build tool");
            has_tool = true;
            if name == "mvn" && is_auto {
                to.tables(|| tables(Path::new("/etc"), "maven"));
            }
        }
    }
    if !is_auto {
        to.tables(|| tables(Path::new("/etc"), "maven"));
    } else if !has_tool {
        return;
    }
    if to.host.network {
        return;
    }
    if let Some(repository) = to.host.in_home(".m2/repository") {
        to.show_unsearched(&repository, &Path::new(HOME).join(".m2/repository"), "downloaded artifacts of Maven");
    }
    if let Some(modules) = to.host.in_home(".gradle/caches/modules-2") {
        to.show_unsearched(&modules, Path::new("/opt/nexus/gradle/modules-2"), "downloaded artifacts of Gradle");
        to.set("GRADLE_RO_DEP_CACHE", "/opt/nexus/gradle");
    }
}

/// Shows the Java that the caller's JAVA_HOME names.
fn java_home(to: &mut Adder<'_>) -> Option<PathBuf> {
    let named = to.directory_of("JAVA_HOME", layout::is_marked);
    let value = PathBuf::from(to.host.text_of("JAVA_HOME")?);
    // The variable may name a link beside the versions (`/opt/java/current`): the place of the program decides.
    let java = to.host.file_in(&value.join("bin"), "java")?;
    // Below `/opt` the place alone says nothing to root; there the variable does, where it names the directory itself.
    let is_there = |named: &PathBuf| places::is_of_machine(named) && java.starts_with(named);
    let home = if host::is_system(&java) {
        named?
    } else {
        layout::prefix(&java, to.host).or_else(|| named.filter(is_there))?
    };
    to.because(|| "the variable JAVA_HOME".to_owned());
    to.show_installation(&home, "the directory of Java");
    to.set("JAVA_HOME", home.as_os_str());
    Some(home)
}

/// Returns the settings in `/etc` that Debian's Java or Maven links to from `/usr`, without Maven's `settings.xml`.
fn tables(etc: &Path, of: &str) -> Vec<(PathBuf, &'static str)> {
    let mut found = Vec::new();
    if of == "maven" {
        for name in ["maven/m2.conf", "maven/logging", "maven/toolchains.xml"] {
            found.push((etc.join(name), "settings of the system's Maven"));
        }
    } else {
        let names =
            std::fs::read_dir(etc).into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut java: Vec<String> = names.filter(|name| name.starts_with("java-") || name == "java").collect();
        java.sort();
        found.extend(java.into_iter().map(|name| (etc.join(name), "settings of the system's Java")));
    }
    found.retain(|(path, _)| host::can(path, rustix::fs::Access::READ_OK));
    found
}

#[cfg(test)]
mod tests {
    use super::super::adder::tests::found_by;
    use super::super::host::tests::Scene;
    use super::*;

    #[test]
    fn the_java_of_sdkman_is_shown_with_its_repository_and_without_settings() {
        let mut scene = Scene::new();
        scene.file(".sdkman/candidates/java/21/bin/java", "");
        scene.file(".sdkman/candidates/java/21/lib/modules", "");
        std::os::unix::fs::symlink("21", scene.home().join(".sdkman/candidates/java/current")).unwrap();
        scene.file(".m2/repository/a.jar", "");
        scene.file(".m2/settings.xml", "<password>secret</password>");
        scene.on_path(".sdkman/candidates/java/current/bin");
        let found = found_by(&scene, find);
        let java = scene.home().join(".sdkman/candidates/java/21");
        let targets: Vec<_> =
            found.binds.iter().map(|bind| bind.target.clone()).filter(|path| !path.starts_with("/etc")).collect();
        assert_eq!(targets, [java.clone(), "/home/nexus/.m2/repository".into()]);
        assert_eq!(found.env["JAVA_HOME"].value, java.as_os_str());
        assert_eq!(found.path[0].value, java.join("bin"));
    }

    #[test]
    fn settings_of_maven_stay_outside() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["java-21-openjdk/security/x", "maven/settings.xml", "maven/m2.conf", "javascript/x"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = ["java", "maven"].into_iter().flat_map(|of| tables(dir.path(), of));
        let found: Vec<_> = found.map(|(path, _)| path).collect();
        assert_eq!(found, [dir.path().join("java-21-openjdk"), dir.path().join("maven/m2.conf")]);
    }
}
