//! Bodies of the fleet's calls: what is read writes itself, a cut body is none, and the hash of an end leaves out what it says.

use nexus_api::conduits::{
    ArtifactChunkRequest, ArtifactRequest, CertificateRequest, ClaimedDirective, EnrollAnswer, EnrollRequest,
    EventsRequest, FinishedRequest, HeartbeatRequest, LogChunkRequest, PollAnswer, PollRequest, StartedRequest,
    TerritoryHeartbeatAnswer, TerritoryHeartbeatRequest,
};
use nexus_api::mothership::{CancelRequest, CreateApiKey, CreateDirective, CreateEnrollmentToken, CreateFacility};
use nexus_api::payload;
use nexus_model::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A body that a daemon or a user sends, or one that the control plane answers with.
pub fn wire(data: &[u8]) {
    one::<EnrollRequest>(data);
    one::<CertificateRequest>(data);
    one::<TerritoryHeartbeatRequest>(data);
    one::<PollRequest>(data);
    one::<StartedRequest>(data);
    one::<HeartbeatRequest>(data);
    one::<LogChunkRequest>(data);
    one::<EventsRequest>(data);
    one::<ArtifactRequest>(data);
    one::<ArtifactChunkRequest>(data);
    one::<CreateDirective>(data);
    one::<CreateFacility>(data);
    one::<CreateEnrollmentToken>(data);
    one::<CreateApiKey>(data);
    one::<CancelRequest>(data);
    // A daemon reads these of a control plane that it trusts less than itself.
    one::<EnrollAnswer>(data);
    one::<PollAnswer>(data);
    one::<ClaimedDirective>(data);
    one::<TerritoryHeartbeatAnswer>(data);
    finished(data);
}

fn finished(data: &[u8]) {
    one::<FinishedRequest>(data);
    let Ok(read) = serde_json::from_slice::<FinishedRequest>(data) else { return };
    let hash = hash_of(&read);
    let later = FinishedRequest { finished_at: None, timing: None, receipt: None, ..read.clone() };
    assert_eq!(hash_of(&later), hash, "times and receipt are part of the hash of {read:?}");
    let other = FinishedRequest { exit_code: Some(read.exit_code.map_or(1, |code| code.wrapping_add(1))), ..read };
    assert_ne!(hash_of(&other), hash, "another end has the same hash: {other:?}");
}

fn hash_of(request: &FinishedRequest) -> Digest {
    payload::hash(&serde_json::to_value(request).unwrap_or_default())
}

fn one<T: Serialize + DeserializeOwned>(data: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(data) else { return };
    let name = std::any::type_name::<T>();
    let Ok(written) = serde_json::to_vec(&read) else { panic!("a {name} was read and cannot be written") };
    let again = match serde_json::from_slice::<T>(&written) {
        Ok(again) => again,
        Err(error) => panic!("a {name} does not read itself: {error}: {}", String::from_utf8_lossy(&written)),
    };
    let twice = serde_json::to_vec(&again).unwrap_or_default();
    assert_eq!(
        String::from_utf8_lossy(&twice),
        String::from_utf8_lossy(&written),
        "a {name} is written as another one"
    );
    for cut in (0..written.len()).step_by(1 + written.len() / 32) {
        assert!(serde_json::from_slice::<T>(&written[..cut]).is_err(), "{cut} bytes of a {name} are read as a whole");
    }
}
