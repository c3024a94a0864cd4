//! The command `nexus logs`.

use super::args::LogsArgs;
use super::exec::{conclude, show, tell};
use super::find::find;
use super::view::{Outcome, Part, View};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::sink::Sink;
use nexus_model::exit::SIGNAL_BASE;
use nexus_runner::live::output::Stream;
use nexus_runner::session::link::{Found, Link};
use nexus_runner::session::store::Entry;
use nexus_runner::session::wire::{ClientMessage, Reader, ServerMessage};
use std::collections::VecDeque;
use std::io;

/// Prints what there is, and then what comes if asked.
pub fn command(args: &LogsArgs) -> Result<u8, Failure> {
    let (_, entry) = find(&args.session)?;
    // Of a terminal's screen the same passes as of any other output: no user types there now.
    let mut sink = Sink::new(false, None, None, show(args.raw, false));
    let failed = |error: &io::Error| {
        let message = format!("the output of the sandbox {} cannot be printed: {error}", entry.about.id);
        Failure::refused("output", message, "look at where the output goes: is the disk full?")
    };
    match Link::open(&entry, &ClientMessage::Logs { follow: args.follow }, None, &crate::notices::print)? {
        Found::Interrupted(signal) => Ok(SIGNAL_BASE.saturating_add(signal)),
        Found::Over(over) => {
            kept(&over, args.tail, &mut sink).map_err(|error| failed(&error))?;
            Ok(0)
        }
        Found::Live(mut link) => {
            if let Some(lines) = args.tail {
                let (frames, over) = until_live(&mut link).map_err(|error| failed(&error))?;
                print(&last_lines(frames, lines), &mut sink).map_err(|error| failed(&error))?;
                if over {
                    return Ok(0);
                }
            }
            let signals = Signals::catch().map_err(|error| failed(&error))?;
            let outcome = View::new(sink, false, None, None, Part::Shows).talk(&mut link, &signals);
            // How it ended is not what was asked for.
            if let Ok(Outcome::Ended { message, .. }) = &outcome {
                tell(message);
                return Ok(0);
            }
            conclude(&entry, outcome, false)
        }
    }
}

/// Frames up to what is new, and whether nothing more comes.
fn until_live(link: &mut Link) -> io::Result<(Vec<ServerMessage>, bool)> {
    let mut frames = Vec::new();
    loop {
        match link.wait_for_next()? {
            ServerMessage::Live => return Ok((frames, false)),
            frame @ (ServerMessage::Output { .. } | ServerMessage::Behind { .. }) => frames.push(frame),
            ServerMessage::Hello { .. } | ServerMessage::Taken { .. } => {}
            ServerMessage::Done | ServerMessage::Ended { .. } => return Ok((frames, true)),
            ServerMessage::Refused { message, .. } => return Err(io::Error::other(message)),
        }
    }
}

/// Prints the output that was kept of a sandbox that is over.
fn kept(entry: &Entry, tail: Option<usize>, sink: &mut Sink) -> io::Result<()> {
    let mut reader = Reader::default();
    reader.push(&entry.output()?);
    let mut frames = Vec::new();
    while let Some(frame) = reader.next::<ServerMessage>().map_err(io::Error::other)? {
        frames.push(frame);
    }
    let frames = match tail {
        Some(lines) => last_lines(frames, lines),
        None => frames,
    };
    print(&frames, sink)
}

fn print(frames: &[ServerMessage], sink: &mut Sink) -> io::Result<()> {
    for frame in frames {
        match frame {
            ServerMessage::Output { err, bytes } => {
                let stream = if *err { Stream::Err } else { Stream::Out };
                if sink.take(stream, &bytes.0)? || sink.drain()? {
                    return Ok(());
                }
            }
            ServerMessage::Behind { bytes } => tell(&format!("[... {bytes} bytes are not there any more ...]\n")),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the last `lines` lines, whichever stream they are on.
fn last_lines(frames: Vec<ServerMessage>, lines: usize) -> Vec<ServerMessage> {
    let mut kept = VecDeque::new();
    let mut ends = 0;
    for frame in frames.into_iter().rev() {
        let ServerMessage::Output { err, mut bytes } = frame else { continue };
        for at in (0..bytes.0.len()).rev() {
            // A line end at the very end starts no line.
            let last = kept.is_empty() && at + 1 == bytes.0.len();
            if bytes.0[at] == b'\n' && !last {
                ends += 1;
                if ends == lines {
                    bytes.0.drain(..=at);
                    kept.push_front(ServerMessage::Output { err, bytes });
                    return kept.into();
                }
            }
        }
        if lines > 0 {
            kept.push_front(ServerMessage::Output { err, bytes });
        }
    }
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::ByteText;

    fn text(pieces: &[&str], lines: usize) -> String {
        let frames = pieces.iter().map(|piece| ServerMessage::Output { err: false, bytes: (*piece).into() });
        let last = last_lines(frames.collect(), lines).into_iter().map(|frame| match frame {
            ServerMessage::Output { bytes: ByteText(bytes), .. } => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        });
        last.collect()
    }

    #[test]
    fn the_last_lines_are_found_across_pieces() {
        assert_eq!(text(&["a\nb", "c\nd\n"], 1), "d\n");
        assert_eq!(text(&["a\nb", "c\nd\n"], 2), "bc\nd\n");
        assert_eq!(text(&["a\nb", "c\nd"], 1), "d");
        assert_eq!(text(&["a\nb", "c\nd\n"], 9), "a\nbc\nd\n");
        assert_eq!(text(&["a\nb\n"], 0), "");
        assert_eq!(text(&["a\n", "\n"], 1), "\n");
    }
}
