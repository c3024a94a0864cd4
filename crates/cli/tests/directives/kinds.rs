//! Tasks of directives, each with its request, its output and its end.

use nexus_api::mothership::CreateDirective;
use nexus_model::directive::State;
use serde_json::json;
use std::fmt::Write as _;

/// Names the task of a directive, which decides its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Prints lines and ends with 0.
    Prints,
    /// Ends with another code.
    Fails(u8),
    /// Is ended by its time limit.
    TimesOut,
    /// Is canceled while it runs.
    Canceled,
    /// Prints more than its bound.
    PrintsTooMuch,
    /// Keeps a file.
    Keeps,
    /// May run again when its territory is lost.
    Requeues,
    /// Asks for a destination that its list does not have.
    AsksElsewhere,
    /// Needs more memory than it may have.
    Starves,
    /// Makes a commit in a clone of a repository.
    Commits,
    /// Writes more than its disk holds.
    FillsItsDisk,
}

impl Kind {
    pub fn of(number: usize) -> Self {
        match number % 10 {
            1 => Self::AsksElsewhere,
            // The bounds of memory and disk are those of root's sandboxes.
            2 if is_root() => Self::Starves,
            9 if is_root() => Self::FillsItsDisk,
            3 => Self::Fails(u8::try_from(number % 100).unwrap() + 1),
            4 => Self::TimesOut,
            5 => Self::Canceled,
            6 => Self::PrintsTooMuch,
            7 => Self::Keeps,
            8 => Self::Requeues,
            _ => Self::Prints,
        }
    }

    pub fn request(self, number: usize) -> CreateDirective {
        let lines = number % 50;
        let mark = format!("echo {number} >> marks");
        let print = format!("i=0; while [ $i -lt {lines} ]; do echo \"line $i of {number}\"; i=$((i+1)); done");
        let script = match self {
            Self::Prints | Self::Requeues => format!("{mark}; {print}"),
            Self::Fails(code) => format!("{mark}; {print}; exit {code}"),
            Self::TimesOut | Self::Canceled => format!("{print}; sleep 600"),
            Self::PrintsTooMuch => format!("{mark}; seq 1 20000"),
            Self::Keeps => format!("{mark}; mkdir -p out; echo kept {number} > out/{number}; {print}"),
            Self::AsksElsewhere => {
                format!("{mark}; curl -s -o /dev/null -w '%{{http_connect}}\\n' https://elsewhere.example/; {print}")
            }
            Self::Starves => {
                format!("{mark}; {print}; head -c 300M /dev/zero | tail -c 250M > /dev/null")
            }
            Self::Commits => {
                let git = "git -c safe.directory=/workspace -c user.name=n -c user.email=n@example.test";
                format!("{mark}; {git} commit -q --allow-empty -m {number}; {print}; {git} rev-parse HEAD")
            }
            Self::FillsItsDisk => {
                format!("{mark}; {print}; head -c 30M /dev/zero > large 2>/dev/null || echo full; rm large")
            }
        };
        let mut request = json!({ "command": script });
        match self {
            Self::TimesOut => request["timeout_seconds"] = json!(1),
            Self::PrintsTooMuch => request["limits"] = json!({"max_output_bytes": 3000}),
            Self::Keeps => request["artifacts"] = json!({"collect": [format!("out/{number}")]}),
            Self::AsksElsewhere => {
                request["requested_capabilities"] = json!({
                    "net": {"mode": "allowlist", "allow": ["listed.example:443"]},
                });
            }
            Self::Starves => request["limits"] = json!({"memory_mb": 64, "cpu": 1500}),
            Self::FillsItsDisk => request["limits"] = json!({"disk_mb": 4}),
            Self::Requeues => request["on_lease_loss"] = json!("requeue"),
            _ => {}
        }
        serde_json::from_value(request).unwrap()
    }

    /// The output, where all of it is stored.
    pub fn output(self, number: usize) -> Option<String> {
        let mut lines = String::new();
        for line in 0..number % 50 {
            writeln!(lines, "line {line} of {number}").unwrap();
        }
        match self {
            Self::PrintsTooMuch | Self::Commits => None,
            Self::AsksElsewhere => Some(format!("403\n{lines}")),
            Self::FillsItsDisk => Some(format!("{lines}full\n")),
            _ => Some(lines),
        }
    }

    pub fn end(self) -> (State, Option<i64>) {
        match self {
            Self::Prints
            | Self::PrintsTooMuch
            | Self::Keeps
            | Self::Requeues
            | Self::AsksElsewhere
            | Self::Commits
            | Self::FillsItsDisk => (State::Succeeded, Some(0)),
            Self::Starves => (State::Failed, Some(137)),
            Self::Fails(code) => (State::Failed, Some(i64::from(code))),
            Self::TimesOut => (State::TimedOut, Some(124)),
            Self::Canceled => (State::Canceled, None),
        }
    }

    /// The reason of the end.
    pub fn reason(self) -> &'static str {
        match self {
            Self::TimesOut => "timeout",
            Self::Canceled => "canceled",
            Self::Starves => "oom",
            _ => "exit",
        }
    }

    /// Commits its mark when its own command ends it.
    pub fn marks(self) -> bool {
        !matches!(self, Self::TimesOut | Self::Canceled | Self::Starves)
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
