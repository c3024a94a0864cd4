//! Protocol that is spoken on a connection, as the matching rules determine it together.

use crate::net::rules::rule::Rule;
use crate::net::rules::target::Port;

/// Protocol that the rules for one name expect on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) enum Speech {
    /// TLS for this name is required.
    Tls,
    /// The usual protocol of the port: HTTP on 80, anything on the others.
    Usual,
    /// Anything, also on ports 80 and 443 (`/tcp`).
    Any,
}

impl Speech {
    /// Returns the protocol of the matching `rules`, those for the nearest name first. A rule that demands TLS counts
    /// in any case; one that does without (`/tcp`) only among those for the nearest name, so that a wildcard does not
    /// open a host that another rule names.
    pub(super) fn of(rules: &[&Rule], port: Port) -> Self {
        if rules.iter().any(|rule| rule.tls == Some(true)) {
            return Self::Tls;
        }
        let goes_without = rules
            .first()
            .is_some_and(|nearest| rules.iter().any(|rule| rule.pattern == nearest.pattern && rule.tls == Some(false)));
        match (goes_without, port == Port::HTTPS) {
            (true, _) => Self::Any,
            (false, true) => Self::Tls,
            (false, false) => Self::Usual,
        }
    }
}

/// Reports whether a connection to `port` is for plain HTTP, by whichever way it came in.
pub(super) fn plain_http(port: Port, speech: Speech) -> bool {
    port == Port::HTTP && speech == Speech::Usual
}
