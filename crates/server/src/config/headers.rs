//! Settings of the rate-limit headers in responses.

use clap::Args;
use clap::builder::BoolishValueParser;
use tidegate_core::time::Micros;
use tidegate_response::HeaderSettings;
use tidegate_rules::decode::FieldMap;

use super::section::read_choice;
use super::value::{self, HeaderStyleArg, ResetStyleArg};

/// One layer of the header settings.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartialHeaderSettings {
    /// Rate-limit headers in responses: X-RateLimit-…, the IETF pair, or both [default: all]
    #[arg(
        long,
        value_name = "STYLE",
        value_enum,
        env = "TIDEGATE_HEADER_STYLE",
        hide_env_values = true
    )]
    pub(crate) header_style: Option<HeaderStyleArg>,

    /// Whether X-RateLimit-Reset is a Unix timestamp or a number of seconds to wait [default:
    /// epoch]
    #[arg(
        long,
        value_name = "STYLE",
        value_enum,
        env = "TIDEGATE_RESET_STYLE",
        hide_env_values = true
    )]
    pub(crate) reset_style: Option<ResetStyleArg>,

    /// Add a random delay of up to TIME to Retry-After, so that refused clients do not retry all at
    /// once
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::parse_duration,
        env = "TIDEGATE_RETRY_JITTER",
        hide_env_values = true
    )]
    pub(crate) retry_jitter: Option<Micros>,

    /// Let browser scripts of other origins read these headers [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        env = "TIDEGATE_EXPOSE_HEADERS",
        hide_env_values = true
    )]
    pub(crate) expose_headers: Option<bool>,
}

impl PartialHeaderSettings {
    /// Fills unset values from `below`.
    pub(super) fn with_fallback(self, below: Self) -> Self {
        Self {
            header_style: self.header_style.or(below.header_style),
            reset_style: self.reset_style.or(below.reset_style),
            retry_jitter: self.retry_jitter.or(below.retry_jitter),
            expose_headers: self.expose_headers.or(below.expose_headers),
        }
    }

    /// Reads the header settings from a document's `server:` section.
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        Self {
            header_style: fields.take("header_style").and_then(|field| read_choice(&field)),
            reset_style: fields.take("reset_style").and_then(|field| read_choice(&field)),
            retry_jitter: fields.take("retry_jitter").and_then(|field| field.duration()),
            expose_headers: fields.take("expose_headers").and_then(|field| field.boolean()),
        }
    }
}

impl From<PartialHeaderSettings> for HeaderSettings {
    fn from(typed: PartialHeaderSettings) -> Self {
        Self {
            style: typed.header_style.unwrap_or_default().into(),
            reset: typed.reset_style.unwrap_or_default().into(),
            retry_jitter: typed.retry_jitter,
            expose: typed.expose_headers.unwrap_or_default(),
        }
    }
}
