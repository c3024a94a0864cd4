//! Reads the name that a person gives a run on the command line: its id, the start of its id, or `latest`.

use super::choose;
use crate::failure::Failure;
use nexus_model::RunId;
use nexus_model::ids::ParseIdError;
use nexus_runner::review::waiting;
use std::str::FromStr;

/// The fewest letters of an id that name a run: a mistyped letter or two must not choose whatever run is the only one.
const MIN_START: usize = 4;

/// The name of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunName {
    /// The whole id.
    Id(RunId),
    /// The start of one.
    Start(String),
    /// The latest run that waits for the directory that the caller stands in.
    Latest,
}

impl FromStr for RunName {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_start = |text: &str| {
            (MIN_START..36).contains(&text.len())
                && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
        };
        match text.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) if text == "latest" => Ok(Self::Latest),
            Err(_) if is_start(text) => Ok(Self::Start(text.to_owned())),
            Err(error) => Err(error),
        }
    }
}

/// Returns the run that a name means. A start has to mean one run of all that wait; another directory's counts, too.
pub fn resolve(name: Option<&RunName>) -> Result<Option<RunId>, Failure> {
    let start = match name {
        None => return Ok(None),
        Some(RunName::Id(id)) => return Ok(Some(*id)),
        Some(RunName::Latest) => None,
        Some(RunName::Start(start)) => Some(start),
    };
    let places = crate::host::ready_state_dir()?;
    let interrupted = crate::recovery::interrupted(&places)?;
    // The command itself reports what cannot be read: it reads it again.
    let all = waiting::all(&places, &interrupted, &|_| {})?;
    let one = match start {
        None => {
            let (here, found) = choose::here(all);
            found.into_iter().next().ok_or_else(|| choose::none(&here))?
        }
        Some(start) => {
            let mut found: Vec<_> = all.into_iter().filter(|one| one.run.starts_with(start.as_str())).collect();
            if found.len() > 1 {
                let list: Vec<_> = found.iter().map(choose::brief).collect();
                let message = format!("the ids of {} runs begin with {start}: {}", list.len(), list.join("; "));
                return Err(Failure::usage("run", message, "write more of the id"));
            }
            let missing = || {
                let message = format!("no changes of a run whose id begins with {start} wait for a decision");
                Failure::refused("no_changes", message, "nexus changes list shows all that wait")
            };
            found.pop().ok_or_else(missing)?
        }
    };
    let id = one.run.parse().map_err(|error: ParseIdError| Failure::usage("run", error.to_string(), ""))?;
    Ok(Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_the_start_of_one_and_latest_are_names() {
        let whole = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(whole.parse(), Ok(RunName::Id(whole.parse().unwrap())));
        assert_eq!("latest".parse(), Ok(RunName::Latest));
        for start in ["0189", "01890a5d-ac", &whole[..35]] {
            assert_eq!(start.parse(), Ok(RunName::Start(start.to_owned())), "{start}");
        }
        for other in ["", "x", "018", "../0189", "0189/", "0189 ", "last", &format!("{whole}0")] {
            assert!(other.parse::<RunName>().is_err(), "{other}");
        }
    }
}
