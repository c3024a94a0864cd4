//! Calls with named arguments of texts and lists: as much of Starlark as rules are written in. Anything else is an error.

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    List(Vec<Value>),
}

/// A call at the top of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub name: String,
    pub arguments: Vec<(String, Value)>,
    /// The call as written, shortened.
    pub text: String,
}

const MAX_DEPTH: usize = 8;

/// Reads all calls of a text.
pub(super) fn calls(text: &str) -> Result<Vec<Call>, String> {
    let chars: Vec<char> = text.chars().collect();
    let mut reader = Reader { chars: &chars, at: 0 };
    let mut found = Vec::new();
    loop {
        reader.skip();
        if reader.peek().is_none() {
            return Ok(found);
        }
        let start = reader.at;
        let name = reader.name()?;
        reader.expect('(')?;
        let mut arguments = Vec::new();
        loop {
            reader.skip();
            if reader.take(')') {
                break;
            }
            let name = reader.name()?;
            reader.expect('=')?;
            arguments.push((name, reader.value(0)?));
            reader.skip();
            if !reader.take(',') && reader.peek() != Some(')') {
                return Err(reader.wrong("a comma or a parenthesis"));
            }
        }
        let text = chars[start..reader.at].iter().collect::<String>();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        found.push(Call { name, arguments, text });
    }
}

struct Reader<'t> {
    chars: &'t [char],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        self.at += usize::from(is_there);
        is_there
    }

    fn wrong(&self, wanted: &str) -> String {
        let line = 1 + self.chars[..self.at.min(self.chars.len())].iter().filter(|c| **c == '\n').count();
        format!("line {line}: {wanted} is expected here")
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        self.skip();
        if self.take(wanted) { Ok(()) } else { Err(self.wrong(&wanted.to_string())) }
    }

    /// Skips blanks and comments.
    fn skip(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.at += 1;
                }
            } else if c.is_whitespace() {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn name(&mut self) -> Result<String, String> {
        self.skip();
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.at += 1;
        }
        if start == self.at { Err(self.wrong("a name")) } else { Ok(self.chars[start..self.at].iter().collect()) }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        self.skip();
        match self.peek() {
            Some(quote @ ('"' | '\'')) => self.text(quote).map(Value::Text),
            Some('[') if depth < MAX_DEPTH => {
                self.at += 1;
                let mut list = Vec::new();
                loop {
                    self.skip();
                    if self.take(']') {
                        return Ok(Value::List(list));
                    }
                    list.push(self.value(depth + 1)?);
                    self.skip();
                    if !self.take(',') && self.peek() != Some(']') {
                        return Err(self.wrong("a comma or a bracket"));
                    }
                }
            }
            _ => Err(self.wrong("a text or a list")),
        }
    }

    fn text(&mut self, quote: char) -> Result<String, String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return Err(self.wrong("the end of a text")),
                Some(c) if c == quote => {
                    self.at += 1;
                    return Ok(out);
                }
                Some('\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(c @ ('"' | '\'' | '\\')) => out.push(c),
                        Some('n') => out.push('\n'),
                        Some('t') => out.push('\t'),
                        _ => return Err(self.wrong("a known escape")),
                    }
                    self.at += 1;
                }
                Some(c) => {
                    out.push(c);
                    self.at += 1;
                }
            }
        }
    }
}
