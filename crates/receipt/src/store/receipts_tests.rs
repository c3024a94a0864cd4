use super::*;
use crate::chain::{ChainProblem, ChainReport, Ring, check_chain};
use std::sync::Mutex;

/// Stores something whose hash is that of the run and its place.
fn append(store: &Store, run: RunId, rings: &Mutex<Vec<Ring>>) -> Stored {
    let make = |place: Option<ChainPlace>| {
        let file = format!("{run} {place:?}").into_bytes();
        let hash = Digest::of(&file);
        rings.lock().unwrap().extend(place.map(|place| Ring { run_id: run, hash, place }));
        Ok(Sealed { file, hash })
    };
    store.append(run, false, make).unwrap()
}

#[test]
fn receipts_that_are_issued_at_once_make_one_chain() {
    let state = tempfile::tempdir().unwrap();
    let rings = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let store = Store::open(state.path()).unwrap();
                for _ in 0..50 {
                    let stored = append(&store, RunId::new(), &rings);
                    assert_eq!(stored.unchained, None);
                    assert_eq!(std::fs::read(&stored.path).unwrap(), stored.sealed.file);
                }
            });
        }
    });
    let rings = rings.into_inner().unwrap();
    let store = Store::open(state.path()).unwrap();
    let end = store.end().unwrap().unwrap();
    assert_eq!((rings.len(), end.next), (400, 400));
    assert_eq!(check_chain(&rings, Some(end), &[]), ChainReport::default());
    assert_eq!(store.runs().unwrap().len(), 400);
}

#[test]
fn a_chain_that_another_process_holds_costs_the_place_and_not_the_receipt() {
    let state = tempfile::tempdir().unwrap();
    let rings = Mutex::new(Vec::new());
    let store = Store::open(state.path()).unwrap();
    append(&store, RunId::new(), &rings);
    let held = File::open(state.path().join("receipts/chain")).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    let stored = append(&store, RunId::new(), &rings);
    assert!(stored.unchained.unwrap().contains("holds the chain"), "told");
    assert!(stored.path.exists());
    assert_eq!(rings.lock().unwrap().len(), 1, "no place");
    drop(held);
    assert_eq!(append(&store, RunId::new(), &rings).unchained, None);
    let end = store.end().unwrap();
    assert_eq!(check_chain(&rings.into_inner().unwrap(), end, &[]), ChainReport::default());
}

#[test]
fn a_note_that_was_cut_off_is_written_over_and_one_without_sense_begins_a_new_chain() {
    let state = tempfile::tempdir().unwrap();
    let rings = Mutex::new(Vec::new());
    let store = Store::open(state.path()).unwrap();
    for _ in 0..3 {
        append(&store, RunId::new(), &rings);
    }
    let chain = state.path().join("receipts/chain");
    let mut text = std::fs::read(&chain).unwrap();
    text.extend(b"01890a5d-ac96");
    std::fs::write(&chain, &text).unwrap();
    append(&store, RunId::new(), &rings);
    let whole = rings.lock().unwrap().clone();
    assert_eq!(check_chain(&whole, store.end().unwrap(), &[]), ChainReport::default());
    for nonsense in [&b""[..], b"nonsense", &[b'x'; 1000]] {
        std::fs::write(&chain, nonsense).unwrap();
        assert_eq!(append(&store, RunId::new(), &rings).unchained, None);
    }
    let report = check_chain(&rings.into_inner().unwrap(), store.end().unwrap(), &[]);
    assert_eq!(report.problems.len(), 3);
    assert!(report.problems.iter().all(|problem| matches!(problem, ChainProblem::NotContinued { .. })));
}

#[test]
fn old_receipts_are_pruned_in_batches_and_not_missed() {
    let state = tempfile::tempdir().unwrap();
    let rings = Mutex::new(Vec::new());
    let store = Store::open(state.path()).unwrap();
    for _ in 0..20 {
        append(&store, RunId::new(), &rings);
    }
    assert_eq!(store.prune(5).unwrap(), 15);
    assert_eq!(store.prune(5).unwrap(), 0);
    append(&store, RunId::new(), &rings);
    assert_eq!(store.prune(5).unwrap(), 1);
    let left = store.runs().unwrap();
    assert_eq!(left.len(), 5);
    let there: Vec<Ring> = rings.into_inner().unwrap().into_iter().filter(|ring| left.contains(&ring.run_id)).collect();
    assert_eq!(check_chain(&there, store.end().unwrap(), &[]), ChainReport::default());
    assert_eq!(store.prune(0).unwrap(), 5, "the chain goes on after the last one went, too");
    let rings = Mutex::new(Vec::new());
    append(&store, RunId::new(), &rings);
    append(&store, RunId::new(), &rings);
    assert_eq!(check_chain(&rings.into_inner().unwrap(), store.end().unwrap(), &[]), ChainReport::default());
    assert_eq!(store.end().unwrap().unwrap().next, 23);
    // Without the state directory's note the receipts themselves say the same once another one was issued.
    let noted = |next: u64, floor: u64| Noted { id: RunId::new(), floor, next, last: None };
    assert_eq!(noted(KEEP - 1, 0).next_floor(), 0);
    assert_eq!(noted(KEEP + BATCH - 2, 0).next_floor(), 0);
    assert_eq!(noted(KEEP + BATCH - 1, 0).next_floor(), BATCH);
    assert_eq!(noted(KEEP + BATCH, BATCH).next_floor(), BATCH);
}

#[test]
fn the_floor_of_a_pruned_chain_never_moves_back() {
    let state = tempfile::tempdir().unwrap();
    let rings = Mutex::new(Vec::new());
    let store = Store::open(state.path()).unwrap();
    for _ in 0..20 {
        append(&store, RunId::new(), &rings);
    }
    assert_eq!(store.prune(5).unwrap(), 15);
    assert_eq!(store.prune(10).unwrap(), 0);
    assert_eq!(store.end().unwrap().unwrap().floor, 15);
    let left = store.runs().unwrap();
    let there: Vec<Ring> = rings.into_inner().unwrap().into_iter().filter(|ring| left.contains(&ring.run_id)).collect();
    assert_eq!(check_chain(&there, store.end().unwrap(), &[]), ChainReport::default());
}

#[test]
fn a_durable_receipt_is_stored_with_and_without_a_chain() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::open(state.path()).unwrap();
    let make = |_: Option<ChainPlace>| Ok(Sealed { file: b"x".to_vec(), hash: Digest::of(b"x") });
    let run = RunId::new();
    assert_eq!(store.append(run, true, make).unwrap().unchained, None);
    assert_eq!(store.read(run).unwrap(), b"x");
}
