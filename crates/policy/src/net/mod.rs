//! Destinations that a sandbox may reach: names, not addresses, and one decision for every way out.
//!
//! * [`Host`], [`Port`], [`Target`]: read once, one spelling.
//! * [`Pattern`], [`Ports`], [`Rule`], [`AddressRule`]: what people write.
//! * [`Policy`]: built from [`PolicyInput`], only ever narrowed by a [`PolicyBound`].
//! * [`check_name`] → [`check_addrs`] → [`Permit`]: the decision; [`check_dns`], [`check_sni`], [`check_http_host`],
//!   [`check_inner_host`], [`check_method`], [`recheck`] around it; [`Denial`] where it ends.
//! * [`Budget`]: how much. [`Replay`]: all of it again, from a record.
//!
//! ```text
//!  rules/: names, addresses, ports, rules ◀── policy/: Policy, its ceilings and limits ◀── decide/: the decision
//!     ▲                                          ▲                                            ▲
//!     └────────────── document/: YAML and JSON ──┘          explain, replay, vectors, fuzz ───┘
//! ```
//!
//! Nothing here looks at a clock, a file or the network: `now` and addresses are arguments.

mod cause;
mod decide;
mod document;
mod explain;
#[doc(hidden)]
pub mod fuzz;
pub mod packages;
mod permit;
mod policy;
mod replay;
mod rules;
#[doc(hidden)]
pub mod vectors;

pub use cause::{Cause, DenyCode};
pub use decide::agree::{
    Hello, Request, check_http_host, check_inner_host, check_not_http, check_second_sni, check_sni, check_unnamed,
};
pub use decide::methods::check_method;
pub use decide::proxied::{check_proxied, first_asked, the_proxy_itself};
pub use decide::{check_addrs, check_dns, check_name, may_be_asked, recheck};
pub use document::capability::{CapabilityError, from_capability};
pub use document::error::DocumentError;
pub use document::item::{FullItem, Item, PortsItem};
pub use document::preset::{ApprovalReason, Baseline, approval_reasons, expand};
pub use document::{DocumentTests, NetDocument};
pub use explain::{Decision, ExplainedAddress, Explanation, explain, explain_attempt, explain_outcome};
pub use ipnet::{IpNet, Ipv6Net};
pub use permit::{Attempt, Denial, Ingress, MonotonicMs, NameQuery, Next, Permit, Route, RuleRef};
pub use policy::behind::Behind;
pub use policy::bound::{MissingSni, PolicyBound};
pub use policy::budget::{Budget, Charge, Usage};
pub use policy::methods::Methods;
pub use policy::nat64::{DISCOVERY_NAME, nat64_prefixes};
pub use policy::{Policy, PolicyError, PolicyInput, mode_name};
pub use replay::{Check, MAX_BYTES, Replay, ReplayError, Replayed};
pub use rules::bypass::Bypass;
pub use rules::groups::{Groups, builtin_groups, read_groups};
pub use rules::host_port::{HostPort, HostPortError, is_loopback, parse_host_port, private_flag};
pub use rules::name::{HostError, Name};
pub use rules::pattern::{Pattern, PatternError};
pub use rules::ports::{Ports, PortsError};
pub use rules::ranges::{Class, classify, forms};
pub use rules::rule::{
    AddressRule, AnyRule, Origin, Program, Rule, RuleError, RuleFault, Source, parse_allow, parse_allow_private,
    parse_deny, parse_range,
};
pub use rules::target::{Host, Port, Target, TargetError};
