//! How answers tell of limits, as typed.

use clap::Args;
use clap::builder::BoolishValueParser;
use tidegate_core::time::Micros;
use tidegate_edge::respond::HeaderSettings;
use tidegate_rules::decode::Fields;

use super::section::choice;
use super::value::{self, Reset, Style};

/// The settings of rate-limit headers, as typed in one place.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderLayer {
    /// Which rate-limit headers answers have: X-RateLimit-…, the IETF pair, or both [default: all]
    #[arg(
        long,
        value_name = "STYLE",
        value_enum,
        env = "TIDEGATE_HEADER_STYLE",
        hide_env_values = true
    )]
    pub(crate) header_style: Option<Style>,

    /// Whether X-RateLimit-Reset tells an instant or a wait [default: epoch]
    #[arg(
        long,
        value_name = "STYLE",
        value_enum,
        env = "TIDEGATE_RESET_STYLE",
        hide_env_values = true
    )]
    pub(crate) reset_style: Option<Reset>,

    /// Tell refused clients to wait up to this much longer, so that they do not return all at once
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::duration,
        env = "TIDEGATE_RETRY_JITTER",
        hide_env_values = true
    )]
    pub(crate) retry_jitter: Option<Micros>,

    /// Let scripts of other origins read these headers in a browser [default: false]
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

impl HeaderLayer {
    /// This layer, and the one below for what it does not say.
    pub(super) fn over(self, below: Self) -> Self {
        Self {
            header_style: self.header_style.or(below.header_style),
            reset_style: self.reset_style.or(below.reset_style),
            retry_jitter: self.retry_jitter.or(below.retry_jitter),
            expose_headers: self.expose_headers.or(below.expose_headers),
        }
    }

    /// Reads the settings of a document's `server:` section.
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            header_style: fields.take("header_style").and_then(|field| choice(&field)),
            reset_style: fields.take("reset_style").and_then(|field| choice(&field)),
            retry_jitter: fields.take("retry_jitter").and_then(|field| field.duration()),
            expose_headers: fields.take("expose_headers").and_then(|field| field.boolean()),
        }
    }
}

impl From<HeaderLayer> for HeaderSettings {
    fn from(typed: HeaderLayer) -> Self {
        Self {
            style: typed.header_style.unwrap_or_default().into(),
            reset: typed.reset_style.unwrap_or_default().into(),
            retry_jitter: typed.retry_jitter,
            expose: typed.expose_headers.unwrap_or_default(),
        }
    }
}
