//! The operations of the store on kept files, on typed events, and on what is old.

use super::error::StoreError;
use super::operations::Store;
use super::rows;
use super::types::{
    Account, AnnouncedArtifact, Artifact, ArtifactBounds, Compaction, Holding, NewArtifact, Reported, Retention, Swept,
    Territory,
};
use nexus_api::mothership::Artifact as View;
use nexus_model::ids::DirectiveId;

impl Store {
    /// Stores the announcement of a file once.
    pub async fn announce_artifact(
        &self,
        territory: Territory,
        holding: Holding,
        new: NewArtifact,
        bounds: ArtifactBounds,
        now: i64,
    ) -> Result<Reported<AnnouncedArtifact>, StoreError> {
        self.write(move |tx| rows::artifact::announce(tx, territory, holding, &new, bounds, now)).await
    }

    /// Returns a file that the territory may go on with.
    pub async fn artifact_upload(
        &self,
        territory: Territory,
        holding: Holding,
        id: [u8; 16],
        now: i64,
    ) -> Result<Reported<Artifact>, StoreError> {
        self.read(move |tx| rows::artifact::upload(tx, territory, holding, id, now)).await
    }

    /// Notes bytes of a file that are on the disk; `false` when another call was faster. The caller has the rights to the file.
    pub async fn artifact_received(&self, id: [u8; 16], from: u64, to: u64) -> Result<bool, StoreError> {
        self.write(move |tx| rows::artifact::received(tx, id, from, to)).await
    }

    /// Ends the upload of a file, or lets it begin afresh. Returns whether this call did so. The caller has the rights to the file.
    pub async fn artifact_checked(&self, id: [u8; 16], is_good: bool) -> Result<bool, StoreError> {
        self.write(move |tx| rows::artifact::checked(tx, id, is_good)).await
    }

    /// Lists the kept files of the account's directive.
    pub async fn artifacts(
        &self,
        account: Account,
        directive: DirectiveId,
        attempt: Option<u32>,
    ) -> Result<Vec<View>, StoreError> {
        self.read(move |tx| rows::artifact::list(tx, account, directive, attempt)).await
    }

    /// Returns the typed events of the account's directive.
    pub async fn events(
        &self,
        account: Account,
        directive: DirectiveId,
        attempt: Option<u32>,
    ) -> Result<Vec<serde_json::Value>, StoreError> {
        self.read(move |tx| rows::events(tx, account, directive, attempt)).await
    }

    /// Removes one batch of what is older than its days. The server itself is the caller.
    pub async fn sweep(&self, times: Retention, now: i64) -> Result<Swept, StoreError> {
        self.write(move |tx| rows::retain::sweep(tx, times, now)).await
    }

    /// Returns the latest time at which a territory spoke to a server. The server itself is the caller.
    pub async fn last_seen(&self) -> Result<Option<i64>, StoreError> {
        self.read(rows::retain::last_seen).await
    }

    /// Reports which of these files have a row. The server itself is the caller.
    pub async fn known_blobs(&self, ids: Vec<[u8; 16]>) -> Result<Vec<bool>, StoreError> {
        self.read(move |tx| rows::retain::known_blobs(tx, &ids)).await
    }

    /// Returns a directive whose output lies in rows and has been over for a while. The server itself is the caller.
    pub async fn to_compact(&self, now: i64) -> Result<Option<[u8; 16]>, StoreError> {
        self.read(move |tx| rows::compact::candidate(tx, now)).await
    }

    /// Returns the next stream of a directive that becomes a file. The server itself is the caller.
    pub async fn stream_to_compact(&self, directive: [u8; 16]) -> Result<Option<Compaction>, StoreError> {
        self.read(move |tx| rows::compact::stream_of(tx, &directive)).await
    }

    /// Puts a file that is on the disk in the place of chunks; `false` when another chunk came meanwhile.
    pub async fn swap_log(&self, done: Compaction, now: i64) -> Result<bool, StoreError> {
        self.write(move |tx| rows::compact::swap(tx, &done, now)).await
    }

    /// Notes that nothing of a directive is left to compact. The server itself is the caller.
    pub async fn compacted(&self, directive: [u8; 16]) -> Result<(), StoreError> {
        self.write(move |tx| rows::compact::settled(tx, &directive)).await
    }

    /// Returns one kept file of the account's directive.
    pub async fn artifact(
        &self,
        account: Account,
        directive: DirectiveId,
        id: [u8; 16],
    ) -> Result<Artifact, StoreError> {
        self.read(move |tx| rows::artifact::get(tx, account, directive, id)).await
    }
}
