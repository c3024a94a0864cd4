//! The signed statement of what a run was and did.
