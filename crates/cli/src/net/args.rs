//! The flags of `nexus run` and `nexus net` about the network.

use clap::{Args, Subcommand, ValueEnum};
use nexus_model::units;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Values of `--net`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Net {
    /// The sandbox's own loopback
    None,
    /// Only destinations that rules name
    Allowlist,
    /// Any public destination
    Unrestricted,
}

/// Values of `--net-methods`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NetMethods {
    /// Every method of HTTP
    Any,
    /// GET, HEAD and OPTIONS, over plain HTTP alone: the methods inside TLS are not seen
    ReadOnly,
}

/// Flags for the network of a command.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct NetFlags {
    /// Network of the command [default: what the profiles say, else none]
    #[arg(long = "net", value_name = "MODE")]
    pub mode: Option<Net>,
    /// Let it reach this host; port 443 unless given; *.NAME is every name below NAME; :443/tcp does without TLS; with
    /// @/PATH only this program may; may repeat
    #[arg(long, value_name = "HOST[:PORT[/tcp]][@/PATH]")]
    pub allow: Vec<String>,
    /// Never let it reach this, also where another rule allows it; every port unless given; with --net unrestricted the addresses of a
    /// denied host too; with @/PATH this program may not; may repeat
    #[arg(long, value_name = "HOST|CIDR[:PORT][@/PATH]")]
    pub deny: Vec<String>,
    /// Let it reach a named group: pkg:pip, pkg:npm, pkg:cargo, pkg:apt, code:NAME; may repeat
    #[arg(long, value_name = "NAME")]
    pub allow_group: Vec<String>,
    /// Let it reach a private destination: a name that leads to one, an address or a range; may repeat
    #[arg(long, value_name = "HOST:PORT|CIDR")]
    pub allow_private: Vec<String>,
    /// Let it reach this port of this machine's 127.0.0.1 and ::1, at the same address inside; may repeat
    #[arg(long, value_name = "PORT", value_parser = super::host_port::parse)]
    pub allow_host_port: Vec<u16>,
    /// HTTP methods that it may use; of this and the profiles the stricter holds [default: any]
    #[arg(long, value_name = "METHODS")]
    pub net_methods: Option<NetMethods>,
    /// Ask on the terminal about what no rule allows
    #[arg(long)]
    pub ask: bool,
    /// Time that a question waits for its answer; then it counts as refused [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms, requires = "ask")]
    pub ask_timeout: Option<u64>,
    /// Most bytes over the network, both directions together, for example 100M
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub max_egress_bytes: Option<u64>,
    /// Most connections, all of them counted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_connections: Option<u64>,
}

/// Arguments of `nexus net`.
#[derive(Debug, Args)]
pub struct NetArgs {
    /// Action on the network.
    #[command(subcommand)]
    pub action: NetAction,
}

/// The commands of `nexus net`.
#[derive(Debug, Subcommand)]
pub enum NetAction {
    /// Say whether a run with these rules could reach a destination, and which rule decides
    #[command(after_help = "Exit codes: 0 allowed; 1 denied, or the user would be asked; 2 wrong use.")]
    Check(Box<CheckArgs>),
    /// Show what a run tried to reach: every attempt, what was decided and why
    Log(nexus_history::args::NetLogArgs),
    /// Serve these rules as a proxy on loopback, for programs that Nexus does not run
    #[command(after_help = "SIGHUP reads the rules again; SIGTERM ends it.")]
    Proxy(Box<ProxyArgs>),
}

/// Rules as `nexus run` takes them.
#[derive(Debug, Clone, Default, Args)]
pub struct RuleArgs {
    /// Use this profile; may repeat, later ones add and win
    #[arg(long, value_name = "NAME")]
    pub profile: Vec<String>,
    /// The workspace, whose nexus.yaml counts [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Network rules of the flags.
    #[command(flatten)]
    pub net: NetFlags,
}

/// `nexus net check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Destination to decide about
    #[arg(value_name = "HOST:PORT")]
    pub target: String,
    /// Rules that decide.
    #[command(flatten)]
    pub rules: RuleArgs,
    /// Decide as if this program connected [default: one that is not known]
    #[arg(long, value_name = "/PATH")]
    pub program: Option<String>,
    /// Decide as if the name had this address; may repeat [default: ask the resolver that the egress asks]
    #[arg(long, value_name = "ADDR")]
    pub resolve: Vec<IpAddr>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `nexus net proxy`.
#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Address to serve HTTP on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Address to serve SOCKS5 on, too
    #[arg(long, value_name = "ADDR:PORT")]
    pub socks: Option<SocketAddr>,
    /// Rules that decide.
    #[command(flatten)]
    pub rules: RuleArgs,
}
