//! Long runs, started by name: `cargo test -p hostgap --test it soak -- --ignored`.

use std::time::Duration;

use crate::ending::killed;
use crate::machines::{killed_after, three};
use crate::sandbox::sandbox;

#[test]
#[ignore = "takes several minutes"]
fn soak_200_kills() {
    let sandbox = sandbox();
    for at in moments().take(200) {
        killed(&sandbox, at(2_500_000));
    }
}

#[test]
#[ignore = "takes several minutes"]
fn soak_50_kills_of_a_race_between_machines() {
    let Some(three) = three() else { return };
    for (number, at) in (0..).zip(moments().take(50)) {
        killed_after(number, at(9_000_000), &three);
    }
}

/// Times up to a number of microseconds, in a different sequence every time. The message of a failed step has it.
fn moments() -> impl Iterator<Item = impl Fn(u32) -> Duration> {
    let mut state = std::process::id() | 1;
    std::iter::repeat_with(move || {
        // xorshift32 (G. Marsaglia, Xorshift RNGs, 2003).
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let random = state;
        move |below| Duration::from_micros(u64::from(random % below))
    })
}
