//! Names and places that every sandbox has, with the host's system or with an image.

/// Host name inside.
pub const HOSTNAME: &str = "nexus";
/// Directories that stay writable, with their modes.
pub const SCRATCH: &[(&str, u32)] =
    &[("tmp", 0o1777), ("var/tmp", 0o1777), ("home/nexus", 0o700), ("run", 0o755), ("dev/shm", 0o1777)];
