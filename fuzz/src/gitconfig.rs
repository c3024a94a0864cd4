//! Configurations of git: what is stripped is gone, and what stays means what it meant.

use nexus_git::config::{Place, Setting, changed, held, parse, strip};

type Key = (String, Option<Vec<u8>>, String, Option<Vec<u8>>);

/// A configuration.
pub fn gitconfig(data: &[u8]) {
    let Ok(settings) = parse(data) else {
        assert_eq!(strip(data, &Place::of_new(b".git")), None, "it was stripped without being understood");
        return;
    };
    let mut end = 0;
    for one in &settings {
        assert!(one.at.start >= end && one.at.end <= data.len() && !one.at.is_empty(), "{one:?}");
        assert!(data[one.at.clone()].to_ascii_lowercase().starts_with(one.name.as_bytes()), "{one:?}");
        end = one.at.end;
    }
    let keys: Vec<Key> = settings.iter().map(Setting::key).collect();
    let text = write(&settings);
    let again: Vec<Key> = parse(&text).iter().flatten().map(Setting::key).collect();
    assert_eq!(again, keys, "written anew it says something else");

    for git_dir in [&b".git"[..], b".git/modules/a"] {
        let place = Place::of_new(git_dir);
        assert_eq!(changed(Some(data), Some(data), &place), Ok(Vec::new()), "it differs from itself");
        let bad = held(&settings, &[], git_dir);
        let names = changed(Some(data), None, &place).unwrap_or_default();
        assert_eq!(bad.is_empty(), names.is_empty(), "{names:?}");
        let bad: Vec<_> = bad.iter().map(|one| one.at.clone()).collect();
        let Some(rest) = strip(data, &place) else { continue };
        assert_eq!(changed(Some(&rest), None, &place), Ok(Vec::new()));
        let kept: Vec<Key> = parse(&rest).iter().flatten().map(Setting::key).collect();
        let wanted: Vec<Key> = settings.iter().filter(|one| !bad.contains(&one.at)).map(Setting::key).collect();
        assert_eq!(kept, wanted, "stripping changed what stays");
    }
}

/// All settings in one plain form.
fn write(settings: &[Setting]) -> Vec<u8> {
    let mut text = Vec::new();
    for one in settings {
        text.extend_from_slice(format!("[{}", one.section).as_bytes());
        if let Some(part) = &one.subsection {
            text.extend_from_slice(b" \"");
            for byte in part {
                text.extend(matches!(byte, b'"' | b'\\').then_some(b'\\'));
                text.push(*byte);
            }
            text.push(b'"');
        }
        text.extend_from_slice(format!("]\n{}", one.name).as_bytes());
        if let Some(value) = &one.value {
            text.extend_from_slice(b" = \"");
            for byte in value {
                match byte {
                    b'\n' => text.extend_from_slice(b"\\n"),
                    b'"' | b'\\' => text.extend([b'\\', *byte]),
                    // Before the end of a line it would belong to it.
                    _ => text.push(*byte),
                }
            }
            text.push(b'"');
        }
        text.push(b'\n');
    }
    text
}
