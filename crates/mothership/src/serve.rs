//! Starts and stops a server.

use crate::app::{App, Shared};
use crate::blobs::Blobs;
use crate::config::{Config, TerritoryAuth};
use crate::console::with_console;
use crate::decide::Windows;
use crate::http::{CONSOLE_HOST, router};
use crate::identity::{Authorities, AuthorityError, HeadKey, Secret, Texts, TokenKey};
use crate::listen::{Listener, accept};
use crate::lobby::Lobby;
use crate::metrics::Metrics;
use crate::rights::Rights;
use crate::store::postgres::Hints;
use crate::store::types::Secrets;
use crate::store::{Store, StoreError};
use crate::tls::{LiveTls, TlsIdentity};
use crate::{rotation, tasks, tidy};
use nexus_api::tls::TlsError;
use std::future::Future;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, RwLock};
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::JoinHandle;

/// Reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The settings name no address to listen on.
    #[error("the server has no address to listen on")]
    NoListener,
    /// The address of a listener cannot be read.
    #[error("the address of a listener cannot be read: {0}")]
    Address(std::io::Error),
    /// The development header would be open to others.
    #[error("the development header cannot identify territories on {address}, which other machines can reach")]
    HeaderNotLocal {
        /// Address of the listener.
        address: SocketAddr,
    },
    /// Client certificates need TLS.
    #[error("territory_auth mtls needs a listener with TLS; {address} has none")]
    MtlsWithoutTls {
        /// Address of the listener.
        address: SocketAddr,
    },
    /// A proxy cannot be distinguished from the users of this machine.
    #[error("every user of this machine can connect from {address}, the address of a trusted proxy: it needs a secret")]
    ProxyWithoutSecret {
        /// Address of the proxy.
        address: IpAddr,
    },
    /// The database names kept files that are not in this place.
    #[error("{place} is not the place of kept files that the servers of this database share")]
    OtherFiles {
        /// The directory or the bucket of this server.
        place: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The certificate of a listener cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The authority of territories cannot be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

impl ServeError {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoListener => "no_listener",
            Self::Address(_) => "listener_address",
            Self::HeaderNotLocal { .. } => "header_not_local",
            Self::MtlsWithoutTls { .. } => "mtls_without_tls",
            Self::ProxyWithoutSecret { .. } => "proxy_secret",
            Self::OtherFiles { .. } => "other_files",
            Self::Store(error) => error.code(),
            Self::Tls(_) => "listener_certificate",
            Self::Authority(_) => "authority_failed",
        }
    }
}

/// A server that runs.
pub struct Running {
    /// Address under which users reach the API.
    pub api_url: String,
    /// Address of the console.
    pub console_url: String,
    /// Key of the first account's owner. It is there only when the store was made, and is stored nowhere.
    pub first_key: Option<String>,
    /// Addresses of the listeners.
    pub addresses: Vec<SocketAddr>,
    /// Certificate of the authority that signs territories.
    pub ca_bundle_pem: String,
    stop: watch::Sender<bool>,
    tidy: Arc<Notify>,
    tls: Vec<Arc<LiveTls>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// Lets the tasks that remove and compact run now.
    pub fn tidy(&self) {
        self.tidy.notify_one();
    }

    /// Replaces the certificate of every listener with TLS. Connections that are open keep theirs. After an error every
    /// listener has the certificate that it had.
    pub fn replace_certificate(&self, identity: &TlsIdentity) -> Result<(), TlsError> {
        let made = self.tls.iter().map(|tls| tls.prepare(identity)).collect::<Result<Vec<_>, _>>()?;
        for (tls, config) in self.tls.iter().zip(made) {
            tls.set(config);
        }
        Ok(())
    }

    /// Asks the server to stop: polls are answered, streams end, open requests have the time of the settings.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the server has stopped.
    pub async fn stopped(self) {
        for task in self.tasks {
            // A task that failed has nothing more to do.
            drop(task.await);
        }
    }
}

/// Starts a server on listeners that the caller made. It stops when `shutdown` ends, or by [`Running::stop`].
pub async fn serve(
    config: Config,
    listeners: Vec<Listener>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<Running, ServeError> {
    let addresses = check(&config, &listeners)?;
    let now = config.clock.wall();
    let blobs = Blobs::open(&config.data_dir.join("blobs"), config.bucket.as_ref())?;
    let (store, secrets, hints) = open(&config, &blobs, now).await?;
    // Read before a listener takes a sign of life, which has the time of a clock that may be wrong.
    let last_seen = store.last_seen().await?;
    let first = Secret::make("nxk_")?;
    let is_first = store.first_account(first.hash, now).await?;
    let authorities = Authorities::load(Texts { certificates: secrets.ca_cert, keys: secrets.ca_key })?;
    let heads = HeadKey::derive(&secrets.token_key).map_err(|error| StoreError::Secret { why: error.to_string() })?;
    let (stop, stopping) = watch::channel(false);
    let is_public = config.public_url.is_some();
    let api_url = config.public_url.clone().unwrap_or_else(|| url_of(&listeners, &addresses));
    let app: Shared = Arc::new(App {
        tokens: TokenKey::new(&secrets.token_key),
        heads: Arc::new(heads),
        cursors: secrets.token_key,
        lobby: Lobby::default(),
        changes: broadcast::channel(1024).0,
        empty_polls: Mutex::new(Windows::new(config.empty_polls_per_minute)),
        beats: Mutex::new(Windows::new(config.heartbeats_per_minute)),
        metrics: Metrics::default(),
        streams: Arc::default(),
        tidy: Arc::default(),
        loopback: addresses.iter().all(|address| address.ip().is_loopback()),
        fullness: crate::decide::Fullness::default(),
        stopping,
        authorities: RwLock::new(Arc::new(authorities)),
        rights: Rights::default(),
        store,
        blobs,
        policies: Arc::new(crate::decide::Policies::new(config.policies.clone())),
        config,
    });
    let ca_bundle_pem = app.authorities().bundle().to_owned();
    let (router, tidy) = (with_console(&app, router(&app)), Arc::clone(&app.tidy));
    let mut running =
        vec![tokio::spawn(tasks::reaper(app.clone(), is_first)), tokio::spawn(tidy::run(app.clone(), last_seen))];
    running.extend(hints.map(|hints| tokio::spawn(tasks::receive(app.clone(), hints))));
    let mut certificates = Vec::new();
    for listener in listeners {
        let tls = listener.tls.as_ref().map(|identity| LiveTls::new(identity, &ca_bundle_pem)).transpose()?;
        let tls = tls.map(Arc::new);
        certificates.extend(tls.clone());
        running.push(tokio::spawn(accept(listener.tcp, tls, router.clone(), app.clone())));
    }
    running.push(tokio::spawn(rotation::keep(app.clone(), certificates.clone(), last_seen)));
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown => { asked.send_replace(true); }
            () = asked.closed() => {}
        }
    });
    let first_key = is_first.then_some(first.text);
    let console_url = if is_public { format!("{api_url}/") } else { console_of(&api_url, &addresses) };
    Ok(Running {
        api_url,
        console_url,
        first_key,
        addresses,
        ca_bundle_pem,
        stop,
        tidy,
        tls: certificates,
        tasks: running,
    })
}

async fn open(config: &Config, blobs: &Blobs, now: i64) -> Result<(Store, Secrets, Option<Hints>), ServeError> {
    let Some(database) = &config.database else {
        if config.bucket.is_some() {
            // A bucket that cannot be used is refused at the start, and not when the first file is kept.
            blobs.id().await?;
        }
        let (store, secrets) = Store::open_sqlite(&config.data_dir, now)?;
        return Ok((store, secrets, None));
    };
    let (store, secrets, hints) = Store::open_postgres(database.clone(), now).await?;
    let id = blobs.id().await?;
    if let Some(shared) = store.shared()
        && shared.blobs_id(id).await? != id
    {
        return Err(ServeError::OtherFiles { place: blobs.place() });
    }
    Ok((store, secrets, Some(hints)))
}

fn check(config: &Config, listeners: &[Listener]) -> Result<Vec<SocketAddr>, ServeError> {
    if let TerritoryAuth::Proxy { trusted, secret: None } = &config.territory_auth
        && let Some(address) = trusted.iter().find(|address| is_here(address.to_canonical()))
    {
        return Err(ServeError::ProxyWithoutSecret { address: *address });
    }
    let mut addresses = Vec::new();
    for listener in listeners {
        let address = listener.tcp.local_addr().map_err(ServeError::Address)?;
        match &config.territory_auth {
            TerritoryAuth::Header if !address.ip().is_loopback() && !config.insecure_dev_auth => {
                return Err(ServeError::HeaderNotLocal { address });
            }
            TerritoryAuth::Mtls if listener.tls.is_none() && !address.ip().is_loopback() => {
                return Err(ServeError::MtlsWithoutTls { address });
            }
            _ => addresses.push(address),
        }
    }
    if addresses.is_empty() { Err(ServeError::NoListener) } else { Ok(addresses) }
}

/// Returns whether the users of this machine can connect from an address. What the kernel cannot say counts as such.
fn is_here(address: IpAddr) -> bool {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::AddrNotAvailable,
    }
}

/// On loopback the console has a name of its own: the cookies of other servers of this machine do not reach it.
fn console_of(api_url: &str, addresses: &[SocketAddr]) -> String {
    match addresses.first() {
        // A certificate names what the operator wrote into it.
        Some(address) if address.ip().is_loopback() && api_url.starts_with("http://") => {
            format!("http://{CONSOLE_HOST}:{}/", address.port())
        }
        _ => format!("{api_url}/"),
    }
}

fn url_of(listeners: &[Listener], addresses: &[SocketAddr]) -> String {
    let scheme = if listeners.first().is_some_and(|listener| listener.tls.is_some()) { "https" } else { "http" };
    addresses.first().map(|address| format!("{scheme}://{address}")).unwrap_or_default()
}
