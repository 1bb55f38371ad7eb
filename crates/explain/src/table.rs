//! An explanation for a terminal.

use crate::explanation::{Explanation, Finding, ServiceShare};
use crate::tenants::{DecadeLatency, TenantLatency, Tenants};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use curtail_text::numbers::{latency, percent, percentile_name, thousands};
use curtail_text::{Columns, Left, Page, Right};
use curtail_units::Duration;

/// The smallest share of the difference between two populations that is reported if it comes from more or fewer calls.
const MORE_CALLS_MIN: f64 = 0.1;

/// The sum of the times that services add and save, as a share of the sum of their sizes, below which they nearly cancel.
const CANCEL_MAX: f64 = 0.2;

/// The number of services in the table.
const SERVICES_MAX: usize = 10;

/// Writes an explanation in lines of at most `width` columns.
#[must_use]
pub fn table(explanation: &Explanation, width: usize) -> String {
    let mut page = Page::new(width);
    let Explanation { slow, baseline, .. } = explanation;
    let added_ns = slow.mean_ns - baseline.mean_ns;
    page.wrapped(
        "",
        &format!(
            "{} {}{} take {} on average, {} others {}: {} {}.",
            thousands(slow.traces as u64),
            // Of two populations, there is no quantile.
            if explanation.quantile.is_some() { "slow traces" } else { "traces to explain" },
            explanation.slow_quantile.map_or_else(String::new, |quantile| {
                format!(" ({} and above)", percentile_name(quantile))
            }),
            time(slow.mean_ns),
            thousands(baseline.traces as u64),
            time(baseline.mean_ns),
            time(added_ns.abs()),
            if added_ns < 0.0 { "less" } else { "more" },
        ),
    );
    if added_ns < 0.0 && explanation.quantile.is_none() {
        page.wrapped("", "The traces to explain are faster: swap the two populations to see why.");
    }
    let more_ns = explanation.more_calls_ns;
    if explanation.quantile.is_none() && more_ns.abs() > MORE_CALLS_MIN * added_ns.abs() {
        page.wrapped(
            "",
            &format!(
                "{} of the difference comes from {} calls, for which no service has a share below.",
                time(more_ns.abs()),
                if more_ns < 0.0 { "fewer" } else { "more" },
            ),
        );
    }
    for (operation, count) in explanation.operations.iter().take(3) {
        page.wrapped("  ", &format!("{} of {operation}", thousands(*count)));
    }
    page.blank();
    findings(explanation, &mut page);
    page.blank();
    write_ranking(&explanation.ranking, &mut page);
    if let Some(tenants) = &explanation.tenants {
        page.blank();
        write_tenants(tenants, &mut page);
    }
    notes(explanation, &mut page);
    page.finish()
}

fn findings(explanation: &Explanation, page: &mut Page) {
    if explanation.findings.is_empty() {
        page.wrapped("", "No finding is statistically significant.");
        return;
    }
    page.line("What stands out");
    for (nth, finding) in (1..).zip(&explanation.findings) {
        let Finding { text, interval, cause, quantile_ns, same_as, examples, .. } = finding;
        page.wrapped("  ", &format!("{nth}. {text}"));
        let of_quantile = match (quantile_ns, &explanation.quantile) {
            (Some(ns), Some(effect)) => {
                format!("; {} of {}", time(*ns), percentile_name(effect.quantile))
            }
            _ => String::new(),
        };
        let (low, high) = interval;
        if low < high {
            page.wrapped(
                "    ",
                &format!("share {} to {}{of_quantile}", percent(*low), percent(*high)),
            );
        }
        if !same_as.is_empty() {
            page.wrapped("    ", &format!("nearly the same traces: {}", same_as.join(", ")));
        }
        page.wrapped("    ", cause.remedy());
        if let Some(slowest) = examples.first() {
            page.line(format!("    curtail query trace {slowest:032x}"));
        }
    }
    page.blank();
    let unexplained = percent(explanation.unexplained_ratio);
    match &explanation.quantile {
        Some(effect) => page.wrapped(
            "",
            &format!(
                "Without these causes {} is {} instead of {}; {unexplained} of the slow traces remains unexplained.",
                percentile_name(effect.quantile),
                time(effect.without_ns),
                time(effect.with_ns),
            ),
        ),
        None => page.wrapped("", &format!("{unexplained} of the added time remains unexplained.")),
    }
}

fn write_ranking(ranking: &[ServiceShare], page: &mut Page) {
    page.line("Where the time went");
    let columns = Columns::new([Left(30), Right(8), Right(18), Right(12)]).apart(2);
    page.row(&columns, ["  service, and its largest component", "share", "95 % interval", "added"]);
    let sizes: f64 = ranking.iter().map(|of| of.excess_ns.abs()).sum();
    let total: f64 = ranking.iter().map(|of| of.excess_ns).sum();
    // Shares of a small difference of large times would be hundreds of percent.
    let cancel = total.abs() < CANCEL_MAX * sizes;
    for of in ranking.iter().take(SERVICES_MAX) {
        let ServiceShare { service, share, interval, excess_ns, component, .. } = of;
        let share = share.filter(|_| !cancel).map_or_else(|| "n/a".to_owned(), percent);
        let interval = interval.filter(|_| !cancel).map_or_else(String::new, |(low, high)| {
            format!("{} to {}", percent(low), percent(high))
        });
        let added = format!("{}{}", if *excess_ns < 0.0 { "-" } else { "" }, time(excess_ns.abs()));
        page.row(&columns, [&format!("  {service}"), &share, &interval, &added]);
        page.wrapped("      ", component);
    }
    if cancel {
        page.wrapped("  ", "n/a: the times that services add and save nearly cancel.");
    }
}

/// The number of tenants in the table.
const TENANTS_MAX: usize = 10;

fn write_tenants(of: &Tenants, page: &mut Page) {
    let Tenants { key, tenants, decades, count, unnamed_requests } = of;
    if *count == 0 {
        page.wrapped("", &format!("By tenant: no trace has the attribute {key}."));
        return;
    }
    page.line(format!("By tenant ({key}): the largest of {}", thousands(*count)));
    let columns = Columns::new([Left(34), Right(12), Right(12), Right(12)]).apart(2);
    page.row(&columns, ["  tenant", "requests", "p50", "p99"]);
    for TenantLatency { tenant, requests, p50_ns, p99_ns } in tenants.iter().take(TENANTS_MAX) {
        let name = format!("  {tenant}");
        page.row(&columns, [&name, &thousands(*requests), &time(*p50_ns), &time(*p99_ns)]);
    }
    page.blank();
    page.row(&columns, ["  tenants by their number of requests", "requests", "p50", "p99"]);
    for DecadeLatency { requests_min, tenants, requests, p50_ns, p99_ns } in decades {
        let requests_max = requests_min * 10 - 1;
        let name = format!(
            "  {} with {} to {}",
            thousands(*tenants),
            thousands(*requests_min),
            thousands(requests_max)
        );
        page.row(&columns, [&name, &thousands(*requests), &time(*p50_ns), &time(*p99_ns)]);
    }
    if *unnamed_requests > 0 {
        page.line(format!("  {} requests do not have it", thousands(*unnamed_requests)));
    }
}

fn notes(explanation: &Explanation, page: &mut Page) {
    let unused = explanation.unused;
    for (count, why) in [
        (unused.without_root, "traces have no root span and are left out"),
        (unused.too_long, "traces have too many spans and are left out"),
        (unused.too_many, "traces are too many and are left out"),
        (unused.not_compared, "traces are in neither population or in both, and are left out"),
        (
            unused.too_rare,
            "traces are of an operation with too few traces for the quantile, and are left out",
        ),
        (
            unused.unmatched,
            "traces are of an operation that only one population has, and are left out",
        ),
    ] {
        if count > 0 {
            page.blank();
            page.wrapped("", &format!("{} {why}.", thousands(count)));
        }
    }
}

fn time(ns: f64) -> String {
    latency(Duration::from_ns_f64(ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn shares_of_times_that_nearly_cancel_are_left_out() {
        let text = |added_ms: [f64; 2]| {
            let total: f64 = added_ms.iter().sum();
            let services = added_ms.into_iter().map(|ms| ServiceShare {
                service: "cart".to_owned(),
                component: "cart: Get".to_owned(),
                share: Some(ms / total),
                interval: Some((ms / total - 0.1, ms / total + 0.1)),
                excess_ns: ms * 1e6,
                components: Vec::new(),
            });
            let mut page = Page::new(80);
            write_ranking(&services.collect::<Vec<_>>(), &mut page);
            page.finish()
        };
        let apart = text([30.0, -19.0]);
        assert!(apart.contains("272.7 %") && !apart.contains("n/a"), "{apart}");
        let cancel = text([30.0, -25.0]);
        assert!(cancel.contains("n/a") && !cancel.contains("600 %"), "{cancel}");
        assert!(cancel.contains("nearly cancel"), "{cancel}");
        assert!(cancel.contains("30.00 ms") && cancel.contains("-25.00 ms"), "{cancel}");
    }
}
