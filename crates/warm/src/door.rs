//! The two processes of a warm launcher: the one that listens, and the one that starts sandboxes.

use super::args::{DoorArgs, ServeArgs};
use super::start::FirstLine;
use crate::driver;
use crate::failure::Failure;
use crate::launcher::sandboxes;
use crate::signals::Signals;
use nexus_driver_namespace::launcher::PoolConfig;
use nexus_driver_namespace::warm::{DoorError, LauncherDoor, OwnFacts, Place, serve_warm};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// The launcher keeps warm sandboxes, each with a network of its own. It keeps no pooled networks: a run in one has no egress, and
/// its report does not name what the command looked up.
const POOLS: PoolConfig = PoolConfig { networks: 0, reuse: false, sandboxes: 3 };

/// Listens until a signal or the idle time ends it.
pub fn command(args: &DoorArgs) -> Result<u8, Failure> {
    let opened = open(args);
    let line = match &opened {
        Ok(_) => FirstLine::Ready,
        Err(DoorError::Taken) => FirstLine::Taken,
        Err(error) => FirstLine::Failed {
            message: format!("No launcher can be kept here: {error}"),
            hint: advice(error).to_owned(),
        },
    };
    first_line(&line).map_err(|error| ended(&error))?;
    let Ok((door, signals)) = opened else { return Ok(nexus_model::exit::REFUSED) };
    let uid_base = args.uid_base;
    let program = move || {
        let mut program = Command::new("/proc/self/exe");
        program.arg0("nexus").arg("__warm-serve").arg(uid_base.to_string());
        program
    };
    door.keep(rustix::fd::AsFd::as_fd(&signals), &program).map(|()| 0).map_err(|error| ended(&error))
}

/// Starts sandboxes until the process that listens is gone, and then until the last of them has ended.
pub fn serve(args: &ServeArgs) -> Result<u8, Failure> {
    let driver = driver::with_uid_base(args.uid_base).drawing_each().watching_layers();
    serve_warm(&driver, POOLS).map(|()| 0).map_err(|error| ended(&error))
}

fn open(args: &DoorArgs) -> Result<(LauncherDoor, Signals), DoorError> {
    // First: what this process is like is what its callers are compared with.
    let own = OwnFacts::read(sandboxes(args.uid_base)).map_err(io("/proc/self"))?;
    // No terminal's end is its own. It fails only for the first of a process group, which this process is not.
    rustix::process::setsid().map_err(|error| io("setsid")(error.into()))?;
    let signals = Signals::catch_all().map_err(io("signals"))?;
    let door = LauncherDoor::open(Place::make(&args.directory)?, own, Duration::from_millis(args.idle))?;
    Ok((door, signals))
}

fn io(what: &'static str) -> impl FnOnce(io::Error) -> DoorError {
    move |source| DoorError::Io { what, source }
}

/// Writes the line that the caller waits for, and closes the pipe.
fn first_line(line: &FirstLine) -> io::Result<()> {
    let text = serde_json::to_string(line)?;
    io::stdout().write_all(format!("{text}\n").as_bytes())?;
    io::stdout().flush()?;
    let null = File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

fn advice(error: &DoorError) -> &'static str {
    match error {
        DoorError::Confined => "Start it from a shell outside; runs go on without a launcher.",
        DoorError::Place(_) => "chmod 700 the directory, or set NEXUS_STATE_DIR to another one.",
        DoorError::NoPeer(_) | DoorError::Taken | DoorError::Io { .. } => "Runs go on without a launcher.",
    }
}

fn ended(error: &dyn std::fmt::Display) -> Failure {
    Failure::refused("warm", format!("the launcher ended: {error}"), "nexus warm starts another one")
}
