//! The command line of the warm launcher.

use clap::{Args, Subcommand};
use nexus_model::units;
use std::path::PathBuf;

/// The commands of the warm launcher.
#[derive(Debug, Subcommand)]
pub enum WarmCommand {
    /// Keep a launcher ready, so that later runs of this shell start faster
    Warm(WarmArgs),
    /// The process that listens; `nexus warm` starts it itself
    #[command(name = "__warm-door", hide = true)]
    Listen(DoorArgs),
    /// The process that starts sandboxes; the one that listens starts it itself
    #[command(name = "__warm-serve", hide = true)]
    Serve(ServeArgs),
}

/// The arguments of `nexus warm`.
#[derive(Debug, Args)]
#[command(after_help = "\
A launcher serves runs of the same user that have the same limits, umask, control group, priorities and program as the
process that started it; every other run starts its sandbox itself. Detached runs and runs with --memory or --cpus do so
too.

Examples:
  nexus warm --idle 1h
  nexus warm --status
  nexus warm --stop")]
pub struct WarmArgs {
    /// End it when it has started nothing for this time [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms, conflicts_with_all = ["stop", "status"])]
    pub idle: Option<u64>,
    /// End all launchers of this user; runs that live go on
    #[arg(long, conflicts_with = "status")]
    pub stop: bool,
    /// Show the launchers of this user, and whether they serve this shell
    #[arg(long)]
    pub status: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// The arguments of the process that listens.
#[derive(Debug, Args)]
pub struct DoorArgs {
    /// Directory of the socket
    pub directory: PathBuf,
    /// First host id of the sandboxes of root
    pub uid_base: u32,
    /// Idle time in milliseconds
    pub idle: u64,
}

/// The arguments of the process that starts sandboxes.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// First host id of the sandboxes of root
    pub uid_base: u32,
}
