//! Settings of a server.

use crate::blobs::BucketSettings;
use crate::clock::Clock;
use crate::identity::{ProcessSecret, ProxySecret};
use crate::store::postgres::Database;
use crate::store::types::{ArtifactBounds, LeaseTimes, Retention};
use nexus_policy::document::PolicySet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

const DAY_MS: i64 = 86_400_000;

/// Proof of identity that daemons bring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerritoryAuth {
    /// The client certificate of the TLS connection.
    Mtls,
    /// The fingerprint of the client certificate, which one of these proxies writes into a header.
    Proxy {
        /// Addresses of the proxies.
        trusted: Vec<IpAddr>,
        /// Secret that the proxies show; required when one of them has an address of this machine.
        secret: Option<ProxySecret>,
    },
    /// The id of the territory in a header, for development: refused unless the server listens on loopback alone.
    Header,
    /// The id of the territory in a header beside a secret that only this process has: for a daemon in the same process.
    Process(ProcessSecret),
}

/// Settings of a server. Nothing is read from the environment.
#[derive(Clone)]
pub struct Config {
    /// Directory of the database, and of kept files.
    pub data_dir: PathBuf,
    /// A PostgreSQL database in the place of the one in the directory. Servers that share it share the directory too.
    pub database: Option<Database>,
    /// A bucket of S3 for kept files, in the place of the directory.
    pub bucket: Option<BucketSettings>,
    /// Proof of identity that daemons bring.
    pub territory_auth: TerritoryAuth,
    /// The operator accepts [`TerritoryAuth::Header`] on an address that others can reach.
    pub insecure_dev_auth: bool,
    /// Times of leases.
    pub times: LeaseTimes,
    /// Interval of polls that the server proposes, in seconds.
    pub poll_interval_seconds: u32,
    /// Interval of heartbeats that the server proposes, in seconds.
    pub heartbeat_interval_seconds: u32,
    /// Life of a directive token, in milliseconds. It is at least the life of a lease.
    pub token_ms: i64,
    /// Life of the certificate of a territory. A daemon renews it when a third is left.
    pub certificate_life: Duration,
    /// Enrolments that one address may try in an hour.
    pub enroll_per_hour: u32,
    /// Empty polls of a territory in a minute.
    pub empty_polls_per_minute: u32,
    /// Heartbeats of a directive in a minute.
    pub heartbeats_per_minute: u32,
    /// Bounds of the kept files of one directive.
    pub artifacts: ArtifactBounds,
    /// Times after which output and other things are removed.
    pub retention: Retention,
    /// Interval of the tasks that remove and compact.
    pub tidy_every: Duration,
    /// Interval of the task that takes back what has passed.
    pub reap_every: Duration,
    /// Interval in which the server writes a signed head into each audit chain that has grown.
    pub head_every: Duration,
    /// Time that open requests have when the server stops.
    pub drain: Duration,
    /// Time after which a connection is cut whose client takes nothing of what waits for it.
    pub stall: Duration,
    /// Event streams that one API key may have open.
    pub streams_per_key: u32,
    /// Interval of the comment that keeps a silent event stream open.
    pub keep_alive: Duration,
    /// Version of the program, for daemons and `--version`.
    pub version: String,
    /// Address under which users reach the server, when it is not the address of the listener.
    pub public_url: Option<String>,
    /// Time within which an approval is answered and used, in milliseconds.
    pub approval_ms: i64,
    /// Policy documents for every directive.
    pub policies: PolicySet,
    /// Clocks of the server.
    pub clock: Clock,
}

impl Config {
    /// Returns the usual settings for a directory.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            database: None,
            bucket: None,
            territory_auth: TerritoryAuth::Mtls,
            insecure_dev_auth: false,
            times: LeaseTimes { ttl_ms: 60_000, start_ms: 8_000, offline_ms: 90_000, prepare_ms: 600_000 },
            poll_interval_seconds: 2,
            heartbeat_interval_seconds: 5,
            token_ms: 600_000,
            certificate_life: Duration::from_secs(90 * 86_400),
            enroll_per_hour: 10,
            empty_polls_per_minute: 60,
            heartbeats_per_minute: 30,
            artifacts: ArtifactBounds { files: 1000, bytes: 1 << 30 },
            retention: Retention { log_ms: 30 * DAY_MS, audit_ms: 90 * DAY_MS, batch: 200 },
            tidy_every: Duration::from_secs(300),
            reap_every: Duration::from_secs(1),
            head_every: Duration::from_secs(3600),
            drain: Duration::from_secs(20),
            stall: Duration::from_secs(30),
            streams_per_key: 64,
            keep_alive: Duration::from_secs(15),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            public_url: None,
            approval_ms: DAY_MS,
            policies: PolicySet::default(),
            clock: Clock::system(),
        }
    }

    /// Life of a lease in whole seconds.
    #[must_use]
    pub fn lease_seconds(&self) -> u32 {
        (self.times.ttl_ms / 1000).clamp(1, i64::from(u32::MAX)) as u32
    }
}
