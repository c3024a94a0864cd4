//! Decisions without I/O: chunks, matching, validation, rates, time.

mod chunk;
mod drift;
mod fullness;
mod lease;
mod matching;
mod past;
mod policies;
mod rate;
mod removal;
mod request;

pub use chunk::{Chunk, ChunkFault, chunk};
pub use drift::{Drift, Reading, drift};
pub use fullness::Fullness;
pub use lease::{ClaimTimes, OVERRUN_MS, ended_by_time};
pub use matching::{fits, healthy_profiles, queued_because, room};
pub use past::past_run;
pub use policies::{AtClaim, Generation, Policies, PolicyRefusal, at_claim, source};
pub use rate::Windows;
pub use removal::RemovalGuard;
pub use request::{build, log_limit};
