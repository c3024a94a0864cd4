//! Sizes and times as people write them: `512M`, `1.5`, `30s`. Sizes are powers of two.

/// A size, a time or a number of processors could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseUnitError {
    /// Not a size.
    #[error("{text:?} is not a size: write a whole number with K, M or G (512M), or plain bytes")]
    Size {
        /// Text that is not a valid value.
        text: String,
    },
    /// Not a time.
    #[error("{text:?} is not a time: write a number with ms, s, m or h (30s), or plain seconds")]
    Duration {
        /// Text that is not a valid value.
        text: String,
    },
    /// A time of nothing.
    #[error("{text:?} is too short: a time is at least 1ms")]
    NoTime {
        /// Text that is not a valid value.
        text: String,
    },
    /// Not a number of processors.
    #[error("{text:?} is not a number of processors: write for example 2 or 0.5 (at least 0.01)")]
    Cpus {
        /// Text that is not a valid value.
        text: String,
    },
}

/// Reads a size in bytes: `4096`, `64K`, `512M`, `1G`, `1T`. Powers of two.
pub fn parse_size(text: &str) -> Result<u64, ParseUnitError> {
    let error = || ParseUnitError::Size { text: text.to_owned() };
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        Some(b'T' | b't') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(error());
    }
    let number: u64 = digits.parse().map_err(|_| error())?;
    number.checked_mul(1 << shift).ok_or_else(error)
}

/// Reads a time in milliseconds: `250ms`, `30s`, `10m`, `2h`, `1.5s`; a plain number is seconds.
pub fn parse_duration_ms(text: &str) -> Result<u64, ParseUnitError> {
    let error = || ParseUnitError::Duration { text: text.to_owned() };
    let (digits, factor) = if let Some(rest) = text.strip_suffix("ms") {
        (rest, 1)
    } else if let Some(rest) = text.strip_suffix('s') {
        (rest, 1000)
    } else if let Some(rest) = text.strip_suffix('m') {
        (rest, 60_000)
    } else if let Some(rest) = text.strip_suffix('h') {
        (rest, 3_600_000)
    } else {
        (text, 1000)
    };
    match decimal(digits, factor) {
        Some(0) => Err(ParseUnitError::NoTime { text: text.to_owned() }),
        other => other.ok_or_else(error),
    }
}

/// Reads a number of processors as millicores: `2` is 2000, `0.5` is 500.
pub fn parse_cpus(text: &str) -> Result<u32, ParseUnitError> {
    let error = || ParseUnitError::Cpus { text: text.to_owned() };
    decimal(text, 1000).and_then(|v| u32::try_from(v).ok()).filter(|v| *v >= 10).ok_or_else(error)
}

/// `digits[.digits] * factor`, exactly, or `None`.
fn decimal(text: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |s: &str| !s.is_empty() && s.len() <= 12 && s.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let scale = 10u64.pow(fraction.len() as u32);
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = fraction.parse().ok()?;
    whole.checked_mul(factor)?.checked_add(fraction.checked_mul(factor)? / scale)
}

/// A size for people: `1.5 MiB`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("64K"), Ok(65_536));
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("1g"), Ok(1 << 30));
        for bad in ["", "M", "-1", "1.5G", "1GB", " 1", "+1", "99999999999T", "0x10"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_units_and_plain_numbers_are_seconds() {
        assert_eq!(parse_duration_ms("250ms"), Ok(250));
        assert_eq!(parse_duration_ms("30"), Ok(30_000));
        assert_eq!(parse_duration_ms("1.5s"), Ok(1500));
        assert_eq!(parse_duration_ms("10m"), Ok(600_000));
        assert_eq!(parse_duration_ms("2h"), Ok(7_200_000));
        for bad in ["", "s", "0", "0s", "-1s", "1 s", "1d", "1e3", ".5s", "1.s"] {
            assert!(parse_duration_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn processors_are_millicores() {
        assert_eq!(parse_cpus("1.5"), Ok(1500));
        assert_eq!(parse_cpus("2"), Ok(2000));
        for bad in ["0", "0.001", "-1", "all", "1,5", "99999999999"] {
            assert!(parse_cpus(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(format_size(12), "12 B");
        assert_eq!(format_size(1536), "1.5 KiB");
        assert_eq!(format_size(3 << 30), "3.0 GiB");
    }
}
