//! The contract between the host and PID 1 of a sandbox: frames, their encoding, and the socket that carries them.
//!
//! ```text
//!  frames ──codec: length, postcard──▶ bytes ──unix: stream socket──▶ bytes ──▶ frames
//!                                       └── descriptors go beside the first byte (SCM_RIGHTS)
//! ```
//! [`Channel`] is one end of a connection between host and guest. [`codec::Reader`] takes frames out of bytes for peers
//! that pass no descriptors. [`descriptors`] is the one place of the workspace that sends and receives descriptors.

#![forbid(unsafe_code)]

pub mod codec;
pub mod descriptors;
pub mod frames;
mod unix;

pub use unix::{Channel, ChannelError, Partial, send};
