//! Commands that no approval lets through: they destroy a machine, or take more rights.

use super::devices::{gives_rights, is_device, is_root_like};
use super::line::{Direction, Line, Stage};
use super::network;
use super::parse::parse;
use super::programs::{ESCALATES, base, is_interpreter, is_wrapper};

/// Deepest nesting of texts that are command lines themselves.
const MAX_TEXTS: usize = 5;

/// Most words of one command that are read as command lines themselves.
const MAX_WORDS: usize = 128;

/// Programs that end or change the running system.
const ENDS: &[&str] = &[
    "shutdown",
    "reboot",
    "halt",
    "poweroff",
    "insmod",
    "modprobe",
    "rmmod",
    "kexec",
    "mke2fs",
    "mkswap",
    "wipefs",
    "blkdiscard",
    "sfdisk",
    "sgdisk",
    "fdisk",
    "gdisk",
    "cfdisk",
    "parted",
    "cryptsetup",
    "hdparm",
    "nvme",
    "mkntfs",
    "mkdosfs",
    "newfs",
    "zpool",
    "vgremove",
    "lvremove",
    "pvremove",
];

/// Finds the first thing in a line that no person may approve.
pub(super) fn of_line(line: &Line, texts: usize) -> Option<String> {
    for pipeline in &line.pipelines {
        if let Some(why) = network::into_a_shell(pipeline) {
            return Some(why);
        }
        for stage in pipeline {
            if let Some(why) = of_stage(stage, texts) {
                return Some(why);
            }
        }
        let bomb = |name: &String| pipeline.len() > 1 && pipeline.iter().all(|stage| is_call_of(stage, name));
        if line.functions.iter().any(bomb) {
            return Some("a function that starts itself without end".to_owned());
        }
    }
    None
}

fn is_call_of(stage: &Stage, name: &str) -> bool {
    stage.words.first().is_some_and(|word| word.text == name)
}

fn of_stage(stage: &Stage, texts: usize) -> Option<String> {
    for redirect in &stage.redirects {
        let target = &redirect.target.text;
        if redirect.direction == Direction::Out && is_device(target) {
            return Some(format!("it writes to {target:?}"));
        }
        if redirect.direction == Direction::Out && gives_rights(target) {
            return Some(format!("it changes who may do what, in {target:?}"));
        }
    }
    let words: Vec<&str> = stage.words.iter().map(|word| word.text.as_str()).collect();
    if let Some(why) = of_words(&words, texts) {
        return Some(why);
    }
    let name = words.first().map_or("", |word| base(word));
    // What is fed to a shell is a command line.
    if is_interpreter(name) || is_wrapper(name) {
        for redirect in stage.redirects.iter().filter(|redirect| redirect.direction == Direction::Text) {
            if let Some(why) = of_text(&redirect.target.text, texts) {
                return Some(why);
            }
        }
    }
    stage.nested().find_map(|line| of_line(line, texts))
}

/// Looks at a text that some program reads as a command line, or that has command lines in its quotes.
fn of_text(text: &str, texts: usize) -> Option<String> {
    if texts >= MAX_TEXTS || text.len() > 16 << 10 {
        return None;
    }
    let read = |text: &str| of_line(&parse(text), texts + 1);
    read(text).or_else(|| quoted(text).iter().find_map(|inner| read(inner)))
}

/// Returns the texts between quotes of a program in another language, at most a few; words of a list are put together.
fn quoted(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(['"', '\'', '`'])
        && found.len() < 32
    {
        let quote = rest[start..].chars().next().unwrap_or('"');
        let after = &rest[start + 1..];
        let Some(end) = after.find(quote) else { break };
        found.push(after[..end].to_owned());
        rest = &after[end + 1..];
    }
    if found.len() > 1 {
        found.push(found.join(" "));
    }
    found
}

/// Looks at the words of one command, and at what it runs in its turn.
fn of_words(words: &[&str], texts: usize) -> Option<String> {
    let (first, rest) = words.split_first()?;
    let name = base(first);
    if let Some(why) = of_program(name, rest) {
        return Some(why);
    }
    let is_wrapper = is_wrapper(name);
    if is_wrapper {
        // Which options have a value is not known for each, so every word may be the program.
        for at in 0..rest.len().min(64) {
            if let Some(why) = of_words_without_wrappers(&rest[at..], texts) {
                return Some(why);
            }
        }
    }
    if is_wrapper || is_interpreter(name) {
        // `--checkpoint-action=exec=COMMAND` has its command behind the second sign.
        let texts_in = |word: &&str| {
            let behind = word.match_indices('=').take(4).map(|(at, _)| &word[at + 1..]);
            std::iter::once(*word).chain(behind).find_map(|text| of_text(text, texts))
        };
        return rest.iter().take(MAX_WORDS).find_map(texts_in).or_else(|| {
            // `eval rm -rf /` and `ssh host rm -rf /` put their words together.
            (matches!(name, "eval" | "ssh" | "watch" | "parallel" | "su") && !rest.is_empty())
                .then(|| of_text(&rest.join(" "), texts))
                .flatten()
        });
    }
    None
}

/// As [`of_words`], for one of the words of a wrapper: the others are looked at by themselves.
fn of_words_without_wrappers(words: &[&str], texts: usize) -> Option<String> {
    let (first, rest) = words.split_first()?;
    let name = base(first);
    if let Some(why) = of_program(name, rest) {
        return Some(why);
    }
    if is_interpreter(name) { rest.iter().take(MAX_WORDS).find_map(|word| of_text(word, texts)) } else { None }
}

fn has_letter(words: &[&str], letters: &[char], long: &[&str]) -> bool {
    words.iter().any(|word| {
        let is_short = word.starts_with('-') && !word.starts_with("--");
        let is_long = |name: &&str| word.len() > 3 && name.starts_with(word.split('=').next().unwrap_or(word));
        (is_short && word.contains(letters)) || (word.starts_with("--") && long.iter().any(is_long))
    })
}

fn of_program(name: &str, words: &[&str]) -> Option<String> {
    let name_only = name.split('.').next().unwrap_or(name);
    if ESCALATES.contains(&name) {
        return Some(format!("{name} takes the rights of another user"));
    }
    if ENDS.contains(&name) || name_only == "mkfs" {
        return Some(format!("{name} changes disks or the running system"));
    }
    let root = words.iter().find(|word| is_root_like(word));
    let device = words.iter().find(|word| is_device(word.split_once('=').map_or(word, |(_, value)| value)));
    match name {
        "dd" | "dcfldd" | "tee" | "cp" | "mv" | "shred" | "truncate" | "install" | "ddrescue" | "pv" | "sponge" => {
            if let Some(device) = device.filter(|device| name != "dd" || device.starts_with("of=")) {
                return Some(format!("{name} writes to {device:?}"));
            }
            let right = words.iter().find(|word| gives_rights(word.split_once('=').map_or(word, |(_, value)| value)));
            let writes =
                |right: &&&str| name != "cp" && name != "dd" || words.last() == Some(right) || right.starts_with("of=");
            right.filter(writes).map(|right| format!("{name} changes who may do what, in {right:?}"))
        }
        "rm" | "unlink" | "rmdir" | "srm" => {
            if words.iter().any(|word| "--no-preserve-root".starts_with(word) && word.len() > 5) {
                return Some("it removes the root although rm protects it".to_owned());
            }
            let recursive = has_letter(words, &['r', 'R'], &["--recursive"]);
            root.filter(|_| recursive).map(|root| format!("it removes all of {root:?}"))
        }
        "chmod" | "chown" | "chgrp" => {
            let recursive = has_letter(words, &['R'], &["--recursive"]);
            if let Some(root) = root.filter(|_| recursive) {
                return Some(format!("it changes the owner or rights of all of {root:?}"));
            }
            let mode = words.iter().find(|word| name == "chmod" && gives_identity(word));
            mode.map(|mode| format!("chmod {mode} makes a program run with the rights of its owner"))
        }
        "find" => {
            let deletes = words.contains(&"-delete") || words.iter().any(|word| base(word) == "rm");
            root.filter(|_| deletes).map(|root| format!("it removes files in all of {root:?}"))
        }
        "kill" | "killall5" => (name == "killall5" || words.last() == Some(&"-1") && words.len() > 1)
            .then(|| "it ends every process".to_owned()),
        "init" | "telinit" => {
            words.iter().any(|word| matches!(*word, "0" | "6")).then(|| "it ends the system".to_owned())
        }
        "systemctl" | "loginctl" => {
            let ends = ["poweroff", "reboot", "halt", "kexec", "rescue", "emergency"];
            words.iter().any(|word| ends.contains(word)).then(|| "it ends the system".to_owned())
        }
        "sysctl" => words.iter().any(|word| word.contains('=')).then(|| "it changes the running kernel".to_owned()),
        _ => None,
    }
}

/// Reports whether a mode of chmod sets the bits that give a program its owner's or group's rights.
fn gives_identity(mode: &str) -> bool {
    let is_octal = mode.len() >= 4 && mode.bytes().all(|b| (b'0'..=b'7').contains(&b));
    if is_octal {
        let first = mode.bytes().rev().nth(3).unwrap_or(b'0') - b'0';
        return first & 6 != 0;
    }
    mode.split(',').any(|part| {
        let Some(at) = part.find(['+', '=']) else { return false };
        part[..at].bytes().all(|b| b"ugoa".contains(&b)) && part[at..].contains('s')
    })
}
