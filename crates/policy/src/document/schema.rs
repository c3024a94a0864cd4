//! The format as a JSON Schema, for editors and other programs. A test holds it and the reader together.

/// The schema's text.
pub const SCHEMA: &str = include_str!("../../schema/policy.schema.json");

/// Returns the schema as JSON.
pub fn schema() -> Result<serde_json::Value, serde_json::Error> {
    serde_json::from_str(SCHEMA)
}
