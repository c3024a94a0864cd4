//! The arguments of `nexus doctor`.

use clap::Args;

/// Arguments of `nexus doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Attack sandboxes on this machine with the hostile probes of the escape suite and say what held
    #[arg(long)]
    pub attack: bool,
    /// Print the commands that fix what was found, and run none of them
    #[arg(long, conflicts_with_all = ["attack", "json"])]
    pub commands: bool,
    /// Only this attack, for example A05
    #[arg(long, value_name = "ID", requires = "attack")]
    pub only: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}
