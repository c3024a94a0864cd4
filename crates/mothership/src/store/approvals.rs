//! The operations of the store on approvals.

use super::error::StoreError;
use super::operations::Store;
use super::rows::{approval as rows, connection};
use super::types::{
    Account, Answered, ApprovalAnswer, Connected, Holding, NewConnection, Page, Reaped, Reported, Territory,
};
use nexus_api::mothership::Approval;
use nexus_model::ids::{ApprovalId, DirectiveId};

impl Store {
    /// Returns the approvals of the account that are not over, the soonest end first, or every one, the latest first.
    pub async fn approvals(
        &self,
        account: Account,
        all: bool,
        page: Page,
        now: i64,
    ) -> Result<Vec<Approval>, StoreError> {
        self.read(move |tx| rows::approvals(tx, account, all, page, now)).await
    }

    /// Returns an approval of the account.
    pub async fn approval(&self, account: Account, id: ApprovalId, now: i64) -> Result<Approval, StoreError> {
        self.read(move |tx| rows::approval(tx, account, id, now)).await
    }

    /// Returns the approval of a directive of the account, if it needed one.
    pub async fn approval_of(
        &self,
        account: Account,
        directive: DirectiveId,
        now: i64,
    ) -> Result<Option<Approval>, StoreError> {
        self.read(move |tx| rows::approval_of(tx, account, directive, now)).await
    }

    /// Answers the approval of a directive of the account.
    pub async fn answer_approval(
        &self,
        account: Account,
        directive: DirectiveId,
        answer: ApprovalAnswer,
        now: i64,
    ) -> Result<Answered, StoreError> {
        self.write(move |tx| rows::answer(tx, account, directive, &answer, now)).await
    }

    /// Answers the request of a connection of a directive of the account.
    pub async fn answer_connection(
        &self,
        account: Account,
        directive: DirectiveId,
        id: ApprovalId,
        answer: ApprovalAnswer,
        now: i64,
    ) -> Result<Answered, StoreError> {
        self.write(move |tx| connection::answer(tx, account, directive, id, &answer, now)).await
    }

    /// Looks for the answer about a connection that waits, asks for one, and takes a use of it.
    pub async fn connect(
        &self,
        territory: Territory,
        holding: Holding,
        new: NewConnection,
        now: i64,
    ) -> Result<Reported<Connected>, StoreError> {
        self.write(move |tx| connection::connect(tx, territory, holding, &new, now)).await
    }

    /// Ends approvals whose time is over, each in a transaction of its own. The server itself is the caller.
    pub async fn settle_approvals(&self, now: i64) -> Result<Reaped, StoreError> {
        let mut settled = Reaped::default();
        for id in self.read(move |tx| rows::due(tx, now)).await? {
            if let Some(effect) = self.write(move |tx| rows::settle(tx, &id, now)).await? {
                settled.changed.push(id);
                settled.lanes.extend(effect.lane);
            }
        }
        for (id, directive) in self.read(move |tx| connection::due(tx, now)).await? {
            self.write(move |tx| connection::settle(tx, id, directive, now)).await?;
            settled.changed.push(directive);
        }
        Ok(settled)
    }
}
