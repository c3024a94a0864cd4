//! The command line of the commands about detached sandboxes.

use crate::terminal::keys::DetachKeys;
use clap::{Args, Subcommand};
use nexus_model::units;
use std::ffi::OsString;

/// The commands about detached sandboxes.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List detached sandboxes
    Ps(PsArgs),
    /// See what a detached sandbox prints and type into it
    Attach(AttachArgs),
    /// Run another command in a detached sandbox
    Exec(ExecArgs),
    /// Print what a detached sandbox printed
    Logs(LogsArgs),
    /// End detached sandboxes
    Stop(StopArgs),
    /// Wait until a detached sandbox ends, print its exit code and exit with it
    Wait {
        /// Id, name or start of an id
        #[arg(value_name = "ID")]
        session: String,
    },
    /// Remove what is kept of detached sandboxes that have ended
    Rm(RmArgs),
}

/// Arguments of `nexus ps`.
#[derive(Debug, Args)]
pub struct PsArgs {
    /// Those that have ended, too
    #[arg(short, long)]
    pub all: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `nexus attach`.
#[derive(Debug, Args)]
#[command(after_help = "\
The keys ctrl-p,ctrl-q leave a sandbox that has a terminal, and it goes on. Otherwise signals such as that of ctrl-c go to
its command; a hang-up leaves it.
Exit codes: the sandbox's own when it ends; 0 when it was left; 125 when there is none.")]
pub struct AttachArgs {
    /// Id, name or start of an id
    #[arg(value_name = "ID")]
    pub session: String,
    /// Keys that leave it running, with commas between them; none for none
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    pub detach_keys: DetachKeys,
    /// Send no input to the command
    #[arg(long)]
    pub no_stdin: bool,
    /// Show control sequences on a terminal as they come
    #[arg(long)]
    pub raw: bool,
}

/// Arguments of `nexus exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
A reader of the output that leaves closes that stream for the command, whose end is waited for. The first signal goes to the
command, the second ends it and nexus.
Exit codes: the command's own; 125 refused; 126 not executable; 127 not found; 128+N killed by signal N, also when signal N
ended nexus exec.")]
pub struct ExecArgs {
    /// Id, name or start of an id
    #[arg(value_name = "ID")]
    pub session: String,
    /// Give the command a terminal of its own
    #[arg(short, long)]
    pub tty: bool,
    /// Pass standard input on
    #[arg(long)]
    pub stdin: bool,
    /// Set an environment variable, or pass on the caller's; may repeat
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// Pass on a variable of the caller that holds a credential; may repeat
    #[arg(long, value_name = "NAME")]
    pub env_secret: Vec<OsString>,
    /// Working directory inside [default: that of the sandbox's own command]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<OsString>,
    /// Show control sequences on a terminal as they come
    #[arg(long)]
    pub raw: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD", required = true)]
    pub command: Vec<OsString>,
}

/// Arguments of `nexus logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Id, name or start of an id
    #[arg(value_name = "ID")]
    pub session: String,
    /// Go on with what comes, until it ends
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last lines
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Show control sequences on a terminal as they come
    #[arg(long)]
    pub raw: bool,
}

/// Arguments of `nexus stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// Ids, names or starts of ids
    #[arg(value_name = "ID", required = true)]
    pub sessions: Vec<String>,
    /// Time between SIGTERM and SIGKILL [default: that of its nexus run]
    #[arg(long, value_name = "TIME", value_parser = parse_grace)]
    pub grace: Option<u64>,
}

/// Arguments of `nexus rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// Ids, names or starts of ids
    #[arg(value_name = "ID", required = true)]
    pub sessions: Vec<String>,
    /// Kill those that still run
    #[arg(short, long)]
    pub force: bool,
}

/// A time, and 0 for none.
fn parse_grace(text: &str) -> Result<u64, units::ParseUnitError> {
    if matches!(text, "0" | "0s") { Ok(0) } else { units::parse_duration_ms(text) }
}
