//! Handlers of Conduits v1.

pub mod artifact;
mod connection;
mod enroll;
mod poll;
mod report;
mod token;

use super::answer::{Answer, Problem};
use super::request::Context;

/// Runs the handler of an operation of this API; `None` when it belongs to the other one.
pub async fn handle(id: &str, context: &Context) -> Option<Result<Answer, Problem>> {
    Some(match id {
        "enroll" => enroll::enroll(context).await,
        "ca" => Ok(enroll::ca(context)),
        "renewCertificate" => enroll::renew(context).await,
        "territoryHeartbeat" => poll::heartbeat(context).await,
        "poll" => poll::poll(context).await,
        "started" => report::started(context).await,
        "heartbeat" => report::heartbeat(context).await,
        "logChunk" => report::log_chunk(context).await,
        "events" => report::events(context).await,
        "connection" => connection::connection(context).await,
        "artifact" => artifact::announce(context).await,
        "artifactChunk" => artifact::chunk(context).await,
        "finished" => report::finished(context).await,
        _ => return None,
    })
}
