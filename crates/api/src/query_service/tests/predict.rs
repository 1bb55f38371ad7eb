//! `GET /api/v1/predict`: the same result as from the spans that were sent, and clear errors.

use super::*;
use curtail_predict::{Cancelled, Candidate, CoreLimit, Fit, FitOverrides, Prediction, SpanReader};

/// A prediction needs 1,000 requests.
const REQUESTS: usize = 1_200;

fn target(parameters: &str) -> String {
    format!("/api/v1/predict?service=front&start=0&{parameters}")
}

/// Requests that do not overlap, each to the replica `front`.
fn requests() -> Vec<Sent> {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    (0..REQUESTS).map(|nth| sent(nth, &mut rng)).collect()
}

#[test]
fn the_result_is_that_of_the_spans_that_were_sent() {
    let all = requests();
    let batches: Vec<_> = all.iter().map(|sent| (Signal::Traces, batch(sent))).collect();
    let service = TestService::with(&batches);
    let mut reader = SpanReader::new();
    batches.iter().for_each(|(_, batch)| reader.add(batch).expect("a batch"));
    let recording = reader.finish(Some("front")).expect("a service");
    let overrides = FitOverrides {
        replicas: Some(3),
        intrinsic_ratio: Some(0.25),
        core_limit: Some(CoreLimit::AllReplicas(2.0)),
        cancelled: Some(Cancelled::RunsOn),
    };
    let fit = Fit::new(&recording, overrides).expect("enough requests");
    let candidates = Candidate::all(&fit);
    let predicted = Prediction::of(&recording, fit, candidates, 7);
    let given = "replicas=3&intrinsic_ratio=0.25&shared_cores=2&cancelled=runs_on";
    let question = target(&format!("{given}&seed=7"));
    let (status, json) = service.get(&question);
    assert_eq!((status, json), (StatusCode::OK, predicted.json() + "\n"));
    let request = Request::get(question).header("accept", "text/plain");
    let (_, text) = service.send_empty(request, "GET");
    assert_eq!(text, predicted.table());
    // One replica alone has no policies to predict.
    let json = service.json(&target("remedies=1.25%20times%20the%20load"));
    let names = json["remedies"].as_array().expect("a list").iter().map(|remedy| &remedy["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["1.25 times the load"]);
    let (status, body) = service.get(&target("remedies=tie"));
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        body.contains("fits the service: expected one more replica, 1.25 times the load"),
        "{body}"
    );
}

#[test]
fn what_is_wrong_with_a_question_is_named() {
    let service = TestService::with_traces(&all()[..60]);
    for (target, status, message) in [
        ("/api/v1/predict".to_owned(), 400, "service: expected"),
        (target("replicas=0"), 400, "replicas: expected a number from 1 to 4096, found"),
        (target("intrinsic_ratio=2"), 400, "intrinsic_ratio: expected a ratio from 0 to 1, found"),
        (target("shared_cores=0"), 400, "shared_cores: expected a number from 1 to 64, found"),
        (target("cores=65"), 400, "cores: expected a number from 1 to 64, found"),
        (target("cores=2&shared_cores=2"), 400, "cores: expected one of cores and shared_cores"),
        (target("cancelled=no"), 400, "cancelled: expected stops, leaves_queue or runs_on, found"),
        (target("seed=x"), 400, "seed: expected"),
        (target("remedys=tie"), 400, "unknown parameter \"remedys\": did you mean remedies?"),
        ("/api/v1/predict?service=front&since=1h&until=2h".to_owned(), 400, "since: expected"),
        (target("operation=GET%20/crat"), 404, "did you mean GET /cart?"),
        (
            target("upstream=search"),
            400,
            "upstream: \"search\" is not there: expected one of front, cart",
        ),
        (target(""), 400, "requests succeeded: expected at least 1000"),
        ("/api/v1/predict?service=fornt&start=0".to_owned(), 404, "did you mean front?"),
    ] {
        let (got, body) = service.get(&target);
        assert_eq!(got.as_u16(), status, "{target}: {body}");
        assert!(body.replace("\\\"", "\"").contains(message), "{target}: {body}");
    }
}
