//! The tools, one function for each.

use crate::answers::{MAX_ENTRIES, ROOM, ended, lines, lines_of_changes, not_started, page, refusal, state};
use crate::call::{Call, Outcome, follow};
use crate::changes;
use crate::commands::{CommandEnd, Commands, NotStarted, Request};
use crate::denial;
use crate::files;
use crate::narrow::Knobs;
use crate::params::Params;
use crate::paths::beneath;
use crate::schemas;
use nexus_caller::failure::Failure;
use nexus_model::exit::REFUSED;
use serde_json::{Value, json};

/// Bytes that one answer of read_output shows.
const MAX_SHOWN: u64 = 256 << 10;

/// The server's side of all calls.
pub struct Tools {
    /// The sandboxes of this server.
    pub commands: Commands,
    /// True if the agent may accept changes of its own runs.
    pub may_accept: bool,
}

impl Tools {
    /// Calls a tool; `None` for a name that no tool has.
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
    fn ask(&self, mut params: Params, is_background: bool) -> Result<Request, Failure> {
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
        Ok(Request { argv, title, flags, cwd, room: ROOM, is_background, ..Request::default() })
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
            if let Some(all) = state.as_object_mut() {
                all.retain(|name, _| name != "stdout" && name != "stderr");
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

    /// Runs a command of Nexus's own. `Err` holds the outcome of a command that did not succeed.
    fn own(&self, ask: Request, path: &str, call: &Call<'_>) -> Result<Option<(Vec<u8>, String, CommandEnd)>, Failure> {
        let run = self.commands.start_own(ask).map_err(|error| match error {
            NotStarted::Failure(failure) => failure,
            NotStarted::Refused(ending) => refusal(&ending),
        })?;
        let silent = Call { is_cancelled: call.is_cancelled, progress: &|_, _| {} };
        let Some(ending) = follow(&run, &silent)? else { return Ok(None) };
        let (out, err) = run.inspect(|state| (state.capture.out.bytes(), state.capture.err.text()));
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
        let reported = match (denials.is_empty(), state) {
            (true, "discarded") => "The server discards changes: the file in the workspace is as before.".to_owned(),
            (true, _) => format!("Wrote {size} bytes to {}.", path.display()),
            (false, _) => lines(&denials),
        };
        let structured =
            json!({ "path": path, "size": size, "changes": state, "run_id": report["run_id"], "denials": denials });
        Ok(Outcome::done(reported, structured))
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
        let Some((bytes, reported, _)) = self.own(ask, &text, call)? else { return Ok(Outcome::Cancelled) };
        let (all, is_cut) = files::hits(&bytes, files::searched(&path, &reported));
        if all.is_empty()
            && let Some(wrong) = reported
                .lines()
                .find(|line| line.starts_with("grep: ") && !line.contains(": /") && !line.contains("./"))
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
