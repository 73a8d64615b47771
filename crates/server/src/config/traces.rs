//! Trace export settings: flags and the document, with the standard `OTEL_…` environment variables
//! as fallback.

use std::str::FromStr;

use clap::Args;
use http::{HeaderName, HeaderValue};
use tidegate_net::connect::OutboundTls;
use tidegate_rules::decode::FieldMap;
use tidegate_telemetry::trace::{
    CollectorEndpoint, CollectorEndpointError, OtlpCollector, Settings, TraceResource,
};

use super::section::read_parsed;
use super::value::ValueError;
use crate::error::CommandError;

/// One million: `SampleRatio` counts millionths, so this is a ratio of 1.
const MILLION: u32 = 1_000_000;

/// One layer of the trace settings.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartialTraceSettings {
    /// Send traces to this OpenTelemetry collector, such as http://127.0.0.1:4318 (OTLP over HTTP);
    /// `off` disables it [default: off, or OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL", env = "TIDEGATE_OTLP", hide_env_values = true)]
    pub(crate) otlp: Option<OtlpTarget>,

    /// Share of the traces that start here to send, from 0 to 1; otherwise the caller's sampling
    /// decision applies [default: 1]
    #[arg(long, value_name = "RATIO", env = "TIDEGATE_OTLP_SAMPLE", hide_env_values = true)]
    pub(crate) otlp_sample: Option<SampleRatio>,

    /// Service name in traces [default: tidegate, or OTEL_SERVICE_NAME]
    #[arg(long, value_name = "NAME", env = "TIDEGATE_OTLP_SERVICE", hide_env_values = true)]
    pub(crate) otlp_service: Option<String>,

    /// Resource attributes in traces, such as deployment.environment.name=prod,cloud.region=eu
    /// [default: OTEL_RESOURCE_ATTRIBUTES]
    #[arg(long, value_name = "LIST", env = "TIDEGATE_OTLP_ATTRIBUTES", hide_env_values = true)]
    pub(crate) otlp_attributes: Option<ResourceAttributes>,
}

/// Where traces are sent, if anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OtlpTarget {
    Off,
    Collector(Box<CollectorEndpoint>),
}

/// Sampled share of traces, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleRatio(u32);

/// Pairs of name and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceAttributes(Vec<(String, String)>);

impl PartialTraceSettings {
    /// Reads the trace settings from a document's `server:` section.
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        Self {
            otlp: fields.take("otlp").and_then(|field| read_parsed(&field)),
            otlp_sample: fields.take("otlp_sample").and_then(|field| read_parsed(&field)),
            otlp_service: fields
                .take("otlp_service")
                .and_then(|field| field.non_empty_text().map(str::to_owned)),
            otlp_attributes: fields.take("otlp_attributes").and_then(|field| read_parsed(&field)),
        }
    }

    /// Fills unset values from `below`.
    pub(super) fn with_fallback(self, below: Self) -> Self {
        Self {
            otlp: self.otlp.or(below.otlp),
            otlp_sample: self.otlp_sample.or(below.otlp_sample),
            otlp_service: self.otlp_service.or(below.otlp_service),
            otlp_attributes: self.otlp_attributes.or(below.otlp_attributes),
        }
    }

    /// Validates the settings; `None` if no traces are sent.
    ///
    /// # Errors
    /// When an `OTEL_…` variable is invalid, or the system's CA certificates are unusable.
    pub(super) fn check(self) -> Result<Option<Settings>, CommandError> {
        let otlp = match self.otlp {
            Some(otlp) => Some(otlp),
            None => read_otel_env("OTEL_EXPORTER_OTLP_ENDPOINT")?,
        };
        let Some(OtlpTarget::Collector(at)) = otlp else { return Ok(None) };
        let trust = match at.is_tls() {
            true => OutboundTls::from_certificates(rustls_native_certs::load_native_certs().certs),
            false => OutboundTls::without_roots(),
        };
        let trust = trust.map_err(|error| {
            CommandError::Failed(format!("cannot use the system's CA certificates: {error}"))
        })?;
        let attributes = match self.otlp_attributes {
            Some(attributes) => attributes,
            None => read_otel_env("OTEL_RESOURCE_ATTRIBUTES")?.unwrap_or_default(),
        };
        let service = self.otlp_service.or_else(|| read_env("OTEL_SERVICE_NAME"));
        let resource = TraceResource {
            service: service.unwrap_or_else(|| "tidegate".to_owned()),
            attributes: attributes.0,
        };
        Ok(Some(Settings {
            collector: OtlpCollector { endpoint: *at, trust, headers: read_otlp_headers()? },
            resource,
            per_million: self.otlp_sample.map_or(MILLION, |ratio| ratio.0),
        }))
    }
}

/// Reads the headers to send with each batch. They may hold secrets: they are never shown, and
/// there is no flag, because command lines are visible to all users of a machine.
fn read_otlp_headers() -> Result<Vec<(HeaderName, HeaderValue)>, CommandError> {
    const NAME: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    let ResourceAttributes(listed) = read_otel_env(NAME)?.unwrap_or_default();
    let header = |(name, value): (String, String)| {
        let mut value = HeaderValue::try_from(value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::try_from(name).ok()?, value))
    };
    let headers: Option<Vec<_>> = listed.into_iter().map(header).collect();
    headers
        .ok_or_else(|| CommandError::Usage(format!("{NAME} holds an invalid header name or value")))
}

/// Reads an OpenTelemetry variable; an empty one counts as unset.
fn read_env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn read_otel_env<T: FromStr<Err = ValueError>>(name: &str) -> Result<Option<T>, CommandError> {
    let read = |text: String| {
        text.parse().map_err(|ValueError { message, hint }| {
            CommandError::Usage(format!("{name}: {message}\n  write: {hint}"))
        })
    };
    read_env(name).map(read).transpose()
}

impl FromStr for OtlpTarget {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let at = text.parse().map_err(|error: CollectorEndpointError| ValueError {
            message: error.to_string(),
            hint: "`off` or a URL such as `http://127.0.0.1:4318`",
        })?;
        Ok(Self::Collector(Box::new(at)))
    }
}

impl FromStr for SampleRatio {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let error = || ValueError {
            message: "this is not a ratio".to_owned(),
            hint: "a number from 0 to 1, such as `0.05`",
        };
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        if !digits(whole) || !digits(part) {
            return Err(error());
        }
        let millionths = format!("{part:0<6}")[..6].parse::<u32>().map_err(|_| error())?;
        let whole = whole.parse::<u32>().map_err(|_| error())?;
        let ratio = whole.checked_mul(MILLION).and_then(|whole| whole.checked_add(millionths));
        ratio.filter(|ratio| *ratio <= MILLION).map(Self).ok_or_else(error)
    }
}

impl FromStr for ResourceAttributes {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=')?;
            let (name, value) = (name.trim(), value.trim());
            (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
        };
        let listed = text.split(',').filter(|listed| !listed.trim().is_empty());
        let pairs: Option<Vec<_>> = listed.map(pair).collect();
        pairs.map(Self).ok_or_else(|| ValueError {
            message: "this is not a list of NAME=VALUE pairs".to_owned(),
            hint: "pairs such as `deployment.environment.name=prod,cloud.region=eu`",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_ratios_and_attributes_are_parsed() {
        for (text, ratio) in
            [("0", 0), ("1", MILLION), ("1.0", MILLION), ("0.05", 50_000), ("0.0000019", 1)]
        {
            assert_eq!(text.parse(), Ok(SampleRatio(ratio)), "{text}");
        }
        for text in ["", ".", "1.1", "-0.1", "1e-3", "50%", "0.", ".5", "99999999999"] {
            assert!(text.parse::<SampleRatio>().is_err(), "{text}");
        }
        let listed = ResourceAttributes(vec![
            ("a".to_owned(), "1=2".to_owned()),
            ("b".to_owned(), String::new()),
        ]);
        assert_eq!("a=1=2, b=,".parse(), Ok(listed));
        assert!("a".parse::<ResourceAttributes>().is_err());
    }
}
