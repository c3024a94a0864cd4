//! Imports good and hostile archives through the public interface.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use nexus_image::{Digest, Image, ImageError, Imported, Limits, Store, import};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use support::*;
use tar::EntryType;
use tempfile::TempDir;

type Files = Vec<(String, Vec<u8>)>;

struct Ground {
    dir: TempDir,
    store: Store,
}

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        Self { dir, store }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn import(&self, path: &Path) -> Result<Imported, ImageError> {
        self.import_within(path, &Limits::default())
    }

    fn import_within(&self, path: &Path, limits: &Limits) -> Result<Imported, ImageError> {
        import(&self.store, path, None, limits, &mut |_| ())
    }

    fn import_layers(&self, layers: &[Vec<Entry>]) -> Result<Imported, ImageError> {
        self.import(&self.put("image.tar", &archive(&layout_of(layers))))
    }

    fn refuse_layers(&self, layers: &[Vec<Entry>]) -> &'static str {
        let code = self.import_layers(layers).unwrap_err().code();
        self.assert_nothing_is_left();
        code
    }

    fn tree(&self, image: &Image) -> PathBuf {
        self.store.hold(image).unwrap().path().to_owned()
    }

    fn listed(&self, name: &str) -> Vec<String> {
        let path = self.dir.path().join("images").join(name);
        std::fs::read_dir(path).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Nothing half stays: neither a root nor an entry of the list nor a directory of the import.
    fn assert_nothing_is_left(&self) {
        assert_eq!(self.store.images().unwrap(), []);
        assert_eq!((self.listed("roots").len(), self.listed("tmp").len()), (0, 0));
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root_entries() -> Vec<Entry> {
    vec![
        dir("./"),
        dir("usr/"),
        dir("usr/bin/"),
        file("usr/bin/tool", "tool"),
        symlink("bin", "usr/bin"),
        hard_link("usr/bin/same", "usr/bin/tool"),
    ]
}

#[test]
fn every_kind_of_archive_becomes_the_same_root() {
    let ground = Ground::new();
    let tar = tar(&root_entries());
    let one_layer = layout(&[(gzip(&tar), Digest::of(&tar))], "{}", "test:1");
    let packed_by_zstd = layout(&[(zstd(&tar), Digest::of(&tar))], "{}", "test:2");
    let directory = ground.dir.path().join("layout");
    write_dir(&one_layer, &directory);
    let paths = [
        directory,
        ground.put("oci.tar", &archive(&one_layer)),
        ground.put("oci.tar.gz", &gzip(&archive(&packed_by_zstd))),
        ground.put("docker.tar", &docker(std::slice::from_ref(&tar), r#"{"Cmd":["/bin/tool"]}"#, "test:3")),
        ground.put("root.tar", &tar),
        ground.put("root.tar.zst", &zstd(&tar)),
    ];
    let images: Vec<Image> = paths.iter().map(|path| ground.import(path).unwrap().image).collect();
    for image in &images {
        assert_eq!(image.root, images[0].root);
        assert_eq!(image.unpacked.entries, 6);
        let tree = ground.tree(image);
        assert_eq!(text(&tree.join("bin/tool")), "tool");
        let (tool, same) =
            (tree.join("usr/bin/tool").metadata().unwrap(), tree.join("usr/bin/same").metadata().unwrap());
        assert_eq!((tool.ino(), tool.mode() & 0o7777, tool.mtime()), (same.ino(), 0o644, 1_000_000_000));
    }
    assert_eq!(images[0].digest, images[1].digest);
    assert_eq!(images[4].digest, images[5].digest, "the same archive, compressed or not");
    let kinds: Vec<&str> = images.iter().map(|image| image.from.as_str()).collect();
    assert_eq!(kinds, ["oci-layout", "oci-layout", "oci-layout", "docker-archive", "root-archive", "root-archive"]);
    assert_eq!(ground.listed("roots").len(), 1);
    assert_eq!(ground.store.find("test:3").unwrap(), images[3]);
    assert_eq!(ground.store.settings(&images[3]).unwrap().command(), ["/bin/tool"]);
}

#[test]
fn what_is_no_image_is_named_so() {
    let ground = Ground::new();
    for (name, bytes) in [
        ("picture", b"\x89PNG\r\n\x1a\n and so on".repeat(100)),
        ("empty", Vec::new()),
        ("other.tar", tar(&[file("readme", "x")])),
    ] {
        assert_eq!(ground.import(&ground.put(name, &bytes)).unwrap_err().code(), "image_kind", "{name}");
    }
    assert_eq!(ground.import(ground.dir.path()).unwrap_err().code(), "image_kind");
    assert_eq!(ground.import(Path::new("/dev/null")).unwrap_err().code(), "image_kind");
    assert_eq!(ground.import(Path::new("/no/such/file")).unwrap_err().code(), "image_io");
    ground.assert_nothing_is_left();
}

#[test]
fn an_entry_that_leads_out_of_the_root_is_refused_and_its_harmless_twin_is_not() {
    let ground = Ground::new();
    let witness = ground.put("witness", b"host");
    let outside = ground.dir.path().to_str().unwrap().to_owned();
    let host = witness.to_str().unwrap().to_owned();
    let cases: Vec<(&str, Vec<Entry>)> = vec![
        ("dots", vec![file("../../../../witness", "x")]),
        ("dots within", vec![dir("a"), file("a/../../../../../witness", "x")]),
        ("through an absolute link", vec![symlink("out", &outside), file("out/witness", "x")]),
        ("through a relative link", vec![dir("d"), symlink("d/up", "../../../../.."), file("d/up/witness", "x")]),
        ("a directory through a link", vec![symlink("out", &outside), dir("out/new")]),
        ("a link through a link", vec![symlink("out", &outside), symlink("out/new", "x")]),
        ("a whiteout through a link", vec![symlink("out", &outside), file("out/.wh.witness", "")]),
        ("an opaque directory through a link", vec![symlink("out", &outside), file("out/.wh..wh..opq", "")]),
        ("a hard link by dots", vec![hard_link("h", "../../../../witness")]),
        ("a hard link by an absolute name", vec![hard_link("h", &host)]),
        ("a hard link through a link", vec![symlink("out", &outside), hard_link("h", "out/witness")]),
        ("a whiteout of no name", vec![file(".wh..", "")]),
        ("a directory named as a whiteout", vec![file(".wh.d/f", "")]),
        ("a sparse file", vec![entry("s", EntryType::GNUSparse)]),
        ("an unknown type", vec![entry("s", EntryType::new(b'Q'))]),
        ("a link to nothing", vec![symlink("s", "")]),
    ];
    for (what, entries) in cases {
        let code = ground.refuse_layers(&[entries]);
        assert!(["image_entry", "image_io", "image_layer"].contains(&code), "{what}: {code}");
        assert_eq!(text(&witness), "host", "{what}");
        assert_eq!(witness.metadata().unwrap().nlink(), 1, "{what}");
        assert!(!ground.dir.path().join("new").exists(), "{what}");
    }
    let two = [vec![symlink("out", &outside)], vec![file("out/witness", "x")]];
    assert_eq!(ground.refuse_layers(&two), "image_entry");
    // Twins: an absolute name means the root of the image, and a link may lead anywhere as long as nothing goes through it.
    let harmless = vec![
        file(&host, "image"),
        symlink("out", &outside),
        hard_link("h", &host),
        symlink("gone", "x"),
        file("gone", "file in place of a link"),
    ];
    let tree = ground.tree(&ground.import_layers(&[harmless]).unwrap().image);
    assert_eq!(text(&tree.join(host.trim_start_matches('/'))), "image");
    assert_eq!(text(&tree.join("h")), "image");
    assert_eq!(tree.join("out").read_link().unwrap(), Path::new(&outside));
    assert_eq!(text(&tree.join("gone")), "file in place of a link");
    assert_eq!(text(&witness), "host");
}

#[test]
fn a_layer_with_any_byte_changed_stays_in_its_root() {
    let ground = Ground::new();
    let witness = ground.put("witness", b"host");
    let good = tar(&[
        dir("usr"),
        symlink("usr/out", "../../../../../witness"),
        file("usr/file", "content"),
        hard_link("usr/same", "usr/file"),
        file("usr/.wh.gone", ""),
        file("usr/dir/x", ""),
    ]);
    let beside = || {
        let mut names = ground.listed("..");
        names.sort();
        names
    };
    ground.put("changed.tar", &good);
    let before = beside();
    let (mut random, mut taken) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    for round in 0..400 {
        let mut changed = good.clone();
        for _ in 0..=round % 4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Most bytes of a header are zero: half of the changes hit a name or a type.
            let block = (random >> 8) as usize % (good.len() / 512) * 512;
            let place =
                [(random >> 24) as usize % 512, (random >> 24) as usize % 24, 156, 157 + (random >> 24) as usize % 30];
            let value = [random as u8, b'.', b'/', b'0' + (random >> 40) as u8 % 8][(random >> 50) as usize % 4];
            changed[block + place[(random >> 60) as usize % 4]] = value;
            mend_checksum(&mut changed[block..block + 512]);
        }
        match ground.import(&ground.put("changed.tar", &changed)) {
            Ok(_) => taken += 1,
            Err(error) => assert!(error.code().starts_with("image_"), "{error}"),
        }
        assert_eq!((text(&witness).as_str(), witness.metadata().unwrap().nlink()), ("host", 1), "round {round}");
        assert_eq!(ground.listed("tmp").len(), 0, "round {round}");
    }
    assert_eq!(beside(), before);
    assert!((40..360).contains(&taken), "{taken}");
}

/// Makes the sum of a header right again, so that what was changed is read.
fn mend_checksum(header: &mut [u8]) {
    let mut whole = tar::Header::new_old();
    whole.as_mut_bytes().copy_from_slice(header);
    whole.set_cksum();
    header.copy_from_slice(whole.as_bytes());
}

#[test]
fn devices_and_set_id_bits_are_left_out_and_counted() {
    let ground = Ground::new();
    let with_mode = |mode, entry: Entry| Entry { mode, ..entry };
    let layer = vec![
        entry("char", EntryType::Char),
        entry("block", EntryType::Block),
        entry("fifo", EntryType::Fifo),
        with_mode(0o4755, file("setuid", "x")),
        with_mode(0o2755, dir("setgid")),
        with_mode(0o1777, dir("sticky")),
        with_mode(0o000, dir("closed")),
        with_mode(0o640, file("closed/inner", "x")),
    ];
    let image = ground.import_layers(&[layer]).unwrap().image;
    assert_eq!((image.unpacked.skipped_special, image.unpacked.stripped_bits), (3, 2));
    let tree = ground.tree(&image);
    let mode = |name: &str| tree.join(name).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode("setuid"), mode("setgid"), mode("sticky"), mode("closed/inner")], [0o755, 0o755, 0o777, 0o640]);
    assert_eq!(mode("closed"), 0o700, "its owner can always clear it up");
    assert!(!["char", "block", "fifo"].iter().any(|name| tree.join(name).exists()));
}

#[test]
fn whiteouts_remove_what_is_below_and_nothing_of_their_own_layer() {
    let ground = Ground::new();
    let lower = || {
        vec![
            file("d/old", "old"),
            file("d/sub/old", "old"),
            file("d/sub/deep/old", "old"),
            file("e/old", "old"),
            file("f", "old"),
            file("g", "old"),
        ]
    };
    let upper = vec![
        file("d/new", "new"),
        file("d/sub/new", "new"),
        file("d/.wh..wh..opq", ""),
        file("d/late", "new"),
        file("e/.wh.old", ""),
        file("f", "new"),
        file(".wh.f", ""),
        file(".wh.never", ""),
        dir("g"),
        file(".wh..wh.plnk", ""),
    ];
    let tree = ground.tree(&ground.import_layers(&[lower(), upper]).unwrap().image);
    let there = |name: &str| tree.join(name).exists();
    for name in ["d/old", "d/sub/old", "d/sub/deep", "e/old", "d/.wh..wh..opq", ".wh..wh.plnk"] {
        assert!(!there(name), "{name}");
    }
    for name in ["d/new", "d/sub/new", "d/late", "f"] {
        assert_eq!(text(&tree.join(name)), "new", "{name}");
    }
    assert!(tree.join("g").is_dir() && tree.join("e").is_dir());
    let all = ground.import_layers(&[lower(), vec![file("h", "new"), file(".wh..wh..opq", "")]]).unwrap().image;
    let names: Vec<_> = std::fs::read_dir(ground.tree(&all)).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(names, ["h"]);
}

#[test]
fn a_changed_cut_or_swapped_blob_is_refused() {
    let ground = Ground::new();
    let good = layout_of(&[root_entries(), vec![file("more", "more")]]);
    let changed = |change: &dyn Fn(&mut Files)| {
        let mut files = good.clone();
        change(&mut files);
        let code = ground.import(&ground.put("bad.tar", &archive(&files))).unwrap_err().code();
        ground.assert_nothing_is_left();
        code
    };
    // Files: oci-layout, index.json, two layers, the configuration, the manifest.
    for blob in 2..6 {
        assert_eq!(changed(&|files| files[blob].1[20] ^= 1), "image_digest", "{blob}");
        assert_eq!(changed(&|files| files[blob].1.truncate(20)), "image_size", "{blob}");
        assert_eq!(changed(&|files| files[blob].1.push(b' ')), "image_size", "{blob}");
        assert_eq!(changed(&|files| files[blob].1.clear()), "image_size", "{blob}");
        assert_eq!(changed(&|files| drop(files.remove(blob))), "image_missing_file", "{blob}");
    }
    let swapped = |files: &mut Files| {
        let (first, second) = (files[2].1.clone(), files[3].1.clone());
        (files[2].1, files[3].1) = (second, first);
    };
    assert!(["image_size", "image_digest"].contains(&changed(&swapped)));
    assert_eq!(changed(&|files| files[1].1 = b"{".to_vec()), "image_document");
    assert_eq!(changed(&|files| files[1].1 = b"[".repeat(100_000)), "image_document");
    // A layer that is what its manifest says, and not what its configuration says.
    let tar = tar(&root_entries());
    let wrong = layout(&[(gzip(&tar), Digest::of(b"other"))], "{}", "x");
    assert_eq!(ground.import(&ground.put("wrong.tar", &archive(&wrong))).unwrap_err().code(), "image_digest");
    // A layer that is cut off within an entry.
    let cut = &tar[..tar.len() - 1024 - 700];
    let cut = layout(&[(cut.to_vec(), Digest::of(cut))], "{}", "x");
    assert_eq!(ground.import(&ground.put("cut.tar", &archive(&cut))).unwrap_err().code(), "image_layer");
    ground.assert_nothing_is_left();
    let whole = ground.put("whole.tar", &archive(&good));
    assert_eq!(text(&ground.tree(&ground.import(&whole).unwrap().image).join("more")), "more");
}

#[test]
fn bombs_and_other_excesses_are_refused() {
    let ground = Ground::new();
    let zeros = vec![Entry { content: vec![0; 3 << 20], ..file("zeros", "") }];
    let path = ground.put("zeros.tar", &archive(&layout_of(&[zeros])));
    let small = Limits { free_bytes: 1 << 20, ratio: 10, ..Limits::default() };
    assert_eq!(ground.import_within(&path, &small).unwrap_err().code(), "image_bomb");
    let whole =
        ground.put("zeros.tar.gz", &gzip(&tar(&[Entry { content: vec![0; 3 << 20], ..file("usr/zeros", "") }])));
    assert_eq!(ground.import_within(&whole, &small).unwrap_err().code(), "image_bomb");
    let code = |limits: &Limits| ground.import_within(&path, limits).unwrap_err().code();
    assert_eq!(code(&Limits { unpacked_bytes: 1 << 20, ..Limits::default() }), "image_too_large");
    assert_eq!(code(&Limits { entries: 0, ..Limits::default() }), "image_too_large");
    assert_eq!(code(&Limits { layers: 0, ..Limits::default() }), "image_too_large");
    assert_eq!(code(&Limits { layer_bytes: 100, ..Limits::default() }), "image_too_large");
    assert_eq!(code(&Limits { document_bytes: 100, ..Limits::default() }), "image_too_large");
    assert_eq!(code(&Limits { path_bytes: 3, ..Limits::default() }), "image_too_large");
    // A header that asks for memory: the long name of the next entry has two megabytes.
    let name = Entry { content: vec![b'n'; 2 << 20], ..entry("././@LongLink", EntryType::GNULongName) };
    assert_eq!(ground.refuse_layers(&[vec![name, file("x", "x")]]), "image_layer");
    let deep = Entry { content: "d/".repeat(1000).into(), ..entry("././@LongLink", EntryType::GNULongName) };
    assert_eq!(ground.refuse_layers(&[vec![deep, file("x", "x")]]), "image_entry");
    ground.assert_nothing_is_left();
    assert!(ground.import(&path).is_ok());
}

#[test]
fn imports_of_the_same_image_at_once_all_succeed() {
    let ground = Ground::new();
    let many: Vec<Entry> = (0..300).map(|at| file(&format!("usr/f{at}"), "x")).collect();
    let path = ground.put("image.tar", &archive(&layout_of(&[many])));
    // Many short ones of another image make and remove directories beside them.
    let small = ground.put("small.tar", &tar(&[file("usr/x", "x")]));
    let import = |path: &Path, times: usize| {
        (0..times).all(|_| ground.import(path).map_err(|error| eprintln!("{error}")).is_ok())
    };
    let results: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| import(&path, 1))).collect();
        let beside: Vec<_> = (0..2).map(|_| scope.spawn(|| import(&small, 40))).collect();
        threads.into_iter().chain(beside).map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results, [true; 6]);
    assert_eq!((ground.store.images().unwrap().len(), ground.listed("roots").len()), (2, 2));
    assert_eq!(ground.listed("tmp").len(), 0);
}

const KILLED: &str = "NEXUS_TEST_KILLED_IMPORT";

/// The process that the next test kills: it stops when the first layer is to be unpacked.
#[test]
fn an_import_that_stops_in_the_middle() {
    let Ok(dir) = std::env::var(KILLED) else { return };
    let dir = PathBuf::from(dir);
    let store = Store::open(&dir).unwrap();
    let mut stop = |progress| {
        if matches!(progress, nexus_image::Progress::Unpack { layer: 2, .. }) {
            std::fs::write(dir.join("reached"), "").unwrap();
            loop {
                std::thread::park();
            }
        }
    };
    import(&store, &dir.join("image.tar"), None, &Limits::default(), &mut stop).unwrap();
}

#[test]
fn a_killed_import_leaves_nothing_half_and_the_next_one_clears_up() {
    let ground = Ground::new();
    let path = ground.put("image.tar", &archive(&layout_of(&[root_entries(), vec![file("more", "more")]])));
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "an_import_that_stops_in_the_middle"])
        .env(KILLED, ground.dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !ground.dir.path().join("reached").exists() {
        assert!(std::time::Instant::now() < until && child.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(ground.store.collect().unwrap_err().code(), "image_store_busy");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((ground.store.images().unwrap().len(), ground.listed("roots").len()), (0, 0));
    assert_eq!(ground.listed("tmp").len(), 1, "the killed import left its directory");
    let image = ground.import(&path).unwrap().image;
    assert_eq!(text(&ground.tree(&image).join("more")), "more");
    assert_eq!(ground.listed("tmp").len(), 0);
}

#[test]
fn what_no_image_needs_is_removed_and_what_a_run_uses_stays() {
    let ground = Ground::new();
    let one = ground.import_layers(&[vec![file("one", "1")]]).unwrap().image;
    let moved = ground.import_layers(&[vec![file("two", "2")]]).unwrap().image;
    assert_eq!(ground.store.find("test:1").unwrap().digest, moved.digest, "the name moved to the later import");
    assert_eq!(ground.store.find(&one.digest.hex()[..12]).unwrap().names, Vec::<String>::new());
    assert_eq!(ground.store.find(&format!("x@{}", one.digest)).unwrap().digest, one.digest);
    let unused = ground.store.collect().unwrap();
    assert_eq!((unused.blobs, unused.roots), (0, 0));
    let held = ground.store.hold(&one).unwrap();
    assert!(ground.store.remove(&one.digest.to_string()).unwrap().1);
    assert_eq!(ground.store.find(&one.digest.to_string()).unwrap_err().code(), "image_unknown");
    let kept = ground.store.collect().unwrap();
    assert_eq!((kept.blobs, kept.roots, kept.roots_in_use), (3, 0, 1));
    assert!(held.path().join("one").exists());
    drop(held);
    assert_eq!(ground.store.collect().unwrap().roots, 1);
    assert!(ground.store.remove("test:1").unwrap().1, "its only name");
    let all = ground.store.collect().unwrap();
    assert_eq!((all.blobs, all.roots), (3, 1));
    assert_eq!((ground.listed("roots").len(), ground.listed("blobs/sha256").len()), (0, 0));
}

#[test]
fn a_name_of_an_image_is_plain_and_a_newer_store_is_left_alone() {
    let ground = Ground::new();
    let path = ground.put("root.tar", &tar(&root_entries()));
    let named = |name: &str| import(&ground.store, &path, Some(name), &Limits::default(), &mut |_| ());
    for bad in ["", "-x", "a b", "sha256:00", "deadbeef", "a\n", &"a".repeat(256)] {
        assert_eq!(named(bad).unwrap_err().code(), "image_name", "{bad}");
    }
    let image = named("registry.example:5000/team/tool:1.2").unwrap().image;
    assert_eq!(ground.store.find("registry.example:5000/team/tool:1.2").unwrap(), image);
    named("tool:latest").unwrap();
    assert_eq!(ground.store.find("tool").unwrap().digest, image.digest);
    let version = ground.dir.path().join("images/version");
    std::fs::write(&version, "2\n").unwrap();
    assert_eq!(Store::open(ground.dir.path()).unwrap_err().code(), "image_store_newer");
    assert_eq!(text(&version), "2\n");
}
