//! The keys of commands, data to load, and validation.

use super::{check_url, read_env, read_program, read_time};
use curtail_config::Section;
use curtail_generator::expect::Expect;
use curtail_units::Duration;
use std::path::{Path, PathBuf};

/// The configuration of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandConfig {
    pub(crate) name: String,
    pub(crate) run: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) within: Duration,
}

/// A step of preparation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StepConfig {
    /// A command.
    Run(CommandConfig),
    /// Data that is loaded.
    Load(Box<LoadConfig>),
}

/// Data that is loaded: lines, sent in batches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadConfig {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) url: String,
    pub(crate) method: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) batch: usize,
    pub(crate) at_once: usize,
    pub(crate) around: BatchFrame,
    pub(crate) expect: Expect,
    pub(crate) within: Duration,
}

/// The text around the lines of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchFrame {
    pub(crate) begin: String,
    pub(crate) between: String,
    pub(crate) end: String,
}

/// The source of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A file.
    File(PathBuf),
    /// The output of a command.
    Command(CommandConfig),
}

/// A condition on the servers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValidateConfig {
    pub(crate) url: String,
    pub(crate) expect: Expect,
    pub(crate) within: Duration,
}

fn read_name(s: &mut Section<'_>) -> Option<String> {
    s.field("name", "Name of the step; absent: the name of its program.").optional()
}

const COMMAND_WITHIN: Duration = Duration::from_secs(600);
const LOAD_WITHIN: Duration = Duration::from_secs(3_600);

impl CommandConfig {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        let command = Self::read_optional(s);
        if command.is_none() {
            s.error("run", "there is no program: expected [PROGRAM, ARGUMENT, …]");
        }
        let within = read_time(s, "within", "Maximum duration; a longer command ends the suite.");
        Self {
            within: within.default(COMMAND_WITHIN),
            ..command.unwrap_or_else(|| Self::of(Vec::new()))
        }
    }

    /// Reads the command of a section, if the section has one; its `within` is the default.
    pub(super) fn read_optional(s: &mut Section<'_>) -> Option<Self> {
        let name = read_name(s);
        Self::read_unnamed(s, name)
    }

    fn read_unnamed(s: &mut Section<'_>, name: Option<String>) -> Option<Self> {
        let run = read_program(s);
        let env = read_env(s);
        let command = Self { env, ..Self::of(run?) };
        Some(Self { name: name.unwrap_or(command.name), ..command })
    }

    pub(super) fn of(run: Vec<String>) -> Self {
        let program = run.first().map_or("", String::as_str);
        let name = Path::new(program).file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        Self { name, run, env: Vec::new(), within: COMMAND_WITHIN }
    }
}

impl StepConfig {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        let name = read_name(s);
        let command = CommandConfig::read_unnamed(s, name.clone());
        let load =
            s.optional_section("load", "Data to load: lines, sent in batches.", LoadConfig::read);
        let doc = "Maximum duration; a longer step ends the suite. Absent: 10m for a command, 1h for data.";
        let within = read_time(s, "within", doc).optional();
        match (command, load) {
            (Some(command), None) => {
                Self::Run(CommandConfig { within: within.unwrap_or(command.within), ..command })
            }
            (None, Some(load)) => {
                let name = name.unwrap_or_else(|| "data".to_owned());
                let within = within.unwrap_or(load.within);
                Self::Load(Box::new(LoadConfig { name, within, ..load }))
            }
            (command, _) => {
                let many = if command.is_some() { "both" } else { "none" };
                s.error("run", format!("{many} of run and load: expected one"));
                Self::Run(CommandConfig::of(Vec::new()))
            }
        }
    }
}

impl LoadConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let file = s.field("file", "File of the lines.").optional();
        let generator = s.optional_section("generator", "Command that prints the lines.", |s| {
            CommandConfig::read_optional(s)
        });
        let source = match (file, generator) {
            (Some(file), None) => Source::File(file),
            (None, Some(Some(command))) => Source::Command(command),
            (file, _) => {
                let many = if file.is_some() { "both" } else { "none" };
                s.error("file", format!("{many} of file and generator: expected one"));
                Source::File(PathBuf::new())
            }
        };
        let url: String = s.field("url", "URL to send batches to: http://….").required();
        check_url(s, "url", &url);
        let text = |s: &mut Section<'_>, key, doc, default: &str| {
            s.field(key, doc).default(default.to_owned())
        };
        let around = BatchFrame {
            begin: text(s, "begin", "Text before the first line of a batch.", ""),
            between: text(s, "between", "Text between two lines.", "\n"),
            end: text(s, "end", "Text after the last line of a batch.", "\n"),
        };
        Self {
            name: String::new(),
            source,
            url,
            method: text(s, "method", "HTTP method.", "POST"),
            headers: s.map("headers", "Additional headers.", |name, s| {
                (name.to_owned(), s.field("value", "Value of the header.").alone().required())
            }),
            batch: s
                .field("batch", "Number of lines in a batch.")
                .range(1..=1_000_000)
                .default(1_000),
            at_once: s
                .field("at_once", "Maximum number of batches in flight.")
                .range(1..=64)
                .default(4),
            around,
            expect: s.section("expect", "The expected response.", Expect::read),
            within: LOAD_WITHIN,
        }
    }
}

impl ValidateConfig {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        let url: String = s.field("url", "URL to request (GET): http://….").required();
        check_url(s, "url", &url);
        Self {
            url,
            expect: s.section("expect", "The expected response.", Expect::read),
            within: read_time(
                s,
                "within",
                "Maximum time until the condition holds; some indexes commit with a delay.",
            )
            .default(Duration::from_secs(10)),
        }
    }
}
