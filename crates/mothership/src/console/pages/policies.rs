//! Policies: the documents in force with the source of every value, questions to them, and past directives under others.

use super::parts;
use crate::console::html::Html;
use crate::console::shell::{Section, page};
use crate::console::visit::Visit;
use crate::decide::past_run;
use crate::http::{Answer, Problem};
use crate::store::types::{Page, StoredPolicy};
use axum::http::StatusCode;
use nexus_api::mothership::Directive;
use nexus_policy::document::{Difference, LoadedPolicy, Outcome, PolicySet, Question, differences, run_cases};
use std::sync::Arc;
use uuid::Uuid;

/// Directives that a replay looks at, the latest ones.
const REPLAYED: u32 = 500;
/// Name of a document that came with a form.
const DRAFT: &str = "draft.yaml";

/// Returns the documents that count for the account of the session.
async fn in_force(visit: &Visit) -> Result<Arc<PolicySet>, Problem> {
    visit.demand("listPolicies")?;
    let app = &visit.context.app;
    Ok(app.store.policies(visit.account.id, &app.policies).await?)
}

/// Shows the generation in force.
pub async fn show(visit: &Visit) -> Result<Answer, Problem> {
    visit.demand("listPolicies")?;
    let app = &visit.context.app;
    let stored = app.store.stored_policy(visit.account).await?;
    let set = match in_force(visit).await {
        Ok(set) => set,
        Err(problem) => return Ok(broken(visit, stored.as_ref(), &problem)),
    };
    let set = &*set;
    Ok(page(StatusCode::OK, visit.frame("Policies", Section::Policies), |html| {
        html.raw("<h1>Policies</h1>");
        if set.documents().is_empty() {
            let sentence =
                "No policy document is in force: a directive may have what its request and its profile give it.";
            parts::empty(html, sentence, None);
        } else {
            documents(html, set);
            values(html, set);
        }
        ask_form(html, "");
        html.raw("<p><a class=\"button\" href=\"/policies/replay\">Try a document on past directives</a></p>");
        account(html, stored.as_ref(), visit.now());
        parts::same_command(html, "nexus policy explain --fleet");
    }))
}

/// The stored document of the account does not count any more: nothing starts, and the page shows what an owner has to replace.
fn broken(visit: &Visit, stored: Option<&StoredPolicy>, problem: &Problem) -> Answer {
    let (status, _, error, hint) = problem.facts();
    page(status, visit.frame("Policies", Section::Policies), |html| {
        html.raw("<h1>Policies</h1>").leaf("p", &[("class", "error"), ("role", "alert")], error);
        if let Some(hint) = hint {
            html.leaf("p", &[], hint);
        }
        account(html, stored, visit.now());
    })
}

/// The document of the account, with who put it in force.
fn account(html: &mut Html, stored: Option<&StoredPolicy>, now: i64) {
    html.raw("<h2>Document of the account</h2>");
    let Some((stored, text)) = stored.and_then(|stored| Some((stored, stored.document.as_deref()?))) else {
        let sentence = "The account has no document of its own: those of the operator count alone.";
        html.leaf("p", &[("class", "muted"), ("id", "account")], sentence);
        change(html);
        return;
    };
    let by = Uuid::from_bytes(stored.key).to_string();
    html.raw("<p class=\"muted\" id=\"account\">Generation ").leaf("span", &[], &stored.generation.to_string());
    html.raw(", by the key ").leaf("code", &[], &by).raw(" ");
    parts::time(html, stored.at, now);
    html.raw("</p>").leaf("pre", &[("id", "account-document"), ("tabindex", "0")], text);
    change(html);
}

fn change(html: &mut Html) {
    html.raw("<p class=\"muted\">An owner puts another one in force: <code>nexus policy apply --fleet FILE</code></p>");
}

fn documents(html: &mut Html, set: &PolicySet) {
    html.raw("<p>Generation ").leaf("code", &[("id", "generation")], &set.hash().to_string()).raw("</p>");
    html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards")]);
    html.leaf("caption", &[], "Documents in force, the farthest level first");
    html.raw("<thead><tr><th scope=\"col\">Level</th><th scope=\"col\">Id</th><th scope=\"col\">Own tests</th>");
    html.raw("<th scope=\"col\">File</th></tr></thead><tbody>");
    for loaded in set.documents() {
        let cases = run_cases(loaded);
        let held = cases.iter().filter(|case| case.holds).count();
        html.raw("<tr>").leaf("td", &[("class", "num")], loaded.document.level.word());
        html.leaf("td", &[("class", "cmd")], &loaded.document.id);
        html.leaf("td", &[("class", "num")], &format!("{held} of {} hold", cases.len()));
        html.leaf("td", &[("class", "cmd")], &loaded.source).raw("</tr>");
    }
    html.raw("</tbody></table></div>");
}

fn values(html: &mut Html, set: &PolicySet) {
    html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards"), ("id", "values")]);
    html.leaf("caption", &[], "What they leave, each value with the line that decided it");
    html.raw("<thead><tr><th scope=\"col\">Value</th><th scope=\"col\">From</th></tr></thead><tbody>");
    for (what, from) in set.effective().rows() {
        html.raw("<tr>").leaf("td", &[("class", "cmd")], &what).leaf("td", &[("class", "cmd")], &from.to_string());
        html.raw("</tr>");
    }
    html.raw("</tbody></table></div>");
}

fn ask_form(html: &mut Html, question: &str) {
    html.raw("<h2>Ask</h2><form method=\"get\" action=\"/policies/explain\" class=\"row\">");
    html.raw("<label for=\"filter\">Question</label>");
    let input = [("id", "filter"), ("name", "q"), ("type", "text"), ("value", question), ("maxlength", "1000")];
    html.open("input", &input).raw("<button>Ask</button></form>");
    html.raw("<p class=\"muted\">For example: net example.com:443, write workspace:/src, run make test, limit memory=4GiB.</p>");
}

/// Answers a question, as `nexus policy explain` does.
pub async fn explain(visit: &Visit) -> Result<Answer, Problem> {
    let set = in_force(visit).await?;
    let set = &*set;
    let text = visit.context.parameter("q").unwrap_or_default();
    let question = (!text.trim().is_empty()).then(|| Question::parse(text.trim()));
    let status = if matches!(question, Some(Err(_))) { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    Ok(page(status, visit.frame("Policy", Section::Policies), |html| {
        html.raw("<h1>Policy</h1>");
        match &question {
            None => {}
            Some(Err(error)) => {
                html.leaf("p", &[("class", "error"), ("role", "alert")], &error.to_string());
            }
            Some(Ok(question)) => answer(html, set, question),
        }
        ask_form(html, &text);
        if !set.documents().is_empty() {
            values(html, set);
        }
    }))
}

fn answer(html: &mut Html, set: &PolicySet, question: &Question) {
    let verdict = set.effective().ask(question);
    let asked = question.to_string();
    html.open("div", &[("id", "verdict"), ("role", "status")]).raw("<p class=\"head\">");
    let (class, word) = if verdict.is_allowed() { ("state s-ok", "allowed") } else { ("state s-bad", "forbidden") };
    html.leaf("span", &[("class", class)], word).leaf("code", &[], &asked).raw("</p>");
    if !verdict.forbidden.is_empty() {
        html.raw("<ul>");
        for by in &verdict.forbidden {
            html.leaf("li", &[], &by.to_string());
        }
        html.raw("</ul>");
    } else if set.documents().is_empty() {
        html.raw("<p class=\"muted\">There is no document that could forbid it.</p>");
    }
    html.raw("</div>");
    if let Some(word) = parts::shell_word(&asked) {
        parts::same_command(html, &format!("nexus policy explain --fleet {word}"));
    }
}

/// A directive that would be decided in another way.
struct Replayed {
    id: String,
    command: String,
    found: Vec<Difference>,
}

/// Result of a replay.
struct Outcomes {
    count: usize,
    differing: Vec<Replayed>,
    skipped: Vec<(String, String)>,
}

fn replayed(before: &PolicySet, after: &PolicySet, directives: &[Directive]) -> Outcomes {
    let mut all = Outcomes { count: 0, differing: Vec::new(), skipped: Vec::new() };
    for one in directives {
        let id = one.directive_id.to_string();
        match past_run(one) {
            Err(why) => all.skipped.push((id, why)),
            Ok(run) => {
                all.count += 1;
                let found = differences(before.effective(), after.effective(), &run);
                if !found.is_empty() {
                    all.differing.push(Replayed { id, command: one.command.clone(), found });
                }
            }
        }
    }
    all
}

/// Shows the form, and after it was sent what its document would decide in another way about the latest directives.
pub async fn replay(visit: &Visit) -> Result<Answer, Problem> {
    visit.demand("listDirectives")?;
    let app = &visit.context.app;
    let draft = visit.field("document").unwrap_or_default().to_owned();
    let alone = visit.field("alone").is_some();
    let outcomes = if draft.trim().is_empty() {
        None
    } else {
        let wanted = Page { before: None, limit: REPLAYED };
        let directives = app.store.directives(visit.account, None, wanted, app.config.times, visit.now()).await?;
        let (before, text, policies) = (in_force(visit).await?, draft.clone(), Arc::clone(&app.policies));
        // A long document and many directives take a while: other requests go on meanwhile.
        let done = tokio::task::spawn_blocking(move || {
            let loaded = LoadedPolicy::read(DRAFT, &text)
                .map_err(|error| format!("{DRAFT}:{}: {}", error.place, error.message))?;
            // A draft of the account's document takes the place of the one in force.
            let after = if alone { PolicySet::build(vec![loaded]) } else { policies.with_draft(&before, loaded) };
            after.map(|after| replayed(&before, &after, &directives)).map_err(|error| error.to_string())
        });
        let failed =
            |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The document could not be tried.");
        Some(done.await.map_err(failed)?)
    };
    let mut form = Html::default();
    visit.form(&mut form, "/policies/replay", "")?;
    let status = if matches!(outcomes, Some(Err(_))) { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(page(status, visit.frame("Replay", Section::Policies), |html| {
        html.raw("<h1>Replay</h1><p>What a document would decide in another way about the latest directives. Nothing is put in force.</p>");
        match &outcomes {
            None => {}
            Some(Err(why)) => drop(html.leaf("p", &[("class", "error"), ("role", "alert")], why)),
            Some(Ok(outcomes)) => write_outcomes(html, outcomes),
        }
        html.add(&form).raw("<p><label for=\"document\">Document</label></p><p>");
        html.leaf("textarea", &[("id", "document"), ("name", "document"), ("rows", "10"), ("class", "mono")], &draft);
        html.raw("</p><p><label>");
        let alone_box = [("type", "checkbox"), ("name", "alone"), ("value", "yes"), ("checked", "")];
        html.open("input", if alone { &alone_box } else { &alone_box[..3] });
        html.raw(
            " in the place of all that are in force</label></p><p><button class=\"primary\">Replay</button></p></form>",
        );
        html.raw("<p class=\"muted\">nexus policy replay --fleet FILE says the same in a terminal.</p>");
    }))
}

fn write_outcomes(html: &mut Html, all: &Outcomes) {
    let becomes = |outcome| {
        let has = |one: &&Replayed| one.found.iter().any(|difference| difference.after.outcome == outcome);
        all.differing.iter().filter(has).count()
    };
    let sentence = format!(
        "{} of {} runs would be decided in another way: something is refused in {} and asked in {}",
        all.differing.len(),
        all.count,
        becomes(Outcome::Refused),
        becomes(Outcome::Asked)
    );
    html.leaf("p", &[("id", "outcome"), ("role", "status")], &sentence);
    if !all.differing.is_empty() {
        html.open("div", &[("class", "scroll")]).open("table", &[("class", "cards"), ("id", "differences")]);
        html.leaf("caption", &[], "Directives with what would be decided in another way");
        html.raw("<thead><tr><th scope=\"col\">Directive</th><th scope=\"col\">Command</th><th scope=\"col\">Was</th>");
        html.raw("<th scope=\"col\">Becomes</th><th scope=\"col\">Question</th></tr></thead><tbody>");
    }
    for one in &all.differing {
        for difference in &one.found {
            html.open("tr", &[("data-row", "")]).raw("<td class=\"num\">");
            let link = [("class", "row-link mono"), ("href", &*format!("/directives/{}", one.id)), ("title", &one.id)];
            html.leaf("a", &link, one.id.get(24..).unwrap_or(&one.id)).raw("</td>");
            html.leaf("td", &[("class", "cmd")], &parts::short(&one.command));
            html.leaf("td", &[("class", "num")], difference.before.outcome.word());
            html.leaf("td", &[("class", "num")], difference.after.outcome.word()).raw("<td class=\"cmd\">");
            html.leaf("code", &[], &difference.question);
            let why = difference.after.why.as_ref().or(difference.before.why.as_ref());
            html.leaf("div", &[("class", "muted")], why.map_or("", String::as_str)).raw("</td></tr>");
        }
    }
    if !all.differing.is_empty() {
        html.raw("</tbody></table></div>");
    }
    for (id, why) in &all.skipped {
        html.leaf("p", &[("class", "s-wait")], &format!("{id} was not replayed: {why}"));
    }
}
