//! Causes of denials: one table from cause to code, HTTP status and SOCKS reply.

use crate::net::rules::ranges::Class;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The codes of the contract. Names are frozen; receivers treat one that they do not know as `OTHER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DenyCode {
    /// The destination is allowed.
    Ok,
    /// There is no network.
    NetModeNone,
    /// No rule allows it, or a rule denies it.
    NotInAllowlist,
    /// The host is allowed, on other ports.
    PortNotAllowed,
    /// The host or the port is missing, or two of them disagree.
    InvalidDestination,
    /// The way around the proxy.
    ProxyRequired,
    /// The TLS name is not the allowed host.
    SniMismatch,
    /// The name is not answered.
    DnsDenied,
    /// The policy's time is over.
    PolicyExpired,
    /// A person has to approve it first.
    ApprovalRequired,
    /// Nexus failed; nothing is allowed then.
    InternalError,
    /// A code that this version does not know.
    Other,
    /// The destination is private, special or the host itself.
    PrivateDestination,
    /// The name has no address.
    NameNotResolved,
    /// A budget is used up.
    LimitExceeded,
    /// The policy allows reading only, and this is another method or could be one.
    MethodNotAllowed,
}

impl DenyCode {
    /// Returns the code as it stands in JSON and in `x-proxy-error`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::NetModeNone => "NET_MODE_NONE",
            Self::NotInAllowlist => "NOT_IN_ALLOWLIST",
            Self::PortNotAllowed => "PORT_NOT_ALLOWED",
            Self::InvalidDestination => "INVALID_DESTINATION",
            Self::ProxyRequired => "PROXY_REQUIRED",
            Self::SniMismatch => "SNI_MISMATCH",
            Self::DnsDenied => "DNS_DENIED",
            Self::PolicyExpired => "POLICY_EXPIRED",
            Self::ApprovalRequired => "APPROVAL_REQUIRED",
            Self::InternalError => "INTERNAL_ERROR",
            Self::Other => "OTHER",
            Self::PrivateDestination => "PRIVATE_DESTINATION",
            Self::NameNotResolved => "NAME_NOT_RESOLVED",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
        }
    }

    /// Returns the HTTP status of a denial with this code.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::InvalidDestination => 400,
            Self::NetModeNone
            | Self::NotInAllowlist
            | Self::PortNotAllowed
            | Self::ProxyRequired
            | Self::SniMismatch
            | Self::DnsDenied
            | Self::PolicyExpired
            | Self::ApprovalRequired
            | Self::PrivateDestination
            | Self::MethodNotAllowed
            | Self::Other => 403,
            Self::LimitExceeded => 429,
            Self::InternalError => 500,
            Self::NameNotResolved => 502,
        }
    }

    /// Returns the reply field of SOCKS5 (RFC 1928): 1 general failure, 2 not allowed by the rule set, 4 host
    /// unreachable.
    pub fn socks_reply(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::InternalError | Self::Other | Self::InvalidDestination => 1,
            Self::NetModeNone
            | Self::NotInAllowlist
            | Self::PortNotAllowed
            | Self::ProxyRequired
            | Self::SniMismatch
            | Self::DnsDenied
            | Self::PolicyExpired
            | Self::ApprovalRequired
            | Self::PrivateDestination
            | Self::MethodNotAllowed
            | Self::LimitExceeded => 2,
            Self::NameNotResolved => 4,
        }
    }
}

impl fmt::Display for DenyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Exact cause of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The mode is none.
    NoNetwork,
    /// No rule names the host.
    NotListed,
    /// A rule names the host, on other ports.
    PortNotListed,
    /// A rule names the host and the port, for other programs.
    OtherProgram,
    /// A deny rule.
    DeniedByRule,
    /// A narrower policy on top does not have it.
    Narrowed,
    /// An address without an allowance.
    LiteralNotAllowed,
    /// A special address.
    Special(Class),
    /// The egress's own listener.
    OwnListener,
    /// The request cannot be read as host and port.
    Unreadable,
    /// Two parts of one request name two hosts.
    Disagree,
    /// The name has no address.
    NotResolved,
    /// A DNS question for a name that nothing allows.
    NameNotAnswered,
    /// Time is over.
    Expired,
    /// A budget is used up.
    Budget,
    /// The TLS name differs.
    OtherSni,
    /// There is no TLS name, and the policy wants one.
    NoSni,
    /// HTTP was expected, and it is something else.
    NoHttp,
    /// Only reading is allowed.
    Method,
    /// It may be allowed after a question.
    MayAsk,
}

impl Cause {
    /// Returns the code of the contract for the cause.
    pub fn code(self) -> DenyCode {
        match self {
            Self::NoNetwork => DenyCode::NetModeNone,
            Self::NotListed | Self::OtherProgram | Self::DeniedByRule | Self::Narrowed | Self::LiteralNotAllowed => {
                DenyCode::NotInAllowlist
            }
            Self::PortNotListed => DenyCode::PortNotAllowed,
            Self::Special(_) | Self::OwnListener => DenyCode::PrivateDestination,
            Self::Unreadable | Self::Disagree | Self::NoHttp => DenyCode::InvalidDestination,
            Self::NotResolved => DenyCode::NameNotResolved,
            Self::NameNotAnswered => DenyCode::DnsDenied,
            Self::Expired => DenyCode::PolicyExpired,
            Self::Budget => DenyCode::LimitExceeded,
            Self::OtherSni | Self::NoSni => DenyCode::SniMismatch,
            Self::Method => DenyCode::MethodNotAllowed,
            Self::MayAsk => DenyCode::ApprovalRequired,
        }
    }
}
