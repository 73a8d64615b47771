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
            what: "no --key-secret-file: who can read the store can guess the clients behind it"
                .to_owned(),
            advice: "head -c 32 /dev/urandom | base64 > secret, the same on all nodes".to_owned(),
        });
        found.findings.sort_by_key(|finding| finding.weight);
    }
    let (store, verdict) = (settings.address.to_string(), Verdict::of(&found.findings));
    if args.output.json {
        output::json(&Told::new(&store, &found, &verdict))?;
    } else {
        output::text(&report(&store, &found, &verdict))?;
    }
    Ok(verdict.is_usable().into())
}

/// Whether the store can be used: any error says no, warnings do not.
struct Verdict {
    errors: usize,
    warnings: usize,
}

impl Verdict {
    fn of(findings: &[Finding]) -> Self {
        let count = |weight| findings.iter().filter(|finding| finding.weight == weight).count();
        Self { errors: count(Weight::Error), warnings: count(Weight::Warning) }
    }

    const fn is_usable(&self) -> bool {
        self.errors == 0
    }

    /// Such as `usable, 1 warning`.
    fn in_words(&self) -> String {
        let counted = |number: usize, noun: &str| match number {
            0 => String::new(),
            1 => format!(", 1 {noun}"),
            more => format!(", {more} {noun}s"),
        };
        let found =
            format!("{}{}", counted(self.errors, "error"), counted(self.warnings, "warning"));
        match (self.is_usable(), found.is_empty()) {
            (false, _) => format!("{BAD}not usable{BAD:#}{found}"),
            (true, false) => format!("{GOOD}usable{GOOD:#}{found}"),
            (true, true) => format!("{GOOD}usable{GOOD:#}, nothing needs to be changed"),
        }
    }
}

fn report(store: &str, found: &Examination, verdict: &Verdict) -> String {
    let mut text = format!("{BOLD}store{BOLD:#}       {store}\n");
    // Writing to a string does not fail.
    for server in &found.servers {
        let Server { place, version, memory, eviction, clock_ahead, round_trip, decision } = server;
        _ = write!(
            text,
            "\n{BOLD}server{BOLD:#}      {place}, {version}\n\
             memory      {memory}, {eviction}\n\
             clock       {} ms from the clock of this machine\n\
             round trip  {}\n\
             decision    {} {DIM}(the real script, one rule){DIM:#}\n",
            signed_millis(*clock_ahead),
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
    if !found.findings.is_empty() {
        text.push('\n');
    }
    _ = writeln!(text, "{}", verdict.in_words());
    text
}

/// Microseconds as milliseconds with a sign and one decimal place; what rounds to nothing is `+0.0`.
fn signed_millis(micros: i64) -> String {
    let tenths = (micros.unsigned_abs() + 50) / 100;
    let sign = if micros < 0 && tenths > 0 { '-' } else { '+' };
    format!("{sign}{}.{}", tenths / 10, tenths % 10)
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
    usable: bool,
    errors: usize,
    warnings: usize,
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
    fn new(store: &'a str, found: &'a Examination, verdict: &Verdict) -> Self {
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
            usable: verdict.is_usable(),
            errors: verdict.errors,
            warnings: verdict.warnings,
            servers: found.servers.iter().map(server).collect(),
            findings: found.findings.iter().map(finding).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_difference_never_prints_negative_zero() {
        let told = [0, -49, 49, -50, 50, -1_250, 1_000_000].map(signed_millis);
        assert_eq!(told, ["+0.0", "+0.0", "+0.0", "-0.1", "+0.1", "-1.3", "+1000.0"]);
    }

    #[test]
    fn verdict_counts_errors_and_warnings() {
        let verdict = |errors, warnings| {
            let verdict = Verdict { errors, warnings };
            (verdict.is_usable(), anstream::adapter::strip_str(&verdict.in_words()).to_string())
        };
        assert_eq!(verdict(0, 0), (true, "usable, nothing needs to be changed".to_owned()));
        assert_eq!(verdict(0, 1), (true, "usable, 1 warning".to_owned()));
        assert_eq!(verdict(2, 1), (false, "not usable, 2 errors, 1 warning".to_owned()));
    }
}
