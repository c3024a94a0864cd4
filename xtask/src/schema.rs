//! `sync-schema`: the documents of `docs/protocol` as JSON, which the control plane serves and other programs read. A change
//! begins in `docs/protocol`; `check-schema` fails while the copies say something else.

use crate::failure::Failure;
use crate::workspace::Workspace;
use serde_json::Value;

/// Each document and its copy.
const COPIES: &[(&str, &str)] = &[
    ("docs/protocol/conduits_api_openapi.yaml", "crates/api/src/documents/conduits.json"),
    ("docs/protocol/mothership_api_openapi.yaml", "crates/api/src/documents/mothership.json"),
    ("docs/protocol/events.schema.v1.json", "crates/api/src/documents/events.json"),
];

const HINT: &str = "run `cargo xtask sync-schema` and commit what it wrote";

/// Writes the copies.
pub fn sync(workspace: &Workspace) -> Result<(), Failure> {
    for (document, copy) in COPIES {
        let text = rendered(workspace, document)?;
        let path = workspace.root.join(copy);
        std::fs::write(&path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display()), HINT))?;
    }
    Ok(())
}

/// Compares the copies with the documents.
pub fn check(workspace: &Workspace) -> Result<(), Failure> {
    for (document, copy) in COPIES {
        let path = workspace.root.join(copy);
        let present = std::fs::read_to_string(&path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display()), HINT))?;
        if present != rendered(workspace, document)? {
            return Err(Failure::new(format!("{copy} is not what {document} says"), HINT));
        }
    }
    Ok(())
}

fn rendered(workspace: &Workspace, document: &str) -> Result<String, Failure> {
    let path = workspace.root.join(document);
    let fault = |why: String| Failure::new(format!("{}: {why}", path.display()), "fix the document");
    let text = std::fs::read_to_string(&path).map_err(|error| fault(error.to_string()))?;
    let value: Value = if path.extension().is_some_and(|end| end == "json") {
        serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?
    } else {
        serde_saphyr::from_str(&text).map_err(|error| fault(error.to_string()))?
    };
    serde_json::to_string_pretty(&value).map(|text| text + "\n").map_err(|error| fault(error.to_string()))
}
