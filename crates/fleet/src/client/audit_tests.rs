use super::*;
use nexus_api::Timestamp;
use nexus_api::audit::{Actor, SCHEMA};
use nexus_model::ids::AccountId;
use nexus_mothership::HeadKey;
use serde_json::{Value, json};

fn account() -> AccountId {
    AccountId::from_bytes([7; 16])
}

fn key(byte: u8) -> HeadKey {
    HeadKey::derive(&[byte; 32]).unwrap()
}

/// An act and its detail become the next event.
fn push(events: &mut Vec<AuditEvent>, action: &str, object: &str, detail: Value) {
    let prev = events.last().map_or_else(|| origin(account()), |event| event.hash);
    let actor = Actor { kind: "server".to_owned(), id: None, role: None };
    let event = AuditEvent {
        schema: SCHEMA.to_owned(),
        account: account(),
        seq: events.last().map_or(1, |event| event.seq + 1),
        at: Timestamp(1_800_000_000_000),
        actor,
        action: action.to_owned(),
        object: object.to_owned(),
        detail,
        prev,
        hash: prev,
    };
    events.push(event.sealed());
}

fn receipt() -> Value {
    json!({"payloadType": "application/vnd.nexus.receipt+json", "payload": "e30=", "signatures": [{"keyid": "k", "sig": "s"}]})
}

/// 20 events: event 7 holds a signed head, and event 12 is the end of a directive with a receipt.
fn chain() -> Vec<AuditEvent> {
    let mut events = Vec::new();
    for seq in 1..=20 {
        match seq {
            7 => {
                let head = key(1).sign(head_at(&events, 6), 5);
                push(&mut events, HEAD_ACTION, "audit/6", serde_json::to_value(head).unwrap());
            }
            12 => {
                let detail = json!({"receipt": Digest::of_json(&receipt())});
                push(&mut events, END_ACTION, "directive/one", detail);
            }
            _ => push(&mut events, "directive.create", &format!("directive/{seq}"), json!({})),
        }
    }
    events
}

fn head_at(events: &[AuditEvent], seq: usize) -> AuditHead {
    AuditHead { account: account(), seq: seq as u64, hash: events[seq - 1].hash }
}

/// Changes an event and gives it and all that follow new hashes, as one does who can write to the database. Heads of the chain stay.
fn rewritten(seq: usize) -> Vec<AuditEvent> {
    let old = chain();
    let mut new = old[..seq - 1].to_vec();
    for event in &old[seq - 1..] {
        let object = if event.seq == seq as u64 { "directive/another" } else { event.object.as_str() };
        push(&mut new, &event.action, object, event.detail.clone());
    }
    new
}

fn codes(events: &[AuditEvent], expected: &Expected) -> Vec<&'static str> {
    let lines: String = events.iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect();
    let checked = check(lines.as_bytes(), expected).unwrap().unwrap();
    checked.faults.iter().map(Fault::code).collect()
}

/// Expects heads that `by` signed at these events of the chain as it was.
fn kept(by: u8, heads: &[usize]) -> Result<Expected, Failure> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heads.jsonl");
    for seq in heads {
        add(&path, &key(by).sign(head_at(&chain(), *seq), 9)).unwrap();
    }
    Expected::read(&[path], None, &[])
}

#[test]
fn a_chain_is_held_against_heads_that_were_kept() {
    let whole = chain();
    assert_eq!(codes(&whole, &Expected::default()), Vec::<&str>::new());
    assert_eq!(codes(&whole, &kept(1, &[1, 9, 20]).unwrap()), Vec::<&str>::new());
    // Without a head no reader can distinguish a chain that was written again from one after the head that stands in it.
    assert_eq!(codes(&rewritten(10), &Expected::default()), Vec::<&str>::new());
    assert_eq!(codes(&rewritten(10), &kept(1, &[9]).unwrap()), Vec::<&str>::new(), "what came before is the same");
    assert_eq!(codes(&rewritten(10), &kept(1, &[9, 10]).unwrap()), ["forked"]);
    assert_eq!(codes(&rewritten(10), &kept(1, &[15]).unwrap()), ["forked"]);
    assert_eq!(codes(&rewritten(3), &Expected::default()), ["forked"], "the head in the chain is about another one");
    assert_eq!(codes(&whole[..14], &kept(1, &[9, 15]).unwrap()), ["truncated"]);
    assert_eq!(codes(&[], &kept(1, &[9]).unwrap()), ["truncated"]);
    // What retention left: event 10 names event 9.
    assert_eq!(codes(&whole[9..], &kept(1, &[9, 15]).unwrap()), Vec::<&str>::new());
    assert_eq!(codes(&rewritten(8)[9..], &kept(1, &[9]).unwrap()), ["forked"]);
    assert_eq!(codes(&whole[10..], &kept(1, &[9]).unwrap()), ["begins_later"]);
}

#[test]
fn a_head_of_another_key_and_an_edited_one_do_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let (heads, pem) = (directory.path().join("heads"), directory.path().join("key.pem"));
    let signed = key(1).sign(head_at(&chain(), 9), 9);
    std::fs::write(&pem, &signed.key).unwrap();
    let other = key(2).sign(head_at(&chain(), 9), 9);
    let read = |lines: &[&SignedHead], key: Option<&Path>| {
        let text: String = lines.iter().map(|head| serde_json::to_string_pretty(head).unwrap() + "\n").collect();
        std::fs::write(&heads, text).unwrap();
        Expected::read(std::slice::from_ref(&heads), key, &[]).map(|_| ()).map_err(|failure| failure.code)
    };
    assert_eq!(read(&[&signed], Some(&pem)), Ok(()));
    assert_eq!(read(&[&other], Some(&pem)), Err("audit_wrong_key"));
    assert_eq!(read(&[&signed, &other], None), Err("audit_wrong_key"), "one control plane has one key");
    assert_eq!(read(&[&SignedHead { seq: 8, ..signed.clone() }], None), Err("audit_bad_signature"));
    assert_eq!(read(&[], None), Err("audit_file"));
    // A head without a signature is the form of earlier versions, and nothing where a key is demanded.
    std::fs::write(&heads, serde_json::to_string(&signed.head()).unwrap()).unwrap();
    let unsigned = |key| Expected::read(std::slice::from_ref(&heads), key, &[]).map(|read| read.heads.len());
    assert_eq!(unsigned(None).map_err(|failure| failure.code), Ok(1));
    assert_eq!(unsigned(Some(&pem)).map_err(|failure| failure.code), Err("audit_file"));
    // The same key must have signed the heads that stand in the chain.
    let of_other = kept(2, &[9]).unwrap();
    assert_eq!(codes(&chain(), &of_other), ["wrong_key"]);
}

#[test]
fn a_receipt_is_found_in_the_event_of_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("receipt.json");
    let expect = |receipt: &Value| {
        std::fs::write(&path, serde_json::to_string_pretty(receipt).unwrap()).unwrap();
        Expected::read(&[], None, std::slice::from_ref(&path)).unwrap()
    };
    let lines: String = chain().iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect();
    let expected = expect(&receipt());
    let checked = check(lines.as_bytes(), &expected).unwrap().unwrap();
    assert_eq!((checked.receipts.clone(), checked.faults.len()), (vec![Some((12, "directive/one".to_owned()))], 0));
    let text = summary(&checked, &expected);
    assert!(text.contains("Event 12 names the receipt") && text.contains("of directive/one"), "{text}");
    let mut edited = receipt();
    edited["payload"] = json!("e31=");
    assert_eq!(codes(&chain(), &expect(&edited)), ["no_receipt"]);
}
