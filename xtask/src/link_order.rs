//! Writes `crates/cli/run.ld`, by which `cargo static` places the functions that a run executes side by side.
//!
//! ```text
//!  map of the linker ─▶ sections of the code ─┐
//!  names that were seen executing ────────────┴─▶ sections that are executed ─▶ patterns without hashes ─▶ the script
//! ```
//! The map is that of `cargo static` with `-C link-arg=-Wl,-Map=MAP` at its end. The names are those of the program that
//! this left, not stripped (`CARGO_PROFILE_RELEASE_STRIP=none`), seen in two thousand runs, as root and as a user, with
//! `--direct` and without: `perf record -e cpu-clock:u -F 25000 -- LOOP`, and then
//! `perf report --no-demangle --sort sym --stdio | awk '/^ / { print $NF }'`. That finds nine functions in ten.
//!
//! With `lto = "fat"` all crates arrive in one object file, and a script that was written for another mode fits nothing.

use crate::failure::Failure;
use crate::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A module, or all that was compiled for a crate, is named as a whole when this share of it is executed.
const MODULE: f64 = 0.5;
const CRATE: f64 = 0.75;
/// Sections of one pattern of which less is executed are left where they are, unless they are small together.
const MIN_SHARE: f64 = 0.1;
const SMALL: u64 = 16 << 10;

const HEAD: &str = "\
/* Places the functions that `nexus run` executes side by side, for `cargo static`. Written by `cargo xtask order`.

   A run executes some 1,500 functions, 2 MB of the 20 MB of code. In the order of the linker they lie on 149 stretches of
   64 KiB, the unit in which the kernel maps code, and each takes a page fault of its own in every process of a run: 4 us,
   with the end of the mapping. Side by side they lie on 78.

   Names are those of the compiler without their hashes, by the crate that they were compiled for. A pattern that fits
   nothing does no harm, and a function that is missing here costs its one page fault. */
SECTIONS {
  .text.run : ALIGN(64K) {
";
const TAIL: &str = "  }\n}\nINSERT BEFORE .text;\n";

/// A section of the code.
struct Section {
    size: u64,
    /// Pattern of the object files that it may come from.
    object: String,
    /// Pattern of its name.
    name: String,
    is_executed: bool,
}

/// `cargo xtask order MAP NAMES`.
pub fn run(workspace: &Workspace, words: &[String]) -> Result<(), Failure> {
    let [map, names] = words else {
        return Err(Failure::new("two files are needed", "cargo xtask order MAP NAMES; see xtask/src/link_order.rs"));
    };
    let read = |file: &String| {
        std::fs::read_to_string(file)
            .map_err(|error| Failure::new(format!("{file}: {error}"), "see xtask/src/link_order.rs"))
    };
    let (map, names) = (read(map)?, read(names)?);
    let names: BTreeSet<&str> = names.split_whitespace().collect();
    let file = workspace.root.join("crates/cli/run.ld");
    std::fs::write(&file, script(&sections(&map, &names)))
        .map_err(|error| Failure::new(format!("{}: {error}", file.display()), "make it writable"))
}

/// Reads the map of lld: a line for each section, and below it one for each symbol in it.
fn sections(map: &str, executed: &BTreeSet<&str>) -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    let mut is_code = false;
    for line in map.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, size, _, place] = words[..] else { continue };
        match place.strip_suffix(')').and_then(|place| place.split_once(":(")) {
            Some((file, name)) if place.starts_with('/') => {
                let object = object(file).filter(|_| name.starts_with(".text"));
                is_code = object.is_some();
                let Some(object) = object else { continue };
                let symbol = name.trim_start_matches(".text.unlikely.").trim_start_matches(".text.");
                let size = u64::from_str_radix(size, 16).unwrap_or(0);
                all.push(Section { size, object, name: pattern(name), is_executed: executed.contains(symbol) });
            }
            // A symbol. The C library has sections without names of functions.
            _ => {
                if let Some(section) = all.last_mut().filter(|_| is_code) {
                    section.is_executed |= executed.contains(place);
                }
            }
        }
    }
    all
}

/// The pattern of an object file: a crate, or a member of a library.
fn object(file: &str) -> Option<String> {
    let name = file.rsplit('/').next()?;
    if let Some((library, member)) = name.split_once(".a(") {
        // Of the C library and the compiler; some have a version in their names.
        let library = library.split_once('-').map_or(library, |(library, _)| library);
        return Some(format!("*{library}*.a:{}", member.strip_suffix(')')?));
    }
    let parts: Vec<&str> = name.split('.').collect();
    let unit = parts.iter().position(|part| part.contains("-cgu"))?;
    Some(format!("*.{}.*-cgu.*", parts.get(unit.checked_sub(1)?)?))
}

/// The name of a section without what differs from build to build.
fn pattern(name: &str) -> String {
    let mut kept = String::new();
    let mut rest = name;
    if let Some(hash) = legacy_hash(name) {
        rest = &name[..hash + "17h".len()];
    }
    rest = rest.split_once(".llvm.").map_or(rest, |(before, _)| before);
    let is_cut = rest.len() < name.len();
    if rest.contains("._R") {
        // Crates of the v0 names: `Cs`, a number, `_`.
        while let Some((before, after)) = rest.split_once("Cs") {
            let number = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).len();
            kept += before;
            kept += "Cs";
            rest = if number > 0 && after[number..].starts_with('_') { &after[number..] } else { after };
            kept += if rest.starts_with('_') { "*" } else { "" };
        }
    }
    kept += rest;
    if is_cut {
        kept += "*";
    }
    kept.replace(|c: char| !(c.is_ascii_alphanumeric() || "_.*".contains(c)), "?")
}

/// Finds the end of a name before its hash: `17h`, 16 digits, `E`.
fn legacy_hash(name: &str) -> Option<usize> {
    let is_hash = |at: &usize| {
        let digits = name.get(at + 3..at + 19);
        digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    name.match_indices("17h").map(|(at, _)| at).find(is_hash)
}

/// The parts of a path in a pattern of the form `.text._ZN3foo3bar17h*`.
fn parts(pattern: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let Some((_, mut rest)) = pattern.trim_end_matches('*').split_once("._ZN") else { return found };
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Ok(length) = rest[..digits].parse::<usize>() else { return found };
        let Some((part, after)) = rest.split_at_checked(digits + length) else { return found };
        found.push(part);
        rest = after;
    }
}

/// Bytes of a pattern, and how many of them are executed.
#[derive(Default, Clone, Copy)]
struct Share {
    all: u64,
    executed: u64,
}

impl Share {
    fn add(&mut self, other: Share) {
        self.all += other.all;
        self.executed += other.executed;
    }

    fn is_at_least(self, share: f64) -> bool {
        self.executed > 0 && self.executed as f64 >= share * self.all as f64
    }
}

fn script(sections: &[Section]) -> String {
    let mut objects: BTreeMap<&str, BTreeMap<&str, Share>> = BTreeMap::new();
    for section in sections {
        let executed = if section.is_executed { section.size } else { 0 };
        let share = Share { all: section.size, executed };
        objects.entry(&section.object).or_default().entry(&section.name).or_default().add(share);
    }
    let mut text = HEAD.to_owned();
    let mut objects: Vec<_> = objects.into_iter().collect();
    // Each process of a sandbox executes the C library, so it comes first.
    objects.sort_by_key(|(object, _)| !object.contains(".a:"));
    for (object, names) in objects {
        let chosen = chosen(&names, object.contains(".a:"));
        if !chosen.is_empty() {
            // Writing to a String cannot fail.
            let _written = match &chosen[..] {
                [_, _] => writeln!(text, "    {object}({})", chosen.join(" ")),
                _ => write!(text, "    {object}(\n      {}\n    )\n", chosen.join("\n      ")),
            };
        }
    }
    text + TAIL
}

/// Chooses the patterns for one object: all of it, modules, and functions.
fn chosen(names: &BTreeMap<&str, Share>, is_library: bool) -> Vec<String> {
    let mut whole = Share::default();
    for share in names.values() {
        whole.add(*share);
    }
    if whole.executed > 0 && (is_library || whole.all <= SMALL / 2 || whole.is_at_least(CRATE)) {
        return vec![".text".to_owned(), ".text.*".to_owned()];
    }
    let is_chosen = |share: &Share| share.is_at_least(MIN_SHARE) || (share.executed > 0 && share.all <= SMALL);
    let mut left: BTreeSet<&str> = names.iter().filter(|(_, share)| is_chosen(share)).map(|(name, _)| *name).collect();
    let mut patterns = BTreeSet::new();
    for depth in [2, 3] {
        let mut modules: BTreeMap<String, Share> = BTreeMap::new();
        for (name, share) in names {
            let parts = parts(name);
            if parts.len() > depth {
                // What is chosen counts with all that its pattern brings.
                let executed = if is_chosen(share) { share.all } else { 0 };
                modules.entry(parts[..depth].concat()).or_default().add(Share { all: share.all, executed });
            }
        }
        for (module, _) in modules.into_iter().filter(|(_, share)| share.is_at_least(MODULE)) {
            let begins = format!("._ZN{module}");
            let within: Vec<&str> = left.iter().filter(|name| name.contains(&begins)).copied().collect();
            if within.len() > 1 {
                patterns.extend([format!(".text{begins}*"), format!(".text.unlikely{begins}*")]);
                for name in within {
                    left.remove(name);
                }
            }
        }
    }
    patterns.extend(left.into_iter().map(str::to_owned));
    patterns.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
             VMA              LMA     Size Align Out     In      Symbol
          351000           351000    10000    16         /t/deps/nexus-0f.nexus_jail-5a.nexus_jail.39b0-cgu.0.rcgu.o.rcgu.o:(.text._ZN10nexus_jail6inside3run17h0123456789abcdefE)
          351000           351000    10000     1                 nexus_jail::inside::run::h0123456789abcdef
          361000           361000    10000    16         /t/deps/nexus-0f.nexus_jail-5a.nexus_jail.39b0-cgu.0.rcgu.o.rcgu.o:(.text.unlikely._ZN5alloc3vec12Vec$LT$T$GT$4grow17hfedcba9876543210E.llvm.77)
          371000           371000    90000    16         /t/deps/nexus-0f.nexus_jail-5a.nexus_jail.39b0-cgu.0.rcgu.o.rcgu.o:(.text._ZN10nexus_jail5other3run17h0000000000000000E)
          401000           401000       40    16         /usr/lib/libc.a(getdents64.o):(.text)
          401000           401000       40     1                 __getdents64
          402000           402000       40    16         /usr/lib/libc.a(other.o):(.text)
          402000           402000       40     1                 other
          403000           403000       40    16         /usr/lib/libc.a(getdents64.o):(.rodata)
          403000           403000       40     1                 other
";

    fn of(executed: &[&str]) -> String {
        let text = script(&sections(MAP, &executed.iter().copied().collect()));
        text.strip_prefix(HEAD).unwrap().strip_suffix(TAIL).unwrap().to_owned()
    }

    #[test]
    fn what_was_executed_is_placed_and_nothing_else() {
        let run = "_ZN10nexus_jail6inside3run17h0123456789abcdefE";
        let grow = "_ZN5alloc3vec12Vec$LT$T$GT$4grow17hfedcba9876543210E.llvm.77";
        let names = "    *.nexus_jail.*-cgu.*(.text._ZN10nexus_jail6inside3run17h* \
                     .text.unlikely._ZN5alloc3vec12Vec?LT?T?GT?4grow17h*)\n";
        let member = "    *libc*.a:getdents64.o(.text .text.*)\n";
        assert_eq!(of(&[run, grow, "__getdents64"]), format!("{member}{names}"));
        assert_eq!(of(&["__getdents64"]), member);
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn a_pattern_has_nothing_of_one_build() {
        for (name, expected) in [
            (".text._ZN3foo3bar17h0123456789abcdefE", ".text._ZN3foo3bar17h*"),
            (".text._ZN3foo3bar17h0123456789abcdefE.llvm.123", ".text._ZN3foo3bar17h*"),
            (".text._RNvNtCsgEmfK2I1SDS_4core3fmt5write", ".text._RNvNtCs*_4core3fmt5write"),
            (".text._RNvCsjrHSEGnQ3l9_3std4exit.llvm.9", ".text._RNvCs*_3std4exit*"),
            (".text", ".text"),
        ] {
            assert_eq!(pattern(name), expected);
        }
    }

    #[test]
    fn a_module_of_which_most_is_executed_is_placed_as_a_whole() {
        let share = |all, executed| Share { all, executed };
        let names = BTreeMap::from([
            (".text._ZN3foo3bar1a17h*", share(60_000, 60_000)),
            (".text._ZN3foo3bar1b17h*", share(60_000, 60_000)),
            (".text._ZN3foo3bar1c17h*", share(9_000, 0)),
            (".text._ZN3foo3qux1a17h*", share(60_000, 60_000)),
            (".text._ZN3foo3qux1b17h*", share(600_000, 0)),
        ]);
        let expected = [".text._ZN3foo3bar*", ".text._ZN3foo3qux1a17h*", ".text.unlikely._ZN3foo3bar*"];
        assert_eq!(chosen(&names, false), expected);
    }
}
