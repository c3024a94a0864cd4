//! Finds the places of settings that programs of the host read: home directories, git's configurations, and that of Nexus itself.

use crate::host::Host;
use crate::plan::configuration;
use nexus_layer::Host as GitHost;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Configurations of the system, as git is built by distributions and by hand.
const OF_SYSTEM: &[&str] = &["/etc/gitconfig", "/usr/local/etc/gitconfig", "/usr/etc/gitconfig"];

/// Finds them for the users of this process and for the owner of the workspace, who may be another one (`sudo`).
pub fn find(host: &Host, workspace: &Path) -> GitHost {
    let mut users = BTreeSet::from([host.uid, rustix::process::getuid().as_raw()]);
    users.extend(std::fs::metadata(workspace).map(|meta| meta.uid()));
    let accounts = accounts();
    let mut homes: Vec<PathBuf> = host.home.clone().into_iter().collect();
    for home in homes_of(&accounts, &users) {
        if !homes.contains(&home) {
            homes.push(home);
        }
    }
    let named = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"]
        .map(|name| host.variable(name))
        .into_iter()
        .flatten()
        .map(PathBuf::from);
    let xdg = host.variable("XDG_CONFIG_HOME").map(PathBuf::from).map(|config| config.join("git/config"));
    let usual = homes.iter().flat_map(|home| [home.join(".gitconfig"), home.join(".config/git/config")]);
    let all = named.chain(xdg).chain(usual).chain(OF_SYSTEM.iter().map(PathBuf::from));
    let git_configurations = all.filter(|path| path.is_absolute()).collect();
    let mut configurations = configuration::places(host, &homes);
    configurations.extend(configuration::of_clients(host, &homes));
    GitHost { homes, git_configurations, configurations }
}

/// Returns the home directory of a user by the machine's own table. getpwuid(3) would load modules of the host
/// (`nsswitch.conf`), and a static program does not survive each of them.
pub fn home_of(uid: u32) -> Option<PathBuf> {
    homes_of(&accounts(), &BTreeSet::from([uid])).into_iter().next()
}

fn accounts() -> Vec<u8> {
    std::fs::read("/etc/passwd").unwrap_or_default()
}

/// The home directories of some users by the lines of passwd(5).
fn homes_of(accounts: &[u8], users: &BTreeSet<u32>) -> Vec<PathBuf> {
    let home = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let uid: u32 = std::str::from_utf8(fields.get(2)?).ok()?.parse().ok()?;
        let home = Path::new(std::ffi::OsStr::from_bytes(fields.get(5)?));
        (users.contains(&uid) && home.is_absolute() && home != Path::new("/")).then(|| home.to_owned())
    };
    accounts.split(|byte| *byte == b'\n').filter_map(home).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_read_from_the_accounts() {
        let accounts =
            b"root:x:0:0:root:/root:/bin/sh\nbad\nn:x:7:7::/:/x\nx:x:8:8::/home/x:/bin/sh\ny:x:9:9::rel:/x\n";
        let homes = |users: &[u32]| homes_of(accounts, &users.iter().copied().collect());
        assert_eq!(homes(&[0, 8, 9, 7]), [PathBuf::from("/root"), PathBuf::from("/home/x")]);
        assert!(homes(&[5]).is_empty());
    }
}
