//! The expected latencies, by arithmetic.

use crate::serve::Freeze;

/// The response time in nanoseconds that this share of the requests does not exceed when a server freezes.
///
/// Requests are intended evenly. A request intended a time x after the beginning of a freeze of length F waits for the
/// rest of it, F − x. Then it waits behind those intended before it in the same freeze, which the server works off:
/// with a load ρ, the requested rate over the rate at which it can answer, that takes ρ·x. So it waits F − x·(1 − ρ),
/// and the last that waits was intended at x = F / (1 − ρ). Waits are evenly distributed between 0 and F, and affect a
/// share of F / (P·(1 − ρ)) of all requests, P being the period. `0.0` for a share that includes no waiting request.
pub(super) fn frozen_ns(freeze: Freeze, load: f64, quantile: f64) -> f64 {
    let (length_ns, period_ns) = (freeze.length.as_nanos() as f64, freeze.period.as_nanos() as f64);
    let share = length_ns / (period_ns * (1.0 - load));
    (length_ns * (1.0 - (1.0 - quantile) / share)).max(0.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_freeze_is_what_a_walk_through_it_says() {
        let freeze = Freeze { length: Duration::from_millis(100), period: Duration::from_secs(2) };
        // A server of infinite speed: 5 % wait, evenly up to 100 ms.
        assert!((frozen_ns(freeze, 0.0, 0.99) - 80e6).abs() < 1.0);
        assert!((frozen_ns(freeze, 0.0, 0.999) - 98e6).abs() < 1.0);
        assert_eq!(frozen_ns(freeze, 0.0, 0.5), 0.0);
        // A simulation request by request: 10 000/s, of which the server could answer 40 000.
        let (mut waits, mut free_ns) = (Vec::new(), 0.0_f64);
        for request in 0..20_000 {
            let intended_ns = f64::from(request) * 1e5;
            let thawed_ns = if intended_ns < 1e8 { 1e8 } else { 0.0 };
            let begun_ns = intended_ns.max(free_ns).max(thawed_ns);
            free_ns = begun_ns + 25e3;
            waits.push(begun_ns - intended_ns);
        }
        waits.sort_by(f64::total_cmp);
        for quantile in [0.95, 0.97, 0.99, 0.999] {
            let walked_ns = waits[(quantile * 20_000.0) as usize];
            let said_ns = frozen_ns(freeze, 0.25, quantile);
            assert!((walked_ns - said_ns).abs() < 0.2e6, "p{quantile}: {walked_ns} and {said_ns}");
        }
    }
}
