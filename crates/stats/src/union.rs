//! What several spans cover together.

/// The spans that cover what these cover, in any order, from their beginnings to their ends: in the order of their
/// beginnings, none of which touch.
pub fn union<T: Ord + Copy>(spans: impl IntoIterator<Item = (T, T)>) -> Vec<(T, T)> {
    let mut spans: Vec<(T, T)> = spans.into_iter().collect();
    spans.sort_unstable();
    spans.dedup_by(|later, earlier| {
        let touches = later.0 <= earlier.1;
        if touches {
            earlier.1 = earlier.1.max(later.1);
        }
        touches
    });
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_or_touches_is_one() {
        assert_eq!(union([(20, 21), (10, 16), (11, 12), (16, 17), (-3, 4)]), [(-3, 4), (10, 17), (20, 21)]);
        assert_eq!(union::<u64>([]), []);
    }
}
