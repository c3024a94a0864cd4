//! Reading and writing the OCI form.

use super::{Action, Permissions, SeccompProfile, answer, compiled};
use crate::seccomp::ProfileError;

fn with_entry(entry: &str) -> Result<SeccompProfile, ProfileError> {
    SeccompProfile::from_json(&format!(
        r#"{{ "defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": [{entry}] }}"#
    ))
}

#[test]
fn the_builtin_profiles_survive_writing_and_reading() {
    for permissions in Permissions::ALL {
        let profile = SeccompProfile::builtin(permissions).expect("valid");
        let json = profile.to_json().expect("can be written");
        assert_eq!(super::super::oci::read(&json, 0).expect("can be read"), profile);
    }
}

#[test]
fn every_operator_and_action_survives_writing_and_reading() {
    let mut entries = Vec::new();
    for op in ["EQ", "NE", "LT", "LE", "GT", "GE"] {
        entries.push(format!(
            r#"{{ "names": ["read"], "action": "SCMP_ACT_LOG",
                "args": [{{ "index": 5, "value": 18446744073709551615, "valueTwo": 0, "op": "SCMP_CMP_{op}" }}] }}"#
        ));
    }
    for action in [r#""SCMP_ACT_ALLOW""#, r#""SCMP_ACT_KILL_PROCESS""#, r#""SCMP_ACT_ERRNO", "errnoRet": 38"#] {
        entries.push(format!(
            r#"{{ "comment": "why", "names": ["write"], "action": {action},
                "args": [{{ "index": 0, "value": 6, "valueTwo": 2, "op": "SCMP_CMP_MASKED_EQ" }}] }}"#
        ));
    }
    let profile = with_entry(&entries.join(",")).expect("valid");
    assert_eq!(profile.rules().len(), 9);
    let json = profile.to_json().expect("can be written");
    assert_eq!(SeccompProfile::from_json(&json).expect("can be read"), profile);
}

#[test]
fn an_entry_as_engines_write_it_is_read() {
    let profile = with_entry(
        r#"{ "names": ["clone"], "action": "SCMP_ACT_ALLOW",
             "args": [{ "index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" }] }"#,
    )
    .expect("valid");
    let program = compiled(&profile);
    assert_eq!(answer(&program, "clone", &[17]), Action::Allow);
    assert_eq!(answer(&program, "clone", &[0x1000_0000]), Action::Errno(1));
    assert_eq!(profile.default_action(), Action::Errno(1), "EPERM when no errno is given");
}

#[test]
fn unknown_keys_are_refused_at_every_level() {
    let whole = r#"{ "defaultAction": "SCMP_ACT_ALLOW", "syscallz": [] }"#;
    let entry = r#"{ "names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": {} }"#;
    let argument = r#"{ "names": ["read"], "action": "SCMP_ACT_ALLOW",
        "args": [{ "index": 0, "value": 0, "op": "SCMP_CMP_EQ", "mask": 1 }] }"#;
    for error in [
        SeccompProfile::from_json(whole).expect_err("top level"),
        with_entry(entry).expect_err("entry"),
        with_entry(argument).expect_err("argument"),
    ] {
        assert!(matches!(&error, ProfileError::Json { source } if source.to_string().contains("unknown field")));
    }
}

#[test]
fn an_unknown_call_is_refused_by_name_and_a_foreign_one_is_not() {
    let error = with_entry(r#"{ "names": ["read", "keyctrl"], "action": "SCMP_ACT_ERRNO" }"#).expect_err("misspelt");
    assert!(matches!(&error, ProfileError::UnknownCall { name } if name == "keyctrl"), "{error}");
    assert!(error.to_string().contains("keyctrl"));
    with_entry(r#"{ "names": ["chown32", "socketcall"], "action": "SCMP_ACT_ALLOW" }"#).expect("i386 calls");
}

#[test]
fn entries_that_engines_understand_differently_or_not_at_all_are_refused() {
    let argument = |arg: &str| format!(r#"{{ "names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{arg}] }}"#);
    let eq = r#"{ "index": 0, "value": 1, "op": "SCMP_CMP_EQ" }"#;
    let refused = |entry: &str| with_entry(entry).expect_err(entry);
    assert!(matches!(refused(&argument(&format!("{eq},{eq}"))), ProfileError::DoubledArgument { index: 0, .. }));
    assert!(matches!(
        refused(&argument(r#"{ "index": 6, "value": 1, "op": "SCMP_CMP_EQ" }"#)),
        ProfileError::BadArgument { index: 6, .. }
    ));
    for arg in [
        r#"{ "index": 0, "value": 1, "valueTwo": 2, "op": "SCMP_CMP_MASKED_EQ" }"#,
        r#"{ "index": 0, "value": 1, "valueTwo": 2, "op": "SCMP_CMP_EQ" }"#,
    ] {
        assert!(matches!(refused(&argument(arg)), ProfileError::BadSecondValue { value_two: 2, .. }));
    }
    assert!(matches!(refused(r#"{ "names": [], "action": "SCMP_ACT_ALLOW" }"#), ProfileError::NoNames { entry: 0 }));
    for action in [r#""SCMP_ACT_TRAP""#, r#""SCMP_ACT_NOTIFY""#, r#""SCMP_ACT_KILL""#, r#""allow""#] {
        let entry = format!(r#"{{ "names": ["read"], "action": {action} }}"#);
        assert!(matches!(refused(&entry), ProfileError::Json { .. }));
    }
}

#[test]
fn an_errno_of_zero_or_beside_another_action_is_refused() {
    for action in [
        r#""SCMP_ACT_ERRNO", "errnoRet": 0"#,
        r#""SCMP_ACT_ERRNO", "errnoRet": 4096"#,
        r#""SCMP_ACT_ALLOW", "errnoRet": 1"#,
    ] {
        let entry = format!(r#"{{ "names": ["read"], "action": {action} }}"#);
        assert!(matches!(with_entry(&entry), Err(ProfileError::BadErrno { .. })), "{action}");
    }
    let default = r#"{ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 0 }"#;
    assert!(matches!(SeccompProfile::from_json(default), Err(ProfileError::BadErrno { .. })));
}

#[test]
fn a_profile_for_other_machines_is_refused() {
    let with = |list: &str| {
        SeccompProfile::from_json(&format!(r#"{{ "defaultAction": "SCMP_ACT_ERRNO", "architectures": {list} }}"#))
    };
    assert!(matches!(with(r#"["SCMP_ARCH_AARCH64"]"#), Err(ProfileError::OtherArchitecture)));
    assert!(
        matches!(with(r#"["SCMP_ARCH_Z80"]"#), Err(ProfileError::UnknownArchitecture { name }) if name == "SCMP_ARCH_Z80")
    );
    with("[]").expect("an empty list means this machine");
    with(r#"["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]"#).expect("more is fine; they are killed anyway");
}
