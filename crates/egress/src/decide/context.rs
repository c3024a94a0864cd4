//! Collects the inputs of a decision, for the record.

use crate::audit::event::{AuditError, Event, EventKind};
use crate::audit::record::Audit;
use crate::decide::denials;
use nexus_model::Digest;
use nexus_policy::net::{AnyRule, Behind, Check, Denial, Host, MAX_BYTES, MonotonicMs, Policy};
use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Policy in force, with a note whether the record has it.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) policy: Arc<Policy>,
    /// True if some rule is for one program; stored, since each connection asks for it.
    names_programs: bool,
    reported: Mutex<Option<Digest>>,
}

impl InForce {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self { names_programs: policy.names_programs(), policy, reported: Mutex::new(None) }
    }

    /// Reports whether the decision about `host` depends on the program that connects.
    pub(crate) fn minds_program(&self, host: &Host) -> bool {
        self.names_programs && self.policy.minds_program(host)
    }

    /// Returns the hash of the policy, after the record has the policy itself. A run without attempts records no
    /// policy.
    fn reported(&self, audit: &Audit) -> Result<Digest, AuditError> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = *reported {
            return Ok(digest);
        }
        let no_json = || AuditError::Other("the policy makes no JSON".into());
        let (digest, value) = self.policy.recorded().ok_or_else(no_json)?;
        let fits = value.to_string().len() <= MAX_BYTES;
        audit.must(&Event {
            policy: Some(digest),
            in_force: fits.then_some(value),
            explanation: Some(format!("policy {} is {digest}", self.policy.generation())),
            ..Event::new(EventKind::Policy, 0)
        })?;
        *reported = Some(digest);
        Ok(digest)
    }
}

impl Deref for InForce {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.policy
    }
}

/// Policy and inputs of one decision.
#[derive(Debug, Clone)]
pub(crate) struct DecisionContext {
    pub(crate) policy: Arc<InForce>,
    pub(crate) at: MonotonicMs,
    /// Question to the policy; `None` if the line will not hold all of its inputs.
    pub(crate) check: Option<Check>,
    pub(crate) resolved: Option<Vec<IpAddr>>,
    pub(crate) once: Option<AnyRule>,
    /// Addresses of this host beside those of the policy.
    pub(crate) own: Vec<IpAddr>,
    /// Known facts about denied names behind the addresses.
    pub(crate) behind: Vec<Behind>,
}

impl DecisionContext {
    /// Creates the context of a decision that depends on more than the policy.
    pub(crate) fn of(policy: Arc<InForce>, at: MonotonicMs) -> Self {
        Self { policy, at, check: None, resolved: None, once: None, own: Vec::new(), behind: Vec::new() }
    }

    pub(crate) fn asked(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    /// Returns the policy with the rule that a person gave for this connection, and with the facts about its addresses.
    pub(crate) fn effective(&self) -> Result<Cow<'_, Policy>, Denial> {
        let policy: &InForce = &self.policy;
        if self.once.is_none() && self.behind.is_empty() {
            return Ok(policy.also_own(&self.own));
        }
        let with_rule = self.once.as_ref().map(|rule| policy.approve(rule.clone())).transpose();
        let with_rule = with_rule.map_err(|error| denials::internal(error.to_string()))?;
        let policy = with_rule.as_ref().unwrap_or(policy).also_own(&self.own);
        Ok(Cow::Owned(policy.also_behind(&self.behind).into_owned()))
    }

    fn on(&self, event: &Event, audit: &Audit) -> Result<Event, AuditError> {
        let allowed = event.event == EventKind::Allow;
        Ok(Event {
            policy: Some(self.policy.reported(audit)?),
            check: self.check,
            at: Some(self.at),
            resolved: self.resolved.clone().filter(|_| !allowed),
            once: self.once.clone(),
            own: self.own.clone(),
            behind: self.behind.clone(),
            ..event.clone()
        })
    }

    /// Records an event whose action must not happen unrecorded.
    pub(crate) fn must(&self, event: &Event, audit: &Audit) -> Result<(), AuditError> {
        audit.must(&self.on(event, audit)?)
    }

    /// Records a refusal, if necessary without its inputs.
    pub(crate) fn note(&self, event: &Event, audit: &Audit) {
        match self.on(event, audit) {
            Ok(event) => audit.note(&event),
            Err(_) => audit.note(event),
        }
    }
}
