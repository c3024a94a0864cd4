//! Verifies that a loose object has the id that its path says.

use super::inflate::{Inflater, Source};
use super::object_id::{Format, Hasher, Kind};
use super::problem::Problem;

/// Bytes of the longest header: a kind, a blank, a size and a zero byte.
const MAX_HEADER: usize = 32;

/// Verifies a loose object of `length` bytes.
pub fn verify<S: Source + ?Sized>(
    object: &S,
    length: u64,
    (format, id): (Format, &[u8]),
    inflater: &mut Inflater<'_>,
) -> Result<(), Problem> {
    let mut header = Vec::new();
    let mut content: Option<(Hasher, u64)> = None;
    inflater.inflate(object, (0, length), &mut |mut piece| {
        if content.is_none() {
            let taken = piece.len().min(MAX_HEADER - header.len());
            let end = piece[..taken].iter().position(|byte| *byte == 0);
            header.extend_from_slice(&piece[..end.unwrap_or(taken)]);
            let Some(end) = end else {
                return if header.len() < MAX_HEADER { Ok(()) } else { Err(Problem::Damaged) };
            };
            let (kind, size) = parse(&header).ok_or(Problem::Damaged)?;
            content = Some((Hasher::new(format, kind, size), size));
            piece = &piece[end + 1..];
        }
        if let Some((hasher, left)) = &mut content {
            *left = left.checked_sub(piece.len() as u64).ok_or(Problem::Damaged)?;
            hasher.update(piece);
        }
        Ok(())
    })?;
    match content {
        Some((hasher, 0)) => hasher.is(id).then_some(()).ok_or(Problem::Differs),
        Some(_) | None => Err(Problem::Damaged),
    }
}

/// Reads `KIND SIZE`.
pub fn parse(header: &[u8]) -> Option<(Kind, u64)> {
    let blank = header.iter().position(|byte| *byte == b' ')?;
    let digits = &header[blank + 1..];
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let size = str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    Some((Kind::of(&header[..blank])?, size))
}
