//! The only code that dials out for a sandbox.

#![forbid(unsafe_code)]
