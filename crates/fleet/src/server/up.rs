//! `nexus up`: a control plane and a daemon in one process, for one machine.

use crate::args::UpArgs;
use crate::client::call::{self, failure};
use crate::data_dir;
use crate::failure::Failure;
use crate::notices::tell;
use crate::print::{print, print_json};
use crate::profiles::caller;
use crate::server::serve::{listen, of_serve};
use crate::territory::enroll;
use crate::territory::services::{self, Ground};
use nexus_api::client::{ConduitsClient, MothershipClient, PlainHttp, TerritoryIdentity};
use nexus_api::conduits::TERRITORY_SECRET_HEADER;
use nexus_api::mothership::CreateEnrollmentToken;
use nexus_mothership::{Config, ProcessSecret, Running, TerritoryAuth};
use nexusd::territory::Identity;
use nexusd::{HttpSource, Settings, Territory};
use serde_json::json;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The control plane of this process listens on loopback.
const OWN: PlainHttp = PlainHttp::Loopback { also: None };

/// Serves until a signal ends it.
pub fn command(args: &UpArgs) -> Result<u8, Failure> {
    if !args.listen.ip().is_loopback() {
        let message = format!("{} is not an address on loopback", args.listen.ip());
        let hint =
            "nexus up serves this machine alone. nexus mothership serve serves others, behind a proxy that ends TLS.";
        return Err(Failure::usage("listen", message, hint));
    }
    // The launcher first: it is cloned from, and may have no second thread.
    let ground = Ground::prepare(nexusd::config::NETWORKS, false)?;
    let policies = nexus_profiles::policies::load(&caller(), None)?;
    let data_dir = data_dir::open(&args.data_dir)?;
    let territory = services::territory(&data_dir.join("territory"))?;
    let runtime = services::runtime()?;
    let secret = ProcessSecret::make().map_err(|error| of_serve(&error.into()))?;
    let running = runtime.block_on(async {
        let listener = listen(args.listen).await?;
        let mut config = Config::new(data_dir.join("mothership"));
        // Other users of this machine can connect, too: only the daemon of this process has the secret.
        config.territory_auth = TerritoryAuth::Process(secret.clone());
        config.policies = policies;
        env!("CARGO_PKG_VERSION").clone_into(&mut config.version);
        let running = nexus_mothership::serve(config, vec![listener], std::future::pending()).await;
        running.map_err(|error| of_serve(&error))
    })?;
    let identity = match territory.identity().map_err(|error| services::of_territory(&error))? {
        // The port may be another one than at the last start.
        Some(identity) => Identity { server: running.api_url.clone(), ..identity },
        None => join(&territory, &running, runtime.handle())?,
    };
    let client = own_client(&identity, &secret)?;
    let mut settings = Settings::here(env!("CARGO_PKG_VERSION"));
    settings.max_concurrent = args.max_concurrent.unwrap_or(settings.max_concurrent);
    let source = Arc::new(HttpSource::new(client, runtime.handle().clone()));
    let (daemon, signals) = ground.daemon(territory, source, settings)?;
    ready(args, &running, &identity)?;
    services::wait_for_end(&signals)?;
    tell("The fleet of this machine ends: what runs has 30 seconds.");
    daemon.stop();
    running.stop();
    runtime.block_on(running.stopped());
    Ok(0)
}

/// Makes the client of the daemon in this process.
fn own_client(identity: &Identity, secret: &ProcessSecret) -> Result<ConduitsClient, Failure> {
    let http = call::http(&identity.server, None, None, OWN)?;
    let http = http.with_header(TERRITORY_SECRET_HEADER, secret.text()).map_err(|error| failure(&error))?;
    ConduitsClient::new(&http, &TerritoryIdentity::Header(identity.territory_id)).map_err(|error| failure(&error))
}

/// Enrols this process as the territory of its own control plane.
fn join(territory: &Territory, running: &Running, runtime: &Handle) -> Result<Identity, Failure> {
    let key = running.first_key.clone().or_else(|| std::env::var("NEXUS_API_KEY").ok());
    let Some(key) = key else {
        let message = "The control plane in this data directory has no territory yet, and its key was printed once, at its first start";
        return Err(Failure::refused(
            "api_key",
            message,
            "Set NEXUS_API_KEY to that key, or use another data directory.",
        ));
    };
    let http = call::http(&running.api_url, None, None, OWN)?;
    let client = MothershipClient::new(&http, &key).map_err(|error| failure(&error))?;
    let wanted = CreateEnrollmentToken { ttl_seconds: Some(60), ..CreateEnrollmentToken::default() };
    let token = runtime.block_on(client.create_enrollment_token(&wanted)).map_err(|error| failure(&error))?;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    enroll::enroll(territory, &running.api_url, None, OWN, &token.token, Some(name), runtime)
}

fn ready(args: &UpArgs, running: &Running, identity: &Identity) -> Result<(), Failure> {
    if args.json {
        let mut document = json!({
            "api_url": running.api_url, "console_url": running.console_url, "territory_id": identity.territory_id,
        });
        if let (Some(key), Some(members)) = (&running.first_key, document.as_object_mut()) {
            members.insert("api_key".to_owned(), json!(key));
        }
        return print_json(&document).map(drop);
    }
    let key = running.first_key.as_ref().map(|key| {
        format!(
            "API key of the owner, shown once: {key}\nnexus login {} takes it from standard input.\n",
            running.api_url
        )
    });
    let text = format!(
        "The fleet of this machine is ready: {}\nConsole: {}\n{}",
        running.api_url,
        running.console_url,
        key.unwrap_or_default()
    );
    print(text.as_bytes()).map(drop)
}
