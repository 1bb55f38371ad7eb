//! Selects the format of the metrics for a scraper.
//!
//! **Decides** for protobuf if the scraper accepts exactly `io.prometheus.client.MetricFamily` with the encoding
//! `delimited`, and prefers no text. Otherwise for `OpenMetrics`, if the scraper accepts it and does not prefer plain text.
//! Every other scraper gets Prometheus's plain text, even if it accepts no form.
//! **Source**: RFC 9110, section 12.5.1; Prometheus's documentation, "Content negotiation".

/// A form of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsForm {
    /// Prometheus's plain text, with classic histograms.
    Text,
    /// `OpenMetrics`, with classic histograms.
    OpenMetrics,
    /// Prometheus's protobuf, with native histograms.
    Protobuf,
}

/// Selects the form for a request with these `Accept` fields.
#[must_use]
pub fn form_for<'a>(accept: impl Iterator<Item = &'a str>) -> MetricsForm {
    let (mut text, mut open_metrics, mut protobuf) = (0.0_f64, 0.0_f64, 0.0_f64);
    for range in accept.flat_map(|field| field.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<(String, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_matches('"')))
            .collect();
        let parameter = |wanted: &str| {
            let found = parameters.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| *value)
        };
        let weight = parameter("q").map_or(1.0, |q| q.parse().unwrap_or(0.0));
        let is_protobuf = kind == "application/vnd.google.protobuf"
            && parameter("proto") == Some("io.prometheus.client.MetricFamily")
            && parameter("encoding") == Some("delimited");
        if is_protobuf {
            protobuf = protobuf.max(weight);
        } else if kind == "application/openmetrics-text" {
            open_metrics = open_metrics.max(weight);
        } else if matches!(&*kind, "text/plain" | "text/*" | "*/*") {
            text = text.max(weight);
        }
    }
    if protobuf > 0.0 && protobuf >= text.max(open_metrics) {
        MetricsForm::Protobuf
    } else if open_metrics > 0.0 && open_metrics >= text {
        MetricsForm::OpenMetrics
    } else {
        MetricsForm::Text
    }
}

#[cfg(test)]
mod tests {
    use super::{MetricsForm, form_for};

    const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

    #[test]
    fn protobuf_is_for_scrapers_that_prefer_it() {
        let prometheus = format!(
            "{PROTOBUF};q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
        );
        let less = format!("text/plain;q=0.9,{PROTOBUF};q=0.1");
        let other = PROTOBUF.replace("delimited", "text");
        let refused = format!("{PROTOBUF};q=0");
        let spaced = PROTOBUF.replace(';', "; ");
        for (accept, form) in [
            (&*prometheus, MetricsForm::Protobuf),
            (PROTOBUF, MetricsForm::Protobuf),
            (&spaced, MetricsForm::Protobuf),
            (&less, MetricsForm::Text),
            (&other, MetricsForm::Text),
            (&refused, MetricsForm::Text),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1",
                MetricsForm::OpenMetrics,
            ),
            ("application/openmetrics-text; version=1.0.0", MetricsForm::OpenMetrics),
            ("application/openmetrics-text;q=0.1,text/plain", MetricsForm::Text),
            ("text/plain;version=0.0.4", MetricsForm::Text),
            ("text/html, */*", MetricsForm::Text),
            ("", MetricsForm::Text),
        ] {
            assert_eq!(form_for([accept].into_iter()), form, "{accept}");
        }
        assert_eq!(form_for(std::iter::empty()), MetricsForm::Text);
        let split = ["text/plain;q=0.5", PROTOBUF];
        assert_eq!(form_for(split.into_iter()), MetricsForm::Protobuf);
    }
}
