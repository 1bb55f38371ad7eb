use crate::candidate::Candidate;
use crate::fit::{Fit, FitOverrides};
use crate::lab::Lab;
use crate::prediction::Prediction;

/// The prediction of a small service of `replicas` replicas, with one candidate.
fn predicted(replicas: u32) -> Prediction {
    let recording = Lab { replicas, ..Lab::small(1) }.record();
    let fit = Fit::new(&recording, FitOverrides::default()).expect("enough requests");
    let candidates = Candidate::named(&fit, "one more replica").expect("it fits");
    Prediction::of(&recording, fit, candidates, 1)
}

#[test]
fn one_replica_is_singular() {
    for (replicas, expected) in [(1, "\n1 replica, "), (2, "\n2 replicas, ")] {
        let table = predicted(replicas).table();
        assert!(table.contains(expected), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }
}

/// The share of time in pauses is an empty sum.
#[test]
fn a_zero_has_no_sign() {
    let prediction = predicted(2);
    assert_eq!(prediction.fit.slow_periods, []);
    for json in [prediction.json(), prediction.json_with_text()] {
        assert!(!json.contains("-0.0,") && !json.contains("-0.0}"), "{json}");
        assert!(json.contains("\"stopped_ratio\":0.0"), "{json}");
    }
}
