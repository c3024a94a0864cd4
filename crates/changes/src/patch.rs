//! `nexus changes accept --patch`: hunk by hunk, asked one after the other.
//!
//! Answers come from standard input: `y` takes the hunk, `n` leaves it, `a` takes it and all that follow in the file,
//! `d` leaves it and all that follow, `q` stops; the end of the input stops too. Nothing is written before a file's
//! last hunk was answered, and each file is one commit.

use super::accepted_text::accepted_text;
use super::diff;
use crate::change_text;
use crate::failure::{Failure, one_line};
use crate::notices::print;
use crate::signals;
use crate::terminal::out;
use nexus_layer::review::diff::{AcceptError, Choice, Content, DiffOptions, FileDiff, Hunk, LineTag};
use nexus_layer::{Change, Rules};
use nexus_model::ByteText;
use nexus_runner::review::paths::taken_along;
use nexus_runner::review::pending::Pending;
use std::io::{BufRead, Write};

/// Asks for every hunk of the chosen paths. The workspace stays unlocked while the user thinks: what was shown has a
/// digest, and another difference is refused.
pub fn command(pending: &Pending, rules: &Rules) -> Result<String, Failure> {
    let options = DiffOptions::default();
    let diff = pending
        .layer
        .diff(&pending.workspace, rules, &options)
        .map_err(|error| Failure::refused("diff", nexus_runner::causes::chain(&error), ""))?;
    let changes = pending.changes()?;
    let mut input = std::io::stdin().lock();
    let mut text = String::new();
    let mut asked: Vec<&ByteText> = Vec::new();
    for file in &diff.files {
        // What goes away or moves as a whole is one question, however many files it has.
        let stop = if let Some(change) = taken_along(&file.path, &changes) {
            if asked.contains(&&change.path) {
                continue;
            }
            asked.push(&change.path);
            let answer = ask(&whole_question(change), &mut input)?;
            if matches!(answer, 'y' | 'a') {
                text.push_str(&accept_whole(pending, rules, &change.path)?);
            }
            answer == 'q'
        } else {
            let answer = ask_file(file, &mut input)?;
            text.push_str(&carry_out(pending, rules, &options, file, &answer.chosen)?);
            answer.stop
        };
        if stop {
            break;
        }
    }
    Ok(text)
}

fn whole_question(change: &Change) -> Vec<u8> {
    let line = one_line(&change_text::line(change));
    format!("--- {line}\n(accepted or left as a whole, with everything in it)\naccept? [y,n,a,d,q] ").into_bytes()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    chosen: Vec<usize>,
    stop: bool,
}

/// Splits a file's difference into questions: one for each hunk, or a single one when it has no hunks.
fn hunks(file: &FileDiff) -> Vec<Option<&Hunk>> {
    match &file.content {
        Content::Text { hunks } if !hunks.is_empty() => hunks.iter().map(Some).collect(),
        _ => vec![None],
    }
}

fn ask_file(file: &FileDiff, input: &mut impl BufRead) -> Result<Answer, Failure> {
    let all = hunks(file);
    let mut answer = Answer::default();
    for (number, hunk) in all.iter().enumerate() {
        match ask(&question(file, *hunk, number + 1, all.len()), input)? {
            'y' => answer.chosen.push(number),
            'a' => {
                answer.chosen.extend(number..all.len());
                break;
            }
            'd' => break,
            'q' => {
                answer.stop = true;
                break;
            }
            _ => {}
        }
    }
    Ok(answer)
}

fn question(file: &FileDiff, hunk: Option<&Hunk>, number: usize, of: usize) -> Vec<u8> {
    let name = one_line(&file.path.as_path().display().to_string());
    let mut text = format!("--- {name}: {:?} ({number} of {of})\n", file.kind).into_bytes();
    if let Some(why) = &file.protected {
        text.extend(one_line(&format!("needs an explicit accept: {why}")).bytes().chain(*b"\n"));
    }
    match hunk {
        None => text.extend(b"(accepted or left as a whole)\n"),
        Some(hunk) => {
            for line in &hunk.lines {
                text.push(match line.tag {
                    LineTag::Context => b' ',
                    LineTag::Removed => b'-',
                    LineTag::Added => b'+',
                });
                text.extend(diff::visible(&line.text.0));
                if !line.text.0.ends_with(b"\n") {
                    text.extend(b"\n\\ no newline at the end\n");
                }
            }
        }
    }
    text.extend(b"accept? [y,n,a,d,q] ");
    text
}

/// Asks until there is a known answer, and returns its letter. The end of the input is `q`.
fn ask(question: &[u8], input: &mut impl BufRead) -> Result<char, Failure> {
    let failed = |error: std::io::Error| Failure::refused("ask", format!("cannot ask: {error}"), "");
    loop {
        out::write_unless_closed(&mut std::io::stderr(), question).map_err(failed)?;
        let mut line = Vec::new();
        input.read_until(b'\n', &mut line).map_err(failed)?;
        if line.is_empty() {
            std::io::stderr().write_all(b"\n").map_err(failed)?;
            return Ok('q');
        }
        if let [answer @ (b'y' | b'n' | b'a' | b'd' | b'q')] = line.trim_ascii() {
            return Ok(char::from(*answer));
        }
    }
}

fn carry_out(
    pending: &Pending,
    rules: &Rules,
    options: &DiffOptions,
    file: &FileDiff,
    chosen: &[usize],
) -> Result<String, Failure> {
    if chosen.is_empty() {
        return Ok(String::new());
    }
    let Content::Text { hunks } = &file.content else { return accept_whole(pending, rules, &file.path) };
    if hunks.is_empty() {
        return accept_whole(pending, rules, &file.path);
    }
    let digest = file.digest();
    let choice = Choice { path: &file.path, hunks: chosen, seen: Some(&digest), options };
    let committed = {
        let _alone = pending.alone(&print)?;
        pending
            .layer
            .accept_hunks(&pending.workspace, &Rules { named: vec![file.path.clone()], ..rules.clone() }, &choice)
            .map_err(|error| match error {
                AcceptError::Commit(error) => pending.commit_failed(error).into(),
                other => Failure::refused(
                    "accept",
                    nexus_runner::causes::chain(&other),
                    "accept the path as a whole, or not at all",
                ),
            })?
    };
    accepted_text(&committed)?;
    if committed.changes.changes.is_empty() {
        return Ok(not_accepted(&file.path));
    }
    let all = hunks.len();
    let parts = if chosen.len() == all { String::new() } else { format!(" ({} of {all} parts)", chosen.len()) };
    Ok(one_line(&format!("accepted {}{parts}", file.path.as_path().display())) + "\n")
}

/// Accepts a path as a whole. Says what was committed, and no more.
fn accept_whole(pending: &Pending, rules: &Rules, path: &ByteText) -> Result<String, Failure> {
    let only = Rules { only: Some(vec![path.clone()]), accept_protected: true, ..rules.clone() };
    let committed = {
        let _alone = pending.alone(&print)?;
        let _held = signals::hold()?;
        let committed = pending.layer.commit(&pending.workspace, &only);
        committed.map_err(|error| pending.commit_failed(error))?
    };
    let accepted = accepted_text(&committed)?;
    if committed.changes.changes.is_empty() {
        return Ok(not_accepted(path));
    }
    let is_alone = committed.changes.changes.iter().all(|change| change.path == *path);
    Ok(if is_alone { one_line(&format!("accepted {}", path.as_path().display())) + "\n" } else { accepted })
}

fn not_accepted(path: &ByteText) -> String {
    one_line(&format!("not accepted: {} hangs together with other changes", path.as_path().display())) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_layer::meta::EntryType;
    use nexus_layer::review::diff::DiffKind;

    fn file(hunks: usize) -> FileDiff {
        let hunk = Hunk { old_start: 1, old_lines: 1, new_start: 1, new_lines: 1, lines: Vec::new() };
        FileDiff {
            path: "a".into(),
            kind: DiffKind::Modified,
            file_type: EntryType::File,
            old_mode: Some(0o644),
            new_mode: Some(0o644),
            rename_from: None,
            similarity: None,
            content: Content::Text { hunks: vec![hunk; hunks] },
            applies: true,
            protected: None,
            other_names: 0,
        }
    }

    fn answer(text: &str) -> Answer {
        ask_file(&file(3), &mut text.as_bytes()).unwrap()
    }

    #[test]
    fn answers_take_leave_and_stop() {
        assert_eq!(answer("y\nn\ny\n"), Answer { chosen: vec![0, 2], stop: false });
        assert_eq!(answer("n\na\n"), Answer { chosen: vec![1, 2], stop: false });
        assert_eq!(answer("y\nd\n"), Answer { chosen: vec![0], stop: false });
        assert_eq!(answer("y\nq\n"), Answer { chosen: vec![0], stop: true });
    }

    #[test]
    fn an_unknown_answer_is_asked_again_and_the_end_stops() {
        assert_eq!(answer("what\nyes\ny\n"), Answer { chosen: vec![0], stop: true });
        assert_eq!(answer(""), Answer { chosen: vec![], stop: true });
    }
}
