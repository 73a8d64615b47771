//! `tidegate doctor`: whether the store can be used, how fast it is, and what should be changed.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use tidegate_redis::{Examination, Finding, Server, Timing, Weight};

use crate::Outcome;
use crate::cli::DoctorArgs;
use crate::config::{StoreSettings, read_secret};
use crate::failure::Failure;
use crate::output::{self, BAD, BOLD, DIM, GOOD};
use crate::source::Source;
use crate::store;

/// Looks at the store.
///
/// # Errors
/// When the settings are wrong or there is no store to look at.
pub(crate) fn run(args: DoctorArgs) -> Result<Outcome, Failure> {
    let mut below = match &args.config {
        Some(path) => Source::file(path).load()?.section,
        None => Default::default(),
    };
    let secret = args.key_secret_file.or(below.key_secret_file.take());
    if let Some(path) = &secret {
        read_secret(path, "--key-secret-file")?;
    }
    let StoreSettings::Redis(settings) = StoreSettings::check(args.store.over(below.store))? else {
        return Err(Failure::Usage(
            "the store is embedded memory, which needs no doctor\n  \
             write: tidegate doctor --store redis://HOST:6379"
                .to_owned(),
        ));
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::CouldNot(format!("cannot start the runtime: {error}")))?;
    let options = store::options(&settings);
    let mut found = runtime.block_on(tidegate_redis::examine(&options));
    if secret.is_none() {
        found.findings.push(Finding {
            weight: Weight::Warning,
            server: String::new(),
            what: "no --key-secret-file: whoever reads the store can guess whose counters they are"
                .to_owned(),
            advice: "head -c 32 /dev/urandom | base64 > secret, the same on all nodes".to_owned(),
        });
        found.findings.sort_by_key(|finding| finding.weight);
    }
    let well = found.findings.iter().all(|finding| finding.weight == Weight::Note);
    let store = settings.address.to_string();
    if args.output.json {
        output::json(&Told::new(&store, &found, well))?;
    } else {
        output::text(&report(&store, &found))?;
    }
    Ok(well.into())
}

fn report(store: &str, found: &Examination) -> String {
    let mut text = format!("{BOLD}store{BOLD:#}       {store}\n");
    // Writing to a string does not fail.
    for server in &found.servers {
        let Server { place, version, memory, eviction, clock_ahead, round_trip, decision } = server;
        let ahead = *clock_ahead as f64 / 1_000.0;
        _ = write!(
            text,
            "\n{BOLD}server{BOLD:#}      {place}, {version}\n\
             memory      {memory}, {eviction}\n\
             clock       {ahead:+.1} ms from ours\n\
             round trip  {}\n\
             decision    {} {DIM}(the real script, one rule){DIM:#}\n",
            timing(round_trip),
            timing(decision),
        );
    }
    text.push('\n');
    for Finding { weight, server, what, advice } in &found.findings {
        let mark = match weight {
            Weight::Error => format!("{BAD}error{BAD:#}  "),
            Weight::Warning => format!("{BAD}warning{BAD:#}"),
            Weight::Note => format!("{DIM}note{DIM:#}   "),
        };
        let server = if server.is_empty() { String::new() } else { format!("{server}: ") };
        let what = output::printable(&format!("{server}{what}"));
        _ = writeln!(text, "{mark} {what}\n        {}", output::printable(advice));
    }
    if found.findings.iter().all(|finding| finding.weight == Weight::Note) {
        _ = writeln!(text, "{GOOD}well{GOOD:#}    nothing needs to be changed");
    }
    text
}

fn timing(timing: &Timing) -> String {
    format!("p50 {}, p99 {}", span(timing.p50), span(timing.p99))
}

fn span(span: Duration) -> String {
    match span.as_micros() {
        micros @ 0..10_000 => format!("{micros} µs"),
        micros => format!("{} ms", micros / 1_000),
    }
}

/// The same for programs.
#[derive(Debug, Serialize)]
struct Told<'a> {
    store: &'a str,
    well: bool,
    servers: Vec<ToldServer<'a>>,
    findings: Vec<ToldFinding<'a>>,
}

#[derive(Debug, Serialize)]
struct ToldServer<'a> {
    server: &'a str,
    version: &'a str,
    memory: &'a str,
    eviction: &'a str,
    clock_ahead_us: i64,
    round_trip_p50_us: u128,
    round_trip_p99_us: u128,
    decision_p50_us: u128,
    decision_p99_us: u128,
}

#[derive(Debug, Serialize)]
struct ToldFinding<'a> {
    weight: &'static str,
    server: &'a str,
    what: &'a str,
    advice: &'a str,
}

impl<'a> Told<'a> {
    fn new(store: &'a str, found: &'a Examination, well: bool) -> Self {
        let server = |server: &'a Server| ToldServer {
            server: &server.place,
            version: &server.version,
            memory: &server.memory,
            eviction: &server.eviction,
            clock_ahead_us: server.clock_ahead,
            round_trip_p50_us: server.round_trip.p50.as_micros(),
            round_trip_p99_us: server.round_trip.p99.as_micros(),
            decision_p50_us: server.decision.p50.as_micros(),
            decision_p99_us: server.decision.p99.as_micros(),
        };
        let finding = |finding: &'a Finding| ToldFinding {
            weight: match finding.weight {
                Weight::Error => "error",
                Weight::Warning => "warning",
                Weight::Note => "note",
            },
            server: &finding.server,
            what: &finding.what,
            advice: &finding.advice,
        };
        Self {
            store,
            well,
            servers: found.servers.iter().map(server).collect(),
            findings: found.findings.iter().map(finding).collect(),
        }
    }
}
