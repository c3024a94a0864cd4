//! Handlers of policies: the documents in force, what they leave, and the document of the account.

use crate::decide::source;
use crate::http::answer::{Answer, Problem, ok};
use crate::http::request::Context;
use crate::store::types::{Account, NewPolicy, StoredPolicy};
use axum::http::StatusCode;
use nexus_api::Timestamp;
use nexus_api::mothership::{
    AccountPolicy, EffectivePolicy, PolicyAnswer, PolicyInfo, PolicyList, PolicyValue, PutPolicy,
};
use nexus_policy::document::{PolicySet, Question, run_cases};
use std::sync::Arc;
use uuid::Uuid;

/// Longest question, in bytes.
const MAX_QUESTION: usize = 1_000;

fn infos(set: &PolicySet) -> Vec<PolicyInfo> {
    let info = |loaded: &nexus_policy::document::LoadedPolicy| PolicyInfo {
        level: loaded.document.level.word().to_owned(),
        id: loaded.document.id.clone(),
        source: loaded.source.clone(),
        hash: loaded.hash,
        tests: u32::try_from(run_cases(loaded).len()).unwrap_or(u32::MAX),
    };
    set.documents().iter().map(info).collect()
}

fn of_account(stored: Option<StoredPolicy>) -> AccountPolicy {
    let Some(stored) = stored else {
        return AccountPolicy { generation: 0, document: None, hash: None, applied_at: None, applied_by: None };
    };
    AccountPolicy {
        generation: stored.generation,
        document: stored.document,
        hash: stored.hash,
        applied_at: Some(Timestamp(stored.at)),
        applied_by: Some(Uuid::from_bytes(stored.key).to_string()),
    }
}

async fn in_force(context: &Context, account: Account) -> Result<Answer, Problem> {
    let app = &context.app;
    let set = app.store.policies(account.id, &app.policies).await?;
    let account = of_account(app.store.stored_policy(account).await?);
    Ok(ok(&PolicyList { generation: set.hash(), documents: infos(&set), account }))
}

/// Lists the documents that count for the account.
pub async fn list(context: &Context) -> Result<Answer, Problem> {
    in_force(context, context.account()?).await
}

/// Returns what the documents leave, and the answer to a question about it.
pub async fn effective(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let account = context.account()?;
    let invalid = |why: String| Problem::new(StatusCode::BAD_REQUEST, "invalid_query", why);
    let question = match context.parameter("question") {
        None => None,
        Some(text) if text.len() > MAX_QUESTION => {
            return Err(invalid(format!("question must have at most {MAX_QUESTION} bytes.")));
        }
        Some(text) => Some(Question::parse(text.trim()).map_err(|error| invalid(format!("question: {error}.")))?),
    };
    let set = app.store.policies(account.id, &app.policies).await?;
    let value = |(what, from): (String, nexus_policy::profile::Origin)| PolicyValue { what, from: from.to_string() };
    let answer = question.map(|question| {
        let verdict = set.effective().ask(&question);
        PolicyAnswer {
            question: question.to_string(),
            allowed: verdict.is_allowed(),
            forbidden_by: verdict.forbidden.iter().map(ToString::to_string).collect(),
        }
    });
    Ok(ok(&EffectivePolicy {
        generation: set.hash(),
        documents: infos(&set),
        values: set.effective().rows().into_iter().map(value).collect(),
        answer,
    }))
}

/// Puts a document of the account in force, or takes it out of force.
pub async fn put(context: &Context) -> Result<Answer, Problem> {
    let app = &context.app;
    let account = context.account()?;
    let request: PutPolicy = context.json()?;
    let document = match (request.document, request.remove.unwrap_or_default()) {
        (Some(text), false) => {
            // Its name until it has a number is the one that it will have.
            let next = app.store.stored_policy(account).await?.map_or(0, |stored| stored.generation) + 1;
            let policies = Arc::clone(&app.policies);
            let tested = tokio::task::spawn_blocking(move || {
                policies.candidate(&source(next), &text).map(|loaded| (text, loaded.hash))
            });
            let failed =
                |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The document could not be tested.");
            let tested = tested.await.map_err(failed)?.map_err(|refusal| {
                Problem::invalid(refusal.code(), format!("The document does not count: {refusal}."))
                    .hint("The document before stays in force.")
            })?;
            Some(tested)
        }
        (None, true) => None,
        _ => return Err(Problem::invalid("invalid_field", "The body needs either document, or remove: true.")),
    };
    let new = NewPolicy { document, if_generation: request.if_generation };
    if !app.store.put_policy(account, new, app.now()).await? {
        let error = "Another document has been put in force in the meantime.";
        return Err(Problem::conflict("policy_changed", error).hint("Look at it, and send its generation."));
    }
    // Polls look again each second, and every claim reads the generation in its own transaction.
    in_force(context, account).await
}
