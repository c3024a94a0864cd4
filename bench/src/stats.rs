//! Medians and percentiles of times in microseconds.

/// All measured times of one thing.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    times: Vec<f64>,
}

impl Sample {
    /// Adds one time in microseconds.
    pub fn push(&mut self, us: f64) {
        let place = self.times.partition_point(|known| *known < us);
        self.times.insert(place, us);
    }

    /// The middle one, or `None` of nothing.
    pub fn median(&self) -> Option<f64> {
        self.percentile(50)
    }

    /// The time that `percent` of all do not exceed.
    pub fn percentile(&self, percent: usize) -> Option<f64> {
        let place = (self.times.len() * percent / 100).min(self.times.len().checked_sub(1)?);
        self.times.get(place).copied()
    }
}

impl Extend<f64> for Sample {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, times: I) {
        times.into_iter().for_each(|us| self.push(us));
    }
}

/// Microseconds as milliseconds for people.
pub fn ms(us: f64) -> String {
    format!("{:.2} ms", us / 1000.0)
}

/// Bytes as MiB for people.
pub fn mib(bytes: f64) -> String {
    format!("{:.2} MiB", bytes / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(times: &[f64]) -> Sample {
        let mut sample = Sample::default();
        sample.extend(times.iter().copied());
        sample
    }

    fn is(found: Option<f64>, wanted: f64) -> bool {
        found.is_some_and(|found| (found - wanted).abs() < 1e-9)
    }

    #[test]
    fn a_median_is_the_middle_in_any_order() {
        assert!(is(sample(&[5.0, 1.0, 100.0]).median(), 5.0));
        assert!(is(sample(&[100.0, 5.0, 1.0]).median(), 5.0));
    }

    #[test]
    fn the_highest_percentiles_of_few_times_are_the_largest() {
        assert!(is(sample(&[1.0, 2.0, 3.0]).percentile(99), 3.0));
        assert!(is(sample(&[1.0]).percentile(100), 1.0));
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(sample(&[]).median(), None);
    }
}
