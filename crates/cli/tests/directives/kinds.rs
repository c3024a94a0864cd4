//! Tasks of directives, each with its request, its output and its end.

use nexus_api::mothership::CreateDirective;
use nexus_model::directive::State;
use serde_json::json;

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
}

impl Kind {
    pub fn of(number: usize) -> Self {
        match number % 10 {
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
        };
        let mut request = json!({ "command": script });
        match self {
            Self::TimesOut => request["timeout_seconds"] = json!(1),
            Self::PrintsTooMuch => request["limits"] = json!({"max_output_bytes": 3000}),
            Self::Keeps => request["artifacts"] = json!({"collect": [format!("out/{number}")]}),
            Self::Requeues => request["on_lease_loss"] = json!("requeue"),
            _ => {}
        }
        serde_json::from_value(request).unwrap()
    }

    /// The output, where all of it is stored.
    pub fn output(self, number: usize) -> Option<String> {
        let lines = (0..number % 50).map(|line| format!("line {line} of {number}\n"));
        (self != Self::PrintsTooMuch).then(|| lines.collect())
    }

    pub fn end(self) -> (State, Option<i64>) {
        match self {
            Self::Prints | Self::PrintsTooMuch | Self::Keeps | Self::Requeues => (State::Succeeded, Some(0)),
            Self::Fails(code) => (State::Failed, Some(i64::from(code))),
            Self::TimesOut => (State::TimedOut, Some(124)),
            Self::Canceled => (State::Canceled, None),
        }
    }

    /// Commits its mark when its own command ends it.
    pub fn marks(self) -> bool {
        !matches!(self, Self::TimesOut | Self::Canceled)
    }
}
