//! Takes one directive through the engine ([`engine::Engine`], in its method `one`): the path of `nexus run`.
//!
//! ```text
//!  DirectiveSpec ─ admit ─▶ Admitted ─ request ─▶ RunRequest ─ resolve ─▶ Prepared ─ deadline to the launcher ─▶ Running ─▶ Finished ─▶ RunReport
//!                                                                                                                  │  attendant: output ─▶ sender
//!                                                                                                                  │  frontend: diff, settling
//! ```

pub mod attendant;
pub mod connections;
pub mod control;
pub mod engine;
pub mod frontend;
pub mod network;
pub mod output;
pub mod request;
