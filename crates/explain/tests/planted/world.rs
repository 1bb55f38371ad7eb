//! Traces of a small shop, with a cause of slowness planted in some of them.
//!
//! A request to `shop` calls `auth` once and `cart` once; `cart` calls a cache, which has no spans, and `db` twice. Times are
//! lognormal. Each span has attributes that mean nothing besides those of the planted cause.

use curtail_explain::{AttributeValue, Side, SpanKind, SpanRow, Traces};
use curtail_trace::Span;
use curtail_units::Rng;
use std::ops::Range;

/// What makes some requests slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    LargePayload,
    Retries,
    SlowReplica,
    Pause,
    Queue,
    ColdConnection,
    NameLookup,
    Tenant,
    HotKey,
    PacketLoss,
    MoreCalls,
    CodePath,
    BusyProcessor,
    NetworkGap,
    DistantRoute,
    Restart,
    ThrottledProcessor,
    Disk,
    WakeUp,
    Switch,
    FanOut,
}

/// The number of requests after which a server falls asleep that gets none of them, and the probability that it gets none of
/// one.
const AWAKE_FOR: f64 = 16.0;
const STAYS_AWAKE: f64 = 0.75;

/// The requests after the restart of a server, of 6,000; and those during which a switch fails, of 500.
const RESTART: Range<u64> = 3_000..3_240;
const SWITCH_FAILS: Range<u64> = 0..6;

impl Planted {
    /// Every cause, with the name of the finding and a part of its subject.
    pub(crate) const ALL: [(Self, &str, &str); 21] = [
        (Self::LargePayload, "large_payload", "body.size >"),
        (Self::Retries, "retries", "resend_count"),
        (Self::SlowReplica, "slow_replica", "cart-3"),
        (Self::Pause, "pause", "gc pause"),
        (Self::Queue, "queueing", "queue"),
        (Self::ColdConnection, "cold_connection", "TLS handshake"),
        (Self::NameLookup, "name_lookup", "DNS lookup"),
        (Self::Tenant, "tenant", "tenant = tenant-7"),
        (Self::HotKey, "hot_key", "db.key = key-13"),
        (Self::PacketLoss, "network", "cart -> db"),
        (Self::MoreCalls, "more_calls", "calls of SELECT"),
        (Self::CodePath, "code_path", "rebuild index"),
        (Self::BusyProcessor, "busy_processor", "cpu.busy"),
        (Self::NetworkGap, "network", "shop -> auth"),
        (Self::DistantRoute, "slow_replica", "cloud.region = far"),
        (Self::Restart, "slow_replica", "cart-2"),
        (Self::ThrottledProcessor, "busy_processor", "cpu.throttled"),
        (Self::Disk, "storage", "db: disk read"),
        (Self::WakeUp, "wake_up", "cart"),
        (Self::Switch, "slow_together", "shop -> cart"),
        (Self::FanOut, "fan_out", "to part: GET /part"),
    ];
}

impl Planted {
    /// Whether the cause is no property of single requests: it meets the requests of a time, or each request makes the calls
    /// of a fan-out.
    const fn is_of_all_requests(self) -> bool {
        matches!(self, Self::Restart | Self::WakeUp | Self::Switch | Self::FanOut)
    }
}

/// Adds `count` traces; each cause delays the requests that it meets.
pub(crate) fn add_traces(traces: &mut Traces, rng: &Rng, count: u64, planted: &[(Planted, f64)]) {
    for nth in 0..count {
        with_trace(nth, rng, planted, |rows| traces.add(u128::from(nth) + 1, Side::Baseline, rows));
    }
}

/// Calls `take` with the spans of a trace, and returns the causes that delayed it. Each cause has a share: of the requests
/// that it may meet, or of the times at which it does.
pub(crate) fn with_trace(
    nth: u64,
    rng: &Rng,
    planted: &[(Planted, f64)],
    take: impl FnOnce(&[SpanRow<'_>]),
) -> Vec<Planted> {
    // Each request has its own randomness, so that a cause changes no other request.
    let mut request = Request::new(nth, rng.split_index(nth), planted);
    request.run();
    let attributes: Vec<_> = request.rows.iter().map(OwnedRow::attributes).collect();
    let rows = request.rows.iter().map(OwnedRow::row).zip(&attributes);
    let rows: Vec<_> = rows.map(|(row, attributes)| SpanRow { attributes, ..row }).collect();
    take(&rows);
    request.delayed_by
}

#[derive(Debug)]
struct OwnedRow {
    span: Span,
    service: &'static str,
    operation: &'static str,
    kind: SpanKind,
    texts: Vec<(&'static str, String)>,
    numbers: Vec<(&'static str, f64)>,
}

impl OwnedRow {
    fn row(&self) -> SpanRow<'_> {
        SpanRow {
            span: self.span,
            service: self.service,
            operation: self.operation,
            kind: self.kind,
            is_abandoned: false,
            attributes: &[],
        }
    }

    fn attributes(&self) -> Vec<(&str, AttributeValue<'_>)> {
        let texts = self.texts.iter().map(|(key, text)| (*key, AttributeValue::Text(text)));
        let numbers =
            self.numbers.iter().map(|(key, number)| (*key, AttributeValue::Number(*number)));
        texts.chain(numbers).collect()
    }
}

struct Request {
    nth: u64,
    rng: Rng,
    /// The causes that may delay this request, with their shares.
    planted: Vec<(Planted, f64)>,
    rows: Vec<OwnedRow>,
    now_ns: i64,
    delayed_by: Vec<Planted>,
}

const MS: f64 = 1e6;

/// The pod of the cart that serves a request.
fn cart_pod(nth: u64) -> usize {
    1 + Rng::new(1).split_index(nth).below(4)
}

/// The number of requests since the last one that the same pod of the cart served.
fn idle_for(nth: u64) -> u64 {
    let is_same = |before: &u64| cart_pod(nth - before) == cart_pod(nth);
    (1..=nth).find(is_same).unwrap_or(nth)
}

impl Request {
    fn new(nth: u64, mut rng: Rng, planted: &[(Planted, f64)]) -> Self {
        // Ten requests a second.
        let now_ns = 1_700_000_000_000_000_000 + i64::try_from(nth).expect("few") * 100_000_000;
        let mut drawn = rng.unit();
        let may_meet = |(of, share): &&(Planted, f64)| {
            let is_drawn = (0.0..*share).contains(&drawn);
            drawn -= share;
            is_drawn || of.is_of_all_requests()
        };
        let planted = planted.iter().filter(may_meet).copied().collect();
        Self { nth, rng, planted, rows: Vec::new(), now_ns, delayed_by: Vec::new() }
    }

    fn has(&self, planted: Planted) -> bool {
        self.share(planted).is_some()
    }

    fn share(&self, planted: Planted) -> Option<f64> {
        self.planted.iter().find(|(of, _)| *of == planted).map(|(_, share)| *share)
    }

    /// Whether the request is one of `times` of the first in `period` requests, in a share of the periods.
    fn is_at(&self, planted: Planted, period: u64, times: &Range<u64>) -> bool {
        let is_of_share = |share| Rng::new(2).split_index(self.nth / period).chance(share);
        times.contains(&(self.nth % period)) && self.share(planted).is_some_and(is_of_share)
    }

    /// Whether the pod of the cart has fallen asleep: the smaller the share, the later it does.
    fn needs_wake_up(&self) -> bool {
        let longer = |share: f64| share.ln() / STAYS_AWAKE.ln();
        let is_asleep = |share| idle_for(self.nth) as f64 >= AWAKE_FOR + longer(share);
        self.share(Planted::WakeUp).is_some_and(is_asleep)
    }

    fn work(&mut self, median_ms: f64) {
        let ms = median_ms * (0.4 * self.rng.normal()).exp();
        self.wait(ms);
    }

    fn wait(&mut self, ms: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "some milliseconds")]
        let ns = (ms * MS) as i64;
        self.now_ns += ns;
    }

    /// Waits for the time that a planted cause adds, and returns it.
    fn suffer(&mut self, planted: Planted) -> f64 {
        self.delayed_by.push(planted);
        let ms = 60.0 * (0.3 * self.rng.normal()).exp();
        self.wait(ms);
        ms
    }

    fn begin(
        &mut self,
        service: &'static str,
        operation: &'static str,
        kind: SpanKind,
        parent: u64,
    ) -> usize {
        let span = Span {
            id: self.rows.len() as u64 + 1,
            parent_id: parent,
            start_ns: self.now_ns,
            end_ns: self.now_ns,
        };
        // All spans of one execution are on one pod; each call may go to another one.
        let of_caller =
            self.rows.iter().find(|row| row.span.id == parent && row.service == service);
        let of_caller = of_caller.map(|row| row.texts[0].1.clone());
        let pod = of_caller.unwrap_or_else(|| match service {
            "cart" => format!("cart-{}", cart_pod(self.nth)),
            _ => format!("{service}-{}", 1 + self.rng.below(4)),
        });
        let mut texts = vec![
            ("k8s.pod.name", pod.clone()),
            ("host.name", format!("host-of-{pod}")),
            ("net.color", format!("color-{}", self.rng.below(6))),
        ];
        if parent == 0 {
            texts.push(("request.id", format!("{:016x}", self.rng.next_u64())));
            texts.push(("tenant", format!("tenant-{}", self.rng.below(12))));
        }
        let numbers = vec![("thread.id", self.rng.below(64) as f64)];
        self.rows.push(OwnedRow { span, service, operation, kind, texts, numbers });
        self.rows.len() - 1
    }

    fn end(&mut self, row: usize) {
        self.rows[row].span.end_ns = self.now_ns;
    }

    fn text(&self, row: usize, key: &str) -> &str {
        self.rows[row].texts.iter().find(|(name, _)| *name == key).map_or("", |(_, text)| text)
    }

    fn id(&self, row: usize) -> u64 {
        self.rows[row].span.id
    }

    fn run(&mut self) {
        let root = self.begin("shop", "GET /cart", SpanKind::Server, 0);
        let size = 4_000.0 * (1.2 * self.rng.normal()).exp();
        self.rows[root].numbers.push(("http.response.body.size", size.round()));
        self.work(2.0);
        self.authorize(root);
        if self.has(Planted::Tenant)
            && self.text(root, "tenant") == "tenant-7"
            && self.rng.chance(0.15)
        {
            self.suffer(Planted::Tenant);
        }
        if self.has(Planted::CodePath) && self.rng.chance(0.012) {
            let rebuild = self.begin("shop", "rebuild index", SpanKind::Internal, self.id(root));
            self.suffer(Planted::CodePath);
            self.end(rebuild);
        }
        self.cart(root);
        if self.has(Planted::FanOut) {
            self.parts(root);
        }
        if self.has(Planted::LargePayload) && size > 60_000.0 {
            self.suffer(Planted::LargePayload);
        }
        self.work(1.0);
        self.end(root);
    }

    fn authorize(&mut self, root: usize) {
        let is_again = self.has(Planted::Retries) && self.rng.chance(0.012);
        for attempt in 0..=usize::from(is_again) {
            let call = self.begin("shop", "POST /token", SpanKind::Client, self.id(root));
            if attempt > 0 {
                self.rows[call].numbers.push(("http.request.resend_count", attempt as f64));
            }
            self.wait(0.2);
            if self.has(Planted::NetworkGap) && self.rng.chance(0.012) {
                self.suffer(Planted::NetworkGap);
            }
            let server = self.begin("auth", "POST /token", SpanKind::Server, self.id(call));
            if is_again && attempt == 0 {
                self.suffer(Planted::Retries);
            } else {
                self.work(3.0);
            }
            self.end(server);
            self.wait(0.2);
            self.end(call);
        }
    }

    fn cart(&mut self, root: usize) {
        let call = self.begin("shop", "GET /items", SpanKind::Client, self.id(root));
        for (planted, key) in [
            (Planted::ColdConnection, "curtail.connect.tls_ns"),
            (Planted::NameLookup, "curtail.connect.lookup_ns"),
        ] {
            if self.has(planted) && self.rng.chance(0.012) {
                let ms = self.suffer(planted);
                self.rows[call].numbers.push((key, ms * MS));
            }
        }
        self.wait(0.3);
        if self.needs_wake_up() {
            self.suffer(Planted::WakeUp);
        }
        if self.is_at(Planted::Switch, 500, &SWITCH_FAILS) {
            self.wait(120.0);
            self.suffer(Planted::Switch);
        }
        let server = self.begin("cart", "GET /items", SpanKind::Server, self.id(call));
        if self.has(Planted::Restart)
            && RESTART.contains(&(self.nth % 6_000))
            && cart_pod(self.nth) == 2
        {
            self.suffer(Planted::Restart);
        }
        let throttled = self.rng.unit() * 0.1;
        let is_throttled = self.has(Planted::ThrottledProcessor) && self.rng.chance(0.012);
        let key = "container.cpu.throttled_ratio";
        self.rows[server].numbers.push((key, if is_throttled { 0.8 } else { throttled }));
        if is_throttled {
            self.suffer(Planted::ThrottledProcessor);
        }
        let is_far = self.has(Planted::DistantRoute) && self.rng.chance(0.012);
        self.rows[server].texts.push(("cloud.region", if is_far { "far" } else { "near" }.into()));
        let cpu = self.rng.unit() * 0.7;
        let is_busy = self.has(Planted::BusyProcessor) && self.rng.chance(0.02);
        self.rows[server].numbers.push(("host.cpu.busy_ratio", if is_busy { 0.97 } else { cpu }));
        let is_slow_pod =
            self.has(Planted::SlowReplica) && self.text(server, "k8s.pod.name") == "cart-3";
        if is_busy {
            self.suffer(Planted::BusyProcessor);
        } else if is_slow_pod && self.rng.chance(0.05) {
            self.suffer(Planted::SlowReplica);
        }
        if self.has(Planted::Queue) && self.rng.chance(0.012) {
            let ms = self.suffer(Planted::Queue);
            self.rows[server].numbers.push(("curtail.leaf.wait_ns", ms * MS));
        }
        if self.has(Planted::Pause) && self.rng.chance(0.012) {
            let pause = self.begin("cart", "gc pause", SpanKind::Internal, self.id(server));
            self.suffer(Planted::Pause);
            self.end(pause);
        }
        self.work(3.0);
        let cache = self.begin("cart", "GET session", SpanKind::Client, self.id(server));
        self.work(3.0);
        self.end(cache);
        let has_more = self.has(Planted::MoreCalls) && self.rng.chance(0.012);
        let calls = if has_more { 14 } else { 2 };
        self.delayed_by.extend(has_more.then_some(Planted::MoreCalls));
        for _ in 0..calls {
            self.select(server);
        }
        self.end(server);
        if is_far {
            self.suffer(Planted::DistantRoute);
        }
        self.wait(0.3);
        self.end(call);
    }

    /// Sixteen calls at the same time.
    fn parts(&mut self, root: usize) {
        let (from_ns, mut to_ns) = (self.now_ns, 0);
        for _ in 0..16 {
            self.now_ns = from_ns;
            let call = self.begin("shop", "GET /part", SpanKind::Client, self.id(root));
            self.wait(0.2);
            let server = self.begin("part", "GET /part", SpanKind::Server, self.id(call));
            self.work(1.0);
            let share = self.share(Planted::FanOut).unwrap_or_default();
            if self.rng.chance(0.000_8 * share) {
                self.suffer(Planted::FanOut);
            }
            self.end(server);
            self.wait(0.2);
            self.end(call);
            to_ns = to_ns.max(self.now_ns);
        }
        self.now_ns = to_ns;
    }

    fn select(&mut self, cart: usize) {
        let call = self.begin("cart", "SELECT", SpanKind::Client, self.id(cart));
        self.wait(0.2);
        let server = self.begin("db", "SELECT", SpanKind::Server, self.id(call));
        let key = format!("key-{}", self.rng.below(40));
        if self.has(Planted::HotKey) && key == "key-13" && self.rng.chance(0.3) {
            self.suffer(Planted::HotKey);
        }
        self.rows[server].texts.push(("db.key", key));
        let read = self.begin("db", "disk read", SpanKind::Internal, self.id(server));
        self.work(0.5);
        if self.has(Planted::Disk) && self.rng.chance(0.006) {
            self.suffer(Planted::Disk);
        }
        self.end(read);
        self.work(4.0);
        self.end(server);
        if self.has(Planted::PacketLoss) && self.rng.chance(0.006) {
            self.delayed_by.push(Planted::PacketLoss);
            self.wait(200.0);
        }
        self.wait(0.2);
        self.end(call);
    }
}
