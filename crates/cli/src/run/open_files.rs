//! Reports what a commit could find out about files that other programs have open.

use crate::failure::one_line;
use nexus_model::ByteText;

/// Paths that a line lists.
const LISTED: usize = 5;

/// Names files of which programs go on to read the version from before. `None` when there is none.
pub fn readers_line(readers: &[ByteText]) -> Option<String> {
    let names: Vec<_> = readers.iter().take(LISTED).map(|path| path.as_path().display().to_string()).collect();
    let more = readers.len().saturating_sub(LISTED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more (--json lists them)") };
    let line = format!(
        "open for reading in a program, which goes on to see the version from before: {}{more}",
        names.join(", ")
    );
    (!readers.is_empty()).then(|| one_line(&line))
}
