//! Renews the certificate of a territory while its daemon runs.
//!
//! ```text
//!  a third of its life left? ─▶ new key, request signed by the control plane ─▶ file, whole and synced ─▶ the daemon's next calls
//! ```
//! A renewal that fails is tried again every minute, and more often where less than twenty minutes are left.
//! The old certificate ends at the first use of the new one, which is in its file by then: a failure at any step changes nothing.

use crate::failure::Failure;
use crate::notices::tell;
use crate::territory::credentials::{Credentials, FILE, key_and_request};
use nexus_api::client::PlainHttp;
use nexus_api::conduits::CertificateRequest;
use nexus_mothership::{Validity, validity};
use nexusd::HttpSource;
use nexusd::reported::Reported;
use nexusd::territory::Identity;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest time between two looks: the clock of the machine may jump, and a sleep does not count while it is suspended.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// Longest time to the next try after one that failed.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// Number of tries that fit into the rest of the certificate's life.
const TRIES: u32 = 20;
/// Shortest time between two looks.
const REST: Duration = Duration::from_secs(1);

/// The certificate of a daemon, and where it is used.
pub struct Renewal {
    /// Data directory of the territory.
    pub data_dir: PathBuf,
    /// The territory and its server.
    pub identity: Identity,
    /// Trust in a server without TLS.
    pub plain: PlainHttp,
    /// The calls of the daemon.
    pub source: Arc<HttpSource>,
}

impl Renewal {
    /// Renews whenever it is due. A territory without a certificate has nothing to renew.
    pub async fn run(self) {
        if self.identity.certificate.is_none() {
            return;
        }
        let mut reported = Reported::default();
        loop {
            let wait = match self.renew_if_due().await {
                Ok(wait) => {
                    reported.clear();
                    wait
                }
                Err(failure) => {
                    let left = self.left();
                    if let Some(line) = news(&mut reported, &failure.text(), left.is_some_and(|left| left.is_zero())) {
                        tell(&line);
                    }
                    until_next_try(left)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Returns the rest of the certificate's life; `None` for one that cannot be read.
    fn left(&self) -> Option<Duration> {
        let valid = validity(&Credentials::read(&self.data_dir, FILE).ok()?.certificate)?;
        Some(Duration::from_secs(valid.not_after.saturating_sub(now()).max(0).unsigned_abs()))
    }

    /// Renews if it is due, and returns the time to the next look.
    async fn renew_if_due(&self) -> Result<Duration, Failure> {
        let known = Credentials::read(&self.data_dir, FILE)?;
        let valid = validity(&known.certificate).ok_or_else(|| {
            Failure::refused("certificate", "it cannot be read", "Join again with another data directory.")
        })?;
        let rest = until_due(valid, now());
        if !rest.is_zero() {
            return Ok(rest.clamp(REST, LOOK_EVERY));
        }
        let (key, csr_pem) = key_and_request()?;
        let client = known.client(&self.identity.server, self.plain)?;
        let answer = client.renew_certificate(&CertificateRequest { csr_pem }).await;
        let certificate = answer.map_err(|error| crate::client::call::failure(&error))?.mtls_client_cert_pem;
        let new = Credentials { certificate, key: key.serialize_pem(), ..known };
        let client = new.client(&self.identity.server, self.plain)?;
        new.write(&self.data_dir)?;
        self.source.replace(client);
        tell("The certificate of this territory was renewed.");
        Ok(REST)
    }
}

/// Returns the line about a failed renewal, if it says something new: each cause once, and once that the certificate is over.
fn news(reported: &mut Reported, failure: &str, is_over: bool) -> Option<String> {
    let line = if is_over {
        // Whatever the control plane answers to it: no try helps any more.
        "The certificate of this territory has ended, and the control plane takes no call of it. The territory has to join again, with \
         another data directory: nexus territory join."
            .to_owned()
    } else {
        format!("The certificate of this territory was not renewed. {failure}")
    };
    reported.is_new(&line).then_some(line)
}

/// Returns the time to the next try of a renewal that failed, for a certificate with this time left. One that has ended, or that cannot be
/// read, is not worth a call each second.
fn until_next_try(left: Option<Duration>) -> Duration {
    match left {
        Some(left) if !left.is_zero() => (left / TRIES).clamp(REST, TRY_AGAIN),
        _ => TRY_AGAIN,
    }
}

/// Returns the time until a third of the life is left; zero from then on. Times are seconds since 1970.
fn until_due(valid: Validity, now: i64) -> Duration {
    let third = valid.not_after.saturating_sub(valid.not_before).max(0) / 3;
    let due = valid.not_after.saturating_sub(third);
    Duration::from_secs(due.saturating_sub(now).max(0).unsigned_abs())
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_of_a_failed_renewal_is_reported_once_and_so_is_the_end_of_the_certificate() {
        let mut reported = Reported::default();
        let mut says = |failure, is_over| news(&mut reported, failure, is_over);
        assert!(says("Connection refused.", false).unwrap().ends_with("was not renewed. Connection refused."));
        assert_eq!(says("Connection refused.", false), None);
        assert!(says("The certificate is not trusted.", false).unwrap().contains("not trusted"));
        assert_eq!(says("Connection refused.", false), None, "the two take turns");
        let over = says("The certificate is not trusted.", true).unwrap();
        assert!(over.contains("has ended") && over.contains("nexus territory join"), "{over}");
        assert_eq!(says("Connection refused.", true), None);
    }

    #[test]
    fn a_certificate_is_due_when_a_third_of_its_life_is_left() {
        let valid = Validity { not_before: 1000, not_after: 1900 };
        for (now, rest) in [(0, 1600), (1599, 1), (1600, 0), (1900, 0), (i64::MAX, 0)] {
            assert_eq!(until_due(valid, now), Duration::from_secs(rest), "{now}");
        }
        for (left, wait) in [(0, 60), (5, 1), (40, 2), (1200, 60), (86_400, 60)] {
            assert_eq!(until_next_try(Some(Duration::from_secs(left))), Duration::from_secs(wait), "{left}");
        }
        assert_eq!(until_next_try(None), TRY_AGAIN);
        // A certificate that ends before it begins is due at once.
        assert_eq!(until_due(Validity { not_before: 1900, not_after: 1000 }, 1000), Duration::ZERO);
    }
}
