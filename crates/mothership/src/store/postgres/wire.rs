//! Messages of the PostgreSQL protocol, version 3, as bytes. No function reads beyond its message or allocates what a length claims.

/// Largest message that is taken: far more than a stored value needs.
const MAX_MESSAGE: usize = 256 << 20;

/// Types that columns and values have.
pub const BOOL: i32 = 16;
pub const BYTES: i32 = 17;
pub const INT8: i32 = 20;
pub const INT2: i32 = 21;
pub const INT4: i32 = 23;
pub const TEXT: i32 = 25;

/// Column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// Number of its type.
    pub kind: i32,
}

/// Error that a server reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fault {
    /// Five characters of the standard.
    pub code: String,
    pub message: String,
}

/// Bytes of messages to be sent.
#[derive(Debug, Default)]
pub struct Output(Vec<u8>);

impl Output {
    /// Adds a message. The content is written by `body`.
    pub fn message(&mut self, kind: u8, body: impl FnOnce(&mut Body<'_>)) {
        self.0.push(kind);
        self.untyped(body);
    }

    /// Adds a message without a type, as a connection begins with.
    pub fn untyped(&mut self, body: impl FnOnce(&mut Body<'_>)) {
        let start = self.0.len();
        self.0.extend([0; 4]);
        body(&mut Body(&mut self.0));
        let length = (self.0.len() - start) as i32;
        if let Some(place) = self.0.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Takes the bytes that were added.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Content of a message to be sent.
pub struct Body<'a>(&'a mut Vec<u8>);

impl Body<'_> {
    pub fn int2(&mut self, value: i16) {
        self.0.extend(value.to_be_bytes());
    }

    pub fn int4(&mut self, value: i32) {
        self.0.extend(value.to_be_bytes());
    }

    /// Adds a string and its end. A zero byte in it would end it early: what follows would be read as something else.
    pub fn string(&mut self, text: &str) {
        self.0.extend(text.bytes().filter(|byte| *byte != 0));
        self.0.push(0);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// Adds a value behind its length.
    pub fn value(&mut self, bytes: &[u8]) {
        self.int4(bytes.len() as i32);
        self.bytes(bytes);
    }
}

/// A message that came.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: u8,
    pub body: Vec<u8>,
}

/// Takes the first message from the bytes that came, when all of it is there.
pub fn first(input: &mut Vec<u8>) -> Result<Option<Message>, &'static str> {
    let (Some(kind), Some(length)) = (input.first().copied(), input.get(1..5)) else { return Ok(None) };
    let length = length.try_into().map(i32::from_be_bytes).map_err(|_| "a length is cut")?;
    let length = usize::try_from(length).ok().filter(|length| (4..=MAX_MESSAGE).contains(length));
    let length = length.ok_or("a message has a length that cannot be right")?;
    let Some(body) = input.get(5..=length) else { return Ok(None) };
    let body = body.to_vec();
    input.drain(..=length);
    Ok(Some(Message { kind, body }))
}

/// Reads the content of a message.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (here, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(here)
    }

    pub fn int2(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.bytes(2)?.try_into().ok()?))
    }

    pub fn int4(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub fn string(&mut self) -> Option<&'a str> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(self.bytes(end)?).ok()?;
        self.bytes(1)?;
        Some(text)
    }
}

/// Reads the columns of a row description.
pub fn columns(body: &[u8]) -> Option<Vec<Column>> {
    let mut reader = Reader(body);
    let count = usize::try_from(reader.int2()?).ok()?;
    let mut columns = Vec::new();
    for _ in 0..count {
        let name = reader.string()?.to_owned();
        reader.bytes(6)?;
        let kind = reader.int4()?;
        // Its size, its modifier, its format.
        reader.bytes(8)?;
        columns.push(Column { name, kind });
    }
    Some(columns)
}

/// Reads the places of the values in a row: start and end, or nothing for an absent value.
pub fn cells(body: &[u8]) -> Option<Vec<Option<(usize, usize)>>> {
    let mut reader = Reader(body);
    let count = usize::try_from(reader.int2()?).ok()?;
    let mut cells = Vec::new();
    for _ in 0..count {
        let length = reader.int4()?;
        if length < 0 {
            cells.push(None);
            continue;
        }
        let length = usize::try_from(length).ok()?;
        let start = body.len() - reader.0.len();
        reader.bytes(length)?;
        cells.push(Some((start, start + length)));
    }
    Some(cells)
}

/// Reads an error.
pub fn fault(body: &[u8]) -> Fault {
    let mut reader = Reader(body);
    let mut fault = Fault::default();
    while let Some(&[field]) = reader.bytes(1)
        && field != 0
    {
        let Some(text) = reader.string() else { break };
        match field {
            b'C' => text.clone_into(&mut fault.code),
            b'M' => text.clone_into(&mut fault.message),
            _ => {}
        }
    }
    fault
}

/// Reads the number of rows that a command changed from its tag, such as `INSERT 0 1`.
pub fn changed(body: &[u8]) -> usize {
    let tag = Reader(body).string().unwrap_or_default();
    tag.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
