//! Finds many byte strings at once in bytes that come in pieces (Aho and Corasick, 1975).
//!
//! A state stands for the longest end of what has come that begins one of the strings. Transitions are lists of siblings, since
//! nearly all states have one follower: a value of 64 KiB makes some hundred thousand states.

use zeroize::Zeroizing;

/// The state at the beginning.
pub const ROOT: u32 = 0;

#[derive(Debug, Clone, Default)]
struct Node {
    /// The first follower and the next sibling; 0 for none.
    child: u32,
    sibling: u32,
    /// The state of the longest proper end that begins a string.
    fail: u32,
    /// The number of bytes that lead here.
    depth: u32,
    /// The length of the longest string that ends here; 0 for none.
    matched: u32,
    /// The number of bytes at the end that may still become a string, or a longer one.
    open: u32,
    /// The secret of the string that ends here.
    secret: u16,
}

/// The states of all strings. The bytes that lead to the states spell the values, and are wiped when it is dropped.
pub struct Automaton {
    nodes: Vec<Node>,
    bytes: Zeroizing<Vec<u8>>,
    /// The followers of the first state.
    first: [u32; 256],
}

impl Default for Automaton {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], bytes: Zeroizing::new(vec![0]), first: [0; 256] }
    }
}

impl Automaton {
    /// Adds a string of a secret.
    pub fn add(&mut self, string: &[u8], secret: u16) {
        let mut at = ROOT;
        // At once: a buffer that grows leaves copies in freed memory.
        if self.bytes.capacity() < self.bytes.len() + string.len() {
            let mut bytes = Zeroizing::new(Vec::with_capacity(2 * (self.bytes.len() + string.len())));
            bytes.extend_from_slice(&self.bytes);
            self.bytes = bytes;
        }
        for byte in string {
            at = match self.follow(at, *byte) {
                Some(next) => next,
                None => self.grow(at, *byte),
            };
        }
        let node = &mut self.nodes[at as usize];
        if at != ROOT && node.matched == 0 {
            (node.matched, node.secret) = (node.depth, secret);
        }
    }

    fn grow(&mut self, at: u32, byte: u8) -> u32 {
        let new = self.nodes.len() as u32;
        let parent = &mut self.nodes[at as usize];
        let node = Node { sibling: parent.child, depth: parent.depth + 1, ..Node::default() };
        parent.child = new;
        if at == ROOT {
            self.first[usize::from(byte)] = new;
        }
        self.nodes.push(node);
        self.bytes.push(byte);
        new
    }

    fn follow(&self, at: u32, byte: u8) -> Option<u32> {
        if at == ROOT {
            return Some(self.first[usize::from(byte)]).filter(|next| *next != ROOT);
        }
        let mut next = self.nodes[at as usize].child;
        while next != ROOT && self.bytes[next as usize] != byte {
            next = self.nodes[next as usize].sibling;
        }
        Some(next).filter(|next| *next != ROOT)
    }

    /// Completes the automaton, after the last string.
    pub fn finish(&mut self) {
        let mut queue = vec![ROOT];
        let mut at = 0;
        while let Some(&parent) = queue.get(at) {
            at += 1;
            let mut child = self.nodes[parent as usize].child;
            while child != ROOT {
                let fail = if parent == ROOT {
                    ROOT
                } else {
                    self.next(self.nodes[parent as usize].fail, self.bytes[child as usize])
                };
                let Node { matched, secret, open, .. } = self.nodes[fail as usize];
                let node = &mut self.nodes[child as usize];
                node.fail = fail;
                if node.matched == 0 {
                    (node.matched, node.secret) = (matched, secret);
                }
                node.open = if node.child == ROOT { open } else { node.depth };
                queue.push(child);
                child = node.sibling;
            }
        }
    }

    /// Returns the state after one more byte.
    pub fn next(&self, mut at: u32, byte: u8) -> u32 {
        loop {
            match self.follow(at, byte) {
                Some(next) => return next,
                None if at == ROOT => return ROOT,
                None => at = self.nodes[at as usize].fail,
            }
        }
    }

    /// Returns the length of the longest string that ends in this state, and its secret.
    pub fn matched(&self, at: u32) -> Option<(u64, u16)> {
        let node = &self.nodes[at as usize];
        (node.matched != 0).then(|| (u64::from(node.matched), node.secret))
    }

    /// Returns the number of bytes before this state that may still become a string, or a longer one.
    pub fn open(&self, at: u32) -> u64 {
        u64::from(self.nodes[at as usize].open)
    }
}
