//! How much of a sandbox's output passes.

/// How much passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Text, line ends, tabs and colours: for output that a person looks at.
    Plain,
    /// What programs on a whole screen need, too.
    Interactive,
}
