//! `nexus policy apply|explain --fleet`: the documents that count for an account of a control plane.

use crate::failure::{Failure, one_line};
use nexus_api::mothership::{EffectivePolicy, PutPolicy};
use nexus_fleet::args::ServerArgs;
use nexus_fleet::client::access::Access;
use nexus_profiles::workspace_file;
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Exit code of a question whose answer is negative.
const NO: u8 = 1;

/// Puts the document of the account in force, or withdraws it if no file is named.
pub fn apply(args: &ServerArgs, files: &[PathBuf], if_generation: Option<u64>) -> Result<String, Failure> {
    let document = match files {
        [] => None,
        [file] => Some(text_of(file)?),
        _ => {
            let message = "An account has one document";
            return Err(Failure::usage("policy_document", message, "pass one FILE"));
        }
    };
    let remove = document.is_none().then_some(true);
    let access = Access::of(args)?;
    let now = access.wait(access.client.put_account_policy(&PutPolicy { document, remove, if_generation }))?;
    let mut said = String::new();
    for one in &now.documents {
        let _written = writeln!(said, "{:8}  {}  {}", one_line(&one.level), one_line(&one.id), one_line(&one.source));
    }
    let _written = writeln!(said, "in force: generation {}", now.generation);
    Ok(said)
}

fn text_of(path: &Path) -> Result<String, Failure> {
    workspace_file::text_of(path).map_err(|why| {
        let message = format!("{} cannot be used: {why}", path.display());
        Failure::usage("policy_document", message, "name another file")
    })
}

/// Prints what the documents leave with the source of each value, or the answers to questions.
pub fn explain(args: &ServerArgs, questions: &[String], as_json: bool) -> Result<(String, u8), Failure> {
    let access = Access::of(args)?;
    let ask = |question: Option<&str>| access.wait(access.client.effective_policy(question));
    if questions.is_empty() {
        let set = ask(None)?;
        return Ok((if as_json { document(&set_json(&set)) } else { set_text(&set) }, 0));
    }
    let (mut text, mut all, mut code) = (String::new(), Vec::new(), 0);
    for question in questions {
        let set = ask(Some(question))?;
        let Some(answer) = set.answer else {
            let message = "The server gave no answer to the question";
            return Err(Failure::refused("answer_unreadable", message, "is it a control plane of this version?"));
        };
        code = if answer.allowed { code } else { NO };
        let word = if answer.allowed { "allowed  " } else { "forbidden" };
        let _written = writeln!(text, "{word}  {}", one_line(&answer.question));
        for by in &answer.forbidden_by {
            let _written = writeln!(text, "           {}", one_line(by));
        }
        all.push(json!({
            "question": answer.question, "allowed": answer.allowed, "forbidden_by": answer.forbidden_by,
            "generation": set.generation,
        }));
    }
    let answers = json!({"schema": "nexus.policy-answer/1", "answers": all});
    Ok((if as_json { document(&answers) } else { text }, code))
}

fn set_text(set: &EffectivePolicy) -> String {
    if set.documents.is_empty() {
        return "No policy document is in force: a directive may have what its request gives it.\n".to_owned();
    }
    let mut text = format!("generation {}\n", set.generation);
    for one in &set.documents {
        let _written = writeln!(text, "{:8}  {}  {}", one_line(&one.level), one_line(&one.id), one_line(&one.source));
    }
    let width = set.values.iter().map(|value| value.what.chars().count()).max().unwrap_or_default();
    for value in &set.values {
        let _written = writeln!(text, "  {}", one_line(&format!("{:width$}  ← {}", value.what, value.from)));
    }
    text
}

fn set_json(set: &EffectivePolicy) -> serde_json::Value {
    json!({
        "schema": "nexus.policy/1", "generation": set.generation, "documents": set.documents, "effective": set.values,
    })
}

fn document(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}
