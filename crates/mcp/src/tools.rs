//! The tools: their schemas, and what each does.

use crate::changes;
use crate::commands::{Ask, Commands, Ending, NotStarted, Run};
use crate::denial;
use crate::files;
use crate::names;
use crate::narrow::Knobs;
use crate::output::Capture;
use crate::params::Params;
use crate::paths::beneath;
use crate::schemas;
use nexus_caller::failure::Failure;
use nexus_model::exit::REFUSED;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Bytes of each stream in the answer to a command.
const ROOM: usize = 48 << 10;
/// Bytes that one answer of read_output shows.
const MAX_SHOWN: u64 = 256 << 10;
/// Entries and hits of one answer.
const MAX_ENTRIES: u64 = 1000;
/// Bytes of new output in one progress message.
const MAX_NEWS: usize = 4096;
/// Shortest time between two progress messages of a call.
const NEWS_EVERY: Duration = Duration::from_millis(100);

/// The server's side of all calls.
pub struct Tools {
    /// The sandboxes.
    pub commands: Commands,
    /// True if the agent may accept changes of its own runs.
    pub may_accept: bool,
}

/// What a call needs of its connection.
pub struct Call<'a> {
    /// Says whether the client has cancelled it.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
    /// Tells the client something new: the bytes so far, and the last of them.
    pub progress: &'a (dyn Fn(u64, &str) + Sync),
}

/// The outcome of a call.
#[derive(Debug)]
pub enum Outcome {
    /// The result.
    Done {
        /// The text for a model.
        text: String,
        /// The same for a program.
        structured: Value,
        /// True where Nexus refused something.
        is_error: bool,
    },
    /// The client has cancelled the call, and what it started has ended.
    Cancelled,
}

impl Outcome {
    fn done(text: impl Into<String>, structured: Value) -> Self {
        Self::Done { text: text.into(), structured, is_error: false }
    }

    /// Makes the outcome of what was refused.
    pub fn refused(failure: &Failure) -> Self {
        let remedy =
            if failure.hint.is_empty() { "Change the call; see the schema of the tool." } else { &failure.hint };
        let denials =
            json!([{ "code": failure.code, "cause": failure.message, "rule": failure.code, "remedy": remedy }]);
        Self::Done { text: failure.text(), structured: json!({ "denials": denials }), is_error: true }
    }

    /// Returns the result of `tools/call`; `None` for one that was cancelled.
    pub fn result(self) -> Option<Value> {
        match self {
            Self::Done { text, structured, is_error } => Some(json!({
                "content": [{ "type": "text", "text": text }],
                "structuredContent": structured,
                "isError": is_error,
            })),
            Self::Cancelled => None,
        }
    }
}

impl Tools {
    /// Calls a tool; `None` when there is none of this name.
    pub fn call(&self, name: &str, arguments: Value, call: &Call<'_>) -> Option<Outcome> {
        if !schemas::has(name) {
            return None;
        }
        let done = Params::new(arguments).and_then(|params| match name {
            "run_command" => self.run(params, call),
            "start_process" => self.start(params),
            "list_processes" => self.list_processes(params),
            "inspect_process" => self.inspect(params),
            "stop_process" => self.stop(params),
            "read_output" => self.read_output(params),
            "explain_denial" => self.explain(params),
            "list_changes" => self.list_changes(params),
            "show_changes" => self.show_changes(params),
            "accept_changes" => self.accept(params),
            "reject_changes" => self.reject(params),
            "read_file" => self.read_file(params, call),
            "write_file" => self.write_file(params, call),
            "list_directory" => self.list_directory(params, call),
            _ => self.search_files(params, call),
        });
        Some(done.unwrap_or_else(|failure| Outcome::refused(&failure)))
    }

    /// Reads what a call starts.
    fn ask(&self, mut params: Params, is_background: bool) -> Result<Ask, Failure> {
        let (line, argv) = (params.text("command")?, params.texts("argv")?);
        let cwd = params.text("cwd")?.map(|cwd| beneath(&cwd, &self.commands.workspace)).transpose()?;
        let knobs = Knobs::read(&mut params)?;
        params.end()?;
        let title = line.clone().unwrap_or_else(|| argv.iter().flatten().cloned().collect::<Vec<_>>().join(" "));
        let argv = match (line, argv) {
            (Some(line), None) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line],
            (None, Some(argv)) if !argv.is_empty() => argv,
            _ => {
                return Err(Failure::usage(
                    "arguments",
                    "Give either command, a line for a shell, or argv, a program and its arguments",
                    "",
                ));
            }
        };
        if argv.iter().any(|word| word.contains('\0')) {
            return Err(Failure::usage("arguments", "A command holds no NUL byte", ""));
        }
        let bounds = self.commands.bounds(knobs.need_bounds())?;
        let flags = knobs.flags(&bounds, !is_background)?;
        Ok(Ask { argv, title, flags, cwd, room: ROOM, is_background, ..Ask::default() })
    }

    fn run(&self, params: Params, call: &Call<'_>) -> Result<Outcome, Failure> {
        let run = match self.commands.start(self.ask(params, false)?) {
            Ok(run) => run,
            Err(error) => return not_started(error),
        };
        match follow(&run, call)? {
            Some(ending) => Ok(ended(&run, &ending)),
            None => Ok(Outcome::Cancelled),
        }
    }

    fn start(&self, params: Params) -> Result<Outcome, Failure> {
        match self.commands.start(self.ask(params, true)?) {
            Ok(run) => Ok(Outcome::done(format!("The process {} runs.", run.id), state(&run))),
            Err(error) => not_started(error),
        }
    }

    fn list_processes(&self, params: Params) -> Result<Outcome, Failure> {
        params.end()?;
        let without_output = |mut state: Value| {
            for name in ["stdout", "stderr"] {
                state.as_object_mut().map(|all| all.remove(name));
            }
            state
        };
        let all: Vec<Value> = self.commands.list().iter().map(|run| without_output(state(run))).collect();
        let line = |one: &Value| format!("{} {} {}", one["run_id"], one["state"], one["command"]);
        let lines: Vec<String> = all.iter().map(line).collect();
        Ok(Outcome::done(lines.join("\n"), json!({ "processes": all })))
    }

    fn inspect(&self, mut params: Params) -> Result<Outcome, Failure> {
        let run = self.commands.find(&params.needed("run_id")?)?;
        params.end()?;
        if let Some(ending) = run.ending() {
            return Ok(ended(&run, &ending));
        }
        let structured = state(&run);
        let text = format!(
            "It runs. Its output so far:\n{}{}",
            structured["stdout"].as_str().unwrap_or_default(),
            structured["stderr"].as_str().unwrap_or_default()
        );
        Ok(Outcome::done(text, structured))
    }

    fn stop(&self, mut params: Params) -> Result<Outcome, Failure> {
        let (run, grace) = (self.commands.find(&params.needed("run_id")?)?, params.number("grace_ms")?);
        params.end()?;
        run.stop(grace.map(|ms| ms.min(20_000)))?;
        let ending = run.ending();
        Ok(ending.map_or_else(|| Outcome::done("", state(&run)), |ending| ended(&run, &ending)))
    }

    fn read_output(&self, mut params: Params) -> Result<Outcome, Failure> {
        let run = self.commands.find(&params.needed("run_id")?)?;
        let (offset, limit) = (params.number("offset")?, params.number("limit")?);
        let (tail, contains) = (params.number("tail_lines")?, params.text("contains")?);
        params.end()?;
        let limit = limit.unwrap_or(64 << 10).min(MAX_SHOWN);
        let failed =
            |error: std::io::Error| Failure::refused("output", format!("The output cannot be read: {error}"), "");
        let mut source = run.output()?;
        let about = json!({
            "run_id": run.id, "first_offset": source.first, "end_offset": source.end, "is_running": run.ending().is_none(),
        });
        let with = |name: &str, value: Value| {
            let mut all = about.clone();
            all[name] = value;
            all
        };
        if let Some(text) = contains {
            let found = source.lines_with(&text, MAX_ENTRIES as usize).map_err(failed)?;
            let shown: Vec<String> = found.lines.iter().map(|(number, line)| format!("{number}:{line}")).collect();
            let lines: Vec<Value> =
                found.lines.iter().map(|(line, text)| json!({ "line": line, "text": text })).collect();
            let mut structured = with("lines", lines.into());
            structured["has_more"] = json!(found.has_more);
            return Ok(Outcome::done(shown.join("\n"), structured));
        }
        let bytes = match tail {
            Some(lines) => {
                let mut bytes = source.last_lines(lines as usize).map_err(failed)?;
                bytes.drain(..bytes.len().saturating_sub(MAX_SHOWN as usize));
                bytes
            }
            None => source.range(offset.unwrap_or(0), limit).map_err(failed)?,
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut structured = with("text", json!(text));
        if tail.is_none() {
            let from = offset.unwrap_or(0).clamp(source.first, source.end);
            structured["next_offset"] = json!(from + bytes.len() as u64);
        }
        Ok(Outcome::done(text, structured))
    }

    fn explain(&self, mut params: Params) -> Result<Outcome, Failure> {
        let run = self.commands.find(&params.needed("run_id")?)?;
        params.end()?;
        let Some(ending) = run.ending() else {
            return Ok(Outcome::done("The command still runs.", json!({ "run_id": run.id, "denials": [] })));
        };
        let denials = denial::of(&ending.report);
        let text = match denials.as_slice() {
            [] => "Nothing was denied, as far as Nexus knows: the command itself failed or succeeded.".to_owned(),
            some => lines(some),
        };
        Ok(Outcome::done(text, json!({ "run_id": run.id, "denials": denials })))
    }

    fn list_changes(&self, params: Params) -> Result<Outcome, Failure> {
        params.end()?;
        let rows = self.commands.waiting().into_iter();
        let rows = rows.map(|(run, changes)| json!({ "run_id": run.id, "command": run.title, "changes": changes }));
        let runs: Vec<Value> = rows.collect();
        let text = format!(
            "{} runs ended with changes that waited then. show_changes says whether they still do.",
            runs.len()
        );
        Ok(Outcome::done(text, json!({ "runs": runs })))
    }

    fn show_changes(&self, mut params: Params) -> Result<Outcome, Failure> {
        let (run, wants_diff) = (self.commands.find(&params.needed("run_id")?)?, params.flag("diff")?);
        params.end()?;
        let workspace = &self.commands.workspace;
        let mut structured = changes::show(workspace, &run.id)?;
        let mut text = lines_of_changes(&structured);
        if wants_diff {
            let diff = changes::diff(workspace, &run.id)?;
            text.push_str(&diff);
            structured["diff"] = json!(diff);
        }
        Ok(Outcome::done(text, structured))
    }

    fn accept(&self, mut params: Params) -> Result<Outcome, Failure> {
        let (run, paths) = (self.commands.find(&params.needed("run_id")?)?, params.texts("paths")?);
        params.end()?;
        if !self.may_accept {
            let message = format!(
                "The changes of the run {} wait for a person: this server was started without --may-accept",
                run.id
            );
            let hint = format!(
                "Ask the person to look at them: nexus changes show --run {0}; nexus changes accept --run {0}",
                run.id
            );
            return Err(Failure::refused("may_not_accept", message, hint));
        }
        let text = changes::accept(&self.commands.workspace, &run.id, paths.as_deref())?;
        Ok(Outcome::done(text.clone(), json!({ "run_id": run.id, "message": text })))
    }

    fn reject(&self, mut params: Params) -> Result<Outcome, Failure> {
        let (run, paths) = (self.commands.find(&params.needed("run_id")?)?, params.texts("paths")?);
        params.end()?;
        let text = changes::reject(&self.commands.workspace, &run.id, paths.as_deref())?;
        Ok(Outcome::done(text.clone(), json!({ "run_id": run.id, "message": text })))
    }

    /// Runs a command of Nexus's own; the failure of one that did not succeed.
    fn own(&self, ask: Ask, path: &str, call: &Call<'_>) -> Result<Option<(Vec<u8>, String, Ending)>, Failure> {
        let run = self.commands.start_own(ask).map_err(|error| match error {
            NotStarted::Failure(failure) => failure,
            NotStarted::Refused(ending) => refusal(&ending),
        })?;
        let silent = Call { is_cancelled: call.is_cancelled, progress: &|_, _| {} };
        let Some(ending) = follow(&run, &silent)? else { return Ok(None) };
        let (out, err) = run.look(|state| (state.capture.out.bytes(), state.capture.err.text()));
        if ending.exit == REFUSED {
            return Err(refusal(&ending));
        }
        if ending.exit != 0 {
            return Err(files::failed(path, ending.exit, &err));
        }
        Ok(Some((out, err, ending)))
    }

    fn read_file(&self, mut params: Params, call: &Call<'_>) -> Result<Outcome, Failure> {
        let (text, offset, limit) = (params.needed("path")?, params.number("offset")?, params.number("limit")?);
        params.end()?;
        let path = beneath(&text, &self.commands.workspace)?;
        let offset = offset.unwrap_or(0);
        let ask = files::read(&path, offset, limit.unwrap_or(files::MAX_READ))?;
        let Some((bytes, size, _)) = self.own(ask, &text, call)? else { return Ok(Outcome::Cancelled) };
        let is_text = std::str::from_utf8(&bytes).is_ok();
        let content = String::from_utf8_lossy(&bytes).into_owned();
        let structured = json!({
            "path": path, "content": content, "is_utf8": is_text, "size": size.trim().parse::<u64>().unwrap_or(0),
            "next_offset": offset + bytes.len() as u64,
        });
        Ok(Outcome::done(content, structured))
    }

    fn write_file(&self, mut params: Params, call: &Call<'_>) -> Result<Outcome, Failure> {
        let (text, content) = (params.needed("path")?, params.needed("content")?);
        let makes = params.flag("create_directories")?;
        params.end()?;
        let path = beneath(&text, &self.commands.workspace)?;
        let size = content.len();
        let Some((_, _, ending)) = self.own(files::write(&path, content, makes)?, &text, call)? else {
            return Ok(Outcome::Cancelled);
        };
        let report = &ending.report;
        let denials = denial::of(report);
        let state = report["changes"]["state"].as_str().unwrap_or_default();
        let told = match (denials.is_empty(), state) {
            (true, "discarded") => "The server discards changes: the file in the workspace is as before.".to_owned(),
            (true, _) => format!("Wrote {size} bytes to {}.", path.display()),
            (false, _) => lines(&denials),
        };
        let structured =
            json!({ "path": path, "size": size, "changes": state, "run_id": report["run_id"], "denials": denials });
        Ok(Outcome::done(told, structured))
    }

    fn list_directory(&self, mut params: Params, call: &Call<'_>) -> Result<Outcome, Failure> {
        let text = params.text("path")?.unwrap_or_else(|| ".".to_owned());
        let (offset, limit) = (params.number("offset")?.unwrap_or(0), params.number("limit")?.unwrap_or(MAX_ENTRIES));
        params.end()?;
        let path = beneath(&text, &self.commands.workspace)?;
        let Some((bytes, _, _)) = self.own(files::list(&path)?, &text, call)? else { return Ok(Outcome::Cancelled) };
        let (all, is_cut) = files::entries(&bytes);
        Ok(page("entries", all, is_cut, offset, limit, |entry| format!("{} {}", entry["kind"], entry["name"])))
    }

    fn search_files(&self, mut params: Params, call: &Call<'_>) -> Result<Outcome, Failure> {
        let (pattern, text) = (params.needed("pattern")?, params.text("path")?.unwrap_or_else(|| ".".to_owned()));
        let (is_regex, glob) = (params.flag("regex")?, params.text("glob")?);
        let (offset, limit) = (params.number("offset")?.unwrap_or(0), params.number("limit")?.unwrap_or(200));
        params.end()?;
        let path = beneath(&text, &self.commands.workspace)?;
        let ask = files::search(&path, &pattern, is_regex, glob.as_deref())?;
        let Some((bytes, told, _)) = self.own(ask, &text, call)? else { return Ok(Outcome::Cancelled) };
        let (all, is_cut) = files::hits(&bytes, files::searched(&path, &told));
        if all.is_empty()
            && let Some(wrong) =
                told.lines().find(|line| line.starts_with("grep: ") && !line.contains(": /") && !line.contains("./"))
        {
            return Err(Failure::usage(
                "pattern",
                format!("The pattern is not understood: {wrong}"),
                "regex is an extended regular expression of grep.",
            ));
        }
        let line = |hit: &Value| {
            format!(
                "{}:{}:{}",
                hit["path"].as_str().unwrap_or_default(),
                hit["line"],
                hit["text"].as_str().unwrap_or_default()
            )
        };
        Ok(page("hits", all, is_cut, offset, limit, line))
    }
}

/// Makes one page of a list.
fn page(
    name: &str,
    all: Vec<Value>,
    is_cut: bool,
    offset: u64,
    limit: u64,
    line: impl Fn(&Value) -> String,
) -> Outcome {
    let total = all.len() as u64;
    let limit = limit.clamp(1, MAX_ENTRIES);
    let shown: Vec<Value> = all.into_iter().skip(offset as usize).take(limit as usize).collect();
    let next = offset.saturating_add(shown.len() as u64);
    let text = shown.iter().map(line).collect::<Vec<_>>().join("\n");
    let mut structured = json!({ "total": total, "is_cut": is_cut, "next_offset": (next < total).then_some(next) });
    structured[name] = shown.into();
    Outcome::done(text, structured)
}

/// Waits for the end of a command, and tells the client what it prints. Ends it when the client has cancelled the call; `None` then.
fn follow(run: &Run, call: &Call<'_>) -> Result<Option<Ending>, Failure> {
    let mut last = None;
    let news = |capture: &mut Capture| {
        let is_soon = last.is_some_and(|last: Instant| last.elapsed() < NEWS_EVERY);
        if !is_soon && let Some((text, bytes)) = capture.news(MAX_NEWS) {
            last = Some(Instant::now());
            (call.progress)(bytes, &text);
        }
    };
    let ending = run.wait(call.is_cancelled, news);
    if ending.is_none() {
        run.stop(None)?;
    }
    Ok(ending)
}

fn refusal(ending: &Ending) -> Failure {
    let error = &ending.report["error"];
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let message = if text("message").is_empty() { ending.message.trim().to_owned() } else { text("message") };
    Failure::refused("refused", message, text("hint"))
}

/// Makes the outcome of a command that did not start.
fn not_started(error: NotStarted) -> Result<Outcome, Failure> {
    let ending = match error {
        NotStarted::Failure(failure) => return Err(failure),
        NotStarted::Refused(ending) => ending,
    };
    let denials = denial::of(&ending.report);
    let text = if denials.is_empty() { ending.message.clone() } else { lines(&denials) };
    let structured = json!({ "run_id": null, "state": "not_started", "exit_code": ending.exit, "denials": denials });
    Ok(Outcome::Done { text, structured, is_error: true })
}

/// Describes a command that runs.
fn state(run: &Run) -> Value {
    let ending = run.ending();
    run.look(|state| {
        json!({
            "run_id": run.id,
            "command": run.title,
            "state": if ending.is_some() { "ended" } else { "running" },
            "is_background": run.is_background,
            "exit_code": ending.as_ref().map(|ending| ending.exit),
            "duration_ms": run.started.elapsed().as_millis() as u64,
            "quiet_ms": state.last_output.elapsed().as_millis() as u64,
            "stdout": state.capture.out.text(),
            "stderr": state.capture.err.text(),
            "output_bytes": state.capture.out.total + state.capture.err.total + state.capture.missed,
        })
    })
}

/// The output of a command, as an answer shows it.
struct Shown {
    out: String,
    err: String,
    cut: u64,
    bytes: u64,
    is_joined: bool,
}

/// Takes the output of a command that has ended. Where it came faster than this process followed, the file alone has it, in which both
/// streams are one.
fn shown(run: &Run) -> Shown {
    let (missed, bytes) = run.look(|state| {
        let capture = &state.capture;
        (capture.missed, capture.out.total + capture.err.total + capture.missed)
    });
    if missed > 0
        && let Ok(Ok((out, cut))) = run
            .output()
            .map(|mut source| source.ends(2 * ROOM as u64).map(|(out, _)| (out, bytes.saturating_sub(2 * ROOM as u64))))
    {
        return Shown { out, err: String::new(), cut, bytes, is_joined: true };
    }
    run.look(|state| {
        let capture = &state.capture;
        let cut = capture.out.cut() + capture.err.cut() + capture.missed;
        Shown { out: capture.out.text(), err: capture.err.text(), cut, bytes, is_joined: false }
    })
}

/// Describes a command that has ended.
fn ended(run: &Run, ending: &Ending) -> Outcome {
    let report = &ending.report;
    let denials = denial::of(report);
    let Shown { out, err, cut, bytes, is_joined } = shown(run);
    let changes = &report["changes"];
    let structured = json!({
        "run_id": run.id,
        "command": run.title,
        "state": "ended",
        "is_background": run.is_background,
        "exit_code": ending.exit,
        "reason": report["reason"],
        "stdout": out,
        "stderr": err,
        "output_bytes": bytes,
        "cut_bytes": cut,
        "streams_joined": is_joined,
        "duration_ms": report["timing"]["duration_ms"],
        "changes": {
            "state": changes["state"], "added": changes["added"], "modified": changes["modified"],
            "deleted": changes["deleted"], "waiting": names::plain(&changes["parked"]),
        },
        "denials": denials,
    });
    let mut text = out;
    if !err.is_empty() {
        text.push_str(&format!("\n[stderr]\n{err}"));
    }
    if ending.exit != 0 {
        text.push_str(&format!("\n[exit code {}]", ending.exit));
    }
    if !denials.is_empty() {
        text.push_str(&format!("\n[Nexus]\n{}", lines(&denials)));
    }
    if cut > 0 {
        text.push_str(&format!("\n[{cut} bytes are not shown; read_output with run_id {} shows them]", run.id));
    }
    Outcome::Done { text, structured, is_error: ending.exit == REFUSED }
}

/// Renders denials for a model, a line each.
fn lines(denials: &[Value]) -> String {
    let line = |one: &Value| {
        let of = |name: &str| one[name].as_str().unwrap_or_default().trim().to_owned();
        let (cause, remedy) = (of("cause"), of("remedy"));
        if remedy.starts_with(&cause) {
            format!("{remedy} [{}]", of("code"))
        } else {
            format!("{cause} {remedy} [{}]", of("code"))
        }
    };
    denials.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Renders what waits for a model, a line each.
fn lines_of_changes(shown: &Value) -> String {
    let mut text = String::new();
    for change in shown["changes"].as_array().into_iter().flatten() {
        let why = change["protected"].as_str().map(|why| format!(" (held back: {why})")).unwrap_or_default();
        text.push_str(&format!(
            "{} {}{why}\n",
            change["kind"].as_str().unwrap_or("changed"),
            names::text(&change["path"])
        ));
    }
    text
}
