//! Everything that a process hands on to its children and that no plan names, read from `/proc`.
//!
//! ```text
//!  /proc/PID/{ns/*,exe,root,status,limits,stat,cgroup,oom_score_adj,…} ─▶ Likeness ─▶ differences, digest
//! ```
//! The door of a launcher reads the facts of each caller itself; the settings that only a process can read of itself
//! ([`OwnFacts`]) are in the digest that names the socket.

use nexus_model::Digest;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Namespaces of a process, and those that its children get.
const NAMESPACES: &[&str] =
    &["cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts"];

/// Lines of `/proc/PID/status` by the name of their fact (proc(5)). `Seccomp_filters` counts the filters, of which a process can
/// only get more.
const STATUS: &[(&str, &[&str])] = &[
    ("user", &["Uid", "Gid", "Groups"]),
    ("capabilities", &["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]),
    ("confinement", &["NoNewPrivs", "Seccomp", "Seccomp_filters"]),
    ("umask", &["Umask"]),
    ("processors", &["Cpus_allowed", "Mems_allowed"]),
];

/// Files of a process with one fact each. A kernel without the file has none in any process.
const FILES: &[(&str, &str)] = &[
    ("limits", "limits"),
    ("control group", "cgroup"),
    ("memory killer", "oom_score_adj"),
    ("login", "loginuid"),
    ("login session", "sessionid"),
    ("label", "attr/current"),
];

/// Facts that say whether a process is one of the same user, beside this one, and of this very program.
const IDENTITY: &[&str] = &["namespaces", "root", "program", "user", "confinement"];

/// Those of them that `/proc` shows without a look at any file system.
const PLACE: &[&str] = &["namespaces", "user", "confinement"];

/// Facts that another process can change at any time.
const CHANGEABLE: &[&str] = &["processors", "limits", "control group", "memory killer", "priority"];

/// Bytes of a line of `/proc/PID/limits` before the soft limit.
const LIMIT_NAME: usize = 25;

/// A bound for the files of `/proc` that are read here.
const MAX_BYTES: u64 = 1 << 20;

/// A part of the facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Identity,
    Place,
    Changeable,
}

/// The facts of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Likeness {
    facts: BTreeMap<&'static str, String>,
}

impl Likeness {
    /// Reads the facts of this process.
    pub fn own() -> io::Result<Self> {
        Self::read(Path::new("/proc/self"), Part::All)
    }

    /// Reads the facts of another process. The caller makes sure that the number still means that process afterwards.
    pub fn of(pid: i32) -> io::Result<Self> {
        Self::read(&PathBuf::from(format!("/proc/{pid}")), Part::All)
    }

    /// Reads the facts that [`Likeness::strangeness`] compares, and no others.
    pub fn identity_of(pid: i32) -> io::Result<Self> {
        Self::read(&PathBuf::from(format!("/proc/{pid}")), Part::Identity)
    }

    /// Reads the facts that [`Likeness::is_elsewhere`] compares, and no others. No file system of the process is asked, which in
    /// another mount namespace may be one that does not answer.
    pub fn place_of(pid: i32) -> io::Result<Self> {
        Self::read(&PathBuf::from(format!("/proc/{pid}")), Part::Place)
    }

    /// Reads the facts that [`Likeness::changes`] compares, and no others. `/proc` shows them of every process.
    pub fn changeable_of(pid: i32) -> io::Result<Self> {
        Self::read(&PathBuf::from(format!("/proc/{pid}")), Part::Changeable)
    }

    fn read(process: &Path, part: Part) -> io::Result<Self> {
        let mut facts = BTreeMap::new();
        let status = text(&process.join("status"))?;
        for (fact, names) in STATUS {
            facts.insert(*fact, lines_of(&status, names));
        }
        if part != Part::Changeable {
            facts.insert("namespaces", namespaces(process)?);
        }
        if part == Part::All || part == Part::Identity {
            facts.insert("root", identity(&process.join("root"))?);
            facts.insert("program", program(&process.join("exe"))?);
        }
        if part == Part::All || part == Part::Changeable {
            facts.insert("priority", priority(&text(&process.join("stat"))?)?);
            for (fact, file) in FILES.iter().filter(|(fact, _)| part == Part::All || CHANGEABLE.contains(fact)) {
                let found = optional(text(&process.join(file)))?;
                facts.insert(fact, found.unwrap_or_default());
            }
        }
        Ok(Self { facts })
    }

    /// Names the facts in which another process differs.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        self.among(other, |_| true)
    }

    /// Names those of the differences that make the other process a stranger: another user, other namespaces, another program.
    #[must_use]
    pub fn strangeness(&self, other: &Self) -> Vec<String> {
        self.among(other, |fact| IDENTITY.contains(fact))
    }

    /// Reports whether another process is of another user, in another namespace or confined otherwise.
    #[must_use]
    pub fn is_elsewhere(&self, other: &Self) -> bool {
        !self.among(other, |fact| PLACE.contains(fact)).is_empty()
    }

    /// Reports whether another process is of the same user and beside this one, whichever program it is.
    #[must_use]
    pub fn is_neighbour(&self, other: &Self) -> bool {
        self.strangeness(other).iter().all(|fact| fact == "program")
    }

    /// Names those of the differences of a launcher process that another process can have brought about.
    #[must_use]
    pub fn changes(&self, launcher: &Self) -> Vec<String> {
        let has_changed_limits = self.limits_as_launcher() != launcher.limits_as_launcher();
        self.among(launcher, |fact| CHANGEABLE.contains(fact) && (**fact != *"limits" || has_changed_limits))
    }

    /// Returns the limits without what a launcher process sets itself (`Quotas::of_caller` of `nexus-jail`): the soft limit of
    /// descriptors, which it makes the hard one, and a hard limit of 0 or 1 on core files, of which it makes 1 where it may.
    fn limits_as_launcher(&self) -> Vec<String> {
        let limits = self.facts.get("limits").map(String::as_str).unwrap_or_default();
        let line = |line: &str| {
            let (name, values) = line.split_at_checked(LIMIT_NAME)?;
            let (_, hard) = values.trim_start().split_once(' ')?;
            let hard = hard.trim();
            match name.trim_end() {
                "Max open files" => Some(format!("{name}{hard}")),
                "Max core file size" if matches!(hard.split(' ').next(), Some("0" | "1")) => None,
                _ => Some(line.to_owned()),
            }
        };
        limits.lines().filter_map(line).collect()
    }

    fn among(&self, other: &Self, counts: impl Fn(&&'static str) -> bool) -> Vec<String> {
        let differs = |fact: &&&'static str| self.facts.get(**fact) != other.facts.get(**fact);
        self.facts.keys().filter(|fact| counts(fact)).filter(differs).map(|fact| (*fact).to_owned()).collect()
    }

    /// Reports whether programs which this process executes gain no rights. Then a filter or a Landlock domain may be around it that
    /// `/proc` does not show, and a launcher could not tell it from another process with another one.
    #[must_use]
    pub fn is_confined(&self) -> bool {
        self.facts.get("confinement").is_some_and(|lines| lines.starts_with("NoNewPrivs:1"))
    }
}

/// The facts of this process, with the settings that no other process can read.
#[derive(Debug, Clone, Serialize)]
pub struct OwnFacts {
    /// The facts that other processes can read, too.
    pub likeness: Likeness,
    settings: BTreeMap<&'static str, i64>,
    /// Settings of the user for all sandboxes, by name.
    sandboxes: BTreeMap<&'static str, String>,
}

impl OwnFacts {
    /// Reads all of it. `sandboxes` is what the caller's settings say about every sandbox, by name.
    pub fn read(sandboxes: BTreeMap<&'static str, String>) -> io::Result<Self> {
        Ok(Self { likeness: Likeness::own()?, settings: nexus_jail::peer::own_settings(), sandboxes })
    }

    /// Returns the name of the launchers that were started by processes like this one.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        // Half of the digits are enough to tell launchers apart; each still looks at its callers.
        Digest::of_json(self).map(|digest| digest.hex()[..32].to_owned())
    }
}

/// Reports whether a process is stopped, by a signal or a tracer: field 3 of proc(5).
pub fn is_stopped(pid: i32) -> io::Result<bool> {
    let stat = text(&PathBuf::from(format!("/proc/{pid}/stat")))?;
    Ok(after_name(&stat)?.starts_with(['T', 't']))
}

/// Returns the fields from number 3 on. Field 2 is a name in parentheses that may hold anything.
fn after_name(stat: &str) -> io::Result<&str> {
    stat.rsplit_once(") ").map(|(_, rest)| rest).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn namespaces(process: &Path) -> io::Result<String> {
    let mut all = String::new();
    for name in NAMESPACES {
        let found = optional(std::fs::metadata(process.join("ns").join(name)))?;
        all += &found.map_or_else(|| "- ".to_owned(), |meta| format!("{}:{} ", meta.dev(), meta.ino()));
    }
    Ok(all)
}

/// A kernel that lacks a file lacks it in every process.
fn optional<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // A label of a security module that is not there (proc_pid_attr_read).
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => Ok(None),
        other => other.map(Some),
    }
}

fn text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(4096);
    io::Read::read_to_end(&mut io::Read::take(std::fs::File::open(path)?, MAX_BYTES), &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn identity(path: &Path) -> io::Result<String> {
    let meta = std::fs::metadata(path)?;
    Ok(format!("{}:{}", meta.dev(), meta.ino()))
}

/// Another build of the program in the same file has other times.
fn program(path: &Path) -> io::Result<String> {
    let meta = std::fs::metadata(path)?;
    let (changed, part) = (meta.ctime(), meta.ctime_nsec());
    Ok(format!("{}:{} {} {changed}.{part}", meta.dev(), meta.ino(), meta.size()))
}

/// Returns the lines of these names, in the order of the names, each with its blanks made one.
fn lines_of(status: &str, names: &[&str]) -> String {
    let line = |name: &&str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
        format!("{name}:{}", value.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
    };
    names.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns nice value, real-time priority and scheduling policy: the fields 19, 40 and 41 of proc(5).
fn priority(stat: &str) -> io::Result<String> {
    let fields: Vec<&str> = after_name(stat)?.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied().ok_or(io::ErrorKind::InvalidData);
    Ok(format!("{} {} {}", field(19)?, field(40)?, field(41)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn like(facts: &[(&'static str, &str)]) -> Likeness {
        Likeness { facts: facts.iter().map(|(name, value)| (*name, (*value).to_owned())).collect() }
    }

    #[test]
    fn a_process_is_like_itself_and_its_name_is_the_same_each_time() {
        let own = OwnFacts::read(BTreeMap::new()).unwrap();
        assert!(own.likeness.differences(&Likeness::own().unwrap()).is_empty());
        assert!(own.likeness.differences(&Likeness::of(std::process::id().cast_signed()).unwrap()).is_empty());
        let name = own.name().unwrap();
        assert_eq!(OwnFacts::read(BTreeMap::new()).unwrap().name().unwrap(), name);
        let other = OwnFacts::read(BTreeMap::from([("uid_base", "70000".to_owned())])).unwrap();
        assert_ne!(other.name().unwrap(), name);
    }

    /// Each of these is inherited by a sandbox, and would be another one in a sandbox of the launcher.
    #[test]
    fn what_a_child_would_inherit_differently_is_named() {
        let own = Likeness::own().unwrap();
        for (fact, words) in [
            ("umask", "umask 0123"),
            ("limits", "ulimit -c 0; ulimit -n 77"),
            ("limits", "ulimit -v 4000000"),
            ("priority", "renice -n 7 -p $$ >/dev/null"),
            ("memory killer", "echo 321 > /proc/self/oom_score_adj"),
        ] {
            let script = format!("{words}; echo ready; read -r end");
            let mut child = Command::new("/bin/bash")
                .args(["-c", &script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            io::BufRead::read_line(&mut io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
            assert_eq!(line, "ready\n", "{words}");
            let found = own.differences(&Likeness::of(child.id().cast_signed()).unwrap());
            // The shell is another program, and of the rest just this differs.
            assert_eq!(found, sorted(&["program", fact]), "{words}");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    fn sorted(names: &[&str]) -> Vec<String> {
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn strangers_and_changes_are_distinguished_from_other_differences() {
        let one = like(&[("user", "1"), ("umask", "22"), ("control group", "a"), ("namespaces", "x")]);
        let other = like(&[("user", "1"), ("umask", "77"), ("control group", "b"), ("namespaces", "x")]);
        assert_eq!(one.differences(&other), ["control group", "umask"]);
        assert!(one.strangeness(&other).is_empty());
        assert_eq!(one.changes(&other), ["control group"]);
        let stranger = like(&[("user", "1"), ("umask", "22"), ("control group", "a"), ("namespaces", "y")]);
        assert_eq!(one.strangeness(&stranger), ["namespaces"]);
    }

    #[test]
    fn changed_limits_of_a_launcher_are_distinguished_from_its_own() {
        let limits = |core: &str, files: &str, stack: &str| {
            let line = |name: &str, values: &str| format!("{name:<26}{values} files\n");
            line("Limit", "Soft Limit           Hard Limit          ")
                + &line("Max stack size", stack)
                + &line("Max core file size", core)
                + &line("Max open files", files)
        };
        let of = |text: &str| like(&[("limits", text)]);
        let own = of(&limits("0   unlimited", "1024   5000", "8   unlimited"));
        let changes = |launcher: &str| own.changes(&of(launcher));
        assert!(changes(&limits("0   unlimited", "5000   5000", "8   unlimited")).is_empty());
        for other in [
            limits("0   unlimited", "77   77", "8   unlimited"),
            limits("0   unlimited", "5000   5000", "7   unlimited"),
            limits("0   unlimited", "5000   5000", "8   9"),
            limits("0   0", "5000   5000", "8   unlimited"),
            String::new(),
        ] {
            assert_eq!(changes(&other), ["limits"], "{other}");
        }
        let none = of(&limits("0   0", "1024   5000", "8   unlimited"));
        assert!(none.changes(&of(&limits("1   1", "5000   5000", "8   unlimited"))).is_empty());
    }

    #[test]
    fn lines_and_fields_are_read_by_their_names_and_numbers() {
        let status =
            "Name:\tx\nUmask:\t0022\nSeccomp:\t0\nSeccomp_filters:\t3\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n";
        assert_eq!(lines_of(status, &["Seccomp", "Seccomp_filters"]), "Seccomp:0\nSeccomp_filters:3");
        assert_eq!(lines_of(status, &["Cpus_allowed", "Missing"]), "Cpus_allowed:3\nMissing:");
        let stat = format!("7 (a) b) S {}", (4..=52).map(|number| number.to_string()).collect::<Vec<_>>().join(" "));
        assert_eq!(priority(&stat).unwrap(), "19 40 41");
        assert!(priority("7 (a) S 1").is_err() && priority("").is_err());
        assert!(like(&[("confinement", "NoNewPrivs:1\nSeccomp:0")]).is_confined());
        assert!(!like(&[("confinement", "NoNewPrivs:0\nSeccomp:2")]).is_confined());
    }
}
