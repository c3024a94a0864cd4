//! Decides about connections that are open: for a further request, and when facts about their addresses change.

use crate::audit::event::{Event, EventKind};
use crate::decide::context::DecisionContext;
use crate::decide::denials;
use crate::decide::guard::ConnectionGuard;
use crate::decide::registry::{Entry, Learned};
use crate::decide::state::Shared;
use nexus_policy::net::{Check, Denial, Host};
use std::sync::atomic::Ordering;

impl Shared {
    /// Decides about a further request on an existing connection, and records a denial. `asked` is another host that
    /// the request names.
    pub(crate) fn again(&self, guard: &ConnectionGuard, asked: Option<&Host>) -> Result<(), Denial> {
        let attempt = guard.permit().attempt();
        if let Some(why) = guard.entry.why() {
            self.denied(self.next_id(), attempt, &why);
            return Err(why);
        }
        let context = self.context().asked(Check::Continue);
        let learned = guard.entry.learn(&context.policy, &*self.own, &self.followed);
        let Learned { own, behind } = guard.entry.learned();
        let context = DecisionContext { once: guard.entry.once.clone(), own, behind, ..context };
        let event = |kind, id| Event::of(kind, id, attempt).permitted(guard.permit(), None);
        if let Err(denial) = learned {
            self.denied(self.next_id(), attempt, &denial);
            return Err(denial);
        }
        if let Err(denial) = guard.entry.evaluate(&context.policy, context.at) {
            self.denied_on(&context, event(EventKind::Deny, self.next_id()), attempt, &denial);
            return Err(denial);
        }
        if asked.is_some() && guard.must_name() {
            let denial = denials::names_another(guard.permit().target());
            self.denied(self.next_id(), attempt, &denial);
            return Err(denial);
        }
        let asked = asked.map(Host::to_string).into_iter().collect();
        let request = Event { asked, ..event(EventKind::Request, guard.id) };
        let recorded = context.must(&request, &self.audit);
        recorded.map_err(|error| denials::internal(error.to_string()))
    }

    /// Asks about the addresses of every open connection again and cuts those that may not lead there any more.
    pub(crate) fn host_changed(&self) {
        // The number changes first: a connection that is entered from here on sees the new number and asks again on its
        // own.
        self.host_changes.fetch_add(1, Ordering::AcqRel);
        for entry in self.registry.entries() {
            self.ask_again(&entry);
        }
    }

    /// Asks again about the addresses of one connection, and cuts it if it may not lead there any more.
    pub(crate) fn ask_again(&self, entry: &Entry) {
        let policy = self.registry.policy();
        let decided =
            entry.learn(&policy, &*self.own, &self.followed).and_then(|()| entry.evaluate(&policy, self.clock.now()));
        if let Err(why) = decided {
            entry.cut(why);
        }
    }
}
