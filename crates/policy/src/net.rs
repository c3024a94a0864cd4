//! Which destinations a sandbox may reach.
