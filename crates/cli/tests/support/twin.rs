//! The same scripts twice, on equal directories at the same path: by `nexus run`, and without it.
//!
//! The run outside has what the sandbox promises and nothing that hides a difference: an ordinary uid (as in the
//! sandbox, where no uid is root), a network of loopback alone, the sandbox's environment, an empty HOME and /tmp.

use super::tree::{Check, differences};
use super::{Bench, is_root, stderr, stdout, user};
use std::fs;
use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Value of `HOME` inside.
const HOME: &str = "/home/nexus";

/// Things that the scripts may use besides the workspace.
#[derive(Default)]
pub struct Extra {
    /// Further flags of `nexus run`; what they set in the environment is set outside too.
    pub flags: Vec<String>,
    /// Further variables of the caller of `nexus`.
    pub caller: Vec<(String, String)>,
}

/// Both directories after their scripts.
pub struct Twins {
    /// Directory that the runs inside left, committed.
    pub inside: PathBuf,
    /// Directory that the runs outside left.
    pub outside: PathBuf,
    /// Output of the runs inside, one for each script.
    pub outputs: Vec<Output>,
}

/// Makes the directory with `fixture`, runs the scripts in it, one `nexus run` for each, and the same outside. Fails when
/// a script's exit code is not 0, or when an exit code or the normalised output differs.
pub fn twice(bench: &Bench, fixture: impl Fn(&Bench), extra: &Extra, scripts: &[String]) -> Twins {
    let caller = || extra.caller.iter().map(|(name, value)| (name, value));
    let environment =
        stdout(&bench.nexus(["run"]).envs(caller()).args(&extra.flags).args(["--", "env"]).output().unwrap());
    assert!(environment.contains(&format!("HOME={HOME}\n")), "{environment}");

    fixture(bench);
    let inside: Vec<_> = scripts
        .iter()
        .map(|script| {
            bench.nexus(["run"]).envs(caller()).args(&extra.flags).args(["--shell", script]).output().unwrap()
        })
        .collect();
    let parked = stdout(&bench.run(["changes", "list"]));
    assert!(parked.starts_with("No changes"), "{}: held back: {parked}", bench.who());
    assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    let kept = put_aside(bench, "inside");

    fixture(bench);
    if is_root() {
        give_all(&bench.workspace, user());
    }
    let outside: Vec<_> = scripts.iter().map(|script| without_nexus(bench, &environment, script)).collect();
    for (at, (inside, outside)) in inside.iter().zip(&outside).enumerate() {
        same_output(bench.who(), at, inside, outside);
    }
    Twins { inside: kept, outside: put_aside(bench, "outside"), outputs: inside }
}

impl Twins {
    /// Fails when the two directories differ.
    pub fn same_trees(&self, who: &str, check: impl Fn(&str) -> Check) {
        let found = differences(&self.inside, &self.outside, check);
        assert!(found.is_empty(), "{who}: {} differences:\n{}", found.len(), found[..found.len().min(40)].join("\n"));
    }
}

/// Moves the workspace away and makes an empty one at its path.
fn put_aside(bench: &Bench, name: &str) -> PathBuf {
    let kept = bench.base.path().join(name);
    fs::rename(&bench.workspace, &kept).unwrap();
    fs::create_dir(&bench.workspace).unwrap();
    bench.give(&bench.workspace);
    kept
}

fn give_all(path: &Path, uid: u32) {
    lchown(path, Some(uid), Some(uid)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_all(&entry.unwrap().path(), uid);
        }
    }
}

/// Runs the script as [`user`] in namespaces for the network, HOME and /tmp alone.
fn without_nexus(bench: &Bench, environment: &str, script: &str) -> Output {
    let prepare = format!(
        "set -e
        ip link set lo up
        mount -t tmpfs -o mode=1777 private /tmp
        mount -t tmpfs -o mode=755 private /home
        mkdir -m 755 {HOME}"
    );
    let user = user();
    let (flags, become_user): (&[&str], String) = if is_root() {
        let become_user =
            format!("chown {user}:{user} {HOME}; exec setpriv --reuid {user} --regid {user} --clear-groups");
        (&["--net", "--mount"], become_user)
    } else {
        // Root of a namespace for the mounts, then an ordinary uid of a second one.
        let become_user = format!("exec unshare --user --map-user={user} --map-group={user}");
        (&["--user", "--map-root-user", "--net", "--mount"], become_user)
    };
    // As the user who runs the tests: the workspace belongs to that user already.
    let mut command = Command::new("unshare");
    command.args(flags).args(["--", "/bin/sh", "-c", &format!("{prepare}\n{become_user} env -i \"$@\""), "sh"]);
    command.args(environment.lines()).args(["/bin/sh", "-c", script]);
    command.current_dir(&bench.workspace).stdin(std::process::Stdio::null()).output().unwrap()
}

fn same_output(who: &str, at: usize, inside: &Output, outside: &Output) {
    let streams = [("stdout", stdout(inside), stdout(outside)), ("stderr", stderr(inside), stderr(outside))];
    for (name, inside, outside) in streams {
        let (ours, theirs) = (normalised(&inside), normalised(&outside));
        if let Some(line) = first_difference(&ours, &theirs) {
            let context =
                |text: &str| text.lines().skip(line.saturating_sub(6)).take(14).collect::<Vec<_>>().join("\n");
            panic!(
                "{who}, script {at}: {name} differs in line {}\n--- inside\n{}\n--- outside\n{}",
                line + 1,
                context(&ours),
                context(&theirs)
            );
        }
    }
    let codes = (inside.status.code(), outside.status.code());
    assert_eq!(
        codes,
        (Some(0), Some(0)),
        "{who}, script {at}: a step gave another exit code than expected\n{}{}",
        stdout(inside),
        stderr(inside)
    );
}

fn first_difference(left: &str, right: &str) -> Option<usize> {
    let (left, right): (Vec<_>, Vec<_>) = (left.lines().collect(), right.lines().collect());
    (0..left.len().max(right.len())).find(|at| left.get(*at) != right.get(*at))
}

/// Without what may differ between any two runs: owners, and how long something took.
pub fn normalised(text: &str) -> String {
    /// The user outside, by number and by what the machine calls it: a uid set by hand may have an account.
    static OUTSIDE: OnceLock<Vec<String>> = OnceLock::new();
    let outside = OUTSIDE.get_or_init(|| {
        let files = ["/etc/passwd", "/etc/group"].map(|file| fs::read_to_string(file).unwrap());
        let names = files.iter().flat_map(|text| names_of(user(), text));
        names.chain([user().to_string()]).collect()
    });
    normalised_for(outside, text)
}

/// The same for a user outside that has these names.
pub fn normalised_for(outside: &[String], text: &str) -> String {
    without_durations(&without_owners(outside, &without_progress(text)))
}

/// Leaves out the line that only a slow machine gets, and the one about a commit.
fn without_progress(text: &str) -> String {
    let is_progress =
        |line: &&str| line.contains("still looks at what it changed") || line.starts_with("nexus: committed: ");
    text.split_inclusive('\n').filter(|line| !is_progress(line)).collect()
}

/// The names that a number has in passwd(5) or group(5).
pub fn names_of(id: u32, text: &str) -> Vec<String> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        (fields.nth(1)?.parse() == Ok(id)).then_some(name)
    };
    text.lines().filter_map(entry).collect()
}

/// Replaces the names and numbers of the one user there is: `nexus` (1000) inside, `outside` without a sandbox.
fn without_owners(outside: &[String], text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for letter in text.chars().chain(['\n']) {
        if letter.is_alphanumeric() || letter == '_' {
            word.push(letter);
            continue;
        }
        let owner = matches!(word.as_str(), "nexus" | "1000") || outside.contains(&word);
        out.push_str(if owner { "OWNER" } else { &word });
        word.clear();
        out.push(letter);
    }
    out.pop();
    out
}

/// `0.52s`, `12 ms` and `duration_ms 3.4`.
fn without_durations(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let end = from.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(from.len());
        let (number, after) = from.split_at(end);
        let unit = ["s", "ms", " ms"].iter().find(|unit| {
            after
                .strip_prefix(**unit)
                .is_some_and(|next| !next.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_'))
        });
        let part_of_a_word = out.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-');
        let named = ["duration_ms ", "duration_ms: "].iter().any(|name| out.ends_with(name));
        rest = after;
        match unit {
            _ if named => out.push_str("TIME"),
            Some(unit) if !part_of_a_word => {
                out.push_str("TIME");
                rest = &after[unit.len()..];
            }
            _ => out.push_str(number),
        }
    }
    out + rest
}
