//! Errors of the store.

use nexus_model::ids::TerritoryId;

/// Reason why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The object does not exist, or belongs to another account.
    #[error("the object does not exist")]
    NotFound,
    /// The disk or the database is full.
    #[error("the store is full")]
    Full,
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
    /// The database was made by a newer program.
    #[error("the database has version {found}, and this program reads up to version {known}")]
    Newer {
        /// Version that a reader needs.
        found: i64,
        /// Version that this program knows.
        known: i64,
    },
    /// The database holds something that this program did not write.
    #[error("the database holds a value that cannot be read: {what}")]
    Corrupt {
        /// Value that cannot be read.
        what: String,
    },
    /// The database was moved into another one.
    #[error("the fleet of this database was moved to PostgreSQL")]
    Moved,
    /// The directory of the database cannot be used.
    #[error("the directory {path} cannot be used: {why}")]
    Directory {
        /// Path of the directory.
        path: String,
        /// Cause of the failure, for people.
        why: String,
    },
    /// Randomness or a certificate could not be made.
    #[error("a secret of the store could not be made: {why}")]
    Secret {
        /// Cause of the failure, for people.
        why: String,
    },
    /// The database refused a statement.
    #[error("the database failed: {why}")]
    Database {
        /// Cause of the failure, for people.
        why: String,
    },
    /// No connection to the database can be made, or all are in use.
    #[error("the database cannot be reached: {why}")]
    Unreachable {
        /// Cause of the failure, for people.
        why: String,
    },
    /// The settings of the database cannot be used.
    #[error("the database cannot be used: {why}")]
    Settings {
        /// Cause of the failure, for people.
        why: String,
    },
    /// Kept files cannot be read or written, or their place cannot be used.
    #[error("the place of kept files cannot be used: {why}")]
    Blobs {
        /// Cause of the failure, for people.
        why: String,
    },
    /// The stored policy document of the account does not count any more.
    #[error("the policy of the account cannot be used: {why}")]
    Policy {
        /// Cause, with its place.
        why: String,
    },
    /// Too many approvals of the account wait for an answer.
    #[error("too many approvals wait for an answer")]
    TooManyApprovals,
    /// The territory that holds the files of a facility was revoked: no other one ever gets its directives.
    #[error("the territory {territory} has no access any more")]
    TerritoryGone {
        /// Territory that was revoked.
        territory: TerritoryId,
    },
    /// A text holds a character that the database cannot store.
    #[error("a text holds the character U+0000")]
    Text,
}

impl StoreError {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Full => "store_full",
            Self::Closed => "store_closed",
            Self::Newer { .. } => "store_newer",
            Self::Moved => "store_moved",
            Self::Corrupt { .. } => "store_corrupt",
            Self::Directory { .. } => "store_directory",
            Self::Secret { .. } => "store_secret",
            Self::Database { .. } => "store_failed",
            Self::Unreachable { .. } => "store_unreachable",
            Self::Settings { .. } => "store_settings",
            Self::Blobs { .. } => "kept_files",
            Self::Policy { .. } => "policy_broken",
            Self::TooManyApprovals => "too_many_approvals",
            Self::TerritoryGone { .. } => "territory_gone",
            Self::Text => "invalid_field",
        }
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::Full,
            _ if matches!(error, rusqlite::Error::QueryReturnedNoRows) => Self::NotFound,
            _ => Self::Database { why: error.to_string() },
        }
    }
}
