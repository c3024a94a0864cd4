//! Names of files that are of no use without others. Pure.

use nexus_git::paths::git_dir_of_names;

/// Endings of the files that hold pages of a database of SQLite, which lies beside them.
pub(crate) const LOGS: [&[u8]; 2] = [b"-wal", b"-journal"];

/// Endings of all files beside a database. `-shm` is the shared index of its log; two programs with different ones overwrite each
/// other's pages.
const BESIDE: [&[u8]; 3] = [b"-wal", b"-journal", b"-shm"];

/// Reports whether a file may belong to the database beside it.
pub(crate) fn is_beside(path: &[u8]) -> bool {
    databases_of(path).next().is_some()
}

/// Reports whether a file may hold pages of a database.
pub(crate) fn is_log(path: &[u8]) -> bool {
    LOGS.iter().any(|end| path.len() > end.len() && path.ends_with(end))
}

/// Reports whether a path may be of no use without another one.
pub(crate) fn is_tied(path: &[u8]) -> bool {
    is_beside(path) || git_dir_of_names(path).is_some()
}

/// Returns the databases that a file may belong to.
pub(crate) fn databases_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    BESIDE.iter().filter_map(move |end| path.strip_suffix(*end)).filter(|database| !database.is_empty())
}

/// Returns the names of the other files of a database, by the name of one of them.
pub(crate) fn siblings(path: &[u8]) -> Vec<Vec<u8>> {
    let databases = std::iter::once(path).chain(databases_of(path)).map(<[u8]>::to_vec);
    let all = databases.flat_map(|database| {
        let logs = LOGS.map(|end| [&*database, end].concat());
        std::iter::once(database).chain(logs)
    });
    all.filter(|one| one != path).collect()
}

/// Reports whether a file of this size may be a database, which has whole pages.
pub(crate) fn may_be_database(size: u64) -> bool {
    /// Bytes of the smallest page (<https://www.sqlite.org/fileformat.html>, 1.2).
    const PAGE: u64 = 512;
    size.is_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_database_are_known_by_each_of_them() {
        let names = |path: &str| {
            let mut names: Vec<_> =
                siblings(path.as_bytes()).into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(names("d/a"), "d/a-journal d/a-wal");
        assert_eq!(names("d/a-wal"), "d/a d/a-journal d/a-wal-journal d/a-wal-wal");
        assert_eq!(names("d/a-shm"), "d/a d/a-journal d/a-shm-journal d/a-shm-wal d/a-wal");
        assert!(is_log(b"a-wal") && is_log(b"a-journal") && !is_log(b"-wal") && !is_log(b"a-shm"));
    }
}
