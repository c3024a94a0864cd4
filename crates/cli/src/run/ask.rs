//! `--changes ask`: the decision at the end of a run, on a terminal.

use crate::change_text;
use crate::failure::one_line;
use crate::net::ask::QUIET;
use crate::signals::Signals;
use nexus_changes::diff::of_layer;
use nexus_runner::request::ChangeMode;
use nexus_runner::settle::frontend::Question;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::time::Instant;

/// Changes that are listed before the question.
const SHOWN: usize = 20;

/// Explains the answers.
const HELP: &[u8] = b"\
nexus: c, y  commit: bring all of it into the workspace
nexus: d     diff: show the changes as a patch, and ask again
nexus: r, n  review later: keep the changes, and touch nothing
nexus: p     keep them, and decide part by part with nexus changes accept --patch
nexus: x     discard: throw the changes away
";

/// Says how to decide part by part.
const IN_PARTS: &[u8] = b"nexus: nexus changes accept --patch asks about each part.\n";

/// Reports whether the user can be asked: standard input and standard error are terminals.
pub fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Reads standard input until it ends or a signal asks this process to end.
struct Typed<'a> {
    signals: &'a Signals,
}

impl Read for Typed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let stdin = rustix::stdio::stdin();
            let mut both = [PollFd::new(self.signals, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut both, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let (signal, typed) = (both[0].revents(), both[1].revents());
            if !signal.is_empty() && self.signals.ending()? {
                return Ok(0);
            }
            if !typed.is_empty() {
                return Ok(rustix::io::read(stdin, &mut *buffer)?);
            }
        }
    }
}

/// Shows the changes and asks until the user answers. At the end of the input, or on a signal that would end `nexus`,
/// the changes are parked for a review: the run is over, and only its changes could be lost.
pub fn ask(question: &Question<'_>, signals: &Signals) -> Result<ChangeMode, String> {
    let Question { layer, workspace, rules, changes: set, .. } = question;
    let (added, modified, deleted) = set.counts();
    let mut lines = vec![format!("nexus: {added} added, {modified} modified, {deleted} deleted")];
    let shown = set.changes.iter().take(SHOWN);
    lines.extend(shown.map(|change| format!("nexus:   {}", one_line(&change_text::line(change)))));
    if set.changes.len() > SHOWN {
        lines.push(format!("nexus:   … and {} more", set.changes.len() - SHOWN));
    }
    // Resets colours first: the command may have left some that hide the text.
    let text = format!("\x1b[0m{}\n", lines.join("\n"));
    let mut stderr = crate::terminal::out::stderr();
    stderr.write_all(text.as_bytes()).map_err(|error| format!("no user could be asked: {error}"))?;
    if !drop_keys(signals).map_err(|error| format!("no user could be asked: {error}"))? {
        return Ok(ChangeMode::Review);
    }
    let show = || of_layer(layer, workspace, rules);
    answer(&show, &mut BufReader::new(Typed { signals }), &mut stderr)
}

/// Drops what was typed before the question, and for [`QUIET`] after its text was drawn. Otherwise the command could draw a
/// fake question, and a key typed for it would answer the real one. Returns false if a signal asks this process to end.
fn drop_keys(signals: &Signals) -> io::Result<bool> {
    let until = Instant::now() + QUIET;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&wait)) {
            Ok(0) => break,
            Ok(_) if signals.ending()? => return Ok(false),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match rustix::termios::tcflush(rustix::stdio::stdin(), rustix::termios::QueueSelector::IFlush) {
        // A terminal that has gone answers nothing anyway.
        Ok(()) | Err(Errno::IO | Errno::NOTTY) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn answer(
    show: &dyn Fn() -> Result<Vec<u8>, String>,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<ChangeMode, String> {
    let failed = |error: std::io::Error| format!("no user could be asked: {error}");
    loop {
        // Dropped keys without an end of line stand where the prompt begins.
        output.write_all(b"\r\x1b[Knexus: [c]ommit, [d]iff, [r]eview later, [x] discard? ").map_err(failed)?;
        output.flush().map_err(failed)?;
        let mut line = Vec::new();
        input.read_until(b'\n', &mut line).map_err(failed)?;
        match line.trim_ascii() {
            _ if line.is_empty() => {
                // The cursor is still on the line of the question.
                output.write_all(b"\n").map_err(failed)?;
                return Ok(ChangeMode::Review);
            }
            b"c" | b"commit" | b"y" | b"yes" => return Ok(ChangeMode::Commit),
            b"r" | b"review" | b"n" | b"no" => return Ok(ChangeMode::Review),
            b"p" | b"patch" => {
                output.write_all(IN_PARTS).map_err(failed)?;
                return Ok(ChangeMode::Review);
            }
            b"x" | b"discard" => return Ok(ChangeMode::Discard),
            b"d" | b"diff" => output.write_all(&show()?).map_err(failed)?,
            _ => output.write_all(HELP).map_err(failed)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(typed: &str) -> (ChangeMode, String) {
        let mut output = Vec::new();
        let show = || Ok(b"THE DIFF\n".to_vec());
        let decided = answer(&show, &mut typed.as_bytes(), &mut output).unwrap();
        (decided, String::from_utf8(output).unwrap())
    }

    #[test]
    fn each_letter_decides_and_the_end_of_the_input_keeps_the_changes() {
        assert_eq!(asked("c\n").0, ChangeMode::Commit);
        assert_eq!(asked("r\n").0, ChangeMode::Review);
        assert_eq!(asked("x\n").0, ChangeMode::Discard);
        assert_eq!(asked("").0, ChangeMode::Review);
        assert_eq!(asked("what?\n\nc\n").0, ChangeMode::Commit);
        assert_eq!((asked("y\n").0, asked("n\n").0), (ChangeMode::Commit, ChangeMode::Review));
    }

    #[test]
    fn an_unknown_answer_explains_the_answers_and_decides_nothing() {
        let (decided, output) = asked("?\nxx\nr\n");
        assert_eq!((decided, output.matches("throw the changes away").count()), (ChangeMode::Review, 2), "{output}");
        let (decided, output) = asked("p\n");
        assert!(decided == ChangeMode::Review && output.contains("nexus changes accept --patch asks"), "{output}");
    }

    #[test]
    fn the_diff_is_shown_before_the_decision() {
        let (decided, output) = asked("d\nx\n");
        assert_eq!(decided, ChangeMode::Discard);
        assert!(output.contains("THE DIFF\n"), "{output}");
        assert_eq!(output.matches("discard?").count(), 2);
    }
}
