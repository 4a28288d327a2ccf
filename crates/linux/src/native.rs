//! Numbers within structures of the kernel, in the machine's own byte order. `None` behind the end of the bytes.

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_ne_bytes)
}

fn bytes_at<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<[u8; BYTES]> {
    bytes.get(at..at.checked_add(BYTES)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_no_number() {
        let bytes = [7_u64.to_ne_bytes(), 9_u64.to_ne_bytes()].concat();
        assert_eq!(
            [0, 8, 9, 16, usize::MAX].map(|at| u64_at(&bytes, at)),
            [Some(7), Some(9), None, None, None]
        );
        assert_eq!(u32_at(&9_u32.to_ne_bytes(), 0), Some(9));
        assert_eq!((u16_at(&[0; 3], 1), u16_at(&[0; 3], 2)), (Some(0), None));
    }
}
