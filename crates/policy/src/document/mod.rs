//! Policy documents: what the operator, an account, a user and a workspace let any run have, at most.
//!
//! ```text
//!  text ─read─▶ PolicyDocument (unknown keys refused, every value with its line)
//!                   │  its own cases hold? ─ no ─▶ refused; the set in force stays
//!                   ▼
//!  documents of all levels ─▶ PolicySet::build ─▶ Effective ─ask(Question)─▶ allowed, or who forbids it
//!                             (any order)          │
//!                                                  └─ a run, a directive, `nexus policy explain`: the same answer
//! ```
//!
//! | part | how levels combine |
//! |---|---|
//! | `net`, `fs` | each document is a ceiling: what is allowed, all of them allow |
//! | `limits`, `budgets` | the smallest value |
//! | `approval`, `commands` | the strictest: forbidden > needs_approval > skip |
//! | `secrets`, `sandbox` | the nearest level that says something; documents of one level: what all of them list |
//!
//! Nothing here grants: a part that no document mentions stays as the caller has it. Nothing here touches a file, the
//! environment or the clock.

mod budget;
mod ceiling;
mod command_rule;
mod directive;
mod effective;
mod form;
mod held;
mod loaded;
mod past_run;
mod path_pattern;
mod question;
mod read;
mod schema;
mod self_test;
mod set;

pub use budget::BudgetKind;
pub use command_rule::CommandRule;
pub use directive::{Admission, DirectiveRefusal, check_directive, lower_limits};
pub use effective::{Effective, Forbidden, RunRights, Verdict};
pub use form::{Act, Answer, Case, Entry, FsPart, Level, NetPart, PolicyDocument};
pub use held::not_held;
pub use loaded::{DocumentName, LoadedPolicy};
pub use past_run::{Decision, Difference, Outcome, PastAttempt, PastChanges, PastRun, decide, differences};
pub use path_pattern::{PathPattern, PathPatternError, Root};
pub use question::{Destination, Question, QuestionError};
pub use read::parse;
pub use schema::{SCHEMA, schema};
pub use self_test::{CaseResult, TestFailure, run_cases};
pub use set::{PolicySet, SetError};
