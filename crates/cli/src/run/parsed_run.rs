//! Turns the flags of `nexus run` into a [`ParsedRun`] with a resolved plan.

use super::ask;
use super::facility::{self, OpenFacility};
use super::input::{self, Input, InputFlags};
use crate::args::{Changes, RunArgs, Sandbox};
use crate::environment;
use crate::failure::Failure;
use crate::net::args::AskOn;
use crate::net::ask as net_ask;
use crate::net::host_port::{refuse_loopback_rules, refuse_ports_of_nexus};
use crate::profile::policy;
use crate::profile::resolution::Resolution;
use crate::request;
use crate::terminal::Hold;
use nexus_image::HeldRoot;
use nexus_model::Guarantee;
use nexus_model::limits::DEFAULT_MAX_OUTPUT;
use nexus_policy::document::Effective;
use nexus_policy::profile::{NetMode, Toolchain};
use nexus_runner::plan::resolve::{ResolvedRun, resolve};
use nexus_runner::plan::site::Site;
use nexus_runner::request::ChangeMode;
use nexus_runner::session::store::WorkspaceAtStart;
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::searches;
use std::sync::Arc;

/// A run as the command line describes it.
pub struct ParsedRun {
    /// The run, as the engine takes it.
    pub run: ResolvedRun,
    /// The way of standard input to the command.
    pub input: Input,
    /// Bytes of output that are kept.
    pub max_output: Option<u64>,
    /// The line of the workspace's own file that keeps the changes out of the workspace.
    pub changes_by_file: Option<String>,
    /// First host uid of sandboxes that root starts.
    pub uid_base: u32,
    /// Keeps the output of the command off the terminal while a question is open.
    pub hold: Option<Arc<Hold>>,
    /// Toolchains that profiles ask for.
    pub toolchains: Vec<Toolchain>,
    /// Shows the toolchains that the caller's PATH leads to.
    pub shows_auto: bool,
    /// Policy documents that hold for the run.
    pub policies: Effective,
    /// The workspace as it was when the policy documents were read.
    pub workspace_at_start: WorkspaceAtStart,
    /// The name that the caller gave to the image.
    pub image_reference: Option<String>,
    /// Keeps other runs out of the facility until this one is over.
    _facility: Option<OpenFacility>,
    /// Keeps the root of the image until then.
    _image: Option<HeldRoot>,
}

impl ParsedRun {
    /// Reads the flags and looks at the paths that they name.
    pub fn read(args: &RunArgs) -> Result<Self, Failure> {
        refuse_what_is_not_here(args)?;
        refuse_input_that_cannot_be_read(args)?;
        let host = crate::host::here();
        let facility = match &args.facility {
            Some(name) => Some(facility::open(name, &nexus_facility::beside(&StateDir::find(&host)?.state))?),
            None => None,
        };
        let named = facility.as_ref().map(|facility| facility.tree.as_path()).or(args.workspace.as_deref());
        let site = Site::open(crate::host::choice(named)?, &host)?;
        let resolution = Resolution::of(args, &site.workspace, &site.places)?;
        let grants = &resolution.grants;
        refuse_what_a_network_breaks(args, &resolution)?;
        refuse_loopback_rules(&grants.net)?;
        let host_ports: Vec<u16> = grants.net.host_ports.iter().map(|port| port.value).collect();
        refuse_ports_of_nexus(&host_ports)?;
        let run = resolve(site, &request::of(args, &resolution)?, &host)?;
        policy::binds(&resolution.settings.egress.policies, &run)?;
        if let Some(searches) = resolution.searches.changed()
            && let Err(error) = searches::write(&run.site.places.state, &searches)
        {
            // The next run searches again.
            tracing::debug!(errno = error.raw_os_error(), "the searches for logins could not be kept");
        }
        environment::warn(&run.notices);
        for cache in &run.written_caches {
            crate::notices::tell(&format!(
                "Later builds of yours, also outside of a sandbox, execute what the command writes to {}; --cache keeps downloads for runs \
                 in this workspace alone.",
                cache.display()
            ));
        }
        // A policy denies what may come to be there one day.
        let of_policies = resolution.settings.egress.policies.denied_in_workspace();
        let is_policys = |pattern: &String| {
            of_policies
                .iter()
                .filter_map(|denied| denied.value.in_workspace())
                .any(|path| format!("/{path}") == *pattern)
        };
        for pattern in run.hides_nothing.iter().filter(|pattern| !is_policys(pattern)) {
            crate::notices::tell(&format!("--hide {pattern} matched nothing in the workspace, so it hides nothing."));
        }
        let changes_by_file = match run.changes {
            ChangeMode::Discard | ChangeMode::Review => {
                resolution.changes_by_file(&run.site.workspace).map(ToString::to_string)
            }
            ChangeMode::Commit | ChangeMode::Ask => None,
        };
        let input = InputFlags { tty: args.tty, stdin: args.stdin, no_stdin: args.no_stdin };
        Ok(Self {
            input: Input::of(input, rustix::stdio::stdin()),
            changes_by_file,
            max_output: run.max_output.or(args.json.then_some(DEFAULT_MAX_OUTPUT)),
            uid_base: resolution.settings.uid_base.as_ref().map_or(crate::driver::DEFAULT_UID_BASE, |base| base.value),
            toolchains: grants.toolchains.iter().map(|asked| asked.value).collect(),
            shows_auto: grants.shows_auto(),
            hold: net_ask::hold(args.net.ask)?,
            policies: resolution.settings.egress.policies.clone(),
            workspace_at_start: resolution.workspace_at_start,
            run,
            image_reference: args.image.clone(),
            _facility: facility,
            _image: resolution.image.map(|image| image.held),
        })
    }
}

/// Refuses flags that this version does not support, and questions without a terminal to ask them on.
pub fn refuse_what_is_not_here(args: &RunArgs) -> Result<(), Failure> {
    refuse_inside()?;
    let refuse = |message: &str, hint: &str| Err(Failure::refused("not_in_this_version", message, hint));
    match args.sandbox {
        Sandbox::Untrusted => {}
        Sandbox::Trusted => return refuse("containers are not in this version", "use --sandbox untrusted"),
        Sandbox::Host => return refuse("running without isolation is not in this version", "use --sandbox untrusted"),
    }
    if args.changes == Some(Changes::Ask) && (args.json || args.stdin || !ask::is_possible()) {
        let message = "--changes ask needs a terminal to ask on, and standard input for itself";
        return Err(Failure::usage("ask", message, "use --changes review and decide with nexus changes"));
    }
    if args.net.ask == Some(AskOn::Terminal)
        && (args.json || args.stdin || args.tty || args.detach || !net_ask::is_possible())
    {
        let message = "--ask needs a terminal for itself: not with --json, --stdin, --tty or --detach";
        let hint = "With --ask=approvals another terminal answers, by nexus approvals; --allow names destinations.";
        return Err(Failure::usage("ask", message, hint));
    }
    Ok(())
}

/// Refuses a standard input of which no byte can be read, where the caller asked for it. The command would have run before that is
/// found.
fn refuse_input_that_cannot_be_read(args: &RunArgs) -> Result<(), Failure> {
    let is_asked = args.stdin && !args.tty && !args.detach;
    match input::unreadable(rustix::stdio::stdin()).filter(|_| is_asked) {
        None => Ok(()),
        Some(why) => {
            let message = format!("--stdin: standard input cannot be read: {why}");
            Err(Failure::refused("input", message, "Give it a file or a pipe, or leave --stdin out."))
        }
    }
}

/// Refuses a run inside a sandbox, where the calls for another one are refused. `CYBROS_NEXUS=1` alone does not prove
/// that this process is inside, and another program may have set a filter of system calls; both together are enough
/// for a message.
fn refuse_inside() -> Result<(), Failure> {
    let marked = std::env::var_os("CYBROS_NEXUS").is_some_and(|value| value == "1");
    let filtered = || rustix::thread::secure_computing_mode() == Ok(rustix::thread::SecureComputingMode::Filter);
    if marked && filtered() {
        let message = "This command runs inside a sandbox of Nexus already (CYBROS_NEXUS=1), and there is no sandbox in a sandbox";
        return Err(Failure::refused("inside", message, "Call the program itself, without nexus run."));
    }
    Ok(())
}

/// Refuses a network that breaks a guarantee which the user requires: a flag must not give it up silently.
fn refuse_what_a_network_breaks(args: &RunArgs, resolution: &Resolution) -> Result<(), Failure> {
    if resolution.network.is_some() && args.require.contains(&Guarantee::NetNone) {
        let mode = resolution.grants.net.mode.as_ref().filter(|mode| mode.value != NetMode::None);
        let opened = mode.map_or_else(|| "--allow-host-port".to_owned(), |mode| mode.from.to_string());
        let message = format!("{opened} opens the network, and --require net.none forbids it");
        return Err(Failure::usage("require", message, "use --net none, or --require net.destination_checked"));
    }
    Ok(())
}
