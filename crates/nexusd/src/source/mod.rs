//! The control plane, which gives work and takes reports.

mod http;
mod work;

pub use http::HttpSource;
pub use work::{SourceError, WorkSource};
