//! The descriptions and schemas of the tools, as `tools/list` gives them.

use serde_json::{Map, Value, json};

/// Instructions about the server, for a model.
pub const INSTRUCTIONS: &str = "\
Commands run in a sandbox on the workspace: a read-only system, no network unless the person who started this server allowed some, and \
changes that are committed, or wait for a person, when the command has ended. Every answer about a command has `denials`: what was denied, by \
which rule, and the remedy. Do not try the same again another way; ask the person for what the remedy names. A call may only ask for less than \
the server has (timeout_ms, memory_bytes, max_processes, network \"none\", changes, hide).";

/// A tool with its schemas.
struct Tool {
    name: &'static str,
    about: &'static str,
    /// Arguments: name, type, meaning, and whether it must be there.
    takes: &'static [(&'static str, &'static str, &'static str, bool)],
    /// Fields of the result: name and type.
    gives: &'static [(&'static str, &'static str)],
    reads_only: bool,
}

const RUN_ID: (&str, &str, &str, bool) = ("run_id", "string", "The id of a run of this server", true);
const PATH: (&str, &str, &str, bool) = ("path", "string", "A path in the workspace, relative to it", true);
const PLACE: (&str, &str, &str, bool) =
    ("path", "string", "A path in the workspace; the workspace itself when left out", false);
const PATHS: (&str, &str, &str, bool) = ("paths", "strings", "Only these paths, as show_changes names them", false);
const COMMAND: &[(&str, &str, &str, bool)] = &[
    ("command", "string", "A line for /bin/sh; or use argv", false),
    ("argv", "strings", "A program and its arguments; or use command", false),
    ("cwd", "string", "Working directory in the workspace", false),
    ("timeout_ms", "integer", "Time limit in milliseconds; 600000 by default", false),
    ("memory_bytes", "integer", "Memory limit", false),
    ("max_processes", "integer", "Most processes and threads", false),
    ("network", "string", "\"none\" takes the network away", false),
    ("changes", "string", "\"commit\", \"review\" or \"discard\", if that is no more than the server does", false),
    ("hide", "strings", "Patterns of paths that are to be unreadable", false),
];
const STATE: &[(&str, &str)] = &[
    ("run_id", "string?"),
    ("command", "string"),
    ("state", "string"),
    ("is_background", "boolean"),
    ("exit_code", "integer?"),
    ("reason", "string?"),
    ("stdout", "string"),
    ("stderr", "string"),
    ("output_bytes", "integer"),
    ("cut_bytes", "integer"),
    ("streams_joined", "boolean"),
    ("duration_ms", "number?"),
    ("quiet_ms", "integer"),
    ("changes", "object"),
    ("denials", "objects"),
];
const PAGE: (&str, &str, &str, bool) =
    ("offset", "integer", "Number of entries to leave out: next_offset of the page before", false);
const LIMIT: (&str, &str, &str, bool) = ("limit", "integer", "Most entries of the answer, at most 1000", false);

const TOOLS: &[Tool] = &[
    Tool {
        name: "run_command",
        about: "Run a command in a sandbox on the workspace and wait for its end. Output comes as progress while it runs; the answer has its first and last part, and read_output the rest.",
        takes: COMMAND,
        gives: STATE,
        reads_only: false,
    },
    Tool {
        name: "start_process",
        about: "Start a command in a sandbox that goes on in the background, such as a server or a watcher. It has no time limit of its own, and ends with this server.",
        takes: COMMAND,
        gives: STATE,
        reads_only: false,
    },
    Tool {
        name: "list_processes",
        about: "List the commands of this server: those that run, and the latest that have ended.",
        takes: &[],
        gives: &[("processes", "objects")],
        reads_only: true,
    },
    Tool {
        name: "inspect_process",
        about: "Show whether a command runs, how it ended, its output and for how long it has printed nothing.",
        takes: &[RUN_ID],
        gives: STATE,
        reads_only: true,
    },
    Tool {
        name: "stop_process",
        about: "End a command and everything that it started: SIGTERM, and SIGKILL after the grace.",
        takes: &[RUN_ID, ("grace_ms", "integer", "Milliseconds between the two signals [500]", false)],
        gives: STATE,
        reads_only: false,
    },
    Tool {
        name: "read_output",
        about: "Read the stored output of a command, standard output and error as they came: a range of bytes, the last lines, or the lines that hold a text.",
        takes: &[
            RUN_ID,
            ("offset", "integer", "First byte [0]", false),
            ("limit", "integer", "Most bytes, at most 262144 [65536]", false),
            ("tail_lines", "integer", "The last so many lines in place of a range", false),
            ("contains", "string", "Lines that hold this text in place of a range", false),
        ],
        gives: &[
            ("run_id", "string"),
            ("first_offset", "integer"),
            ("end_offset", "integer"),
            ("next_offset", "integer"),
            ("is_running", "boolean"),
            ("text", "string"),
            ("lines", "objects"),
            ("has_more", "boolean"),
        ],
        reads_only: true,
    },
    Tool {
        name: "explain_denial",
        about: "Say what was denied to a command that has ended, by which rule, and what would allow it.",
        takes: &[RUN_ID],
        gives: &[("run_id", "string"), ("denials", "objects")],
        reads_only: true,
    },
    Tool {
        name: "list_changes",
        about: "List the runs of this server whose changes waited for a decision when they ended.",
        takes: &[],
        gives: &[("runs", "objects")],
        reads_only: true,
    },
    Tool {
        name: "show_changes",
        about: "Show the changes of a run that wait for a decision.",
        takes: &[RUN_ID, ("diff", "boolean", "Show the difference too", false)],
        gives: &[("run_id", "string"), ("changes", "objects"), ("conflicts", "objects"), ("diff", "string")],
        reads_only: true,
    },
    Tool {
        name: "accept_changes",
        about: "Bring changes of a run that wait into the workspace, if this server was started with --may-accept. What is protected waits for a person.",
        takes: &[RUN_ID, PATHS],
        gives: &[("run_id", "string"), ("message", "string")],
        reads_only: false,
    },
    Tool {
        name: "reject_changes",
        about: "Throw changes of a run that wait away.",
        takes: &[RUN_ID, PATHS],
        gives: &[("run_id", "string"), ("message", "string")],
        reads_only: false,
    },
    Tool {
        name: "read_file",
        about: "Read a file of the workspace, as a command inside would see it.",
        takes: &[
            PATH,
            ("offset", "integer", "First byte [0]", false),
            ("limit", "integer", "Most bytes, at most 524288", false),
        ],
        gives: &[
            ("path", "string"),
            ("content", "string"),
            ("is_utf8", "boolean"),
            ("size", "integer"),
            ("next_offset", "integer"),
        ],
        reads_only: true,
    },
    Tool {
        name: "write_file",
        about: "Write a file of the workspace as a whole. Protected names are held back until a person accepts them.",
        takes: &[
            PATH,
            ("content", "string", "The whole content", true),
            ("create_directories", "boolean", "Make missing directories", false),
        ],
        gives: &[
            ("path", "string"),
            ("size", "integer"),
            ("changes", "string"),
            ("run_id", "string"),
            ("denials", "objects"),
        ],
        reads_only: false,
    },
    Tool {
        name: "list_directory",
        about: "List a directory of the workspace.",
        takes: &[PLACE, PAGE, LIMIT],
        gives: &[("entries", "objects"), ("total", "integer"), ("is_cut", "boolean"), ("next_offset", "integer?")],
        reads_only: true,
    },
    Tool {
        name: "search_files",
        about: "Search the text files below a directory of the workspace for lines, all but .git and binary files.",
        takes: &[
            ("pattern", "string", "A text, or an extended regular expression with regex", true),
            ("regex", "boolean", "The pattern is a regular expression", false),
            PLACE,
            ("glob", "string", "Only files whose name matches this, such as *.rs", false),
            PAGE,
            LIMIT,
        ],
        gives: &[("hits", "objects"), ("total", "integer"), ("is_cut", "boolean"), ("next_offset", "integer?")],
        reads_only: true,
    },
];

/// Reports whether a tool has this name.
pub fn has(name: &str) -> bool {
    TOOLS.iter().any(|tool| tool.name == name)
}

/// Returns the list of tools.
pub fn list() -> Value {
    TOOLS.iter().map(Tool::describe).collect()
}

fn schema(kind: &str, about: Option<&str>) -> Value {
    let mut schema = match kind {
        "strings" => json!({ "type": "array", "items": { "type": "string" } }),
        "objects" => json!({ "type": "array", "items": { "type": "object" } }),
        "integer" => json!({ "type": "integer", "minimum": 0 }),
        other => match other.strip_suffix('?') {
            Some(kind) => json!({ "type": [kind, "null"] }),
            None => json!({ "type": other }),
        },
    };
    if let Some(about) = about {
        schema["description"] = json!(about);
    }
    schema
}

impl Tool {
    fn describe(&self) -> Value {
        let takes: Map<String, Value> =
            self.takes.iter().map(|(name, kind, about, _)| ((*name).to_owned(), schema(kind, Some(about)))).collect();
        let needed: Vec<&str> = self.takes.iter().filter(|take| take.3).map(|take| take.0).collect();
        let mut gives: Map<String, Value> =
            self.gives.iter().map(|(name, kind)| ((*name).to_owned(), schema(kind, None))).collect();
        // What was refused has these alone.
        gives.entry("denials").or_insert_with(|| schema("objects", None));
        json!({
            "name": self.name,
            "description": self.about,
            "inputSchema": { "type": "object", "properties": takes, "required": needed, "additionalProperties": false },
            "outputSchema": { "type": "object", "properties": gives },
            "annotations": { "readOnlyHint": self.reads_only, "openWorldHint": false },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_name_of_its_own_and_two_schemas() {
        let all = list();
        let all = all.as_array().unwrap();
        let mut names: Vec<&str> = all.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names.len(), 15);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 15);
        for tool in all {
            assert_eq!(tool["inputSchema"]["additionalProperties"], false);
            assert_eq!(tool["outputSchema"]["type"], "object");
            assert!(tool["description"].as_str().is_some_and(|text| text.ends_with('.')));
        }
        assert!(has("run_command") && !has("run"));
    }
}
