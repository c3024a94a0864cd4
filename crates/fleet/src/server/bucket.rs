//! The bucket of `nexus mothership serve`, and the key for it.

use crate::args::BucketArgs;
use crate::failure::Failure;
use crate::server::tls_files::{Others, read_own};
use nexus_mothership::{BucketKey, BucketSettings};
use std::sync::Arc;

/// Variables with the key, as the tools of S3 read them.
const ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION: &str = "AWS_SESSION_TOKEN";

/// Returns the bucket that the flags name.
pub fn read(args: &BucketArgs) -> Result<Option<BucketSettings>, Failure> {
    let Some(url) = &args.blob_url else { return Ok(None) };
    let refused = |why: String, hint: &str| Failure::usage("kept_files", why, hint);
    let key = if let Some(path) = &args.blob_key_file {
        let hint = "write aws_access_key_id = … and aws_secret_access_key = … into a file of your own with mode 600";
        let text = read_own(path, Others::Nothing).map_err(|why| {
            refused(format!("the key of the bucket in {} cannot be used: {why}", path.display()), hint)
        })?;
        BucketKey::read(&text).map_err(|error| refused(error.to_string(), hint))?
    } else {
        let hint = "pass --blob-key-file FILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(id), Some(secret)) = (variable(ID), variable(SECRET)) else {
            return Err(refused("no key for the bucket is named".to_owned(), hint));
        };
        BucketKey::new(id, secret, variable(SESSION)).map_err(|error| refused(error.to_string(), hint))?
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let hint = "write s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION&ca=FILE";
    BucketSettings::read(url, key, provider).map(Some).map_err(|error| refused(error.to_string(), hint))
}
