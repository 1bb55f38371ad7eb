use super::*;
use crate::fit::FitOverrides;
use crate::lab::Lab;

/// A fit of a service that was recorded with these policies.
fn fit(policy: UpstreamConfig) -> Fit {
    let recording = crate::Recording { policy: Some(policy), ..Lab::small(1).record() };
    Fit::new(&recording, FitOverrides::default()).expect("enough requests")
}

#[test]
fn every_remedy_is_predicted_as_switched_on() {
    for mode in [RemedyMode::On, RemedyMode::Off, RemedyMode::DryRun, RemedyMode::Auto] {
        let plain = UpstreamConfig::plain(BalanceConfig::Random);
        let recorded = UpstreamConfig { remedy: mode, ..hedged(&plain, 0.95) };
        let fit = fit(recorded);
        assert_eq!(Candidate::none(&fit).policy, recorded, "{mode:?}");
        let all = Candidate::all(&fit);
        assert!(all.iter().all(|one| one.policy.remedy == RemedyMode::On), "{mode:?}: {all:?}");
        // A dry run sends no hedges, so hedges are a remedy of it.
        let hedge = all.iter().find(|one| one.name == "hedge p95");
        assert_eq!(hedge.is_some(), mode != RemedyMode::On, "{mode:?}");
        let balance = all.iter().find(|one| one.name == "least request").expect("it fits");
        assert_eq!(balance.policy.hedge.is_some(), mode == RemedyMode::On, "{mode:?}");
    }
}
