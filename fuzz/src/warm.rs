//! Messages between a caller and a warm launcher, and between a daemon and its launcher process: what is read writes itself, and a
//! part of it is no message.

use nexus_channel::codec::{HEADER, decode, encode};
use nexus_driver_namespace::warm::messages::{Answer, Greeting, Start};
use nexus_model::plan::{Plan, PlanDraft};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message of either side. A plan in it is one that a driver takes: reading it checks it.
pub fn warm(data: &[u8]) {
    one::<Greeting>(data);
    one::<Answer>(data);
    one::<Start>(data);
    if let Ok(start) = decode::<Start>(data) {
        let draft = PlanDraft::from(start.plan.clone());
        assert!(Plan::new(draft).is_ok_and(|plan| plan == start.plan), "a plan that no driver takes was read");
    }
}

fn one<M: Serialize + DeserializeOwned>(data: &[u8]) {
    let Ok(read) = decode::<M>(data) else { return };
    let name = std::any::type_name::<M>();
    // What is longer than a message may be cannot be written; it cannot have come over the socket either.
    let Ok(written) = encode(&read) else { panic!("a {name} was read and cannot be written") };
    let payload = &written[HEADER..];
    let Ok(again) = decode::<M>(payload) else { panic!("a {name} does not read itself") };
    assert_eq!(encode(&again).as_ref(), Ok(&written), "a {name} is written as another one");
    for cut in (0..payload.len()).step_by(1 + payload.len() / 64) {
        assert!(decode::<M>(&payload[..cut]).is_err(), "{cut} bytes of a {name} are a message");
    }
    assert!(decode::<M>(&[payload, b"\0"].concat()).is_err(), "a byte more is passed over");
}
