//! Byte strings that are UTF-8 most of the time: paths, arguments, output of commands.
//!
//! In JSON they are `{"text": "…"}` when they are UTF-8 and `{"base64": "…"}` when not, so that nothing is lost
//! and readers need not guess. In binary formats they are plain bytes.

use data_encoding::BASE64;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A byte string; see the module's header for its JSON form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteText(pub Vec<u8>);

impl ByteText {
    /// The bytes as an operating-system string.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
    /// The bytes as a path.
    pub fn as_path(&self) -> &Path {
        Path::new(self.as_os_str())
    }
}

impl fmt::Debug for ByteText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_os_str())
    }
}

impl From<OsString> for ByteText {
    fn from(value: OsString) -> Self {
        Self(value.into_vec())
    }
}
impl From<PathBuf> for ByteText {
    fn from(value: PathBuf) -> Self {
        Self(value.into_os_string().into_vec())
    }
}
impl From<&Path> for ByteText {
    fn from(value: &Path) -> Self {
        Self(value.as_os_str().as_bytes().to_vec())
    }
}
impl From<&str> for ByteText {
    fn from(value: &str) -> Self {
        Self(value.as_bytes().to_vec())
    }
}
impl From<Vec<u8>> for ByteText {
    fn from(value: Vec<u8>) -> Self {
        Self(value)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Form {
    Text(String),
    Base64(String),
}

impl Serialize for ByteText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_bytes(&self.0);
        }
        match std::str::from_utf8(&self.0) {
            Ok(text) => Form::Text(text.to_owned()).serialize(serializer),
            Err(_) => Form::Base64(base64_encode(&self.0)).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ByteText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <Vec<u8>>::deserialize(deserializer).map(Self);
        }
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(Self(text.into_bytes())),
            Form::Base64(text) => {
                base64_decode(&text).map(Self).ok_or_else(|| D::Error::custom("not base64 in the standard alphabet"))
            }
        }
    }
}

/// Base64, standard alphabet, with padding (RFC 4648 section 4).
#[must_use]
pub fn base64_encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The reverse of [`base64_encode`]; `None` for anything that it would not have written.
#[must_use]
pub fn base64_decode(text: &str) -> Option<Vec<u8>> {
    // The crate also takes pieces that are padded each for itself.
    BASE64.decode(text.as_bytes()).ok().filter(|bytes| base64_encode(bytes) == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn utf8_is_text_and_the_rest_is_base64() {
        assert_eq!(serde_json::to_string(&ByteText::from("é")).unwrap(), r#"{"text":"é"}"#);
        assert_eq!(serde_json::to_string(&ByteText(vec![0xff, 0xfe])).unwrap(), r#"{"base64":"//4="}"#);
    }

    #[test]
    fn base64_matches_the_vectors_of_rfc_4648() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64_encode(plain.as_bytes()), coded);
            assert_eq!(base64_decode(coded).unwrap(), plain.as_bytes());
        }
        for bad in ["Z", "Zg=", "Zh==", "====", "Zm9v\n", "Zg==Zg=="] {
            assert_eq!(base64_decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_survive_json_and_the_binary_form(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let value = ByteText(bytes);
            let json = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(&serde_json::from_str::<ByteText>(&json).unwrap(), &value);
            let binary = postcard::to_stdvec(&value).unwrap();
            prop_assert_eq!(&postcard::from_bytes::<ByteText>(&binary).unwrap(), &value);
        }
    }
}
