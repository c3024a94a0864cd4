use super::super::document::*;
use super::*;
use crate::keys::Seed;
use nexus_model::limits::Limits;
use nexus_model::proof::ProofItem;
use nexus_model::{ByteText, RunId};
use proptest::prelude::*;
use zeroize::Zeroizing;

fn pair(byte: u8) -> Pair {
    Seed::new(Zeroizing::new([byte; 32])).signer()
}

fn ring(pair: &Pair) -> Keyring {
    Keyring::new(vec![pair.public().clone()])
}

fn receipt(pair: &Pair) -> Receipt {
    let stream = StreamDigest { bytes: 2, hash: Digest::of(b"hi") };
    Receipt {
        schema: SCHEMA.to_owned(),
        run_id: RunId::new(),
        nexus: Nexus { version: "1.2.3".to_owned() },
        driver: Driver { name: "namespace".to_owned(), version: "1.2.3".to_owned() },
        kernel: "6.1.0".to_owned(),
        identity: "user".to_owned(),
        request: Request {
            sandbox: "untrusted".to_owned(),
            argv: Bounded::whole(vec!["true".into(), ByteText(vec![0xff])]),
            workspace: "/srv/project".into(),
            cwd: "/srv/project".into(),
            changes: "commit".to_owned(),
            env: Bounded::whole(vec![EnvEntry { name: "A".into(), tag: "tag:0".to_owned() }]),
            binds: Bounded::whole(Vec::new()),
            hidden: Bounded::whole(Vec::new()),
            limits: Limits::defaults(1 << 20),
            timeout_ms: None,
            required: Vec::new(),
            image: None,
            allow_ptrace: false,
            env_secrets: Vec::new(),
            secrets: Vec::new(),
            opened_binds: Vec::new(),
            auto_binds: Vec::new(),
            allowed_sockets: Vec::new(),
            network: None,
        },
        spec_hash: Digest::of(b"spec"),
        plan_hash: Digest::of(b"plan"),
        profiles: Vec::new(),
        guarantees: vec!["net.none".to_owned()],
        proof: vec![ProofItem { check: "write_outside".into(), expected: "EROFS".into(), seen: "EROFS".into() }],
        egress: None,
        changes: Changes {
            state: "committed".to_owned(),
            added: 1,
            modified: 0,
            deleted: 0,
            parked: 0,
            conflicts: 0,
            hash: Digest::of(b"changes"),
            checkpoint: None,
        },
        output: Output { stdout: stream, stderr: stream },
        exit: Exit { code: 0, signal: None, reason: "exit".to_owned() },
        timing: Timing { started_unix_ms: 1, prepared_us: 2, spawned_us: Some(3), duration_us: 4 },
        chain: None,
        key_id: pair.public().id(),
    }
}

#[test]
fn what_was_sealed_is_opened_with_the_key_that_sealed_it() {
    let pair = pair(1);
    let receipt = receipt(&pair);
    let sealed = seal(&receipt, &pair).unwrap();
    let opened = open(&sealed.file, &ring(&pair)).unwrap();
    assert_eq!((opened.receipt, opened.hash), (receipt, sealed.hash));
    assert_eq!(opened.hash, Digest::of(&opened.payload));
}

#[test]
fn what_is_signed_is_what_the_dsse_specification_says() {
    let golden = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world";
    assert_eq!(pre_authentication("http://example.com/HelloWorld", b"hello world"), golden);
    assert_eq!(pre_authentication("", b""), b"DSSEv1 0  0 ");
    // Lengths are of bytes, and a space moves from one part to the other only with them.
    assert_eq!(pre_authentication("\u{e9}", "\u{e9}\u{e9}".as_bytes()), "DSSEv1 2 \u{e9} 4 \u{e9}\u{e9}".as_bytes());
    assert_ne!(pre_authentication("a b", b"c"), pre_authentication("a", b"b c"));
}

#[test]
fn a_signature_for_another_type_says_nothing_for_a_receipt() {
    let pair = pair(1);
    let payload = serde_json::to_vec(&receipt(&pair)).unwrap();
    let other = seal_bytes("application/x-other", &payload, &pair).unwrap();
    let error = open(&other.file, &ring(&pair)).unwrap_err();
    assert_eq!(error, VerifyError::WrongType { found: "application/x-other".to_owned() });
    let renamed = String::from_utf8(other.file).unwrap().replace("application/x-other", PAYLOAD_TYPE);
    let error = open(renamed.as_bytes(), &ring(&pair)).unwrap_err();
    assert_eq!(error, VerifyError::BadSignature { key_id: pair.public().id() });
}

#[test]
fn a_changed_bit_anywhere_in_the_file_is_seen() {
    let pair = pair(1);
    let file = seal(&receipt(&pair), &pair).unwrap().file;
    for at in 0..file.len() {
        let mut other = file.clone();
        other[at] ^= 1 << (at % 8);
        assert!(open(&other, &ring(&pair)).is_err(), "bit {} of byte {at}", at % 8);
    }
}

#[test]
fn every_field_that_is_edited_is_seen() {
    let pair = pair(1);
    let original = receipt(&pair);
    let sealed = seal(&original, &pair).unwrap();
    let envelope: Envelope = serde_json::from_slice(&sealed.file).unwrap();
    let value = serde_json::to_value(&original).unwrap();
    let fields: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
    assert!(fields.len() > 15, "the receipt has lost its fields");
    for field in fields {
        let mut edited = value.clone();
        edited[&field] = serde_json::json!("edited");
        let payload = base64_encode(&serde_json::to_vec(&edited).unwrap());
        let [Signature { keyid, sig }] = &envelope.signatures;
        let signatures = [Signature { keyid: keyid.clone(), sig: sig.clone() }];
        let forged = Envelope { payload_type: envelope.payload_type.clone(), payload, signatures };
        let error = open(&render(&forged).unwrap(), &ring(&pair)).unwrap_err();
        assert_eq!(error, VerifyError::BadSignature { key_id: pair.public().id() }, "{field}");
    }
}

#[test]
fn a_truncated_file_says_so_at_every_length() {
    let pair = pair(1);
    let file = seal(&receipt(&pair), &pair).unwrap().file;
    for length in 0..file.len() {
        assert_eq!(open(&file[..length], &ring(&pair)).unwrap_err(), VerifyError::Truncated { bytes: length });
    }
}

#[test]
fn a_receipt_of_another_key_is_refused_whatever_it_calls_itself() {
    let (ours, theirs) = (pair(1), pair(2));
    let forged = seal(&receipt(&ours), &theirs).unwrap();
    let unknown = VerifyError::UnknownKey { key_id: theirs.public().id() };
    assert_eq!(open(&forged.file, &ring(&ours)).unwrap_err(), unknown);
    // In our name.
    let renamed = String::from_utf8(forged.file.clone()).unwrap();
    let renamed = renamed.replace(theirs.public().id().as_str(), ours.public().id().as_str());
    let bad = VerifyError::BadSignature { key_id: ours.public().id() };
    assert_eq!(open(renamed.as_bytes(), &ring(&ours)).unwrap_err(), bad);
    // A key that is known too, but is not the one named inside.
    let both = Keyring::new(vec![ours.public().clone(), theirs.public().clone()]);
    let mismatch = VerifyError::KeyMismatch { named: ours.public().id(), signed: theirs.public().id() };
    assert_eq!(open(&forged.file, &both).unwrap_err(), mismatch);
}

#[test]
fn other_forms_and_other_content_are_refused_by_name() {
    let pair = pair(1);
    let keys = ring(&pair);
    let mut other = receipt(&pair);
    other.schema = "nexus.receipt/3".to_owned();
    let error = open(&seal(&other, &pair).unwrap().file, &keys).unwrap_err();
    assert_eq!(error, VerifyError::UnknownSchema { found: "nexus.receipt/3".to_owned() });
    let empty = seal_bytes(PAYLOAD_TYPE, b"{\"schema\":\"nexus.receipt/1\"}", &pair).unwrap();
    assert!(matches!(open(&empty.file, &keys).unwrap_err(), VerifyError::BadContent { .. }));
    for (text, what) in [("[]\n", "an array"), ("{\"a\":1}\n", "another object"), ("hello\n", "text")] {
        assert!(matches!(open(text.as_bytes(), &keys).unwrap_err(), VerifyError::NotAnEnvelope { .. }), "{what}");
    }
    let file = String::from_utf8(seal(&receipt(&pair), &pair).unwrap().file).unwrap();
    let spaced = file.replace("\",\"", "\", \"");
    assert_eq!(open(spaced.as_bytes(), &keys).unwrap_err(), VerifyError::Respelled);
    assert!(matches!(open(&vec![b' '; MAX_BYTES + 1], &keys).unwrap_err(), VerifyError::TooLarge { .. }));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_and_nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(open(&bytes, &ring(&pair(1))).is_err());
    }

    #[test]
    fn any_edit_of_a_receipt_is_refused(at in any::<prop::sample::Index>(), cut in 0usize..40, put in "[ -~]{0,40}") {
        let pair = pair(1);
        let file = seal(&receipt(&pair), &pair).unwrap().file;
        let at = at.index(file.len());
        let end = (at + cut).min(file.len());
        let edited = [&file[..at], put.as_bytes(), &file[end..]].concat();
        prop_assume!(edited != file);
        prop_assert!(open(&edited, &ring(&pair)).is_err());
    }
}

#[test]
fn a_receipt_that_was_passed_on_as_json_is_valid_in_its_own_form() {
    let pair = pair(7);
    let file = seal(&receipt(&pair), &pair).unwrap().file;
    let passed_on: serde_json::Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(file_of(&passed_on).unwrap(), file);
    assert_ne!(serde_json::to_vec(&passed_on).unwrap(), file, "as another program writes it");
    for bad in ["{}", "[]", r#"{"payloadType":"x","payload":"","signatures":[]}"#] {
        assert!(file_of(&serde_json::from_str(bad).unwrap()).is_err(), "{bad}");
    }
}
