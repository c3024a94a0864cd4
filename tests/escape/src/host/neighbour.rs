//! Busy loops of the suite beside a sandbox whose processor time is limited. How many milliseconds a sandbox gets says
//! little on a machine where others work too; whether it gets far less than equal loops without a limit says enough.

use crate::answer::Answer;
use crate::sys;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Busy loops on either side. With four loops a group gets more than a tenth of a processor (the limit of the stage)
/// even beside thirty others.
pub const LOOPS: usize = 4;
/// The word of a probe whose processor time is still to be compared.
pub const BURNT: &str = "burnt";
/// A limited sandbox gets at most this part of what its neighbour gets; one without a limit gets about as much.
const PART: u32 = 2;
/// Interval at which a loop writes its progress down.
const STEP: Duration = Duration::from_millis(10);

/// The processor time that busy loops got together in one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burnt {
    /// The beginning of the period on the monotonic clock, which a sandbox shares with its host.
    pub from: Duration,
    /// The end of the period.
    pub to: Duration,
    /// The processor time.
    pub used: Duration,
}

impl Burnt {
    /// The answer of the probe inside.
    pub fn answer(self) -> Answer {
        let micros = [self.from, self.to, self.used].map(|time| time.as_micros().to_string());
        Answer::of(BURNT).with(micros.join(" "))
    }

    fn of(answer: &Answer) -> Option<Self> {
        let text = answer.detail.as_deref().filter(|_| answer.answer == BURNT)?;
        let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let [from, to, used] = numbers.try_into().ok()?;
        let [from, to, used] = [from, to, used].map(Duration::from_micros);
        Some(Self { from, to, used })
    }
}

/// Progress of one loop at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    used: Duration,
}

/// Busy loops that run.
#[derive(Debug)]
pub struct Neighbour {
    stop: Arc<AtomicBool>,
    loops: Vec<JoinHandle<Vec<Sample>>>,
}

/// The samples of each loop.
#[derive(Debug)]
pub struct Record(Vec<Vec<Sample>>);

impl Neighbour {
    /// Starts the loops.
    pub fn start() -> io::Result<Self> {
        // On an error the loops that run already are dropped, and so stopped.
        let mut neighbour = Self { stop: Arc::default(), loops: Vec::new() };
        for _ in 0..LOOPS {
            let stop = Arc::clone(&neighbour.stop);
            neighbour.loops.push(Builder::new().spawn(move || spin(&stop))?);
        }
        Ok(neighbour)
    }

    /// Ends the loops.
    pub fn stop(mut self) -> Record {
        self.stop.store(true, Ordering::Relaxed);
        // A loop that panicked has no samples: then the answer is that there was no neighbour.
        Record(std::mem::take(&mut self.loops).into_iter().filter_map(|one| one.join().ok()).collect())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn spin(stop: &AtomicBool) -> Vec<Sample> {
    let inspect = || Sample { at: sys::clock(libc::CLOCK_MONOTONIC), used: sys::clock(libc::CLOCK_THREAD_CPUTIME_ID) };
    let mut samples = vec![inspect()];
    let mut next = samples[0].at + STEP;
    while !stop.load(Ordering::Relaxed) {
        if sys::clock(libc::CLOCK_MONOTONIC) >= next {
            samples.push(inspect());
            next += STEP;
        }
    }
    samples.push(inspect());
    samples
}

impl Record {
    /// Compares a probe's processor time with what the neighbour got in the same period. Other answers stay.
    pub fn evaluate(&self, answer: Answer) -> Answer {
        let Some(burnt) = Burnt::of(&answer) else { return answer };
        let neighbour: Duration = self.0.iter().map(|samples| used_between(samples, burnt.from, burnt.to)).sum();
        let detail = format!(
            "{} ms within {} ms, an unlimited neighbour {} ms",
            burnt.used.as_millis(),
            burnt.to.saturating_sub(burnt.from).as_millis(),
            neighbour.as_millis()
        );
        verdict(burnt.used, neighbour).with(detail)
    }
}

fn verdict(used: Duration, neighbour: Duration) -> Answer {
    if neighbour.is_zero() {
        // Nothing to compare with: no row takes this for a refusal.
        return Answer::of("no-answer");
    }
    Answer::choose(used * PART <= neighbour, "limited", "free")
}

/// The processor time of one loop between two moments; between two samples it is taken to have grown evenly.
fn used_between(samples: &[Sample], from: Duration, to: Duration) -> Duration {
    used_at(samples, to).saturating_sub(used_at(samples, from))
}

fn used_at(samples: &[Sample], at: Duration) -> Duration {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Duration::ZERO };
    let after = samples.partition_point(|sample| sample.at < at);
    match (after.checked_sub(1).and_then(|before| samples.get(before)), samples.get(after)) {
        (None, _) => first.used,
        (_, None) => last.used,
        (Some(before), Some(next)) => {
            let part = at.saturating_sub(before.at).div_duration_f64(next.at.saturating_sub(before.at));
            before.used + next.used.saturating_sub(before.used).mul_f64(part)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn record() -> Record {
        let samples = [(0, 0), (1000, 0), (2000, 800), (4000, 1000)];
        Record(vec![samples.map(|(at, used)| Sample { at: ms(at), used: ms(used) }).to_vec(); 2])
    }

    #[test]
    fn time_between_samples_is_taken_to_grow_evenly() {
        let one = &record().0[0];
        assert_eq!(used_between(one, ms(1500), ms(3000)), ms(500));
        assert_eq!(used_between(one, ms(0), ms(9000)), ms(1000));
        assert_eq!(used_between(one, ms(1000), ms(2000)), ms(800));
        assert_eq!(used_between(&[], ms(0), ms(1)), Duration::ZERO);
    }

    #[test]
    fn only_far_less_than_the_neighbour_is_limited() {
        // The neighbour has 1000 ms in this period.
        let evaluated =
            |used| record().evaluate(Burnt { from: ms(1500), to: ms(3000), used: ms(used) }.answer()).answer;
        assert_eq!([evaluated(0), evaluated(500)], ["limited", "limited"]);
        assert_eq!([evaluated(501), evaluated(1000), evaluated(3000)], ["free", "free", "free"]);
    }

    #[test]
    fn without_a_neighbour_there_is_no_verdict_and_other_answers_stay() {
        let burnt = Burnt { from: ms(5000), to: ms(6000), used: ms(0) }.answer();
        assert_eq!(record().evaluate(burnt).answer, "no-answer");
        for other in [Answer::of("EAGAIN"), Answer::of("limited").with("1 2 3"), Answer::of(BURNT).with("1 x 3")] {
            assert_eq!(record().evaluate(other.clone()), other);
        }
    }

    #[test]
    fn a_neighbour_gets_processor_time_and_ends() {
        let neighbour = Neighbour::start().unwrap();
        let from = sys::clock(libc::CLOCK_MONOTONIC);
        let used = || sys::clock(libc::CLOCK_PROCESS_CPUTIME_ID);
        let begin = used();
        while used() < begin + ms(50) {
            std::thread::yield_now();
        }
        let record = neighbour.stop();
        assert_eq!(record.0.len(), LOOPS);
        let to = sys::clock(libc::CLOCK_MONOTONIC);
        let got: Duration = record.0.iter().map(|samples| used_between(samples, from, to)).sum();
        assert!(got > Duration::ZERO, "{got:?}");
    }
}
