//! Decides about connections that are open: for a further request, and when facts about their addresses change.

use crate::audit::event::{Event, EventKind};
use crate::decide::denials;
use crate::decide::grounds::DecisionContext;
use crate::decide::registry::{Entry, Learned};
use crate::decide::state::Shared;
use crate::decide::ticket::ConnectionGuard;
use nexus_policy::net::{Check, Denial, Host};
use std::sync::atomic::Ordering;

impl Shared {
    /// Decides about a further request on an existing connection, and records a denial. `asked` is another host that
    /// the request names.
    pub(crate) fn again(&self, ticket: &ConnectionGuard, asked: Option<&Host>) -> Result<(), Denial> {
        let attempt = ticket.permit().attempt();
        if let Some(why) = ticket.entry.why() {
            self.denied(self.next_id(), attempt, &why);
            return Err(why);
        }
        let grounds = self.grounds().asked(Check::Continue);
        let learned = ticket.entry.learn(&grounds.policy, &*self.own, &self.followed);
        let Learned { own, behind } = ticket.entry.learned();
        let grounds = DecisionContext { once: ticket.entry.once.clone(), own, behind, ..grounds };
        let event = |kind, id| Event::of(kind, id, attempt).permitted(ticket.permit(), None);
        if let Err(denial) = learned {
            self.denied(self.next_id(), attempt, &denial);
            return Err(denial);
        }
        if let Err(denial) = ticket.entry.evaluate(&grounds.policy, grounds.at) {
            self.denied_on(&grounds, event(EventKind::Deny, self.next_id()), attempt, &denial);
            return Err(denial);
        }
        if asked.is_some() && ticket.must_name() {
            let denial = denials::names_another(ticket.permit().target());
            self.denied(self.next_id(), attempt, &denial);
            return Err(denial);
        }
        let asked = asked.map(Host::to_string).into_iter().collect();
        let request = Event { asked, ..event(EventKind::Request, ticket.id) };
        let recorded = grounds.must(&request, &self.audit);
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
