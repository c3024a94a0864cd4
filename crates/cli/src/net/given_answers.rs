//! Keeps the answers by which people let connections of one run through, for its report and its receipt.

use super::requests::Grant;
use nexus_receipt::Approved;

/// Answers that are kept apart; a person gives few.
const MAX_KEPT: usize = 1000;

/// The answers of one run so far.
#[derive(Debug, Default)]
pub struct Grants(Vec<Approved>);

impl Grants {
    /// Keeps a yes of another session for one connection.
    pub fn of_approval(&mut self, to: &str, grant: &Grant) {
        self.once(to, &grant.by, Some(grant));
    }

    /// Keeps a yes of the run's own terminal for one connection.
    pub fn once_here(&mut self, to: &str, by: &str) {
        self.once(to, by, None);
    }

    fn once(&mut self, to: &str, by: &str, grant: Option<&Grant>) {
        let approval = grant.map(|grant| grant.approval);
        let same =
            |one: &&mut Approved| one.to == to && one.by == by && one.approval == approval && one.connections.is_some();
        match self.0.iter_mut().find(same) {
            Some(known) => known.connections = known.connections.map(|count| count + 1),
            None => self.keep(Approved { to: to.to_owned(), by: by.to_owned(), approval, connections: Some(1) }),
        }
    }

    /// Keeps a yes of the run's own terminal to the end of the run.
    pub fn for_the_run(&mut self, to: &str, by: &str) {
        self.keep(Approved { to: to.to_owned(), by: by.to_owned(), approval: None, connections: None });
    }

    fn keep(&mut self, one: Approved) {
        if self.0.len() < MAX_KEPT {
            self.0.push(one);
        }
    }

    /// Returns all of them.
    pub fn all(self) -> Vec<Approved> {
        self.0
    }
}
