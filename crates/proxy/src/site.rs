//! What the proxy serves by one reading of its configuration; a reload replaces it as a whole.

use crate::StartError;
use crate::clock::Clock;
use crate::config::{Config, RouteConfig};
use crate::driver::Upstream;
use crate::journal::Journal;
use crate::leaf::Leaf;
use crate::metrics::{ListenerMetrics, ProcessMetrics};
use crate::route::{Route, Routes};
use crate::spans::SpanSink;
use curtail_units::Rng;
use std::sync::Arc;

/// Routes, upstreams and leaves.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) config: Config,
    pub(crate) routes: Routes,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    pub(crate) leaves: Vec<Arc<Leaf>>,
}

/// What sites are made with, and what outlives them.
#[derive(Debug)]
pub(crate) struct Lasting {
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) spans: Option<Arc<SpanSink>>,
    pub(crate) process: ProcessMetrics,
    /// The listeners' counters by name, leaves included.
    pub(crate) listeners: Vec<(String, Arc<ListenerMetrics>)>,
}

impl Site {
    /// Builds what `config` says; upstreams and leaves that it leaves as they are in `before` go on with
    /// all that they have learned.
    ///
    /// # Errors
    /// When a certificate or an authority cannot be used; nothing has been changed then.
    pub(crate) fn new(
        config: Config,
        lasting: &Lasting,
        before: Option<&Self>,
    ) -> Result<Self, StartError> {
        let upstreams: Vec<Arc<Upstream>> = config
            .upstreams
            .iter()
            .map(|wanted| {
                let same = |kept: &&Arc<Upstream>| *kept.config == *wanted;
                if let Some(kept) = before.and_then(|b| b.upstreams.iter().find(same)) {
                    return Ok(Arc::clone(kept));
                }
                let rng = lasting.rng.split(&wanted.name);
                let (clock, journal) = (lasting.clock, lasting.journal.as_ref());
                let wanted = Arc::new(wanted.clone());
                Ok(Arc::new(Upstream::new(wanted, config.workers, &rng, clock, journal)?))
            })
            .collect::<Result<_, StartError>>()?;
        let leaves = config
            .leaves
            .iter()
            .map(|wanted| {
                let same = |kept: &&Arc<Leaf>| kept.config == *wanted;
                if let Some(kept) = before.and_then(|b| b.leaves.iter().find(same)) {
                    return Ok(Arc::clone(kept));
                }
                let rng = lasting.rng.split(&wanted.name);
                let (clock, journal) = (lasting.clock, lasting.journal.as_ref());
                Ok(Arc::new(Leaf::new(wanted.clone(), config.workers, &rng, clock, journal)?))
            })
            .collect::<Result<_, StartError>>()?;
        let route = |route: &RouteConfig| {
            let named = |upstream: &&Arc<Upstream>| upstream.config.name == route.upstream;
            let upstream = upstreams.iter().find(named)?;
            Some(Route::new(route, Arc::clone(upstream)))
        };
        let routes = Routes::new(config.routes.iter().filter_map(route).collect());
        Ok(Self { routes, upstreams, leaves, config })
    }

    /// Every upstream, those of the leaves included.
    pub(crate) fn all_upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.upstreams.iter().chain(self.leaves.iter().map(|leaf| &leaf.server))
    }
}
