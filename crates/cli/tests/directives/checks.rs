//! Rules that the ends of all directives keep.

use super::{Asked, Kind, Scene, log};
use nexus_api::base64;
use nexus_api::client::MothershipClient;
use nexus_api::mothership::Directive;
use nexus_model::Digest;
use nexus_model::directive::State;
use nexus_model::ids::{DirectiveId, FacilityId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Reports whether the claim of a directive was lost: by what its daemon says, or, of one that does not come back, by what is known.
fn is_lost(over: &Directive) -> bool {
    matches!(over.reason.as_deref(), Some("lease_lost" | "commit_unknown"))
}

/// Checks each end, each log and each receipt.
pub async fn check_all(client: &MothershipClient, asked: &BTreeMap<DirectiveId, Asked>, killed: &[DirectiveId]) {
    for (id, Asked { number, kind, over, .. }) in asked {
        let over = over.as_ref().unwrap();
        let (state, exit) = kind.end();
        let what = format!("{number} {kind:?}: {over:?}");
        if is_lost(over) {
            assert!(over.state == State::Failed && killed.contains(id), "no other daemon lost work: {what}");
            assert_ne!(*kind, Kind::Requeues, "it runs again: {what}");
            continue;
        }
        assert_eq!(over.state, state, "{what}");
        if exit.is_some() {
            assert_eq!(over.exit_code, exit, "{what}");
        }
        assert_eq!(over.reason.as_deref(), Some(kind.reason()), "{what}");
        assert!(over.attempt == 1 || killed.contains(id), "{what}");
        let log = log(client, *id).await;
        // What a killed daemon had in memory is missing, and said to be.
        assert!(!over.stdout_truncated || *kind == Kind::PrintsTooMuch || killed.contains(id), "{what}");
        if let Some(expected) = kind.output(*number)
            && !over.stdout_truncated
        {
            assert_eq!(String::from_utf8_lossy(&log), expected, "{what}");
        }
        let receipt = client.receipt(*id).await.unwrap_or_else(|error| panic!("{error}: {what}"));
        check_receipt(&receipt, over, &log, &what);
        assert!(!over.diff_truncated || killed.contains(id), "{what}");
        if kind.marks() && !over.diff_truncated {
            check_diff(client, *id, *number, &what).await;
        }
        if *kind == Kind::AsksElsewhere && !killed.contains(id) {
            check_refusal(client, *id, &what).await;
        }
        if *kind == Kind::Keeps && !killed.contains(id) {
            check_kept(client, *id, *number, &what).await;
        }
    }
}

/// The receipt states the same exit code, and signs the output that the control plane stored.
pub fn check_receipt(receipt: &Value, over: &Directive, log: &[u8], what: &str) {
    let payload = base64::decode(receipt["payload"].as_str().unwrap()).unwrap();
    let stated: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(stated["exit"]["code"].as_i64(), over.exit_code, "{what}");
    if !over.stdout_truncated {
        assert_eq!(stated["output"]["stdout"]["bytes"].as_u64(), Some(log.len() as u64), "{what}");
        assert_eq!(stated["output"]["stdout"]["hash"].as_str(), Some(&*Digest::of(log).to_string()), "{what}");
    }
}

/// The diff adds the mark of this directive and no other one.
async fn check_diff(client: &MothershipClient, id: DirectiveId, number: usize, what: &str) {
    let diff = client.diff(id).await.unwrap_or_else(|error| panic!("{error}: {what}"));
    // A commit of git brings binary bytes.
    let diff = String::from_utf8_lossy(&diff);
    let marks = diff.split("diff --git ").find(|file| file.starts_with("a/marks b/marks")).unwrap_or_default();
    let added: Vec<&str> = marks.lines().filter(|line| line.starts_with('+') && !line.starts_with("+++")).collect();
    assert_eq!(added, [format!("+{number}")], "{diff}: {what}");
}

/// The network of the directive decided about the destination that its list does not have.
async fn check_refusal(client: &MothershipClient, id: DirectiveId, what: &str) {
    let is_refusal = |event: &Value| {
        event["type"] == "egress_decision" && event["code"] == "NOT_IN_ALLOWLIST" && event["allowed"] == false
    };
    // Events follow the report of the end, and are sent again where no answer came.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let events = client.event_list(id).await.unwrap().events;
        if events.iter().any(is_refusal) {
            return;
        }
        assert!(events.is_empty() && Instant::now() < deadline, "{events:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub async fn check_kept(client: &MothershipClient, id: DirectiveId, number: usize, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let list = client.artifacts(id).await.unwrap().artifacts;
        if let Some(one) = list.iter().find(|one| one.complete) {
            assert_eq!((one.name.clone(), list.len()), (format!("out/{number}"), 1), "{what}");
            let bytes = client.artifact(id, &one.artifact_id, 0).await.unwrap();
            assert_eq!(bytes, format!("kept {number}\n").into_bytes(), "{what}");
            return;
        }
        assert!(Instant::now() < deadline, "its file does not come: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Each directive in a clone says the commit that it found and the one that it left; both are those of its neighbours. Returns how many did.
pub async fn check_heads(
    client: &MothershipClient,
    asked: &BTreeMap<DirectiveId, Asked>,
    killed: &[DirectiveId],
    first: &str,
) -> usize {
    let mut by_facility: BTreeMap<FacilityId, Vec<(i64, String, String)>> = BTreeMap::new();
    let mut found = 0;
    for (id, one) in asked.iter().filter(|(_, one)| one.kind == Kind::Commits) {
        let over = client.directive(*id).await.unwrap();
        if killed.contains(id) {
            // What became of its commit is not always known.
            by_facility.entry(one.facility).or_default().push((0, String::new(), String::new()));
            continue;
        }
        let commit = |snapshot: &Option<Value>| {
            let text = snapshot.as_ref().and_then(|snapshot| snapshot["head"]["commit"].as_str());
            text.unwrap_or_else(|| panic!("no commit: {over:?}")).to_owned()
        };
        let (before, after) = (commit(&over.snapshot_before), commit(&over.snapshot_after));
        let log = String::from_utf8(log(client, *id).await).unwrap();
        assert_eq!(log.lines().last(), Some(&*after), "{over:?}");
        assert_ne!(before, after, "{over:?}");
        by_facility.entry(one.facility).or_default().push((over.started_at.unwrap().0, before, after));
        found += 1;
    }
    for heads in by_facility.values_mut().filter(|heads| heads.iter().all(|(started, ..)| *started > 0)) {
        heads.sort_unstable();
        assert_eq!(heads[0].1, first, "the clone has the commit of the repository");
        for pair in heads.windows(2) {
            assert_eq!(pair[0].2, pair[1].1, "the next directive finds what this one left");
        }
    }
    found
}

/// By the clock of the control plane no two directives of a facility run at one time.
pub fn check_one_at_a_time(asked: &BTreeMap<DirectiveId, Asked>, killed: &[DirectiveId]) {
    let mut by_facility: BTreeMap<FacilityId, Vec<(i64, i64, usize)>> = BTreeMap::new();
    for (id, one) in asked.iter().filter(|(id, _)| !killed.contains(id)) {
        let over = one.over.as_ref().unwrap();
        assert_eq!(over.directive_id, *id);
        if let (Some(started), Some(ended)) = (over.started_at, over.ended_at) {
            by_facility.entry(one.facility).or_default().push((started.0, ended.0, one.number));
        }
    }
    for times in by_facility.values_mut() {
        times.sort_unstable();
        for pair in times.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "two directives of a facility at one time: {pair:?}");
        }
    }
}

/// The workspaces hold the mark of each directive that ended on its own once, and of no other one.
pub fn check_marks(
    scene: &Scene,
    asked: &BTreeMap<DirectiveId, Asked>,
    killed: &[DirectiveId],
    territories: &[String],
) {
    let mut marks: BTreeMap<usize, usize> = BTreeMap::new();
    for number in 0..territories.len() {
        let facilities = scene.territory(number).join("facilities");
        for facility in std::fs::read_dir(&facilities).unwrap() {
            let text = std::fs::read_to_string(facility.unwrap().path().join("tree/marks")).unwrap_or_default();
            text.lines().for_each(|line| *marks.entry(line.parse().unwrap()).or_default() += 1);
        }
    }
    for (id, one) in asked {
        let found = marks.get(&one.number).copied().unwrap_or_default();
        let over = one.over.as_ref().unwrap();
        match (one.kind.marks(), is_lost(over)) {
            (true, false) => assert_eq!(found, 1, "{} is committed once: {over:?}", one.number),
            (true, true) => assert!(found <= 1 && killed.contains(id), "{} is committed twice: {over:?}", one.number),
            (false, _) => assert_eq!(found, 0, "{}: {over:?}", one.number),
        }
    }
}
