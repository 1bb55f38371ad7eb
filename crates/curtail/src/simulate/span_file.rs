//! The file of simulated spans: OTLP in JSON, a batch a line, as the Collector's file exporter writes it.
//!
//! **Limits**: a batch ends at [`BATCH_BYTES`] in protobuf; the caller limits the requests of each run.

use anyhow::Context as _;
use curtail_otlp::Signal;
use curtail_otlp::json::{Mapping, from_protobuf};
use curtail_sim::{
    Arm, Recording, Report, RequestRecord, Scenario, SimulationProgress, SpanWriter, Variant,
    run_recorded,
};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

const BATCH_BYTES: usize = 1 << 20;

struct SpanFile {
    out: BufWriter<File>,
    seed: u64,
    /// The names of the model and the arm of the present run, and the writer of its spans.
    run: Option<(String, String, SpanWriter)>,
}

/// Simulates `scenario`, and writes the spans of the first `requests_max` counted requests of each run to `path`.
pub(super) fn run(
    scenario: &Scenario,
    seed: u64,
    watch: impl FnMut(SimulationProgress<'_>),
    (path, requests_max): (&Path, u64),
) -> anyhow::Result<Report> {
    let context = || format!("the file of spans {}", path.display());
    let out = BufWriter::new(File::create(path).with_context(context)?);
    let mut file = SpanFile { out, seed, run: None };
    let mut written = Ok(());
    let recording = Recording {
        requests_max,
        record: &mut |variant, arm, record| {
            if written.is_ok() {
                written = file.write(variant, arm, &record);
            }
        },
    };
    let report = run_recorded(scenario, seed, watch, recording);
    written.and_then(|()| file.finish()).with_context(context)?;
    Ok(report)
}

impl SpanFile {
    fn write(&mut self, variant: &Variant, arm: &Arm, record: &RequestRecord) -> io::Result<()> {
        let is_same =
            |(v, a, _): &(String, String, SpanWriter)| *v == variant.name && *a == arm.name;
        if !self.run.as_ref().is_some_and(is_same) {
            self.end_batch()?;
            let writer = SpanWriter::new(variant, arm, self.seed);
            self.run = Some((variant.name.clone(), arm.name.clone(), writer));
        }
        let Some((.., writer)) = &mut self.run else { return Ok(()) };
        writer.write(record);
        if writer.bytes() >= BATCH_BYTES { self.end_batch() } else { Ok(()) }
    }

    fn end_batch(&mut self) -> io::Result<()> {
        let Some((.., writer)) = &mut self.run else { return Ok(()) };
        if writer.bytes() == 0 {
            return Ok(());
        }
        let json = from_protobuf(&writer.take_batch(), Signal::Traces, Mapping::Otlp)
            .map_err(io::Error::other)?;
        writeln!(self.out, "{json}")
    }

    fn finish(mut self) -> io::Result<()> {
        self.end_batch()?;
        self.out.flush()
    }
}
