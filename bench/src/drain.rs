//! P7: a command that writes without end, through Nexus and into a bare pipe, in turn.

use crate::failure::Failure;
use crate::machine::{field, meminfo};
use crate::options::{Options, P};
use crate::place::Place;
use crate::report::{Bound, Report};
use crate::stats::{Sample, mib};
use crate::{announce, failed};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
const BUFFER: usize = 256 << 10;
const PIPE: usize = 1 << 20;

/// Path of the output from the command to the reader.
#[derive(Clone, Copy)]
enum Route {
    /// Straight into a pipe of this many bytes; 0 for what the kernel makes.
    Raw(usize),
    /// Through `nexus run` with these further flags.
    Nexus(&'static [&'static str]),
}

const ROUTES: &[(&str, Route)] = &[
    ("raw, pipe of 1 MiB", Route::Raw(PIPE)),
    ("raw, pipe as the kernel makes it", Route::Raw(0)),
    ("nexus run --max-output 1M", Route::Nexus(&["--max-output", "1M"])),
    ("nexus run, all of it passed on", Route::Nexus(&[])),
];

/// Time and bytes of one run.
struct Drained {
    per_second: f64,
    /// Most resident memory of `nexus`.
    peak: u64,
}

/// Measures all ways.
pub fn measure(options: &Options, place: &mut Place, report: &mut Report) -> Result<(), Failure> {
    announce("output of a command");
    let bytes = options.gib << 30;
    let mut rates = vec![Sample::default(); ROUTES.len()];
    let mut peaks = vec![0; ROUTES.len()];
    for _ in 0..ROUNDS {
        for (index, (_, way)) in ROUTES.iter().enumerate() {
            let drained = drain(place, *way, bytes)?;
            rates[index].push(drained.per_second);
            peaks[index] = peaks[index].max(drained.peak);
        }
    }
    let small = drain(place, ROUTES[2].1, bytes / 16)?.peak;
    let rate = |index: usize| rates[index].median().unwrap_or(f64::NAN);
    let rows = ROUTES.iter().enumerate().map(|(index, (name, _))| {
        let peak = if peaks[index] == 0 { "-".to_owned() } else { mib(peaks[index] as f64) };
        vec![
            (*name).to_owned(),
            format!("{:.2} GB/s", rate(index) / 1e9),
            format!("{:.2}", rate(index) / rate(0)),
            peak,
        ]
    });
    let title = format!("`head -c {}G /dev/zero`, {ROUNDS} rounds in turn, medians", options.gib);
    report.table(&title, &["", "rate", "x raw", "peak memory of nexus"], rows.collect());
    let figure = format!("{:.2} GB/s", rate(2) / 1e9);
    report.evaluate(
        P::Drain,
        "output into a bounded buffer",
        figure,
        rate(2) / rate(0),
        "x raw drain",
        Bound::AtLeast(0.85),
    );
    let figure = mib(peaks[2] as f64);
    let times = peaks[2] as f64 / small as f64;
    report.evaluate(P::Drain, "memory for 16 times the output", figure, times, "x", Bound::AtMost(1.1));
    Ok(())
}

fn drain(place: &Place, way: Route, bytes: u64) -> Result<Drained, Failure> {
    let Some(runner) = place.runners.first() else { return Err(failed("there is no identity to measure as")) };
    let reported = |error: &dyn std::fmt::Display| failed(&format!("head through a pipe: {error}"));
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| reported(&error))?;
    let amount = bytes.to_string();
    let head = ["head", "-c", &amount, "/dev/zero"];
    let (mut command, pipe) = match way {
        Route::Raw(pipe) => {
            let mut command = Command::new(head[0]);
            command.args(&head[1..]);
            (command, pipe)
        }
        Route::Nexus(flags) => {
            let mut command = runner.command(place.nexus.as_ref());
            command.arg("run").args(flags).arg("--").args(head);
            (command, PIPE)
        }
    };
    if pipe > 0 {
        rustix::pipe::fcntl_setpipe_size(&write, pipe).map_err(|error| reported(&error))?;
    }
    command.stdin(Stdio::null()).stdout(Stdio::from(write)).stderr(Stdio::null());
    let start = Instant::now();
    let mut child = command.spawn().map_err(|error| reported(&error))?;
    // It holds our copy of the writing end.
    drop(command);
    let pid = child.id();
    let watch = std::thread::spawn(move || peak(pid));
    let mut buffer = vec![0; BUFFER];
    let mut from = std::fs::File::from(read);
    while from.read(&mut buffer).map_err(|error| reported(&error))? > 0 {}
    let status = child.wait().map_err(|error| reported(&error))?;
    let taken = start.elapsed();
    if !status.success() {
        return Err(reported(&status));
    }
    let peak = watch.join().map_err(|_| failed("the watcher of memory died"))?;
    let peak = if matches!(way, Route::Raw(_)) { 0 } else { peak };
    Ok(Drained { per_second: bytes as f64 / taken.as_secs_f64(), peak })
}

/// The high-water mark of a process while it lives; it only grows, so that the last look counts.
fn peak(pid: u32) -> u64 {
    let mut highest = 0;
    while let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) {
        match meminfo(&status, "VmHWM") {
            Some(label) => highest = highest.max(label),
            // A zombie has none any more.
            None if field(&status, "State").is_none_or(|state| state.starts_with('Z')) => break,
            None => {}
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    highest
}
