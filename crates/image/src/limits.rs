//! Bounds of what an image may take.

/// Bounds of one import. The default serves every image that people run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of an index, a manifest or a configuration.
    pub document_bytes: u64,
    /// Layers of one image.
    pub layers: usize,
    /// Bytes of one layer as it is stored.
    pub layer_bytes: u64,
    /// Bytes of all unpacked layers together, with the headers of their entries.
    pub unpacked_bytes: u64,
    /// Entries of all layers together.
    pub entries: u64,
    /// Bytes of the paths of one layer together; they are held in memory while it is unpacked.
    pub path_bytes: usize,
    /// Unpacked bytes for each stored byte of a layer, beyond [`Limits::free_bytes`].
    pub ratio: u64,
    /// Unpacked bytes of a layer that its ratio does not count.
    pub free_bytes: u64,
    /// Files of an archive.
    pub archive_files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            document_bytes: 4 << 20,
            layers: 128,
            layer_bytes: 16 << 30,
            unpacked_bytes: 64 << 30,
            entries: 4_000_000,
            path_bytes: 256 << 20,
            ratio: 200,
            free_bytes: 64 << 20,
            archive_files: 4096,
        }
    }
}
