//! Options of a play that scenes know.

/// Options of the command line for scenes.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Steps for `NEXUS_INJECT`, when the driver was built with that hook.
    pub inject: Vec<String>,
    /// The rows that are played; all when empty.
    pub rows: Vec<(&'static str, &'static str)>,
}
