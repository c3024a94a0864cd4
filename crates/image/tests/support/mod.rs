//! Builds archives, good and hostile ones.

use nexus_image::{Digest, Platform};
use std::io::Write as _;
use std::path::Path;
use tar::EntryType;

/// One entry of a layer; its name goes into the header as it is.
pub struct Entry {
    pub name: Vec<u8>,
    pub kind: EntryType,
    pub mode: u32,
    pub content: Vec<u8>,
    pub link: Vec<u8>,
}

pub fn entry(name: &str, kind: EntryType) -> Entry {
    Entry { name: name.into(), kind, mode: 0o755, content: Vec::new(), link: Vec::new() }
}

pub fn file(name: &str, content: &str) -> Entry {
    Entry { content: content.into(), mode: 0o644, ..entry(name, EntryType::Regular) }
}

pub fn dir(name: &str) -> Entry {
    entry(name, EntryType::Directory)
}

pub fn symlink(name: &str, target: &str) -> Entry {
    Entry { link: target.into(), ..entry(name, EntryType::Symlink) }
}

pub fn hard_link(name: &str, target: &str) -> Entry {
    Entry { link: target.into(), ..entry(name, EntryType::Link) }
}

/// Writes a tar archive, checking nothing.
pub fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        let old = header.as_old_mut();
        old.name[..entry.name.len()].copy_from_slice(&entry.name);
        old.linkname[..entry.link.len()].copy_from_slice(&entry.link);
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_mtime(1_000_000_000);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(entry.content.len() as u64);
        header.set_cksum();
        all.extend_from_slice(header.as_bytes());
        all.extend_from_slice(&entry.content);
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.resize(all.len() + 1024, 0);
    all
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
    let length = zstd_safe::compress(packed.as_mut_slice(), bytes, 3).unwrap();
    packed.truncate(length);
    packed
}

pub fn configuration(diff_ids: &[Digest], config: &str) -> String {
    let ids: Vec<String> = diff_ids.iter().map(|id| format!("\"{id}\"")).collect();
    let architecture = Platform::here().architecture;
    format!(
        r#"{{"architecture":"{architecture}","os":"linux","config":{config},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        ids.join(",")
    )
}

/// The files of an OCI layout with layers as they are to be stored, and the digests that their content has.
pub fn layout(layers: &[(Vec<u8>, Digest)], config: &str, name: &str) -> Vec<(String, Vec<u8>)> {
    let diff_ids: Vec<Digest> = layers.iter().map(|(_, id)| *id).collect();
    let config = configuration(&diff_ids, config).into_bytes();
    let descriptor = |bytes: &[u8], media: &str, more: &str| {
        format!(r#"{{"mediaType":"{media}","digest":"{}","size":{}{more}}}"#, Digest::of(bytes), bytes.len())
    };
    let listed: Vec<String> = layers.iter().map(|(bytes, _)| descriptor(bytes, "x/layer", "")).collect();
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{},"layers":[{}]}}"#,
        descriptor(&config, "x/config", ""),
        listed.join(",")
    )
    .into_bytes();
    let notes = format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{name}"}}"#);
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
        descriptor(&manifest, "application/vnd.oci.image.manifest.v1+json", &notes)
    );
    let mut files = vec![
        ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
        ("index.json".to_owned(), index.into_bytes()),
    ];
    let blobs = layers.iter().map(|(bytes, _)| bytes.clone()).chain([config, manifest]);
    files.extend(blobs.map(|bytes| (format!("blobs/sha256/{}", Digest::of(&bytes).hex()), bytes)));
    files
}

/// A layout with gzipped layers of these entries.
pub fn layout_of(layers: &[Vec<Entry>]) -> Vec<(String, Vec<u8>)> {
    let layers: Vec<_> = layers.iter().map(|entries| tar(entries)).map(|tar| (gzip(&tar), Digest::of(&tar))).collect();
    layout(&layers, "{}", "test:1")
}

pub fn write_dir(files: &[(String, Vec<u8>)], to: &Path) {
    for (name, bytes) in files {
        let path = to.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

pub fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let entries: Vec<Entry> =
        files.iter().map(|(name, bytes)| Entry { content: bytes.clone(), ..file(name, "") }).collect();
    tar(&entries)
}

/// An archive as docker save writes it; the second layer is a link to the first file.
pub fn docker(layers: &[Vec<u8>], config: &str, name: &str) -> Vec<u8> {
    let ids: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
    let config = configuration(&ids, config);
    let config_name = format!("{}.json", Digest::of(config.as_bytes()).hex());
    let names: Vec<String> = (0..layers.len()).map(|at| format!("layer{at}/layer.tar")).collect();
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let manifest = format!(r#"[{{"Config":"{config_name}","RepoTags":["{name}"],"Layers":[{}]}}]"#, quoted.join(","));
    let mut entries = vec![file(&config_name, &config), file("manifest.json", &manifest)];
    for (name, layer) in names.iter().zip(layers) {
        entries.push(dir(&format!("{}/", name.strip_suffix("/layer.tar").unwrap())));
        let target = format!("{name}.real");
        entries.push(Entry { content: layer.clone(), ..file(&target, "") });
        entries.push(symlink(name, "layer.tar.real"));
    }
    tar(&entries)
}
