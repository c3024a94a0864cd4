use super::*;
use std::time::Instant;

fn account() -> AccountId {
    AccountId::from_bytes([7; 16])
}

fn chain(length: u64) -> (Vec<AuditEvent>, AuditHead) {
    let (mut events, mut prev) = (Vec::new(), origin(account()));
    for seq in 1..=length {
        let event = AuditEvent {
            schema: SCHEMA.to_owned(),
            account: account(),
            seq,
            at: Timestamp(1_700_000_000_000 + seq as i64),
            actor: Actor { kind: "api_key".to_owned(), id: Some(format!("key {}", seq % 7)), role: Some(Role::Owner) },
            action: "directive.create".to_owned(),
            object: format!("directive/{seq}"),
            detail: json!({"facility": seq % 100}),
            prev,
            hash: prev,
        };
        let event = event.sealed();
        prev = event.hash;
        events.push(event);
    }
    (events, AuditHead { account: account(), seq: length, hash: prev })
}

fn faults(events: &[AuditEvent], head: AuditHead) -> Vec<Fault> {
    let mut check = Check::new(account(), Some((1, origin(account()))));
    for event in events {
        check.push(event);
    }
    check.end(Some(head)).1
}

/// Changes the event at `at` so that its hash is right again, as an attacker does who knows the form.
fn rewrite(events: &mut [AuditEvent], at: usize) {
    events[at].object = "directive/another".to_owned();
    events[at] = events[at].clone().sealed();
}

#[test]
fn every_change_of_a_chain_of_100_000_events_is_found_and_named() {
    let (events, head) = chain(100_000);
    let begun = Instant::now();
    assert_eq!(faults(&events, head), []);
    let seconds = begun.elapsed().as_secs_f64();
    println!("100,000 events verified in {seconds:.2} s");
    assert!(seconds < 30.0, "{seconds}");
    // Neighbours, both ends, and places in between.
    for at in [0_usize, 1, 499, 50_000, 99_998, 99_999] {
        let seq = at as u64 + 1;
        // The neighbourhood alone is copied: the rest of the chain is as before.
        let from = at.saturating_sub(2);
        let to = (at + 3).min(events.len());
        let part = |change: &dyn Fn(&mut Vec<AuditEvent>, usize)| {
            let mut part = events[from..to].to_vec();
            change(&mut part, at - from);
            let begin = (events[from].seq, events[from].prev);
            let mut check = Check::new(account(), Some(begin));
            for event in &part {
                check.push(event);
            }
            let last = &events[to - 1];
            check.end(Some(AuditHead { account: account(), seq: last.seq, hash: last.hash })).1
        };
        assert_eq!(part(&|part, at| part[at].detail = json!({})), [Fault::Edited { seq }], "{seq}: edited");
        for field in 0..5 {
            let edited = part(&|part, at| match field {
                0 => part[at].at.0 += 1,
                1 => part[at].actor.id = None,
                2 => part[at].action.push('x'),
                3 => part[at].object.push('x'),
                _ => part[at].hash = origin(account()),
            });
            assert!(edited.contains(&Fault::Edited { seq }), "{seq}, field {field}: {edited:?}");
        }
        let removed = part(&|part, at| drop(part.remove(at)));
        assert_eq!(removed, [Fault::Removed { first: seq, last: seq }], "{seq}: removed");
        let twice = part(&|part, at| part.insert(at, part[at].clone()));
        assert_eq!(twice, [Fault::Misplaced { expected: seq + 1, found: seq }], "{seq}: inserted");
        let replaced = part(&|part, at| rewrite(part, at));
        // The event after it names the one that was there; behind the last one, the head does.
        let expected = if seq == 100_000 { Fault::OtherHead { seq } } else { Fault::Unlinked { seq: seq + 1 } };
        assert_eq!(replaced, [expected], "{seq}: replaced");
        if seq < 100_000 {
            let moved = part(&|part, at| part.swap(at, at + 1));
            let expected =
                [Fault::Removed { first: seq, last: seq }, Fault::Misplaced { expected: seq + 2, found: seq }];
            assert_eq!(moved, expected, "{seq}: moved");
        }
    }
}

#[test]
fn a_chain_that_was_cut_or_goes_on_does_not_have_its_head() {
    let (events, head) = chain(10);
    assert_eq!(faults(&events[..7], head), [Fault::Removed { first: 8, last: 10 }]);
    assert_eq!(faults(&events[3..], head), [Fault::Removed { first: 1, last: 3 }]);
    let earlier = AuditHead { seq: 9, hash: events[8].hash, ..head };
    assert_eq!(faults(&events, earlier), [Fault::Head { expected: 9, found: 10 }]);
    assert_eq!(faults(&[], head), [Fault::Removed { first: 1, last: 10 }]);
    assert_eq!(faults(&[], AuditHead { account: account(), seq: 0, hash: origin(account()) }), []);
    let mut foreign = events.clone();
    foreign[4].account = AccountId::from_bytes([8; 16]);
    foreign[4] = foreign[4].clone().sealed();
    assert!(faults(&foreign, head).contains(&Fault::Foreign { seq: 5 }));
}

#[test]
fn an_event_keeps_its_hash_on_the_wire_and_has_a_form_for_siem_products() {
    let (events, _) = chain(3);
    let text = serde_json::to_string(&events[2]).unwrap();
    let read: AuditEvent = serde_json::from_str(&text).unwrap();
    assert_eq!(read.expected_hash(), events[2].hash);
    let mapped = ocsf(&read, "1.0");
    assert_eq!(
        (&mapped["class_uid"], &mapped["type_uid"], &mapped["time"]),
        (&json!(6003), &json!(600_301), &json!(1_700_000_000_003_i64))
    );
    assert_eq!(mapped["resources"][0], json!({"type": "directive", "uid": "3"}));
    assert_eq!(mapped["metadata"]["uid"], json!(events[2].hash));
}
