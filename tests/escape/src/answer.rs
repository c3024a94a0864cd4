//! Answer of a probe: a short word that the table compares, and a detail for people.
//!
//! An answer is an observation (an errno name, `ok`, `killed:SIGSYS`, a value), never the absence of an error:
//! a probe that could not run at all answers something that no row of the table expects.

use serde::{Deserialize, Serialize};

/// One observation of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The word that is compared with the table.
    pub answer: String,
    /// Free text for the reader of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Answer {
    /// An answer without detail.
    pub fn of(word: impl Into<String>) -> Self {
        Self { answer: word.into(), detail: None }
    }

    /// The same answer with a detail.
    #[must_use]
    pub fn with(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// `yes` when the condition holds, else `no`.
    pub fn choose(condition: bool, yes: &str, no: &str) -> Self {
        Self::of(if condition { yes } else { no })
    }

    /// `ok`, or the name of the errno.
    pub fn from_io<T>(result: Result<T, std::io::Error>) -> Self {
        match result {
            Ok(_) => Self::of("ok"),
            Err(error) => Self::from_error(&error),
        }
    }

    /// The name of an error's errno.
    pub fn from_error(error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::of(errno_name(number)),
            None => Self::of("error").with(error.to_string()),
        }
    }
}

impl<T> From<Result<T, i32>> for Answer {
    fn from(result: Result<T, i32>) -> Self {
        match result {
            Ok(_) => Self::of("ok"),
            Err(number) => Self::of(errno_name(number)),
        }
    }
}

/// One line of a probe's output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Seen {
    /// The vector, such as `A05`.
    pub id: String,
    /// The case within the vector.
    pub case: String,
    /// Observation of the case.
    #[serde(flatten)]
    pub answer: Answer,
}

impl Seen {
    /// Ties an observation to its row.
    pub fn new(id: &str, case: &str, answer: Answer) -> Self {
        Self { id: id.to_owned(), case: case.to_owned(), answer }
    }
}

/// The symbolic name of an errno; numbers that no probe expects stay numbers.
pub fn errno_name(number: i32) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EINTR, "EINTR"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::E2BIG, "E2BIG"),
        (libc::ENOEXEC, "ENOEXEC"),
        (libc::EBADF, "EBADF"),
        (libc::ECHILD, "ECHILD"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::EXDEV, "EXDEV"),
        (libc::ENODEV, "ENODEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EISDIR, "EISDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ETXTBSY, "ETXTBSY"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::EMLINK, "EMLINK"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ELOOP, "ELOOP"),
        (libc::ENODATA, "ENODATA"),
        (libc::EOVERFLOW, "EOVERFLOW"),
        (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
        (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::ENETUNREACH, "ENETUNREACH"),
        (libc::ESTALE, "ESTALE"),
        (libc::EDQUOT, "EDQUOT"),
        (libc::ENOKEY, "ENOKEY"),
    ];
    NAMES
        .iter()
        .find(|(known, _)| *known == number)
        .map_or_else(|| format!("errno:{number}"), |(_, name)| (*name).to_owned())
}

/// The name of a signal; the ones that no probe expects stay numbers.
pub fn signal_name(number: i32) -> String {
    match number {
        libc::SIGSYS => "SIGSYS".to_owned(),
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGKILL => "SIGKILL".to_owned(),
        libc::SIGTERM => "SIGTERM".to_owned(),
        libc::SIGABRT => "SIGABRT".to_owned(),
        other => format!("SIG{other}"),
    }
}
