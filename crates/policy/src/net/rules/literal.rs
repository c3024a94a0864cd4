//! IPv4 addresses in every spelling that some program accepts.
//!
//! `2130706433`, `0x7f000001`, `0177.0.0.1`, `127.1` and `0` all reach the own host through `inet_aton(3)` and through
//! the WHATWG URL parser. A filter that reads them as names lets them past its address rules, so all are addresses
//! here.

use std::net::Ipv4Addr;

/// Reports whether programs would read `ascii` (no trailing dot) as an address: its last label is a number in some
/// base.
///
/// The rule is the one of the WHATWG URL standard ("ends in a number"), which takes in all that `inet_aton` takes.
pub(in crate::net) fn ends_in_a_number(ascii: &str) -> bool {
    let last = ascii.rsplit('.').next().unwrap_or(ascii);
    if last.is_empty() {
        return false;
    }
    match last.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => last.bytes().all(|b| b.is_ascii_digit()),
    }
}

/// Reads one to four numbers, each decimal, octal (`0…`) or hexadecimal (`0x…`); the last one fills the rest.
pub(in crate::net) fn parse_v4(ascii: &str) -> Option<Ipv4Addr> {
    let parts = ascii.split('.').map(number).collect::<Option<Vec<u64>>>()?;
    let (last, leading) = parts.split_last()?;
    if leading.len() > 3 || leading.iter().any(|part| *part > 255) {
        return None;
    }
    let rest_bits = 8 * (4 - leading.len() as u32);
    if *last >= 1_u64 << rest_bits {
        return None;
    }
    let mut value = *last;
    for (place, part) in leading.iter().enumerate() {
        value |= part << (24 - 8 * place);
    }
    u32::try_from(value).ok().map(Ipv4Addr::from)
}

/// Reads one part. `inet_aton` reads `0x` as 0 too.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = if let Some(hex) = text.strip_prefix("0x") {
        (if hex.is_empty() { "0" } else { hex }, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        (&text[1..], 8)
    } else {
        (text, 10)
    };
    // An empty part is not a number, and `from_str_radix` would take a sign.
    if text.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    // More digits than a u64 holds is more than an address holds, except for leading zeroes, which may go on for ever.
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, radix).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_an_address_is_that_address() {
        let home = Some(Ipv4Addr::LOCALHOST);
        for text in
            ["127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.1", "0x7f.1", "017700000001"]
        {
            assert!(ends_in_a_number(text), "{text}");
            assert_eq!(parse_v4(text), home, "{text}");
        }
        assert_eq!(parse_v4("0"), Some(Ipv4Addr::UNSPECIFIED));
        assert_eq!(parse_v4("0x"), Some(Ipv4Addr::UNSPECIFIED));
        assert_eq!(parse_v4("0000000000000000000000000000000000000000177.1"), home);
        assert_eq!(parse_v4("4294967295"), Some(Ipv4Addr::BROADCAST));
    }

    #[test]
    fn what_no_program_reads_as_an_address_is_none() {
        for text in ["4294967296", "256.1", "1.2.3.256", "1.2.3.4.5", "08", "1..2", "1.256.3.4", "0xg", "1.16777216"] {
            assert_eq!(parse_v4(text), None, "{text}");
        }
        assert!(!ends_in_a_number("1.2.3.com"));
        assert!(!ends_in_a_number("0xg"));
    }
}
