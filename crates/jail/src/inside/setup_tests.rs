//! The child's half where it depends on others: its parent, and the order that it gets.

use super::*;
use crate::Faults;
use crate::identity::Identity;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

fn setup() -> Setup {
    Setup {
        identity: Identity { outer_uid: 1, outer_gid: 1, by_root: true },
        landlock_abi: 0,
        faults: Faults::default(),
        guest: |_, _| 0,
        report: |_, _, _| Ok(()),
    }
}

fn here(parent_acts: bool) -> Here {
    let quotas = crate::quotas::Quotas::of_caller().unwrap();
    Here { on_template: false, own_network: false, strings: [0..0, 0..0], parent_acts, quotas }
}

#[test]
fn a_child_whose_parent_is_gone_does_not_go_on() {
    let pair = || rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    let (parent, child) = pair();
    rustix::io::write(&parent, b"g").unwrap();
    assert_eq!(await_parent(&setup(), &here(true), &child), Ok(()));
    drop(parent);
    let error = await_parent(&setup(), &here(true), &child).unwrap_err();
    assert_eq!((error.step, error.detail.as_str()), (Step::AwaitParent, "the launcher is gone"));
    assert_eq!(await_parent(&setup(), &here(false), &child), Ok(()), "nothing is awaited");
}

#[test]
fn an_order_with_another_number_of_mounts_is_refused() {
    assert_eq!(check_count(1, 0), Ok(()));
    assert_eq!(check_count(3, 2), Ok(()));
    for (mounts, binds) in [(0, 0), (2, 0), (2, 2), (4, 2)] {
        assert!(check_count(mounts, binds).is_err(), "{mounts} for {binds}");
    }
}
