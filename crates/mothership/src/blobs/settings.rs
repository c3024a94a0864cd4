//! The address of a bucket, as an operator writes it, and the key for it.

use crate::store::StoreError;
use nexus_api::client::{ClientConfig, PlainHttp, TlsFiles, tls_config};
use rustls::crypto::CryptoProvider;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Time from a request to its whole answer: the longest one carries the output of a directive.
const TIME: Duration = Duration::from_secs(60);

/// The key of a user of S3.
#[derive(Clone)]
pub struct BucketKey {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) session: Option<String>,
}

impl std::fmt::Debug for BucketKey {
    /// Without the secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the key {:?}", self.id)
    }
}

impl BucketKey {
    /// Makes a key of its parts. Each is one line of visible characters.
    pub fn new(id: String, secret: String, session: Option<String>) -> Result<Self, StoreError> {
        let is_good = |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        // `/` and `,` divide the parts of the proof.
        if !is_good(&id)
            || id.contains(['/', ','])
            || !is_good(&secret)
            || session.as_ref().is_some_and(|text| !is_good(text))
        {
            return Err(refused("its key is not made of visible characters"));
        }
        Ok(Self { id, secret, session })
    }

    /// Reads a file as the tools of S3 write it: `aws_access_key_id = …`, `aws_secret_access_key = …` and perhaps `aws_session_token = …`.
    /// Of several sections the first one counts.
    pub fn read(text: &str) -> Result<Self, StoreError> {
        let mut fields = [("aws_access_key_id", None), ("aws_secret_access_key", None), ("aws_session_token", None)];
        let mut sections = 0;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                sections += 1;
            }
            let Some((name, value)) = line.split_once('=').filter(|_| sections < 2 && !line.starts_with('#')) else {
                continue;
            };
            if let Some((_, field)) = fields.iter_mut().find(|(known, _)| *known == name.trim()) {
                *field = Some(value.trim().to_owned());
            }
        }
        let [(_, id), (_, secret), (_, session)] = fields;
        let missing = || refused("its file of keys has no aws_access_key_id or no aws_secret_access_key");
        Self::new(id.ok_or_else(missing)?, secret.ok_or_else(missing)?, session)
    }
}

/// A bucket and the key for it.
#[derive(Clone)]
pub struct BucketSettings {
    pub(super) client: ClientConfig,
    /// Begin of every path: `/BUCKET` where the address does not name the bucket.
    pub(super) base: String,
    /// Value of the header `Host`.
    pub(super) host: String,
    /// Begin of every key, with a slash at its end where it is not empty.
    pub(super) prefix: String,
    pub(super) region: String,
    pub(super) key: BucketKey,
}

impl std::fmt::Debug for BucketSettings {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}{}/{} in {} with {:?}", self.client.server, self.base, self.prefix, self.region, self.key)
    }
}

fn refused(why: impl Into<String>) -> StoreError {
    StoreError::Kept { why: why.into() }
}

impl BucketSettings {
    /// Reads `s3://BUCKET/PREFIX?region=REGION&endpoint=URL&ca=FILE&style=path`. Without an endpoint the bucket is one of Amazon. Beyond this
    /// machine the connection has TLS, unless the operator writes `tls=off`: what is kept can be read on the way then, and no key.
    pub fn read(text: &str, key: BucketKey, provider: Arc<CryptoProvider>) -> Result<Self, StoreError> {
        let url = Url::parse(text).map_err(|error| refused(format!("its URL cannot be read: {error}")))?;
        if url.scheme() != "s3" || !url.username().is_empty() || url.password().is_some() || url.port().is_some() {
            return Err(refused("its URL is not of the form s3://BUCKET/PREFIX"));
        }
        let bucket = url.host_str().unwrap_or_default().to_owned();
        let prefix = url.path().trim_matches('/').to_owned();
        if bucket.len() < 3
            || !is_plain(&bucket, "-.")
            || !is_plain(&prefix, "-._/")
            || prefix.split('/').any(|part| part == "..")
        {
            return Err(refused("its bucket and prefix have letters, digits, '-', '.', '_' and '/' alone"));
        }
        let (mut region, mut endpoint, mut ca, mut is_in_host, mut is_plain_http) =
            ("us-east-1".to_owned(), None, None, false, false);
        for (name, value) in url.query_pairs() {
            match (&*name, &*value) {
                ("region", value) if !value.is_empty() && is_plain(value, "-") => value.clone_into(&mut region),
                ("endpoint", value) => endpoint = Some(value.to_owned()),
                ("ca", value) => ca = Some(value.to_owned()),
                ("style", "path") => is_in_host = false,
                ("style", "host") => is_in_host = true,
                ("tls", "off") => is_plain_http = true,
                (name, _) => return Err(refused(format!("its parameter {name:?} is not known, or has another value"))),
            }
        }
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let endpoint =
            Url::parse(&endpoint).map_err(|error| refused(format!("its endpoint cannot be read: {error}")))?;
        let is_bare = endpoint.path() == "/" && endpoint.query().is_none() && endpoint.username().is_empty();
        let (Some(host), "http" | "https", true) = (endpoint.host_str(), endpoint.scheme(), is_bare) else {
            return Err(refused("its endpoint is not of the form https://HOST:PORT"));
        };
        let port = endpoint.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = if is_in_host { format!("{bucket}.{host}{port}") } else { format!("{host}{port}") };
        let mut client = ClientConfig::new(format!("{}://{host}", endpoint.scheme()));
        client.timeout = TIME;
        if is_plain_http {
            client.plain = PlainHttp::Anywhere;
        }
        if endpoint.scheme() == "https" {
            let path =
                ca.ok_or_else(|| refused("its certificate cannot be checked: add ca=FILE with the authorities"))?;
            let ca_pem = std::fs::read_to_string(&path).map_err(|error| refused(format!("{path}: {error}")))?;
            let files = TlsFiles { ca_pem: &ca_pem, identity: None };
            client.tls = Some(tls_config(&files, provider).map_err(|error| refused(format!("{path}: {error}")))?);
        }
        let base = if is_in_host { String::new() } else { format!("/{bucket}") };
        let prefix = if prefix.is_empty() { prefix } else { format!("{prefix}/") };
        Ok(Self { client, base, host, prefix, region, key })
    }
}

/// Returns whether a text needs no encoding in a path.
fn is_plain(text: &str, others: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric() || others.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BucketSettings, StoreError> {
        let key = BucketKey::new("id".to_owned(), "secret-word".to_owned(), None).unwrap();
        BucketSettings::read(text, key, Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
    }

    #[test]
    fn an_address_names_bucket_prefix_and_server() {
        let found = read("s3://kept/fleet/a/?endpoint=http://127.0.0.1:9000&region=eu-west-1").unwrap();
        assert_eq!((found.client.server.as_str(), found.base.as_str()), ("http://127.0.0.1:9000", "/kept"));
        assert_eq!(
            (found.prefix.as_str(), found.region.as_str(), found.host.as_str()),
            ("fleet/a/", "eu-west-1", "127.0.0.1:9000")
        );
        let found = read("s3://kept?endpoint=http://s3.localhost:9000&style=host&tls=off").unwrap();
        assert_eq!(
            (found.host.as_str(), found.base.as_str(), found.prefix.as_str()),
            ("kept.s3.localhost:9000", "", "")
        );
        assert!(!format!("{found:?}").contains("secret-word"));
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused() {
        for bad in [
            "kept",
            "http://kept",
            "s3://",
            "s3://ab",
            "s3://user@kept",
            "s3://kept:1",
            "s3://kept/a%20b",
            "s3://kept/a/../b?endpoint=http://x&other=1",
            "s3://kept?region=",
            "s3://kept?region=a/b",
            "s3://kept?style=other",
            "s3://kept?tls=on",
            "s3://kept?endpoint=x",
            "s3://kept?endpoint=ftp://x",
            "s3://kept?endpoint=http://x/path",
            "s3://kept?endpoint=https://x",
            "s3://kept",
            "s3://kept?endpoint=https://x&ca=/nowhere",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_of_keys_is_read() {
        let text = "# written by a tool\n[default]\naws_access_key_id = A\n aws_secret_access_key=b/c+d=\nregion = x\n[other]\naws_access_key_id = Z\n";
        let key = BucketKey::read(text).unwrap();
        assert_eq!((key.id.as_str(), key.secret.as_str(), &key.session), ("A", "b/c+d=", &None));
        let whole = format!("aws_session_token = t\n{text}");
        assert_eq!(BucketKey::read(&whole).unwrap().session.as_deref(), Some("t"));
        for bad in [
            "",
            "aws_access_key_id = A",
            "aws_access_key_id = A\naws_secret_access_key =",
            "aws_access_key_id = A/b\naws_secret_access_key = c",
            "aws_access_key_id = A\naws_secret_access_key = c d",
        ] {
            assert!(BucketKey::read(bad).is_err(), "{bad:?}");
        }
    }
}
