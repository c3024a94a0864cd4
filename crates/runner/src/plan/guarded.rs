//! Paths of the host that no bind shows: parts of the system, credentials, and sockets through which a command would act as
//! the caller or as root. The operator may open one by its name (`[binds] allow` in `config.toml`).
//!
//! A bind is compared by its real path: it may neither be one of these places, nor lie in one, nor hold one.

use crate::host::Host;
use crate::plan::configuration;
use nexus_model::plan::Access;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Directories of the system that are too much to show as a whole.
const SYSTEM: &[&str] = &["/", "/boot", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys"];
/// Directories of which nothing is shown. The shared memory in `/dev/shm` holds ordinary files.
const CLOSED: &[&str] = &["/dev", "/proc"];
const SHARED_MEMORY: &str = "/dev/shm";
/// Directories that no command of a sandbox writes to.
const READ_ONLY: &[&str] = &["/boot", "/etc", "/sys"];
/// Files of `/etc` with keys and passwords.
const ETC: &[&str] = &["/etc/ssl/private", "/etc/pki/tls/private", "/etc/krb5.keytab", "/etc/security/opasswd"];
/// Beginnings of such names directly in `/etc`.
const ETC_NAMES: &[&str] = &["shadow", "gshadow", "sudoers"];
/// Credentials in a home directory.
const CREDENTIALS: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    ".npmrc",
    ".pgpass",
    ".my.cnf",
    ".password-store",
    ".vault-token",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".terraform.d/credentials.tfrc.json",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/git/credentials",
    ".config/op",
    ".config/rclone",
    ".config/containers/auth.json",
    ".local/share/keyrings",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
];
/// Sockets of container engines, buses and displays, and the directories that they lie in.
const SOCKETS: &[&str] = &[
    "/run/docker.sock",
    "/run/docker",
    "/run/containerd",
    "/run/podman",
    "/run/crio",
    "/run/buildkit",
    "/run/k3s",
    "/run/libvirt",
    "/run/dbus",
    "/run/systemd",
    "/run/snapd.socket",
    "/run/snapd-snap.socket",
    "/run/user",
    "/run/udev",
    "/var/lib/lxd/unix.socket",
    "/var/lib/incus/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/tmp/.X11-unix",
];
/// Directory of most of these, of which most do not exist.
const RUN: &str = "/run";

/// Holds the guarded places of one machine.
#[derive(Debug, Default)]
pub struct Guarded {
    /// Home directories, with real paths. Each holds what [`CREDENTIALS`] names.
    homes: Vec<PathBuf>,
    /// Places of the credentials that exist in these homes, with links followed.
    credentials: Vec<PathBuf>,
    /// Places that variables of the caller name for credentials, and the keys of Nexus. They may be missing.
    named: Vec<PathBuf>,
    /// Sockets of agents, engines and buses.
    sockets: Vec<PathBuf>,
}

impl Guarded {
    /// Finds the guarded places of this machine and of the caller.
    pub fn here(host: &Host) -> Self {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let mut homes: Vec<PathBuf> = vec!["/root".into()];
        homes.extend(host.home.clone());
        if let Ok(entries) = std::fs::read_dir("/home") {
            homes.extend(entries.flatten().map(|entry| entry.path()));
        }
        let too_wide = |home: &PathBuf| home.parent().is_none() || !home.is_absolute();
        homes.retain(|home| !too_wide(home));
        homes.extend(homes.clone().iter().filter_map(|home| real(home)));
        homes.sort();
        homes.dedup();
        let mut credentials: Vec<PathBuf> = Vec::new();
        for home in &homes {
            let names = Names::of(home);
            let may_exist = CREDENTIALS.iter().filter(|name| names.may_hold(Path::new(name)));
            credentials.extend(
                may_exist.map(|name| home.join(name)).filter(|path| is_there(path)).filter_map(|path| real(&path)),
            );
        }
        let mut named = credentials_of_environment(|name| host.variable(name));
        named.extend(configuration::with_keys(host));
        named.extend(named.clone().iter().filter_map(|path| real(path)));
        let mut sockets: Vec<PathBuf> = SOCKETS.iter().map(PathBuf::from).collect();
        sockets.extend(of_environment(|name| host.variable(name)));
        let names = Names::of(Path::new(RUN));
        let may_exist =
            |path: &&PathBuf| path.strip_prefix(RUN).map_or_else(|_| is_there(path), |name| names.may_hold(name));
        let led_to: Vec<PathBuf> = sockets.iter().filter(may_exist).filter_map(|path| real(path)).collect();
        sockets.extend(led_to);
        Self { homes, credentials, named, sockets }
    }

    /// Says why a bind of this real path is refused, if it is.
    pub fn refusal(&self, path: &Path, access: Access, exists: impl Fn(&Path) -> bool) -> Option<String> {
        if SYSTEM.iter().any(|system| path == Path::new(system)) {
            return Some("it is a directory of the system".to_owned());
        }
        if CLOSED.iter().any(|closed| path.starts_with(closed)) && !path.starts_with(SHARED_MEMORY) {
            return Some("it belongs to the kernel of the host".to_owned());
        }
        if access == Access::ReadWrite && READ_ONLY.iter().any(|system| path.starts_with(system)) {
            return Some("a command would write to the system of the host".to_owned());
        }
        if let Some(why) = of_etc(path) {
            return Some(why);
        }
        if self.homes.iter().any(|home| home.starts_with(path)) {
            return Some("it holds a home directory with all its keys and settings".to_owned());
        }
        let meets = |place: &PathBuf| path.starts_with(place) || (place.starts_with(path) && exists(place));
        let exists = &exists;
        // What holds a home was refused above, so that only a path in a home meets what lies in that home.
        let in_home = self.homes.iter().filter_map(|home| Some((home, path.strip_prefix(home).ok()?)));
        let of_homes = in_home.flat_map(|(home, below)| {
            let meets = move |name: &&&str| {
                below.starts_with(name) || (Path::new(name).starts_with(below) && exists(&home.join(name)))
            };
            CREDENTIALS.iter().filter(meets).map(|name| home.join(name))
        });
        let others = self.credentials.iter().chain(&self.named).filter(|place| meets(place)).cloned();
        if let Some(place) = of_homes.chain(others).next() {
            return Some(format!("it holds credentials ({})", place.display()));
        }
        let socket = self.sockets.iter().find(|place| meets(place))?;
        Some(format!("a command could act outside of the sandbox through a socket ({})", socket.display()))
    }

    /// Reports whether a path is the socket of an engine, an agent or a bus, or lies in a directory of these.
    pub fn is_known_socket(&self, path: &Path) -> bool {
        self.sockets.iter().any(|socket| path.starts_with(socket))
    }
}

/// Names in a directory, for a look at many paths of which most do not exist: to resolve a path costs a call for each
/// of its parts.
struct Names(Option<BTreeSet<OsString>>);

impl Names {
    fn of(directory: &Path) -> Self {
        Self(match std::fs::read_dir(directory) {
            Ok(entries) => Some(entries.flatten().map(|entry| entry.file_name()).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(BTreeSet::new()),
            // It may be searched all the same.
            Err(_) => None,
        })
    }

    /// Reports whether a path below the directory may exist.
    fn may_hold(&self, below: &Path) -> bool {
        let Some(names) = &self.0 else { return true };
        below.components().next().is_none_or(|name| names.contains(name.as_os_str()))
    }
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn of_etc(path: &Path) -> Option<String> {
    let below = path.strip_prefix("/etc").ok()?;
    let mut parts = below.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let (first, second) = (parts.next()?, parts.next());
    let is_secret = ETC_NAMES.iter().any(|name| first.starts_with(name))
        || (first == "ssh" && second.is_none_or(|name| name.ends_with("key")))
        || ETC.iter().any(|place| path.starts_with(place) || Path::new(place).starts_with(path));
    is_secret.then(|| "it holds keys or passwords of this machine".to_owned())
}

/// Directories that variables put in the place of one of a home, with that one.
const MOVED: &[(&str, &str)] =
    &[("XDG_CONFIG_HOME", ".config/"), ("XDG_DATA_HOME", ".local/share/"), ("CARGO_HOME", ".cargo/")];
/// Variables that name files or directories with credentials.
const NAMED: &[&str] = &[
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AZURE_CONFIG_DIR",
    "CLOUDSDK_CONFIG",
    "DOCKER_CONFIG",
    "GH_CONFIG_DIR",
    "GNUPGHOME",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG",
    "NETRC",
    "PASSWORD_STORE_DIR",
    "PGPASSFILE",
    "REGISTRY_AUTH_FILE",
    "RCLONE_CONFIG",
];

/// Places of credentials by the variables of the caller.
fn credentials_of_environment<'a>(variable: impl Fn(&str) -> Option<&'a OsStr>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (name, place) in MOVED {
        let Some(directory) = variable(name).map(Path::new) else { continue };
        found.extend(CREDENTIALS.iter().filter_map(|one| one.strip_prefix(place)).map(|rest| directory.join(rest)));
    }
    // KUBECONFIG is a list.
    found.extend(NAMED.iter().filter_map(|name| variable(name)).flat_map(std::env::split_paths));
    found.retain(|path| path.is_absolute() && path.parent().is_some());
    found
}

/// Sockets that variables of the caller name.
fn of_environment<'a>(variable: impl Fn(&str) -> Option<&'a OsStr>) -> Vec<PathBuf> {
    let plain = ["SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "GNOME_KEYRING_CONTROL"].into_iter().filter_map(&variable);
    let mut found: Vec<PathBuf> = plain.map(PathBuf::from).collect();
    for (name, before) in
        [("DOCKER_HOST", "unix://"), ("CONTAINER_HOST", "unix://"), ("DBUS_SESSION_BUS_ADDRESS", "unix:path=")]
    {
        let text = variable(name).and_then(OsStr::to_str);
        let path = text.and_then(|text| text.strip_prefix(before)).and_then(|rest| rest.split([',', ';']).next());
        found.extend(path.map(PathBuf::from));
    }
    found.retain(|path| path.is_absolute() && path.parent().is_some());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Guarded {
        let homes = vec![PathBuf::from("/root"), "/home/you".into()];
        let sockets = SOCKETS.iter().map(PathBuf::from).chain(["/tmp/ssh-x/agent.1".into()]).collect();
        let named = vec!["/srv/conf/gh".into(), "/srv/kube.yaml".into()];
        Guarded { homes, credentials: vec!["/srv/keys/ssh".into()], named, sockets }
    }

    fn refused(path: &str, access: Access) -> bool {
        // Everything is there but the settings of one cloud.
        machine().refusal(Path::new(path), access, |place| !place.ends_with(".config/gcloud")).is_some()
    }

    #[test]
    fn parts_of_the_system_and_credentials_are_refused_also_in_what_holds_them() {
        for path in [
            "/",
            "/etc",
            "/root",
            "/proc",
            "/proc/1/root",
            "/sys",
            "/dev",
            "/dev/kmsg",
            "/boot",
            "/run",
            "/home",
            "/home/you",
            "/etc/shadow",
            "/etc/shadow-",
            "/etc/gshadow",
            "/etc/sudoers",
            "/etc/sudoers.d/x",
            "/etc/ssh",
            "/etc/ssh/ssh_host_rsa_key",
            "/etc/ssl",
            "/etc/ssl/private",
            "/etc/ssl/private/x",
            "/home/you/.ssh",
            "/home/you/.ssh/config",
            "/root/.aws",
            "/home/you/.config",
            "/home/you/.config/gh/hosts.yml",
            "/home/you/.cargo",
            // Where a link of a home leads.
            "/srv/keys",
            "/srv/keys/ssh/id_rsa",
            // What variables name.
            "/srv/conf",
            "/srv/conf/gh/hosts.yml",
            "/srv/kube.yaml",
            "/run/docker.sock",
            "/run/user/1000",
            "/run/dbus/system_bus_socket",
            "/tmp/ssh-x/agent.1",
            "/tmp/ssh-x",
            "/var",
        ] {
            assert!(refused(path, Access::ReadOnly), "{path}");
            assert!(refused(path, Access::ReadWrite), "{path}");
        }
    }

    #[test]
    fn ordinary_places_are_shown_and_the_system_is_not_written() {
        for path in [
            "/opt/tool",
            "/srv/data",
            "/usr/share",
            "/var/lib/data",
            "/var/cache",
            "/home/you/datasets",
            "/home/you/.npm",
            "/home/you/.cargo/registry",
            "/home/you/.config/app",
            "/home/you/.config/gcloudx",
            "/root/models",
            "/mnt/disk",
            "/dev/shm/cache",
            "/tmp/build",
            "/run/app",
        ] {
            assert!(!refused(path, Access::ReadOnly), "{path}");
            assert!(!refused(path, Access::ReadWrite), "{path}");
        }
        for path in
            ["/etc/apt", "/etc/java-17-openjdk", "/etc/ssl/certs", "/etc/ssh/ssh_config", "/sys/block", "/boot/config"]
        {
            assert!(!refused(path, Access::ReadOnly), "{path}");
            assert!(refused(path, Access::ReadWrite), "{path}");
        }
    }

    #[test]
    fn credentials_are_taken_from_the_callers_variables() {
        let found = credentials_of_environment(|name| {
            Some(OsStr::new(match name {
                "XDG_CONFIG_HOME" => "/home/you/conf",
                "CARGO_HOME" => "/srv/cargo",
                "KUBECONFIG" => "/home/you/a.yaml:/home/you/b.yaml",
                "GNUPGHOME" => "relative",
                "DOCKER_CONFIG" => "/",
                _ => return None,
            }))
        });
        let has = |path: &str| found.contains(&PathBuf::from(path));
        for path in
            ["/home/you/conf/gh", "/home/you/conf/git/credentials", "/srv/cargo/credentials.toml", "/home/you/b.yaml"]
        {
            assert!(has(path), "{path}: {found:?}");
        }
        assert!(!has("relative") && !has("/") && !has("/home/you/conf"), "{found:?}");
    }

    #[test]
    fn sockets_are_taken_from_the_callers_variables() {
        let found = of_environment(|name| {
            Some(OsStr::new(match name {
                "SSH_AUTH_SOCK" => "/tmp/ssh-x/agent.1",
                "DOCKER_HOST" => "unix:///home/you/docker.sock",
                "CONTAINER_HOST" => "tcp://127.0.0.1:1",
                "DBUS_SESSION_BUS_ADDRESS" => "unix:path=/tmp/bus,guid=1",
                "XDG_RUNTIME_DIR" => "/",
                _ => return None,
            }))
        });
        assert_eq!(found, ["/tmp/ssh-x/agent.1", "/home/you/docker.sock", "/tmp/bus"].map(PathBuf::from));
        assert!(machine().is_known_socket(Path::new("/run/docker.sock")));
        assert!(!machine().is_known_socket(Path::new("/srv/app.sock")));
    }
}
