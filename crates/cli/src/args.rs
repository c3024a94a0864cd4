//! The command line, as pinned in the user guide.

use crate::net::args::{NetArgs, NetFlags, RuleArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
use nexus_changes::args::ChangesArgs;
use nexus_doctor::DoctorArgs;
use nexus_fleet::args::ServerArgs;
use nexus_history::args::{LogArgs, ReceiptArgs};
use nexus_model::Guarantee;
use nexus_model::units;
use nexus_sessions::args::SessionCommand;
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs commands that AI agents wrote, isolated, and shows what they changed.
#[derive(Debug, Parser)]
#[command(name = "nexus", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    /// Command that was given on the command line.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one command in a sandbox
    Run(Box<RunArgs>),
    /// Print what a command line of `run` would allow, and which file or flag said so
    Explain(Box<RunArgs>),
    /// Look at profiles
    Profile(ProfileArgs),
    /// Look at policy documents, test them, and put them in force
    Policy(PolicyArgs),
    /// Look at what waits for an approval, and answer it
    Approvals(crate::approvals::args::ApprovalsArgs),
    /// Allow what the workspace's nexus.yaml asks for, as long as it stays as it is
    Trust(TrustArgs),
    /// Take that back
    Untrust(UntrustArgs),
    /// Open a shell in a sandbox, on a terminal of its own
    Shell(Box<RunArgs>),
    /// Commands about detached sandboxes.
    #[command(flatten)]
    Session(SessionCommand),
    /// Say what works on this machine, which guarantees can be given, and how to get the rest
    Doctor(DoctorArgs),
    /// Look at changes that wait for a decision
    Changes(ChangesArgs),
    /// Import, list, show and remove images, which nexus run --image takes as the system of a sandbox
    Image(crate::image::args::ImageArgs),
    /// Verify and show receipts: signed statements of what runs were and did
    Receipt(ReceiptArgs),
    /// Decide about destinations, show what was reached, or run the egress alone
    Net(NetArgs),
    /// List past runs, the latest first
    Log(LogArgs),
    /// Serve the tools of an agent over the Model Context Protocol, on standard input and output
    Mcp(Box<McpArgs>),
    /// Commands of the warm launcher.
    #[command(flatten)]
    Warm(nexus_warm::args::WarmCommand),
    /// Commands about a fleet.
    #[command(flatten)]
    Fleet(nexus_fleet::args::FleetCommand),
    /// The process that owns a detached sandbox; started by nexus run --detach alone.
    // A server of agents adds the flags of a call to its own; of two the later counts.
    #[command(name = "__supervise", hide = true, args_override_self = true)]
    Supervise(Box<RunArgs>),
    /// Hostile part that `doctor --attack` starts inside its sandboxes; it plays nothing outside of one
    #[command(name = "__attack", hide = true)]
    AttackPart {
        /// Name of the part and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Print a completion script for a shell
    Completions {
        /// Shell whose completions are printed
        shell: clap_complete::Shell,
    },
    /// Print the manual page of nexus, or write the pages of all commands to a directory
    Man {
        /// Directory for the pages; made when it is missing
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}

/// Arguments of `nexus run`.
#[derive(Debug, Clone, PartialEq, Default, Args)]
#[command(after_help = "\
Exit codes: the command's own; 2 wrong use; 124 time limit; 125 refused, failed before the start, disk limit, or the
changes could not be committed; 126 not executable; 127 not found; 128+N killed by signal N.

Examples:
  nexus run -- cargo build
  nexus run --profile none -- make test
  nexus run --memory 2G --timeout 10m --changes discard --shell 'pytest -q | tail -3'")]
pub struct RunArgs {
    /// Use this profile beside the toolchains of your PATH; none: without those; may repeat, later ones add and win
    #[arg(long, value_name = "NAME")]
    pub profile: Vec<String>,
    /// Directory to work on; it appears inside at its own path [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Work on the facility of this name, which is made when it is missing; it appears inside at /workspace
    #[arg(long, value_name = "NAME", conflicts_with_all = ["workspace", "direct", "live"])]
    pub facility: Option<String>,
    /// Working directory, inside the workspace
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Use this image as the system, in place of the host's; see nexus image
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Show another host path, read-only; may repeat
    #[arg(long, value_name = "SRC[:DST]")]
    pub ro: Vec<OsString>,
    /// Show another host path and let the command write it directly; may repeat
    #[arg(long, value_name = "SRC[:DST]")]
    pub rw: Vec<OsString>,
    /// Let the command use this character device of the host, for example /dev/dri/renderD128; may repeat
    #[arg(long, value_name = "PATH")]
    pub device: Vec<PathBuf>,
    /// Let the command connect to this socket in what --ro and --rw show; others are covered; may repeat
    #[arg(long, value_name = "PATH")]
    pub allow_socket: Vec<PathBuf>,
    /// Make paths of the workspace that match this pattern, or this path, unreadable inside; may repeat
    #[arg(long, value_name = "GLOB")]
    pub hide: Vec<String>,
    /// Hide what usually holds secrets: .env*, *.pem, *.key, id_*, .npmrc, .pypirc, .netrc
    #[arg(long)]
    pub hide_secrets: bool,
    /// Set an environment variable, or pass on the caller's; may repeat
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// Pass on a variable of the caller that holds a credential; may repeat
    #[arg(long, value_name = "NAME")]
    pub env_secret: Vec<OsString>,
    /// Give the command a secret as the file /run/secrets/NAME, and keep it out of the output; FROM is file:PATH, env:NAME or
    /// cmd:COMMAND; may repeat
    #[arg(long, value_name = "NAME=FROM")]
    pub secret: Vec<OsString>,
    /// The session of processes that asks for the run, where it is not that of this process: a supervisor has its own.
    #[arg(skip)]
    pub asking_session: Option<i32>,
    /// Memory limit, for example 512M
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub memory: Option<u64>,
    /// Processors, for example 1.5
    #[arg(long, value_name = "N", value_parser = units::parse_cpus)]
    pub cpus: Option<u32>,
    /// Most processes and threads [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub pids: Option<u32>,
    /// Most bytes that may be added to the workspace, for example 1G
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub disk: Option<u64>,
    /// Time limit, for example 30s or 10m
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms)]
    pub timeout: Option<u64>,
    /// Time between SIGTERM and SIGKILL at the time limit [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_ms)]
    pub grace: Option<u64>,
    /// Keep only so many bytes of output: the first half and the last half
    #[arg(long, value_name = "BYTES", value_parser = units::parse_size)]
    pub max_output: Option<u64>,
    /// Write all output to this file
    #[arg(long, value_name = "FILE")]
    pub full_output: Option<PathBuf>,
    /// Most bytes of that file; a server of agents bounds what their commands fill its disk with.
    #[arg(long, value_name = "BYTES", hide = true, value_parser = units::parse_size)]
    pub full_output_most: Option<u64>,
    /// End it when the process that started it ends: a server of agents leaves nothing behind.
    #[arg(long, hide = true)]
    pub ends_with_caller: bool,
    /// Take every network rule of the flags back. A server adds it to flags of its own for a call that wants no network.
    #[arg(long, hide = true)]
    pub no_network: bool,
    /// Write a copy of the receipt to this file
    #[arg(long, value_name = "FILE")]
    pub receipt: Option<PathBuf>,
    /// Pass standard input on also when it is a terminal or a device; a pipe, a socket or a file is passed on without
    /// it. With --detach: let attached clients type it
    #[arg(long)]
    pub stdin: bool,
    /// Give the command an empty standard input
    #[arg(long, conflicts_with_all = ["stdin", "tty"])]
    pub no_stdin: bool,
    /// Give the command a terminal of its own, with the caller's as its screen and keys
    #[arg(short, long, conflicts_with = "json")]
    pub tty: bool,
    /// Leave the prompt of a shell on a terminal as it is, without the mark that it is inside
    #[arg(long)]
    pub no_prompt: bool,
    /// Show control sequences of the command on a terminal as they come
    #[arg(long)]
    pub raw: bool,
    /// Let it run in the background and print its id; see nexus ps, attach, exec, logs, stop, wait, rm
    #[arg(short, long)]
    pub detach: bool,
    /// A name for a detached sandbox
    #[arg(long, value_name = "NAME", requires = "detach")]
    pub name: Option<nexus_runner::session::name::Name>,
    /// Let a port of this machine's 127.0.0.1 lead to one inside; 0:PORT picks a free one; may repeat
    #[arg(long, value_name = "HOSTPORT:PORT")]
    pub publish: Vec<nexus_runner::live::ports::Publish>,
    /// Let processes inside trace each other, for debuggers, strace and LeakSanitizer
    #[arg(long)]
    pub allow_ptrace: bool,
    /// Strength of the isolation
    #[arg(long, value_name = "PROFILE", default_value = "untrusted")]
    pub sandbox: Sandbox,
    /// Refuse to run unless this guarantee can be given; may repeat
    #[arg(long, value_name = "GUARANTEE", value_parser = parse_guarantee)]
    pub require: Vec<Guarantee>,
    /// Network rules of the command.
    #[command(flatten)]
    pub net: NetFlags,
    /// Treatment of changes to the workspace [default: what the profiles say, else ask on a terminal, else commit]
    #[arg(long, value_name = "HOW")]
    pub changes: Option<Changes>,
    /// Keep changes of this name back until they are accepted, as with the names that always are; * stands for any
    /// characters; may repeat
    #[arg(long, value_name = "NAME", value_parser = parse_protected)]
    pub protect: Vec<String>,
    /// Keep what Go, npm, pip, uv and cargo download and build for later runs in this workspace with this flag, as long as all
    /// that these runs change is committed
    #[arg(long, conflicts_with_all = ["direct", "live", "disk", "detach"])]
    pub cache: bool,
    /// Write straight into the workspace, without a layer that can be undone
    #[arg(long, conflicts_with_all = ["changes", "disk"])]
    pub direct: bool,
    /// With --direct: let git write to the workspace's git directories, all but their settings and hooks
    #[arg(long, requires = "direct")]
    pub direct_git: bool,
    /// Write straight into the workspace, whose state is kept before: nexus changes shows and undoes what the run changed
    #[arg(long, conflicts_with_all = ["changes", "disk", "direct"])]
    pub live: bool,
    /// With --live: let git write to the workspace's git directories, all but their settings and hooks
    #[arg(long, requires = "live")]
    pub live_git: bool,
    /// With --live: keep a state with up to so many new bytes, and any number of files [default: 2G and 100,000 files]
    #[arg(long, value_name = "SIZE", requires = "live", value_parser = units::parse_size)]
    pub live_size: Option<u64>,
    /// Print one JSON document about the run instead of the command's output
    #[arg(long)]
    pub json: bool,
    /// Leave out the advice at the end of the run
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print a summary of the run
    #[arg(short, long)]
    pub verbose: bool,
    /// Run this string with `/bin/sh -c`
    #[arg(long, value_name = "STRING", conflicts_with = "command")]
    pub shell: Option<OsString>,
    /// The command and its arguments
    // Without `allow_hyphen_values`: a mistyped flag must be an error and not the command's name.
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

impl RunArgs {
    /// Reports whether the command writes straight into the workspace.
    pub fn is_direct(&self) -> bool {
        self.direct || self.live
    }

    /// Returns the flag that says so.
    pub fn direct_flag(&self) -> &'static str {
        if self.live { "--live" } else { "--direct" }
    }

    /// A command line of which only the rules matter, for what decides without running.
    pub fn of_rules(rules: &RuleArgs) -> Self {
        Self {
            profile: rules.profile.clone(),
            workspace: rules.workspace.clone(),
            net: rules.net.clone(),
            ..Self::default()
        }
    }
}

/// Arguments of `nexus mcp`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Takes the flags of nexus run that say what a command may do; each call of a tool may only ask for less.
Examples:
  claude mcp add nexus -- nexus mcp --timeout 10m
  codex mcp add nexus -- nexus mcp --changes review")]
pub struct McpArgs {
    /// Flags that hold for each command.
    #[command(flatten)]
    pub run: RunArgs,
    /// Let the agent accept what waits of its own runs, but no protected names
    #[arg(long)]
    pub may_accept: bool,
}

/// Reports whether `nexus run` was asked for JSON, on a command line that could not be understood. The flags end at
/// `--` and at the command, which is the first word that is neither a flag nor a possible value of one.
pub fn wanted_json(arguments: &[OsString]) -> bool {
    let Some((first, rest)) = arguments.split_first() else { return false };
    let mut after_flag = false;
    for word in rest.iter().map(|word| word.as_encoded_bytes()) {
        let is_flag = word.starts_with(b"-");
        match word {
            b"--json" => return first == "run",
            b"--" => return false,
            _ if !is_flag && !after_flag => return false,
            _ => after_flag = is_flag,
        }
    }
    false
}

fn parse_protected(text: &str) -> Result<String, nexus_model::name_pattern::PatternError> {
    nexus_model::name_pattern::check(text).map(|()| text.to_owned())
}

fn parse_guarantee(text: &str) -> Result<Guarantee, nexus_model::guarantee::UnknownGuarantee> {
    text.parse()
}

/// Values of `--sandbox`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Sandbox {
    #[default]
    /// Namespaces, Landlock, seccomp; nothing of the host but the workspace and a read-only system
    Untrusted,
    /// A container (not in this version)
    Trusted,
    /// No isolation (not in this version)
    Host,
}

/// Values of `--changes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Changes {
    /// Into the workspace, when the command has ended
    Commit,
    /// Dropped when the command has ended
    Discard,
    /// Parked until they are accepted
    Review,
    /// Asked at the end; the default on a terminal
    Ask,
}

/// Arguments of `nexus profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// Action on profiles.
    #[command(subcommand)]
    pub action: ProfileAction,
}

/// The commands of `nexus profile`.
#[derive(Debug, Subcommand)]
pub enum ProfileAction {
    /// List profiles and where they come from
    List {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what profiles allow together, and which line said so
    Show {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
        /// Profiles to explain, in the order in which they count
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Look for mistakes: in these files, or in all profiles
    Check {
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
        /// Files to read
        files: Vec<PathBuf>,
    },
    /// Print the JSON Schema of the format
    Schema,
}

/// Arguments of `nexus policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// The subcommand of it.
    #[command(subcommand)]
    pub action: PolicyAction,
}

/// The commands of `nexus policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyAction {
    /// Look for mistakes and run the documents' own tests: of these files, or of all that are in force
    Check {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
        /// Documents to read
        files: Vec<PathBuf>,
    },
    /// Run the documents' own tests and print each: of these files, or of all that are in force
    Test {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
        /// Documents to read
        files: Vec<PathBuf>,
    },
    /// Print what the documents in force allow and which line says so, or answer questions about it
    Explain {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
        /// Ask as if these documents were in force too
        #[arg(long, value_name = "FILE")]
        with: Vec<PathBuf>,
        /// The workspace [default: the current directory]
        #[arg(long)]
        workspace: Option<PathBuf>,
        /// Ask a control plane about the documents that count for your account there
        #[arg(long, conflicts_with_all = ["with", "workspace"])]
        fleet: bool,
        /// The control plane.
        #[command(flatten)]
        access: ServerArgs,
        /// A question, for example "net example.com:443" or "write workspace:/src"
        #[arg(value_name = "QUESTION")]
        questions: Vec<String>,
    },
    /// Put documents in force, if all of them hold together; otherwise those before stay
    #[command(after_help = "\
With --fleet the document is that of your account in a control plane, under the documents of its operator: it counts at once for each
directive that is created or claimed, and takes nothing but away. It needs the key of an owner.
Examples:
  nexus policy apply ~/drafts/careful.yaml
  nexus policy apply --fleet ~/drafts/account.yaml
  nexus policy apply --fleet --remove")]
    Apply {
        /// Put the document in force for your account in a control plane
        #[arg(long)]
        fleet: bool,
        /// Take the document of your account out of force
        #[arg(long, requires = "fleet", conflicts_with = "files")]
        remove: bool,
        /// Change nothing when another generation of the account's document is in force
        #[arg(long, requires = "fleet", value_name = "N")]
        if_generation: Option<u64>,
        /// The control plane.
        #[command(flatten)]
        access: ServerArgs,
        /// Documents to read
        #[arg(required_unless_present = "remove", value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Say what these documents would decide in another way about runs that were recorded: exit 1 if there is something
    #[command(after_help = "\
Reads the receipts of this state directory and the records of their networks. Documents of workspaces are not looked at.
Examples:
  nexus policy replay ~/drafts/careful.yaml --since 30d
  nexus policy replay --alone")]
    Replay {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
        /// Only runs that began within this time, for example 48h or 30d
        #[arg(long, value_name = "TIME", value_parser = parse_back)]
        since: Option<u64>,
        /// At most so many runs, the latest ones
        #[arg(short, long, value_name = "N")]
        number: Option<usize>,
        /// Try these documents in the place of all that are in force, not beside the others
        #[arg(long)]
        alone: bool,
        /// Replay the directives of a control plane in the place of the runs of this machine
        #[arg(long)]
        fleet: bool,
        /// The control plane.
        #[command(flatten)]
        access: ServerArgs,
        /// Documents to try; one with the level and id of a document in force takes its place
        #[arg(value_name = "FILE", required_unless_present = "alone")]
        files: Vec<PathBuf>,
    },
    /// Say whether a command line is safe, needs an approval or is forbidden, and why: exit 0, 1 or 1
    Command {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
        /// The command line, as one word
        line: String,
    },
    /// Print rules of another program as a policy document, and what could not be carried over on standard error
    Import {
        /// The form of the rules
        #[arg(long, value_name = "FORM")]
        from: ImportFrom,
        /// The id of the document
        #[arg(long, default_value = "imported")]
        id: String,
        /// Print JSON: the document and what was left out
        #[arg(long)]
        json: bool,
        /// The file with the rules
        file: PathBuf,
    },
    /// Print the JSON Schema of the format
    Schema,
}

/// Reads a time that lies back, as a duration or in days.
fn parse_back(text: &str) -> Result<u64, units::ParseUnitError> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    match days.and_then(|days| days.checked_mul(86_400_000)) {
        Some(ms) => Ok(ms),
        None => units::parse_duration_ms(text),
    }
}

/// `nexus policy import --from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImportFrom {
    /// Settings of sandbox-runtime
    Srt,
    /// Permissions in a settings.json of Claude Code
    Claude,
    /// Prefix rules of Codex
    Codex,
}

/// Arguments of `nexus trust`.
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// Only print what the file asks for
    #[arg(long)]
    pub show: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "show")]
    pub yes: bool,
    /// The workspace [default: the current directory]
    pub workspace: Option<PathBuf>,
}

/// Arguments of `nexus untrust`.
#[derive(Debug, Args)]
pub struct UntrustArgs {
    /// The workspace [default: the current directory]
    pub workspace: Option<PathBuf>,
}
