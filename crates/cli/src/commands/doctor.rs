//! `tidegate doctor`: checks whether the store can be used, measures its latency and recommends
//! changes.

mod lending;
mod regions;

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use serde::Serialize;
use tidegate_core::key::Secret;
use tidegate_redis::{
    FindingSeverity, LatencySummary, RedisServerReport, StoreDiagnosis, StoreFinding,
};

use crate::cli::DoctorArgs;
use lending::{RegionDistance, lending_findings};
use regions::RegionExaminer;
use tidegate_server::CommandOutcome;
use tidegate_server::config::{RedisSettings, StoreSettings, read_secret};
use tidegate_server::error::CommandError;
use tidegate_server::output::{self, BAD, BOLD, DIM, GOOD};
use tidegate_server::rule_source::{DocumentSource, LoadedDocument};
use tidegate_server::store;

/// Checks the store and prints the report.
///
/// # Errors
/// If the settings are invalid, or name no Redis store.
pub(crate) fn run(args: DoctorArgs) -> Result<CommandOutcome, CommandError> {
    let loaded = match &args.config {
        Some(path) => {
            Some(DocumentSource::from_file(path).with_region(args.region.clone()).load()?)
        }
        None => None,
    };
    let mut section = loaded.as_ref().map(|loaded| loaded.section.clone()).unwrap_or_default();
    let secret_file = args.key_secret_file.or(section.key_secret_file.take());
    let secret = match &secret_file {
        Some(path) => Secret::from_bytes(read_secret(path, "--key-secret-file")?.as_bytes()),
        None => Secret::UNSET,
    };
    let own_store = StoreSettings::check(args.store.with_fallback(section.store))?;
    let region = loaded.as_ref().and_then(LoadedDocument::region).or(args.region.as_deref());
    let region_stores = args.region_stores.with_fallback(section.region_stores);
    let region_stores = region_stores.check(region, &own_store)?;
    let StoreSettings::Redis(settings) = own_store else {
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
    let rules = match &loaded {
        Some(loaded) if region.is_some() => Some(loaded.compile(secret)?),
        _ => None,
    };
    let examiner = RegionExaminer { region, secret, rules: rules.as_ref(), stores: &region_stores };
    let (mut diagnosis, stores) = runtime.block_on(examine_stores(&settings, &examiner));
    if secret_file.is_none() {
        diagnosis.findings.push(StoreFinding {
            severity: FindingSeverity::Warning,
            server: String::new(),
            what: "no --key-secret-file: a reader of the store can guess client identities"
                .to_owned(),
            advice: "head -c 32 /dev/urandom | base64 > secret, the same on all nodes".to_owned(),
        });
    }
    diagnosis.findings.sort_by_key(|finding| finding.severity);
    let (store, verdict) =
        (settings.address.to_string(), DoctorVerdict::from_findings(&diagnosis.findings));
    if args.output.json {
        output::print_json(&DoctorReport::new(&store, &stores, &diagnosis, &verdict))?;
    } else {
        output::print_text(&render_report(&store, &stores, &diagnosis, &verdict))?;
    }
    Ok(verdict.is_usable().into())
}

/// The store of another region, and how many servers of the report are its.
struct RegionReport {
    region: String,
    store: String,
    servers: Range<usize>,
}

/// Checks the node's own store, then those of other regions.
async fn examine_stores(
    own: &RedisSettings,
    examiner: &RegionExaminer<'_>,
) -> (StoreDiagnosis, Vec<RegionReport>) {
    let mut all = tidegate_redis::diagnose(&store::options(own)).await;
    all.findings.extend(examiner.examine_own(own).await);
    let (mut reports, mut distances) = (Vec::new(), Vec::new());
    for store in examiner.stores {
        let StoreDiagnosis { servers, findings } = examiner.examine(store).await;
        distances.extend(RegionDistance::measured(&store.region, &servers));
        let first = all.servers.len();
        all.servers.extend(servers);
        all.findings.extend(findings);
        let (region, servers) = (store.region.clone(), first..all.servers.len());
        reports.push(RegionReport { region, store: store.redis.address.to_string(), servers });
    }
    let lending = examiner.rules.map(|rules| lending_findings(rules, &distances));
    all.findings.extend(lending.into_iter().flatten());
    (all, reports)
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

fn render_report(
    store: &str,
    regions: &[RegionReport],
    diagnosis: &StoreDiagnosis,
    verdict: &DoctorVerdict,
) -> String {
    let mut text = format!("{BOLD}store{BOLD:#}       {store}\n");
    // Writing to a string cannot fail.
    for (at, server) in diagnosis.servers.iter().enumerate() {
        if let Some(region) = regions.iter().find(|region| region.servers.start == at) {
            let RegionReport { region, store, .. } = region;
            _ = write!(text, "\n{BOLD}region{BOLD:#}      {region}, {store}\n");
        }
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
    /// The region of the store; null for the node's own store.
    region: Option<&'a str>,
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
    fn new(
        store: &'a str,
        regions: &'a [RegionReport],
        diagnosis: &'a StoreDiagnosis,
        verdict: &DoctorVerdict,
    ) -> Self {
        let region_of = |at: usize| {
            let region = regions.iter().find(|region| region.servers.contains(&at));
            region.map(|region| region.region.as_str())
        };
        let server = |(at, server): (usize, &'a RedisServerReport)| ServerReport {
            server: &server.address,
            region: region_of(at),
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
            servers: diagnosis.servers.iter().enumerate().map(server).collect(),
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
