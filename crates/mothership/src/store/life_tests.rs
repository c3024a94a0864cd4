//! The subject of the tests of cost: an account with one territory, and lives of its directives.

use super::Store;
use super::types::{
    Account, Creation, EndResult, Enrolment, Holding, LeaseTimes, NewChunk, NewEnd, NewFacility, NewTerritory, Offer,
    Presence, Reported, Territory,
};
use nexus_api::Labels;
use nexus_api::conduits::{Capacity, Stream};
use nexus_api::mothership::FacilityKind;
use nexus_model::directive::FinishStatus;
use nexus_model::ids::DirectiveId;
use std::time::{Duration, Instant};

/// Number of stored directives, of either kind: 100,000 unless `NEXUS_SOAK_STORED` says otherwise.
pub fn stored() -> u32 {
    std::env::var("NEXUS_SOAK_STORED").map_or(100_000, |text| text.parse().unwrap())
}

const TIMES: LeaseTimes = LeaseTimes { ttl_ms: 60_000, start_ms: 8_000, offline_ms: 90_000, prepare_ms: 600_000 };

pub struct Subject {
    pub store: Store,
    pub account: Account,
    pub territory: Territory,
}

impl Subject {
    pub async fn of(store: Store) -> Self {
        store.first_account([1; 32], 1).await.unwrap();
        let account = store.key_by_hash([1; 32]).await.unwrap().unwrap();
        store.create_enroll_token(account, [2; 32], None, Labels::default(), [i64::MAX, 1]).await.unwrap();
        let capacity: Capacity = serde_json::from_value(serde_json::json!({"max_concurrent": 1000})).unwrap();
        let new = NewTerritory {
            token: [2; 32],
            csr_key: None,
            source: String::new(),
            max_tries: 10,
            kind: None,
            name: None,
            display_name: None,
            platform: None,
            labels: Labels::default(),
            capacity,
        };
        let Enrolment::Enrolled { territory, .. } = store.enroll(new, 1).await.unwrap() else {
            panic!("not enrolled");
        };
        Self { store, account, territory }
    }

    /// Lists more directives than one statement takes, and commands that are longer than a row shows.
    pub async fn lists_in_parts(&self) {
        let mut made = Vec::new();
        for _ in 0..230 {
            made.push(self.create_with(&"x".repeat(5_000)).await);
        }
        made.sort_by_key(|id| std::cmp::Reverse(*id.as_bytes()));
        for limit in [1, 99, 100, 101, 200, 229, 230, 231, 10_000] {
            let page = super::types::Page { before: None, limit };
            let lines = self.store.directive_lines(self.account, None, page).await.unwrap();
            let ids: Vec<_> = lines.iter().map(|line| line.id).collect();
            assert_eq!(ids, made[..made.len().min(limit as usize)], "{limit}");
            assert!(lines.iter().all(|line| line.command.len() == 200), "a list keeps no whole command");
        }
    }

    async fn create(&self) -> DirectiveId {
        self.create_with("x").await
    }

    async fn create_with(&self, command: &str) -> DirectiveId {
        let new = NewFacility { kind: FacilityKind::Empty, name: None, repo_url: None, pin: None };
        let id = self.store.create_facility(self.account, new, 1).await.unwrap();
        let facility = self.store.facility_ref(self.account, id).await.unwrap();
        let request = serde_json::json!({"command": command, "group": "g", "queue_timeout_seconds": 1_000_000});
        let mut new = crate::decide::build(
            serde_json::from_value(request).unwrap(),
            facility,
            self.account.role,
            &nexus_policy::document::Effective::default(),
            60_000,
        )
        .unwrap();
        new.idempotency = Some((DirectiveId::new().to_string(), "h".into()));
        match self.store.create_directive(self.account, new, 1).await.unwrap() {
            Creation::Stored { id, .. } => id,
            Creation::OtherBody => panic!("another body"),
        }
    }

    /// One life of a directive. Returns how long its claim took.
    pub async fn life(&self) -> Duration {
        let made = self.create().await;
        let offer =
            Offer { profiles: vec!["untrusted".into()], guarantees: None, max: 1, poll_id: Some(made.to_string()) };
        let policies = std::sync::Arc::new(crate::decide::Policies::new(nexus_policy::document::PolicySet::default()));
        let clock = Instant::now();
        let claims = self.store.claim(self.territory, offer, &policies, TIMES, 2).await.unwrap().claims;
        let took = clock.elapsed();
        assert_eq!(claims[0].id, made, "the new directive has the lowest rank");
        let holding = Holding { directive: made, fence: claims[0].fence };
        self.store.started(self.territory, holding, "v".into(), TIMES, 3).await.unwrap();
        self.store.beat(self.territory, holding, None, TIMES, 3).await.unwrap();
        let chunk = NewChunk { stream: Stream::Stdout, seq: 0, bytes: b"x".to_vec(), truncated: false };
        self.store.put_chunk(self.territory, holding, chunk, 4).await.unwrap();
        self.store.directive(self.account, made, TIMES, 4).await.unwrap();
        let end = NewEnd {
            status: FinishStatus::Succeeded,
            reason: None,
            exit_code: Some(0),
            output: Default::default(),
            payload_hash: "p".into(),
            diff: Some(b"d".to_vec()),
            receipt: None,
            result: EndResult::default(),
        };
        let ended = self.store.finished(self.territory, holding, end, 5).await.unwrap();
        assert!(matches!(ended, Reported::Done(_)), "{ended:?}");
        self.store.reap(5).await.unwrap();
        self.store.settle_approvals(5).await.unwrap();
        let beat = Presence {
            labels: None,
            capacity: None,
            nexus_version: None,
            protocol_version: None,
            running: None,
            directives: Vec::new(),
        };
        self.store.presence(self.territory, beat, TIMES, 6).await.unwrap();
        took
    }

    /// Returns how long a claim takes: the median of some lives.
    pub async fn claim(&self) -> Duration {
        let mut times = Vec::new();
        for _ in 0..21 {
            times.push(self.life().await);
        }
        times.sort();
        times[10]
    }
}
