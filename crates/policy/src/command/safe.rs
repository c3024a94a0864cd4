//! Commands about which no person needs to be asked: they read below the working directory and print.
//!
//! A command is safe with the options that stand here and no others. Programs that run other programs by their own
//! settings (git, rg, less) are not here, and neither is what prints the environment.

use super::line::Stage;
use super::programs::base;

struct Known {
    name: &'static str,
    /// Letters of options that do nothing but choose what is printed.
    letters: &'static str,
    /// Long options, whole.
    long: &'static [&'static str],
    /// Largest number of words that are not options.
    words: usize,
}

const fn known(name: &'static str, letters: &'static str, long: &'static [&'static str], words: usize) -> Known {
    Known { name, letters, long, words }
}

const ANY: usize = usize::MAX;
const DIGITS: &str = "0123456789";

const SAFE: &[Known] = &[
    known("true", "", &[], ANY),
    known("false", "", &[], ANY),
    known("pwd", "LP", &["--logical", "--physical"], 0),
    known("whoami", "", &[], 0),
    known("id", "ugnGr", &["--user", "--group", "--name", "--groups", "--real"], 1),
    known("uname", "asnrvmpio", &["--all", "--machine", "--kernel-name", "--kernel-release"], 0),
    known("nproc", "", &["--all"], 0),
    known("arch", "", &[], 0),
    known("echo", "neE", &[], ANY),
    known(
        "ls",
        "aAlhrtSsRd1FpiGCxXknogUvT",
        &[
            "--all",
            "--almost-all",
            "--human-readable",
            "--reverse",
            "--recursive",
            "--directory",
            "--color",
            "--color=never",
            "--color=auto",
        ],
        ANY,
    ),
    known("cat", "nbsAEvTet", &["--number", "--show-all"], ANY),
    known("head", "ncqv", &["--lines", "--bytes", "--quiet"], ANY),
    known("tail", "ncqv", &["--lines", "--bytes", "--quiet"], ANY),
    known("wc", "lwcmL", &["--lines", "--words", "--bytes", "--chars"], ANY),
    known("nl", "bnwsvi", &[], ANY),
    known("tac", "", &[], ANY),
    known("rev", "", &[], ANY),
    known("cut", "dfcbs", &["--delimiter", "--fields", "--characters", "--complement"], ANY),
    known("tr", "cdst", &["--complement", "--delete", "--squeeze-repeats"], 2),
    known("uniq", "cdui", &["--count", "--repeated", "--unique", "--ignore-case"], 1),
    known(
        "sort",
        "nruhVfbdMg",
        &["--numeric-sort", "--reverse", "--unique", "--human-numeric-sort", "--version-sort"],
        ANY,
    ),
    known("comm", "123", &[], 2),
    known("cmp", "sbl", &["--silent", "--quiet"], 2),
    known("diff", "uqrNbwBiaU", &["--brief", "--recursive", "--unified", "--ignore-case", "--stat"], 2),
    known(
        "grep",
        "inclLvwxEFoqshHmABCe",
        &[
            "--ignore-case",
            "--count",
            "--line-number",
            "--invert-match",
            "--word-regexp",
            "--only-matching",
            "--quiet",
            "--extended-regexp",
            "--fixed-strings",
            "--files-with-matches",
        ],
        ANY,
    ),
    known("egrep", "inclLvwxoqshHmABCe", &["--ignore-case", "--count", "--line-number"], ANY),
    known("fgrep", "inclLvwxoqshHmABCe", &["--ignore-case", "--count", "--line-number"], ANY),
    known("stat", "ftc", &["--terse", "--format"], ANY),
    known("file", "bi", &["--brief", "--mime", "--mime-type"], ANY),
    known("du", "shackmxd", &["--summarize", "--human-readable", "--all", "--max-depth"], ANY),
    known("df", "hikTl", &["--human-readable", "--inodes"], ANY),
    known("basename", "asz", &["--multiple"], ANY),
    known("dirname", "z", &[], ANY),
    known("readlink", "femn", &["--canonicalize"], ANY),
    known("realpath", "emsPL", &["--relative-to"], ANY),
    known("md5sum", "bt", &["--binary", "--text"], ANY),
    known("sha1sum", "bt", &["--binary", "--text"], ANY),
    known("sha256sum", "bt", &["--binary", "--text"], ANY),
    known("sha512sum", "bt", &["--binary", "--text"], ANY),
    known("b2sum", "bt", &["--binary", "--text"], ANY),
    known("cksum", "", &[], ANY),
    known("od", "cxAtjNv", &["--format", "--address-radix"], ANY),
    known("hexdump", "Cvn", &[], ANY),
    known("strings", "an", &["--all"], ANY),
    known("seq", "sw", &["--separator", "--equal-width"], 3),
    // Without v and R: shells evaluate the subscript in `test -v 'a[$(COMMAND)]'`.
    known("test", "efdrwxsLhnzbcpSkuggO", &[], ANY),
    known("which", "a", &["--all"], ANY),
    known("column", "tsn", &["--table"], ANY),
    known("fold", "sw", &["--spaces", "--width"], ANY),
    known("expand", "t", &[], ANY),
    known("paste", "ds", &["--delimiters", "--serial"], ANY),
    known("cal", "", &[], 2),
    known("date", "u", &["--utc", "--iso-8601", "--rfc-email"], 1),
    known("sleep", "", &[], 1),
    known("tree", "aLdfhn", &[], ANY),
];
const FIND_TESTS: &[&str] = &[
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-type",
    "-maxdepth",
    "-mindepth",
    "-size",
    "-mtime",
    "-mmin",
    "-newer",
    "-empty",
    "-print",
    "-print0",
    "-not",
    "-a",
    "-o",
    "-prune",
    "-regex",
    "-iregex",
    "-perm",
    "-ls",
];

/// Names and endings of files with credentials.
const SECRET_NAMES: &[&str] = &[
    ".env",
    ".ssh",
    ".aws",
    ".gnupg",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".kube",
    ".docker",
    ".git-credentials",
    ".pgpass",
    ".vault-token",
    ".config",
    ".azure",
    ".gcloud",
    ".bash_history",
    ".zsh_history",
    "credentials",
    "shadow",
    "environ",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".password-store",
    ".mozilla",
    ".cargo",
    ".terraform.d",
    "secrets",
];
const SECRET_ENDINGS: &[&str] =
    &[".pem", ".key", ".p12", ".pfx", ".kdbx", ".keystore", ".jks", ".asc", ".gpg", ".tfstate"];

/// Says why a plain command is not known to be safe; `None` if it is.
pub(super) fn why_not(stage: &Stage) -> Option<String> {
    let (first, rest) = stage.words.split_first()?;
    let name = &first.text;
    if name.contains('/') && !["/bin/", "/usr/bin/"].iter().any(|at| name.strip_prefix(at) == Some(base(name))) {
        return Some(format!("{name:?} is a program of its own"));
    }
    let words: Vec<&str> = rest.iter().map(|word| word.text.as_str()).collect();
    if let Some(word) = words.iter().find(|word| leaves(word)) {
        return Some(format!("{word:?} may lead out of the working directory, or to credentials"));
    }
    if base(name) == "find" {
        let unknown =
            words.iter().find(|word| word.starts_with(['-', '(', ')', '!', ',']) && !FIND_TESTS.contains(word));
        return unknown.map(|word| format!("find with {word} is not known to be safe"));
    }
    let Some(known) = SAFE.iter().find(|known| known.name == base(name)) else {
        return Some(format!("{:?} is not known to be safe", base(name)));
    };
    let mut plain = 0;
    let mut only_words = false;
    for word in &words {
        if matches!(known.name, "echo" | "true" | "false") {
            // All that these have as words is text.
            continue;
        }
        if only_words || !word.starts_with('-') || *word == "-" {
            plain += 1;
        } else if *word == "--" {
            only_words = true;
        } else if let Some(long) = word.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or(long);
            let is_known = known.long.iter().any(|known| *known == *word || known[2..] == *name);
            if !is_known {
                return Some(format!("the option {word} of {} is not known to be safe", known.name));
            }
        } else if known.name == "cut" && word.starts_with("-d") {
            // The delimiter, whatever character it is.
        } else if !word[1..].chars().all(|c| known.letters.contains(c) || DIGITS.contains(c)) {
            return Some(format!("the option {word} of {} is not known to be safe", known.name));
        }
    }
    if plain > known.words {
        return Some(format!("{} with so many words is not known to be safe", known.name));
    }
    // `date 0101` sets the clock, `date +%s` prints it.
    if known.name == "date" && words.iter().any(|word| !word.starts_with(['+', '-'])) {
        return Some("date with a time may set the clock".to_owned());
    }
    None
}

/// Reports whether a word may be a path above or beside the working directory, or one of credentials.
fn leaves(word: &str) -> bool {
    let value = word.split_once('=').map_or(word, |(_, value)| value);
    [word, value].iter().any(|path| {
        let names = path.split('/');
        let is_secret = |name: &str| {
            let name = name.to_ascii_lowercase();
            SECRET_NAMES.iter().any(|secret| name == *secret || name.starts_with(".env"))
                || SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
        };
        path.starts_with('/') || names.clone().any(|name| name == "..") || names.clone().any(is_secret)
    }) || word.contains("/..")
        || (word.starts_with('-') && word.contains('/'))
}
