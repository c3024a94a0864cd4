//! A server in this process, on a port that the kernel chooses, with a clock that the test moves. Its database is SQLite, and
//! PostgreSQL in the test programs whose name says so.

#![allow(dead_code, reason = "each test uses a part")]

pub mod browser;
pub mod bucket;
pub mod cluster;

use nexus_api::client::{ClientConfig, ConduitsClient, Http, MothershipClient, TerritoryIdentity};
use nexus_api::conduits::{EnrollRequest, FinishedRequest, TerritoryHeartbeatRequest};
use nexus_api::mothership::{CreateDirective, CreateEnrollmentToken, CreateFacility, Directive, FacilityKind};
use nexus_model::directive::FinishStatus;
use nexus_model::ids::{DirectiveId, FacilityId, TerritoryId};
use nexus_mothership::{Clock, Config, Database, Listener, Running, TerritoryAuth, serve};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;

/// The tests of this program are about PostgreSQL.
fn is_postgres() -> bool {
    env!("CARGO_CRATE_NAME").contains("postgres")
}

/// The tests of this program are about kept files in a bucket, where a server of S3 can be had.
fn shared_bucket() -> Option<&'static bucket::S3> {
    if env!("CARGO_CRATE_NAME").contains("bucket") { bucket::shared() } else { None }
}

pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

pub struct Server {
    pub directory: TempDir,
    /// Name of its database, where that is not in the directory.
    pub database: Option<String>,
    pub key: String,
    pub url: String,
    running: Running,
    shift: Arc<AtomicI64>,
    wall_shift: Arc<AtomicI64>,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts it with settings that the caller changes.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let directory = TempDir::new().unwrap();
        let (shift, wall_shift) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
        let database = is_postgres().then(|| cluster::shared().database());
        let running = run(directory.path().join("data"), database.as_deref(), [&shift, &wall_shift], change).await;
        let key = running.first_key.clone().unwrap();
        Self { directory, database, key, url: running.api_url.clone(), running, shift, wall_shift }
    }

    /// Starts another server on the same database and the same directory.
    pub async fn replica(&self) -> Running {
        let running =
            run(self.directory.path().join("data"), self.database.as_deref(), [&self.shift, &self.wall_shift], |_| {})
                .await;
        assert!(running.first_key.is_none(), "the key is shown once");
        running
    }

    /// The begin of its keys in the bucket.
    pub fn prefix(&self) -> String {
        prefix(&self.directory.path().join("data"))
    }

    /// The number of kept files, wherever they are.
    pub fn kept_files(&self) -> usize {
        if let Some(s3) = shared_bucket() {
            let objects = s3.objects(&self.prefix());
            // ACCOUNT/ID/PART below the prefix, and the id of the bucket beside them.
            let files = objects.iter().filter_map(|key| key.rsplit_once('/').map(|(file, _)| file));
            return files.filter(|file| file.contains('/')).collect::<std::collections::BTreeSet<_>>().len();
        }
        let accounts = std::fs::read_dir(self.directory.path().join("data/blobs")).unwrap();
        let accounts = accounts.map(|account| account.unwrap().path()).filter(|path| path.is_dir());
        accounts.map(|account| std::fs::read_dir(account).unwrap().count()).sum()
    }

    /// Asks the database for a number.
    pub fn number(&self, question: &str) -> i64 {
        match &self.database {
            Some(name) => cluster::shared().sql(name, question).parse().unwrap(),
            None => self.sqlite().query_row(question, [], |row| row.get(0)).unwrap(),
        }
    }

    /// Changes the database. Bytes are written as `{0a0b}`.
    pub fn change(&self, text: &str) {
        match &self.database {
            Some(name) => drop(cluster::shared().sql(name, &text.replace('{', "'\\x").replace('}', "'"))),
            None => self.sqlite().execute_batch(&text.replace('{', "x'").replace('}', "'")).unwrap(),
        }
    }

    fn sqlite(&self) -> rusqlite::Connection {
        let db = rusqlite::Connection::open(self.directory.path().join("data/mothership.db")).unwrap();
        db.busy_timeout(Duration::from_secs(5)).unwrap();
        db
    }

    pub async fn restart(self) -> Self {
        self.restart_after(|_| {}).await
    }

    /// Stops the server, lets the caller change its data directory, and starts it again.
    pub async fn restart_after(self, change: impl FnOnce(&std::path::Path)) -> Self {
        self.running.stop();
        self.running.stopped().await;
        change(&self.directory.path().join("data"));
        let running =
            run(self.directory.path().join("data"), self.database.as_deref(), [&self.shift, &self.wall_shift], |_| {})
                .await;
        assert!(running.first_key.is_none(), "the key is shown once");
        Self { url: running.api_url.clone(), running, ..self }
    }

    /// Stops the server, lets time pass, and starts it again.
    pub async fn restart_after_an_outage(self, ms: i64) -> Self {
        let shift = Arc::clone(&self.shift);
        self.restart_after(|_| {
            shift.fetch_add(ms, Ordering::SeqCst);
        })
        .await
    }

    /// Stops the server, moves the wall clock alone, and starts it again.
    pub async fn restart_with_wall_clock(self, ms: i64) -> Self {
        let wall_shift = Arc::clone(&self.wall_shift);
        self.restart_after(|_| {
            wall_shift.fetch_add(ms, Ordering::SeqCst);
        })
        .await
    }

    /// Moves the wall clock alone.
    pub async fn move_wall_clock(&self, ms: i64) {
        self.wall_shift.fetch_add(ms, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }

    /// Sets the wall clock, and does not wait until the server has seen it.
    pub fn set_wall_clock(&self, ms: i64) {
        self.wall_shift.fetch_add(ms, Ordering::SeqCst);
    }

    pub async fn stop(self) {
        self.running.stop();
        tokio::time::timeout(Duration::from_secs(10), self.running.stopped()).await.unwrap();
    }

    /// Stops the server and returns its directory.
    pub async fn stop_and_keep(self) -> TempDir {
        self.running.stop();
        self.running.stopped().await;
        self.directory
    }

    /// Lets the tasks that remove and compact run now.
    pub fn tidy(&self) {
        self.running.tidy();
    }

    /// Moves both clocks, as time does: in steps that are too short to count as an outage.
    pub async fn advance(&self, ms: i64) {
        for _ in 0..ms / 1_000 / 9 {
            self.shift.fetch_add(9_000, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Stops the server, and lets time pass for another one on its database.
    pub async fn stop_then_advance(self, ms: i64) {
        self.running.stop();
        self.running.stopped().await;
        for _ in 0..ms / 1_000 / 9 {
            self.shift.fetch_add(9_000, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Moves both clocks at once: for the server that is an outage, after which it ends no lease for a while.
    pub async fn jump(&self, ms: i64) {
        self.shift.fetch_add(ms, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }

    pub fn http(&self) -> Http {
        Http::new(ClientConfig::new(&self.url)).unwrap()
    }

    pub fn owner(&self) -> MothershipClient {
        MothershipClient::new(&self.http(), &self.key).unwrap()
    }

    pub async fn enroll(&self, name: &str) -> TerritoryId {
        let token = self.owner().create_enrollment_token(&CreateEnrollmentToken::default()).await.unwrap().token;
        let anyone = ConduitsClient::new(&self.http(), &TerritoryIdentity::Certificate).unwrap();
        let request = EnrollRequest { enroll_token: token, name: Some(name.to_owned()), ..EnrollRequest::default() };
        anyone.enroll(&request).await.unwrap().territory_id
    }

    pub fn daemon(&self, id: TerritoryId) -> ConduitsClient {
        ConduitsClient::new(&self.http(), &TerritoryIdentity::Header(id)).unwrap()
    }

    /// A territory with room for five directives, whose daemon names its version of the protocol.
    pub async fn territory(&self, name: &str) -> ConduitsClient {
        let daemon = self.daemon(self.enroll(name).await);
        let beat = serde_json::json!({"protocol_version": 1, "capacity": {"max_concurrent": 5}});
        let beat: TerritoryHeartbeatRequest = serde_json::from_value(beat).unwrap();
        daemon.territory_heartbeat(&beat).await.unwrap();
        daemon
    }

    pub async fn facility(&self) -> FacilityId {
        let new = CreateFacility {
            kind: FacilityKind::Empty,
            name: None,
            repo_url: None,
            territory_id: None,
            retention_policy: None,
        };
        self.owner().create_facility(&new).await.unwrap().facility_id
    }

    pub async fn until_over(&self, id: DirectiveId) -> Directive {
        for _ in 0..200 {
            let seen = self.owner().directive(id).await.unwrap();
            if seen.state.is_terminal() {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the directive did not end");
    }
}

/// Starts a server in a data directory, or says why it does not start.
pub async fn try_run(data: &std::path::Path) -> Result<Running, nexus_mothership::ServeError> {
    let mut config = Config::new(data);
    config.territory_auth = TerritoryAuth::Header;
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve(config, vec![Listener { tcp, tls: None }], std::future::pending()).await
}

/// Each test has a part of the bucket for itself.
fn prefix(data: &std::path::Path) -> String {
    let name = data.parent().unwrap().file_name().unwrap().to_str().unwrap();
    format!("test{}", name.replace('.', "-"))
}

async fn run(
    data: PathBuf,
    database: Option<&str>,
    [shift, wall_shift]: [&Arc<AtomicI64>; 2],
    change: impl FnOnce(&mut Config),
) -> Running {
    let clock = Clock::system();
    let (wall, boot) = (clock.clone(), clock);
    let (for_wall, for_boot, wall_alone) = (Arc::clone(shift), Arc::clone(shift), Arc::clone(wall_shift));
    let prefix = prefix(&data);
    let mut config = Config::new(data);
    config.bucket = shared_bucket().map(|s3| s3.settings(&prefix));
    config.territory_auth = TerritoryAuth::Header;
    config.database = database.map(|name| Database::read(&cluster::shared().url(name), provider()).unwrap());
    config.enroll_per_hour = 1_000;
    config.reap_every = Duration::from_millis(100);
    config.times.prepare_ms = 600_000;
    // Output may come late, after minutes that a test lets pass at once.
    config.token_ms = 3_600_000;
    config.clock = Clock::new(
        Arc::new(move || wall.wall() + for_wall.load(Ordering::SeqCst) + wall_alone.load(Ordering::SeqCst)),
        Arc::new(move || boot.boot() + for_boot.load(Ordering::SeqCst)),
    );
    change(&mut config);
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve(config, vec![Listener { tcp, tls: None }], std::future::pending()).await.unwrap()
}

/// Makes another account in the same store and returns its owner's key.
pub fn other_account(server: &Server) -> String {
    let key = "nxk_another_account";
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.as_bytes());
    let hash = data_encoding::HEXLOWER.encode(hash.as_ref());
    let (account, id) = ("00000000000000000000000000000009", "00000000000000000000000000000008");
    server.change(&format!(
        "INSERT INTO account VALUES ({{{account}}}, 'other', 0);
         INSERT INTO api_key VALUES ({{{id}}}, {{{account}}}, {{{hash}}}, 'owner', NULL, 0);"
    ));
    key.to_owned()
}

pub fn plain(command: &str) -> CreateDirective {
    CreateDirective { command: command.to_owned(), ..CreateDirective::default() }
}

pub fn end(status: FinishStatus) -> FinishedRequest {
    FinishedRequest {
        status,
        exit_code: Some(i64::from(status != FinishStatus::Succeeded)),
        stdout_truncated: false,
        stderr_truncated: false,
        stdout_chunks: None,
        stderr_chunks: None,
        diff_truncated: false,
        diff_base64: None,
        snapshot_before: None,
        snapshot_after: None,
        artifacts_manifest: None,
        finished_at: None,
        reason: None,
        receipt: None,
        timing: None,
    }
}
