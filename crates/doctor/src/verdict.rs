//! Evaluates the attacks per vector, for people and as JSON. Pure.

use crate::failure::{Failure, one_line};
use nexus_escape::{Evaluated, Kind, Outcome, VECTORS, Verdict};
use serde::Serialize;
use serde_json::json;

/// Numbers of cases of one kind by their verdict.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// State of one vector after its attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Every attack that was played was refused, and its harmless twins work.
    Held,
    /// An attack got through, or a harmless twin does not work.
    Failed,
    /// No attack of this vector could be played here.
    Skipped,
}

/// One row of the verdict: a vector with its counts.
#[derive(Debug, Serialize)]
pub struct Vector {
    id: &'static str,
    title: &'static str,
    state: State,
    attacks: Counts,
    harmless: Counts,
}

/// Sums up rows by vector; a vector of which nothing was asked is left out.
pub fn vectors(rows: &[Evaluated]) -> Vec<Vector> {
    let mut found = Vec::new();
    for known in VECTORS {
        let (mut attacks, mut harmless) = (Counts::default(), Counts::default());
        for row in rows.iter().filter(|row| row.case.id == known.id) {
            let counts = if row.case.kind == Kind::Malicious { &mut attacks } else { &mut harmless };
            match row.verdict {
                Verdict::Pass => counts.passed += 1,
                Verdict::Fail(_) => counts.failed += 1,
                Verdict::Skip(_) => counts.skipped += 1,
            }
        }
        let twins = harmless.passed > 0 || harmless.skipped == 0;
        let state = match (attacks.failed + harmless.failed, attacks.passed, attacks.skipped + harmless.passed) {
            (1.., ..) => State::Failed,
            (0, 1.., _) if twins => State::Held,
            // Neither the twins alone prove anything, nor refusals where no probe saw that anything works.
            (0, 1.., _) | (0, 0, 1..) => State::Skipped,
            (0, 0, 0) if harmless.skipped > 0 => State::Skipped,
            (0, 0, 0) => continue,
        };
        found.push(Vector { id: known.id, title: known.title, state, attacks, harmless });
    }
    found
}

fn group_title(letter: &str) -> &'static str {
    match letter {
        "A" => "processes and kernel surface",
        "B" => "files",
        "E" => "resources and lifetime",
        "G" => "secrets",
        "N" => "terminal and logs",
        _ => "other",
    }
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn held(vectors: &[Vector], state: State) -> usize {
    vectors.iter().filter(|vector| vector.state == state).count()
}

/// Renders the verdict for people.
pub fn render_text(vectors: &[Vector], outcome: &Outcome) -> String {
    let mut lines = Vec::new();
    let mut letter = "";
    for vector in vectors {
        if vector.id.get(..1) != Some(letter) {
            letter = vector.id.get(..1).unwrap_or_default();
            let group: Vec<_> = vectors.iter().filter(|one| one.id.starts_with(letter)).collect();
            let good = group.iter().filter(|one| one.state == State::Held).count();
            lines.push(format!("{letter}  {}: {good} of {} held", group_title(letter), group.len()));
        }
        let status = match vector.state {
            State::Held => "held   ",
            State::Failed => "FAILED ",
            State::Skipped => "skipped",
        };
        let refused = count(vector.attacks.passed, "attack", "attacks");
        let twins = vector.harmless.passed;
        lines.push(format!(
            "   {status} {}  {:<44} {refused} refused, {twins} harmless worked",
            vector.id, vector.title
        ));
        for row in outcome.rows.iter().filter(|row| row.case.id == vector.id) {
            match &row.verdict {
                Verdict::Pass => {}
                Verdict::Skip(why) => lines.push(format!("             skipped {}: {why}", row.case.name)),
                Verdict::Fail(why) => {
                    let what = if row.case.kind == Kind::Malicious { "GOT OUT" } else { "BROKEN" };
                    let wanted = row.case.expect.join(" or ");
                    lines.push(format!("             {what} {}: {why}; expected {wanted}", row.case.name));
                }
            }
        }
    }
    lines.extend(outcome.notes.iter().map(|note| format!("note: {note}")));
    let (passed, failed, skipped) = outcome.counts();
    let word = match (outcome.good(), skipped) {
        (true, 0) => "every attack was refused",
        (true, _) => "every attack was refused, of those that could be played here",
        (false, _) => "NOT everything held",
    };
    lines.push(format!(
        "{word}: {} held, {} failed, {} skipped ({passed} cases passed, {failed} failed, {skipped} skipped)",
        count(held(vectors, State::Held), "vector", "vectors"),
        held(vectors, State::Failed),
        held(vectors, State::Skipped),
    ));
    lines.iter().map(|line| one_line(line) + "\n").collect()
}

/// Renders the verdict as JSON, with every case.
pub fn render_json(vectors: &[Vector], outcome: &Outcome) -> String {
    let (passed, failed, skipped) = outcome.counts();
    let cases: Vec<_> = outcome
        .rows
        .iter()
        .map(|row| {
            let (word, why) = row.verdict.words();
            json!({
                "id": row.case.id,
                "case": row.case.name,
                "kind": row.case.kind.name(),
                "expect": row.case.expect,
                "seen": row.answers.values().next(),
                "verdict": word,
                "why": why,
            })
        })
        .collect();
    let document = json!({
        "schema": "nexus.attack/1",
        "held": outcome.good(),
        "counts": Counts { passed, failed, skipped },
        "vectors": vectors,
        "cases": cases,
        "notes": outcome.notes,
    });
    format!("{document}\n")
}

/// Returns the JSON that says why there is no verdict.
pub fn unknown(failure: &Failure) -> serde_json::Value {
    json!({ "schema": "nexus.attack/1", "held": false, "error": failure })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, kind: Kind, verdict: Verdict) -> Evaluated {
        let case = nexus_escape::cases().find(|case| case.id == id && case.kind == kind).unwrap();
        Evaluated { case, answers: [].into(), verdict }
    }

    fn outcome(rows: Vec<Evaluated>) -> Outcome {
        Outcome { rows, notes: Vec::new() }
    }

    #[test]
    fn a_vector_holds_only_when_an_attack_was_refused_and_nothing_failed() {
        let fail = || Verdict::Fail("Root answers ok".to_owned());
        let skip = || Verdict::Skip("cannot be held here".to_owned());
        let of = |rows: Vec<Evaluated>| vectors(&rows).first().map(|vector| vector.state);
        let (bad, good) = (Kind::Malicious, Kind::Harmless);
        assert_eq!(of(vec![row("A05", bad, Verdict::Pass), row("A05", good, Verdict::Pass)]), Some(State::Held));
        assert_eq!(of(vec![row("A05", bad, fail()), row("A05", good, Verdict::Pass)]), Some(State::Failed));
        assert_eq!(of(vec![row("A05", bad, Verdict::Pass), row("A05", good, fail())]), Some(State::Failed));
        assert_eq!(of(vec![row("E02", bad, skip()), row("E02", good, Verdict::Pass)]), Some(State::Skipped));
        assert_eq!(of(vec![row("E02", good, skip())]), Some(State::Skipped));
        assert_eq!(of(vec![row("E02", bad, Verdict::Pass), row("E02", good, skip())]), Some(State::Skipped));
        assert_eq!(of(Vec::new()), None);
    }

    #[test]
    fn what_got_out_is_named_with_what_was_expected_and_no_control_character() {
        let rows = vec![row("A05", Kind::Malicious, Verdict::Fail("Root answers ok \u{1b}[2J".to_owned()))];
        let outcome = outcome(rows);
        let text = render_text(&vectors(&outcome.rows), &outcome);
        assert!(text.contains("GOT OUT") && text.contains("expected EPERM or"), "{text}");
        assert!(text.contains("NOT everything held") && !text.contains('\u{1b}'), "{text}");
        let json: serde_json::Value = serde_json::from_str(&render_json(&vectors(&outcome.rows), &outcome)).unwrap();
        assert_eq!((json["held"].as_bool(), json["counts"]["failed"].as_u64()), (Some(false), Some(1)));
        assert_eq!(json["vectors"][0]["state"], "failed");
    }

    #[test]
    fn what_was_skipped_is_not_said_to_be_refused() {
        let held = || row("A05", Kind::Malicious, Verdict::Pass);
        let all = outcome(vec![held()]);
        assert!(render_text(&vectors(&all.rows), &all).contains("every attack was refused: "));
        let some = outcome(vec![held(), row("E02", Kind::Malicious, Verdict::Skip("not here".to_owned()))]);
        assert!(
            render_text(&vectors(&some.rows), &some)
                .contains("every attack was refused, of those that could be played")
        );
    }

    #[test]
    fn nothing_played_is_no_success_and_neither_are_twins_alone() {
        let skipped = || row("E02", Kind::Malicious, Verdict::Skip("not here".to_owned()));
        for rows in [vec![skipped()], vec![skipped(), row("E02", Kind::Harmless, Verdict::Pass)]] {
            let outcome = outcome(rows);
            assert!(!outcome.good());
            assert!(render_text(&vectors(&outcome.rows), &outcome).contains("NOT everything held"));
        }
    }
}
