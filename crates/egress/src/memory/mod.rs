//! Memory of the connections of one sandbox: buffers for their bytes, and bounds for all of them together.

pub(crate) mod bounds;
pub(crate) mod buffers;
pub(crate) mod inbuf;
