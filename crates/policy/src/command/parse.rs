//! A strict reader of shell command lines.
//!
//! It knows the grammar of POSIX shells and what bash adds, as far as is needed to find every word that may become a
//! command. It does not know what a reserved word does: it goes on behind it as at the beginning of a command, and marks the
//! line. What it cannot read is marked too, and the rest is still looked at.

use super::expansion::ansi_c;
use super::line::{Direction, Line, Redirect, Stage, Word};

/// Longest line, in bytes.
const MAX_BYTES: usize = 128 << 10;
/// Deepest nesting of substitutions and parentheses.
const MAX_DEPTH: usize = 24;
/// Most commands of a line; more are not looked at.
const MAX_STAGES: usize = 4096;

/// Words that are not commands where a command stands.
const RESERVED: &[&str] = &[
    "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "case", "esac", "select", "function",
    "in", "time", "coproc", "!", "{", "}", "[[", "]]",
];

/// Reads a line.
pub(super) fn parse(text: &str) -> Line {
    let mut line = Line::default();
    if text.len() > MAX_BYTES {
        line.note("the line is too long");
        return line;
    }
    let chars: Vec<char> = text.chars().collect();
    if chars.iter().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        line.note("a control character");
    }
    let mut reader = Reader { chars: &chars, at: 0, depth: 0, stages: 0, documents: Vec::new() };
    reader.list(&mut line, None);
    if reader.at < chars.len() {
        line.note("a part that was not read");
    }
    if !reader.documents.is_empty() {
        line.note("a here-document without an end");
    }
    line
}

struct Reader<'t> {
    chars: &'t [char],
    at: usize,
    depth: usize,
    stages: usize,
    /// Here-documents whose text begins after the next line break.
    documents: Vec<Document>,
}

/// A here-document that was announced.
struct Document {
    end: String,
    is_quoted: bool,
    strips_tabs: bool,
    /// Place of its redirection: pipeline, stage, redirection.
    place: (usize, usize, usize),
    depth: usize,
}

impl Reader<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn looks_at(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(place, c)| self.peek(place) == Some(c))
    }

    fn skip_blanks(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(' ' | '\t'), _) => self.at += 1,
                (Some('\\'), Some('\n')) => self.at += 2,
                _ => return,
            }
        }
    }

    /// Reads commands until `end`, or until the end of the text.
    fn list(&mut self, line: &mut Line, end: Option<char>) {
        self.depth += 1;
        let mut pipeline = Vec::new();
        let mut stage = Stage::default();
        loop {
            self.skip_blanks();
            let Some(c) = self.peek(0) else { break };
            if Some(c) == end {
                break;
            }
            if self.depth > MAX_DEPTH || self.stages > MAX_STAGES {
                line.note("too many commands in each other");
                self.at = self.chars.len();
                break;
            }
            match c {
                '\n' => {
                    self.at += 1;
                    self.end_stage(&mut pipeline, &mut stage);
                    end_pipeline(line, &mut pipeline);
                    line.note("more than one line");
                    self.read_documents(line);
                }
                ';' | ')' => {
                    if c == ')' {
                        line.note("a parenthesis that nothing opens");
                    }
                    self.at += 1;
                    self.end_stage(&mut pipeline, &mut stage);
                    end_pipeline(line, &mut pipeline);
                    line.note("a list of commands");
                }
                '&' if self.peek(1) == Some('>') => self.redirect(line, &mut stage, pipeline.len()),
                '&' => {
                    self.at += if self.peek(1) == Some('&') { 2 } else { 1 };
                    self.end_stage(&mut pipeline, &mut stage);
                    end_pipeline(line, &mut pipeline);
                    line.note("a list of commands");
                }
                '|' if self.peek(1) == Some('|') => {
                    self.at += 2;
                    self.end_stage(&mut pipeline, &mut stage);
                    end_pipeline(line, &mut pipeline);
                    line.note("a list of commands");
                }
                '|' => {
                    self.at += if self.peek(1) == Some('&') { 2 } else { 1 };
                    self.end_stage(&mut pipeline, &mut stage);
                    line.note("a pipe");
                }
                '<' | '>' if self.peek(1) == Some('(') => {
                    let word = self.word(line);
                    stage.words.push(word);
                }
                '<' | '>' => self.redirect(line, &mut stage, pipeline.len()),
                '(' => self.parenthesis(line, &mut pipeline, &mut stage),
                '#' => {
                    line.note("a comment");
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                c if c.is_ascii_digit() && self.is_descriptor() => {
                    while self.peek(0).is_some_and(|c| c.is_ascii_digit()) {
                        self.at += 1;
                    }
                    self.redirect(line, &mut stage, pipeline.len());
                }
                _ => {
                    let before = self.at;
                    let word = self.word(line);
                    if self.at == before {
                        // Nothing reads this character; without a step the reader would stand still.
                        line.note("a character that is not known");
                        self.at += 1;
                    }
                    place_word(line, &mut stage, word);
                }
            }
        }
        self.end_stage(&mut pipeline, &mut stage);
        end_pipeline(line, &mut pipeline);
        self.depth -= 1;
    }

    fn end_stage(&mut self, pipeline: &mut Vec<Stage>, stage: &mut Stage) {
        if !stage.is_empty() {
            self.stages += 1;
            pipeline.push(std::mem::take(stage));
        }
    }

    /// Digits directly before a redirection.
    fn is_descriptor(&self) -> bool {
        let digits = self.chars[self.at..].iter().take_while(|c| c.is_ascii_digit()).count();
        matches!(self.peek(digits), Some('<' | '>'))
    }

    /// Reads `( … )`, or the parentheses of a function.
    fn parenthesis(&mut self, line: &mut Line, pipeline: &mut Vec<Stage>, stage: &mut Stage) {
        self.at += 1;
        self.skip_blanks();
        if self.peek(0) == Some(')') && !stage.words.is_empty() {
            self.at += 1;
            line.note("a function");
            line.functions.extend(stage.words.pop().map(|word| word.text));
            self.end_stage(pipeline, stage);
            end_pipeline(line, pipeline);
            return;
        }
        line.note("parentheses");
        let inner = self.nested(line, ')');
        stage.inner.push(inner);
    }

    /// Reads commands up to the end of a substitution or of parentheses; their marks count for the line around them too.
    fn nested(&mut self, line: &mut Line, end: char) -> Line {
        let mut inner = Line::default();
        let waiting = std::mem::take(&mut self.documents);
        self.list(&mut inner, Some(end));
        if !self.documents.is_empty() {
            line.note("a here-document without an end");
        }
        self.documents = waiting;
        if self.peek(0) == Some(end) {
            self.at += 1;
        } else {
            line.note("something that nothing closes");
        }
        for note in &inner.unknown {
            line.note(note);
        }
        line.functions.extend(inner.functions.iter().cloned());
        inner
    }

    fn redirect(&mut self, line: &mut Line, stage: &mut Stage, at_stage: usize) {
        const SIGNS: &[(&str, Direction)] = &[
            ("&>>", Direction::Out),
            ("&>", Direction::Out),
            ("<<<", Direction::Text),
            ("<<-", Direction::Text),
            ("<<", Direction::Text),
            ("<>", Direction::Out),
            ("<&", Direction::Descriptor),
            (">&", Direction::Descriptor),
            (">>", Direction::Out),
            (">|", Direction::Out),
            ("<", Direction::In),
            (">", Direction::Out),
        ];
        line.note("a redirection");
        let Some((sign, direction)) = SIGNS.iter().find(|(sign, _)| self.looks_at(sign)) else {
            line.note("a redirection that is not known");
            self.at += 1;
            return;
        };
        self.at += sign.len();
        self.skip_blanks();
        let target = self.word(line);
        if target.text.is_empty() && !target.is_quoted && target.inner.is_empty() {
            line.note("a redirection to nothing");
        }
        // `>& FILE` writes a file; a number or `-` is a descriptor.
        let is_number = target.text.chars().all(|c| c.is_ascii_digit() || c == '-') && !target.text.is_empty();
        let direction = match direction {
            Direction::Descriptor if !is_number => Direction::Out,
            direction => *direction,
        };
        if matches!(*sign, "<<" | "<<-") {
            self.documents.push(Document {
                end: target.text.clone(),
                is_quoted: target.is_quoted,
                strips_tabs: *sign == "<<-",
                place: (line.pipelines.len(), at_stage, stage.redirects.len()),
                depth: self.depth,
            });
        }
        stage.redirects.push(Redirect { direction, target });
    }

    /// Reads the texts of the here-documents that the last line announced.
    fn read_documents(&mut self, line: &mut Line) {
        for document in std::mem::take(&mut self.documents) {
            let mut text = String::new();
            let mut has_end = false;
            while self.at < self.chars.len() {
                let rest = &self.chars[self.at..];
                let length = rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
                let row: String = rest[..length].iter().collect();
                self.at = (self.at + length + 1).min(self.chars.len());
                let plain = if document.strips_tabs { row.trim_start_matches('\t') } else { &row };
                if plain == document.end {
                    has_end = true;
                    break;
                }
                text.push_str(plain);
                text.push('\n');
            }
            if !has_end || document.depth != self.depth {
                line.note("a here-document without an end");
            }
            let mut word = Word { text: text.clone(), is_quoted: true, ..Word::default() };
            if !document.is_quoted {
                self.expansions_of(line, &text, &mut word);
            }
            let (pipeline, stage, redirect) = document.place;
            let place = line.pipelines.get_mut(pipeline).and_then(|pipeline| pipeline.get_mut(stage));
            if let Some(redirect) = place.and_then(|stage| stage.redirects.get_mut(redirect)) {
                redirect.target = word;
            } else {
                line.note("a here-document whose command was not found");
            }
        }
    }

    /// Finds the substitutions of a text in which no quote counts.
    fn expansions_of(&mut self, line: &mut Line, text: &str, word: &mut Word) {
        let chars: Vec<char> = text.chars().collect();
        let mut reader = Reader { chars: &chars, at: 0, depth: self.depth, stages: self.stages, documents: Vec::new() };
        while let Some(c) = reader.peek(0) {
            match c {
                '\\' => reader.at += 2,
                '$' | '`' => reader.expansion(line, word),
                _ => reader.at += 1,
            }
        }
        self.stages = reader.stages;
    }

    /// Reads one word, up to a blank or an operator.
    fn word(&mut self, line: &mut Line) -> Word {
        let mut word = Word::default();
        let start = self.at;
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | ')' => break,
                '<' | '>' => {
                    if self.peek(1) != Some('(') {
                        break;
                    }
                    self.at += 2;
                    line.note("a process substitution");
                    let inner = self.nested(line, ')');
                    word.text.push_str("/dev/fd/");
                    word.is_open = true;
                    word.inner.push(inner);
                }
                '(' => {
                    // A pattern of bash, or the values of an array: `@(a|b)`, `a=(b c)`.
                    if self.at == start {
                        break;
                    }
                    if self.peek(1) == Some(')') {
                        break;
                    }
                    self.at += 1;
                    line.note("parentheses in a word");
                    let inner = self.nested(line, ')');
                    word.is_open = true;
                    word.inner.push(inner);
                }
                '\\' => {
                    self.at += 1;
                    match self.peek(0) {
                        Some('\n') => self.at += 1,
                        Some(c) => {
                            word.text.push(c);
                            word.is_quoted = true;
                            self.at += 1;
                        }
                        None => line.note("a backslash at the end"),
                    }
                }
                '\'' => {
                    word.is_quoted = true;
                    self.at += 1;
                    self.until_quote(line, &mut word.text);
                }
                '"' => {
                    self.at += 1;
                    self.double_quoted(line, &mut word);
                }
                '$' | '`' => self.expansion(line, &mut word),
                _ => {
                    self.plain(line, &mut word, c, start);
                    self.at += 1;
                }
            }
        }
        word
    }

    /// Reads up to a closing character and takes that too. `escaped` is given what stands behind a backslash, and reports
    /// whether it took it.
    fn enclosed(&mut self, line: &mut Line, end: char, escaped: fn(char, &mut String) -> bool) -> String {
        let mut text = String::new();
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(c), _) if c == end => {
                    self.at += 1;
                    return text;
                }
                (Some('\\'), Some(c)) if escaped(c, &mut text) => self.at += 2,
                (Some(c), _) => {
                    text.push(c);
                    self.at += 1;
                }
                (None, _) => {
                    line.note("a quote that nothing closes");
                    return text;
                }
            }
        }
    }

    /// Takes one character that stands for itself, or marks what else it may be.
    fn plain(&self, line: &mut Line, word: &mut Word, c: char, start: usize) {
        match c {
            '*' | '?' | '[' => {
                word.is_open = true;
                line.note("a pattern");
            }
            '~' if self.at == start || word.text.ends_with(['=', ':']) => {
                word.is_open = true;
                line.note("a tilde");
            }
            '{' | '}' => {
                let is_alone = |place: Option<usize>| {
                    let next = place.and_then(|place| self.chars.get(place));
                    next.is_none_or(|c| matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | ')' | '('))
                };
                let is_pair = self.looks_at("{}") && self.at == start && is_alone(Some(self.at + 2));
                let ends_pair = c == '}' && word.text == "{" && is_alone(Some(self.at + 1));
                let is_word = self.at == start && is_alone(Some(self.at + 1));
                if !is_pair && !ends_pair && !is_word {
                    word.is_open = true;
                    line.note("braces");
                }
            }
            '!' if self.at != start || self.peek(1).is_some_and(|c| !c.is_whitespace()) => {
                line.note("an exclamation mark, which some shells expand");
            }
            '^' if self.at == start => line.note("a caret, which some shells expand"),
            c if !c.is_ascii() => line.note("a character that is not ASCII outside of quotes"),
            _ => {}
        }
        word.text.push(c);
    }

    fn until_quote(&mut self, line: &mut Line, text: &mut String) {
        loop {
            match self.peek(0) {
                Some('\'') => {
                    self.at += 1;
                    return;
                }
                Some(c) => {
                    text.push(c);
                    self.at += 1;
                }
                None => return line.note("a quote that nothing closes"),
            }
        }
    }

    fn double_quoted(&mut self, line: &mut Line, word: &mut Word) {
        word.is_quoted = true;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('"'), _) => {
                    self.at += 1;
                    return;
                }
                (Some('\\'), Some('\n')) => self.at += 2,
                (Some('\\'), Some(c @ ('$' | '`' | '"' | '\\'))) => {
                    word.text.push(c);
                    self.at += 2;
                }
                (Some('$' | '`'), _) => self.expansion(line, word),
                (Some(c), _) => {
                    if c == '!' {
                        line.note("an exclamation mark, which some shells expand");
                    }
                    word.text.push(c);
                    self.at += 1;
                }
                (None, _) => return line.note("a quote that nothing closes"),
            }
        }
    }

    /// Reads what begins with `$` or a backquote.
    fn expansion(&mut self, line: &mut Line, word: &mut Word) {
        word.is_open = true;
        let start = self.at;
        match (self.peek(0), self.peek(1)) {
            (Some('`'), _) => {
                line.note("a substitution");
                self.at += 1;
                let text = self.enclosed(line, '`', |c, text| {
                    let is_escaped = matches!(c, '`' | '\\' | '$');
                    if is_escaped {
                        text.push(c);
                    }
                    is_escaped
                });
                word.inner.push(self.separate(line, &text));
            }
            (_, Some('(')) => {
                line.note("a substitution");
                self.at += 2;
                let inner = self.nested(line, ')');
                word.inner.push(inner);
            }
            (_, Some('{')) => {
                line.note("a variable");
                self.at += 2;
                self.braced(line, word);
            }
            (_, Some('\'')) => {
                line.note("a quote with escapes");
                self.at += 2;
                word.is_quoted = true;
                let text = self.enclosed(line, '\'', |c, text| {
                    text.extend(['\\', c]);
                    true
                });
                word.text.push_str(&ansi_c(&text));
                return;
            }
            (_, Some('"')) => {
                line.note("a quote that is translated");
                self.at += 2;
                return self.double_quoted(line, word);
            }
            _ => {
                line.note("a variable");
                self.at += 1;
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                match self.peek(0) {
                    Some(c) if c.is_ascii_digit() || "?$!@*#-".contains(c) => self.at += 1,
                    _ => {
                        while self.peek(0).is_some_and(is_name) {
                            self.at += 1;
                        }
                    }
                }
            }
        }
        word.text.extend(&self.chars[start..self.at.min(self.chars.len())]);
    }

    /// Reads up to the end of `${…}`, with the substitutions in it.
    fn braced(&mut self, line: &mut Line, word: &mut Word) {
        let mut hidden = Word::default();
        loop {
            match self.peek(0) {
                Some('}') => {
                    self.at += 1;
                    break;
                }
                Some('\\') => self.at += 2,
                Some('\'') => {
                    self.at += 1;
                    self.until_quote(line, &mut hidden.text);
                }
                Some('"') => {
                    self.at += 1;
                    if self.depth > MAX_DEPTH {
                        return line.note("too many commands in each other");
                    }
                    self.depth += 1;
                    self.double_quoted(line, &mut hidden);
                    self.depth -= 1;
                }
                Some('$' | '`') => {
                    if self.depth > MAX_DEPTH {
                        self.at = self.chars.len();
                        return line.note("too many commands in each other");
                    }
                    self.depth += 1;
                    self.expansion(line, &mut hidden);
                    self.depth -= 1;
                }
                Some(_) => self.at += 1,
                None => {
                    line.note("something that nothing closes");
                    break;
                }
            }
        }
        word.inner.append(&mut hidden.inner);
    }

    /// Reads a text of its own, such as that between backquotes.
    fn separate(&mut self, line: &mut Line, text: &str) -> Line {
        let chars: Vec<char> = text.chars().collect();
        let mut reader = Reader { chars: &chars, at: 0, depth: self.depth, stages: self.stages, documents: Vec::new() };
        let mut inner = Line::default();
        reader.list(&mut inner, None);
        self.stages = reader.stages;
        for note in &inner.unknown {
            line.note(note);
        }
        inner
    }
}

fn end_pipeline(line: &mut Line, pipeline: &mut Vec<Stage>) {
    if !pipeline.is_empty() {
        line.pipelines.push(std::mem::take(pipeline));
    }
}

/// Puts a word where it belongs: a variable that is set, a reserved word, or a word of the command.
fn place_word(line: &mut Line, stage: &mut Stage, word: Word) {
    if stage.words.is_empty() {
        if !word.is_quoted && RESERVED.contains(&word.text.as_str()) {
            return line.note("a reserved word");
        }
        if is_assignment(&word.text) {
            stage.assignments.push(word);
            return;
        }
    }
    stage.words.push(word);
}

fn is_assignment(text: &str) -> bool {
    let Some((name, _)) = text.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.chars().next().is_some_and(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit())
}
