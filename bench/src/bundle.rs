//! A minimal OCI bundle for crun and runc: the host's /usr read-only, own /proc, /dev and /tmp, all namespaces.
//!
//! The same view of the system that Nexus and bubblewrap are given, so that the times compare.

use serde_json::{Value, json};
use std::io;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

/// Writes `config.json` and an empty root for `command`; for an ordinary user one with a user namespace.
pub fn make(directory: &Path, uid: Option<u32>, command: &[String]) -> io::Result<()> {
    // Made again for another command.
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    let root = directory.join("rootfs");
    for path in ["rootfs/usr", "rootfs/proc", "rootfs/dev", "rootfs/tmp", "state"] {
        std::fs::create_dir_all(directory.join(path))?;
    }
    for name in ["bin", "lib", "lib64", "sbin"] {
        symlink(format!("usr/{name}"), root.join(name))?;
    }
    std::fs::write(directory.join("config.json"), config(uid, command).to_string())?;
    if let Some(uid) = uid {
        for path in ["", "rootfs", "state", "rootfs/usr", "rootfs/proc", "rootfs/dev", "rootfs/tmp", "config.json"] {
            chown(directory.join(path), Some(uid), Some(uid))?;
        }
    }
    Ok(())
}

fn config(uid: Option<u32>, command: &[String]) -> Value {
    let bind =
        json!({"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro", "nosuid", "nodev"]});
    let own = |kind: &str, to: &str| json!({"destination": to, "type": kind, "source": kind, "options": ["nosuid"]});
    let mut namespaces: Vec<Value> =
        ["pid", "mount", "network", "ipc", "uts", "cgroup"].iter().map(|kind| json!({"type": kind})).collect();
    let mut linux = json!({});
    if let Some(uid) = uid {
        namespaces.push(json!({"type": "user"}));
        let map = json!([{"containerID": 0, "hostID": uid, "size": 1}]);
        linux = json!({"uidMappings": map, "gidMappings": map});
    }
    linux["namespaces"] = Value::Array(namespaces);
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0}, "args": command, "cwd": "/", "env": ["PATH=/usr/bin:/bin"],
            "noNewPrivileges": true, "capabilities": {},
        },
        "root": {"path": "rootfs", "readonly": true},
        "mounts": [bind, own("proc", "/proc"), own("tmpfs", "/dev"), own("tmpfs", "/tmp")],
        "linux": linux,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ordinary_user_gets_a_user_namespace() {
        let has_user = |uid| config(uid, &[]).to_string().contains("\"user\"}");
        assert!(has_user(Some(7)));
        assert!(!has_user(None));
    }
}
