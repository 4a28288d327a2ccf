//! A line of a record: one JSON object with the CRC-32 of what it carries.
//!
//! ```text
//! {"crc32":"89abcdef","line":{"header":{…}}}
//! ```
//!
//! The checksum is that of the bytes after `"line":` up to the last brace, so every line is JSON for other tools, and
//! no canonical form is needed.

use crate::Line;

const PREFIX: &[u8] = b"{\"crc32\":\"";
const MIDDLE: &[u8] = b"\",\"line\":";
/// Between the two.
const CRC_DIGITS: usize = 8;

/// A line with its checksum and newline. It is read again before it is given out, because JSON has no infinity: serde
/// writes `null` for it, and that would be found out only when the race is over.
pub(crate) fn encode(line: &Line) -> Result<Vec<u8>, serde_json::Error> {
    let payload = serde_json::to_vec(line)?;
    serde_json::from_slice::<Line>(&payload)?;
    let mut bytes = Vec::with_capacity(payload.len() + 32);
    bytes.extend_from_slice(PREFIX);
    bytes.extend_from_slice(format!("{:08x}", crc32fast::hash(&payload)).as_bytes());
    bytes.extend_from_slice(MIDDLE);
    bytes.extend_from_slice(&payload);
    bytes.extend_from_slice(b"}\n");
    Ok(bytes)
}

/// Whether a file begins with a line of a race's record, of which one side of the checksum may be damaged.
pub(crate) fn begins_like_a_line(bytes: &[u8]) -> bool {
    let after_crc = bytes.get(PREFIX.len() + CRC_DIGITS..);
    bytes.starts_with(PREFIX) || after_crc.is_some_and(|rest| rest.starts_with(MIDDLE))
}

/// What a line carries, if it is whole.
pub(crate) fn decode(line: &[u8]) -> Result<&[u8], &'static str> {
    let shape = "it is not a line of a record";
    let (crc, rest) =
        line.strip_prefix(PREFIX).and_then(|rest| rest.split_at_checked(CRC_DIGITS)).ok_or(shape)?;
    let payload =
        rest.strip_prefix(MIDDLE).and_then(|rest| rest.strip_suffix(b"}")).ok_or("it has no end")?;
    let expected = format!("{:08x}", crc32fast::hash(payload));
    if crc == expected.as_bytes() { Ok(payload) } else { Err("its checksum is wrong") }
}
