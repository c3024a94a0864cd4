//! Records the file sizes of a layer when it is parked.

use crate::entries::changes::{Change, ChangeKind};
use crate::meta::EntryType;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};

/// Sizes by path. A path is kept as its hash with a random key: two of the same hash do not happen.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    key: RandomState,
    /// `None` where the report has two lines of one path: a new file there, and what the old one became under its other names.
    sizes: HashMap<u64, Option<u64>>,
}

impl Recorded {
    /// The size of the file at `path`, if there was one.
    pub(crate) fn size(&self, path: &[u8]) -> Option<u64> {
        if self.sizes.is_empty() { None } else { self.sizes.get(&self.key.hash_one(path)).copied().flatten() }
    }

    fn add(&mut self, change: &Change) {
        if change.file_type == EntryType::File && change.kind != ChangeKind::Deleted {
            let sizes = self.sizes.entry(self.key.hash_one(change.path.0.as_slice()));
            sizes.and_modify(|size| *size = size.filter(|size| *size == change.size)).or_insert(Some(change.size));
        }
    }
}

/// Reads a [`crate::ChangeSet`] and keeps the sizes alone.
impl<'de> Deserialize<'de> for Recorded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Set;
        impl<'de> Visitor<'de> for Set {
            type Value = Recorded;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a set of changes")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Recorded, A::Error> {
                let mut found = None;
                while let Some(name) = map.next_key::<String>()? {
                    if name == "changes" {
                        found = Some(map.next_value::<List>()?.0);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                found.ok_or_else(|| de::Error::missing_field("changes"))
            }
        }
        deserializer.deserialize_map(Set)
    }
}

struct List(Recorded);

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lines;
        impl<'de> Visitor<'de> for Lines {
            type Value = List;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of changes")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<List, A::Error> {
                let mut recorded = Recorded::default();
                while let Some(change) = list.next_element::<Change>()? {
                    recorded.add(&change);
                }
                Ok(List(recorded))
            }
        }
        deserializer.deserialize_seq(Lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_there_have_a_size() {
        let change = |path: &str, kind: &str, of: &str| {
            format!(r#"{{"path":{{"text":"{path}"}},"kind":"{kind}","file_type":"{of}","size":7,"mode":420}}"#)
        };
        let list = [change("a", "added", "file"), change("b", "deleted", "file"), change("c", "added", "directory")];
        let text = format!(r#"{{"later":[1],"changes":[{}]}}"#, list.join(","));
        let recorded: Recorded = serde_json::from_str(&text).unwrap();
        assert_eq!(recorded.size(b"a"), Some(7));
        for path in ["b", "c", "d"] {
            assert_eq!(recorded.size(path.as_bytes()), None, "{path}");
        }
        assert!(serde_json::from_str::<Recorded>("{}").is_err());
    }
}
