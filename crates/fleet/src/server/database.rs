//! The address of the database of `nexus mothership serve`.

use crate::args::DatabaseArgs;
use crate::failure::Failure;
use crate::server::tls_files::{Others, read_own};
use nexus_mothership::Database;
use std::sync::Arc;

/// Variable with the address, for a service whose manager keeps secrets.
const VARIABLE: &str = "NEXUS_DATABASE";

/// Returns the database that the flags or the environment name.
pub fn read(args: &DatabaseArgs) -> Result<Option<Database>, Failure> {
    let refused = |why: String, hint: &str| Failure::usage("database", why, hint);
    let text = match (&args.database, &args.database_file) {
        (Some(url), _) if Database::has_password(url) => {
            let why = "the address of the database holds a password, which each process of this machine can read";
            let hint = "Write the address into a file for --database-file, or into NEXUS_DATABASE.";
            return Err(refused(why.to_owned(), hint));
        }
        (Some(url), _) => url.clone(),
        (None, Some(path)) => read_own(path, Others::Nothing).map_err(|why| {
            let why = format!("the address of the database in {} cannot be used: {why}", path.display());
            refused(why, "write it into a file of your own with mode 600")
        })?,
        (None, None) => match std::env::var(VARIABLE) {
            Ok(url) if !url.is_empty() => url,
            Ok(_) | Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(_) => return Err(refused(format!("{VARIABLE} is not UTF-8"), "write a URL into it")),
        },
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let read = Database::read(text.trim(), provider);
    let hint = "write postgres://USER@HOST/NAME, or postgres:///NAME?host=DIRECTORY&user=USER for a socket";
    read.map(Some).map_err(|error| refused(error.to_string(), hint))
}
