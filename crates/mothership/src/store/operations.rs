//! The operations of the store, for every database.

use super::error::StoreError;
use super::jump::Jump;
use super::postgres::{Database, Hint, Hints, Postgres};
use super::rows;
use super::sql::Connection;
use super::sqlite::Sqlite;
use super::types::{
    Account, Beat, Certificate, ChunkQuery, ChunkState, Claims, Creation, DirectiveLine, EndState, Enrolment, Holding,
    Lane, LeaseTimes, LiveDirectives, NewChunk, NewDirective, NewEnd, NewFacility, NewTerritory, Offer, Page, Presence,
    Reaped, Reported, SecretHash, Secrets, Snapshot, StartedState, StoredChunk, Territory,
};
use crate::decide::Policies;
use crate::identity::Texts;
use nexus_api::Labels;
use nexus_api::conduits::{Progress, TerritoryKind, Verdict};
use nexus_api::mothership::{ApiKey, Directive, Facility, Role, Territory as TerritoryView};
use nexus_model::directive::{Fence, Refusal, State};
use nexus_model::ids::{DirectiveId, FacilityId, TerritoryId};
use nexus_model::spec::FacilityRef;
use std::path::Path;
use std::sync::Arc;

/// A database of one kind. Clones share it.
#[derive(Clone)]
pub enum Store {
    /// SQLite in a directory.
    Sqlite(Sqlite),
    /// PostgreSQL, which several servers may share.
    Postgres(Postgres),
}

impl Store {
    /// Opens the SQLite database of a directory and returns its secrets too.
    pub fn open_sqlite(directory: &Path, now: i64) -> Result<(Self, Secrets), StoreError> {
        let opened = Sqlite::open(directory, now)?;
        Ok((Self::Sqlite(opened.store), opened.secrets))
    }

    /// Opens a PostgreSQL database and returns its secrets and what the other servers tell.
    pub async fn open_postgres(database: Database, now: i64) -> Result<(Self, Secrets, Hints), StoreError> {
        let (store, secrets, hints) = Postgres::open(database, now).await?;
        Ok((Self::Postgres(store), secrets, hints))
    }

    /// Runs `work` in a transaction. PostgreSQL may run it again when another transaction was in its way.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl Fn(&Connection<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self {
            Self::Sqlite(db) => db.write(work).await,
            Self::Postgres(db) => db.write(work).await,
        }
    }

    /// Runs `work` on one snapshot of the database.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl Fn(&Connection<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self {
            Self::Sqlite(db) => db.read(work).await,
            Self::Postgres(db) => db.read(work).await,
        }
    }

    /// Upper part of fences.
    fn epoch(&self) -> u64 {
        match self {
            Self::Sqlite(db) => db.epoch,
            Self::Postgres(db) => db.epoch(),
        }
    }

    /// Returns the database when several servers may share it.
    pub fn shared(&self) -> Option<&Postgres> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(db) => Some(db),
        }
    }

    /// Returns whether this server does what one server has to do.
    pub fn leads(&self) -> bool {
        self.shared().is_none_or(Postgres::leads)
    }

    /// Gives a hint to the other servers of the database. It may be lost.
    pub fn publish(&self, hint: Hint) {
        if let Some(db) = self.shared() {
            db.publish(hint);
        }
    }

    /// Makes the first account with its owner's key, when there is none. Returns whether it did.
    pub async fn first_account(&self, hash: SecretHash, now: i64) -> Result<bool, StoreError> {
        self.write(move |tx| rows::first_account(tx, &hash, now)).await
    }

    /// Returns the account of an API key.
    pub async fn key_by_hash(&self, hash: SecretHash) -> Result<Option<Account>, StoreError> {
        self.read(move |tx| rows::key_by_hash(tx, &hash)).await
    }

    /// Stores the hash of a new key and returns the id of the key.
    pub async fn create_api_key(
        &self,
        account: Account,
        hash: SecretHash,
        role: Role,
        name: Option<String>,
        now: i64,
    ) -> Result<String, StoreError> {
        self.write(move |tx| rows::create_api_key(tx, account, &hash, role, name.as_deref(), now)).await
    }

    /// Returns the keys of the account.
    pub async fn api_keys(&self, account: Account) -> Result<Vec<ApiKey>, StoreError> {
        self.read(move |tx| rows::api_keys(tx, account)).await
    }

    /// Deletes a key of the account; `false` when the key is the caller's own.
    pub async fn delete_api_key(&self, account: Account, id: [u8; 16], now: i64) -> Result<bool, StoreError> {
        self.write(move |tx| rows::delete_api_key(tx, account, &id, now)).await
    }

    /// Stores the hash of an enrolment token.
    pub async fn create_enroll_token(
        &self,
        account: Account,
        hash: SecretHash,
        kind: Option<TerritoryKind>,
        labels: Labels,
        [expires_at, now]: [i64; 2],
    ) -> Result<(), StoreError> {
        self.write(move |tx| rows::create_enroll_token(tx, account, &hash, kind, &labels, [expires_at, now])).await
    }

    /// Spends an enrolment token and stores the territory. The token is the proof of the caller.
    pub async fn enroll(&self, new: NewTerritory, now: i64) -> Result<Enrolment, StoreError> {
        self.write(move |tx| rows::enroll(tx, &new, now)).await
    }

    /// Stores a certificate that was signed for the territory. The key that it replaces ends when it is used. `false` when the key
    /// belongs to another territory, or has ended.
    pub async fn add_certificate(
        &self,
        territory: Territory,
        fingerprint: SecretHash,
        spki: SecretHash,
        replaces: Option<SecretHash>,
    ) -> Result<bool, StoreError> {
        self.write(move |tx| rows::add_certificate(tx, territory, &fingerprint, &spki, replaces.as_ref())).await
    }

    /// Returns the certificate with this fingerprint, if it is not revoked.
    pub async fn certificate_by_fingerprint(&self, fingerprint: SecretHash) -> Result<Option<Certificate>, StoreError> {
        self.read(move |tx| rows::certificate(tx, Some(&fingerprint), None)).await
    }

    /// Returns the certificate with this public key, if it is not revoked.
    pub async fn certificate_by_key(&self, spki: SecretHash) -> Result<Option<Certificate>, StoreError> {
        self.read(move |tx| rows::certificate(tx, None, Some(&spki))).await
    }

    /// Ends the keys in whose place this certificate has come.
    pub async fn end_replaced(&self, certificate: Certificate) -> Result<(), StoreError> {
        self.write(move |tx| rows::end_replaced(tx, &certificate)).await
    }

    /// Returns certificates and keys of the authorities.
    pub async fn authorities(&self) -> Result<Texts, StoreError> {
        self.read(rows::authorities).await
    }

    /// Replaces certificates and keys of the authorities. `false` when they are not what they were.
    pub async fn set_authorities(&self, before: Texts, after: Texts) -> Result<bool, StoreError> {
        self.write(move |tx| rows::set_authorities(tx, &before, &after)).await
    }

    /// Returns the territory with this id, for the development header.
    pub async fn territory_by_id(&self, id: TerritoryId) -> Result<Option<Territory>, StoreError> {
        self.read(move |tx| rows::territory_account(tx, id)).await
    }

    /// Stores a heartbeat and returns the decision about each directive that it names.
    pub async fn presence(
        &self,
        territory: Territory,
        beat: Presence,
        times: LeaseTimes,
        now: i64,
    ) -> Result<Vec<(DirectiveId, Fence, u32, Verdict)>, StoreError> {
        self.write(move |tx| rows::presence(tx, territory, &beat, times, now)).await
    }

    /// Returns the territories of the account; with an id that one alone.
    pub async fn territories(
        &self,
        account: Account,
        only: Option<TerritoryId>,
        times: LeaseTimes,
        now: i64,
    ) -> Result<Vec<TerritoryView>, StoreError> {
        self.read(move |tx| rows::territories(tx, account, only, times, now)).await
    }

    /// Lets a territory of the account take no directives any more.
    pub async fn drain(&self, account: Account, id: TerritoryId, now: i64) -> Result<(), StoreError> {
        self.write(move |tx| rows::set_state(tx, account, id, 2, now)).await
    }

    /// Takes every right from a territory of the account.
    pub async fn revoke(&self, account: Account, id: TerritoryId, now: i64) -> Result<(), StoreError> {
        self.write(move |tx| rows::set_state(tx, account, id, 3, now)).await
    }

    /// Stores a facility.
    pub async fn create_facility(
        &self,
        account: Account,
        new: NewFacility,
        now: i64,
    ) -> Result<FacilityId, StoreError> {
        self.write(move |tx| rows::create_facility(tx, account, &new, now)).await
    }

    /// Returns a facility of the account.
    pub async fn facility(&self, account: Account, id: FacilityId) -> Result<Facility, StoreError> {
        self.read(move |tx| rows::facility(tx, account, id)).await
    }

    /// Returns a facility of the account as a specification names it.
    pub async fn facility_ref(&self, account: Account, id: FacilityId) -> Result<FacilityRef, StoreError> {
        self.read(move |tx| rows::facility_row(tx, account, id)).await
    }

    /// Returns facilities of the account, the latest first.
    pub async fn facilities(&self, account: Account, page: Page) -> Result<Vec<Facility>, StoreError> {
        self.read(move |tx| rows::facilities(tx, account, page)).await
    }

    /// Stores a directive.
    pub async fn create_directive(
        &self,
        account: Account,
        new: NewDirective,
        now: i64,
    ) -> Result<Creation, StoreError> {
        self.write(move |tx| rows::create(tx, account, &new, now)).await
    }

    /// Returns a directive of the account.
    pub async fn directive(
        &self,
        account: Account,
        id: DirectiveId,
        times: LeaseTimes,
        now: i64,
    ) -> Result<Directive, StoreError> {
        self.read(move |tx| rows::directive(tx, account, id, times, now)).await
    }

    /// Returns directives of the account, or of one of its facilities, the latest first.
    pub async fn directives(
        &self,
        account: Account,
        facility: Option<FacilityId>,
        page: Page,
        times: LeaseTimes,
        now: i64,
    ) -> Result<Vec<Directive>, StoreError> {
        self.read(move |tx| rows::directives(tx, account, facility, page, times, now)).await
    }

    /// Returns what a list for people shows of directives of the account, or of one of its facilities, the latest first.
    pub async fn directive_lines(
        &self,
        account: Account,
        facility: Option<FacilityId>,
        page: Page,
    ) -> Result<Vec<DirectiveLine>, StoreError> {
        self.read(move |tx| rows::directive_lines(tx, account, facility, page)).await
    }

    /// Returns the directives of the account that are not over, the latest first, and how many there are.
    pub async fn live_directives(
        &self,
        account: Account,
        limit: u32,
        times: LeaseTimes,
        now: i64,
    ) -> Result<LiveDirectives, StoreError> {
        self.read(move |tx| rows::live_directives(tx, account, limit, times, now)).await
    }

    /// Returns the present version of a directive for events.
    pub async fn snapshot(&self, account: Account, id: DirectiveId, now: i64) -> Result<Snapshot, StoreError> {
        self.read(move |tx| rows::snapshot(tx, account, id, now)).await
    }

    /// Returns output of a directive.
    pub async fn chunks(
        &self,
        account: Account,
        id: DirectiveId,
        query: ChunkQuery,
    ) -> Result<Vec<StoredChunk>, StoreError> {
        self.read(move |tx| rows::chunks(tx, account, id, query)).await
    }

    /// Returns the diff of a directive.
    pub async fn diff(&self, account: Account, id: DirectiveId, attempt: Option<u32>) -> Result<Vec<u8>, StoreError> {
        self.read(move |tx| rows::diff(tx, account, id, attempt)).await
    }

    /// Returns the receipt of a directive, as text.
    pub async fn receipt(&self, account: Account, id: DirectiveId, attempt: Option<u32>) -> Result<String, StoreError> {
        self.read(move |tx| rows::receipt(tx, account, id, attempt)).await
    }

    /// Ends a directive that waits, and marks one that runs.
    pub async fn cancel(
        &self,
        account: Account,
        id: DirectiveId,
        now: i64,
    ) -> Result<Result<(State, bool, Option<Lane>), Refusal>, StoreError> {
        let epoch = self.epoch();
        self.write(move |tx| rows::cancel(tx, account, id, epoch, now)).await
    }

    /// Claims what fits the territory.
    pub async fn claim(
        &self,
        territory: Territory,
        offer: Offer,
        policies: &Arc<Policies>,
        times: LeaseTimes,
        now: i64,
    ) -> Result<Claims, StoreError> {
        let (epoch, policies) = (self.epoch(), Arc::clone(policies));
        self.write(move |tx| rows::claim(tx, territory, &offer, &policies, times, epoch, now)).await
    }

    /// Takes back claims of the territory whose answer reached no daemon.
    pub async fn return_claims(
        &self,
        territory: Territory,
        claims: Vec<(DirectiveId, Fence)>,
        now: i64,
    ) -> Result<Vec<Lane>, StoreError> {
        self.write(move |tx| rows::return_claims(tx, territory, &claims, now)).await
    }

    /// Stores the start of a directive.
    pub async fn started(
        &self,
        territory: Territory,
        holding: Holding,
        versions: String,
        times: LeaseTimes,
        now: i64,
    ) -> Result<Reported<StartedState>, StoreError> {
        self.write(move |tx| rows::started(tx, territory, holding, &versions, times, now)).await
    }

    /// Renews the lease of a directive.
    pub async fn beat(
        &self,
        territory: Territory,
        holding: Holding,
        progress: Option<Progress>,
        times: LeaseTimes,
        now: i64,
    ) -> Result<Reported<Beat>, StoreError> {
        self.write(move |tx| rows::directive_beat(tx, territory, holding, progress.as_ref(), times, now)).await
    }

    /// Stores a chunk of output once.
    pub async fn put_chunk(
        &self,
        territory: Territory,
        holding: Holding,
        chunk: NewChunk,
        now: i64,
    ) -> Result<Reported<ChunkState>, StoreError> {
        self.write(move |tx| rows::put_chunk(tx, territory, holding, &chunk, now)).await
    }

    /// Stores a batch of events once; `true` for a duplicate.
    pub async fn put_events(
        &self,
        territory: Territory,
        holding: Holding,
        seq: i64,
        events: String,
        now: i64,
    ) -> Result<Reported<bool>, StoreError> {
        self.write(move |tx| rows::put_events(tx, territory, holding, seq, &events, now)).await
    }

    /// Stores the end of a directive.
    pub async fn finished(
        &self,
        territory: Territory,
        holding: Holding,
        end: NewEnd,
        now: i64,
    ) -> Result<Reported<EndState>, StoreError> {
        self.write(move |tx| rows::finished(tx, territory, holding, &end, now)).await
    }

    /// Ends or queues again what no daemon reports any more, each directive in a transaction of its own. The server itself is the
    /// caller.
    pub async fn reap(&self, now: i64) -> Result<Reaped, StoreError> {
        let epoch = self.epoch();
        let mut reaped = Reaped::default();
        for id in self.read(move |tx| rows::due(tx, epoch, now)).await? {
            match self.write(move |tx| rows::reap(tx, &id, epoch, now)).await {
                Ok(Some(effect)) => {
                    reaped.changed.push(id);
                    reaped.lanes.extend(effect.lane);
                }
                Ok(None) => {}
                // What was done so far is reported; the next round meets the failure again.
                Err(_) if !reaped.changed.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(reaped)
    }

    /// Moves all leases by a jump of the clock. The server itself is the caller.
    pub async fn shift_leases(&self, jump: Jump) -> Result<(), StoreError> {
        self.write(move |tx| rows::shift_leases(tx, jump)).await
    }
}
