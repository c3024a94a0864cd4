//! Parses a git configuration. Pure.
//!
//! The parser accepts a subset of what git accepts; what it does not understand never counts as inert.

use std::ops::Range;

/// One setting of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Section, lower case; an old-style `[a.b]` keeps its dot.
    pub section: String,
    /// The part in quotes of `[section "part"]`.
    pub subsection: Option<Vec<u8>>,
    /// Name of the setting, in lower case.
    pub name: String,
    /// `None` for a bare name, which means true.
    pub value: Option<Vec<u8>>,
    /// Byte range of the setting in the file, without the newline.
    pub at: Range<usize>,
}

/// The text is not what we understand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the git configuration at byte {at}")]
pub struct Unreadable {
    /// Byte at which the parser stopped.
    pub at: usize,
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn fail<T>(&self) -> Result<T, Unreadable> {
        Err(Unreadable { at: self.at })
    }

    /// Returns the length of a line end here: `\n` or `\r\n`.
    fn newline(&self) -> Option<usize> {
        match (self.peek(), self.text.get(self.at + 1)) {
            (Some(b'\n'), _) => Some(1),
            (Some(b'\r'), Some(b'\n')) => Some(2),
            _ => None,
        }
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    fn skip_line(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    fn word(&mut self, more: &[u8]) -> String {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte)) {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.text[from..self.at]).to_ascii_lowercase()
    }

    fn header(&mut self) -> Result<(String, Option<Vec<u8>>), Unreadable> {
        self.at += 1;
        let section = self.word(b"-.");
        if section.is_empty() {
            return self.fail();
        }
        let mut subsection = None;
        if matches!(self.peek(), Some(b' ' | b'\t')) {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return self.fail();
            }
            self.at += 1;
            subsection = Some(self.quoted_part()?);
        }
        if self.peek() != Some(b']') {
            return self.fail();
        }
        self.at += 1;
        Ok((section, subsection))
    }

    fn quoted_part(&mut self) -> Result<Vec<u8>, Unreadable> {
        let mut part = Vec::new();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(part);
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(byte) if byte != b'\n' && byte != 0 => part.push(byte),
                        _ => return self.fail(),
                    }
                }
                Some(b'\n' | 0) | None => return self.fail(),
                Some(byte) => part.push(byte),
            }
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<Vec<u8>, Unreadable> {
        let mut value = Vec::new();
        let mut solid = 0;
        let mut quoted = false;
        self.skip_blanks();
        loop {
            if self.newline().is_some() || self.peek().is_none() {
                if quoted {
                    return self.fail();
                }
                value.truncate(solid);
                return Ok(value);
            }
            let byte = self.text[self.at];
            match byte {
                0 => return self.fail(),
                // For git it is white space and falls away around a value: `\r/..` is an absolute path to it alone.
                b'\r' if !quoted => return self.fail(),
                b'#' | b';' if !quoted => {
                    self.skip_line();
                    value.truncate(solid);
                    return Ok(value);
                }
                b'"' => {
                    quoted = !quoted;
                    solid = value.len();
                }
                b'\\' => {
                    self.at += 1;
                    if let Some(length) = self.newline() {
                        self.at += length;
                        solid = value.len();
                        continue;
                    }
                    value.push(match self.peek() {
                        Some(b'n') => b'\n',
                        Some(b't') => b'\t',
                        Some(b'b') => 8,
                        Some(same @ (b'"' | b'\\')) => same,
                        _ => return self.fail(),
                    });
                    solid = value.len();
                }
                // git drops them as long as the value is empty, also behind a continued line: an absolute path
                // otherwise looked like a relative one.
                b' ' | b'\t' if !quoted && value.is_empty() => {}
                b' ' | b'\t' if !quoted => value.push(byte),
                _ => {
                    value.push(byte);
                    solid = value.len();
                }
            }
            self.at += 1;
        }
    }
}

/// Reads all settings of a file.
pub fn parse(text: &[u8]) -> Result<Vec<Setting>, Unreadable> {
    let mut parser = Parser { text, at: 0 };
    if text.starts_with(b"\xef\xbb\xbf") {
        parser.at = 3;
    }
    let mut section: Option<(String, Option<Vec<u8>>)> = None;
    let mut settings = Vec::new();
    while let Some(byte) = parser.peek() {
        match byte {
            b' ' | b'\t' | b'\n' => parser.at += 1,
            b'\r' if parser.newline().is_some() => parser.at += 2,
            b'#' | b';' => parser.skip_line(),
            b'[' => section = Some(parser.header()?),
            _ if byte.is_ascii_alphabetic() => {
                let from = parser.at;
                let Some((name_of_section, subsection)) = section.clone() else { return parser.fail() };
                let name = parser.word(b"-");
                parser.skip_blanks();
                let value = if parser.peek() == Some(b'=') {
                    parser.at += 1;
                    Some(parser.value()?)
                } else if parser.peek().is_none() || parser.newline().is_some() {
                    None
                } else {
                    return parser.fail();
                };
                settings.push(Setting { section: name_of_section, subsection, name, value, at: from..parser.at });
            }
            _ => return parser.fail(),
        }
    }
    Ok(settings)
}

impl Setting {
    /// Returns the setting as something to compare: names as git compares them, and the value.
    #[must_use]
    pub fn key(&self) -> (String, Option<Vec<u8>>, String, Option<Vec<u8>>) {
        (self.section.clone(), self.subsection.clone(), self.name.clone(), self.value.clone())
    }
}
