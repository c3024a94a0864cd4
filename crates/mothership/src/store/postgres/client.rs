//! One session with a PostgreSQL server.
//!
//! ```text
//!  first use of a statement: Parse, Describe, Bind, Execute, Sync ─▶ columns, rows, count     (one exchange)
//!  later:                                   Bind, Execute, Sync ─▶          rows, count
//!  BEGIN goes out with the first statement of its transaction
//! ```
//! All values are binary. A session whose stream failed, or whose answer was not understood, is broken and is not used again.

use super::database::Database;
use super::scram::Exchange;
use super::stream::Stream;
use super::wire::{self, BOOL, BYTES, Body, Column, Fault, INT2, INT4, INT8, Message, Output, Reader, TEXT};
use crate::identity::random;
use crate::store::error::StoreError;
use crate::store::value::{Cell, Value};
use data_encoding::BASE64;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server that is silent for so long in the middle of an exchange is taken for lost. It ends statements itself before.
const SILENCE: Duration = Duration::from_secs(30);
/// Statements that one session keeps.
const MAX_STATEMENTS: usize = 200;
const PROTOCOL: i32 = 196_608;
const SESSION: &str = "SET statement_timeout = '15s'; SET idle_in_transaction_session_timeout = '15s'; \
    SET lock_timeout = '10s'; SET TimeZone = 'UTC'; \
    SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3";

/// A row and its columns.
pub struct Cells {
    columns: Arc<[Column]>,
    row: Vec<u8>,
    places: Vec<Option<(usize, usize)>>,
}

/// Bytes of a row, and where the value of each column begins and ends in them; none for a null.
type RowBytes = (Vec<u8>, Vec<Option<(usize, usize)>>);

/// Answer to a statement.
pub struct Answer {
    columns: Arc<[Column]>,
    rows: Vec<RowBytes>,
    /// Number of rows that were changed.
    pub changed: usize,
}

/// One session with its stream, its buffers and its prepared statements.
pub struct Client {
    stream: Stream,
    input: Vec<u8>,
    output: Output,
    /// Answers to come before that of the next exchange.
    owed: u32,
    statements: HashMap<String, (String, Arc<[Column]>)>,
    prepared: u64,
    notices: VecDeque<String>,
    fault: Option<Fault>,
    is_broken: bool,
}

impl Cells {
    pub fn at(&self, index: usize) -> Result<Cell<'_>, StoreError> {
        let strange = || StoreError::corrupt("a column that is not there");
        let column = self.columns.get(index).ok_or_else(strange)?;
        let Some((start, end)) = *self.places.get(index).ok_or_else(strange)? else { return Ok(Cell::Null) };
        let bytes = self.row.get(start..end).ok_or_else(strange)?;
        let cell = match column.kind {
            BOOL => bytes.first().map(|byte| Cell::Int(i64::from(*byte))),
            INT2 => bytes.try_into().ok().map(|bytes| Cell::Int(i16::from_be_bytes(bytes).into())),
            INT4 => bytes.try_into().ok().map(|bytes| Cell::Int(i32::from_be_bytes(bytes).into())),
            INT8 => bytes.try_into().ok().map(|bytes| Cell::Int(i64::from_be_bytes(bytes))),
            BYTES => Some(Cell::Bytes(bytes)),
            TEXT => std::str::from_utf8(bytes).ok().map(Cell::Text),
            _ => None,
        };
        cell.ok_or_else(|| StoreError::corrupt(format!("the column {} of type {}", column.name, column.kind)))
    }

    pub fn named(&self, name: &str) -> Result<Cell<'_>, StoreError> {
        let index = self.columns.iter().position(|column| column.name == name);
        self.at(index.ok_or_else(|| StoreError::corrupt(format!("no column {name}")))?)
    }
}

impl Answer {
    /// Returns the rows, one after the other.
    pub fn rows(self) -> impl Iterator<Item = Cells> {
        let columns = self.columns;
        self.rows.into_iter().map(move |(row, places)| Cells { columns: Arc::clone(&columns), row, places })
    }
}

impl Client {
    /// Connects and proves the identity of the user, and by SCRAM that of the server.
    pub fn open(database: &Database) -> Result<Self, StoreError> {
        let unreachable = |error: io::Error| StoreError::Unreachable { why: error.to_string() };
        let stream = Stream::open(database).map_err(unreachable)?;
        stream.limit(SILENCE).map_err(unreachable)?;
        let mut client = Self {
            stream,
            input: Vec::new(),
            output: Output::default(),
            owed: 0,
            statements: HashMap::new(),
            prepared: 0,
            notices: VecDeque::new(),
            fault: None,
            is_broken: false,
        };
        client.output.untyped(|body| {
            body.int4(PROTOCOL);
            let settings = [("user", database.user.as_str()), ("database", &database.name)];
            for (name, value) in
                settings.into_iter().chain([("client_encoding", "UTF8"), ("application_name", "nexus")])
            {
                body.string(name);
                body.string(value);
            }
            body.bytes(&[0]);
        });
        client.flush()?;
        client.authenticate(database)?;
        client.ready()?;
        client.batch(SESSION)?;
        Ok(client)
    }

    /// Returns whether the session can be used no more.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns the error that the server reported last, once.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    fn authenticate(&mut self, database: &Database) -> Result<(), StoreError> {
        let refused = |why: &str| StoreError::Settings { why: why.to_owned() };
        let password = || {
            let given = database.password.as_deref();
            given.ok_or_else(|| refused("the server asks for a password, and none was given"))
        };
        let mut opened: Option<Exchange> = None;
        let mut proof = None;
        loop {
            let message = self.message()?;
            if message.kind == b'E' {
                let fault = wire::fault(&message.body);
                self.is_broken = true;
                // The server starts, stops, or has no place: that passes.
                return Err(match fault.code.get(..2) {
                    Some("57" | "53") => StoreError::Unreachable { why: fault.message },
                    _ => refused(&fault.message),
                });
            }
            if message.kind != b'R' {
                return Err(self.confused("an authentication was expected"));
            }
            let mut reader = Reader(&message.body);
            let request = reader.int4();
            let text = std::str::from_utf8(reader.0).unwrap_or_default();
            match (request, &opened) {
                // A server that asked for a proof owes one too.
                (Some(0), None) => return Ok(()),
                (Some(0), Some(_)) if proof.is_none() => return Ok(()),
                (Some(10), None) if text.split('\0').any(|name| name == "SCRAM-SHA-256") => {
                    password()?;
                    let exchange = Exchange::new(BASE64.encode(&random::<18>()?));
                    self.output.message(b'p', |body| {
                        body.string("SCRAM-SHA-256");
                        body.value(exchange.message().as_bytes());
                    });
                    // Until the proof is checked, an end of the authentication is none.
                    proof = Some(None);
                    opened = Some(exchange);
                }
                (Some(11), Some(exchange)) => {
                    let made = exchange.answer(password()?, text);
                    let made = made.ok_or_else(|| refused("the server's part of SCRAM-SHA-256 cannot be right"))?;
                    self.output.message(b'p', |body| body.bytes(made.message.as_bytes()));
                    proof = Some(Some(made));
                }
                (Some(12), Some(_)) => match &proof {
                    Some(Some(made)) if made.accepts(text) => proof = None,
                    _ => return Err(refused("the server does not prove that it knows the password")),
                },
                (Some(5 | 3), _) => {
                    let why = "the server asks for a password that others could read; set password_encryption to scram-sha-256";
                    return Err(refused(why));
                }
                _ => return Err(refused("the server asks for a proof of identity that is not known")),
            }
            self.flush()?;
        }
    }

    /// Begins a transaction together with its first statement.
    pub fn begin(&mut self, text: &str) {
        self.output.message(b'Q', |body| body.string(text));
        self.owed += 1;
    }

    /// Ends a transaction; `false` when the server has undone it.
    pub fn commit(&mut self) -> Result<bool, StoreError> {
        Ok(self.simple("COMMIT")? == "COMMIT")
    }

    pub fn roll_back(&mut self) -> Result<(), StoreError> {
        self.simple("ROLLBACK").map(drop)
    }

    /// Runs statements without values.
    pub fn batch(&mut self, text: &str) -> Result<(), StoreError> {
        self.simple(text).map(drop)
    }

    /// Runs statements without values and returns the tag of the last one.
    fn simple(&mut self, text: &str) -> Result<String, StoreError> {
        self.output.message(b'Q', |body| body.string(text));
        self.flush()?;
        self.settle()?;
        let mut tag = String::new();
        let mut fault = None;
        loop {
            let message = self.message()?;
            match message.kind {
                b'C' => Reader(&message.body).string().unwrap_or_default().clone_into(&mut tag),
                b'E' => fault = Some(wire::fault(&message.body)),
                b'Z' => break,
                _ => {}
            }
        }
        fault.map_or(Ok(tag), |fault| Err(self.failed(fault)))
    }

    /// Runs one statement with values `?1`, `?2`, ….
    pub fn run(&mut self, text: &str, values: &[Value<'_>]) -> Result<Answer, StoreError> {
        if values.iter().any(|value| matches!(value, Value::Text(Some(text)) if text.contains('\0'))) {
            return Err(StoreError::Text);
        }
        let known = self.statements.get(text).cloned();
        let name = match &known {
            Some((name, _)) => name.clone(),
            None => self.parse(text, values),
        };
        self.output.message(b'B', |body| bind(body, &name, values));
        self.output.message(b'E', |body| {
            body.string("");
            body.int4(0);
        });
        self.output.message(b'S', |_| {});
        self.flush()?;
        self.settle()?;
        let mut columns = known.map(|(_, columns)| columns);
        let mut described = None;
        let (mut rows, mut changed, mut fault) = (Vec::new(), 0, None);
        loop {
            let message = self.message()?;
            match message.kind {
                b'T' => described = Some(wire::columns(&message.body).ok_or_else(|| self.confused("columns"))?),
                b'n' => described = Some(Vec::new()),
                b'D' => {
                    let places = wire::cells(&message.body).ok_or_else(|| self.confused("a row"))?;
                    rows.push((message.body, places));
                }
                b'C' => changed = wire::changed(&message.body),
                b'E' => fault = Some(wire::fault(&message.body)),
                b'Z' => break,
                _ => {}
            }
        }
        if let Some(described) = described {
            let described: Arc<[Column]> = described.into();
            self.statements.insert(text.to_owned(), (name, Arc::clone(&described)));
            columns = Some(described);
        }
        if let Some(fault) = fault {
            return Err(self.failed(fault));
        }
        let columns = columns.ok_or_else(|| self.confused("no columns"))?;
        Ok(Answer { columns, rows, changed })
    }

    fn parse(&mut self, text: &str, values: &[Value<'_>]) -> String {
        if self.statements.len() >= MAX_STATEMENTS {
            for (_, (name, _)) in self.statements.drain() {
                self.output.message(b'C', |body| {
                    body.bytes(b"S");
                    body.string(&name);
                });
            }
        }
        self.prepared += 1;
        let name = format!("s{}", self.prepared);
        self.output.message(b'P', |body| {
            body.string(&name);
            body.string(&text.replace('?', "$"));
            body.int2(values.len() as i16);
            for value in values {
                body.int4(kind_of(value));
            }
        });
        self.output.message(b'D', |body| {
            body.bytes(b"S");
            body.string(&name);
        });
        name
    }

    /// Waits for a notification, at most for a time, and returns its payload.
    pub fn notification(&mut self, time: Duration) -> Result<Option<String>, StoreError> {
        let until = Instant::now() + time;
        loop {
            if let Some(payload) = self.notices.pop_front() {
                return Ok(Some(payload));
            }
            while let Some(message) = wire::first(&mut self.input).map_err(|why| self.confused(why))? {
                self.note(&message);
            }
            let left = until.saturating_duration_since(Instant::now());
            if !self.notices.is_empty() {
                continue;
            }
            if left.is_zero() || !self.read(left)? {
                return Ok(None);
            }
        }
    }

    /// Reads until the server takes the next exchange.
    fn ready(&mut self) -> Result<(), StoreError> {
        let mut fault = None;
        loop {
            let message = self.message()?;
            match message.kind {
                b'E' => fault = Some(wire::fault(&message.body)),
                b'Z' => break,
                _ => {}
            }
        }
        fault.map_or(Ok(()), |fault| Err(self.failed(fault)))
    }

    /// Reads the answers to what was sent ahead. When that failed, what follows it ran outside a transaction: the session ends.
    fn settle(&mut self) -> Result<(), StoreError> {
        for _ in 0..std::mem::take(&mut self.owed) {
            if let Err(error) = self.ready() {
                self.is_broken = true;
                return Err(error);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let bytes = self.output.take();
        self.stream.write_all(&bytes).map_err(|error| self.lost(&error))
    }

    /// Returns the next message that answers something.
    fn message(&mut self) -> Result<Message, StoreError> {
        loop {
            while let Some(message) = wire::first(&mut self.input).map_err(|why| self.confused(why))? {
                if !self.note(&message) {
                    return Ok(message);
                }
            }
            if !self.read(SILENCE)? {
                return Err(self.lost(&io::ErrorKind::TimedOut.into()));
            }
        }
    }

    /// Takes what comes unasked; `false` for everything else.
    fn note(&mut self, message: &Message) -> bool {
        match message.kind {
            b'N' | b'S' | b'K' => true,
            b'A' => {
                let mut reader = Reader(&message.body);
                let payload = reader.int4().and_then(|_| reader.string()).and_then(|_| reader.string());
                self.notices.extend(payload.map(str::to_owned));
                true
            }
            _ => false,
        }
    }

    /// Reads some bytes; `false` when none came in time.
    fn read(&mut self, time: Duration) -> Result<bool, StoreError> {
        let mut piece = [0; 16 * 1024];
        self.stream.limit(time).map_err(|error| self.lost(&error))?;
        match self.stream.read(&mut piece) {
            Ok(0) => Err(self.lost(&io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.input.extend_from_slice(piece.get(..count).unwrap_or_default());
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn lost(&mut self, error: &io::Error) -> StoreError {
        self.is_broken = true;
        StoreError::Unreachable { why: error.to_string() }
    }

    fn confused(&mut self, what: &str) -> StoreError {
        self.is_broken = true;
        StoreError::Database { why: format!("the server's answer was not understood: {what}") }
    }

    fn failed(&mut self, fault: Fault) -> StoreError {
        let full = fault.code == "53100";
        let why = format!("{} ({})", fault.message, fault.code);
        // The server ends the session, or has ended it.
        self.is_broken |= fault.code.starts_with("57P") || fault.code.starts_with("08");
        self.fault = Some(fault);
        if full { StoreError::Full } else { StoreError::Database { why } }
    }
}

fn kind_of(value: &Value<'_>) -> i32 {
    match value {
        Value::Bool(_) => BOOL,
        Value::Int(_) => INT8,
        Value::Text(_) => TEXT,
        Value::Bytes(_) => BYTES,
    }
}

fn bind(body: &mut Body<'_>, name: &str, values: &[Value<'_>]) {
    body.string("");
    body.string(name);
    // All values and all columns are binary.
    body.int2(1);
    body.int2(1);
    body.int2(values.len() as i16);
    for value in values {
        match value {
            Value::Bool(Some(value)) => body.value(&[u8::from(*value)]),
            Value::Int(Some(value)) => body.value(&value.to_be_bytes()),
            Value::Text(Some(value)) => body.value(value.as_bytes()),
            Value::Bytes(Some(value)) => body.value(value),
            Value::Bool(None) | Value::Int(None) | Value::Text(None) | Value::Bytes(None) => body.int4(-1),
        }
    }
    body.int2(1);
    body.int2(1);
}
