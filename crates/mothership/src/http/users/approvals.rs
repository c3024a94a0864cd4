//! Handlers of approvals: list, read, approve, refuse.

use crate::app::App;
use crate::http::answer::{Answer, Problem, ok};
use crate::http::cursor;
use crate::http::request::Context;
use crate::store::types::{Account, Allow, ApprovalAnswer, NotAnswered};
use axum::http::StatusCode;
use nexus_api::mothership::{Approval, ApprovalList, ApproveRequest, DirectiveStateAnswer, RejectRequest};
use nexus_model::approval::{ApprovalKind, ApprovalRefusal};
use nexus_model::ids::{ApprovalId, DirectiveId};

/// Longest comment, in characters.
pub const MAX_COMMENT: usize = 1_000;
const MAX_SECONDS: u64 = 7 * 86_400;

/// Lists approvals of the account.
pub async fn list(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let account = context.account()?;
    let all = match context.parameter("all").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", "all must be true or false."));
        }
    };
    // The lists have different orders: a cursor of the one is none of the other.
    let list = if all { "approvals" } else { "live_approvals" };
    let page = cursor::page(context, account, list)?;
    let approvals = app.store.approvals(account, all, page, app.now()).await?;
    let last = approvals.last().filter(|_| approvals.len() == page.limit as usize);
    let next_cursor = last.map(|last| cursor::write(&app.cursors, account, list, last.approval_id.as_bytes()));
    Ok(ok(&ApprovalList { approvals, next_cursor }))
}

/// Returns one approval.
pub async fn get(context: &Context) -> Result<Answer, Problem> {
    let id: ApprovalId = context.id("approval_id")?;
    Ok(ok(&context.app.store.approval(context.account()?, id, context.app.now()).await?))
}

/// Approves a directive, or a connection of it.
pub async fn approve(context: &Context) -> Result<Answer, Problem> {
    let id: DirectiveId = context.id("directive_id")?;
    let request: ApproveRequest = context.json()?;
    let whole_directive = match (request.scope.as_deref(), request.approval_id) {
        (None | Some("once"), _) => false,
        (Some("directive"), Some(_)) => true,
        _ => {
            let error = "The scope must be once, or directive where approval_id names a connection.";
            return Err(Problem::invalid("unavailable", error));
        }
    };
    if request.max_uses == Some(0) || request.expires_in.is_some_and(|seconds| !(1..=MAX_SECONDS).contains(&seconds)) {
        let error = format!("max_uses must be at least 1, and expires_in 1 to {MAX_SECONDS}.");
        return Err(Problem::invalid("invalid_field", error));
    }
    let expires_in_ms = request.expires_in.map(|seconds| seconds * 1000);
    let allow = Allow { max_uses: request.max_uses, whole_directive, expires_in_ms };
    let answer = ApprovalAnswer { allow: Some(allow), subject: request.subject, comment: request.comment };
    answered(&context.app, context.account()?, (id, request.approval_id), answer).await
}

/// Refuses a directive, or takes its approval back.
pub async fn reject(context: &Context) -> Result<Answer, Problem> {
    let id: DirectiveId = context.id("directive_id")?;
    let request: RejectRequest = context.json()?;
    let answer = ApprovalAnswer { allow: None, subject: None, comment: request.comment };
    answered(&context.app, context.account()?, (id, request.approval_id), answer).await
}

async fn answered(
    app: &App,
    account: Account,
    (id, approval): (DirectiveId, Option<ApprovalId>),
    answer: ApprovalAnswer,
) -> Result<Answer, Problem> {
    match approval {
        None => give(app, account, id, answer).await?,
        Some(approval) => {
            let known = app.store.approval(account, approval, app.now()).await?;
            if known.directive_id != id {
                return Err(Problem::not_found());
            }
            give_to(app, account, &known, answer).await?;
        }
    }
    let now = app.store.directive(account, id, app.config.times, app.now()).await?;
    Ok(ok(&DirectiveStateAnswer { directive_id: id, state: now.state, cancel_requested: now.cancel_requested }))
}

fn check_comment(answer: &ApprovalAnswer) -> Result<(), Problem> {
    if answer.comment.as_ref().is_some_and(|text| text.chars().count() > MAX_COMMENT) {
        return Err(Problem::invalid("invalid_field", format!("comment must have at most {MAX_COMMENT} characters.")));
    }
    Ok(())
}

/// Gives an answer to an approval, of a directive or of a connection. The console comes here too.
pub async fn give_to(app: &App, account: Account, to: &Approval, answer: ApprovalAnswer) -> Result<(), Problem> {
    if to.kind != ApprovalKind::Egress {
        return give(app, account, to.directive_id, answer).await;
    }
    check_comment(&answer)?;
    match app.store.answer_connection(account, to.directive_id, to.approval_id, answer, app.now()).await? {
        Ok(_) => {
            app.changed(to.directive_id);
            Ok(())
        }
        Err(refused) => Err(problem(refused)),
    }
}

/// Gives an answer to the approval of a directive.
async fn give(app: &App, account: Account, id: DirectiveId, answer: ApprovalAnswer) -> Result<(), Problem> {
    check_comment(&answer)?;
    match app.store.answer_approval(account, id, answer, app.now()).await? {
        Ok(lane) => {
            app.changed(id);
            app.wake(&lane);
            Ok(())
        }
        Err(refused) => Err(problem(refused)),
    }
}

fn problem(refused: NotAnswered) -> Problem {
    match refused {
        NotAnswered::NotAsked => Problem::conflict("not_asked", "The directive needs no approval."),
        NotAnswered::OtherSubject => {
            Problem::conflict("other_subject", "The answer is about something else than what is asked for.")
                .hint("Look at it again.")
        }
        NotAnswered::Refused(ApprovalRefusal::OwnRequest) => Problem::new(
            StatusCode::FORBIDDEN,
            ApprovalRefusal::OwnRequest.code(),
            "Who asks for an approval does not answer it. Answer with another API key.",
        ),
        NotAnswered::Refused(ApprovalRefusal::Bounds) => {
            Problem::invalid("invalid_field", "max_uses and expires_in must be above 0.")
        }
        NotAnswered::Refused(refusal) => {
            Problem::conflict(refusal.code(), format!("The answer comes too late: {refusal}."))
        }
    }
}
