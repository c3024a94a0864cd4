//! Connections of directives that wait for a person.

use super::report::accepted;
use crate::http::answer::{Answer, Problem, ok};
use crate::http::request::Context;
use crate::store::types::NewConnection;
use nexus_api::conduits::{ConnectionAnswer, ConnectionRequest, MAX_DESTINATION, MAX_PROGRAM, MAX_USE};
use nexus_model::capability::MAX_ASK_SECONDS;
use nexus_policy::document::{Act, Answer as PolicyAnswer, Destination, Effective, Question};
use nexus_policy::net::{Host, Program, Target};

/// Looks for the answer about a connection, or asks for one.
pub async fn connection(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let (territory, holding) = context.holding()?;
    let request: ConnectionRequest = context.json()?;
    let policies = app.store.policies(territory.account, &app.policies).await?;
    let effective = policies.effective();
    let quorum = effective.quorum().map_or(1, |users| users.value);
    let mut new = checked(request, quorum)?;
    new.is_forbidden = forbids(effective, &new.target());
    let reported = app.store.connect(territory, holding, new, app.now()).await?;
    let now = accepted(reported, "The connection was reported before as another one.")?;
    if now.is_new {
        app.changed(holding.directive);
    }
    Ok(ok(&ConnectionAnswer {
        ok: true,
        directive_id: holding.directive,
        approval_id: now.approval_id,
        subject: now.subject,
        connection: now.connection,
        state: now.state,
        allowed: now.allowed,
        approved_by: now.approved_by,
    }))
}

/// Returns whether no answer may open this: users are not to be asked about connections, or the destination is closed. Documents may have
/// changed since the directive was claimed.
fn forbids(policies: &Effective, target: &str) -> bool {
    let is_closed = policies.answer(Act::Egress).is_some_and(|answer| answer.value == PolicyAnswer::Forbidden);
    let is_open = Destination::parse(target).is_ok_and(|to| policies.ask(&Question::Reach(to)).is_allowed());
    is_closed || !is_open
}

/// One destination has one spelling: a person is asked once about it, and is shown what would be reached.
fn checked(request: ConnectionRequest, quorum: u32) -> Result<NewConnection, Problem> {
    let refused = |error: String| Problem::invalid("invalid_field", error);
    let target = Some(&request.destination).filter(|text| text.len() <= MAX_DESTINATION);
    let target = target.and_then(|text| Target::parse(text).ok());
    let is_name = |target: &Target| matches!(target.host, Host::Name(_)) && target.to_string() == request.destination;
    if !target.as_ref().is_some_and(is_name) {
        return Err(refused("destination must be host:port, with a name in its shortest spelling.".to_owned()));
    }
    let is_plain =
        |path: &String| path.len() <= MAX_PROGRAM && Program::parse(path).is_ok_and(|one| one.suffix().is_some());
    if !request.program.as_ref().is_none_or(is_plain) {
        return Err(refused("program must be an absolute path of letters, digits and /._+-.".to_owned()));
    }
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if request.use_name.is_empty() || request.use_name.len() > MAX_USE || !request.use_name.bytes().all(is_word) {
        return Err(refused(format!("use must be 1 to {MAX_USE} letters, digits and hyphens.")));
    }
    if !(1..=MAX_ASK_SECONDS).contains(&request.wait_seconds) {
        return Err(refused(format!("wait_seconds must be 1 to {MAX_ASK_SECONDS}.")));
    }
    Ok(NewConnection {
        destination: request.destination,
        program: request.program,
        use_name: request.use_name,
        wait_ms: i64::from(request.wait_seconds) * 1000,
        gone: request.gone,
        quorum,
        is_forbidden: false,
    })
}
