//! Where traces go, and how many: flags and the document, and below them the variables that every program with
//! OpenTelemetry knows (`OTEL_…`).

use std::str::FromStr;

use clap::Args;
use http::{HeaderName, HeaderValue};
use tidegate_edge::gateway::Trust;
use tidegate_edge::trace::{BadCollector, Collector, CollectorAt, Resource, Settings};
use tidegate_rules::decode::Fields;

use super::section::parsed;
use super::value::Wrong;
use crate::failure::Failure;

/// All of them.
const MILLION: u32 = 1_000_000;

/// What was typed about traces in one place.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceLayer {
    /// Send traces to this collector of OpenTelemetry, such as http://127.0.0.1:4318 (OTLP over HTTP);
    /// `off` sends none [default: off, or what OTEL_EXPORTER_OTLP_ENDPOINT says]
    #[arg(long, value_name = "URL", env = "TIDEGATE_OTLP", hide_env_values = true)]
    pub(crate) otlp: Option<Otlp>,

    /// How many of the traces that begin here are sent, from 0 to 1; of others their caller decides
    /// [default: 1]
    #[arg(long, value_name = "RATIO", env = "TIDEGATE_OTLP_SAMPLE", hide_env_values = true)]
    pub(crate) otlp_sample: Option<Ratio>,

    /// What this service is called in traces [default: tidegate, or OTEL_SERVICE_NAME]
    #[arg(long, value_name = "NAME", env = "TIDEGATE_OTLP_SERVICE", hide_env_values = true)]
    pub(crate) otlp_service: Option<String>,

    /// What else traces say of it, such as deployment.environment.name=prod,cloud.region=eu
    /// [default: OTEL_RESOURCE_ATTRIBUTES]
    #[arg(long, value_name = "LIST", env = "TIDEGATE_OTLP_ATTRIBUTES", hide_env_values = true)]
    pub(crate) otlp_attributes: Option<Attributes>,
}

/// Where traces go, if anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Otlp {
    Off,
    At(Box<CollectorAt>),
}

/// A part of all, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratio(u32);

/// Names with values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<(String, String)>);

impl TraceLayer {
    /// Reads the settings of a document's `server:` section.
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            otlp: fields.take("otlp").and_then(|field| parsed(&field)),
            otlp_sample: fields.take("otlp_sample").and_then(|field| parsed(&field)),
            otlp_service: fields
                .take("otlp_service")
                .and_then(|field| field.word().map(str::to_owned)),
            otlp_attributes: fields.take("otlp_attributes").and_then(|field| parsed(&field)),
        }
    }

    /// This layer, and the one below for what it does not say.
    pub(super) fn over(self, below: Self) -> Self {
        Self {
            otlp: self.otlp.or(below.otlp),
            otlp_sample: self.otlp_sample.or(below.otlp_sample),
            otlp_service: self.otlp_service.or(below.otlp_service),
            otlp_attributes: self.otlp_attributes.or(below.otlp_attributes),
        }
    }

    /// What is to be done; none if traces go nowhere.
    ///
    /// # Errors
    /// When a variable of OpenTelemetry makes no sense, or nobody's certificates can be believed.
    pub(super) fn check(self) -> Result<Option<Settings>, Failure> {
        let otlp = match self.otlp {
            Some(otlp) => Some(otlp),
            None => standard("OTEL_EXPORTER_OTLP_ENDPOINT")?,
        };
        let Some(Otlp::At(at)) = otlp else { return Ok(None) };
        let trust = match at.is_tls() {
            true => Trust::in_list(rustls_native_certs::load_native_certs().certs),
            false => Trust::nobody(),
        };
        let trust = trust.map_err(|error| {
            Failure::CouldNot(format!("certificate authorities of this machine: {error}"))
        })?;
        let attributes = match self.otlp_attributes {
            Some(attributes) => attributes,
            None => standard("OTEL_RESOURCE_ATTRIBUTES")?.unwrap_or_default(),
        };
        let service = self.otlp_service.or_else(|| variable("OTEL_SERVICE_NAME"));
        let resource = Resource {
            service: service.unwrap_or_else(|| "tidegate".to_owned()),
            attributes: attributes.0,
        };
        Ok(Some(Settings {
            collector: Collector { at: *at, trust, headers: headers()? },
            resource,
            per_million: self.otlp_sample.map_or(MILLION, |ratio| ratio.0),
        }))
    }
}

/// What a collector wants to be told with each batch. They may be secrets: never shown, and not on a command line,
/// which everybody on the machine can read.
fn headers() -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
    const NAME: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    let Attributes(listed) = standard(NAME)?.unwrap_or_default();
    let header = |(name, value): (String, String)| {
        let mut value = HeaderValue::try_from(value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::try_from(name).ok()?, value))
    };
    let headers: Option<Vec<_>> = listed.into_iter().map(header).collect();
    headers.ok_or_else(|| Failure::Usage(format!("{NAME} names headers that are none")))
}

/// A variable of OpenTelemetry; an empty one is as good as none.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn standard<T: FromStr<Err = Wrong>>(name: &str) -> Result<Option<T>, Failure> {
    let read = |text: String| {
        text.parse().map_err(|Wrong { message, write }| {
            Failure::Usage(format!("{name}: {message}\n  write: {write}"))
        })
    };
    variable(name).map(read).transpose()
}

impl FromStr for Otlp {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let at = text.parse().map_err(|wrong: BadCollector| Wrong {
            message: wrong.to_string(),
            write: "`off`, or such as `http://127.0.0.1:4318`",
        })?;
        Ok(Self::At(Box::new(at)))
    }
}

impl FromStr for Ratio {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let wrong = || Wrong {
            message: "this is no part of all".to_owned(),
            write: "a number from 0 to 1, such as `0.05`",
        };
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        if !digits(whole) || !digits(part) {
            return Err(wrong());
        }
        let millionths = format!("{part:0<6}")[..6].parse::<u32>().map_err(|_| wrong())?;
        let whole = whole.parse::<u32>().map_err(|_| wrong())?;
        let ratio = whole.checked_mul(MILLION).and_then(|whole| whole.checked_add(millionths));
        ratio.filter(|ratio| *ratio <= MILLION).map(Self).ok_or_else(wrong)
    }
}

impl FromStr for Attributes {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=')?;
            let (name, value) = (name.trim(), value.trim());
            (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
        };
        let listed = text.split(',').filter(|listed| !listed.trim().is_empty());
        let pairs: Option<Vec<_>> = listed.map(pair).collect();
        pairs.map(Self).ok_or_else(|| Wrong {
            message: "this is no list of names with values".to_owned(),
            write: "such as `deployment.environment.name=prod,cloud.region=eu`",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_lists_are_read_as_typed() {
        for (text, ratio) in
            [("0", 0), ("1", MILLION), ("1.0", MILLION), ("0.05", 50_000), ("0.0000019", 1)]
        {
            assert_eq!(text.parse(), Ok(Ratio(ratio)), "{text}");
        }
        for text in ["", ".", "1.1", "-0.1", "1e-3", "50%", "0.", ".5", "99999999999"] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
        let listed =
            Attributes(vec![("a".to_owned(), "1=2".to_owned()), ("b".to_owned(), String::new())]);
        assert_eq!("a=1=2, b=,".parse(), Ok(listed));
        assert!("a".parse::<Attributes>().is_err());
    }
}
