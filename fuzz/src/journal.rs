//! The files of a layer: what is read writes itself, and a torn one is refused.

use nexus_layer::journal::file::{FoundJournal, Journal, Outcome, Parked};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A journal, its outcome, or what a parked layer says about itself.
pub fn journal(data: &[u8]) {
    lines(data);
    one::<Outcome>(data);
    one::<Parked>(data);
}

fn lines(data: &[u8]) {
    let Ok(FoundJournal::Known(read)) = Journal::read_from(data) else { return };
    let mut written = Vec::new();
    assert!(read.write_to(&mut written).is_ok(), "{read:?} was read and cannot be written");
    match Journal::read_from(&*written) {
        Ok(FoundJournal::Known(again)) => {
            let mut twice = Vec::new();
            assert!(again.write_to(&mut twice).is_ok(), "{again:?} was read again and cannot be written");
            assert_eq!(written, twice, "it is written as another one");
        }
        other => panic!("{read:?} does not read itself: {other:?}"),
    }
    // The closing line may lose its line break and nothing else.
    for cut in (0..written.len() - 1).step_by(1 + written.len() / 64) {
        assert!(Journal::read_from(&written[..cut]).is_err(), "{cut} bytes of it are read as a whole");
    }
}

fn one<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(data) else { return };
    let Ok(written) = serde_json::to_vec(&read) else { panic!("{read:?} was read and cannot be written") };
    match serde_json::from_slice::<T>(&written) {
        Ok(again) => assert_eq!(again, read, "it is written as another one"),
        Err(error) => panic!("{read:?} does not read itself: {error}"),
    }
    for cut in (0..written.len()).step_by(1 + written.len() / 64) {
        assert!(serde_json::from_slice::<T>(&written[..cut]).is_err(), "{cut} bytes of it are read as a whole");
    }
}
