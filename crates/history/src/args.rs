//! The arguments of `nexus receipt`, `nexus log` and `nexus net log`.

use clap::{Args, Subcommand};
use nexus_model::{RunId, units};
use std::path::PathBuf;

/// Arguments of `nexus receipt`.
#[derive(Debug, Args)]
pub struct ReceiptArgs {
    /// Action on receipts.
    #[command(subcommand)]
    pub action: ReceiptAction,
}

/// The commands of `nexus receipt`.
#[derive(Debug, Subcommand)]
pub enum ReceiptAction {
    /// Say whether a receipt is genuine, or why not: exit 0, 1, or 2 for wrong use
    Verify(VerifyArgs),
    /// Show what a genuine receipt says
    Show(ShowArgs),
    /// The keys that sign receipts
    Keys(KeysArgs),
    /// Record that a chain of receipts ended by a break; verify --chain goes on to name it
    Close(CloseArgs),
    /// Remove old receipts now; 10000 are kept anyway
    Prune(PruneArgs),
}

/// `nexus receipt verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// A file, or the id of a run of this machine
    #[arg(value_name = "FILE|RUN", required_unless_present = "chain", conflicts_with = "chain")]
    pub receipt: Option<PathBuf>,
    /// Trust the public keys in this file and no others; may repeat [default: the keys of this machine]
    #[arg(long, value_name = "FILE")]
    pub key: Vec<PathBuf>,
    /// Trust also the keys that these statements of trusted keys lead to; may repeat
    #[arg(long, value_name = "FILE")]
    pub link: Vec<PathBuf>,
    /// Compare this file with what the command wrote to stdout
    #[arg(long, value_name = "FILE")]
    pub stdout: Option<PathBuf>,
    /// Compare this file with what the command wrote to stderr
    #[arg(long, value_name = "FILE")]
    pub stderr: Option<PathBuf>,
    /// Compare this file with the record of the run's network (`net/RUN.jsonl` in the state directory)
    #[arg(long, value_name = "FILE")]
    pub net_record: Option<PathBuf>,
    /// Compare the document that `nexus run --json` printed
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Verify all receipts of this machine, and that none was taken out
    #[arg(long, conflicts_with_all = ["stdout", "stderr", "net_record", "report"])]
    pub chain: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `nexus receipt show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A file, or the id of a run of this machine
    #[arg(value_name = "FILE|RUN")]
    pub receipt: PathBuf,
    /// Trust the public keys in this file and no others; may repeat [default: the keys of this machine]
    #[arg(long, value_name = "FILE")]
    pub key: Vec<PathBuf>,
    /// Print the signed document itself
    #[arg(long)]
    pub json: bool,
}

/// `nexus receipt keys`.
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// Action on keys.
    #[command(subcommand)]
    pub action: KeysAction,
}

/// The commands of `nexus receipt keys`.
#[derive(Debug, Subcommand)]
pub enum KeysAction {
    /// List them: which one signs, which ones are retired
    List,
    /// Make a new key; the old one signs it and still verifies its own receipts
    Rotate,
    /// Print the public key that signs, for --key on another machine
    Export {
        /// The retired ones too
        #[arg(long, conflicts_with = "links")]
        all: bool,
        /// Statements of retired keys about their successors, for --link
        #[arg(long)]
        links: bool,
    },
}

/// `nexus receipt close`.
#[derive(Debug, Args)]
pub struct CloseArgs {
    /// The chain, as verify --chain names it
    #[arg(value_name = "CHAIN")]
    pub chain: RunId,
}

/// `nexus receipt prune`.
#[derive(Debug, Args)]
pub struct PruneArgs {
    /// Number of the latest receipts to keep
    #[arg(long, value_name = "N")]
    pub keep: u64,
}

/// Arguments of `nexus log`.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// At most so many runs
    #[arg(short, long, value_name = "N", default_value_t = 20)]
    pub number: usize,
    /// Only runs that did not end with exit code 0
    #[arg(long)]
    pub failed: bool,
    /// Only runs that began within this time, for example 30m or 48h
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms)]
    pub since: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `nexus net log`.
#[derive(Debug, Args)]
pub struct NetLogArgs {
    /// Id of the run [default: the latest that used a network]
    pub run: Option<RunId>,
    /// Print the lines of the record as they are
    #[arg(long)]
    pub json: bool,
    /// Wait for more until the run has ended
    #[arg(short, long)]
    pub follow: bool,
}
