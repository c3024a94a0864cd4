use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

fn state() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn many_first_runs_at_once_end_with_one_key() {
    for _ in 0..20 {
        let state = state();
        let barrier = std::sync::Barrier::new(8);
        let ids: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        let key = KeyDirectory::open(state.path()).unwrap().current().unwrap();
                        key.seed().unwrap().signer().public().id()
                    })
                })
                .collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        let directory = KeyDirectory::open(state.path()).unwrap();
        assert_eq!(directory.known().unwrap().all.len(), 1);
        assert_eq!(files::hidden(&directory.directory).unwrap(), [""; 0]);
    }
}

#[test]
fn a_key_that_others_can_reach_or_that_is_no_key_is_refused() {
    let state = state();
    let keys = state.path().join("keys");
    let current = || KeyDirectory::open(state.path()).and_then(|directory| directory.current());
    let first = current().unwrap().seed().unwrap().signer().public().id();
    let file = keys.join(CURRENT);
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for wrong in [0o640, 0o604, 0o620] {
        mode(&file, wrong);
        assert!(matches!(current().unwrap_err(), KeyError::Open { .. }), "{wrong:o}");
    }
    mode(&file, 0o600);
    for wrong in [0o750, 0o701, 0o770] {
        mode(&keys, wrong);
        assert!(matches!(current().unwrap_err(), KeyError::Directory(DirectoryError::Open { .. })), "{wrong:o}");
    }
    mode(&keys, 0o700);
    assert_eq!(current().unwrap().seed().unwrap().signer().public().id(), first, "the harmless twin");
    // Damaged.
    let good = std::fs::read(&file).unwrap();
    for bad in [&good[..good.len() - 1], b"", &[&good[..], b"\n"].concat()] {
        std::fs::write(&file, bad).unwrap();
        assert!(matches!(current().unwrap_err(), KeyError::Damaged { .. }));
    }
    // A link, also to a good key.
    let elsewhere = state.path().join("elsewhere");
    std::fs::write(&elsewhere, &good).unwrap();
    mode(&elsewhere, 0o600);
    std::fs::remove_file(&file).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert!(matches!(current().unwrap_err(), KeyError::Io { doing: "opened", .. }));
    // A directory that is a link.
    std::fs::rename(&keys, state.path().join("moved")).unwrap();
    symlink(state.path().join("moved"), &keys).unwrap();
    assert!(matches!(current().unwrap_err(), KeyError::Directory(DirectoryError::Io { .. })));
}

#[test]
fn a_rotation_keeps_the_old_public_key_and_a_statement_of_it() {
    let state = state();
    let directory = KeyDirectory::open(state.path()).unwrap();
    let first = directory.current().unwrap().seed().unwrap().signer().public().clone();
    // The file that a rotation that was killed leaves.
    let left = state.path().join("keys/.new-01890a5d-ac96-774b-bcce-b302099a8057");
    std::fs::write(&left, "a private key").unwrap();
    let (old, new) = directory.rotate(1).unwrap();
    assert!(!left.exists());
    assert_eq!(old, first);
    assert_ne!(old, new);
    let known = directory.known().unwrap();
    assert_eq!(known.current.as_ref(), Some(&new));
    assert!(known.all.contains(&old) && known.all.len() == 2);
    let links = directory.links().unwrap();
    assert_eq!(links.len(), 1);
    let (linked, _) = Link::open(&links[0].1, &Keyring::new(vec![old])).unwrap();
    assert_eq!(linked, new);
}

#[test]
fn rotations_and_runs_at_once_always_find_a_key_that_is_known_afterwards() {
    let state = state();
    KeyDirectory::open(state.path()).unwrap().current().unwrap();
    let used: Vec<_> = std::thread::scope(|scope| {
        let rotating = scope.spawn(|| {
            for _ in 0..10 {
                match KeyDirectory::open(state.path()).unwrap().rotate(1) {
                    Ok(_) | Err(KeyError::Busy) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let using: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let id = || {
                        let key = KeyDirectory::open(state.path()).unwrap().current().unwrap();
                        key.seed().unwrap().signer().public().id()
                    };
                    (0..30).map(|_| id()).collect::<Vec<_>>()
                })
            })
            .collect();
        rotating.join().unwrap();
        using.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let known = KeyDirectory::open(state.path()).unwrap().known().unwrap().ring();
    assert_eq!(used.len(), 90);
    assert!(used.iter().all(|id| known.get(id).is_some()));
}
