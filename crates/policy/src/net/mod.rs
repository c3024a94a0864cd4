//! Destinations that a sandbox may reach: names, not addresses, and one decision for every way out.
//!
//! * [`Host`], [`Port`], [`Target`]: read once, one spelling.
//! * [`Pattern`], [`Ports`], [`Rule`], [`AddressRule`]: what people write.
//! * [`Policy`]: built from [`PolicyInput`], only ever narrowed by a [`Narrower`].
//! * [`check_name`] → [`check_addrs`] → [`Permit`]: the decision; [`check_dns`], [`check_sni`], [`check_http_host`],
//!   [`check_inner_host`], [`check_method`], [`recheck`] around it; [`Denial`] where it ends.
//! * [`Budget`]: how much. [`Replay`]: all of it again, from a record.
//!
//! Nothing here looks at a clock, a file or the network: `now` and addresses are arguments.

mod agree;
mod behind;
mod budget;
mod bypass;
mod capability;
mod cause;
mod ceiling;
mod decide;
mod document;
mod explain;
#[doc(hidden)]
pub mod fuzz;
mod groups;
mod host_port;
mod item;
mod listed;
mod literal;
mod methods;
mod name;
pub mod packages;
mod pattern;
mod permit;
mod policy;
mod ports;
mod preset;
mod proxied;
mod ranges;
mod replay;
mod rule;
mod rule_set;
mod speech;
mod target;
#[doc(hidden)]
pub mod vectors;
mod who;

pub use agree::{Hello, Request, check_http_host, check_inner_host, check_not_http, check_second_sni, check_sni};
pub use behind::Behind;
pub use budget::{Budget, Charge, Spent};
pub use bypass::Bypass;
pub use capability::{CapabilityError, from_capability};
pub use cause::{Cause, DenyCode};
pub use decide::{check_addrs, check_dns, check_name, may_be_asked, recheck};
pub use document::{DocumentError, DocumentTests, NetDocument};
pub use explain::{AddressTold, Decision, Explanation, explain, explain_attempt};
pub use groups::{Groups, builtin_groups, read_groups};
pub use host_port::{HostPort, HostPortError, is_loopback, parse_host_port, private_flag};
pub use ipnet::IpNet;
pub use item::{FullItem, Item, PortsItem};
pub use methods::{Methods, check_method};
pub use name::{HostError, Name};
pub use pattern::{Pattern, PatternError};
pub use permit::{Attempt, Denial, Moment, NameQuery, Next, Permit, Route, RuleRef, Way};
pub use policy::{MissingSni, Narrower, Policy, PolicyError, PolicyInput, mode_name};
pub use ports::{Ports, PortsError};
pub use preset::{ApprovalReason, Baseline, approval_reasons, expand};
pub use proxied::{check_proxied, first_asked, the_proxy_itself};
pub use ranges::{Class, classify, forms};
pub use replay::{Check, MOST_BYTES, Replay, ReplayError, Replayed};
pub use rule::{
    AddressRule, AnyRule, Origin, Program, Rule, RuleError, RuleFault, Source, parse_allow, parse_allow_private,
    parse_deny, parse_range,
};
pub use target::{Host, Port, Target, TargetError};
