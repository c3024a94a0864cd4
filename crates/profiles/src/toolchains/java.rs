//! Java, Maven and Gradle: the system's with their tables in `/etc`, or those of sdkman. Downloaded artifacts are
//! read-only when there is no network; `settings.xml` and `gradle.properties` may hold passwords and are not shown.

use super::adder::Adder;
use super::host;
use nexus_model::plan::HOME;
use std::path::{Path, PathBuf};

/// Shows Java, Maven and Gradle with their tables and, without a network, their downloaded artifacts.
pub fn find(to: &mut Adder<'_>) {
    match to.host.find(&["javac", "java"]) {
        None => to.note("java was not found on PATH"),
        Some(tool) => {
            to.show_program(&tool, "the folder of Java");
            let home = tool.real.parent().and_then(Path::parent).filter(|home| home.join("lib").is_dir());
            if let Some(home) = home {
                to.set("JAVA_HOME", home.as_os_str());
            }
        }
    }
    for name in ["mvn", "gradle"] {
        if let Some(tool) = to.host.find(&[name]) {
            to.show_program(&tool, "the folder of a build tool");
        }
    }
    for (path, why) in tables(Path::new("/etc")) {
        to.show(&path, why);
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

/// Returns the settings in `/etc` that Debian's Java and Maven link to from `/usr`, without Maven's `settings.xml`.
fn tables(etc: &Path) -> Vec<(PathBuf, &'static str)> {
    let mut found = Vec::new();
    let names =
        std::fs::read_dir(etc).into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut java: Vec<String> = names.filter(|name| name.starts_with("java-") || name == "java").collect();
    java.sort();
    found.extend(java.into_iter().map(|name| (etc.join(name), "settings of the system's Java")));
    for name in ["maven/m2.conf", "maven/logging", "maven/toolchains.xml"] {
        found.push((etc.join(name), "settings of the system's Maven"));
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
        let found: Vec<_> = tables(dir.path()).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, [dir.path().join("java-21-openjdk"), dir.path().join("maven/m2.conf")]);
    }
}
