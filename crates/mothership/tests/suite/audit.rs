//! The audit chain: every act has its event, and no change of the stored chain stays unseen.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use crate::support::browser::Browser;
use crate::support::{Server, end, other_account, plain};
use nexus_api::audit::{AuditEvent, Check, Fault, signed_head};
use nexus_api::conduits::{PollRequest, StartedRequest};
use nexus_api::mothership::{CancelRequest, CreateApiKey, Role};
use nexus_model::directive::FinishStatus;
use nexus_mothership::check_head;
use std::time::Instant;

async fn events(server: &Server) -> Vec<AuditEvent> {
    let lines = server.owner().audit_lines(0, false).await.unwrap();
    lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// Faults that an export has against the head of the server.
async fn faults(server: &Server) -> Vec<Fault> {
    let head = server.owner().audit_events(None, 1).await.unwrap().head;
    let mut check = Check::new(head.account, None);
    events(server).await.iter().for_each(|event| check.push(event));
    check.end(Some(head)).1
}

#[tokio::test(flavor = "multi_thread")]
async fn every_act_writes_one_event_with_its_actor() {
    let server = Server::start().await;
    let owner = server.owner();
    let daemon = server.territory("one").await;
    let facility = server.facility().await;
    let id = owner.create_directive(facility, &plain("secret-word"), None).await.unwrap().directive_id;
    let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
    for _ in 0..2 {
        daemon.started(id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        owner.cancel(id, &CancelRequest::default()).await.unwrap();
    }
    for _ in 0..2 {
        daemon.finished(id, &claim.directive_token, &end(FinishStatus::Canceled)).await.unwrap();
    }
    let key = owner.create_api_key(&CreateApiKey { role: Role::Viewer, name: None }).await.unwrap();
    let (url, viewer) = (Browser::new(&server), key.api_key.clone());
    tokio::task::spawn_blocking(move || assert_eq!(url.post("/login", &[("key", &viewer)]).status, 303)).await.unwrap();
    owner.delete_api_key(&key.api_key_id).await.unwrap();
    let territory = owner.territories().await.unwrap().territories[0].territory_id;
    owner.drain(territory).await.unwrap();
    owner.revoke(territory).await.unwrap();
    let all = events(&server).await;
    let named: Vec<(&str, &str)> = all.iter().map(|event| (event.action.as_str(), event.actor.kind.as_str())).collect();
    let expected = [
        ("api_key.create", "server"),
        ("enrollment_token.create", "api_key"),
        ("territory.enrolled", "territory"),
        ("territory.online", "territory"),
        ("facility.create", "api_key"),
        ("directive.create", "api_key"),
        ("directive.start", "territory"),
        ("directive.cancel", "api_key"),
        ("directive.end", "territory"),
        ("api_key.create", "api_key"),
        ("session.begin", "api_key"),
        ("api_key.delete", "api_key"),
        ("territory.drain", "api_key"),
        ("territory.revoke", "api_key"),
    ];
    assert_eq!(named, expected, "a repetition is no second act");
    assert_eq!(all.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=14).collect::<Vec<u64>>());
    let text = serde_json::to_string(&all).unwrap();
    assert!(!text.contains("secret-word") && !text.contains("nxk_"), "{text}");
    assert_eq!(all[8].object, format!("directive/{id}"));
    assert_eq!(faults(&server).await, []);
    // Pages go back without a gap, and another account sees none of it.
    let page = owner.audit_events(None, 10).await.unwrap();
    let before = owner.audit_events(page.next_before, 10).await.unwrap();
    let seen: Vec<u64> = page.events.iter().chain(&before.events).map(|event| event.seq).collect();
    assert_eq!((seen, before.next_before), ((1..=14).rev().collect(), None));
    let other = server.http();
    let other = nexus_api::client::MothershipClient::new(&other, &other_account(&server)).unwrap();
    assert!(other.audit_events(None, 10).await.unwrap().events.is_empty());
    let ocsf = String::from_utf8(owner.audit_lines(12, true).await.unwrap()).unwrap();
    assert!(ocsf.lines().count() == 2 && ocsf.contains("\"class_uid\":6003"), "{ocsf}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_stored_chain_is_named() {
    let changes: &[(&str, &str, Fault)] = &[
        ("edited", "UPDATE audit_event SET action = 'directive.none' WHERE seq = 5;", Fault::Edited { seq: 5 }),
        ("removed", "DELETE FROM audit_event WHERE seq = 4;", Fault::Removed { first: 4, last: 4 }),
        ("cut", "DELETE FROM audit_event WHERE seq > 6;", Fault::Removed { first: 7, last: 8 }),
        (
            "moved",
            "UPDATE audit_event SET seq = 100 WHERE seq = 3; UPDATE audit_event SET seq = 3 WHERE seq = 4;
             UPDATE audit_event SET seq = 4 WHERE seq = 100;",
            Fault::Edited { seq: 3 },
        ),
        (
            "inserted",
            "UPDATE audit_event SET seq = seq + 100 WHERE seq >= 6; UPDATE audit_event SET seq = seq - 99 WHERE seq >= 100;
             INSERT INTO audit_event (id, account_id, at, actor, action, object, detail, seq, prev, hash)
               SELECT {00000000000000000000000000000001}, account_id, at, actor, action, object, detail, 6, prev, hash
               FROM audit_event WHERE seq = 5;",
            Fault::Edited { seq: 6 },
        ),
    ];
    for (name, statements, expected) in changes {
        let server = Server::start().await;
        for _ in 0..6 {
            server.facility().await;
        }
        let browser = Browser::enter(&server, &server.key);
        assert_eq!(faults(&server).await, [], "{name}");
        assert_eq!(server.number("SELECT max(seq) FROM audit_event"), 8, "{name}");
        server.change(statements);
        let found = faults(&server).await;
        assert!(found.contains(expected), "{name}: {found:?}");
        let page = tokio::task::spawn_blocking(move || browser.get("/audit?verify=1").body).await.unwrap();
        assert!(page.contains("The chain was changed") && page.contains(&expected.to_string()), "{name}: {page}");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_100_000_events_is_sealed_and_checked_in_time() {
    let server = Server::start().await;
    server.facility().await;
    assert_eq!(faults(&server).await, []);
    let copies = if server.database.is_some() {
        "INSERT INTO audit_event (id, account_id, at, actor, action, object, detail)
           SELECT decode('ffffffff' || lpad(to_hex(n), 24, '0'), 'hex'), account_id, at, actor, action, object || n, detail
           FROM audit_event, generate_series(1, 99998) AS n WHERE seq = 2;"
    } else {
        "INSERT INTO audit_event (id, account_id, at, actor, action, object, detail)
           WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 99998)
           SELECT unhex('ffffffff' || printf('%024x', n)), account_id, at, actor, action, object || n, detail
           FROM audit_event, n WHERE seq = 2;"
    };
    server.change(copies);
    let begun = Instant::now();
    let head = server.owner().audit_events(None, 1).await.unwrap().head;
    println!("99,998 events sealed in {:.2} s", begun.elapsed().as_secs_f64());
    assert_eq!(head.seq, 100_000);
    let browser = std::sync::Arc::new(Browser::enter(&server, &server.key));
    let begun = Instant::now();
    let mine = std::sync::Arc::clone(&browser);
    let page = tokio::task::spawn_blocking(move || mine.get("/audit?verify=1").body).await.unwrap();
    println!("100,001 events verified in {:.2} s", begun.elapsed().as_secs_f64());
    assert!(page.contains("The chain of 100001 events is whole"), "{page}");
    server.change(
        "UPDATE audit_event SET object = 'facility/x' WHERE seq = 77777; DELETE FROM audit_event WHERE seq = 50000;",
    );
    let page = tokio::task::spawn_blocking(move || browser.get("/audit?verify=1").body).await.unwrap();
    for fault in ["event 77777 was edited", "event 50000 is missing"] {
        assert!(page.contains(fault), "{fault}: {page}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_has_grown_gets_a_signed_head_at_intervals() {
    let server = Server::start_with(|config| config.head_every = std::time::Duration::from_secs(20)).await;
    server.facility().await;
    let first = server.owner().audit_events(None, 1).await.unwrap().signed_head.unwrap();
    assert_eq!((first.seq, check_head(&first, None)), (2, Ok(())));
    // Only a chain that has grown gets one more.
    for (advance, expected) in [(0, vec![]), (27_000, vec![3]), (54_000, vec![3])] {
        server.advance(advance).await;
        tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        let all = events(&server).await;
        let heads: Vec<u64> = all.iter().filter(|event| event.action == "audit.head").map(|event| event.seq).collect();
        assert_eq!(heads, expected, "after {advance} ms");
    }
    let all = events(&server).await;
    let inside = signed_head(&all[2]).unwrap();
    assert_eq!((inside.seq, inside.hash, inside.key.as_str()), (2, all[1].hash, first.key.as_str()));
    assert_eq!(check_head(&inside, Some(&first.key)), Ok(()));
    assert_eq!((all[2].object.as_str(), all[2].actor.kind.as_str()), ("audit/2", "server"));
    assert_eq!(faults(&server).await, []);
    // The key stays that of the store, and the head of before stands in the chain of later.
    let server = server.restart().await;
    server.facility().await;
    let later = server.owner().audit_events(None, 1).await.unwrap().signed_head.unwrap();
    assert_eq!((later.key == first.key, later.seq), (true, 4));
    let mut check = Check::new(first.account, None);
    check.contains(&first.head());
    events(&server).await.iter().for_each(|event| check.push(event));
    assert_eq!(check.end(Some(later.head())).1, []);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_removes_from_the_front_leaves_a_whole_chain() {
    let server = Server::start_with(|config| config.retention.audit_ms = 60_000).await;
    for _ in 0..5 {
        server.facility().await;
    }
    assert_eq!(events(&server).await.len(), 6);
    server.jump(120_000).await;
    server.facility().await;
    for _ in 0..100 {
        server.tidy();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        if events(&server).await.len() == 1 {
            break;
        }
    }
    let left = events(&server).await;
    assert_eq!(left.iter().map(|event| event.seq).collect::<Vec<_>>(), [7], "{left:?}");
    assert_eq!(server.owner().audit_events(None, 5).await.unwrap().first_seq, 7);
    assert_eq!(faults(&server).await, []);
    let browser = Browser::enter(&server, &server.key);
    let page = tokio::task::spawn_blocking(move || browser.get("/audit?verify=1").body).await.unwrap();
    assert!(page.contains("is whole"), "{page}");
    server.stop().await;
}
