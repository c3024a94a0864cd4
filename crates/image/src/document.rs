//! Documents of an image: indexes, manifests and configurations. Reading and choosing; no I/O.

use crate::digest::Digest;
use crate::error::{ImageError, shown};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Media types of lists of manifests.
const INDEXES: &[&str] =
    &["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
/// Media types of manifests.
const MANIFESTS: &[&str] = &[MANIFEST, "application/vnd.docker.distribution.manifest.v2+json"];
/// Annotations in which tools name an image, the full name first.
const NAMES: &[&str] = &["io.containerd.image.name", "org.opencontainers.image.ref.name"];
/// Variables of one configuration.
const MAX_VARIABLES: usize = 1024;

/// A kind of machine that an image is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// The architecture, as images name it.
    pub architecture: String,
    /// The operating system.
    pub os: String,
}

impl Platform {
    /// Returns the platform of this machine.
    #[must_use]
    pub fn here() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { architecture: architecture.to_owned(), os: "linux".to_owned() }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", shown(self.os.as_bytes()), shown(self.architecture.as_bytes()))
    }
}

/// Names a blob in a document.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of the blob.
    #[serde(default)]
    pub media_type: String,
    /// Digest of its content.
    pub digest: Digest,
    /// Its size, in bytes.
    pub size: u64,
    /// The machine that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Notes of the tool that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    /// Returns true if it names a list of manifests.
    pub fn is_index(&self) -> bool {
        INDEXES.contains(&self.media_type.as_str())
    }

    /// Returns the name that a tool gave the image.
    pub fn name(&self) -> Option<&str> {
        let notes = self.annotations.as_ref()?;
        NAMES.iter().find_map(|key| notes.get(*key)).map(String::as_str)
    }
}

/// A list of manifests.
#[derive(Debug, Deserialize)]
pub struct Index {
    /// Descriptors of the manifests.
    #[serde(default)]
    pub manifests: Vec<Descriptor>,
}

impl Index {
    /// Chooses the one manifest for a machine. One without a platform serves if there is no other.
    pub fn choose(&self, wanted: &Platform) -> Result<&Descriptor, ImageError> {
        let known = |one: &&Descriptor| one.is_index() || MANIFESTS.contains(&one.media_type.as_str());
        let all: Vec<&Descriptor> = self.manifests.iter().filter(known).collect();
        let fitting: Vec<&Descriptor> =
            all.iter().copied().filter(|one| one.platform.as_ref() == Some(wanted)).collect();
        let open: Vec<&Descriptor> = all.iter().copied().filter(|one| one.platform.is_none()).collect();
        let candidates = if fitting.is_empty() { open } else { fitting };
        match candidates[..] {
            [one] => Ok(one),
            [] => {
                let found: Vec<String> =
                    all.iter().flat_map(|one| &one.platform).take(10).map(Platform::to_string).collect();
                let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
                Err(ImageError::Platform { wanted: wanted.to_string(), found })
            }
            _ => Err(ImageError::Several { count: candidates.len() }),
        }
    }
}

/// An image: its configuration and its layers, the lowest first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The version of the form.
    #[serde(default)]
    pub schema_version: u32,
    /// The kind of document.
    #[serde(default)]
    pub media_type: String,
    /// Descriptor of the configuration.
    pub config: Descriptor,
    /// Descriptors of the layers.
    pub layers: Vec<Descriptor>,
}

impl Manifest {
    /// Puts the manifest of an image together that came without one.
    pub fn of(config: (Digest, u64), layers: &[(Digest, u64)]) -> Self {
        let descriptor = |media_type: &str, (digest, size): (Digest, u64)| Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size,
            platform: None,
            annotations: None,
        };
        Self {
            schema_version: 2,
            media_type: MANIFEST.to_owned(),
            config: descriptor(CONFIGURATION, config),
            layers: layers.iter().map(|layer| descriptor(LAYER, *layer)).collect(),
        }
    }
}

/// The entry of `docker save` for one image.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Saved {
    /// Name of the configuration in the archive.
    pub config: String,
    /// Names of the image.
    #[serde(default)]
    pub repo_tags: Option<Vec<String>>,
    /// Names of the layers in the archive, the lowest first.
    pub layers: Vec<String>,
}

/// Suggestions of an image for its use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all(deserialize = "PascalCase"))]
pub struct Settings {
    /// Variables, as `NAME=VALUE`.
    #[serde(deserialize_with = "or_none")]
    pub env: Vec<String>,
    /// The command that everything is passed to.
    #[serde(deserialize_with = "or_none")]
    pub entrypoint: Vec<String>,
    /// The command, or its arguments.
    #[serde(deserialize_with = "or_none")]
    pub cmd: Vec<String>,
    /// The working directory.
    #[serde(deserialize_with = "or_none")]
    pub working_dir: String,
    /// Name of the user who runs the command.
    #[serde(deserialize_with = "or_none")]
    pub user: String,
}

impl Settings {
    /// Returns the command for when the caller names none.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        self.entrypoint.iter().chain(&self.cmd).cloned().collect()
    }

    /// Returns names and values of the variables.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().filter_map(|one| one.split_once('='))
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.env.len() > MAX_VARIABLES {
            return Err("it has more than 1024 variables");
        }
        if self.env.iter().any(|one| one.split_once('=').is_none_or(|(name, _)| name.is_empty())) {
            return Err("a variable is not written as NAME=VALUE");
        }
        let texts = [&self.working_dir, &self.user];
        let mut all = self.env.iter().chain(&self.entrypoint).chain(&self.cmd).chain(texts);
        if all.any(|text| text.contains('\0')) { Err("a text has a NUL character") } else { Ok(()) }
    }
}

fn or_none<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// The configuration of an image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Configuration {
    /// The machine that it is for.
    #[serde(flatten)]
    pub platform: Platform,
    /// Suggestions for its use.
    #[serde(default, deserialize_with = "or_none")]
    pub config: Settings,
    /// Digests of its layers.
    pub rootfs: Layers,
}

/// The layers of a configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Layers {
    /// The word `layers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Digests of the unpacked layers, the lowest first.
    pub diff_ids: Vec<Digest>,
}

impl Configuration {
    /// Returns the configuration of an archive of a root, which says nothing.
    pub fn of_root(layer: Digest) -> Self {
        Self {
            platform: Platform::here(),
            config: Settings::default(),
            rootfs: Layers { kind: "layers".to_owned(), diff_ids: vec![layer] },
        }
    }

    /// Reads a configuration, and checks that its image is for a machine and has so many layers.
    pub fn read(bytes: &[u8], wanted: &Platform, layers: usize) -> Result<Self, ImageError> {
        let read: Self = parse(bytes, "the configuration of the image")?;
        let fault = |why: String| ImageError::Document { what: "the configuration of the image".to_owned(), why };
        if read.platform != *wanted {
            return Err(ImageError::Platform { wanted: wanted.to_string(), found: read.platform.to_string() });
        }
        read.config.check().map_err(|why| fault(why.to_owned()))?;
        let count = read.rootfs.diff_ids.len();
        if count != layers {
            return Err(fault(format!("it has {count} layers, and the manifest {layers}")));
        }
        if layers == 0 { Err(fault("it has no layer".to_owned())) } else { Ok(read) }
    }
}

/// Reads a document.
pub fn parse<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, ImageError> {
    // The reader of JSON has a bound of its own for nested values.
    serde_json::from_slice(bytes)
        .map_err(|error| ImageError::Document { what: what.to_owned(), why: shown(error.to_string().as_bytes()) })
}

/// Writes a document; the same one always has the same bytes.
pub fn write<T: Serialize>(document: &T, what: &str) -> Result<Vec<u8>, ImageError> {
    serde_json::to_vec(document).map_err(|error| ImageError::Document { what: what.to_owned(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &[(&str, Option<&str>)]) -> Index {
        let digest = Digest::of(b"");
        let one = |(media, architecture): &(&str, Option<&str>)| Descriptor {
            media_type: (*media).to_owned(),
            digest,
            size: 0,
            platform: architecture
                .map(|architecture| Platform { architecture: architecture.to_owned(), os: "linux".to_owned() }),
            annotations: None,
        };
        Index { manifests: entries.iter().map(one).collect() }
    }

    #[test]
    fn the_manifest_for_this_machine_is_chosen_and_no_other() {
        let wanted = Platform { architecture: "amd64".to_owned(), os: "linux".to_owned() };
        let both = index(&[(MANIFEST, Some("arm64")), (MANIFEST, Some("amd64")), ("text/x", None)]);
        assert_eq!(both.choose(&wanted).unwrap().platform, Some(wanted.clone()));
        assert!(index(&[(MANIFEST, None)]).choose(&wanted).is_ok());
        let code = |entries: &[(&str, Option<&str>)]| index(entries).choose(&wanted).unwrap_err().code();
        assert_eq!(code(&[(MANIFEST, Some("arm64"))]), "image_platform");
        assert_eq!(code(&[]), "image_platform");
        assert_eq!(code(&[(MANIFEST, Some("amd64")), (MANIFEST, Some("amd64"))]), "image_several");
    }

    #[test]
    fn a_configuration_is_for_this_machine_and_has_its_layers() {
        let here = Platform::here();
        let text = |config: &str, layers: usize| {
            let ids = vec![format!("\"{}\"", Digest::of(b"")); layers].join(",");
            format!(
                r#"{{"architecture":"{}","os":"linux","config":{config},"rootfs":{{"type":"layers","diff_ids":[{ids}]}}}}"#,
                here.architecture
            )
        };
        let read = |text: String, layers| Configuration::read(text.as_bytes(), &here, layers);
        let good = read(text(r#"{"Env":["A=b=c"],"Cmd":null,"Entrypoint":["/x"],"Volumes":{"/y":{}}}"#, 1), 1).unwrap();
        assert_eq!(good.config.variables().collect::<Vec<_>>(), [("A", "b=c")]);
        assert_eq!(good.config.command(), ["/x"]);
        assert!(read(text("null", 1), 1).is_ok());
        for (config, has, layers) in
            [("{}", 1, 2), ("{}", 0, 0), (r#"{"Env":["A"]}"#, 1, 1), (r#"{"Env":["=b"]}"#, 1, 1)]
        {
            assert_eq!(read(text(config, has), layers).unwrap_err().code(), "image_document", "{config}");
        }
        let nul = r#"{"User":"a\u0000"}"#;
        assert_eq!(read(text(nul, 1), 1).unwrap_err().code(), "image_document");
        let other = text("{}", 1).replace("linux", "windows");
        assert_eq!(read(other, 1).unwrap_err().code(), "image_platform");
    }

    #[test]
    fn cut_and_changed_documents_are_refused_and_never_panic() {
        let good = write(&Configuration::of_root(Digest::of(b"x")), "x").unwrap();
        assert!(Configuration::read(&good, &Platform::here(), 1).is_ok());
        // A fixed seed: the same bytes in each run.
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for length in 0..good.len() {
            assert!(Configuration::read(&good[..length], &Platform::here(), 1).is_err(), "{length}");
            for _ in 0..8 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let mut changed = good.clone();
                changed[length] = random as u8;
                let read = Configuration::read(&changed, &Platform::here(), 1);
                assert!(read.is_err() || read.is_ok_and(|read| read.rootfs.diff_ids.len() == 1));
            }
        }
    }
}
