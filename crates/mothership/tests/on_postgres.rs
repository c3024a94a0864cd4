//! The same tests as over SQLite, over PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

#[path = "suite/approvals.rs"]
mod approvals;
#[path = "suite/artifacts.rs"]
mod artifacts;
#[path = "suite/audit.rs"]
mod audit;
#[path = "suite/connections.rs"]
mod connections;
#[path = "suite/console.rs"]
mod console;
#[path = "suite/hostile.rs"]
mod hostile;
#[path = "suite/independent.rs"]
mod independent;
#[path = "suite/life.rs"]
mod life;
#[path = "suite/policies.rs"]
mod policies;
#[path = "suite/rights.rs"]
mod rights;
#[path = "suite/tidy.rs"]
mod tidy;
