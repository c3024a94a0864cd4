//! The tests of `tests/support/free_user.rs` stand here, because that file is part of several test programs.

use super::free_user::*;
use std::collections::BTreeSet;

#[test]
fn accounts_groups_and_processes_are_read() {
    let passwd = "root:x:0:0:root:/root:/bin/sh\nada:x:20000:20001::/home/ada:/bin/sh\nbroken\n";
    assert_eq!(third_fields(passwd).collect::<Vec<_>>(), [0, 20000]);
    assert_eq!(third_fields("disk:x:6:ada,bob\n").collect::<Vec<_>>(), [6]);
    assert_eq!(uids_of_status("Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t5\t5\t5\n"), [1, 2, 3, 4]);
    assert!(uids_of_status("Name:\tx\n").is_empty());
}

#[test]
fn a_free_user_has_a_free_successor_and_no_claim() {
    let none = BTreeSet::new();
    assert_eq!(first_free(0, &none, |_| true), Some(20000));
    assert_eq!(first_free(0, &BTreeSet::from([20000, 20003]), |_| true), Some(20004));
    assert_eq!(first_free(0, &none, |uid| uid > 20005), Some(20006));
    // From any start all are looked at, and never one outside of the range.
    assert_eq!(first_free(39_999, &BTreeSet::from([59_999]), |_| true), Some(20000));
    assert_eq!(first_free(123, &none, |_| false), None);
}

#[test]
fn the_user_stays_the_same_and_is_claimed() {
    let uid = ordinary_user().unwrap();
    assert_eq!(ordinary_user(), Ok(uid));
    let set_by_hand = std::env::var_os("NEXUS_TEST_UID").is_some();
    assert!(set_by_hand || claim(uid).is_none(), "a second test run could take {uid} too");
}
