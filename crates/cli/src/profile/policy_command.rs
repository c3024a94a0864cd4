//! `nexus policy check|test|explain|apply|replay|command|import|schema`.

use super::caller::caller;
use super::{policy_fleet, replay};
use crate::args::{ImportFrom, PolicyAction, PolicyArgs};
use crate::failure::{Failure, one_line};
use crate::failures;
use crate::terminal::out;
use nexus_policy::command::{Verdict, classify};
use nexus_policy::document::{
    CaseResult, Effective, Level, LoadedPolicy, PolicySet, Question, SCHEMA, TestFailure, run_cases,
};
use nexus_policy::import::{Format, Wanted, import};
use nexus_profiles::{policies, workspace_file};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The exit code of a check that found mistakes, and of a question whose answer is negative.
const NO: u8 = 1;

/// Runs it and returns the exit code.
pub fn command(args: &PolicyArgs) -> u8 {
    let result = match &args.action {
        PolicyAction::Check { json, files } => Ok(check(files, *json)),
        PolicyAction::Test { json, files } => test(files, *json),
        PolicyAction::Explain { json, fleet: true, access, questions, .. } => {
            policy_fleet::explain(access, questions, *json)
        }
        PolicyAction::Explain { json, with, workspace, questions, .. } => {
            explain(with, workspace.as_deref(), questions, *json)
        }
        PolicyAction::Apply { fleet: true, if_generation, access, files, .. } => {
            policy_fleet::apply(access, files, *if_generation).map(|text| (text, 0))
        }
        PolicyAction::Apply { files, .. } => apply(files).map(|text| (text, 0)),
        PolicyAction::Replay { json, since, number, alone, fleet, access, files } => {
            let (before, after) = (policies::load(&caller(), None), read_all(files));
            before.map_err(Failure::from).and_then(|before| {
                let more: Vec<LoadedPolicy> = after?.into_iter().map(|(loaded, _)| loaded).collect();
                let after = if *alone { PolicySet::build(more) } else { before.with(more) };
                let after = after.map_err(|error| Failure::from(nexus_profiles::PoliciesError::from(error)))?;
                let wanted = replay::Wanted { since: *since, number: number.unwrap_or(usize::MAX), as_json: *json };
                if *fleet {
                    replay::of_directives(access, before.effective(), after.effective(), wanted)
                } else {
                    replay::of_runs(before.effective(), after.effective(), wanted)
                }
            })
        }
        PolicyAction::Command { json, line } => Ok(of_line(line, *json)),
        PolicyAction::Import { from, id, json, file } => of_other(*from, id, file, *json).map(|text| (text, 0)),
        PolicyAction::Schema => Ok((SCHEMA.to_owned(), 0)),
    };
    let written = result.and_then(|(text, code)| {
        let out = out::write_unless_closed(&mut std::io::stdout(), text.as_bytes());
        out.map(|()| code).map_err(|error| failures::not_written("the answer", &error))
    });
    written.unwrap_or_else(|failure| failures::print_failure(&failure, false))
}

fn read(path: &Path) -> Result<LoadedPolicy, String> {
    let text = workspace_file::text_of(path).map_err(|why| format!("{} cannot be used: {why}", path.display()))?;
    policies::read(path, &text).map_err(|error| error.to_string())
}

fn read_all(files: &[PathBuf]) -> Result<Vec<(LoadedPolicy, String)>, Failure> {
    let one = |path: &PathBuf| {
        let refused = |why: String| Failure::refused("policy_document", why, "fix the document, or leave it out");
        let text = workspace_file::text_of(path)
            .map_err(|why| refused(format!("{} cannot be used: {why}", path.display())))?;
        Ok((policies::read(path, &text)?, text))
    };
    files.iter().map(one).collect()
}

fn check(files: &[PathBuf], as_json: bool) -> (String, u8) {
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    if files.is_empty() {
        match policies::load(&caller(), None) {
            Ok(set) => found.extend(set.documents().iter().map(|loaded| (loaded.source.clone(), None))),
            Err(error) => found.push(("the documents in force".to_owned(), Some(error.to_string()))),
        }
    }
    for path in files {
        let tested = read(path).and_then(|loaded| match run_cases(&loaded).into_iter().find(|case| !case.holds) {
            Some(case) => Err(TestFailure { file: loaded.source, case }.to_string()),
            None => Ok(()),
        });
        found.push((path.display().to_string(), tested.err()));
    }
    let code = if found.iter().any(|(_, mistake)| mistake.is_some()) { NO } else { 0 };
    if as_json {
        let all: Vec<_> = found.iter().map(|(source, mistake)| json!({"source": source, "mistake": mistake})).collect();
        return (document(&json!({"schema": "nexus.policy-check/1", "files": all})), code);
    }
    let line = |(source, mistake): &(String, Option<String>)| match mistake {
        None => format!("ok       {}\n", one_line(source)),
        Some(mistake) => format!("mistake  {}\n", one_line(mistake)),
    };
    (found.iter().map(line).collect(), code)
}

fn test(files: &[PathBuf], as_json: bool) -> Result<(String, u8), Failure> {
    let documents: Vec<LoadedPolicy> = if files.is_empty() {
        policies::load(&caller(), None)?.documents().to_vec()
    } else {
        read_all(files)?.into_iter().map(|(loaded, _)| loaded).collect()
    };
    let results: Vec<(String, CaseResult)> = documents
        .iter()
        .flat_map(|loaded| run_cases(loaded).into_iter().map(|result| (loaded.source.clone(), result)))
        .collect();
    let code = if results.iter().all(|(_, result)| result.holds) { 0 } else { NO };
    if as_json {
        let one = |(source, result): &(String, CaseResult)| {
            json!({
                "source": source, "place": result.place.to_string(), "rule": result.rule,
                "question": result.question, "match": result.wanted, "holds": result.holds,
            })
        };
        let all: Vec<_> = results.iter().map(one).collect();
        return Ok((document(&json!({"schema": "nexus.policy-test/1", "cases": all})), code));
    }
    let mut text = String::new();
    for (source, result) in &results {
        let (word, should) =
            (if result.holds { "ok     " } else { "failed " }, if result.wanted { "match    " } else { "not_match" });
        let about = result.rule.as_ref().map(|rule| format!("  ({rule})")).unwrap_or_default();
        let line = format!("{word} {should} {}{about}  ← {source}:{}", result.question, result.place);
        let _written = writeln!(text, "{}", one_line(&line));
    }
    let _written = writeln!(text, "{} of {} hold", results.iter().filter(|(_, one)| one.holds).count(), results.len());
    Ok((text, code))
}

/// Returns the documents in force, with some more.
fn in_force(with: &[PathBuf], workspace: Option<&Path>) -> Result<PolicySet, Failure> {
    let places = crate::host::state_dir()?;
    let workspace = match workspace {
        Some(named) => Some(crate::host::workspace(Some(named), &places)?),
        // A place that is not a workspace, such as the home, has no document of its own.
        None => crate::host::workspace(None, &places).ok(),
    };
    let set = policies::load(&caller(), workspace.as_deref())?;
    let more = read_all(with)?.into_iter().map(|(loaded, _)| loaded).collect();
    set.with(more).map_err(|error| Failure::from(nexus_profiles::PoliciesError::from(error)))
}

fn explain(
    with: &[PathBuf],
    workspace: Option<&Path>,
    questions: &[String],
    as_json: bool,
) -> Result<(String, u8), Failure> {
    let set = in_force(with, workspace)?;
    if questions.is_empty() {
        return Ok((if as_json { document(&set_json(&set)) } else { set_text(&set) }, 0));
    }
    let mut answers = Vec::new();
    for text in questions {
        let question = Question::parse(text)
            .map_err(|error| Failure::usage("question", error.to_string(), "for example: \"net example.com:443\""))?;
        answers.push((question.to_string(), set.effective().ask(&question)));
    }
    let code = if answers.iter().all(|(_, verdict)| verdict.is_allowed()) { 0 } else { NO };
    if as_json {
        let one = |(question, verdict): &(String, nexus_policy::document::Verdict)| {
            let by: Vec<_> = verdict
                .forbidden
                .iter()
                .map(|by| json!({"level": by.level, "id": by.id, "from": by.from, "why": by.why}))
                .collect();
            json!({"question": question, "allowed": verdict.is_allowed(), "forbidden_by": by})
        };
        let all: Vec<_> = answers.iter().map(one).collect();
        let answer = json!({"schema": "nexus.policy-answer/1", "generation": set.hash(), "answers": all});
        return Ok((document(&answer), code));
    }
    let mut text = String::new();
    for (question, verdict) in &answers {
        let word = if verdict.is_allowed() { "allowed  " } else { "forbidden" };
        let _written = writeln!(text, "{word}  {}", one_line(question));
        for by in &verdict.forbidden {
            let _written = writeln!(text, "           {}", one_line(&by.to_string()));
        }
    }
    Ok((text, code))
}

fn set_text(set: &PolicySet) -> String {
    let effective: &Effective = set.effective();
    if effective.is_empty() {
        return "No policy document is in force: a run may have what profiles and flags give it.\n".to_owned();
    }
    let mut text = format!("generation {}\n", set.hash());
    for name in effective.documents() {
        let _written = writeln!(text, "{:8}  {}  {}", name.level.word(), name.id, one_line(&name.source));
    }
    let rows = effective.rows();
    let width = rows.iter().map(|(what, _)| what.chars().count()).max().unwrap_or_default();
    for (what, from) in rows {
        let _written = writeln!(text, "  {}", one_line(&format!("{what:width$}  ← {from}")));
    }
    text
}

fn set_json(set: &PolicySet) -> Value {
    let effective = set.effective();
    let rows: Vec<_> = effective.rows().iter().map(|(what, from)| json!({"what": what, "from": from})).collect();
    json!({
        "schema": "nexus.policy/1", "generation": set.hash(), "documents": effective.documents(), "effective": rows,
    })
}

fn document(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Classifies a command line.
fn of_line(line: &str, as_json: bool) -> (String, u8) {
    let found = classify(line);
    let code = if found.verdict == Verdict::Safe { 0 } else { NO };
    if as_json {
        let answer = json!({
            "schema": "nexus.command-line/1", "verdict": found.verdict.word(), "reasons": found.reasons,
        });
        return (document(&answer), code);
    }
    let mut text = format!("{}\n", found.verdict.word());
    for reason in &found.reasons {
        let _written = writeln!(text, "  {}", one_line(reason));
    }
    (text, code)
}

/// Prints rules of another program as a document; what is not in it goes to standard error.
fn of_other(from: ImportFrom, id: &str, file: &Path, as_json: bool) -> Result<String, Failure> {
    let refused = |why: String| {
        let message = format!("{} {why}", file.display());
        Failure::refused("import", message, "nexus policy import --help lists the forms")
    };
    let text = workspace_file::text_of(file).map_err(|error| refused(format!("cannot be read: {error}")))?;
    let format = match from {
        ImportFrom::Srt => Format::Srt,
        ImportFrom::Claude => Format::Claude,
        ImportFrom::Codex => Format::Codex,
    };
    let caller = caller();
    let home = caller.home.as_ref().and_then(|home| home.to_str());
    let wanted = Wanted { id, level: Level::User, home };
    let found = import(format, &text, wanted).map_err(|error| refused(format!("is not taken: {error}")))?;
    if as_json {
        let left: Vec<_> = found.left_out.iter().map(|one| json!({"what": one.what, "why": one.why})).collect();
        return Ok(document(&json!({"schema": "nexus.policy-import/1", "document": found.document, "left_out": left})));
    }
    for one in &found.left_out {
        crate::notices::tell(&format!("{}: {}", one_line(&one.what), one_line(&one.why)));
    }
    Ok(found.document)
}

/// Puts documents in force: the generation that they would make is built and tested as a whole, and only then a rename
/// per document swaps them in.
fn apply(files: &[PathBuf]) -> Result<String, Failure> {
    let caller = caller();
    let read = read_all(files)?;
    let now = policies::load(&caller, None)?;
    let next = now.with(read.iter().map(|(loaded, _)| loaded.clone()).collect());
    let next = next.map_err(|error| Failure::from(nexus_profiles::PoliciesError::from(error)))?;
    let mut targets = Vec::new();
    for (loaded, text) in &read {
        let document = &loaded.document;
        let refused = |why: String| Failure::refused("policy_document", why, "nothing was changed");
        let directory = policies::directory_for(&caller, document.level).map_err(refused)?;
        // One document has one file, whatever its author named it.
        let known =
            now.documents().iter().find(|old| (old.document.level, &old.document.id) == (document.level, &document.id));
        let path = known.map_or_else(
            || directory.join(format!("{}-{}.yaml", document.level.word(), document.id)),
            |old| PathBuf::from(&old.source),
        );
        targets.push((path, text));
    }
    for (path, text) in &targets {
        put(path, text).map_err(|error| {
            let message = format!("{} cannot be written: {error}", path.display());
            Failure::refused("policy_document", message, "the document before is still in force")
        })?;
    }
    let mut said = String::new();
    for (path, _) in &targets {
        let _written = writeln!(said, "{}", one_line(&path.display().to_string()));
    }
    let _written = writeln!(said, "in force: generation {}", next.hash());
    Ok(said)
}

/// Writes a file beside its place, syncs it and renames it: after a crash there is the old content or the new one.
fn put(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(path);
    if !directory.exists() {
        // Whatever the umask is: a directory that others can write holds no policy.
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    }
    let name = path.file_name().unwrap_or_default();
    let beside = directory.join(format!(".{}.{}.new", name.display(), std::process::id()));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::open(&beside, flags, Mode::from_raw_mode(0o644))?);
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let done = written.and_then(|()| std::fs::rename(&beside, path));
    if done.is_err() {
        // What is left begins with a dot and counts as nothing.
        std::fs::remove_file(&beside).ok();
    }
    done?;
    let directory = rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::fsync(directory)?)
}
