//! Middle and spread of a few numbers, untouched by outliers.

/// The median; `None` of nothing. Of an even count it is the middle between the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// The median absolute deviation from the median, times 1.4826, so that it is the standard deviation where the numbers
/// are normal (Rousseeuw and Croux 1993); `None` of nothing.
pub fn mad(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    Some(median(&deviations)? * 1.4826)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::distribution::testing::normal;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(mad(&[]), None);
        assert_eq!(mad(&[1.0, 2.0, 3.0, 4.0, 1e9]), Some(1.4826));
    }

    #[test]
    fn mad_is_the_standard_deviation_of_normal_numbers() {
        let mut random = Random::from_seed(5);
        let values: Vec<f64> = (0..20_000).map(|_| 10.0 + 3.0 * normal(&mut random)).collect();
        let spread = mad(&values).unwrap();
        assert!((spread - 3.0).abs() < 0.1, "{spread}");
    }
}
