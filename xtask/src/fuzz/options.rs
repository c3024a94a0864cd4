//! Options of `cargo xtask fuzz`.

use crate::failure::Failure;

/// Shown when the words cannot be understood.
const USAGE: &str = "cargo xtask fuzz [TARGET] [--seconds N]";
/// Long enough to pass the first plateau of every target.
const SECONDS: u32 = 60;

/// Options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// One target; all when missing.
    pub target: Option<String>,
    /// Seconds for each.
    pub seconds: u32,
}

impl Options {
    /// Reads the words behind the command's name.
    pub fn read(words: &[String]) -> Result<Self, Failure> {
        let mut options = Self { target: None, seconds: SECONDS };
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            if word == "--seconds" {
                let number = rest.next().and_then(|text| text.parse().ok()).filter(|seconds| *seconds > 0);
                // libFuzzer takes 0 for "without end".
                options.seconds = number.ok_or_else(|| Failure::new("--seconds needs a number from 1", USAGE))?;
            } else if word.starts_with('-') || options.target.is_some() {
                return Err(Failure::new(format!("{word} is not understood"), USAGE));
            } else {
                options.target = Some(word.clone());
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Option<(Option<String>, u32)> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Options::read(&words).ok().map(|options| (options.target, options.seconds))
    }

    #[test]
    fn a_target_and_a_time_can_be_chosen() {
        assert_eq!(read(&[]), Some((None, 60)));
        assert_eq!(read(&["--seconds", "5", "dns"]), Some((Some("dns".to_owned()), 5)));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for words in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "x"], &["a", "b"], &["--second", "1"]] {
            assert_eq!(read(words), None, "{words:?}");
        }
    }
}
