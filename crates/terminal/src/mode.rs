//! The mode of a filter: the amount of a sandbox's output that passes.

/// Amount of a sandbox's output that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Text, line ends, tabs and colours: for output that a person looks at.
    Plain,
    /// Also the sequences that full-screen programs need.
    Interactive,
}
