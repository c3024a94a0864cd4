//! `nexus mothership serve` and `nexus daemon run`: the two halves of a fleet, apart.

use crate::args::{DaemonAction, DaemonArgs, MothershipAction, MothershipArgs, MoveArgs, PlainArgs, RotateArgs};
use crate::data_dir;
use crate::failure::Failure;
use crate::failures;
use crate::notices::tell;
use crate::print::{print, print_json};
use crate::profiles::caller;
use crate::server::bucket;
use crate::server::database;
use crate::server::tls_files::{Others, TlsPaths, read_own};
use crate::signals::Signals;
use crate::territory::credentials;
use crate::territory::renew::Renewal;
use crate::territory::services::{self, Ground};
use nexus_api::Labels;
use nexus_mothership::{
    Clock, Config as ServerConfig, Listener, ProxySecret, Running, ServeError, StoreError, TerritoryAuth,
};
use nexusd::{Config, ConfigError, HttpSource, Settings, config};
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Opens an address.
pub async fn listen(address: SocketAddr) -> Result<Listener, Failure> {
    let tcp = tokio::net::TcpListener::bind(address).await.map_err(|error| {
        let message = format!("{address} cannot be listened on: {error}");
        Failure::refused("listen", message, "name another port; 0 takes a free one")
    })?;
    Ok(Listener { tcp, tls: None })
}

/// Advises what to do about a server that did not start.
pub fn of_serve(error: &ServeError) -> Failure {
    let hint = match error {
        ServeError::ProxyWithoutSecret { .. } => "Pass --proxy-secret-file FILE, and let the proxy send its content.",
        ServeError::Tls(_) => {
            "Look at the files of --tls-cert and --tls-key: the key belongs to the first certificate."
        }
        ServeError::OtherFiles { .. } => {
            "Give each control plane of the database the same directory, or the same bucket."
        }
        ServeError::Store(StoreError::Moved) => "Name that database with --database or --database-file.",
        ServeError::Store(StoreError::Blobs { .. }) => {
            "Look at the address of --blob-url, at the bucket, and at its key."
        }
        _ => "look at the data directory, the database and the address",
    };
    Failure::refused(error.code(), error.to_string(), hint)
}

/// Serves until a signal ends it. SIGHUP reads certificate and key again.
pub fn mothership(args: &MothershipArgs) -> Result<u8, Failure> {
    let args = match &args.action {
        MothershipAction::Serve(args) => args,
        MothershipAction::Move(args) => return move_database(args),
        MothershipAction::RotateAuthority(args) => return rotate_authority(args),
    };
    let tls = TlsPaths::of(args.tls_cert.as_deref(), args.tls_key.as_deref());
    let is_proxied = !args.trusted_proxy.is_empty();
    if tls.is_none() && !is_proxied && !args.listen.ip().is_loopback() {
        let message = format!("{} can be reached by other machines, and nothing ends TLS there", args.listen);
        let hint =
            "Pass --tls-cert and --tls-key, name a proxy that ends TLS with --trusted-proxy, or listen on loopback.";
        return Err(Failure::usage("listen", message, hint));
    }
    let secret = args.proxy_secret_file.as_deref().map(proxy_secret).transpose()?;
    let identity = tls.as_ref().map(TlsPaths::read).transpose()?;
    let policies = nexus_profiles::policies::load(&caller(), None)?;
    let data_dir = data_dir::open(&args.data_dir)?;
    let database = database::read(&args.database)?;
    let bucket = bucket::read(&args.bucket)?;
    // One connection for each client and each event stream.
    crate::used_up::raise_descriptors();
    let signals = Signals::catch_for_service().map_err(|error| {
        Failure::refused("signals", format!("signals cannot be caught: {error}"), failures::INTERNAL_ADVICE)
    })?;
    let runtime = services::runtime()?;
    let running = runtime.block_on(async {
        let mut config = ServerConfig::new(&data_dir);
        config.territory_auth = match (is_proxied, &tls) {
            (true, _) => TerritoryAuth::Proxy { trusted: args.trusted_proxy.clone(), secret },
            (false, Some(_)) => TerritoryAuth::Mtls,
            (false, None) => TerritoryAuth::Header,
        };
        config.database = database;
        config.bucket = bucket;
        config.policies = policies;
        config.public_url.clone_from(&args.public_url);
        #[cfg(feature = "inject")]
        if let Some(ms) = std::env::var("NEXUS_INJECT_LEASE_MS").ok().and_then(|ms| ms.parse().ok()) {
            // A test stops a daemon for longer than a lease.
            config.times.ttl_ms = ms;
        }
        #[cfg(feature = "inject")]
        if let Some(ms) = std::env::var("NEXUS_INJECT_CERTIFICATE_MS").ok().and_then(|ms| ms.parse().ok()) {
            // A test outlives the certificate of a territory.
            config.certificate_life = std::time::Duration::from_millis(ms);
        }
        env!("CARGO_PKG_VERSION").clone_into(&mut config.version);
        let mut listener = listen(args.listen).await?;
        listener.tls = identity;
        let running = nexus_mothership::serve(config, vec![listener], std::future::pending()).await;
        running.map_err(|error| of_serve(&error))
    })?;
    let mut document = json!({ "api_url": running.api_url, "console_url": running.console_url });
    if let (Some(key), Some(members)) = (&running.first_key, document.as_object_mut()) {
        members.insert("api_key".to_owned(), json!(key));
    }
    if args.json {
        print_json(&document)?;
    } else {
        let text = format!("The control plane is ready: {}\nConsole: {}\n", running.api_url, running.console_url);
        print(text.as_bytes())?;
        if let Some(key) = &running.first_key {
            print(format!("API key of the owner, shown once: {key}\n").as_bytes())?;
        }
    }
    services::wait_for_end_of_service(&signals, || match &tls {
        Some(paths) => reload_certificate(paths, &running),
        None => tell("There is no certificate to read again."),
    })?;
    running.stop();
    runtime.block_on(running.stopped());
    Ok(0)
}

/// Moves the fleet of a directory into PostgreSQL.
fn move_database(args: &MoveArgs) -> Result<u8, Failure> {
    let Some(database) = database::read(&args.database)? else {
        let hint = "pass --database postgres://USER@HOST/NAME, or --database-file FILE";
        return Err(Failure::usage("database", "no database to move to is named", hint));
    };
    let data_dir = data_dir::open(&args.data_dir)?;
    let rows = nexus_mothership::move_to_postgres(&data_dir, &database, Clock::system().wall()).map_err(|error| {
        let hint = "Stop the control plane of the directory first, and name an empty database.";
        Failure::refused(error.code(), error.to_string(), hint)
    })?;
    print(
        format!("{rows} rows are in PostgreSQL. Start the control plane with the same directory and this database.\n")
            .as_bytes(),
    )
}

/// Makes a new authority of territories.
fn rotate_authority(args: &RotateArgs) -> Result<u8, Failure> {
    let database = database::read(&args.database)?;
    let data_dir = data_dir::existing(&args.data_dir)?;
    let rotated = nexus_mothership::rotate_authority(&data_dir, database.as_ref(), Clock::system().wall());
    rotated.map_err(|error| {
        let hint = "Look at the data directory and the database; too many authorities become fewer with time.";
        Failure::refused(error.code(), error.to_string(), hint)
    })?;
    print(
        b"The new authority signs in half a minute. Daemons get its certificates when they renew theirs; the authority before is trusted \
until the last certificate of it is over.\n",
    )
}

/// Reads certificate and key again. Files that cannot be used change nothing: the server goes on with those that it has.
fn reload_certificate(paths: &TlsPaths, running: &Running) {
    let replaced = paths.read().map_err(|failure| failure.text()).and_then(|identity| {
        running.replace_certificate(&identity).map_err(|error| format!("{}: {error}.", paths.certificate.display()))
    });
    match replaced {
        Ok(()) => tell("The certificate was read again."),
        Err(why) => tell(&format!("The certificate stays as it was. {why}")),
    }
}

/// Reads the secret of a proxy from a file that other users can neither read nor change.
fn proxy_secret(path: &Path) -> Result<ProxySecret, Failure> {
    let refused = |why: String| {
        let message = format!("the proxy's secret in {} cannot be used: {why}", path.display());
        Failure::usage("proxy_secret", message, "write 32 random letters into a file of your own with mode 600")
    };
    let text = read_own(path, Others::Nothing).map_err(refused)?;
    ProxySecret::read(text.trim()).ok_or_else(|| refused("it is not one line of 32 to 256 letters".to_owned()))
}

/// Runs directives until a signal ends it, or checks a file of settings.
pub fn daemon(args: &DaemonArgs) -> Result<u8, Failure> {
    match &args.action {
        DaemonAction::Run { data_dir, max_concurrent, label, plain, config, json } => {
            let file = config.clone().unwrap_or_else(|| data_dir.join(config::FILE));
            let flags = Flags { max_concurrent: *max_concurrent, labels: label };
            let place = Place { data_dir, file: &file, is_named: config.is_some(), plain };
            run_daemon(&place, &flags, *json)
        }
        DaemonAction::Check { config } => check(config),
    }
}

/// Settings on the command line, which win over those of the file.
struct Flags<'a> {
    max_concurrent: Option<u32>,
    labels: &'a [String],
}

impl Flags<'_> {
    fn over(&self, config: &Config, file: &Path) -> Result<Settings, Failure> {
        let why = |why| of_config(&ConfigError::Text { path: file.to_owned(), why });
        let mut settings = config.settings(Settings::here(env!("CARGO_PKG_VERSION"))).map_err(why)?;
        settings.max_concurrent = self.max_concurrent.unwrap_or(settings.max_concurrent);
        settings.labels.0.extend(labels(self.labels)?.0);
        Ok(settings)
    }
}

fn of_config(error: &ConfigError) -> Failure {
    Failure::usage(error.code(), error.to_string(), "nexus daemon check FILE shows what a daemon would read")
}

/// Reads the file. One that was named has to be there.
fn read(file: &Path, is_named: bool) -> Result<Config, Failure> {
    match Config::read(file).map_err(|error| of_config(&error))? {
        Some(config) => Ok(config),
        None if is_named => {
            let message = format!("{} is not there", file.display());
            Err(Failure::usage("daemon_config", message, "name another file"))
        }
        None => Ok(Config::default()),
    }
}

/// The data directory and the settings of a daemon, and its trust in its server.
struct Place<'a> {
    data_dir: &'a Path,
    /// The file of settings.
    file: &'a Path,
    /// Set when the caller named that file.
    is_named: bool,
    plain: &'a PlainArgs,
}

fn run_daemon(place: &Place<'_>, flags: &Flags<'_>, json: bool) -> Result<u8, Failure> {
    let Place { data_dir, file, is_named, plain } = *place;
    let at_start = read(file, is_named)?;
    let settings = flags.over(&at_start, file)?;
    let ground = Ground::prepare(at_start.networks(), true)?;
    let territory = services::territory(data_dir)?;
    let Some(identity) = territory.identity().map_err(|error| services::of_territory(&error))? else {
        let message = format!("{} has not joined a fleet", data_dir.display());
        return Err(Failure::refused("identity", message, "Use nexus territory join first."));
    };
    let runtime = services::runtime()?;
    let client = credentials::client(territory.path(), &identity, plain.rule())?;
    let source = Arc::new(HttpSource::new(client, runtime.handle().clone()));
    let renewal = Renewal {
        data_dir: territory.path().to_owned(),
        identity: identity.clone(),
        plain: plain.rule(),
        source: Arc::clone(&source),
    };
    let (daemon, signals) = ground.daemon(territory, source, settings)?;
    runtime.spawn(renewal.run());
    if json {
        print_json(&json!({ "api_url": identity.server, "territory_id": identity.territory_id }))?;
    } else {
        print(format!("The territory {} takes work of {}.\n", identity.territory_id, identity.server).as_bytes())?;
    }
    services::wait_for_end_of_service(&signals, || {
        match read(file, is_named).and_then(|now| Ok((flags.over(&now, file)?, now))) {
            Ok((settings, now)) => {
                daemon.reload(settings);
                tell("The settings were read again.");
                for name in now.needs_restart(&at_start) {
                    tell(&format!("{name} holds after a restart of the daemon."));
                }
            }
            Err(failure) => tell(&format!("The settings stay as they were. {}", failure.text())),
        }
    })?;
    tell("The daemon ends: what runs has 30 seconds.");
    daemon.stop();
    Ok(0)
}

/// Checks a file of settings as a start would.
fn check(file: &Path) -> Result<u8, Failure> {
    let config = read(file, true)?;
    let settings = Flags { max_concurrent: None, labels: &[] }.over(&config, file)?;
    let labels: Vec<String> = settings.labels.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let text = format!(
        "max_concurrent {}\nheartbeat {} ms\npoll_wait {} ms\nlabels {}\nbounds.network {}\nbounds.timeout {} s\nlauncher.networks {}\n",
        settings.max_concurrent,
        settings.heartbeat.as_millis(),
        settings.poll_wait.as_millis(),
        labels.join(","),
        serde_json::to_value(settings.bounds.max_net)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default(),
        settings.bounds.max_timeout_seconds,
        config.networks(),
    );
    print(text.as_bytes())
}

fn labels(written: &[String]) -> Result<Labels, Failure> {
    let mut labels = Labels::default();
    for label in written {
        let Some((name, value)) = label.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Failure::usage("label", format!("{label:?} is not a label"), "write NAME=VALUE"));
        };
        labels.0.insert(name.to_owned(), value.to_owned());
    }
    Ok(labels)
}
