//! Limits the work of resolving links that a command created. A hostile command can cheaply create chains of links whose resolution
//! takes millions of steps.
//!
//! A link whose target text is too long, or for which the step budget is used up, is not resolved: it counts as leading to a
//! protected path.

use crate::beneath::IoFailure;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The reason why a link waits that is not followed.
pub(crate) const TOO_LONG: &str = "a link whose way is too long to be followed";

/// Bytes of a link that is followed.
const MAX_TEXT: usize = 1024;
/// Names of a link that is followed.
const MAX_NAMES: usize = 64;
/// Bytes of a path on the way, as the kernel takes them at most (PATH_MAX).
pub(crate) const MAX_PATH: usize = 4096;

/// Steps for all links of a run together.
const START: u64 = 1_000_000;
/// Steps that each link adds: it cost the command something, too.
const PER_LINK: u64 = 500;
/// Steps that links add at most.
const MAX_ADDED: u64 = 20_000_000;
/// Steps of a question to the file system.
const QUESTION: u64 = 20;
/// Bytes of a path that cost a step.
const PER_STEP: usize = 4;
/// Bytes of a path that cost a step of a way on which nothing is asked.
const PER_WALK: usize = 256;
/// Bytes of paths and texts that are remembered. Beyond them all are forgotten and read again, for steps.
const MAX_KNOWN: usize = 16 << 20;

/// Tells whether a link with this text is not followed.
pub(crate) fn is_too_long(text: &[u8]) -> bool {
    text.len() > MAX_TEXT || text.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count() > MAX_NAMES
}

/// The end of the way that was walked for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    Walked,
    /// The way is too long to be followed: its end is not known.
    TooLong,
}

/// The steps that are left.
#[derive(Debug)]
pub(crate) struct Steps {
    left: Cell<u64>,
    added: Cell<u64>,
}

impl Default for Steps {
    fn default() -> Self {
        Self { left: Cell::new(START), added: Cell::new(0) }
    }
}

impl Steps {
    /// Adds the steps of one more link.
    pub(crate) fn add_link(&self) {
        let more = PER_LINK.min(MAX_ADDED - self.added.get());
        self.added.set(self.added.get() + more);
        self.left.set(self.left.get() + more);
    }

    /// Takes the steps for going on to a path. Returns whether there were as many.
    pub(crate) fn walk(&self, path: &[u8]) -> bool {
        self.take(1 + steps_of(path.len() / PER_WALK))
    }

    /// Takes the steps for asking the file system about a path. Returns whether there were as many.
    pub(crate) fn ask(&self, path: &[u8]) -> bool {
        self.take(QUESTION + steps_of(path.len() / PER_STEP))
    }

    fn take(&self, count: u64) -> bool {
        let left = self.left.get().checked_sub(count);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }
}

fn steps_of(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX - QUESTION)
}

/// Reads the link at a path.
type ReadLink<'a> = dyn Fn(&[u8]) -> Result<Option<Vec<u8>>, IoFailure> + 'a;

/// The link at a path, if there is one.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    NoLink,
    Text(Rc<[u8]>),
    /// A link that is not followed, or too many questions.
    TooLong,
}

/// Reads links, each once.
pub(crate) struct Links<'a> {
    read: Box<ReadLink<'a>>,
    known: RefCell<HashMap<Vec<u8>, Target>>,
    known_bytes: Cell<usize>,
}

impl<'a> Links<'a> {
    pub(crate) fn new(read: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, IoFailure> + 'a) -> Self {
        Self { read: Box::new(read), known: RefCell::default(), known_bytes: Cell::default() }
    }

    /// Reads links by their absolute paths.
    pub(crate) fn outside() -> Self {
        Self::new(|path| Ok(read_absolute(path)))
    }

    /// Tells what is at a path. A new question takes steps.
    pub(crate) fn at(&self, path: &[u8], steps: &Steps) -> Result<Target, IoFailure> {
        if let Some(known) = self.known.borrow().get(path) {
            return Ok(known.clone());
        }
        if !steps.ask(path) {
            return Ok(Target::TooLong);
        }
        let target = match (self.read)(path)? {
            None => Target::NoLink,
            Some(text) if is_too_long(&text) => Target::TooLong,
            Some(text) => Target::Text(text.into()),
        };
        self.remember(path, &target);
        Ok(target)
    }

    fn remember(&self, path: &[u8], target: &Target) {
        let mut known = self.known.borrow_mut();
        let text = if let Target::Text(text) = target { text.len() } else { 0 };
        let bytes = path.len() + text + size_of::<(Vec<u8>, Target)>();
        if self.known_bytes.get() + bytes > MAX_KNOWN {
            known.clear();
            self.known_bytes.set(0);
        }
        self.known_bytes.set(self.known_bytes.get() + bytes);
        known.insert(path.to_vec(), target.clone());
    }
}

/// The text of the link at a path without links on the way. `None` for what is none, and for what cannot be looked at:
/// this user's programs cannot follow it either.
fn read_absolute(path: &[u8]) -> Option<Vec<u8>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Another program may put a link in the place of a directory meanwhile.
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()?;
    rustix::fs::readlinkat(opened, c"", Vec::new()).ok().map(std::ffi::CString::into_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_says_too_much_is_not_followed() {
        for text in ["d/../".repeat(33), "x".repeat(1025), "/".repeat(1025)] {
            assert!(is_too_long(text.as_bytes()), "{text}");
        }
        for text in ["d/../".repeat(32), "x".repeat(1024), "../../.pnpm/a@1.0.0/node_modules/a".to_owned()] {
            assert!(!is_too_long(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn the_steps_of_all_links_end_and_each_link_adds_some() {
        let steps = Steps::default();
        let mut count = 0;
        while steps.walk(b"/a") {
            count += 1;
        }
        assert_eq!(count, START);
        steps.add_link();
        assert!(steps.ask(b"/a") && steps.walk(b"/a"));
        for _ in 0..100_000 {
            steps.add_link();
        }
        assert!(steps.left.get() <= MAX_ADDED);
    }

    #[test]
    fn a_link_is_read_once() {
        let asked = Cell::new(0);
        let links = Links::new(|path| {
            asked.set(asked.get() + 1);
            Ok((path == b"l").then(|| b"to".to_vec()))
        });
        let steps = Steps::default();
        for _ in 0..3 {
            assert!(matches!(links.at(b"l", &steps).unwrap(), Target::Text(text) if *text == *b"to"));
            assert!(matches!(links.at(b"d", &steps).unwrap(), Target::NoLink));
        }
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn what_is_remembered_of_links_is_bounded() {
        let links = Links::new(|_| Ok(Some(vec![b'x'; MAX_TEXT])));
        for number in 0..2 * MAX_KNOWN / MAX_TEXT {
            links.at(number.to_string().as_bytes(), &Steps { left: Cell::new(1_000), ..Steps::default() }).unwrap();
            assert!(links.known.borrow().len() * MAX_TEXT <= MAX_KNOWN);
        }
    }

    #[test]
    fn a_path_with_a_link_on_the_way_is_not_read() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("d")).unwrap();
        for (to, at) in [("d", "to_d"), ("x", "d/l")] {
            std::os::unix::fs::symlink(to, top.join(at)).unwrap();
        }
        let read = |path: &str| {
            use std::os::unix::ffi::OsStrExt as _;
            read_absolute(top.join(path).as_os_str().as_bytes())
        };
        assert_eq!(read("d/l").as_deref(), Some(&b"x"[..]));
        assert_eq!(read("to_d/l"), None);
        assert_eq!(read("d"), None);
    }
}
