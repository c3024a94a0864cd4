//! Reads git configurations, and knows which settings may change unasked. Pure.

mod inert;
mod parse;
mod place;
mod urls;
mod values;

pub use inert::{changed, held, kept, strip};
pub use parse::{Setting, Unreadable, parse};
pub use place::{BranchGoes, Known, ModuleUrl, NamesBack, Place, Upstream};

#[cfg(test)]
mod tests;
