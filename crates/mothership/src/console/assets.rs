//! Files of the console: they lie in the program, and their names change with their content.

use crate::http::{Answer, Problem, bytes_answer};
use axum::http::{HeaderValue, StatusCode, header};

/// A file that the pages load.
pub struct Asset {
    stem: &'static str,
    end: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

pub const STYLE: Asset =
    Asset { stem: "console", end: "css", kind: "text/css; charset=utf-8", bytes: include_bytes!("assets/console.css") };
pub const SCRIPT: Asset = Asset {
    stem: "console",
    end: "js",
    kind: "text/javascript; charset=utf-8",
    bytes: include_bytes!("assets/console.js"),
};
pub const ICON: Asset =
    Asset { stem: "icon", end: "svg", kind: "image/svg+xml", bytes: include_bytes!("assets/icon.svg") };

impl Asset {
    fn name(&self) -> String {
        let hash = blake3::hash(self.bytes).to_hex();
        format!("{}-{}.{}", self.stem, hash.get(..12).unwrap_or_default(), self.end)
    }

    /// Path of the file.
    pub fn path(&self) -> String {
        format!("/static/{}", self.name())
    }
}

/// Returns the file with this name. A browser keeps it: another content has another name.
pub fn serve(name: &str) -> Result<Answer, Problem> {
    let found = [STYLE, SCRIPT, ICON].into_iter().find(|asset| asset.name() == name);
    let asset = found.ok_or_else(Problem::not_found)?;
    let mut answer = bytes_answer(StatusCode::OK, asset.kind, asset.bytes.to_vec());
    let keep = HeaderValue::from_static("public, max-age=31536000, immutable");
    answer.headers_mut().insert(header::CACHE_CONTROL, keep);
    Ok(answer)
}
