//! `tidegate doctor`: checks whether the store can be used, measures its latency and recommends
//! changes.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use tidegate_redis::{
    FindingSeverity, LatencySummary, RedisServerReport, StoreDiagnosis, StoreFinding,
};

use crate::cli::DoctorArgs;
use tidegate_server::CommandOutcome;
use tidegate_server::config::{StoreSettings, read_secret};
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, BAD, BOLD, DIM, GOOD};
use tidegate_server::rule_source::DocumentSource;
use tidegate_server::store;

/// Checks the store and prints the report.
///
/// # Errors
/// If the settings are invalid, or name no Redis store.
pub(crate) fn run(args: DoctorArgs) -> Result<CommandOutcome, CommandError> {
    let mut section = match &args.config {
        Some(path) => DocumentSource::from_file(path).load()?.section,
        None => Default::default(),
    };
    let secret = args.key_secret_file.or(section.key_secret_file.take());
    if let Some(path) = &secret {
        read_secret(path, "--key-secret-file")?;
    }
    let StoreSettings::Redis(settings) =
        StoreSettings::check(args.store.with_fallback(section.store))?
    else {
        return Err(CommandError::Usage(
            "the store is in memory; doctor checks only Redis and Valkey\n  \
             write: tidegate doctor --store redis://HOST:6379"
                .to_owned(),
        ));
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::Failed(format!("cannot start the runtime: {error}")))?;
    let options = store::options(&settings);
    let mut diagnosis = runtime.block_on(tidegate_redis::diagnose(&options));
    if secret.is_none() {
        diagnosis.findings.push(StoreFinding {
            severity: FindingSeverity::Warning,
            server: String::new(),
            what: "no --key-secret-file: a reader of the store can guess client identities"
                .to_owned(),
            advice: "head -c 32 /dev/urandom | base64 > secret, the same on all nodes".to_owned(),
        });
        diagnosis.findings.sort_by_key(|finding| finding.severity);
    }
    let (store, verdict) =
        (settings.address.to_string(), DoctorVerdict::from_findings(&diagnosis.findings));
    if args.output.json {
        output::print_json(&DoctorReport::new(&store, &diagnosis, &verdict))?;
    } else {
        output::print_text(&render_report(&store, &diagnosis, &verdict))?;
    }
    Ok(verdict.is_usable().into())
}

/// Whether the store can be used: errors make it unusable, warnings do not.
struct DoctorVerdict {
    errors: usize,
    warnings: usize,
}

impl DoctorVerdict {
    fn from_findings(findings: &[StoreFinding]) -> Self {
        let count =
            |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        Self { errors: count(FindingSeverity::Error), warnings: count(FindingSeverity::Warning) }
    }

    const fn is_usable(&self) -> bool {
        self.errors == 0
    }

    /// Such as `usable, 1 warning`.
    fn describe(&self) -> String {
        let counted = |number: usize, noun: &str| match number {
            0 => String::new(),
            1 => format!(", 1 {noun}"),
            more => format!(", {more} {noun}s"),
        };
        let counts =
            format!("{}{}", counted(self.errors, "error"), counted(self.warnings, "warning"));
        match (self.is_usable(), counts.is_empty()) {
            (false, _) => format!("{BAD}not usable{BAD:#}{counts}"),
            (true, false) => format!("{GOOD}usable{GOOD:#}{counts}"),
            (true, true) => format!("{GOOD}usable{GOOD:#}, nothing needs to be changed"),
        }
    }
}

fn render_report(store: &str, diagnosis: &StoreDiagnosis, verdict: &DoctorVerdict) -> String {
    let mut text = format!("{BOLD}store{BOLD:#}       {store}\n");
    // Writing to a string cannot fail.
    for server in &diagnosis.servers {
        let RedisServerReport {
            address,
            version,
            memory,
            eviction,
            clock_ahead,
            round_trip,
            decision,
        } = server;
        _ = write!(
            text,
            "\n{BOLD}server{BOLD:#}      {address}, {version}\n\
             memory      {memory}, {eviction}\n\
             clock       {} ms from the clock of this machine\n\
             round trip  {}\n\
             decision    {} {DIM}(the real script, one rule){DIM:#}\n",
            signed_millis(*clock_ahead),
            format_timing(round_trip),
            format_timing(decision),
        );
    }
    text.push('\n');
    for StoreFinding { severity, server, what, advice } in &diagnosis.findings {
        let mark = match severity {
            FindingSeverity::Error => format!("{BAD}error{BAD:#}  "),
            FindingSeverity::Warning => format!("{BAD}warning{BAD:#}"),
            FindingSeverity::Note => format!("{DIM}note{DIM:#}   "),
        };
        let server = if server.is_empty() { String::new() } else { format!("{server}: ") };
        let what = output::escape_unprintable(&format!("{server}{what}"));
        _ = writeln!(text, "{mark} {what}\n        {}", output::escape_unprintable(advice));
    }
    if !diagnosis.findings.is_empty() {
        text.push('\n');
    }
    _ = writeln!(text, "{}", verdict.describe());
    text
}

/// Formats microseconds as milliseconds with a sign and one decimal place; zero is `+0.0`.
fn signed_millis(micros: i64) -> String {
    let tenths = (micros.unsigned_abs() + 50) / 100;
    let sign = if micros < 0 && tenths > 0 { '-' } else { '+' };
    format!("{sign}{}.{}", tenths / 10, tenths % 10)
}

fn format_timing(timing: &LatencySummary) -> String {
    format!("p50 {}, p99 {}", format_duration(timing.p50), format_duration(timing.p99))
}

fn format_duration(span: Duration) -> String {
    match span.as_micros() {
        micros @ 0..10_000 => format!("{micros} µs"),
        micros => format!("{} ms", micros / 1_000),
    }
}

/// The report as JSON.
#[derive(Debug, Serialize)]
struct DoctorReport<'a> {
    store: &'a str,
    usable: bool,
    errors: usize,
    warnings: usize,
    servers: Vec<ServerReport<'a>>,
    findings: Vec<FindingReport<'a>>,
}

#[derive(Debug, Serialize)]
struct ServerReport<'a> {
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
struct FindingReport<'a> {
    severity: &'static str,
    server: &'a str,
    what: &'a str,
    advice: &'a str,
}

impl<'a> DoctorReport<'a> {
    fn new(store: &'a str, diagnosis: &'a StoreDiagnosis, verdict: &DoctorVerdict) -> Self {
        let server = |server: &'a RedisServerReport| ServerReport {
            server: &server.address,
            version: &server.version,
            memory: &server.memory,
            eviction: &server.eviction,
            clock_ahead_us: server.clock_ahead,
            round_trip_p50_us: server.round_trip.p50.as_micros(),
            round_trip_p99_us: server.round_trip.p99.as_micros(),
            decision_p50_us: server.decision.p50.as_micros(),
            decision_p99_us: server.decision.p99.as_micros(),
        };
        let finding = |finding: &'a StoreFinding| FindingReport {
            severity: match finding.severity {
                FindingSeverity::Error => "error",
                FindingSeverity::Warning => "warning",
                FindingSeverity::Note => "note",
            },
            server: &finding.server,
            what: &finding.what,
            advice: &finding.advice,
        };
        Self {
            store,
            usable: verdict.is_usable(),
            errors: verdict.errors,
            warnings: verdict.warnings,
            servers: diagnosis.servers.iter().map(server).collect(),
            findings: diagnosis.findings.iter().map(finding).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_difference_never_prints_negative_zero() {
        let texts = [0, -49, 49, -50, 50, -1_250, 1_000_000].map(signed_millis);
        assert_eq!(texts, ["+0.0", "+0.0", "+0.0", "-0.1", "+0.1", "-1.3", "+1000.0"]);
    }

    #[test]
    fn verdict_counts_errors_and_warnings() {
        let verdict = |errors, warnings| {
            let verdict = DoctorVerdict { errors, warnings };
            (verdict.is_usable(), anstream::adapter::strip_str(&verdict.describe()).to_string())
        };
        assert_eq!(verdict(0, 0), (true, "usable, nothing needs to be changed".to_owned()));
        assert_eq!(verdict(0, 1), (true, "usable, 1 warning".to_owned()));
        assert_eq!(verdict(2, 1), (false, "not usable, 2 errors, 1 warning".to_owned()));
    }
}
