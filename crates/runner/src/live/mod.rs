//! A sandbox while it runs: moves bytes between the command and the attendant of the run, and watches the limits.
//!
//! ```text
//!  pump ─┬─▶ attendant (terminal, clients of a session) ─▶ control: input, signals, execs, forwards
//!        ├─▶ looks: disk, covers       ├─▶ names: questions without a network
//!        ├─▶ input: the caller's standard input, byte for byte as the command reads it
//!        └─▶ tally ─▶ last_words       └─▶ output, ring: what is kept of the output
//!  ports ─▶ relay: published ports
//! ```

pub mod attendant;
pub mod bounds;
pub mod control;
pub mod covers;
pub mod disk;
pub mod full_output;
pub mod input;
pub mod last_words;
pub mod left;
pub mod lingers;
pub mod looks;
pub mod names;
pub mod output;
pub mod pipes;
pub mod ports;
pub mod pump;
pub mod relay;
pub mod ring;
pub mod signal;
pub mod tally;
