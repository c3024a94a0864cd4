//! `nexus approvals --fleet`: approvals of directives and of their connections, which a control plane keeps.

use super::args::{AnswerArgs, ApprovalsAction, ApprovalsArgs, Scope};
use super::ask::{confirmed, refuse_inside};
use super::show::quoted;
use crate::failure::{Failure, one_line};
use nexus_api::client::ListQuery;
use nexus_api::mothership::{Approval, ApprovalList, ApproveRequest, ConnectionAsks, RejectRequest};
use nexus_caller::print::{print, print_json};
use nexus_fleet::client::access::Access;
use nexus_model::approval::{ApprovalKind, ApprovalState};
use nexus_model::directive::State;
use nexus_model::ids::ApprovalId;
use nexus_model::spec::{DirectiveChanges, DirectiveSpec};
use nexus_model::subject::DirectiveSubject;
use serde_json::Value;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs it and returns the exit code.
pub fn command(args: &ApprovalsArgs) -> Result<u8, Failure> {
    let access = Access::of(&args.access)?;
    match &args.action {
        ApprovalsAction::Ls { json, all } => list(&access, *json, *all),
        ApprovalsAction::Show { json, id } => {
            let one = find(&access, id)?;
            if *json { print_json(&one) } else { print(text(&one)?.as_bytes()) }
        }
        ApprovalsAction::Approve(answer) => approve(&access, answer),
        ApprovalsAction::Deny { id } => {
            refuse_inside()?;
            let one = find(&access, id)?;
            let body = RejectRequest { approval_id: connection(&one), ..RejectRequest::default() };
            access.wait(access.client.reject(one.directive_id, &body))?;
            print(format!("{} is denied\n", one.approval_id).as_bytes())
        }
    }
}

/// Returns the id that an answer needs beside that of the directive: a directive has one start and many connections.
fn connection(one: &Approval) -> Option<ApprovalId> {
    (one.kind == ApprovalKind::Egress).then_some(one.approval_id)
}

/// Reads the approvals that are not over, or every one.
fn read(access: &Access, all: bool) -> Result<Vec<Approval>, Failure> {
    let mut page = ListQuery { cursor: None, limit: Some(200) };
    let mut found = Vec::new();
    loop {
        let answer = access.wait(access.client.approvals(all, &page))?;
        found.extend(answer.approvals);
        match answer.next_cursor {
            Some(cursor) => page.cursor = Some(cursor),
            None => return Ok(found),
        }
    }
}

fn list(access: &Access, json: bool, all: bool) -> Result<u8, Failure> {
    let approvals = read(access, all)?;
    if json {
        return print_json(&ApprovalList { approvals, next_cursor: None });
    }
    let lines: String = approvals.iter().map(line).collect();
    print(if lines.is_empty() { b"no approval waits\n" } else { lines.as_bytes() })
}

/// Finds an approval by its id, or by a beginning that no other one that is not over has.
fn find(access: &Access, given: &str) -> Result<Approval, Failure> {
    if let Ok(id) = given.parse::<ApprovalId>() {
        return access.wait(access.client.approval(id));
    }
    let mut found = read(access, false)?;
    found.retain(|one| !given.is_empty() && one.approval_id.to_string().starts_with(given));
    if let (Some(one), true) = (found.pop(), found.is_empty()) {
        return Ok(one);
    }
    let shown: String = given.chars().take(80).collect();
    let message = format!("there is not an approval whose id begins with {shown:?}, or more than one");
    Err(Failure::refused("no_approval", message, "nexus approvals ls --fleet lists them"))
}

fn approve(access: &Access, args: &AnswerArgs) -> Result<u8, Failure> {
    refuse_inside()?;
    let one = find(access, &args.id)?;
    if one.state != ApprovalState::Pending {
        let message = format!("the approval is {}", one.state.name());
        return Err(Failure::refused("approvals", message, "nexus approvals show --fleet has all of it"));
    }
    if !confirmed(&text(&one)?)? {
        return Err(Failure::refused("approvals", "nothing was approved", "nexus approvals deny refuses it for good"));
    }
    // The answer is to what was shown: its hash goes with it.
    let scope = args.scope.map(|scope| if scope == Scope::Directive { "directive" } else { "once" }.to_owned());
    let body = ApproveRequest {
        approval_id: connection(&one),
        scope,
        max_uses: args.uses,
        expires_in: args.within.map(|ms| ms.div_ceil(1000)),
        subject: Some(one.subject),
        ..ApproveRequest::default()
    };
    let answer = access.wait(access.client.approve(one.directive_id, &body))?;
    if one.kind == ApprovalKind::Egress {
        // Whether other users have to answer too, only the approval itself says.
        let state = access.wait(access.client.approval(one.approval_id))?.state;
        let is =
            if state == ApprovalState::Pending { "approved by you, and waits for another user" } else { state.name() };
        return print(format!("{} is {is}\n", one.approval_id).as_bytes());
    }
    let is = match answer.state {
        State::AwaitingApproval => "approved by you, and waits for another user".to_owned(),
        state => format!("granted: directive {} is {state}", one.directive_id),
    };
    print(format!("{} is {is}\n", one.approval_id).as_bytes())
}

/// Returns the time that is left, for people.
fn left(one: &Approval) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let left = u128::try_from(one.expires_at.0).unwrap_or(0).saturating_sub(now) / 1000;
    match left {
        0 => "now".to_owned(),
        left if left < 120 => format!("{left} s from now"),
        left => format!("{} min from now", left / 60),
    }
}

fn line(one: &Approval) -> String {
    const MAX_CHARS: usize = 100;
    let mut command = quoted(one.asks["spec"]["command"].as_str().unwrap_or_default());
    if let Some(destination) = one.asks["connection"]["destination"].as_str() {
        command = format!("connect {}: {command}", quoted(destination));
    }
    let cut: String = command.chars().take(MAX_CHARS).collect();
    let more = if command.chars().count() > MAX_CHARS { "…" } else { "" };
    format!("{}  {:9}  {:>16}  {cut}{more}\n", one.approval_id, one.state.name(), left(one))
}

/// Returns all of it. Nothing of the directive is left out: what a row does not name stands in the last ones as JSON.
fn text(one: &Approval) -> Result<String, Failure> {
    let unreadable = || {
        let message = "the control plane asks for something that this program cannot show";
        Failure::refused("approvals", message, "Use the program of the version of the control plane.")
    };
    if one.kind == ApprovalKind::Egress {
        return ConnectionAsks::of(one).map(|asks| text_of_connection(one, &asks)).ok_or_else(unreadable);
    }
    let asks: DirectiveSubject = serde_json::from_value(one.asks.clone()).map_err(|_| unreadable())?;
    // A program that shows less than the hash holds would let its user approve what was not shown.
    if asks.digest() != Some(one.subject) {
        return Err(unreadable());
    }
    let mut out = String::new();
    let mut row = |name: &str, value: &str| {
        let _written = writeln!(out, "{name:10} {value}");
    };
    let spec = &asks.spec;
    row("approval", &one.approval_id.to_string());
    row("state", &format!("{}, until {}", one.state.name(), left(one)));
    row("asked by", &format!("key {}", quoted(&one.requested_by)));
    for reason in &one.reasons {
        row("because", &one_line(reason));
    }
    rows_of(spec, &mut row);
    match asks.territory_id {
        Some(territory) => row("territory", &territory.to_string()),
        None => row("territory", "any of the account with these labels"),
    }
    row("labels", &one_line(&value(&asks.labels)));
    row("answers", &format!("{} of {} users have approved it", one.approved_by.len(), one.quorum));
    row("starts", &format!("{} of {}", one.uses_left, one.max_uses));
    row("directive", &one.directive_id.to_string());
    row("hash", &one.subject.to_string());
    Ok(out)
}

/// Writes all of a specification. Nothing is left out: what a row does not name stands in the last ones as JSON.
fn rows_of(spec: &DirectiveSpec, row: &mut impl FnMut(&str, &str)) {
    row("command", &quoted(&spec.command));
    row("shell", &quoted(&spec.shell));
    row("directory", &quoted(spec.cwd.as_deref().unwrap_or("/workspace")));
    row("facility", &format!("{}, mounted at {}", spec.facility.id, quoted(&spec.facility.mount)));
    if let Some(repository) = &spec.facility.repo_url {
        row("repository", &quoted(repository));
    }
    let changes = match spec.changes.unwrap_or_default() {
        DirectiveChanges::Commit => "become part of the facility",
        DirectiveChanges::Discard => "are thrown away",
    };
    row("changes", changes);
    row("isolation", spec.sandbox_profile.name());
    row("paths", &one_line(&value(&spec.capabilities.fs)));
    row("network", &one_line(&value(&spec.capabilities.net)));
    for (name, content) in &spec.capabilities.env {
        row("variable", &format!("{}={}", quoted(name), quoted(content)));
    }
    let secrets: Vec<String> = spec.capabilities.secrets.iter().map(|name| quoted(name)).collect();
    row("secrets", if secrets.is_empty() { "none".to_owned() } else { secrets.join(", ") }.as_str());
    row("limits", &one_line(&format!("{}, timeout {} s", value(&spec.limits), value(&spec.timeout_seconds))));
    row("artifacts", &one_line(&value(&spec.artifacts)));
    row("demands", &one_line(&format!("{} {}", value(&spec.requirements), value(&spec.runtime))));
}

/// Returns all about a connection that waits, the destination first.
fn text_of_connection(one: &Approval, asks: &ConnectionAsks) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: &str| {
        let _written = writeln!(out, "{name:10} {value}");
    };
    row("approval", &one.approval_id.to_string());
    row("state", &format!("{}, until {}", one.state.name(), left(one)));
    row("connect to", &quoted(&asks.connection.destination));
    if let Some(program) = &asks.connection.program {
        row("program", &quoted(program));
    }
    row("asked by", &format!("a directive of key {}", quoted(&one.requested_by)));
    for reason in &one.reasons {
        row("because", &one_line(reason));
    }
    rows_of(&asks.spec, &mut row);
    row("territory", &asks.connection.territory_id.to_string());
    row("answers", &format!("{} of {} users have approved it", one.approved_by.len(), one.quorum));
    row("uses", &format!("{} of {} are left; one is a connection", one.uses_left, one.max_uses));
    row("directive", &format!("{}, claim {}", one.directive_id, asks.connection.fence));
    row("hash", &one.subject.to_string());
    out
}

fn value(part: &impl serde::Serialize) -> String {
    serde_json::to_value(part).unwrap_or(Value::Null).to_string()
}
