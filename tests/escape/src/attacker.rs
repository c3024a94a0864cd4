//! The program that plays the attacker's parts, and the rule that the product plays them only inside a sandbox.

use crate::answer::Seen;
use crate::cases::{self, How};
use crate::context::{self, Context};
use crate::{act, isolate};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// A program, and the words that make it play parts: it is copied into the workspace and started inside.
#[derive(Debug, Clone)]
pub struct Attacker {
    /// Path of the program.
    pub program: PathBuf,
    /// Words before the name of the part.
    pub words: Vec<String>,
}

/// Places in which parts may be played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// Also without a sandbox, where a probe shows that it can see the hole. For continuous integration only.
    Anywhere,
    /// Only where the namespaces are not those of the host. A probe of a user's machine outside of a sandbox would
    /// attack the machine: it forks until it is refused and calls what no workload calls.
    SandboxOnly,
}

/// Exit code of a part that is not played at all.
const NOT_PLAYED: i32 = 2;

/// Plays one part: `probe --context FILE ID[/CASE]...` or `act PART ...`. Returns the exit code.
///
/// Must be called before the program opens anything, because open descriptors count as inherited.
#[must_use]
pub fn part(words: &[String], ground: Ground) -> i32 {
    let leaked = context::inherited_descriptors();
    let rest = words.get(1..).unwrap_or_default();
    match words.first().map(String::as_str) {
        Some("probe") => probe(rest, leaked, ground),
        // Harmless by themselves: they linger, detach or print, and end after their time.
        Some("act") => act::play(rest),
        _ => NOT_PLAYED,
    }
}

/// Runs the selected probes, each in a child of its own, and prints one line for each.
fn probe(arguments: &[String], leaked: Vec<i32>, ground: Ground) -> i32 {
    let (mut context, wanted) = match arguments {
        [flag, file, rest @ ..] if flag == "--context" => {
            let read = std::fs::read(file).map_err(|error| error.to_string());
            match read.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string())) {
                Ok(found) => (found, rest),
                Err(problem) => {
                    eprintln!("nexus-escape: {file}: {problem}");
                    return NOT_PLAYED;
                }
            }
        }
        _ => (Context::default(), arguments),
    };
    if ground == Ground::SandboxOnly && !away_from_host(&context) {
        eprintln!("nexus-escape: hostile probes are played inside a sandbox only");
        return NOT_PLAYED;
    }
    context.leaked = leaked;
    let mut found = false;
    for case in cases::all() {
        let named = format!("{}/{}", case.id, case.name);
        let How::Probe(_, run) = case.how else { continue };
        if !wanted.iter().any(|word| word == case.id || *word == named) {
            continue;
        }
        found = true;
        let seen = Seen::new(case.id, case.name, isolate::observe(run, &context, Duration::from_secs(30)));
        let line = serde_json::to_string(&seen).unwrap_or_default();
        if writeln!(std::io::stdout(), "{line}").is_err() {
            return 1;
        }
    }
    if found { 0 } else { NOT_PLAYED }
}

/// Returns whether this process has none of the three namespaces of the host that make a sandbox. The host's namespaces
/// stand in the context; without a context they are unknown, and nothing is played.
fn away_from_host(context: &Context) -> bool {
    ["user", "mnt", "pid"].iter().all(|name| {
        let own = std::fs::metadata(format!("/proc/self/ns/{name}"));
        matches!((own, context.namespaces.get(*name)), (Ok(own), Some(host)) if own.ino() != *host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(shift: u64) -> Context {
        let inode = |name: &str| std::fs::metadata(format!("/proc/self/ns/{name}")).expect("a namespace").ino();
        let namespaces = ["user", "mnt", "pid"].map(|name| (name.to_owned(), inode(name) + shift));
        Context { namespaces: namespaces.into(), ..Context::default() }
    }

    #[test]
    fn the_host_is_recognised_and_a_context_without_namespaces_is_taken_for_it() {
        assert!(!away_from_host(&context(0)));
        assert!(!away_from_host(&Context::default()));
        assert!(away_from_host(&context(1)));
        let mut shared = context(1);
        shared.namespaces.insert("pid".to_owned(), context(0).namespaces["pid"]);
        assert!(!away_from_host(&shared), "one namespace of the host is enough");
    }

    #[test]
    fn without_a_sandbox_a_probe_is_played_only_where_that_is_allowed() {
        let words: Vec<String> = ["probe", "A08/own_name"].map(str::to_owned).into();
        assert_eq!(part(&words, Ground::Anywhere), 0);
        assert_eq!(part(&words, Ground::SandboxOnly), NOT_PLAYED);
    }
}
