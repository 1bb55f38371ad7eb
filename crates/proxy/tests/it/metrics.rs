//! What `/metrics` says, read back.

/// One scrape.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    text: String,
}

impl Metrics {
    pub(crate) fn new(text: String) -> Self {
        Self { text }
    }

    /// The sum of all series of `name` that have these labels; zero when there is none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let series = self.text.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, rest) = series.split_once('{').unwrap_or((series, ""));
            let has = |(key, value): &(&str, &str)| rest.contains(&format!("{key}=\"{value}\""));
            (found == name && labels.iter().all(has)).then(|| value.parse::<f64>().ok())?
        });
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
        let sum = series.sum::<f64>() as u64;
        sum
    }

    /// Attempts sent for this reason.
    pub(crate) fn attempts(&self, reason: &str) -> u64 {
        self.sum("curtail_attempts_total", &[("reason", reason)])
    }

    /// Attempts cancelled for this reason.
    pub(crate) fn cancelled(&self, reason: &str) -> u64 {
        self.sum("curtail_attempts_cancelled_total", &[("reason", reason)])
    }

    /// Attempts that are on their way.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sum("curtail_attempts_in_flight", &[])
    }
}

impl std::fmt::Display for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
