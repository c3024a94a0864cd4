//! The machine on which the figures were measured, and its load from other programs.

use crate::failure::Failure;
use crate::{announce, failed};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// More than this share of processor time taken by others makes figures worthless.
const BUSY: f64 = 0.15;
/// Time that other programs are given to finish.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The header of a report.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// Day of the measurement, UTC.
    pub date: String,
    /// Processors that we may use.
    pub processors: usize,
    /// Name of the processor model.
    pub model: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Load average of the last minute at the start.
    pub load: String,
    /// Share of processor time that others took in the second before the start.
    pub busy: f64,
    /// Set when the measurement was made although the machine was busy.
    pub disturbed: bool,
}

impl Facts {
    /// Reads the machine's data and waits for quiet; refuses a busy machine unless asked to measure `anyway`.
    pub fn inspect(anyway: bool) -> Result<Self, Failure> {
        let mut busy = busy_share()?;
        let mut waited = Duration::ZERO;
        while busy > BUSY && !anyway {
            if waited >= TIMEOUT {
                let what = format!("others take {:.0} % of the processors", busy * 100.0);
                return Err(Failure::new(what, "wait until the machine is quiet, or measure with --anyway"));
            }
            if waited.is_zero() {
                announce(&format!("others take {:.0} % of the processors; waiting for quiet", busy * 100.0));
            }
            let before = std::time::Instant::now();
            busy = busy_share()?;
            waited += before.elapsed();
        }
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Ok(Self {
            date: date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            model: field(&read("/proc/cpuinfo"), "model name").unwrap_or("unknown").to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory: meminfo(&read("/proc/meminfo"), "MemTotal").unwrap_or(0),
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            busy,
            disturbed: busy > BUSY,
        })
    }

    /// Returns a line of text for the report.
    pub fn line(&self) -> String {
        let disturbed = if self.disturbed { "; MEASURED ON A BUSY MACHINE, do not quote" } else { "" };
        format!(
            "{}: {} x {}, {:.0} GiB, Linux {}, load {}, others {:.0} %{disturbed}",
            self.date,
            self.processors,
            self.model,
            self.memory as f64 / f64::from(1 << 30),
            self.kernel,
            self.load,
            self.busy * 100.0,
        )
    }
}

/// A field of `/proc/meminfo` in bytes.
pub fn meminfo(text: &str, name: &str) -> Option<u64> {
    let value = field(text, name)?.strip_suffix("kB").map_or_else(|| field(text, name), Some)?;
    Some(value.trim().parse::<u64>().ok()? * 1024)
}

/// The value of the first line `NAME : VALUE`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.split_once(':').filter(|(known, _)| known.trim() == name)).map(|(_, v)| v.trim())
}

/// Returns the load over one second; this program does nothing in it, so that all load comes from other programs.
fn busy_share() -> Result<f64, Failure> {
    let read = || -> Result<(u64, u64), Failure> {
        let text = std::fs::read_to_string("/proc/stat").map_err(|error| failed(&format!("/proc/stat: {error}")))?;
        ticks(&text).ok_or_else(|| failed("/proc/stat has another form"))
    };
    let (idle, all) = read()?;
    std::thread::sleep(Duration::from_secs(1));
    let (idle_now, all_now) = read()?;
    let all = all_now.saturating_sub(all).max(1);
    Ok(1.0 - (idle_now.saturating_sub(idle) as f64 / all as f64).min(1.0))
}

/// Idle ticks (with waiting for disks) and all ticks of the first line of `/proc/stat` (proc_stat(5)).
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let numbers: Vec<u64> =
        stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().flat_map(str::parse).collect();
    // Guest time, the last two, is already in user time.
    Some((numbers.get(3)? + numbers.get(4)?, numbers.iter().take(8).sum()))
}

/// `YYYY-MM-DD` of seconds since 1970: years of 365.2425 days, counted from a March so that the leap day comes last.
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march = (5 * day + 2) / 153;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{:02}", day - (153 * march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_named_by_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_735_689_599), "2024-12-31");
        assert_eq!(date(1_735_689_600), "2025-01-01");
    }

    #[test]
    fn idle_ticks_are_the_fourth_and_fifth() {
        assert_eq!(ticks("cpu  1 2 3 40 5 6 7 8 100 100\ncpu0 1\n"), Some((45, 72)));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn a_field_of_meminfo_is_in_bytes() {
        assert_eq!(meminfo("MemTotal:   2 kB\nSlab: 3 kB\n", "Slab"), Some(3072));
        assert_eq!(meminfo("MemTotal:   2 kB\n", "Slab"), None);
    }
}
