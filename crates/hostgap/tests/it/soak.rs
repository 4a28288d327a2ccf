//! Long runs, started by name: `cargo test -p hostgap --test it soak -- --ignored`.

use std::time::Duration;

use crate::ending::killed;
use crate::turn::turn;

#[test]
#[ignore = "takes several minutes"]
fn soak_200_kills() {
    let turn = turn();
    // A different sequence every time. The message of a failed step has it.
    let mut state = std::process::id() | 1;
    for _ in 0..200 {
        // xorshift32 (G. Marsaglia, Xorshift RNGs, 2003).
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        killed(&turn, Duration::from_micros(u64::from(state % 2_500_000)));
    }
}
