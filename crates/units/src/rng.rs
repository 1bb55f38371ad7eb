//! Seeded randomness that splits by label.
//!
//! Every state machine and every fault draws from a generator of its own, split from one root seed by name. A new draw
//! in one place therefore does not change the numbers that another place draws. The generator is xoshiro256++ (Blackman
//! & Vigna, "Scrambled linear pseudorandom number generators", 2021, section 5), seeded through `SplitMix64` as its
//! authors advise. The generator is not for secrets.

use serde::{Deserialize, Serialize};

/// A seeded generator of random numbers; the same seed gives the same numbers on every machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator for `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self { state: core::array::from_fn(|_| split_mix_64(&mut state)) }
    }

    /// A separate generator for `label`. It depends on the seed and the state of `self`; `self` does not change.
    #[must_use]
    pub fn split(&self, label: &str) -> Self {
        // FNV-1a of the label: a short, fixed hash whose only task is to keep labels apart.
        let hash = label.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        Self::new(self.state[0].rotate_left(17) ^ self.state[2] ^ hash)
    }

    /// A separate generator for the `index`-th of several things of one kind.
    #[must_use]
    pub fn split_index(&self, index: u64) -> Self {
        Self::new(
            self.state[1].rotate_left(29)
                ^ self.state[3]
                ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        )
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in [0, 1), uniform over the multiples of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// An index in `0..len`, uniform (Lemire, "Fast random integer generation in an interval", 2019).
    ///
    /// # Panics
    /// When `len` is zero: there is no index to return.
    pub fn below(&mut self, len: usize) -> usize {
        assert!(len > 0, "an index below zero was asked for");
        let len = len as u64;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(len);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the low and the high half of the product"
            )]
            let (low, high) = (product as u64, (product >> 64) as usize);
            if low >= len || low >= len.wrapping_neg() % len {
                return high;
            }
        }
    }

    /// True with probability `probability`.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// An exponentially distributed number with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.unit())
    }

    /// A normally distributed number with mean 0 and standard deviation 1 (Box & Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(2.0 * core::f64::consts::PI * self.unit())
    }

    /// `value` rounded up or down at random so that its mean is kept: 1.3 is 2 three times in ten.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from float to integer saturates: negative counts become zero"
    )]
    pub fn round(&mut self, value: f64) -> u32 {
        let floor = libm::floor(value);
        floor as u32 + u32::from(self.chance(value - floor))
    }
}

fn split_mix_64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
        let draw = |seed| {
            core::array::from_fn::<u64, 8, _>({
                let mut rng = Rng::new(seed);
                move |_| rng.next_u64()
            })
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn splits_by_label_and_by_index_are_unrelated_to_each_other() {
        let root = Rng::new(1);
        let mut firsts = [
            root.split("hedge").next_u64(),
            root.split("balance").next_u64(),
            root.split_index(0).next_u64(),
            root.split_index(1).next_u64(),
            root.clone().next_u64(),
        ];
        firsts.sort_unstable();
        assert!(firsts.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn below_is_uniform_within_five_standard_errors() {
        let mut rng = Rng::new(42);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7)] += 1;
        }
        for count in counts {
            let sigma = libm::sqrt(70_000.0 * (1.0 / 7.0) * (6.0 / 7.0));
            assert!((f64::from(count) - 10_000.0).abs() < 5.0 * sigma, "{counts:?}");
        }
    }

    #[test]
    fn exponential_and_normal_have_their_moments_within_five_standard_errors() {
        let mut rng = Rng::new(43);
        let n = 200_000;
        let mean = (0..n).map(|_| rng.exponential()).sum::<f64>() / f64::from(n);
        assert!((mean - 1.0).abs() < 5.0 / libm::sqrt(f64::from(n)), "mean {mean}");
        let squares = (0..n).map(|_| libm::pow(rng.normal(), 2.0)).sum::<f64>() / f64::from(n);
        assert!((squares - 1.0).abs() < 5.0 * libm::sqrt(2.0 / f64::from(n)), "variance {squares}");
    }

    #[test]
    fn round_keeps_the_mean() {
        let mut rng = Rng::new(44);
        let total: u32 = (0..100_000).map(|_| rng.round(1.32)).sum();
        assert!((f64::from(total) / 100_000.0 - 1.32).abs() < 0.01);
    }
}
