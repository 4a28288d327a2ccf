//! LZ4 in its legacy frame, in which Debian's 6.1 kernel is compressed: sixty lines, less than a dependency.
//!
//! Sources: `lz4_Frame_format.md` (legacy frame) and `lz4_Block_format.md` of the LZ4 project.

/// What a legacy frame starts with.
pub(crate) const MAGIC: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];
/// The shortest match, which the lengths do not count.
const MATCH_BYTES_MIN: usize = 4;

/// Unpacks a frame to at most `bytes_max` bytes, or returns the reason why it cannot.
pub(crate) fn unpack(frame: &[u8], bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut rest = frame.strip_prefix(&MAGIC).ok_or("it does not start as a frame of LZ4")?;
    let mut unpacked = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        // Blocks have no end mark; the kernel's build appends four bytes, the unpacked length, which are no block.
        if after.is_empty() {
            break;
        }
        let length = u32::from_le_bytes(*length) as usize;
        let packed = after.get(..length).ok_or("a block of LZ4 goes beyond the end")?;
        let start = unpacked.len();
        block(packed, start, &mut unpacked, bytes_max).ok_or("a block of LZ4 is damaged")?;
        rest = &after[length..];
    }
    Ok(unpacked)
}

/// Appends one block, whose matches reach back to `start` at most.
fn block(mut packed: &[u8], start: usize, unpacked: &mut Vec<u8>, bytes_max: usize) -> Option<()> {
    loop {
        let token = usize::from(*packed.split_off_first()?);
        let literals = length(token >> 4, &mut packed)?;
        if unpacked.len() + literals > bytes_max {
            return None;
        }
        unpacked.extend_from_slice(packed.split_off(..literals)?);
        // The last sequence of a block has literals alone.
        if packed.is_empty() {
            return Some(());
        }
        let back = usize::from(u16::from_le_bytes(packed.split_off(..2)?.try_into().ok()?));
        let count = length(token & 0xf, &mut packed)? + MATCH_BYTES_MIN;
        let from = unpacked.len().checked_sub(back).filter(|from| back > 0 && *from >= start)?;
        if unpacked.len() + count > bytes_max {
            return None;
        }
        // A match may overlap its own output: then the output repeats.
        for at in from..from + count {
            unpacked.push(unpacked[at]);
        }
    }
}

/// A length of which the token has four bits; as long as bytes are full, another follows.
fn length(nibble: usize, packed: &mut &[u8]) -> Option<usize> {
    let mut length = nibble;
    let mut full = nibble == 0xf;
    while full {
        let byte = *packed.split_off_first()?;
        length += usize::from(byte);
        full = byte == 0xff;
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(blocks: &[&[u8]]) -> Vec<u8> {
        let mut frame = MAGIC.to_vec();
        for block in blocks {
            frame.extend(u32::try_from(block.len()).unwrap().to_le_bytes());
            frame.extend(*block);
        }
        frame
    }

    #[test]
    fn literals_and_matches_are_unpacked() {
        // "abc", then ten bytes from three back, then "!".
        let one: &[u8] = &[0x36, b'a', b'b', b'c', 3, 0, 0x10, b'!'];
        // A run of 4 + 15 + 255 + 1 bytes "z".
        let long: &[u8] = &[0x1f, b'z', 1, 0, 0xff, 1, 0x00];
        let mut expected = b"abcabcabcabca!".to_vec();
        expected.extend([b'z'; 1 + 4 + 15 + 255 + 1]);
        let mut packed = frame(&[one, long]);
        assert_eq!(unpack(&packed, 1 << 20).unwrap(), expected);
        packed.extend(u32::try_from(expected.len()).unwrap().to_le_bytes());
        assert_eq!(unpack(&packed, 1 << 20).unwrap(), expected);
    }

    #[test]
    fn damage_is_refused() {
        let refused = |frame: &[u8], limit| unpack(frame, limit).unwrap_err();
        assert!(refused(b"\x28\xb5", 9).contains("does not start"));
        let whole = frame(&[&[0x36, b'a', b'b', b'c', 3, 0, 0x10, b'!']]);
        assert!(refused(&whole[..whole.len() - 1], 99).contains("beyond the end"));
        assert!(refused(&whole, 13).contains("damaged"), "fourteen bytes are more than allowed");
        assert!(refused(&frame(&[&[0x36, b'a', b'b', b'c', 4, 0, 0x10, b'!']]), 99).contains("damaged"));
        assert!(refused(&frame(&[&[0x36, b'a', b'b', b'c', 0, 0, 0x10, b'!']]), 99).contains("damaged"));
        // A match must not reach into the block before.
        assert!(refused(&frame(&[&[0x10, b'a'], &[0x00, 1, 0, 0x00]]), 99).contains("damaged"));
    }
}
