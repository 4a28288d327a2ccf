//! The CRC-32 of gzip, which guards what is written down.
//!
//! By a table: code that chooses the fastest instructions asks the CPU what it has. In a virtual machine each of these
//! questions (`cpuid`) leaves the guest, and all of them took 80 µs, a thirtieth of a plugin's `ADD`.

use crc::{CRC_32_ISO_HDLC, Crc, Table};

static CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);

/// The CRC-32 of these bytes.
pub(crate) fn of(bytes: &[u8]) -> u32 {
    CRC32.checksum(bytes)
}

/// Of bytes whose beginning has a known CRC-32, and which end with these.
pub(crate) fn and(beginning: u32, following: &[u8]) -> u32 {
    // What the register held: without the last inversion, and in the order of bits in which the algorithm is defined.
    let register = (beginning ^ CRC_32_ISO_HDLC.xorout).reverse_bits();
    let mut digest = CRC32.digest_with_initial(register);
    digest.update(following);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_that_of_gzip_in_one_piece_or_two(bytes: Vec<u8>, cut: prop::sample::Index) {
            let expected = crc32fast::hash(&bytes);
            prop_assert_eq!(super::of(&bytes), expected);
            let (beginning, following) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(super::and(super::of(beginning), following), expected);
        }
    }
}
