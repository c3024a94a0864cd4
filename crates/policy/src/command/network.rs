//! What comes from the network and goes into a shell.

use super::line::{Line, Pipeline, Stage};
use super::programs::{base, is_interpreter, is_shell, is_wrapper};

const FETCHERS: &[&str] = &[
    "curl", "wget", "fetch", "aria2c", "axel", "http", "https", "httpie", "xh", "nc", "ncat", "netcat", "socat",
    "telnet", "ftp", "sftp", "lftp", "tftp", "lynx", "links", "elinks", "w3m", "ssh", "scp", "rsync", "GET", "openssl",
    "dig", "host", "nslookup", "gh", "aws", "gsutil", "s3cmd", "rclone", "ipfs",
];

/// Returns the names of the programs that a stage may run.
fn names(stage: &Stage) -> Vec<&str> {
    let mut words = stage.words.iter().map(|word| word.text.as_str());
    let Some(first) = words.next().map(base) else { return Vec::new() };
    if is_wrapper(first) { std::iter::once(first).chain(words.map(base)).collect() } else { vec![first] }
}

/// Reports whether a stage fetches something, itself or in its parentheses.
fn fetches(stage: &Stage) -> bool {
    fetches_alone(stage) || stage.inner.iter().any(line_fetches)
}

fn fetches_alone(stage: &Stage) -> bool {
    let by_file = stage.redirects.iter().any(|redirect| redirect.target.text.starts_with("/dev/tcp/"));
    by_file || names(stage).iter().any(|name| FETCHERS.contains(name))
}

fn line_fetches(line: &Line) -> bool {
    let mut found = false;
    line.each_stage(&mut |stage| found |= fetches_alone(stage));
    found
}

/// Reports whether a stage runs as a program what it reads, itself or in its parentheses.
fn runs_its_input(stage: &Stage) -> bool {
    let inner = |line: &Line| {
        let mut found = false;
        line.each_stage(&mut |stage| found |= runs_its_input_alone(stage));
        found
    };
    runs_its_input_alone(stage) || stage.inner.iter().any(inner)
}

fn runs_its_input_alone(stage: &Stage) -> bool {
    let names = names(stage);
    if names.iter().any(|name| is_shell(name)) {
        return true;
    }
    let reads_words = |name: &&str| is_interpreter(name) && !matches!(*name, "sed" | "awk" | "gawk" | "mawk" | "nawk");
    let rest: Vec<&str> = stage.words.iter().skip(1).map(|word| word.text.as_str()).collect();
    let from_input = rest.iter().all(|word| matches!(*word, "-" | "/dev/stdin" | "/proc/self/fd/0" | "-i" | "-u"));
    let is_direct = names.first().is_some_and(|name| reads_words(name) || matches!(*name, "source" | "."));
    is_direct && from_input
}

/// Finds a program that comes from the network into a shell: by a pipe, a substitution or a redirection.
pub(super) fn into_a_shell(pipeline: &Pipeline) -> Option<String> {
    let found = || "it runs what it fetches from the network".to_owned();
    if let Some(first) = pipeline.iter().position(fetches)
        && pipeline.iter().skip(first + 1).any(runs_its_input)
    {
        return Some(found());
    }
    for stage in pipeline {
        let names = names(stage);
        let takes = |name: &&str| {
            is_shell(name) || is_interpreter(name) || matches!(*name, "eval" | "source" | "." | "exec" | "xargs")
        };
        let of_words = stage.words.iter().any(|word| word.inner.iter().any(line_fetches));
        let of_files = stage.redirects.iter().any(|redirect| redirect.target.inner.iter().any(line_fetches));
        let is_command = stage.words.first().is_some_and(|word| word.inner.iter().any(line_fetches));
        if is_command || ((of_words || of_files) && names.iter().any(takes)) {
            return Some(found());
        }
        let tcp = stage.redirects.iter().any(|redirect| redirect.target.text.starts_with("/dev/tcp/"));
        if tcp && names.iter().any(|name| is_shell(name) || *name == "exec") {
            return Some("it gives a shell to the network".to_owned());
        }
    }
    None
}
