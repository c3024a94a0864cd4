//! One directive: its state, its output as it comes, its connections; what it changed and its receipt have files of their own.

use super::{approvals, changes, parts, receipt};
use crate::console::html::Html;
use crate::console::log::{self, MAX_ROWS, Place, Rows, Source, Window};
use crate::console::search::{self, Needle};
use crate::console::shell::{Section, fragment, lead_to, page};
use crate::console::visit::Visit;
use crate::http::{Answer, Problem, bytes_answer};
use crate::store::types::{ChunkBytes, ChunkQuery, Snapshot};
use crate::{app::App, blobs::BlobId};
use axum::http::{HeaderValue, StatusCode, header};
use nexus_api::conduits::Stream;
use nexus_api::mothership::Directive;
use nexus_model::directive::State;
use nexus_model::ids::DirectiveId;
use serde_json::Value;
use url::form_urlencoded;

/// Bytes of output in one answer of the raw view.
const MAX_RAW: usize = 2 * 1024 * 1024;

const VIEWS: [(&str, &str); 5] =
    [("log", "Log"), ("egress", "Egress"), ("changes", "Changes"), ("receipt", "Receipt"), ("spec", "Spec")];

/// Returns the id of the approval that the directive or a connection of it waits for, where the key may see it.
async fn asked(visit: &Visit, one: &Directive) -> Result<Option<String>, Problem> {
    if one.state == State::Running {
        let mut waiting = approvals::waiting(visit).await?.into_iter();
        let first = waiting.find(|approval| approval.directive_id == one.directive_id);
        return Ok(first.map(|approval| approval.approval_id.to_string()));
    }
    if one.state != State::AwaitingApproval || !visit.may("getApproval") {
        return Ok(None);
    }
    let approval = visit.context.app.store.approval_of(visit.account, one.directive_id, visit.now()).await?;
    Ok(approval.map(|approval| approval.approval_id.to_string()))
}

async fn load(visit: &Visit) -> Result<(Directive, Snapshot), Problem> {
    let app = &visit.context.app;
    let id: DirectiveId = visit.context.id("directive_id")?;
    let snapshot = app.store.snapshot(visit.account, id, visit.now()).await?;
    Ok((app.store.directive(visit.account, id, app.config.times, visit.now()).await?, snapshot))
}

/// Numbers up to which the streams are whole, while there may be more.
fn upto(snapshot: &Snapshot) -> Option<[i64; 2]> {
    let event = &snapshot.event;
    (!event.state.is_terminal()).then_some([event.stdout_next_seq, event.stderr_next_seq])
}

/// Shows the page.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    let (one, snapshot) = load(visit).await?;
    let wanted = visit.context.parameter("view");
    let view = VIEWS.iter().map(|(name, _)| *name).find(|name| Some(*name) == wanted.as_deref()).unwrap_or("log");
    let mut content = Html::default();
    let decisions = decisions(visit, &one).await?;
    let needle = visit.context.parameter("find");
    match view {
        "log" => match Needle::read(needle.as_deref()) {
            Some(needle) => matches(visit, &one, &snapshot, &needle, &mut content).await?,
            None => output(visit, &one, &snapshot, &mut content).await?,
        },
        "egress" => egress(&one, &decisions, &mut content),
        "changes" => changes::write(visit, &one, &mut content).await?,
        "receipt" => receipt::write(visit, &one, &mut content).await?,
        _ => spec(&one, &mut content),
    }
    let mut top = Html::default();
    write_head(visit, &one, asked(visit, &one).await?.as_deref(), &mut top)?;
    let id = one.directive_id.to_string();
    let title = format!("Directive {}", id.get(24..).unwrap_or(&id));
    Ok(page(StatusCode::OK, visit.frame(&title, Section::Directives), |html| {
        html.add(&top);
        html.leaf("code", &[("class", "command"), ("aria-label", "Command"), ("tabindex", "0")], &one.command);
        html.element("nav", &[("class", "tabs"), ("aria-label", "Views")], |html| {
            for (name, word) in VIEWS {
                let here = [("href", &*format!("?view={name}")), ("aria-current", "page")];
                let word = if name == "egress" { connections(&decisions) } else { word.to_owned() };
                html.leaf("a", if name == view { &here } else { &here[..1] }, &word);
            }
        });
        html.add(&content);
        parts::same_command(html, &format!("nexus directive logs -f {id}"));
    }))
}

fn write_head(visit: &Visit, one: &Directive, asked: Option<&str>, html: &mut Html) -> Result<(), Problem> {
    let now = visit.now();
    let id = one.directive_id.to_string();
    let source = format!("/directives/{id}/head");
    html.open("div", &[("id", "head"), ("data-source", &source)]).raw("<div class=\"head\">");
    html.leaf("h1", &[("class", "mono"), ("title", &id)], id.get(24..).unwrap_or(&id));
    parts::state(html, one.state);
    if let Some(reason) = one.reason.as_ref().filter(|reason| *reason != "exit") {
        html.leaf("span", &[("id", "reason")], reason);
    }
    if let Some(code) = one.exit_code {
        html.leaf("span", &[], &format!("exit {code}"));
    }
    let span = |from: i64, to: i64| parts::span(to - from);
    match (one.started_at, one.ended_at) {
        (Some(started), Some(ended)) => html.text(&format!("took {}", span(started.0, ended.0))),
        (Some(started), None) => html.text(&format!("for {}", span(started.0, now))),
        (None, None) => html.text(&format!("waits for {}", span(one.created_at.0, now))),
        (None, Some(_)) => html.text("never started"),
    };
    if !one.state.is_terminal() && visit.may("cancelDirective") {
        if one.cancel_requested {
            html.raw("<span class=\"s-wait end\">End requested</span>");
        } else {
            html.raw("<details class=\"confirm end\"><summary id=\"cancel\">Cancel</summary>");
            visit.form(html, &format!("/directives/{id}/cancel"), "")?;
            html.raw("<p>The command gets SIGTERM, and SIGKILL 10 seconds later. What it changed is kept as its rules say.</p>");
            html.raw("<button class=\"danger\">End this directive</button></form></details>");
        }
    }
    html.raw("</div>");
    if let Some(asked) = asked {
        let is_running = one.state == State::Running;
        html.raw("<p class=\"s-wait\">");
        html.raw(if is_running { "A connection waits for a person: " } else { "A person has to approve it: " });
        html.leaf("a", &[("id", "asked"), ("href", &format!("/approvals/{asked}"))], "the request").raw("</p>");
    }
    if let Some(because) = &one.queued_because {
        html.leaf("p", &[("class", "s-wait")], because);
    }
    html.raw("<dl>");
    let facility = one.facility_id.to_string();
    html.raw("<dt>Facility</dt><dd>");
    html.leaf("a", &[("class", "mono"), ("href", &format!("/directives?facility={facility}"))], &facility).raw("</dd>");
    if let Some(territory) = one.territory_id.map(|id| id.to_string()) {
        html.raw("<dt>Territory</dt><dd>");
        html.leaf("a", &[("class", "mono"), ("href", &format!("/territories/{territory}"))], &territory).raw("</dd>");
    }
    html.raw("<dt>Created</dt><dd>");
    parts::time(html, one.created_at.0, now);
    html.raw("</dd>");
    if one.attempt > 1 {
        html.raw("<dt>Attempt</dt>").leaf("dd", &[], &one.attempt.to_string());
    }
    html.raw("</dl></div>");
    Ok(())
}

/// Returns the upper part of the page alone.
pub async fn head(visit: &Visit) -> Result<Answer, Problem> {
    let (one, _) = load(visit).await?;
    let mut html = Html::default();
    write_head(visit, &one, asked(visit, &one).await?.as_deref(), &mut html)?;
    Ok(fragment(StatusCode::OK, html))
}

fn source(visit: &Visit, id: DirectiveId) -> Source<'_> {
    Source { app: &visit.context.app, account: visit.account, id }
}

fn find_form(html: &mut Html, text: &str) {
    html.raw("<form method=\"get\" class=\"row\"><input type=\"hidden\" name=\"view\" value=\"log\"><label for=\"filter\">find</label>");
    let most = search::MAX_TEXT.to_string();
    let input = [("id", "filter"), ("name", "find"), ("type", "text"), ("value", text), ("maxlength", &most)];
    html.open("input", &input).raw("<button>Find</button></form>");
}

fn raw_links(html: &mut Html, id: DirectiveId) {
    html.raw("<span class=\"end\">Raw: ");
    for (stream, word) in [("stdout", "out"), ("stderr", "err")] {
        html.leaf("a", &[("href", &format!("/directives/{id}/raw?stream={stream}"))], word).raw(" ");
    }
    html.raw("</span>");
}

/// Shows the lines that have a text, each with a link to its place, and how many there are.
async fn matches(
    visit: &Visit,
    one: &Directive,
    snapshot: &Snapshot,
    needle: &Needle,
    html: &mut Html,
) -> Result<(), Problem> {
    let skip = visit.context.number("skip", 0, 0, i64::from(u32::MAX))? as usize;
    let id = one.directive_id;
    let found = search::find(source(visit, id), upto(snapshot), needle, skip).await?;
    html.raw("<div class=\"bar\">");
    find_form(html, needle.text());
    html.element("span", &[("id", "found"), ("role", "status")], |html| {
        let first = if found.rows.is_empty() { 0 } else { skip + 1 };
        html.text(&format!("{first} to {} of {} lines", skip + found.rows.len(), found.count));
        html.text(if found.is_cut { ", in the part of the output that a search reads" } else { "" });
    });
    html.raw("<a href=\"?view=log\">All output</a>");
    raw_links(html, id);
    html.raw("</div>");
    let attributes = [
        ("class", "log"),
        ("id", "log"),
        ("role", "region"),
        ("tabindex", "0"),
        ("aria-label", "Lines that have the text"),
    ];
    html.open("div", &attributes);
    log::write(&found.rows, html, one.started_at.map(|at| at.0), " hit");
    if found.rows.is_empty() {
        html.raw("<p class=\"muted l\">No line has this text. <a href=\"?view=log\">Show all output</a></p>");
    }
    html.raw("</div><div class=\"bar\">");
    if skip + found.rows.len() < found.count {
        let mut link = form_urlencoded::Serializer::new("?view=log&".to_owned());
        link.append_pair("find", needle.text()).append_pair("skip", &(skip + MAX_ROWS).to_string());
        html.leaf("a", &[("class", "button"), ("href", &link.finish())], "Next");
    }
    if !one.state.is_terminal() {
        html.raw("<span class=\"muted\">The directive goes on: load the page again for what came since.</span>");
    }
    html.raw("</div>");
    Ok(())
}

async fn output(visit: &Visit, one: &Directive, snapshot: &Snapshot, html: &mut Html) -> Result<(), Problem> {
    let from = match visit.context.parameter("from").as_deref() {
        None => None,
        Some("start") => Some(log::START),
        Some(text) => Some(text.parse::<Place>().map_err(|()| {
            Problem::new(StatusCode::BAD_REQUEST, "invalid_query", "from must be start, or a place such as o4.1-e0.1.")
        })?),
    };
    let next = [snapshot.event.stdout_next_seq, snapshot.event.stderr_next_seq];
    let (place, keep) = from.map_or_else(|| (Place::near_end(next), Window::Last), |from| (from, Window::First));
    let rows = log::read(source(visit, one.directive_id), place, upto(snapshot), keep).await?;
    let id = one.directive_id;
    let (live, over) = (!one.state.is_terminal(), one.state.is_terminal());
    let cut = rows.left_out > 0 || (from.is_none() && place != log::START);
    html.raw("<div class=\"bar\">");
    find_form(html, "");
    html.raw("<label><input type=\"checkbox\" id=\"wrap\"> wrap</label>");
    html.raw("<label><input type=\"checkbox\" id=\"times\" checked> times</label>");
    if live {
        html.raw("<label><input type=\"checkbox\" id=\"follow\"");
        html.raw(if from.is_none() { " checked" } else { "" }).raw("> follow</label>");
    }
    if cut || from.is_some() {
        html.raw("<a href=\"?view=log&amp;from=start\">Start</a>");
    }
    if from.is_some() {
        html.raw("<a href=\"?view=log\">End</a>");
    }
    raw_links(html, id);
    html.raw("</div>");
    let (source, events) = (format!("/directives/{id}/log"), format!("/directives/{id}/events"));
    let after = rows.after.to_string();
    let mut attributes = vec![
        ("class", "log"),
        ("id", "log"),
        ("role", "region"),
        ("tabindex", "0"),
        ("aria-label", "Output of the command"),
        ("data-source", source.as_str()),
        ("data-after", after.as_str()),
    ];
    if live && !(from.is_some() && rows.more) {
        attributes.push(("data-events", events.as_str()));
    }
    html.open("div", &attributes);
    if cut {
        html.raw("<p class=\"muted l\">Earlier output is not shown here.</p>");
    }
    rows.write(html, one.started_at.map(|at| at.0));
    if rows.is_empty() {
        html.leaf("p", &[("class", "muted l"), ("id", "none")], nothing(one.state));
    }
    html.raw("</div><div class=\"bar\">");
    if live {
        html.raw("<span id=\"live\" class=\"live\" data-state=\"lost\">not live: load the page again for more</span>");
        html.raw("<button type=\"button\" id=\"fresh\" hidden><span>0</span>&nbsp;new: go to the end</button>");
        html.raw("<span id=\"polite\" class=\"muted\" role=\"status\"></span>");
    }
    if over && from.is_none() {
        html.raw("<span class=\"muted\">The output is whole up to here.</span>");
    }
    if rows.more && from.is_some() {
        let link = format!("?view=log&from={}", rows.after);
        html.leaf("a", &[("class", "button"), ("href", &link)], "Next");
    }
    if one.stdout_truncated || one.stderr_truncated {
        html.raw("<strong class=\"s-wait\">Output is missing: it was cut, or a piece was lost.</strong>");
    }
    html.raw("</div>");
    Ok(())
}

/// Returns the text in place of an empty log.
fn nothing(state: State) -> &'static str {
    match state {
        State::AwaitingApproval => "No output yet: a person has to approve the directive.",
        State::Queued => "No output yet: the directive waits for a territory.",
        State::Leased => "No output yet: a territory prepares the directive.",
        State::Running => "No output yet.",
        _ => "The command wrote nothing.",
    }
}

/// Returns the rows after a place, as a piece of the page.
pub async fn log(visit: &Visit) -> Result<Answer, Problem> {
    let place = visit.context.parameter("after").unwrap_or_default().parse::<Place>();
    let place = place.map_err(|()| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_query", "after must be a place such as o4.1-e0.1.")
    })?;
    let id: DirectiveId = visit.context.id("directive_id")?;
    // The state is read before the output: an end is never shown without the output before it.
    let (one, snapshot) = load(visit).await?;
    let source = source(visit, id);
    // Who follows much output wants its end; who reads gets every line.
    let rows: Rows = if visit.context.parameter("tail").is_some() {
        let next = [snapshot.event.stdout_next_seq, snapshot.event.stderr_next_seq];
        search::read_end(source, place, next, !snapshot.event.state.is_terminal()).await?
    } else {
        log::read(source, place, upto(&snapshot), Window::First).await?
    };
    let mut html = Html::default();
    let yes = |is: bool| if is { "yes" } else { "no" };
    let after = rows.after.to_string();
    let over = snapshot.event.state.is_terminal();
    html.open("div", &[("data-after", &after), ("data-more", yes(rows.more)), ("data-over", yes(over))]);
    rows.write(&mut html, one.started_at.map(|at| at.0));
    html.close("div");
    Ok(fragment(StatusCode::OK, html))
}

/// Returns bytes of one stream as a file, from a chunk on. A browser never shows them as a page.
pub async fn raw(visit: &Visit) -> Result<Answer, Problem> {
    let app = &visit.context.app;
    let id: DirectiveId = visit.context.id("directive_id")?;
    let (stream, name) = match visit.context.parameter("stream").as_deref() {
        None | Some("stdout") => (Stream::Stdout, "stdout"),
        Some("stderr") => (Stream::Stderr, "stderr"),
        Some(_) => {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", "stream must be stdout or stderr."));
        }
    };
    let bytes = all_of(app, visit, id, stream).await?;
    let mut answer = bytes_answer(StatusCode::OK, "text/plain; charset=utf-8", bytes);
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{id}.{name}.txt\"")) {
        answer.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(answer)
}

/// Bytes of one file at most; `nexus directive logs` has no such bound.
const MAX_FILE: usize = 64 * 1024 * 1024;

async fn all_of(app: &App, visit: &Visit, id: DirectiveId, stream: Stream) -> Result<Vec<u8>, Problem> {
    let (mut bytes, mut after) = (Vec::new(), -1);
    loop {
        let query = ChunkQuery { stream, after, limit: 500, max_bytes: MAX_RAW, attempt: None };
        let stored = app.store.chunks(visit.account, id, query).await?;
        let Some(last) = stored.last().map(|chunk| chunk.seq) else { return Ok(bytes) };
        after = last;
        for chunk in stored {
            match chunk.bytes {
                ChunkBytes::Here(piece) => bytes.extend(piece),
                ChunkBytes::File { account, id, offset, length } => {
                    bytes.extend(app.blobs.read(BlobId { account, id }, offset, length as usize).await?);
                }
            }
        }
        if bytes.len() > MAX_FILE {
            let error = "The output is larger than 64 MiB.";
            let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "output_too_large", error);
            return Err(problem.hint(format!("nexus directive logs {id} prints all of it.")));
        }
    }
}

/// Returns what the territory decided about connections of the directive.
async fn decisions(visit: &Visit, one: &Directive) -> Result<Vec<Value>, Problem> {
    let mut events = visit.context.app.store.events(visit.account, one.directive_id, None).await?;
    events.retain(|event| event["type"] == "egress_decision");
    Ok(events)
}

/// A decision counts as a denial unless it says that it allowed the connection.
fn is_allowed(decision: &Value) -> bool {
    decision["allowed"] == true
}

/// Returns the word of the view of connections, with how many there were.
fn connections(decisions: &[Value]) -> String {
    let denied = decisions.iter().filter(|one| !is_allowed(one)).count();
    match (decisions.len(), denied) {
        (0, _) => "Egress".to_owned(),
        (all, 0) => format!("Egress {all}"),
        (all, denied) => format!("Egress {all} ({denied} denied)"),
    }
}

fn egress(one: &Directive, decisions: &[Value], html: &mut Html) {
    if decisions.is_empty() {
        let sentence = if one.state.is_terminal() {
            "The territory reported no connection of this directive."
        } else {
            "The territory has reported no connection yet."
        };
        parts::empty(html, sentence, None);
        return;
    }
    html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards")]);
    html.leaf("caption", &[], &format!("{} decisions about connections", decisions.len()));
    html.raw("<thead><tr><th scope=\"col\">Decision</th><th scope=\"col\">Destination</th><th scope=\"col\">Code</th></tr></thead><tbody>");
    for event in decisions {
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        let (class, word) = if is_allowed(event) { ("state s-ok", "+ allowed") } else { ("state s-bad", "× denied") };
        html.raw("<tr><td class=\"num\">").leaf("span", &[("class", class)], word).raw("</td>");
        html.leaf("td", &[("class", "cmd")], text("destination"));
        html.leaf("td", &[("class", "num")], text("code")).raw("</tr>");
    }
    html.raw("</tbody></table></div>");
}

fn spec(one: &Directive, html: &mut Html) {
    html.raw("<dl>");
    html.raw("<dt>Profile</dt>").leaf("dd", &[], &serde_json::json!(one.sandbox_profile).to_string().replace('"', ""));
    html.raw("<dt>Attempt</dt>").leaf("dd", &[], &one.attempt.to_string());
    html.raw("</dl><h2>Capabilities</h2>");
    let text = one.effective_capabilities.as_ref().and_then(|value| serde_json::to_string_pretty(value).ok());
    let attributes = [("class", "untrusted"), ("tabindex", "0"), ("aria-label", "Capabilities")];
    html.leaf("pre", &attributes, &text.unwrap_or_default());
}

/// Asks for the end of the directive.
pub async fn cancel(visit: &Visit) -> Result<Answer, Problem> {
    visit.demand("cancelDirective")?;
    let app = &visit.context.app;
    let id: DirectiveId = visit.context.id("directive_id")?;
    let (_, _, lane) = app
        .store
        .cancel(visit.account, id, visit.now())
        .await?
        .map_err(|refusal| Problem::conflict(refusal.code(), format!("The cancel comes too late: {refusal}.")))?;
    app.changed(id);
    app.wake(&lane);
    Ok(lead_to(&format!("/directives/{id}")))
}
