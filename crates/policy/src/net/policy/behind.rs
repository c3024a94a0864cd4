//! Addresses of denied names.

use crate::net::rules::name::Name;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// One address of a denied name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Behind {
    /// The denied name.
    pub name: Name,
    /// The address; `None` where the addresses of the name are not known, so that every address may be one of them.
    pub address: Option<IpAddr>,
}
