//! Approvals: what waits for a person, exactly what it is about, and the answers.
//!
//! An answer carries the hash of what its page has shown: what changed meanwhile is not approved by it.

use super::parts;
use crate::console::html::{Attribute, Html};
use crate::console::shell::{Section, lead_to, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Problem, give_answer};
use crate::store::types::{Allow, ApprovalAnswer, Page};
use axum::http::StatusCode;
use nexus_api::mothership::{Approval, ConnectionAsks};
use nexus_model::approval::{ApprovalKind, ApprovalState};
use nexus_model::digest::Digest;
use nexus_model::ids::{ApprovalId, TerritoryId};
use nexus_model::spec::{DirectiveChanges, DirectiveSpec};
use nexus_model::subject::{ConnectionSubject, DirectiveSubject};
use uuid::Uuid;

const MAX_SHOWN: u32 = 200;
/// Answers that the list shows.
const LATEST: usize = 5;
const MINUTE_MS: u64 = 60_000;

/// Shows what waits, the soonest end first, and the last answers.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    visit.demand("listApprovals")?;
    let (app, now) = (&visit.context.app, visit.now());
    let page_of = |limit| Page { before: None, limit };
    let waiting = waiting(visit).await?;
    let newest = app.store.directive_lines(visit.account, None, page_of(1)).await?;
    let latest = app.store.approvals(visit.account, true, page_of(50), now).await?;
    let over: Vec<Approval> =
        latest.into_iter().filter(|one| one.state != ApprovalState::Pending).take(LATEST).collect();
    Ok(page(StatusCode::OK, visit.frame("Approvals", Section::Approvals), |html| {
        html.raw("<h1>Approvals</h1>");
        parts::news(html, &newest, &waiting);
        html.leaf("h2", &[], &format!("Pending {}", waiting.len()));
        if waiting.is_empty() {
            parts::empty(html, "Nothing waits for you.", None);
        } else {
            table(html, "Requests that wait for an answer, the soonest end first", &waiting, now);
        }
        html.raw("<h2>Answered last</h2>");
        if over.is_empty() {
            parts::empty(html, "No request was answered yet.", None);
        } else {
            table(html, "Requests that were answered or are over", &over, now);
        }
        parts::same_command(html, "nexus approvals ls --fleet");
    }))
}

/// Returns the requests that wait for an answer; none for a key that may not see them.
pub async fn waiting(visit: &Visit) -> Result<Vec<Approval>, Problem> {
    if !visit.may("listApprovals") {
        return Ok(Vec::new());
    }
    let wanted = Page { before: None, limit: MAX_SHOWN };
    let mut found = visit.context.app.store.approvals(visit.account, false, wanted, visit.now()).await?;
    found.retain(|one| one.state == ApprovalState::Pending);
    Ok(found)
}

/// Writes a list of approvals.
pub fn table(html: &mut Html, caption: &str, approvals: &[Approval], now: i64) {
    html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards")]);
    html.leaf("caption", &[], caption);
    html.raw("<thead><tr><th scope=\"col\">State</th><th scope=\"col\">Request</th><th scope=\"col\">Command</th>");
    html.raw("<th scope=\"col\">Asked</th><th scope=\"col\">Ends</th></tr></thead><tbody>");
    for one in approvals {
        html.open("tr", &[("data-row", "")]).raw("<td class=\"num\">");
        parts::approval_state(html, one.state);
        html.raw("</td><td class=\"num\">");
        let id = one.approval_id.to_string();
        let link = [("class", "row-link mono"), ("href", &*format!("/approvals/{id}")), ("title", &id)];
        html.leaf("a", &link, id.get(24..).unwrap_or(&id)).raw("</td>");
        let command = one.asks["spec"]["command"].as_str().unwrap_or_default();
        let what = match one.asks["connection"]["destination"].as_str() {
            Some(destination) => format!("connect {destination}: {command}"),
            None => command.to_owned(),
        };
        html.leaf("td", &[("class", "cmd")], &parts::short(&what)).raw("<td class=\"num\">");
        parts::time(html, one.asked_at.0, now);
        html.raw("</td>").leaf("td", &[("class", "num")], &ends(one, now)).raw("</tr>");
    }
    html.raw("</tbody></table></div>");
}

fn ends(one: &Approval, now: i64) -> String {
    match one.state {
        ApprovalState::Pending | ApprovalState::Granted => format!("in {}", parts::span(one.expires_at.0 - now)),
        _ => "over".to_owned(),
    }
}

/// The act that an approval is for.
enum Asked {
    /// The start of a directive.
    Start(DirectiveSubject),
    /// A connection of one that runs.
    Connection(ConnectionAsks),
}

impl Asked {
    fn spec(&self) -> &DirectiveSpec {
        match self {
            Self::Start(asks) => &asks.spec,
            Self::Connection(asks) => &asks.spec,
        }
    }

    fn connection(&self) -> Option<&ConnectionSubject> {
        match self {
            Self::Start(_) => None,
            Self::Connection(asks) => Some(&asks.connection),
        }
    }

    fn territory(&self) -> Option<TerritoryId> {
        match self {
            Self::Start(asks) => asks.territory_id,
            Self::Connection(asks) => Some(asks.connection.territory_id),
        }
    }

    /// Reads what is asked for. A page that shows less than the hash holds would let a person approve what was not shown.
    fn of(one: &Approval) -> Option<Self> {
        if one.kind == ApprovalKind::Egress {
            return ConnectionAsks::of(one).map(Self::Connection);
        }
        let asks: DirectiveSubject = serde_json::from_value(one.asks.clone()).ok()?;
        (asks.digest() == Some(one.subject)).then_some(Self::Start(asks))
    }
}

/// Returns a destination with the only program that may reach it.
fn target(connection: &ConnectionSubject) -> String {
    let program = connection.program.as_ref().map(|program| format!(" by {program}")).unwrap_or_default();
    format!("{}{program}", connection.destination)
}

async fn load(visit: &Visit) -> Result<(Approval, Asked), Problem> {
    visit.demand("getApproval")?;
    let id: ApprovalId = visit.context.id("approval_id")?;
    let one = visit.context.app.store.approval(visit.account, id, visit.now()).await?;
    let asks = Asked::of(&one).ok_or_else(|| {
        let error = "The request was stored by another version of the server, and cannot be shown.";
        Problem::conflict("unreadable", error)
    })?;
    Ok((one, asks))
}

fn own_key(visit: &Visit) -> String {
    Uuid::from_bytes(visit.account.key).to_string()
}

fn is_own(visit: &Visit, one: &Approval) -> bool {
    one.requested_by == own_key(visit)
}

/// Shows one approval.
pub async fn one(visit: &Visit) -> Result<Answer, Problem> {
    let (one, asks) = load(visit).await?;
    let now = visit.now();
    let mut answers = Html::default();
    write_answers(visit, &one, &asks, &mut answers)?;
    let id = one.approval_id.to_string();
    let title = format!("Approval {}", id.get(24..).unwrap_or(&id));
    Ok(page(StatusCode::OK, visit.frame(&title, Section::Approvals), |html| {
        html.open("div", &[("class", "head")]);
        html.leaf("h1", &[("class", "mono"), ("title", &id)], id.get(24..).unwrap_or(&id));
        parts::approval_state(html, one.state);
        html.leaf("span", &[("id", "ends")], &format!("ends {}", ends(&one, now))).raw("</div>");
        if let Some(connection) = asks.connection() {
            html.raw("<p id=\"connects\">A connection waits: <code>").text(&target(connection)).raw("</code></p>");
        }
        five(html, &asks);
        rest(html, &one, &asks, now);
        html.add(&answers);
        parts::same_command(html, &format!("nexus approvals show --fleet {id}"));
    }))
}

/// Writes the five things: command, directory, paths, network, secrets.
fn five(html: &mut Html, asks: &Asked) {
    let spec = asks.spec();
    html.raw("<ol class=\"five\" id=\"five\" tabindex=\"-1\" aria-label=\"What is asked for\">");
    html.raw("<li><h2>Command</h2>");
    let attributes = [("class", "command"), ("aria-label", "Command"), ("tabindex", "0")];
    html.leaf("code", &attributes, &spec.command);
    html.raw("<p class=\"muted\">run by ").leaf("code", &[], &format!("{} -c", spec.shell)).raw("</p></li>");
    html.raw("<li><h2>Directory</h2>").leaf("code", &[], spec.cwd.as_deref().unwrap_or("/workspace")).raw("</li>");
    html.raw("<li><h2>Paths</h2>");
    let fs = &spec.capabilities.fs;
    let changes = match spec.changes.unwrap_or_default() {
        DirectiveChanges::Commit => "Changes become part of the facility.",
        DirectiveChanges::Discard => "Changes are thrown away.",
    };
    let lists = [("read", &fs.read), ("write", &fs.write), ("write on the host", &fs.writable_roots)];
    html.raw("<ul>");
    for (verb, paths) in lists {
        for path in paths {
            html.element("li", &[], |html| {
                html.text(verb).raw(" ").leaf("code", &[], path);
            });
        }
    }
    for path in &fs.read_only_subpaths {
        html.raw("<li>read only ").leaf("code", &[], path).raw("</li>");
    }
    if fs.read.is_empty() && fs.write.is_empty() {
        html.raw("<li>read and write the whole workspace</li>");
    }
    html.raw("</ul>").leaf("p", &[], changes).raw("</li><li><h2>Network</h2>");
    let net = &spec.capabilities.net;
    let mode = serde_json::json!(net.mode).as_str().unwrap_or_default().to_owned();
    if let Some(connection) = asks.connection() {
        html.raw("<p>asks for <code id=\"destination\">").text(&target(connection)).raw("</code>, and has:</p>");
    }
    html.leaf("p", &[], &mode);
    if let Some(allow) = net.allow.as_ref().filter(|allow| !allow.is_empty()) {
        html.raw("<ul>");
        for destination in allow {
            html.raw("<li>+ ").leaf("code", &[], destination).raw("</li>");
        }
        html.raw("</ul>");
    }
    html.raw("</li><li><h2>Secrets</h2>");
    let secrets = spec.capabilities.secrets.join(", ");
    html.leaf("code", &[], if secrets.is_empty() { "none" } else { &secrets }).raw("</li></ol>");
}

/// Writes everything else that the hash holds, and who asks why.
fn rest(html: &mut Html, one: &Approval, asks: &Asked, now: i64) {
    let spec = asks.spec();
    html.raw("<dl>");
    let mut fact = |term: &'static str, value: &str| {
        html.leaf("dt", &[], term).leaf("dd", &[], value);
    };
    for (name, value) in &spec.capabilities.env {
        fact("Variable", &format!("{name}={value}"));
    }
    fact("Facility", &spec.facility.id.to_string());
    if let Some(repository) = &spec.facility.repo_url {
        fact("Repository", repository);
    }
    let place = asks.territory().map_or_else(|| "any with these labels".to_owned(), |id| id.to_string());
    fact("Territory", &place);
    if let Asked::Start(asks) = asks
        && !asks.labels.is_empty()
    {
        let labels: Vec<String> = asks.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        fact("Labels", &labels.join(", "));
    }
    fact("Isolation", spec.sandbox_profile.name());
    let json = |value: serde_json::Value| value.to_string();
    fact(
        "Limits",
        &format!("{}, timeout {} s", json(serde_json::json!(spec.limits)), spec.timeout_seconds.unwrap_or(0)),
    );
    fact("Artifacts", &json(serde_json::json!(spec.artifacts)));
    fact(
        "Demands",
        &format!("{} {}", json(serde_json::json!(spec.requirements)), json(serde_json::json!(spec.runtime))),
    );
    fact("Network rules", &json(serde_json::json!(spec.capabilities.net)));
    for reason in &one.reasons {
        fact("Because", reason);
    }
    fact("Asked by", &format!("key {}", one.requested_by));
    let uses = if asks.connection().is_some() { "Connections" } else { "Starts" };
    fact(uses, &format!("{} of {} left", one.uses_left, one.max_uses));
    if one.quorum > 1 {
        fact("Answers", &format!("{} of {} keys have approved it", one.approved_by.len(), one.quorum));
    }
    for key in &one.approved_by {
        fact("Approved by", &format!("key {key}"));
    }
    if let Some(key) = &one.denied_by {
        fact("Refused by", &format!("key {key}"));
    }
    if let Some(comment) = &one.comment {
        fact("Comment", comment);
    }
    fact("Hash", &one.subject.to_string());
    html.raw("<dt>Asked</dt><dd>");
    parts::time(html, one.asked_at.0, now);
    let directive = one.directive_id.to_string();
    html.raw("</dd><dt>Directive</dt><dd>");
    html.leaf("a", &[("class", "mono"), ("href", &format!("/directives/{directive}"))], &directive).raw("</dd></dl>");
}

fn write_answers(visit: &Visit, one: &Approval, asks: &Asked, html: &mut Html) -> Result<(), Problem> {
    let can_take_back = matches!(one.state, ApprovalState::Pending | ApprovalState::Granted);
    if !visit.may("approveDirective") || !can_take_back {
        return Ok(());
    }
    let place = format!("/approvals/{}", one.approval_id);
    let subject = one.subject.to_string();
    let hidden = [("type", "hidden"), ("name", "subject"), ("value", subject.as_str())];
    html.raw("<h2>Answer</h2>");
    if one.state == ApprovalState::Pending && is_own(visit, one) {
        html.raw("<p id=\"own\" class=\"s-wait\">Your key has asked for this. Another key has to answer.</p>");
    } else if one.state == ApprovalState::Pending && one.approved_by.contains(&own_key(visit)) {
        html.raw("<p id=\"answered\" class=\"s-wait\">Your key has approved this. Another key has to answer.</p>");
    } else if one.state == ApprovalState::Pending {
        visit.form(html, &format!("{place}/approve"), "answer")?;
        html.open("input", &hidden);
        if let Some(connection) = asks.connection() {
            write_scopes(html, connection);
            html.raw("</form>");
            write_refusal(visit, one, asks, &hidden, html)?;
            return Ok(());
        }
        let most = one.max_uses.to_string();
        html.raw("<label>Starts ");
        let uses =
            [("type", "number"), ("name", "uses"), ("min", "1"), ("max", most.as_str()), ("value", most.as_str())];
        html.open("input", &uses).raw("</label><label>Within minutes ");
        let minutes = (one.expires_at.0 - visit.now()).max(0) / 60_000;
        let minutes = minutes.max(1).to_string();
        let within = [
            ("type", "number"),
            ("name", "minutes"),
            ("min", "1"),
            ("max", minutes.as_str()),
            ("value", minutes.as_str()),
        ];
        html.open("input", &within).raw("</label><label>Comment ");
        html.open("input", &[("type", "text"), ("name", "comment"), ("maxlength", "1000")]);
        html.raw("</label><button class=\"primary\" id=\"approve\">Approve exactly this</button></form>");
    }
    write_refusal(visit, one, asks, &hidden, html)
}

/// Writes the answers to a connection that waits: this one, or each one to the destination while the directive runs.
fn write_scopes(html: &mut Html, connection: &ConnectionSubject) {
    html.raw("<label><input type=\"radio\" name=\"scope\" value=\"once\" checked> Once: this connection</label>");
    html.raw("<label><input type=\"radio\" name=\"scope\" value=\"directive\"> This directive: each connection to it, until it is over</label>");
    html.raw("<label>Comment ");
    html.open("input", &[("type", "text"), ("name", "comment"), ("maxlength", "1000")]);
    html.raw("</label><button class=\"primary\" id=\"approve\">Approve exactly this: ");
    html.text(&connection.destination).raw("</button>");
}

fn write_refusal(
    visit: &Visit,
    one: &Approval,
    asks: &Asked,
    hidden: &[Attribute<'_>],
    html: &mut Html,
) -> Result<(), Problem> {
    html.raw("<details class=\"confirm\"><summary id=\"deny\">");
    html.raw(if one.state == ApprovalState::Pending { "Refuse" } else { "Take back" }).raw("</summary>");
    visit.form(html, &format!("/approvals/{}/deny", one.approval_id), "")?;
    html.open("input", hidden);
    html.raw(match asks {
        Asked::Start(_) => {
            "<p>The directive does not start, and cannot be approved later.</p>\
             <button class=\"danger\">Refuse this directive</button>"
        }
        Asked::Connection(_) => {
            "<p>The command hears no, and this directive does not ask about the destination again.</p>\
             <button class=\"danger\">Refuse this connection</button>"
        }
    });
    html.raw("</form></details>");
    Ok(())
}

/// Approves what the page has shown.
pub async fn approve(visit: &Visit) -> Result<Answer, Problem> {
    visit.demand("approveDirective")?;
    let number = |name: &'static str| -> Result<Option<u64>, Problem> {
        let given = visit.field(name).map(str::trim).filter(|text| !text.is_empty());
        let read = |text: &str| text.parse::<u64>().ok().filter(|number| (1..=1_000_000).contains(number));
        match given.map(read) {
            None => Ok(None),
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => Err(Problem::invalid("invalid_field", format!("{name} must be a number from 1."))),
        }
    };
    let max_uses = number("uses")?.and_then(|uses| u32::try_from(uses).ok());
    let expires_in_ms = number("minutes")?.map(|minutes| minutes * MINUTE_MS);
    let whole_directive = visit.field("scope") == Some("directive");
    answer(visit, Some(Allow { max_uses, whole_directive, expires_in_ms })).await
}

/// Refuses it, or takes an approval back.
pub async fn deny(visit: &Visit) -> Result<Answer, Problem> {
    visit.demand("rejectDirective")?;
    answer(visit, None).await
}

async fn answer(visit: &Visit, allow: Option<Allow>) -> Result<Answer, Problem> {
    let app = &visit.context.app;
    let id: ApprovalId = visit.context.id("approval_id")?;
    let one = app.store.approval(visit.account, id, visit.now()).await?;
    let subject: Option<Digest> = visit.field("subject").and_then(|text| text.parse().ok());
    let subject =
        subject.ok_or_else(|| Problem::invalid("invalid_field", "The form does not say what it is about."))?;
    let comment = visit.field("comment").map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    give_answer(app, visit.account, &one, ApprovalAnswer { allow, subject: Some(subject), comment }).await?;
    Ok(lead_to(&format!("/approvals/{id}")))
}
