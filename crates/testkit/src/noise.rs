//! Bytes whose loss or exchange shows.

/// Bytes in which no two places look alike for long (xorshift64).
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut made = Vec::with_capacity(bytes + 8);
    while made.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        made.extend_from_slice(&state.to_ne_bytes());
    }
    made.truncate(bytes);
    made
}
