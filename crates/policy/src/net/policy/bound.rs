//! Limits on top of a policy: one more list, more denials, an earlier end.

use super::budget::Budget;
use super::methods::Methods;
use crate::net::permit::MonotonicMs;
use crate::net::rules::rule::{AddressRule, Rule};
use nexus_model::capability::NetMode;

/// Treatment of a connection without a readable TLS name where one is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingSni {
    /// It passes: the connection goes to the checked addresses all the same.
    Allow,
    /// It is refused.
    #[default]
    Refuse,
}

/// Ceiling on top of a policy: a destination that it lacks is not allowed, whatever the policy allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyBound {
    /// The most that is allowed; `None` leaves the mode.
    pub mode: Option<NetMode>,
    /// The names that stay, with mode allowlist.
    pub allow: Vec<Rule>,
    /// More denied names.
    pub deny: Vec<Rule>,
    /// More denied addresses.
    pub deny_addresses: Vec<AddressRule>,
    /// True if every private destination and address is closed.
    pub refuse_private: bool,
    /// True if private destinations that rules of the policy open are closed. The operator's trusted ranges stay.
    pub refuse_given_private: bool,
    /// `Some(Refuse)` makes it stricter; nothing makes it laxer.
    pub missing_sni: Option<MissingSni>,
    /// The same for what the list expects of a destination: where a rule of the list says `/tcp`, the policy's own
    /// setting stays.
    pub list_missing_sni: MissingSni,
    /// True if an answer to a question adds to the list too.
    pub asks: bool,
    /// `ReadOnly` makes it stricter; nothing makes it laxer.
    pub methods: Methods,
    /// Lower bounds win.
    pub budget: Budget,
    /// An earlier end wins.
    pub expires: Option<MonotonicMs>,
}

impl Default for PolicyBound {
    fn default() -> Self {
        Self {
            mode: None,
            allow: Vec::new(),
            deny: Vec::new(),
            deny_addresses: Vec::new(),
            refuse_private: false,
            refuse_given_private: false,
            missing_sni: None,
            list_missing_sni: MissingSni::Allow,
            asks: false,
            methods: Methods::default(),
            budget: Budget::default(),
            expires: None,
        }
    }
}
