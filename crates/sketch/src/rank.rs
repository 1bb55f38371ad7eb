//! The rank of a quantile among sorted values, and the start of the tail above it.

use curtail_units::Quantile;

/// The rank, from 1 to `count`, of the value at `quantile` among `count` sorted values: `ceil(q · n)`.
///
/// The value at this rank is the smallest recorded value `v` such that at least a share `q` of the values is ≤ `v`.
/// There is no interpolation. The product is first reduced by 2^-52 of itself, about its rounding error: 0.07 of 100
/// values is the 7th, although 0.07 as a float is slightly more. A fraction that small is dropped, and ranks above 2^50
/// are right to 2^-50 of themselves. A `count` of 0 gives the rank 0.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the product is at least 0, and a cast from float to integer saturates"
)]
pub fn rank(quantile: Quantile, count: u64) -> u64 {
    if quantile.get() >= 1.0 {
        return count;
    }
    let product = quantile.get() * count as f64;
    let rank = libm::ceil(product * (1.0 - f64::EPSILON)) as u64;
    rank.max(1).min(count)
}

/// The index, from 0, at which the tail above `quantile` starts among `len` sorted values: `floor(q · n)`.
///
/// The tail has the `ceil((1 − q) · n)` largest values. The value of [`rank()`] is in the other part: of 1,000 values, the
/// 0.99 quantile is the 990th, and the tail is the 10 values after it. `len` is not zero, and the last value is always in
/// the tail.
#[must_use]
pub fn tail_start(quantile: f64, len: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most the length"
    )]
    let index = (quantile * len as f64) as usize;
    index.min(len - 1)
}

#[cfg(test)]
mod tests {
    use super::{rank, tail_start};
    use curtail_units::Quantile;

    #[test]
    fn a_decimal_share_of_a_round_number_is_the_rank_people_mean() {
        for thousandths in 0..=1_000_u64 {
            let quantile = Quantile::new(thousandths as f64 / 1_000.0).expect("at most 1");
            for count in [1_000, 7_000, 1_000_000_000] {
                let expected = (thousandths * (count / 1_000)).max(1);
                assert_eq!(rank(quantile, count), expected, "{quantile} of {count}");
            }
        }
    }

    #[test]
    fn between_two_ranks_the_higher_is_meant() {
        let quantile = |q| Quantile::new(q).expect("a quantile");
        assert_eq!(rank(quantile(0.5), 5), 3);
        assert_eq!(rank(quantile(0.501), 1_001), 502);
        assert_eq!(rank(quantile(0.99), 10), 10);
        assert_eq!(rank(quantile(0.0), 10), 1);
        assert_eq!(rank(quantile(1.0), u64::MAX), u64::MAX);
        assert_eq!(rank(quantile(0.5), 0), 0);
    }

    #[test]
    fn the_tail_starts_after_the_value_of_a_quantile() {
        assert_eq!(tail_start(0.99, 1_000), 990);
        assert_eq!(rank(Quantile::P99, 1_000), 990);
        // No value is at the quantile itself: the value of the rank is the first of the tail.
        assert_eq!(tail_start(0.99, 1_050), 1_039);
        assert_eq!(rank(Quantile::P99, 1_050), 1_040);
        assert_eq!(tail_start(0.0, 10), 0);
        assert_eq!(tail_start(1.0, 10), 9);
    }
}
