//! The program that is checked in is the one the compiler makes.
//!
//! After a change of a profile, of the table or of the compiler:
//! `NEXUS_BLESS=1 cargo test -p nexus-jail seccomp::tests::generated`.

use std::fmt::Write as _;

use super::{Permissions, Program, SeccompProfile, compiled};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/seccomp/generated.rs");

const HEADER: &str = "\
//! The compiled built-in profile. Written by the test in `tests/generated.rs`,
//! which also holds it equal to what the compiler makes; do not edit.
//!
//! One instruction: code, jump if true, jump if false, operand.

use libc::sock_filter;

const fn op(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}
";

fn rendered() -> String {
    let mut text = HEADER.to_owned();
    let names = [
        ("DEFAULT", "The default profile."),
        ("DEBUG", "The default profile with the permission to debug."),
        ("LAYERED", "The profile for a sandbox that writes to a layer alone."),
        ("LAYERED_DEBUG", "The profile for a sandbox that writes to a layer alone, with the permission to debug."),
    ];
    for ((name, what), permissions) in names.into_iter().zip(Permissions::ALL) {
        let profile = SeccompProfile::builtin(permissions).expect("valid");
        writeln!(text, "\n/// {what}\npub(super) const {name}: &[sock_filter] = &[").expect("a string grows");
        for four in compiled(&profile).chunks(4) {
            let four: Vec<String> =
                four.iter().map(|i| format!("op({:#04x}, {}, {}, {:#x}),", i.code, i.jt, i.jf, i.k)).collect();
            writeln!(text, "    {}", four.join(" ")).expect("a string grows");
        }
        text.push_str("];\n");
    }
    text
}

#[test]
fn the_checked_in_program_is_what_the_compiler_makes() {
    let wanted = rendered();
    if std::env::var_os("NEXUS_BLESS").is_some() {
        std::fs::write(PATH, &wanted).expect("the source tree can be written");
    }
    let found = std::fs::read_to_string(PATH).expect("the source tree can be read");
    assert!(found == wanted, "generated.rs is out of date: run this test with NEXUS_BLESS=1");
}

#[test]
fn the_program_in_the_binary_is_the_compiled_profile() {
    for permissions in Permissions::ALL {
        let profile = SeccompProfile::builtin(permissions).expect("valid");
        let plain = |program: &Program| -> Vec<(u16, u8, u8, u32)> {
            program.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect()
        };
        assert_eq!(plain(&Program::builtin(permissions)), plain(&compiled(&profile)));
    }
}
