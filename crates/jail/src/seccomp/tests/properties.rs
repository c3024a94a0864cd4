//! The compiler against the meaning, over profiles and calls made up at random.

use proptest::prelude::*;

use super::interpret::{SeccompData, run};
use super::meaning::meaning;
use super::{compiled, default_profile};
use crate::seccomp::compile::ARCHITECTURE;
use crate::seccomp::{Action, Condition, Permissions, Rule, SeccompProfile, Test, table};

/// Every number that a filter treats in a way of its own, and neighbours.
fn numbers() -> impl Iterator<Item = u32> {
    (0..1024).chain([0x3fff_ffff, 0x4000_0000, 0x4000_0000 + 39, 0x7fff_ffff, 0x8000_0000, u32::MAX])
}

/// Values around the constants that a profile has for a call: the same, one
/// off, one bit off, with dirt in the upper half.
fn edges(profile: &SeccompProfile, call: Option<&str>) -> Vec<u64> {
    let mut values = vec![0, 1, 0x5412, 0o4755, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX];
    let own = profile.rules().iter().filter(|rule| rule.names.iter().any(|name| Some(name.as_str()) == call));
    for condition in own.flat_map(|rule| &rule.conditions) {
        let (first, second) = match condition.test {
            Test::Eq(v) | Test::Ne(v) | Test::Lt(v) | Test::Le(v) | Test::Gt(v) | Test::Ge(v) => (v, v),
            Test::MaskedEq { mask, value } => (mask, value),
        };
        for value in [first, second, !first | second] {
            values.extend([value, value.wrapping_add(1), value.wrapping_sub(1), value ^ (1 << 32), value ^ 0x20]);
        }
    }
    values.sort_unstable();
    values.dedup();
    values
}

fn hold_equal(profile: &SeccompProfile, program: &[libc::sock_filter], data: &SeccompData) {
    let found = run(program, data).action;
    let wanted = meaning(profile, data);
    assert_eq!(found, wanted, "{:?} {data:x?}", table::name(data.number));
}

#[test]
fn the_default_program_means_the_profile_for_each_number_and_edge_argument() {
    for permissions in Permissions::ALL {
        let profile = SeccompProfile::builtin(permissions).expect("valid");
        let program = compiled(&profile);
        for number in numbers() {
            let edges = edges(&profile, table::name(number));
            for architecture in [ARCHITECTURE, 0x4000_0003, 0xc000_00b7, 0] {
                hold_equal(&profile, &program, &SeccompData { number, architecture, arguments: [0; 6] });
            }
            for value in &edges {
                for argument in 0..6 {
                    let mut data = SeccompData::native(number, &[]);
                    data.arguments[argument] = *value;
                    hold_equal(&profile, &program, &data);
                }
            }
        }
    }
}

#[test]
fn the_default_program_means_the_profile_for_pairs_of_edge_arguments() {
    let profile = default_profile();
    let program = compiled(&profile);
    for call in ["open", "openat", "socket", "clone", "mknodat"] {
        let number = table::number(call).expect("known");
        let values = edges(&profile, Some(call));
        for a in &values {
            for b in &values {
                for c in [0, 3, 0o2755, 1 << 32] {
                    for arguments in [[*a, *b, c, 0], [c, *a, *b, 0], [*a, c, *b, 0], [c, c, *a, *b]] {
                        hold_equal(&profile, &program, &SeccompData::native(number, &arguments));
                    }
                }
            }
        }
    }
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Allow),
        Just(Action::Log),
        Just(Action::KillProcess),
        (1_u16..4096).prop_map(Action::Errno),
    ]
}

/// Few different values, so that rules overlap and calls hit them.
fn values() -> impl Strategy<Value = u64> {
    let halves = prop_oneof![Just(0_u64), Just(1), Just(2), Just(3), Just(0x8000_0000), Just(0xffff_ffff)];
    (halves.clone(), halves).prop_map(|(high, low)| high << 32 | low)
}

fn tests() -> impl Strategy<Value = Test> {
    prop_oneof![
        values().prop_map(Test::Eq),
        values().prop_map(Test::Ne),
        values().prop_map(Test::Lt),
        values().prop_map(Test::Le),
        values().prop_map(Test::Gt),
        values().prop_map(Test::Ge),
        (values(), values()).prop_map(|(mask, value)| Test::MaskedEq { mask, value: value & mask }),
    ]
}

fn rules() -> impl Strategy<Value = Rule> {
    let tests = proptest::collection::btree_map(0_u8..3, tests(), 0..3);
    // Few calls with many rules each, spread over the whole table.
    let names = proptest::collection::vec(proptest::sample::select(vec![0_u32, 1, 2, 39, 200, 336, 424, 471]), 1..4);
    (names, actions(), tests).prop_map(|(numbers, action, tests)| Rule {
        names: numbers.iter().filter_map(|number| table::name(*number)).map(str::to_owned).collect(),
        action,
        conditions: tests.into_iter().map(|(argument, test)| Condition { argument, test }).collect(),
        comment: None,
    })
}

fn profiles(most: usize) -> impl Strategy<Value = SeccompProfile> {
    (actions(), proptest::collection::vec(rules(), 0..most)).prop_map(|(default_action, rules)| SeccompProfile {
        default_action,
        architectures: Vec::new(),
        rules,
    })
}

/// Rules about one argument with one answer, as `simplify.rs` turns them round,
/// or with one rule that spoils it. Small masks make the sets of what is left
/// small, and often empty.
fn one_sided() -> impl Strategy<Value = SeccompProfile> {
    let masks = proptest::collection::vec((0_u64..8, 0_u64..8), 1..12);
    let odd = (0_usize..24, actions(), 0_u8..3);
    (masks, odd, actions(), actions(), 0_u64..2).prop_map(|(masks, odd, action, default_action, high)| {
        let rule = |(index, (mask, value)): (usize, (u64, u64))| {
            let (action, argument) = if index == odd.0 { (odd.1, odd.2) } else { (action, 1) };
            let test = Test::MaskedEq { mask: mask | (high & mask) << 32, value: value & mask };
            let names = vec!["ioctl".to_owned()];
            Rule { names, action, conditions: vec![Condition { argument, test }], comment: None }
        };
        let rules = masks.into_iter().enumerate().map(rule).collect();
        SeccompProfile { default_action, architectures: Vec::new(), rules }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_program_means_its_profile(
        profile in profiles(24),
        arguments in proptest::collection::vec(proptest::array::uniform3(values()), 24),
    ) {
        let program = compiled(&profile);
        for number in [0, 1, 2, 38, 39, 40, 200, 335, 336, 337, 400, 424, 470, 471, 472, 512, 0x4000_0000, u32::MAX] {
            for given in &arguments {
                hold_equal(&profile, &program, &SeccompData::native(number, given));
            }
        }
    }

    #[test]
    fn checks_that_are_turned_round_mean_the_same(profile in one_sided()) {
        let program = compiled(&profile);
        for low in 0..16 {
            for dirt in [0, 1 << 32, 1 << 31, 7 << 32] {
                for other in [0, 3] {
                    hold_equal(&profile, &program, &SeccompData::native(16, &[other, low | dirt, other]));
                }
            }
        }
    }

    #[test]
    fn jumps_beyond_255_instructions_still_arrive(
        profile in profiles(400),
        arguments in proptest::collection::vec(proptest::array::uniform3(values()), 8),
    ) {
        let program = compiled(&profile);
        for number in [0, 1, 2, 39, 200, 336, 337, 424, 471, 472] {
            for given in &arguments {
                hold_equal(&profile, &program, &SeccompData::native(number, given));
            }
        }
    }
}

#[test]
fn jumps_of_each_length_around_255_arrive() {
    // The checks of write push the targets of read and of the search away, one
    // instruction at a time; the answers differ, so a jump gone wrong shows.
    let check = |call: &str, argument, value, errno| Rule {
        names: vec![call.to_owned()],
        action: Action::Errno(errno),
        conditions: vec![Condition { argument, test: Test::MaskedEq { mask: u64::from(u32::MAX), value } }],
        comment: None,
    };
    for length in 200..300 {
        let mut rules = vec![check("open", 0, 7, 4000), check("read", 0, 7, 4001), check("read", 1, 8, 4002)];
        rules.extend((0..length).map(|index| check("write", 0, index, index as u16 + 1)));
        let profile = SeccompProfile { default_action: Action::Log, architectures: Vec::new(), rules };
        let program = compiled(&profile);
        for number in [0, 1, 2, 3, 500] {
            for arguments in [[0, 0], [7, 0], [7, 8], [0, 8], [length - 1, 0], [length, 0], [length / 2, 0]] {
                hold_equal(&profile, &program, &SeccompData::native(number, &arguments));
            }
        }
    }
}

#[test]
fn a_profile_with_more_checks_than_the_kernel_takes_is_refused() {
    let mut profile = default_profile();
    for value in 0..10_000 {
        let conditions = vec![Condition { argument: 0, test: Test::Eq(value) }];
        let names = vec!["getpid".to_owned()];
        profile.rules.push(Rule { names, action: Action::Errno(1), conditions, comment: None });
    }
    let error = crate::seccomp::compile(&profile).expect_err("too long");
    assert!(error.to_string().contains("instructions, the kernel takes 4096"), "{error}");
}

#[test]
fn the_default_program_is_short_and_hot_calls_take_few_steps() {
    let program = compiled(&default_profile());
    // The list of the commands of fcntl takes some twenty of them.
    assert!(program.len() <= 335, "{} instructions", program.len());
    let mut worst = 0;
    for (call, number) in table::all() {
        let steps = run(&program, &SeccompData::native(number, &[])).steps;
        worst = worst.max(steps);
        let checked =
            default_profile().rules.iter().any(|r| !r.conditions.is_empty() && r.names.iter().any(|n| n == call));
        assert!(checked || steps <= 12, "{call} takes {steps} steps");
    }
    println!("{} instructions, at most {worst} steps with arguments of 0", program.len());
    let hot = ["read", "write", "close", "mmap", "futex", "newfstatat", "epoll_wait", "clock_gettime", "lseek"];
    for call in hot {
        let steps = run(&program, &SeccompData::native(table::number(call).expect("known"), &[])).steps;
        println!("{call}: {steps}");
        // The flags of mmap are looked at, too.
        let most = if call == "mmap" { 16 } else { 12 };
        assert!(steps <= most, "{call} takes {steps} steps");
    }
}
