//! Prefix rules of Codex (`*.rules`): `prefix_rule(pattern=["git", ["status", "log"]], decision="allow")`.

use super::ImportError;
use super::draft::Draft;
use super::starlark::{Call, Value, calls};
use crate::document::Answer;

/// Most rules that the alternatives of one pattern may become.
const MAX_RULES: usize = 256;

pub(super) fn read(text: &str, draft: &mut Draft) -> Result<(), ImportError> {
    for call in calls(text).map_err(|why| ImportError::Unreadable { why })? {
        match call.name.as_str() {
            "prefix_rule" => rule(&call, draft),
            _ => draft.leave_out(&call.name, "only prefix_rule can be carried over"),
        }
    }
    Ok(())
}

fn rule(call: &Call, draft: &mut Draft) {
    let (mut pattern, mut answer) = (None, Answer::Skip);
    let mut examples = [Vec::new(), Vec::new()];
    let what = call.text.as_str();
    for (name, value) in &call.arguments {
        match (name.as_str(), value) {
            ("pattern", Value::List(list)) => pattern = Some(list),
            ("decision", Value::Text(word)) => {
                answer = match word.as_str() {
                    "allow" => Answer::Skip,
                    "prompt" => Answer::NeedsApproval,
                    "forbidden" => Answer::Forbidden,
                    _ => return draft.leave_out(what, format!("the decision {word:?} is not known")),
                }
            }
            ("justification", _) => {}
            ("match", Value::List(list)) => examples[0] = lines(list),
            ("not_match", Value::List(list)) => examples[1] = lines(list),
            _ => return draft.leave_out(what, format!("the argument {name} is not known in this form")),
        }
    }
    let Some(pattern) = pattern else { return draft.leave_out(what, "it has no pattern") };
    let mut prefixes = vec![Vec::new()];
    for token in pattern {
        let words: Vec<&str> = match token {
            Value::Text(word) => vec![word],
            Value::List(list) => list
                .iter()
                .filter_map(|value| if let Value::Text(word) = value { Some(word.as_str()) } else { None })
                .collect(),
        };
        prefixes = prefixes
            .iter()
            .flat_map(|prefix: &Vec<&str>| words.iter().map(move |word| [prefix.as_slice(), &[*word]].concat()))
            .collect();
        if prefixes.is_empty() || prefixes.len() > MAX_RULES {
            return draft.leave_out(what, format!("its pattern stands for none or more than {MAX_RULES} beginnings"));
        }
    }
    for prefix in &prefixes {
        let rule = format!("{} *", line(prefix.iter().copied()));
        // An example is about one of the beginnings.
        let of_this = |line: &&String| {
            let words = crate::command::plain_words(line).unwrap_or_default();
            prefixes.len() == 1 || words.iter().map(String::as_str).take(prefix.len()).eq(prefix.iter().copied())
        };
        let matches: Vec<String> = examples[0].iter().filter(of_this).cloned().collect();
        draft.command(what, answer, &rule, [&matches, &examples[1]]);
    }
}

/// Returns examples as command lines: each a text, or a list of words.
fn lines(list: &[Value]) -> Vec<String> {
    let one = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        Value::List(words) => {
            line(words.iter().filter_map(|word| if let Value::Text(word) = word { Some(word.as_str()) } else { None }))
        }
    };
    list.iter().map(one).collect()
}

fn line<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let is_plain = |word: &str| {
        !word.is_empty()
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c))
            && !word.contains('=')
    };
    let quoted =
        |word: &str| if is_plain(word) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) };
    words.map(quoted).collect::<Vec<_>>().join(" ")
}
