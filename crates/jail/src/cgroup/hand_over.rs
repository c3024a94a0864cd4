//! The commands by which root gives an ordinary user a place for control groups.

use super::find::{Hierarchies, Wanted};
use std::path::Path;

/// Returns the commands for this machine, in order; empty where it has no hierarchy with these controllers. Nothing is run.
#[must_use]
pub fn hand_over(hierarchies: &Hierarchies, wanted: Wanted, uid: u32) -> Vec<String> {
    let names: Vec<&str> =
        [("memory", wanted.memory), ("cpu", wanted.cpu)].into_iter().filter(|one| one.1).map(|one| one.0).collect();
    match &hierarchies.v2 {
        Some(mount) if has_all(mount, &names) => v2(mount, &names, uid),
        _ => names
            .iter()
            .filter_map(|name| hierarchies.v1_mount(name))
            .flat_map(|mount| {
                let place = mount.join("nexus").join(uid.to_string());
                [format!("mkdir -p {}", quoted(&place)), format!("chown -R {uid} {}", quoted(&place))]
            })
            .collect(),
    }
}

fn has_all(mount: &Path, names: &[&str]) -> bool {
    let listed = std::fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
    names.iter().all(|name| listed.split_whitespace().any(|controller| controller == *name))
}

/// Each directory hands its controllers down to those in it.
fn v2(mount: &Path, names: &[&str], uid: u32) -> Vec<String> {
    let shared = mount.join("nexus");
    let place = shared.join(uid.to_string());
    let handed: Vec<String> = names.iter().map(|name| format!("+{name}")).collect();
    let hand_down = |directory: &Path| {
        format!("echo '{}' > {}", handed.join(" "), quoted(&directory.join("cgroup.subtree_control")))
    };
    vec![
        format!("mkdir -p {}", quoted(&place)),
        hand_down(mount),
        hand_down(&shared),
        format!("chown -R {uid} {}", quoted(&place)),
    ]
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-,+:@".contains(&byte);
    if text.bytes().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_hierarchy_has_its_commands() {
        let both = Wanted { memory: true, cpu: true };
        let v1 = Hierarchies { v2: None, v1: vec![("memory".into(), "/g/memory".into())] };
        assert_eq!(hand_over(&v1, both, 7), ["mkdir -p /g/memory/nexus/7", "chown -R 7 /g/memory/nexus/7"]);
        assert!(hand_over(&Hierarchies::default(), both, 7).is_empty());
        let mount = tempfile::tempdir().unwrap();
        std::fs::write(mount.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        let v2 = Hierarchies { v2: Some(mount.path().into()), ..v1.clone() };
        let commands = hand_over(&v2, both, 7);
        let at = |name: &str| mount.path().join(name).display().to_string();
        assert_eq!(commands[0], format!("mkdir -p {}", at("nexus/7")));
        assert_eq!(commands[1], format!("echo '+memory +cpu' > {}", at("cgroup.subtree_control")));
        assert_eq!(commands[2], format!("echo '+memory +cpu' > {}", at("nexus/cgroup.subtree_control")));
        assert_eq!(commands.len(), 4);
        // Of a hybrid host: v2 is there without these controllers.
        std::fs::write(mount.path().join("cgroup.controllers"), "").unwrap();
        assert_eq!(hand_over(&v2, both, 7), hand_over(&v1, both, 7));
    }

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        assert_eq!(quoted(Path::new("/sys/fs/cgroup/cpu,cpuacct")), "/sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(quoted(Path::new("/a b'c;")), r"'/a b'\''c;'");
    }
}
