//! The filter of a list of directives: words in the address of the page, so that a link leads another person to the same list.
//!
//! ```text
//!  state:failed  -reason:exit  facility:ID  since:24h  make
//!  \____________________________________________/  \__/ a word of the command
//!  a minus before a word takes away what it finds
//! ```

use crate::store::types::DirectiveLine;
use nexus_model::directive::State;
use nexus_model::ids::FacilityId;

/// Longest filter, in bytes.
pub const MAX_LENGTH: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    State(State),
    Reason(String),
    Command(String),
}

impl Test {
    fn is_met(&self, one: &DirectiveLine) -> bool {
        match self {
            Self::State(state) => one.state == *state,
            Self::Reason(reason) => one.reason.as_deref() == Some(reason),
            Self::Command(word) => one.command.contains(word.as_str()),
        }
    }

    fn is_alike(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && !matches!(self, Self::Command(_))
    }
}

/// Filter of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub facility: Option<FacilityId>,
    /// Age of the oldest one, in milliseconds.
    since: Option<i64>,
    wanted: Vec<Test>,
    unwanted: Vec<Test>,
}

impl Filter {
    /// Reads the words; an error says which one is not understood.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        if text.len() > MAX_LENGTH {
            return Err(format!("A filter has at most {MAX_LENGTH} bytes."));
        }
        for whole in text.split_whitespace() {
            let word = whole.strip_prefix('-').filter(|rest| !rest.is_empty());
            let list = if word.is_some() { &mut filter.unwanted } else { &mut filter.wanted };
            let named = word.unwrap_or(whole).split_once(':');
            let wrong = |why: &str| format!("{whole} is not understood: {why}");
            match named {
                Some(("state", name)) => {
                    let state =
                        name.parse().map_err(|_| wrong("the state must be one of a directive, such as failed."))?;
                    list.push(Test::State(state));
                }
                Some(("reason", name)) => list.push(Test::Reason(name.to_owned())),
                Some(("facility" | "since", _)) if word.is_some() => return Err(wrong("it takes no minus.")),
                Some(("facility", id)) => {
                    filter.facility = Some(id.parse().map_err(|_| wrong("it must be the id of a facility."))?);
                }
                Some(("since", age)) => {
                    filter.since = Some(read_age(age).ok_or_else(|| wrong("an age is such as 30m, 24h or 7d."))?);
                }
                _ => list.push(Test::Command(word.unwrap_or(whole).to_owned())),
            }
        }
        Ok(filter)
    }

    /// Reports whether rows have to be looked at one after another.
    pub fn looks_at_rows(&self) -> bool {
        self.since.is_some() || !self.wanted.is_empty() || !self.unwanted.is_empty()
    }

    /// Reports whether this directive, and so each older one, is too old.
    pub fn is_too_old(&self, one: &DirectiveLine, now: i64) -> bool {
        self.since.is_some_and(|since| one.created_at < now - since)
    }

    /// Reports whether a directive belongs to the list. Of several states one is enough, and so of several reasons.
    pub fn takes(&self, one: &DirectiveLine) -> bool {
        let met =
            |test: &Test| test.is_met(one) || self.wanted.iter().any(|other| other.is_alike(test) && other.is_met(one));
        self.wanted.iter().all(met) && !self.unwanted.iter().any(|test| test.is_met(one))
    }
}

fn read_age(text: &str) -> Option<i64> {
    let (at, unit) = text.char_indices().last()?;
    let ms = match unit {
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        _ => return None,
    };
    text.get(..at)?.parse::<i64>().ok().filter(|count| (1..=100_000).contains(count)).map(|count| count * ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::ids::DirectiveId;

    fn line(state: State, reason: Option<&str>, command: &str, created_at: i64) -> DirectiveLine {
        DirectiveLine {
            id: DirectiveId::new(),
            state,
            reason: reason.map(str::to_owned),
            exit_code: None,
            command: command.to_owned(),
            created_at,
            started_at: None,
            ended_at: None,
        }
    }

    #[test]
    fn words_choose_and_a_minus_takes_away() {
        let all = [
            line(State::Failed, Some("exit"), "make test", 100),
            line(State::Failed, Some("image_pull"), "make", 200),
            line(State::TimedOut, None, "pytest -q", 300),
            line(State::Succeeded, None, "make docs", 400),
        ];
        let chosen = |text: &str| -> Vec<i64> {
            let filter = Filter::read(text).unwrap();
            all.iter().filter(|one| filter.takes(one)).map(|one| one.created_at).collect()
        };
        assert_eq!(chosen(""), [100, 200, 300, 400]);
        assert_eq!(chosen("state:failed"), [100, 200]);
        assert_eq!(chosen("state:failed state:timed_out"), [100, 200, 300]);
        assert_eq!(chosen("state:failed -reason:exit"), [200]);
        assert_eq!(chosen("-state:failed make"), [400]);
        assert_eq!(chosen("make test"), [100], "every word of the command");
        let recent = Filter::read("since:1m").unwrap();
        assert!(recent.is_too_old(&all[0], 60_101) && !recent.is_too_old(&all[1], 60_101));
    }

    #[test]
    fn a_word_that_is_not_understood_is_named() {
        for text in ["state:broken", "since:soon", "since:0h", "since:h", "facility:x", "-since:1h", "-facility:x"] {
            let why = Filter::read(text).unwrap_err();
            assert!(why.starts_with(text), "{why}");
        }
        assert!(Filter::read(&"x".repeat(MAX_LENGTH + 1)).is_err());
    }
}
