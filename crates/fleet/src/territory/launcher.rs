//! The launcher process of a daemon: this very program, started before there is a second thread.

use crate::args::LaunchArgs;
use crate::driver;
use crate::failure::Failure;
use nexus_driver_namespace::launcher::{Launcher, PoolConfig, serve_stdin};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Largest number of warm sandboxes, which are made before a directive comes.
const MAX_WARM: usize = 3;

/// Is the launcher process, until the daemon is gone.
pub fn command(args: &LaunchArgs) -> Result<u8, Failure> {
    let driver = driver::with_uid_base(args.uid_base).drawing_each();
    // No network is used a second time: two directives may belong to two accounts. A warm sandbox serves once, too.
    let networks = args.networks as usize;
    let pools = PoolConfig { networks, reuse: false, sandboxes: networks.min(MAX_WARM) };
    serve_stdin(&driver, pools).map(|()| 0).map_err(|error| {
        let message = format!("the launcher process ended: {error}");
        Failure::refused("launcher", message, "nexus up and nexus daemon run start it by themselves")
    })
}

/// Starts the launcher process. It has a process group of its own: Ctrl-C ends directives in order, by the daemon.
pub fn start(uid_base: u32, networks: u32) -> Result<Launcher, Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused("launcher", format!("the launcher process cannot be started: {error}"), "run nexus doctor")
    };
    nexus_driver_namespace::hand_on_nothing().map_err(failed)?;
    let mut program = Command::new("/proc/self/exe");
    program
        .arg0("nexus")
        .arg("__launch")
        .arg(uid_base.to_string())
        .arg(networks.to_string())
        .stdout(Stdio::null())
        .process_group(0);
    Launcher::start(program, driver::with_uid_base(uid_base)).map_err(failed)
}
