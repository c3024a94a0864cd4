//! Named sets of permissions.
