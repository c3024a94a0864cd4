//! Form of a case.

use super::world::World;

/// One case: its sentence, and the function that says why it does not hold, or what is worth a remark.
pub type Case = (&'static str, fn(&World) -> Result<Option<String>, String>);
