//! A sandbox while it runs: moves bytes between the command and the attendant of the run, and watches the limits.
//!
//! ```text
//!  pump ─┬─▶ attendant (terminal, clients of a session) ─▶ control: input, signals, execs, forwards
//!        ├─▶ looks: disk, covers       ├─▶ names: questions without a network
//!        ├─▶ input: the caller's standard input, byte for byte as the command reads it
//!        └─▶ tally ─▶ last_words       └─▶ output, ring: what is kept of the output
//!  ports ─▶ relay: published ports
//! ```
//! * `pump`, `bounds`, `signal`: the one thread that serves a sandbox, its bounds and its outcome
//! * `attendant`, `control`, `input`: whom the sandbox is run for, and how the attendant acts on it
//! * `output`, `ring`, `tally`, `last_words`, `full_output`, `pipes`, `left_in_pipes`: what the command prints, bounded, counted and kept
//! * `looks`, `disk`, `covers`: what is polled while the command runs
//! * `lingers`: the wait for a sandbox whose processes are dead, while the kernel still releases its resources
//! * `ports`, `relay`, `names`: published ports, and the questions of a command without a network

pub mod attendant;
pub mod bounds;
pub mod control;
pub mod covers;
pub mod disk;
pub mod full_output;
pub mod input;
pub mod last_words;
pub mod left_in_pipes;
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
