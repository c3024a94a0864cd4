//! Points in time as the contract writes them: RFC 3339 in UTC.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A point in time: milliseconds since 1970 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(pub i64);

/// Some text was not a time in RFC 3339.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a time such as 2026-01-31T12:00:00Z")]
pub struct ParseTimestampError {
    /// Text that is not a time.
    pub text: String,
}

const DAY_MS: i64 = 86_400_000;

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days_from_date(year: i64, month: i64, day: i64) -> i64 {
    // The year begins in March here, so that the leap day is its last day.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_from_days(self.0.div_euclid(DAY_MS));
        let ms = self.0.rem_euclid(DAY_MS);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
    }
}

/// Takes `length` digits from the front of `text`.
fn digits(text: &mut &str, length: usize) -> Option<i64> {
    let (number, rest) = text.split_at_checked(length)?;
    *text = rest;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

fn sign(text: &mut &str, wanted: &[char]) -> Option<char> {
    let found = text.chars().next().filter(|found| wanted.contains(found))?;
    *text = text.get(1..)?;
    Some(found)
}

fn parse(mut text: &str) -> Option<i64> {
    let text = &mut text;
    let year = digits(text, 4)?;
    sign(text, &['-'])?;
    let month = digits(text, 2).filter(|month| (1..=12).contains(month))?;
    sign(text, &['-'])?;
    let day = digits(text, 2).filter(|day| (1..=days_of_month(year, month)).contains(day))?;
    sign(text, &['T', 't', ' '])?;
    let hour = digits(text, 2).filter(|hour| *hour < 24)?;
    sign(text, &[':'])?;
    let minute = digits(text, 2).filter(|minute| *minute < 60)?;
    sign(text, &[':'])?;
    let second = digits(text, 2).filter(|second| *second <= 60)?;
    let mut ms = 0;
    if sign(text, &['.']).is_some() {
        let length = text.bytes().take_while(u8::is_ascii_digit).count();
        let fraction = text.get(..length).filter(|fraction| !fraction.is_empty())?;
        *text = text.get(length..)?;
        for place in 0..3 {
            ms = ms * 10 + i64::from(fraction.as_bytes().get(place).map_or(0, |digit| digit - b'0'));
        }
    }
    let offset = match sign(text, &['Z', 'z', '+', '-'])? {
        direction @ ('+' | '-') => {
            let hours = digits(text, 2).filter(|hours| *hours < 24)?;
            sign(text, &[':'])?;
            let minutes = digits(text, 2).filter(|minutes| *minutes < 60)?;
            (hours * 60 + minutes) * if direction == '+' { 1 } else { -1 }
        }
        _ => 0,
    };
    let seconds = hour * 3600 + (minute - offset) * 60 + second;
    text.is_empty().then(|| days_from_date(year, month, day) * DAY_MS + seconds * 1000 + ms)
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = || ParseTimestampError { text: text.chars().take(100).collect() };
        parse(text).map(Self).ok_or_else(fault)
    }
}

impl TryFrom<String> for Timestamp {
    type Error = ParseTimestampError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> Self {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times_read_and_write_as_the_standard_says() {
        for (text, ms) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2000-02-29T12:00:00.000Z", 951_825_600_000),
            ("2026-11-25T23:51:52.007Z", 1_795_650_712_007),
            ("1969-12-31T23:59:59.999Z", -1),
        ] {
            assert_eq!(text.parse(), Ok(Timestamp(ms)), "{text}");
            assert_eq!(Timestamp(ms).to_string(), text);
        }
        assert_eq!("2000-02-29T13:30:00+01:30".parse(), Ok(Timestamp(951_825_600_000)));
        assert_eq!("2000-02-29T12:00:00.0009999Z".parse(), Ok(Timestamp(951_825_600_000)));
    }

    #[test]
    fn a_text_that_is_not_a_time_is_refused() {
        for text in [
            "",
            "2026",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00Zx",
            "äöü",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_time_reads_back_what_it_writes(ms in -62_135_596_800_000_i64..253_402_300_799_999) {
            prop_assert_eq!(Timestamp(ms).to_string().parse(), Ok(Timestamp(ms)));
        }

        #[test]
        fn no_text_stops_the_reader(text in "\\PC{0,40}") {
            drop(text.parse::<Timestamp>());
        }
    }
}
