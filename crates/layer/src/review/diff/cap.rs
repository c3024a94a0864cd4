//! Output with a bound: the head and the tail of what is too long. Pure.

use std::collections::VecDeque;

/// Ends the head of a cut diff. Its first line is what git takes for a hunk and its second line no hunk can contain,
/// so that `git apply` refuses the whole instead of applying what is left.
fn omission(left_out: u64) -> Vec<u8> {
    let text = "@@ -1 +1 @@ this diff was cut and does not apply\n#";
    format!("{text} {left_out} bytes were left out here; ask for single paths or raise the limit\n").into_bytes()
}

/// Takes bytes and keeps at most `max` of them.
#[derive(Debug)]
pub(crate) struct Cap {
    max: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Cap {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.max / 2 - self.head.len()));
        self.head.extend_from_slice(head);
        let room = self.max - self.max / 2;
        let rest = &rest[rest.len().saturating_sub(room)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(room);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Returns the bytes, and whether some are missing. If so, a notice stands in their place, between whole lines
    /// where there are any, and the result is longer than `max` by no more than the notice.
    pub(crate) fn finish(mut self) -> (Vec<u8>, bool) {
        if self.total <= self.max as u64 {
            self.head.extend(self.tail);
            return (self.head, false);
        }
        match self.head.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => self.head.truncate(end + 1),
            // A single line: it ends here, so that the omission note begins a line.
            None if self.head.is_empty() => {}
            None => self.head.push(b'\n'),
        }
        let start = self.tail.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.tail.drain(..start);
        let kept = (self.head.len() + self.tail.len()) as u64;
        let mut bytes = self.head;
        bytes.extend(omission(self.total.saturating_sub(kept)));
        bytes.extend(self.tail);
        (bytes, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(max: usize, pieces: &[&[u8]]) -> (String, bool) {
        let mut cap = Cap::new(max);
        for piece in pieces {
            cap.push(piece);
        }
        let (bytes, cut) = cap.finish();
        (String::from_utf8(bytes).unwrap(), cut)
    }

    #[test]
    fn what_fits_exactly_is_whole_however_it_comes() {
        assert_eq!(cut(7, &[b"ab\ncde\n"]), ("ab\ncde\n".to_owned(), false));
        assert_eq!(cut(7, &[b"ab", b"\ncd", b"", b"e\n"]), ("ab\ncde\n".to_owned(), false));
        assert_eq!(cut(0, &[]), (String::new(), false));
    }

    #[test]
    fn what_does_not_fit_keeps_whole_lines_of_both_ends() {
        let (text, was_cut) = cut(10, &[b"1\n22\n", b"333\n4444\n", b"55555\n6\n7\n"]);
        assert!(was_cut);
        assert!(text.starts_with("1\n22\n@@ -1 +1 @@ "), "{text}");
        assert!(text.ends_with("\n6\n7\n") && !text.contains("55"), "{text}");
        assert!(text.contains("# 15 bytes were left out"), "{text}");
    }

    #[test]
    fn a_single_long_line_is_cut_inside() {
        let (text, was_cut) = cut(8, &[&[b'x'; 100]]);
        assert!(was_cut && text.starts_with("xxxx\n@@ -1 +1 @@"), "{text}");
    }
}
