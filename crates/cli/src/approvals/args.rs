//! The command line of `nexus approvals`.

use clap::{Args, Subcommand, ValueEnum};
use nexus_fleet::args::ServerArgs;
use nexus_model::units;

/// Arguments of `nexus approvals`.
#[derive(Debug, Args)]
pub struct ApprovalsArgs {
    /// The subcommand of it.
    #[command(subcommand)]
    pub action: ApprovalsAction,
    /// Those of directives, in the control plane of nexus login or --server, in place of this machine's
    #[arg(long, global = true)]
    pub fleet: bool,
    /// The control plane.
    #[command(flatten)]
    pub access: ServerArgs,
}

/// The commands of `nexus approvals`.
#[derive(Debug, Subcommand)]
pub enum ApprovalsAction {
    /// List what waits for an answer or can be used
    Ls {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
        /// Those that are over, too
        #[arg(long)]
        all: bool,
    },
    /// Show what exactly is asked for
    Show {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
        /// The approval: its id, or the start of it
        id: String,
    },
    /// Let exactly this run, or this connection be made, after a look at it on this terminal
    Approve(AnswerArgs),
    /// Refuse it, or take an approval back
    Deny {
        /// The approval: its id, or the start of it
        id: String,
    },
}

/// Extent of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// One start, or one connection
    Once,
    /// Each connection to the destination
    Directive,
}

/// Arguments of `nexus approvals approve`.
#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The approval: its id, or the start of it
    pub id: String,
    /// Number of times that it may run, or connections [default: as often as was asked for, one connection]
    #[arg(long, value_name = "N")]
    pub uses: Option<u32>,
    /// With --fleet: one connection, or each one to the destination until its directive is over [default: once]
    #[arg(long, value_enum, conflicts_with = "uses")]
    pub scope: Option<Scope>,
    /// Time within which it may happen, from now on [default: until the request ends]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms)]
    pub within: Option<u64>,
}
