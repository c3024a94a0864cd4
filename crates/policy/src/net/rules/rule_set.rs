//! Name rules found by name instead of by trying each: the cost of a decision does not grow with the policy.

use crate::net::rules::name::Name;
use crate::net::rules::pattern::Pattern;
use crate::net::rules::rule::Rule;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rules in canonical order, without repetitions, so that the order in which they were written never shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Rule>", into = "Vec<Rule>")]
pub(in crate::net) struct RuleSet {
    rules: Vec<Rule>,
    exact: BTreeMap<Name, Vec<usize>>,
    below: BTreeMap<Name, Vec<usize>>,
}

impl From<Vec<Rule>> for RuleSet {
    fn from(rules: Vec<Rule>) -> Self {
        Self::of(rules)
    }
}

impl From<RuleSet> for Vec<Rule> {
    fn from(set: RuleSet) -> Self {
        set.rules
    }
}

impl RuleSet {
    pub(in crate::net) fn of(rules: impl IntoIterator<Item = Rule>) -> Self {
        let mut set = Self { rules: rules.into_iter().collect(), ..Self::default() };
        set.rules.sort();
        set.rules.dedup();
        for (place, rule) in set.rules.iter().enumerate() {
            let index = match &rule.pattern {
                Pattern::Exact(_) => &mut set.exact,
                Pattern::Below(_) => &mut set.below,
            };
            index.entry(rule.pattern.base().clone()).or_default().push(place);
        }
        set
    }

    /// Returns the rules whose pattern means `name`. This is the only place where names meet patterns: the exact one
    /// first, then wildcards from the nearest parent up.
    pub(in crate::net) fn matching<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a Rule> {
        let exact = self.exact.get(name.as_str());
        let below = name.parents().filter_map(|parent| self.below.get(parent));
        exact.into_iter().chain(below).flatten().filter_map(|place| self.rules.get(*place))
    }

    pub(in crate::net) fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
