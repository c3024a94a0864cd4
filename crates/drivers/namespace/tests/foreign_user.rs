//! Whom a launcher process serves: its own user and root. A socket that reached another user (handed over by mistake, or
//! bound to a name one day) must not give that user sandboxes under the launcher's name.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../../tests/support/free_user.rs"]
mod free_user;
#[path = "../../../../tests/support/skip.rs"]
mod skip;

use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::{PoolConfig, serve};
use rustix::process::{Uid, geteuid};
use std::io::{ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

/// Runs `act` in a thread that is `uid`: credentials belong to a thread (credentials(7)), and a thread that gave up
/// root spoils those of no other thread in this process.
fn acting<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let user = Uid::from_raw(uid);
    let run = move || {
        if geteuid() != user {
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        }
        act()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// Returns the answer of a launcher of `server` to `client`, which connects and hangs up at once.
fn answer(server: u32, client: u32) -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
    acting(client, || drop(UnixStream::connect(&path).unwrap()));
    let socket = OwnedFd::from(listener.accept().unwrap().0);
    acting(server, || serve(&Namespace::with_defaults(), socket, PoolConfig::default()))
}

/// Returns whether the launcher accepted the user that asks. (What comes next, a launcher's own namespaces, needs a
/// process of one thread, which a test is not.)
fn is_served(server: u32, client: u32) -> bool {
    answer(server, client).map_or_else(|error| error.kind() != ErrorKind::PermissionDenied, |()| true)
}

#[test]
fn the_launcher_serves_its_own_user_and_root_alone() {
    let own = geteuid().as_raw();
    assert!(is_served(own, own));
    if own != 0 {
        skip::partial("only root can play another user");
        return;
    }
    let user = free_user::ordinary_user().unwrap();
    let stranger = user + 1;
    assert!(is_served(user, user) && is_served(user, 0));
    for (server, client) in [(0, user), (user, stranger)] {
        let refused = answer(server, client).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{client} at a launcher of {server}: {refused}");
    }
}
