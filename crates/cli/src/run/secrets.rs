//! Gets the secrets of a run for its caller, in words and with advice.

use crate::failure::Failure;
use crate::notices::tell;
use nexus_runner::plan::resolve::ResolvedRun;
use nexus_runner::secrets::{FetchError, ParseError, Secrets, Warning};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const FORMS: &str = "Write --secret NAME=file:PATH, NAME=env:VARIABLE or NAME=cmd:COMMAND; the value itself never stands on a command line.";

/// Gets the values, right before a run starts that nothing refused.
pub fn fetch(run: &ResolvedRun, goes_on: &dyn Fn() -> bool) -> Result<Secrets, Failure> {
    if run.secrets.is_empty() {
        return Ok(Secrets::default());
    }
    keep_out_of_core_files()?;
    let host = crate::host::here();
    let current = std::env::current_dir().map_err(|error| {
        let message = format!("the current directory cannot be found: {error}");
        Failure::refused("secret_file", message, "Enter a directory that exists.")
    })?;
    let (secrets, warnings) = Secrets::fetch(run, &host, &current, goes_on).map_err(|error| not_fetched(&error))?;
    for warning in warnings {
        let Warning::ReadByOthers { path, .. } = &warning;
        tell(&format!("{warning}. chmod 600 {} keeps it to you.", path.display()));
    }
    Ok(secrets)
}

/// A core file of this process would hold the values. A limit of 0 would make the kernel start a program that a pattern for core files
/// names, with all of the memory; a limit of 1 does not (core(5)).
fn keep_out_of_core_files() -> Result<(), Failure> {
    let hard = getrlimit(Resource::Core).maximum;
    let soft = hard.map_or(1, |hard| hard.min(1));
    setrlimit(Resource::Core, Rlimit { current: Some(soft), maximum: hard }).map_err(|error| {
        let message = format!("the limit of core files cannot be set: {error}");
        Failure::refused(
            "secret_core",
            message,
            "A core file of Nexus would hold the secrets. Run it where limits can be lowered.",
        )
    })
}

/// Words a flag that cannot be read. What was written after the name is not repeated.
pub fn secret_not_read(error: &ParseError) -> Failure {
    Failure::usage(error.code(), format!("--secret: {error}"), FORMS)
}

fn not_fetched(error: &FetchError) -> Failure {
    let hint = match error.code() {
        "secret_unset" => "Set the variable, or name another place with file: or cmd:.",
        "secret_in_workspace" => {
            "Keep it outside of the workspace: a command could have put it there, and could read it anyway."
        }
        "secret_command" => {
            "Run the command on its own to see what it prints; it runs without a shell, from the directory /."
        }
        "secret_short" => "Look at what the provider gives: an empty or very short value is seldom a secret.",
        "secret_long" => "Show a large file with --ro.",
        _ => "Look at the path of the file and at who may read it.",
    };
    Failure::refused(error.code(), error.to_string(), hint)
}
