//! `nexus directive`: creates directives, ends them, and reads what they left.

use crate::args::{CreateArgs, DirectiveAction, DirectiveArgs};
use crate::client::access::Access;
use crate::client::artifacts;
use crate::client::call::id;
use crate::client::display;
use crate::client::follow;
use crate::client::watch;
use crate::failure::Failure;
use crate::notices::tell;
use crate::print::{print, print_json};
use nexus_api::client::ListQuery;
use nexus_api::mothership::{CancelRequest, CreateDirective, RequestedCapabilities};
use nexus_facility::glob::Glob;
use nexus_model::capability::{ASK, NetCapability, NetMode};
use nexus_model::directive::OnLeaseLoss;
use nexus_model::ids::DirectiveId;
use nexus_model::spec::{ArtifactRules, DirectiveChanges, DirectiveLimits};
use std::io::IsTerminal;

/// Runs it and returns the exit code.
pub fn command(args: &DirectiveArgs) -> Result<u8, Failure> {
    let access = Access::of(&args.access)?;
    let client = &access.client;
    match &args.action {
        DirectiveAction::Create(create) => self::create(args, create, &access),
        DirectiveAction::Show { id: text } => {
            let one = access.wait(client.directive(directive(text)?))?;
            if args.json { print_json(&one) } else { print(display::details(&one).as_bytes()) }
        }
        DirectiveAction::Ls { facility, watch } => {
            let facility = facility.as_deref().map(|text| id(text, "facility")).transpose()?;
            if *watch {
                return watch::watch(&access, facility, args.json);
            }
            let list = access.wait(client.directives(facility, &ListQuery::default()))?;
            if args.json {
                return print_json(&list);
            }
            let text: String = list.directives.iter().map(|one| display::directive(one) + "\n").collect();
            print(if text.is_empty() { b"No directives.\n" } else { text.as_bytes() })
        }
        DirectiveAction::Logs { id: text, follow } => follow::logs(&access, directive(text)?, *follow, args.json),
        DirectiveAction::Cancel { id: text } => {
            let answer = access.wait(client.cancel(directive(text)?, &CancelRequest::default()))?;
            if args.json {
                return print_json(&answer);
            }
            let text = if answer.state.is_terminal() {
                format!("The directive is {}.\n", answer.state)
            } else {
                "The directive is asked to end.\n".to_owned()
            };
            print(text.as_bytes())
        }
        DirectiveAction::Diff { id: text } => {
            let id = directive(text)?;
            let diff = match access.wait(client.diff(id)) {
                Err(missing) if missing.code == "not_found" => {
                    let one = access.wait(client.directive(id))?;
                    if !one.state.is_terminal() {
                        let message = "The directive is not over, and its diff is made at its end";
                        return Err(Failure::refused("not_over", message, "nexus directive logs -f ID waits for it"));
                    }
                    tell("There is no diff: the directive changed nothing, or its diff was removed after its days.");
                    return Ok(0);
                }
                diff => diff?,
            };
            if std::io::stdout().is_terminal() {
                let shown = nexus_terminal::visible::escaped(&String::from_utf8_lossy(&diff), &['\n', '\t']);
                return print(shown.as_bytes());
            }
            print(&diff)
        }
        DirectiveAction::Artifacts { id: text, output } => {
            artifacts::command(&access, directive(text)?, output.as_deref(), args.json)
        }
        DirectiveAction::Receipt { id: text } => {
            let receipt = access.wait(client.receipt(directive(text)?))?;
            // In the form in which it was signed, so that nexus receipt verify takes it.
            let file = nexus_receipt::file_of(&receipt).map_err(|error| {
                let message = format!("the receipt of the directive is damaged: {error}");
                Failure::refused("receipt", message, "it is also in the state directory of its territory")
            })?;
            print(&file)
        }
    }
}

fn directive(text: &str) -> Result<DirectiveId, Failure> {
    id(text, "directive")
}

fn create(args: &DirectiveArgs, create: &CreateArgs, access: &Access) -> Result<u8, Failure> {
    let command = match &create.command[..] {
        [one] => one.clone(),
        words => shlex::try_join(words.iter().map(String::as_str)).map_err(|error| {
            Failure::usage("command", format!("the command cannot be quoted: {error}"), "leave NUL bytes out")
        })?,
    };
    let mut capabilities = RequestedCapabilities::default();
    if !create.allow.is_empty() || create.ask.is_some() {
        let allow = Some(create.allow.clone());
        let ask = create.ask.map(|ms| (ASK.to_owned(), ms.div_ceil(1000).into()));
        let x_ext = ask.into_iter().collect();
        capabilities.net = Some(NetCapability { mode: NetMode::Allowlist, allow, x_ext, ..NetCapability::default() });
    }
    for variable in &create.env {
        let Some((name, value)) = variable.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Failure::usage("env", format!("{variable:?} is not a variable"), "write NAME=VALUE"));
        };
        capabilities.env.insert(name.to_owned(), value.to_owned());
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let limits = DirectiveLimits {
        cpu: create.cpus,
        memory_mb: create.memory.map(megabytes),
        disk_mb: create.disk.map(megabytes),
        ..DirectiveLimits::default()
    };
    let wanted = CreateDirective {
        command,
        cwd: create.cwd.clone(),
        timeout_seconds: create.timeout.map(|ms| ms.div_ceil(1000)),
        requested_capabilities: (capabilities != RequestedCapabilities::default()).then_some(capabilities),
        limits: (limits != DirectiveLimits::default()).then_some(limits),
        artifacts: (!create.artifact.is_empty())
            .then(|| ArtifactRules { collect: create.artifact.clone(), ..ArtifactRules::default() }),
        changes: create.discard.then_some(DirectiveChanges::Discard),
        on_lease_loss: create.requeue.then_some(OnLeaseLoss::Requeue),
        ..CreateDirective::default()
    };
    for pattern in &create.artifact {
        Glob::parse(pattern).map_err(|error| {
            Failure::usage(
                "artifact",
                error.to_string(),
                "a pattern looks like out/ or **/*.log, relative to the workspace",
            )
        })?;
    }
    let facility = id(&create.facility, "facility")?;
    let made = access.wait(access.client.create_directive(facility, &wanted, create.idempotency_key.as_deref()))?;
    if create.follow {
        return follow::logs(access, made.directive_id, true, args.json);
    }
    if args.json { print_json(&made) } else { print(format!("{}\n", made.directive_id).as_bytes()) }
}
