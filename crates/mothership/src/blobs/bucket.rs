//! Kept files in a bucket of S3: `PREFIX/ACCOUNT/ID/PART`. A control plane can die between any two requests: objects are whole or not
//! there, and a request is repeated with the same outcome.

use super::id::{BlobId, MAX_LISTED};
use super::listing::{self, Listing};
use super::parts::{Part, pieces};
use super::settings::BucketSettings;
use super::signature::{self, Unsigned};
use crate::store::StoreError;
use nexus_api::client::{ClientError, Http, Reply};
use nexus_api::routes::Method;
use nexus_api::time::Timestamp;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Object with the id of the bucket.
const ID: &str = "id";
/// Tries of a request, at most.
const TRIES: u32 = 4;
/// Time to the second try; each later one takes twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Bytes that are hashed at a time.
const HASHED: u64 = 4 << 20;
/// Names that a server gives at a time.
const PAGE: &str = "1000";
/// Files whose parts are remembered, at most.
const MAX_KNOWN: usize = 1000;

/// Keeps files in a bucket of S3.
pub struct Bucket {
    http: Http,
    settings: BucketSettings,
    /// Parts of files that were read. They are never changed: what is missing here is looked up again.
    known: Mutex<HashMap<BlobId, Vec<Part>>>,
    /// Key after which the next look for old files begins.
    looked_to: Mutex<String>,
    /// Files that a call writes now.
    written: Arc<Mutex<BTreeSet<BlobId>>>,
}

/// The turn of a call to write a file.
pub struct BucketTurn {
    written: Arc<Mutex<BTreeSet<BlobId>>>,
    blob: BlobId,
}

impl Drop for BucketTurn {
    fn drop(&mut self) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.blob);
    }
}

fn failed(why: impl Into<String>) -> StoreError {
    StoreError::Blobs { why: why.into() }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Bucket {
    /// Opens a bucket. No connection is made yet.
    pub fn open(settings: &BucketSettings) -> Result<Self, StoreError> {
        let http = Http::new(settings.client.clone()).map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            http,
            settings: settings.clone(),
            known: Mutex::default(),
            looked_to: Mutex::default(),
            written: Arc::default(),
        })
    }

    /// Takes the turn to write a file in this server; `None` while another call has it.
    pub fn turn(&self, blob: BlobId) -> Option<BucketTurn> {
        let is_free = self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(blob);
        is_free.then(|| BucketTurn { written: Arc::clone(&self.written), blob })
    }

    /// The place of the files as people read it.
    pub fn place(&self) -> String {
        format!("{}{}/{}", self.http.server(), self.settings.base, self.settings.prefix)
    }

    /// Returns the id of the bucket, which is made at the first call.
    pub async fn id(&self) -> Result<[u8; 16], StoreError> {
        let key = format!("{}{ID}", self.settings.prefix);
        let mut found = self.get(&key, None).await?;
        if found.is_none() {
            let id = Uuid::now_v7().to_string();
            // Of two servers that start together one writes; a server that does not know the header lets the later one win, and the
            // database then knows the id of one of them alone.
            let only_new = [("if-none-match", "*".to_owned())];
            let reply = self.send(Method::Put, &key, &[], &only_new, id.into_bytes()).await?;
            if !matches!(reply.status, 200 | 409 | 412) {
                return Err(refusal(&reply));
            }
            found = self.get(&key, None).await?;
        }
        let id =
            found.and_then(|bytes| String::from_utf8(bytes).ok()).and_then(|text| text.trim().parse::<Uuid>().ok());
        id.map(Uuid::into_bytes).ok_or_else(|| failed(format!("the object {key} holds no id")))
    }

    /// Writes bytes at a place of a file. Nothing else of the file is touched: a write may be very late, when its sender has sent the
    /// same bytes again and the file is whole.
    pub async fn write(&self, blob: BlobId, offset: u64, bytes: Vec<u8>) -> Result<(), StoreError> {
        let part = Part { offset, length: bytes.len() as u64 };
        let reply = self.send(Method::Put, &self.key(blob, part), &[], &[], bytes).await?;
        if reply.status != 200 {
            return Err(refusal(&reply));
        }
        self.forget(blob);
        Ok(())
    }

    /// Reads a piece of a file.
    pub async fn read(&self, blob: BlobId, offset: u64, length: u64) -> Result<Vec<u8>, StoreError> {
        let read = self.inspect(blob, offset, length).await?;
        read.ok_or_else(|| StoreError::corrupt("a kept file whose bytes are not in the bucket"))
    }

    /// Reads a piece of a file; `None` where bytes are missing.
    async fn inspect(&self, blob: BlobId, offset: u64, length: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&blob).cloned();
        if let Some(parts) = known
            && let Some(bytes) = self.read_parts(blob, &parts, offset, length).await?
        {
            return Ok(Some(bytes));
        }
        // Another server wrote more meanwhile, or this is the first look.
        let parts = self.list_parts(blob).await?;
        let read = self.read_parts(blob, &parts, offset, length).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(blob, parts);
        Ok(read)
    }

    /// Returns the BLAKE3 hash of the first `size` bytes of a file, in hexadecimal; no digits where bytes are missing.
    pub async fn hash(&self, blob: BlobId, size: u64) -> Result<String, StoreError> {
        let (mut hash, mut at) = (blake3::Hasher::new(), 0);
        while at < size {
            let most = HASHED.min(size - at);
            let Some(bytes) = self.inspect(blob, at, most).await? else { return Ok(String::new()) };
            hash.update(&bytes);
            at += most;
        }
        Ok(hash.finalize().to_hex().to_string())
    }

    /// Lists files whose last part was written so long ago. Each look goes on where the one before ended: one alone sees the first
    /// names only.
    pub async fn older_than(&self, age: Duration) -> Result<Vec<BlobId>, StoreError> {
        let before = now().saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let mut after = self.looked_to.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut files, mut looked): (Vec<(BlobId, bool)>, usize) = (Vec::new(), 0);
        loop {
            let page = self.list(&self.settings.prefix, &after).await?;
            looked += page.objects.len();
            for object in &page.objects {
                let Some((blob, _)) = self.parse(&object.key) else { continue };
                let is_old = object.modified <= before;
                match files.last_mut().filter(|(last, _)| *last == blob) {
                    Some((_, all_old)) => *all_old &= is_old,
                    None => files.push((blob, is_old)),
                }
            }
            after = page.objects.last().map(|last| last.key.clone()).unwrap_or_default();
            if !page.is_truncated || after.is_empty() {
                after.clear();
                break;
            }
            if looked >= MAX_LISTED {
                // The last file may have more parts behind this page: it is looked at again.
                if let Some((last, _)) = files.pop() {
                    after = format!("{}{}", self.settings.prefix, directory(last));
                }
                break;
            }
        }
        *self.looked_to.lock().unwrap_or_else(PoisonError::into_inner) = after;
        Ok(files.into_iter().filter(|(_, is_old)| *is_old).map(|(blob, _)| blob).collect())
    }

    /// Removes a file; a missing one is fine.
    pub async fn remove(&self, blob: BlobId) -> Result<(), StoreError> {
        self.forget(blob);
        for part in self.list_parts(blob).await? {
            self.delete(&self.key(blob, part)).await?;
        }
        Ok(())
    }

    /// Reads a range from these parts; `None` when a byte or an object is missing.
    async fn read_parts(
        &self,
        blob: BlobId,
        parts: &[Part],
        offset: u64,
        length: u64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(pieces) = pieces(parts, offset, length) else { return Ok(None) };
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        for piece in pieces {
            let range = Some((piece.from, piece.length));
            match self.get(&self.key(blob, piece.part), range).await? {
                Some(read) if read.len() as u64 == piece.length => bytes.extend(read),
                Some(_) => return Err(failed("an object has another length than its name says")),
                None => return Ok(None),
            }
        }
        Ok(Some(bytes))
    }

    async fn list_parts(&self, blob: BlobId) -> Result<Vec<Part>, StoreError> {
        let (prefix, mut after) = (format!("{}{}", self.settings.prefix, directory(blob)), String::new());
        let mut parts = Vec::new();
        loop {
            let page = self.list(&prefix, &after).await?;
            parts.extend(page.objects.iter().filter_map(|object| Part::parse(object.key.strip_prefix(&prefix)?)));
            match page.objects.last() {
                Some(last) if page.is_truncated => last.key.clone_into(&mut after),
                _ => return Ok(parts),
            }
        }
    }

    async fn list(&self, prefix: &str, after: &str) -> Result<Listing, StoreError> {
        let mut query = vec![("list-type", "2"), ("max-keys", PAGE), ("prefix", prefix)];
        if !after.is_empty() {
            query.push(("start-after", after));
        }
        let reply = self.send(Method::Get, "", &query, &[], Vec::new()).await?;
        match reply.status {
            200 => listing::read(&reply.body).ok_or_else(|| failed("the list of objects cannot be read")),
            _ => Err(refusal(&reply)),
        }
    }

    /// Reads an object, or so many bytes of it from a place on; `None` when it is not there.
    async fn get(&self, key: &str, range: Option<(u64, u64)>) -> Result<Option<Vec<u8>>, StoreError> {
        let last = |(from, length): (u64, u64)| from.saturating_add(length).saturating_sub(1);
        let header = range.map(|range| ("range", format!("bytes={}-{}", range.0, last(range))));
        let reply = self.send(Method::Get, key, &[], header.as_slice(), Vec::new()).await?;
        match reply.status {
            200 | 206 => Ok(Some(reply.body.to_vec())),
            404 if listing::refusal(&reply.body).as_deref() != Some("NoSuchBucket") => Ok(None),
            _ => Err(refusal(&reply)),
        }
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let reply = self.send(Method::Delete, key, &[], &[], Vec::new()).await?;
        if matches!(reply.status, 200 | 204 | 404) { Ok(()) } else { Err(refusal(&reply)) }
    }

    /// Sends a request, and again where no answer came or the server is busy: each request has the same outcome however often it is sent.
    async fn send(
        &self,
        method: Method,
        key: &str,
        query: &[(&str, &str)],
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Result<Reply, StoreError> {
        let settings = &self.settings;
        let path = format!("{}/{key}", settings.base);
        let target = if query.is_empty() { path.clone() } else { format!("{path}?{}", signature::query(query)) };
        let (mut tries, mut wait) = (1, FIRST_WAIT);
        loop {
            let unsigned =
                Unsigned { method: method.name(), host: &settings.host, path: &path, query, headers, body: &body };
            // Signed again: a signature holds for some minutes.
            let signed = signature::sign(&unsigned, &settings.key, &settings.region, &stamp(now()));
            let answer = self.http.exchange(method, &target, &signed, body.clone()).await;
            match answer {
                Ok(reply) if tries == TRIES || !matches!(reply.status, 429 | 500 | 502 | 503 | 504) => {
                    return Ok(reply);
                }
                Err(error) if tries == TRIES || !is_passing(&error) => return Err(failed(error.to_string())),
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(wait).await;
            (tries, wait) = (tries + 1, wait * 2);
        }
    }

    fn key(&self, blob: BlobId, part: Part) -> String {
        format!("{}{}{}", self.settings.prefix, directory(blob), part.name())
    }

    fn parse(&self, key: &str) -> Option<(BlobId, Part)> {
        let mut names = key.strip_prefix(&self.settings.prefix)?.split('/');
        let mut id = || names.next()?.parse::<Uuid>().ok().map(Uuid::into_bytes);
        let blob = BlobId { account: id()?, id: id()? };
        let part = Part::parse(names.next()?)?;
        names.next().is_none().then_some((blob, part))
    }

    fn forget(&self, blob: BlobId) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&blob);
    }
}

/// Begin of the keys of a file's parts, behind the prefix.
fn directory(blob: BlobId) -> String {
    format!("{}/{}/", Uuid::from_bytes(blob.account), Uuid::from_bytes(blob.id))
}

/// Returns a time as `20130524T000000Z`.
fn stamp(ms: i64) -> String {
    let text: String = Timestamp(ms).to_string().chars().filter(|letter| !matches!(letter, '-' | ':')).collect();
    text.split('.').next().map(|seconds| format!("{seconds}Z")).unwrap_or_default()
}

/// Returns whether another try may have an answer.
fn is_passing(error: &ClientError) -> bool {
    matches!(error, ClientError::Connect { .. } | ClientError::Timeout { .. } | ClientError::Broken { .. })
}

fn refusal(reply: &Reply) -> StoreError {
    let name = listing::refusal(&reply.body).map(|name| format!(", {name}")).unwrap_or_default();
    if reply.status == 507 {
        return StoreError::Full;
    }
    failed(format!("the bucket answered {}{name}", reply.status))
}

#[cfg(test)]
#[path = "bucket_tests.rs"]
mod tests;
