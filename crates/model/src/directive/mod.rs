//! The life of a directive as one pure function, which the control plane and the daemon share.
//!
//! ```text
//!  create ─▶ awaiting_approval ─approve─▶ queued ─claim─▶ leased ─started─▶ running ─finished─▶ succeeded | failed
//!    │            └ reject, expire ─▶ rejected  ▲            │                 │                  | canceled | timed_out
//!    │                         (from queued too, while an approval is not used)│
//!    └─ policy forbids ─▶ rejected              │            │                 │
//!                                               ├─ returned ─┘                 │
//!                                               │  (never started)             │
//!                                               └─ lease lost, on_lease_loss = requeue, not settling, starts left ─┤
//!                                                  failed(lease_lost) ◀─ lease lost before a commit was allowed, ──┤
//!                                                                        or its changes are discarded              │
//!                                    ┌─────────── failed(commit_unknown) ◀─ lease lost otherwise ──────────────────┤
//!                                    ├─────────── canceled(unconfirmed) ◀─ cancel that the daemon never confirmed ─┤
//!                                    │            timed_out ◀─ overrun: it beats after the server's own deadline ──┘
//!                                    └─finished, by the same claim, once─▶ succeeded | failed | canceled | timed_out
//!  not committed, by the holder ─▶ of a running one: as a lease that is lost before a commit was allowed
//!                               ─▶ of failed(commit_unknown): failed(lease_lost)
//!  cancel: awaiting_approval, queued, and leased at a daemon that confirms ─▶ canceled; otherwise a mark that the next
//!  heartbeat reads.
//! ```
//! A terminal state never changes, but for the two that the server writes without knowing the end: `commit_unknown` and
//! `unconfirmed`. No later claim exists, so the claim that had the directive says once how it ended. (The store reads a `lease_lost` of a
//! started claim that never runs again like `commit_unknown`: its holder may say how the command ended.) Each claim takes a fence
//! above every earlier one, and an event that names another fence than the present one is refused. `finished` on a leased
//! directive passes through `running`.

mod fence;
mod state;
mod step;

pub use fence::Fence;
pub use state::{Directive, EndReason, FinishStatus, Initial, OnLeaseLoss, State, UnknownState};
pub use step::{Event, MAX_STARTS, NOT_COMMITTED, Refusal, Step, step};

#[cfg(test)]
mod tests;
