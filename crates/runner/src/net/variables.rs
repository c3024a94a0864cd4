//! Sets the variables that lead clients to the listeners inside.
//!
//! They are for comfort: every TCP connection and every name comes to the egress without them too. A client that uses a
//! proxy gets a denial with its reason instead of a bare reset.
//!
//! `ALL_PROXY` names the HTTP proxy and not the SOCKS one: httpx and what is built on it do not even start with a
//! `socks5h` address unless an extra package is there, and curl opens a tunnel through an HTTP proxy for every protocol.

use nexus_model::network::HTTP_PORT;
use nexus_policy::profile::{Origin, Sourced};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// The sandbox's own servers, also by its host name and by 0.0.0.0, which servers print; no proxy can reach them. Only forms that every client reads: a range or a bracket in
/// this list stops some of them.
const OWN: &str = "localhost,nexus,127.0.0.1,0.0.0.0,::1";

/// Adds the variables, with the flag or file that opened the network as their source.
pub fn add(to: &mut BTreeMap<String, Sourced<OsString>>, from: &Origin) {
    let proxy = format!("http://127.0.0.1:{HTTP_PORT}");
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        let value = if name == "NO_PROXY" { OWN } else { &proxy };
        for name in [name.to_owned(), name.to_lowercase()] {
            to.insert(name, Sourced::new(value.into(), from.clone()));
        }
    }
}
