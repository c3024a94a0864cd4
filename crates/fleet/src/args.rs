//! The command line of a fleet.

use clap::{Args, Subcommand};
use nexus_api::client::PlainHttp;
use nexus_model::units;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The commands of a fleet.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Start a control plane and a daemon on this machine, for this machine
    Up(UpArgs),
    /// Run a control plane
    Mothership(MothershipArgs),
    /// Run the daemon of a territory
    Daemon(DaemonArgs),
    /// The launcher process of a daemon, which starts it itself
    #[command(name = "__launch", hide = true)]
    Launch(LaunchArgs),
    /// Remember the address and the key of a control plane
    Login(LoginArgs),
    /// Join this machine to a fleet, or look at its territories
    Territory(TerritoryArgs),
    /// Create and look at facilities, the workspaces of directives; keep, restore and fork states of those of nexus run --facility
    Facility(FacilityArgs),
    /// Create directives, follow and end them, and read what they left
    Directive(DirectiveArgs),
    /// Export the audit chain of an account, and check an export
    Audit(AuditArgs),
}

/// The address and the key of a control plane.
#[derive(Debug, Clone, Default, Args)]
pub struct ServerArgs {
    /// Address of the control plane [default: NEXUS_SERVER, then that of nexus login]
    #[arg(long, value_name = "URL", global = true)]
    pub server: Option<String>,
    /// File with an API key [default: NEXUS_API_KEY, then that of nexus login]
    #[arg(long, value_name = "FILE", global = true)]
    pub key_file: Option<PathBuf>,
    /// File with the certificates that may sign that of the server
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
    /// Trust in a server without TLS.
    #[command(flatten)]
    pub plain: PlainArgs,
}

/// Trust in a server without TLS.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct PlainArgs {
    /// Trust a server on loopback that this user runs; without it only your own processes and those of root
    #[arg(long, value_name = "UID", global = true)]
    pub server_uid: Option<u32>,
    /// Send keys in clear to any http:// address, and to any process that answers there
    #[arg(long, global = true)]
    pub insecure_http: bool,
}

impl PlainArgs {
    /// Returns the servers with which the client speaks without TLS.
    pub fn rule(self) -> PlainHttp {
        if self.insecure_http { PlainHttp::Anywhere } else { PlainHttp::Loopback { also: self.server_uid } }
    }
}

/// The arguments of `nexus up`.
#[derive(Debug, Args)]
#[command(after_help = "\
The first start prints the API key of the owner, once. The control plane listens on loopback only.

Examples:
  nexus up --data-dir ~/fleet
  nexus up --data-dir ~/fleet --listen 127.0.0.1:0 --json")]
pub struct UpArgs {
    /// Directory of everything that the fleet has on this machine; made when it is missing
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Address on loopback; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4780")]
    pub listen: SocketAddr,
    /// Directives at one time [default: one for each processor, at least 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub max_concurrent: Option<u32>,
    /// Print one line of JSON when ready
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `nexus mothership`.
#[derive(Debug, Args)]
pub struct MothershipArgs {
    /// The action of the command.
    #[command(subcommand)]
    pub action: MothershipAction,
}

/// The actions of `nexus mothership`.
#[derive(Debug, Subcommand)]
pub enum MothershipAction {
    /// Serve users and daemons until a signal ends it
    Serve(Box<ServeArgs>),
    /// Move the fleet of a data directory into an empty PostgreSQL database
    Move(MoveArgs),
    /// Make a new authority for the certificates of territories, while the control plane runs or not
    RotateAuthority(RotateArgs),
}

/// The arguments of `nexus mothership serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Directory of the database and of kept files; made when it is missing
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The database, when it is not in the directory.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// The place of kept files, when it is not the directory.
    #[command(flatten)]
    pub bucket: BucketArgs,
    /// Address to listen on; beyond loopback it needs --tls-cert or --trusted-proxy
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4780")]
    pub listen: SocketAddr,
    /// File with the server's certificate chain; read again on SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// File with the key of that certificate, which other users cannot read
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Address of a proxy that ends TLS and names the client certificate in X-Nexus-Client-Cert-Fingerprint; may repeat
    #[arg(long, value_name = "ADDRESS")]
    pub trusted_proxy: Vec<std::net::IpAddr>,
    /// File with a secret that the proxy sends in X-Nexus-Proxy-Secret; needed for a proxy on this machine
    #[arg(long, value_name = "FILE", requires = "trusted_proxy")]
    pub proxy_secret_file: Option<PathBuf>,
    /// Address under which users and daemons reach the server
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// Print one line of JSON when ready
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `nexus mothership move`.
#[derive(Debug, Args)]
pub struct MoveArgs {
    /// Directory of the control plane, which must not run. Kept files stay in it
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The database to move to.
    #[command(flatten)]
    pub database: DatabaseArgs,
}

/// The arguments of `nexus mothership rotate-authority`.
#[derive(Debug, Args)]
pub struct RotateArgs {
    /// Directory of the control plane
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The database, where it is not in the directory.
    #[command(flatten)]
    pub database: DatabaseArgs,
}

/// The flags of the database.
#[derive(Debug, Default, Args)]
pub struct DatabaseArgs {
    /// PostgreSQL in the place of the database in the directory: postgres://USER@HOST/NAME [default: NEXUS_DATABASE]
    #[arg(long, value_name = "URL", conflicts_with = "database_file")]
    pub database: Option<String>,
    /// File with that address, which may hold a password
    #[arg(long, value_name = "FILE")]
    pub database_file: Option<PathBuf>,
}

/// The flags of kept files.
#[derive(Debug, Default, Args)]
pub struct BucketArgs {
    /// Bucket of S3 for kept files: s3://BUCKET/PREFIX?endpoint=URL&region=REGION&ca=FILE
    #[arg(long, value_name = "URL")]
    pub blob_url: Option<String>,
    /// File with the key of the bucket [default: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY]
    #[arg(long, value_name = "FILE", requires = "blob_url")]
    pub blob_key_file: Option<PathBuf>,
}

/// The arguments of `nexus daemon`.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// The action of the command.
    #[command(subcommand)]
    pub action: DaemonAction,
}

/// The actions of `nexus daemon`.
#[derive(Debug, Subcommand)]
pub enum DaemonAction {
    /// Run directives of the control plane that this machine has joined, until a signal ends it
    Run {
        /// Data directory of the territory, as `territory join` made it
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// Directives at one time [default: one for each processor, at least 2]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
        max_concurrent: Option<u32>,
        /// Label by which directives choose the territory; may repeat
        #[arg(long, value_name = "NAME=VALUE")]
        label: Vec<String>,
        /// Trust in a server without TLS.
        #[command(flatten)]
        plain: PlainArgs,
        /// File of settings, read again on SIGHUP; flags win [default: nexusd.toml of the data directory]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print one line of JSON when ready
        #[arg(long)]
        json: bool,
    },
    /// Check a file of settings, and print the settings that a daemon would have
    Check {
        /// File of settings to check
        #[arg(value_name = "FILE")]
        config: PathBuf,
    },
}

/// The arguments of `nexus __launch`.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// First host uid of sandboxes that root starts.
    pub uid_base: u32,
    /// Networks that are made in advance.
    pub networks: u32,
}

/// The arguments of `nexus login`.
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// Address of the control plane. The API key is read from standard input
    pub server: String,
    /// File with the certificates that may sign that of the server
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Trust in a server without TLS.
    #[command(flatten)]
    pub plain: PlainArgs,
}

/// The arguments of `nexus territory`.
#[derive(Debug, Args)]
pub struct TerritoryArgs {
    /// The action of the command.
    #[command(subcommand)]
    pub action: TerritoryAction,
    /// The control plane.
    #[command(flatten)]
    pub access: ServerArgs,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// The actions of `nexus territory`.
#[derive(Debug, Subcommand)]
pub enum TerritoryAction {
    /// Print a token by which one machine can join
    Token {
        /// Time for which it can be used
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = units::parse_duration_ms)]
        ttl: u64,
    },
    /// Join this machine to a fleet as a territory. The token is read from standard input
    Join {
        /// Address of the control plane; beyond loopback it is https, with --ca
        url: String,
        /// Data directory of the territory; made when it is missing
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// Name of the territory
        #[arg(long)]
        name: Option<String>,
    },
    /// List the territories
    Ls,
    /// Show one territory
    Show {
        /// Id of the territory
        id: String,
    },
    /// Let a territory finish what it has and take nothing new
    Drain {
        /// Id of the territory
        id: String,
    },
    /// Take every right from a territory
    Revoke {
        /// Id of the territory
        id: String,
    },
}

/// The arguments of `nexus audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keep the answer of nexus audit head where the server cannot write: only against such a head does a check find a chain that was
cut at its end or written again as a whole.

Examples:
  nexus audit export > audit.jsonl
  nexus audit head --save heads.jsonl
  nexus audit verify audit.jsonl --head heads.jsonl
  nexus audit verify audit.jsonl --receipt receipt.json")]
pub struct AuditArgs {
    /// The action of the command.
    #[command(subcommand)]
    pub action: AuditAction,
    /// The control plane.
    #[command(flatten)]
    pub access: ServerArgs,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// The actions of `nexus audit`.
#[derive(Debug, Subcommand)]
pub enum AuditAction {
    /// Print all events in their order, one a line
    Export {
        /// Form of an event
        #[arg(long, value_enum, default_value_t = AuditFormat::Jsonl)]
        format: AuditFormat,
    },
    /// Print the number and the hash of the last event, signed by the control plane
    Head {
        /// Also add it to this file of heads, for nexus audit verify --head
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
    },
    /// Print the public key of the control plane that signs heads
    Key,
    /// Check an export in the form jsonl, and name every event that was edited, removed, moved or inserted; with heads, also a
    /// chain that was cut or written again
    Verify {
        /// The export [default: standard input]
        file: Option<PathBuf>,
        /// File with heads that the chain must contain and go on from
        #[arg(long, value_name = "FILE")]
        head: Vec<PathBuf>,
        /// File with the public key that must have signed the heads [default: the key of the first one]
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// File with the receipt of a directive that an event must name
        #[arg(long, value_name = "FILE")]
        receipt: Vec<PathBuf>,
    },
}

/// The form of an exported event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AuditFormat {
    /// As the chain has it; nexus audit verify reads it
    Jsonl,
    /// Open Cybersecurity Schema Framework, for SIEM products
    Ocsf,
}

/// The arguments of `nexus facility`.
#[derive(Debug, Args)]
#[command(after_help = "\
create, ls and show speak with a control plane. snapshot, snapshots, restore, diff, fork, forget and gc work on the facilities of
nexus run --facility on this machine. A snapshot is named by its label, its number, the beginning of its id, or latest.

Examples:
  nexus facility snapshot project --label clean
  nexus facility diff project clean
  nexus facility restore project clean
  nexus facility fork project attempt-1 --from clean")]
pub struct FacilityArgs {
    /// The action of the command.
    #[command(subcommand)]
    pub action: FacilityAction,
    /// The control plane.
    #[command(flatten)]
    pub access: ServerArgs,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// The actions of `nexus facility`.
#[derive(Debug, Subcommand)]
pub enum FacilityAction {
    /// Create a facility; without --repo it begins empty
    Create {
        /// Name for people
        name: Option<String>,
        /// Address of the repository that its first directive clones, with https
        #[arg(long, value_name = "URL")]
        repo: Option<String>,
    },
    /// List the facilities
    Ls,
    /// Show one facility
    Show {
        /// Id of the facility
        id: String,
    },
    /// Remove the files of a facility from this territory, unless a directive works in it
    Rm {
        /// Id of the facility
        id: String,
        /// Data directory of the territory
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Keep the present state of a facility of this machine
    Snapshot {
        /// Name of the facility
        name: String,
        /// Label for people, by which it can be named, too
        #[arg(long, value_name = "LABEL")]
        label: Option<String>,
    },
    /// List the snapshots of a facility
    Snapshots {
        /// Name of the facility
        name: String,
        /// Also read every object of each of them, and check its hash
        #[arg(long)]
        verify: bool,
    },
    /// Bring a facility back to a snapshot; its present state is kept as a snapshot first
    Restore {
        /// Name of the facility
        name: String,
        /// Snapshot to restore
        snapshot: String,
        /// Do not keep the present state: it is lost, with what other processes write into it meanwhile
        #[arg(long)]
        no_snapshot: bool,
    },
    /// List the paths that differ between two snapshots, or between one and the present state
    Diff {
        /// Name of the facility
        name: String,
        /// The earlier snapshot
        from: String,
        /// The later snapshot [default: the present state]
        to: Option<String>,
    },
    /// Make a new facility with the state of another one
    Fork {
        /// Name of the facility
        name: String,
        /// Name of the new facility
        new: String,
        /// Snapshot to begin with [default: the present state, which is kept as a snapshot]
        #[arg(long, value_name = "SNAPSHOT")]
        from: Option<String>,
    },
    /// Forget a snapshot; nexus facility gc then removes what no other one needs
    Forget {
        /// Name of the facility
        name: String,
        /// Snapshot to forget
        snapshot: String,
    },
    /// Remove what no snapshot of any facility of this machine needs
    Gc,
}

/// The arguments of `nexus directive`.
#[derive(Debug, Args)]
pub struct DirectiveArgs {
    /// The action of the command.
    #[command(subcommand)]
    pub action: DirectiveAction,
    /// The control plane.
    #[command(flatten)]
    pub access: ServerArgs,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// The actions of `nexus directive`.
#[derive(Debug, Subcommand)]
pub enum DirectiveAction {
    /// Create a directive: a command that a territory runs in a facility
    Create(CreateArgs),
    /// Show one directive
    Show {
        /// Id of the directive
        id: String,
    },
    /// List directives, the latest first
    Ls {
        /// Only those of this facility
        #[arg(long, value_name = "ID")]
        facility: Option<String>,
        /// Go on, and print each line again when it has changed
        #[arg(long)]
        watch: bool,
    },
    /// Print the output of a directive
    Logs {
        /// Id of the directive
        id: String,
        /// Go on until it ends, and exit with its exit code
        #[arg(long, short)]
        follow: bool,
    },
    /// Ask for the end of a directive
    Cancel {
        /// Id of the directive
        id: String,
    },
    /// Print the changes of a directive as a diff that git apply accepts
    Diff {
        /// Id of the directive
        id: String,
    },
    /// List the files that a directive keeps, or write them into a new directory
    Artifacts {
        /// Id of the directive
        id: String,
        /// Directory that is made for the files
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// Print the signed receipt of a directive
    Receipt {
        /// Id of the directive
        id: String,
    },
}

/// The arguments of `nexus directive create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Id of the facility
    #[arg(long, value_name = "ID")]
    pub facility: String,
    /// Working directory below the workspace
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Time limit, for example 30s or 10m [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms)]
    pub timeout: Option<u64>,
    /// Memory limit, for example 512M
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub memory: Option<u64>,
    /// Processors, for example 1.5
    #[arg(long, value_name = "N", value_parser = units::parse_cpus)]
    pub cpus: Option<u32>,
    /// Most bytes that may be added to the workspace, for example 1G
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub disk: Option<u64>,
    /// Let the command reach this destination; may repeat
    #[arg(long, value_name = "HOST:PORT")]
    pub allow: Vec<String>,
    /// Ask a person about each other destination, for which the connection waits so long, for example 2m
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms)]
    pub ask: Option<u64>,
    /// Set a variable; may repeat
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Keep the files that match, for example out/ or **/*.log; may repeat
    #[arg(long, value_name = "GLOB")]
    pub artifact: Vec<String>,
    /// Throw the changes away after the diff was made
    #[arg(long)]
    pub discard: bool,
    /// Run it again when its territory is lost, unless its changes were about to be committed
    #[arg(long)]
    pub requeue: bool,
    /// Name of this request: a repetition creates nothing new
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Follow its output, and exit with its exit code
    #[arg(long, short)]
    pub follow: bool,
    /// The command; several words are quoted for the shell
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}
