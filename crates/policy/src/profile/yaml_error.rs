//! Reasons why a text cannot be read as YAML, in the words of Nexus: the library speaks of its options, which no reader
//! of a profile can set.

use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

/// Returns the fault, and the text to write instead.
pub(super) fn sentence(error: &Error) -> String {
    match error {
        Error::WithSnippet { error, .. } | Error::AliasError { error, .. } => sentence(error),
        Error::Budget { breach, .. } => too_much(breach).to_owned(),
        Error::UnknownAnchor { .. } => ALIASES.to_owned(),
        Error::MultipleDocuments { .. } => DOCUMENTS.to_owned(),
        Error::MergeKeyNotAllowed { .. } | Error::MergeValueNotMapOrSeqOfMaps { .. } => {
            "a key << that merges other keys is not read here: write the keys out, or use extends".to_owned()
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key {} stands here twice: keep one of them", short(key))
        }
        Error::DuplicateMappingKey { key: None, .. } => "a key stands here twice: keep one of them".to_owned(),
        Error::UnsupportedTag { tag, .. } | Error::TaggedStructFieldName { tag, .. } => {
            format!("the tag {} is not read here: write the value without a tag", short(tag))
        }
        Error::TaggedScalarCannotDeserializeIntoString { .. }
        | Error::InvalidBinaryBase64 { .. }
        | Error::BinaryNotUtf8 { .. } => "this value does not fit its tag: write the value without a tag".to_owned(),
        Error::InvalidScalar { .. } | Error::NonFiniteFloat { .. } => {
            "this value does not fit its form: write it without a tag, or put quotes around it".to_owned()
        }
        Error::Eof { .. } => "the text ends too early".to_owned(),
        Error::Message { msg, .. } | Error::ExternalMessage { msg, .. } => {
            // The message of the scanner is about the text; the place in it repeats the one in front of ours.
            let line = msg.lines().next().unwrap_or_default();
            short(line.split(" at line ").next().unwrap_or(line))
        }
        // Others are about Rust types that nothing here asks for.
        _ => "this is not YAML that can be read: look at the indentation, brackets and quotes".to_owned(),
    }
}

const ALIASES: &str = "anchors (&name) and aliases (*name) are not read here: write the value out";
const DOCUMENTS: &str = "a file holds one document: take the line --- and what follows it out";

fn too_much(breach: &BudgetBreach) -> &'static str {
    match breach {
        BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. } | BudgetBreach::AliasAnchorRatio { .. } => ALIASES,
        BudgetBreach::Documents { .. } => DOCUMENTS,
        BudgetBreach::Depth { .. } => "values are nested too deep here: at most 16 levels are read",
        BudgetBreach::SequenceUnbalanced => "a bracket is missing or stands here once too often",
        BudgetBreach::MergeKeys { .. } => "a key << that merges other keys is not read here: write the keys out",
        _ => "the document holds too many values or too much text: shorten it",
    }
}

/// Shortens text of the document for a message.
fn short(text: &str) -> String {
    const MAX_BYTES: usize = 100;
    if text.chars().count() <= MAX_BYTES {
        text.to_owned()
    } else {
        text.chars().take(MAX_BYTES).chain(['…']).collect()
    }
}
