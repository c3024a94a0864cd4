//! The files of a layer: what is read writes itself, and a torn one is refused.

use nexus_facility::journal::{Journal, Parked};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A journal, or what a parked layer says about itself.
pub fn journal(data: &[u8]) {
    one::<Journal>(data);
    one::<Parked>(data);
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
