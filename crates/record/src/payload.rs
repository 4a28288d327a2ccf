//! What is asked of an HdrHistogram V2 payload before the library reads it: that makes room for what a payload says of
//! itself, however short it is.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::ZlibDecoder;

/// The first four bytes: of counts as they are, and of a whole payload in zlib's format.
const PLAIN: u32 = 0x1c84_9313;
const COMPRESSED: u32 = 0x1c84_9314;

/// Before the counts: cookie, their length, normalising, digits, bounds, ratio.
const HEAD_BYTES: usize = 40;
const DIGITS_AT: usize = 12;

/// At three digits: more take megabytes for every histogram, and no record has them.
const DIGITS_MAX: u32 = 3;

/// All bins of three digits up to the greatest number, each with the longest count, are half of it.
const BYTES_MAX: u64 = 1 << 20;

/// The payload without compression, if it says nothing of itself that is not so.
pub(crate) fn checked(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let plain = match word(bytes, 0) {
        Some(PLAIN) => Cow::Borrowed(bytes),
        Some(COMPRESSED) => Cow::Owned(inflated(bytes)?),
        _ => return Err("it begins like none".to_owned()),
    };
    let counts = plain.get(HEAD_BYTES..).ok_or("it is cut off")?;
    if word(&plain, 0) != Some(PLAIN) {
        return Err("what is compressed begins like none".to_owned());
    }
    check_length(word(&plain, 4), counts)?;
    match word(&plain, DIGITS_AT) {
        Some(0..=DIGITS_MAX) => {}
        digits => return Err(format!("it has {} digits, more than {DIGITS_MAX}", digits.unwrap_or(0))),
    }
    check_counts(counts)?;
    Ok(plain)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// As long as it says.
fn check_length(said: Option<u32>, rest: &[u8]) -> Result<(), String> {
    let said = said.ok_or("it is cut off")? as usize;
    match rest.len().checked_sub(said) {
        Some(0) => Ok(()),
        Some(more) => Err(format!("{more} bytes follow the payload")),
        None => Err(format!("it has {} bytes of {said}", rest.len())),
    }
}

fn inflated(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let rest = bytes.get(8..).ok_or("it is cut off")?;
    check_length(word(bytes, 4), rest)?;
    let mut plain = Vec::new();
    ZlibDecoder::new(rest)
        .take(BYTES_MAX + 1)
        .read_to_end(&mut plain)
        .map_err(|error| format!("it cannot be inflated: {error}"))?;
    if plain.len() as u64 > BYTES_MAX { Err("it is larger than any".to_owned()) } else { Ok(plain) }
}

/// Numbers in groups of seven bits, nine bytes at most, the sign in the lowest bit; a negative one skips so many bins.
/// The library negates each, which the least of all numbers does not have.
fn check_counts(mut counts: &[u8]) -> Result<(), String> {
    while !counts.is_empty() {
        let ends = counts.iter().take(8).position(|byte| byte & 0x80 == 0);
        let length = ends.map_or(counts.len().min(9), |at| at + 1);
        let (number, rest) = counts.split_at(length);
        if number == [u8::MAX; 9] {
            return Err("it skips more bins than there are".to_owned());
        }
        counts = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    fn plain(length: u32, digits: u32, counts: &[u8]) -> Vec<u8> {
        let numbers = [PLAIN, length, 0, digits].map(u32::to_be_bytes).concat();
        let bounds = [1, 3_600_000_000_000_u64].map(u64::to_be_bytes).concat();
        [&numbers, &bounds, &1.0_f64.to_be_bytes()[..], counts].concat()
    }

    fn compressed(plain: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        let body = encoder.finish().unwrap();
        let length = u32::try_from(body.len()).unwrap();
        [&COMPRESSED.to_be_bytes()[..], &length.to_be_bytes(), &body].concat()
    }

    #[test]
    fn both_forms_are_taken() {
        let whole = plain(3, 3, &[9, 6, 2]);
        assert_eq!(checked(&whole).unwrap(), whole);
        assert_eq!(checked(&compressed(&whole)).unwrap(), whole);
    }

    #[track_caller]
    fn refused(bytes: &[u8], expected: &str) {
        assert_eq!(checked(bytes).unwrap_err(), expected);
    }

    #[test]
    fn what_it_says_of_itself_must_be_so() {
        let long = plain(u32::MAX, 3, &[]);
        refused(&long, "it has 0 bytes of 4294967295");
        refused(&compressed(&long), "it has 0 bytes of 4294967295");
        refused(&plain(1, 3, &[2, 2]), "1 bytes follow the payload");
        refused(&[compressed(&plain(0, 3, &[])), vec![0]].concat(), "1 bytes follow the payload");
        refused(&plain(0, 5, &[]), "it has 5 digits, more than 3");
        refused(&plain(9, 3, &[u8::MAX; 9]), "it skips more bins than there are");
        refused(&compressed(&vec![0; 2 << 20]), "it is larger than any");
        refused(&compressed(&[0; 60]), "what is compressed begins like none");
        refused(&plain(0, 3, &[])[..39], "it is cut off");
        refused(b"abcdefgh", "it begins like none");
        refused(b"", "it begins like none");
    }
}
