//! `fuzz [TARGET] [--seconds N]`: the readers of hostile bytes under libFuzzer, one after the other.
//!
//! ```text
//!  fuzz/src/bin/TARGET.rs ─build, instrumented─▶ target/fuzz/build/…/TARGET
//!  fuzz/seeds/TARGET/  (small, kept in git) ───▶ run for N seconds ─▶ target/fuzz/corpus/TARGET/   grows with every run
//!                                                                 └─▶ target/fuzz/crashes/TARGET/  what broke a property
//! ```
//! The instrumentation is LLVM's own and needs no nightly compiler. Not a part of `ci`, since it is never done; what it
//! found becomes a seed, and `ci` tests every seed (the tests named `seeds` of the crates).

mod locks;
mod options;
mod report;

use crate::failure::Failure;
use crate::packages;
use crate::workspace::{Workspace, cargo};
use options::Options;
use report::Report;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Instrumentation that the compiler adds to every branch, comparison and function, as libFuzzer reads it (LLVM,
/// SanitizerCoverage).
const INSTRUMENT: &[&str] = &[
    "-C",
    "passes=sancov-module",
    "-C",
    "llvm-args=-sanitizer-coverage-level=4",
    "-C",
    "llvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-C",
    "llvm-args=-sanitizer-coverage-pc-table",
    "-C",
    "llvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
];

/// One input may take so many seconds; a reader that is slower than this on 4 KiB can be stalled.
const INPUT_SECONDS: u32 = 10;
/// Memory of one target, in MiB: an input that makes a reader allocate without bound ends here.
const MEMORY_MIB: u32 = 1024;

/// Directories of the fuzzer.
struct Directories {
    /// Directory of the package.
    package: PathBuf,
    /// Everything that is made.
    made: PathBuf,
    /// The built targets.
    built: PathBuf,
}

/// Runs the targets, also when one fails.
pub fn run(workspace: &Workspace, words: &[String]) -> Result<(), Failure> {
    let options = Options::read(words)?;
    packages::ensure_for_fuzzing()?;
    let host = host()?;
    let made = workspace.target.join("fuzz");
    let built = made.join("build").join(&host).join("release");
    let places = Directories { package: workspace.root.join("fuzz"), made, built };
    let targets = chosen(&targets(&places.package)?, options.target.as_deref())?;
    same_versions(workspace)?;
    build(&places, &host)?;

    let mut reports = Vec::new();
    for target in targets {
        println!("fuzz: {target}, {} s", options.seconds);
        let report = one(&places, &target, options.seconds)?;
        println!("{}", report.line());
        reports.push(report);
    }
    let found: Vec<&Report> = reports.iter().filter(|report| report.failed).collect();
    if reports.len() > 1 {
        println!("\n{}", report::table(&reports));
    }
    if found.is_empty() {
        return Ok(());
    }
    let reported: Vec<String> = found.iter().map(|report| report.describe(&places.built)).collect();
    let advice = "replay the input as above, fix the reader, and put the input into fuzz/seeds/TARGET/ under a name that \
                  says what it is: `cargo test` tries every seed";
    Err(Failure::new(reported.join("\n"), advice))
}

/// The names of all targets: the files of `fuzz/src/bin`.
fn targets(package: &Path) -> Result<Vec<String>, Failure> {
    let directory = package.join("src/bin");
    let unreadable = |error: std::io::Error| {
        Failure::new(format!("{}: {error}", directory.display()), "the targets lie there: restore them from git")
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(&directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    found.sort();
    Ok(found)
}

fn chosen(all: &[String], wanted: Option<&str>) -> Result<Vec<String>, Failure> {
    match wanted {
        None => Ok(all.to_vec()),
        Some(wanted) if all.iter().any(|target| target == wanted) => Ok(vec![wanted.to_owned()]),
        Some(wanted) => {
            Err(Failure::new(format!("there is no target {wanted}"), format!("one of: {}", all.join(", "))))
        }
    }
}

/// The machine that is built for. With a target named, cargo leaves build scripts and macros without instrumentation.
fn host() -> Result<String, Failure> {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(&compiler)
        .arg("-vV")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("{compiler} did not start: {error}"), "look at PATH"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("{compiler} -vV names no host"), "repair the toolchain"))
}

fn same_versions(workspace: &Workspace) -> Result<(), Failure> {
    let lock = |directory: &str| crate::deps::read(&workspace.root.join(directory).join("Cargo.lock"));
    let apart = locks::apart(&lock("")?, &lock("fuzz")?);
    if apart.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!("fuzz/Cargo.lock has other versions than Cargo.lock: {}", apart.join(", ")),
        "cargo update --manifest-path fuzz/Cargo.toml PACKAGE --precise VERSION, for each",
    ))
}

fn build(places: &Directories, host: &str) -> Result<(), Failure> {
    let status = Command::new(cargo())
        .args(["build", "--release", "--locked", "--bins", "--target", host])
        .arg("--manifest-path")
        .arg(places.package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(places.made.join("build"))
        .env("CARGO_ENCODED_RUSTFLAGS", INSTRUMENT.join("\x1f"))
        .status()
        .map_err(|error| Failure::new(format!("cargo did not start: {error}"), "look at PATH"))?;
    if status.success() {
        return Ok(());
    }
    let advice = "fix what the compiler names; if Cargo.lock is out of date: cargo update --workspace --manifest-path \
                  fuzz/Cargo.toml";
    Err(Failure::new(format!("the targets were not built: {status}"), advice))
}

/// Runs one target. What it writes goes to a file, since it is long and only matters after a crash.
fn one(places: &Directories, target: &str, seconds: u32) -> Result<Report, Failure> {
    let directory = |kind: &str| {
        let directory = places.made.join(kind).join(target);
        fs::create_dir_all(&directory)
            .map_err(|error| Failure::new(format!("{}: {error}", directory.display()), "make it writable"))?;
        Ok::<_, Failure>(directory)
    };
    let (corpus, crashes, seeds) =
        (directory("corpus")?, directory("crashes")?, places.package.join("seeds").join(target));
    let log = directory("log")?.join("last");
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", log.display()), "make it writable");
    // Without seeds most readers refuse everything at the first byte, and a run proves nothing.
    if fs::read_dir(&seeds).map_or(true, |mut entries| entries.next().is_none()) {
        return Err(Failure::new(format!("{} has no seeds", seeds.display()), "put small inputs of each kind there"));
    }
    let output = File::create(&log).map_err(failed)?;
    let status = Command::new(places.built.join(target))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-artifact_prefix={}/", crashes.display()))
        .arg("-print_final_stats=1")
        .arg(&corpus)
        .arg(&seeds)
        // What once broke it is tried again, until it does not.
        .arg(&crashes)
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(failed)?)
        .stderr(output)
        .status()
        .map_err(|error| Failure::new(format!("{target} did not start: {error}"), "run the command again"))?;
    let text = fs::read(&log).map_err(failed)?;
    Ok(Report::read(target, &String::from_utf8_lossy(&text), status.success(), &log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_every_directory_of_seeds_a_target() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let mut directories: Vec<String> = fs::read_dir(package.join("seeds"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        directories.sort();
        let all = targets(&package).unwrap();
        assert!(all.len() >= 15, "{all:?}");
        assert_eq!(all, directories);
    }

    #[test]
    fn a_target_that_is_not_there_is_refused_with_those_that_are() {
        let all = ["a".to_owned(), "b".to_owned()];
        assert_eq!(chosen(&all, Some("b")).unwrap(), ["b"]);
        assert_eq!(chosen(&all, None).unwrap(), all);
        assert_eq!(chosen(&all, Some("c")).unwrap_err().advice, "one of: a, b");
    }
}
