//! Many directives, what was asked for, and the rules that their ends keep.

#![allow(dead_code, reason = "each test uses a part")]

pub mod checks;
mod kinds;
pub mod relay;
mod repository;
mod scene;
pub mod wire;

pub use checks::{check_all, check_marks, check_one_at_a_time};
pub use kinds::Kind;
pub use repository::Repository;
pub use scene::Scene;

use nexus_api::base64;
use nexus_api::client::{ListQuery, LogQuery, MothershipClient};
use nexus_api::conduits::Stream;
use nexus_api::mothership::{CancelRequest, CreateFacility, Directive, FacilityKind};
use nexus_model::directive::State;
use nexus_model::ids::{DirectiveId, FacilityId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const FACILITIES: usize = 12;
/// Facilities with a clone of the repository, where there is one.
const CLONES: usize = 2;
pub const DAEMONS: usize = 3;

/// Number of directives: 60 unless `NEXUS_SOAK_DIRECTIVES` says otherwise.
pub fn count() -> usize {
    std::env::var("NEXUS_SOAK_DIRECTIVES").map_or(60, |text| text.parse().unwrap())
}

/// A directive that was asked for, with the answers so far.
pub struct Asked {
    pub number: usize,
    pub kind: Kind,
    pub facility: FacilityId,
    /// The first terminal answer.
    pub over: Option<Directive>,
}

/// Creates facilities and directives. The first facilities lie on these territories, the others where their first directive goes. Some
/// directives work in clones of the repository.
pub async fn create_all(
    client: &MothershipClient,
    count: usize,
    territories: &[String],
    repository: Option<&Repository>,
) -> BTreeMap<DirectiveId, Asked> {
    let mut facilities = Vec::new();
    for number in 0..FACILITIES {
        let kind = FacilityKind::Empty;
        let territory_id = territories.get(number).map(|id| id.parse().unwrap());
        let new = CreateFacility { kind, name: None, repo_url: None, territory_id, retention_policy: None };
        facilities.push(client.create_facility(&new).await.unwrap().facility_id);
    }
    let mut clones = Vec::new();
    for _ in repository.iter().flat_map(|_| 0..CLONES) {
        let repo_url = repository.map(|repository| repository.url.clone());
        let kind = FacilityKind::Repo;
        let new = CreateFacility { kind, name: None, repo_url, territory_id: None, retention_policy: None };
        clones.push(client.create_facility(&new).await.unwrap().facility_id);
    }
    let mut asked = BTreeMap::new();
    for number in 0..count {
        let (kind, facility) = match repository {
            Some(_) if number % 12 == 10 => (Kind::Commits, clones[number / 12 % CLONES]),
            _ => (Kind::of(number), facilities[number % FACILITIES]),
        };
        let (mut request, name) = (kind.request(number), format!("directive {number}"));
        if let Some(repository) = repository.filter(|_| kind == Kind::Commits) {
            let net = json!({"net": {"mode": "allowlist", "allow": [repository.destination]}});
            request.requested_capabilities = Some(serde_json::from_value(net).unwrap());
        }
        let id = client.create_directive(facility, &request, Some(&name)).await.unwrap().directive_id;
        if number % 4 == 0 {
            let again = client.create_directive(facility, &request, Some(&name)).await.unwrap().directive_id;
            assert_eq!(again, id, "a repeated call creates nothing");
        }
        asked.insert(id, Asked { number, kind, facility, over: None });
    }
    asked
}

/// Follows all directives to their end, cancels those that are to be canceled, kills a daemon, and lets `at_half` do
/// something else when half of them are over. Returns the
/// directives that the killed daemon had.
pub async fn watch(
    client: &MothershipClient,
    asked: &mut BTreeMap<DirectiveId, Asked>,
    scene: &mut Scene,
    count: usize,
    mut at_half: impl FnMut(&mut Scene),
) -> Vec<DirectiveId> {
    let (mut killed, mut is_half) = (None, false);
    let deadline = Instant::now() + Duration::from_secs(120 + count as u64);
    let mut canceled = Vec::new();
    loop {
        let all = list(client).await;
        for one in &all {
            let known = asked.get_mut(&one.directive_id).unwrap();
            if let Some(over) = &known.over {
                assert_eq!((over.state, &over.reason, over.exit_code), (one.state, &one.reason, one.exit_code));
                assert_eq!(over.attempt, one.attempt, "a terminal state changed");
            } else if one.state.is_terminal() {
                known.over = Some(one.clone());
            } else if one.state == State::Running
                && known.kind == Kind::Canceled
                && !canceled.contains(&one.directive_id)
            {
                client.cancel(one.directive_id, &CancelRequest::default()).await.unwrap();
                canceled.push(one.directive_id);
            }
        }
        let over = asked.values().filter(|known| known.over.is_some()).count();
        if over == count {
            return killed.unwrap_or_default();
        }
        if killed.is_none() && over >= count / 3 {
            killed = Some(kill_one(client, scene).await);
        }
        if !is_half && killed.is_some() && over >= count / 2 {
            is_half = true;
            at_half(scene);
        }
        assert!(Instant::now() < deadline, "{over} of {count} ended: {:?}", pending(&all));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn pending(all: &[Directive]) -> Vec<(DirectiveId, State, Option<&String>)> {
    let open = all.iter().filter(|one| !one.state.is_terminal());
    open.map(|one| (one.directive_id, one.state, one.queued_because.as_ref())).collect()
}

/// Kills the first daemon that has work, and starts it again a second later.
pub async fn kill_one(client: &MothershipClient, scene: &mut Scene) -> Vec<DirectiveId> {
    let id_of = |data: PathBuf| {
        let text = std::fs::read_to_string(data.join("identity.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["territory_id"].as_str().unwrap().to_owned()
    };
    loop {
        let all = list(client).await;
        for number in 0..DAEMONS {
            let territory = id_of(scene.territory(number));
            let is_here = |one: &&Directive| {
                matches!(one.state, State::Running | State::Leased)
                    && one.territory_id.is_some_and(|id| id.to_string() == territory)
            };
            if !all.iter().any(|one| is_here(&one)) {
                continue;
            }
            scene.kill(1 + number);
            // What was open at the moment of the kill: it reports nothing more.
            let had = list(client).await.iter().filter(is_here).map(|one| one.directive_id).collect();
            tokio::time::sleep(Duration::from_secs(1)).await;
            scene.daemon(number);
            return had;
        }
    }
}

pub async fn list(client: &MothershipClient) -> Vec<Directive> {
    let (mut all, mut query) = (Vec::new(), ListQuery { cursor: None, limit: Some(200) });
    loop {
        let page = client.directives(None, &query).await.unwrap();
        all.extend(page.directives);
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return all,
        }
    }
}

pub async fn log(client: &MothershipClient, id: DirectiveId) -> Vec<u8> {
    let (mut bytes, mut after_seq) = (Vec::new(), -1);
    loop {
        let query = LogQuery { stream: Stream::Stdout, after_seq, limit: None, attempt: None };
        let page = client.log_chunks(id, &query).await.unwrap();
        if page.chunks.is_empty() {
            return bytes;
        }
        after_seq = page.next_after_seq;
        page.chunks.iter().for_each(|chunk| bytes.extend(base64::decode(&chunk.bytes_base64).unwrap()));
    }
}
