use super::{bits, deltas, hybrid};
use curtail_units::Rng;

const SEED: u64 = 24_301;

#[test]
fn hybrid_gives_back_what_it_was_given() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    for width in 0..=32_u8 {
        for len in [0, 1, 7, 8, 9, 63, 64, 1_000] {
            for equal_one_in in [1, 2, 20] {
                let mask = if width == 0 { 0 } else { u32::MAX >> (32 - width) };
                let mut number = 0;
                let numbers: Vec<u32> = (0..len)
                    .map(|_| {
                        if rng.next_u64().is_multiple_of(equal_one_in) {
                            number = u32::try_from(rng.next_u64() >> 32).expect("32 bits") & mask;
                        }
                        number
                    })
                    .collect();
                let mut bytes = Vec::new();
                hybrid::encode(&mut bytes, &numbers, width);
                let mut read = vec![7];
                let (from, to) = (rng.below(len + 1), rng.below(len + 1));
                let range = from.min(to)..from.max(to);
                hybrid::decode(&mut read, &bytes, width, range.clone()).expect("it is whole");
                let expected = (7, &numbers[range.clone()]);
                assert_eq!((read[0], &read[1..]), expected, "{width} bits, {range:?} of {len}");
                let ones = hybrid::ones(&bytes, range.end).ok().filter(|_| width == 1);
                let expected = numbers[..range.end].iter().filter(|number| **number == 1).count();
                assert_eq!(ones, (width == 1).then_some(expected));
            }
        }
    }
}

#[test]
fn equal_numbers_are_written_once() {
    let mut bytes = Vec::new();
    hybrid::encode(&mut bytes, &[3; 1_000_000], 2);
    assert_eq!(bytes.len(), 4);
}

#[test]
fn packed_numbers_stand_as_the_format_says() {
    // The example of Encodings.md: 0 to 7 in three bits each.
    let mut bytes = Vec::new();
    bits::pack(&mut bytes, [0, 1, 2, 3, 4, 5, 6, 7].into_iter(), 3);
    assert_eq!(bytes, [0b1000_1000, 0b1100_0110, 0b1111_1010]);
}

#[test]
fn deltas_give_back_what_they_were_given() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    for len in [0, 1, 2, 32, 33, 128, 129, 130, 1_000] {
        for bits in [0, 1, 13, 33, 57, 63, 64_u32] {
            let mut number = 1_750_000_000_000_000_000_i64;
            let numbers: Vec<i64> = (0..len)
                .map(|_| {
                    let random = rng.next_u64().checked_shr(64 - bits).unwrap_or(0);
                    number = number.wrapping_add(random.cast_signed());
                    number
                })
                .collect();
            let mut bytes = Vec::new();
            deltas::encode(&mut bytes, &numbers);
            let mut read = vec![7];
            deltas::take(&mut read, &mut &*bytes, len).expect("it is whole");
            assert_eq!((read[0], &read[1..]), (7, &numbers[..]), "{bits} bits");
        }
    }
}

#[test]
fn the_extremes_have_differences() {
    let numbers = [i64::MIN, i64::MAX, i64::MIN, 0, -1, i64::MAX];
    let mut bytes = Vec::new();
    deltas::encode(&mut bytes, &numbers);
    let mut read = Vec::new();
    deltas::take(&mut read, &mut &*bytes, 6).expect("it is whole");
    assert_eq!(read, numbers);
}

#[test]
fn what_is_cut_off_or_noise_is_refused_or_read_and_never_more_than_asked_for() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let numbers: Vec<i64> = (0..300).map(|nth| nth * nth * 1_000).collect();
    let mut whole = Vec::new();
    deltas::encode(&mut whole, &numbers);
    for len in 0..whole.len() {
        assert!(deltas::take(&mut Vec::new(), &mut &whole[..len], 300).is_err(), "{len} bytes");
    }
    assert!(
        deltas::take(&mut Vec::new(), &mut &*whole, 299).is_err(),
        "one more than there may be"
    );
    for _ in 0..20_000 {
        let noise: Vec<u8> =
            (0..rng.next_u64() % 40).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        let mut read = Vec::new();
        if deltas::take(&mut read, &mut &*noise, 50).is_ok() {
            assert!(read.len() <= 50);
        }
        let mut read = Vec::new();
        let width = u8::try_from(rng.next_u64() % 34).expect("small");
        if hybrid::decode(&mut read, &noise, width, 0..50).is_ok() {
            assert_eq!(read.len(), 50);
        }
    }
}
