//! Formats a point in time for messages.

/// `2026-01-31 23:59:58` in UTC, for milliseconds since 1970.
pub fn utc(unix_ms: u64) -> String {
    let (days, seconds) = (unix_ms / 86_400_000, unix_ms / 1000 % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Returns the Gregorian date of a day since 1970. Counted in periods of 400 years from a 1st of March, so that the
/// leap day is the last of a year.
fn date(days: u64) -> (u64, u64, u64) {
    const PERIOD: u64 = 146_097;
    // From 0000-03-01 to 1970-01-01.
    let days = days + 719_468;
    let (period, day) = (days / PERIOD, days % PERIOD);
    let year = (day - day / 1460 + day / 36_524 - day / (PERIOD - 1)) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (period * 400 + year + next_year, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_that_are_easily_missed_are_right() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_709_164_800, "2024-02-29 00:00:00"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (1_735_689_600, "2025-01-01 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(utc(seconds * 1000 + 999), text);
        }
    }
}
