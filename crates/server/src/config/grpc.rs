//! Settings of the gRPC API.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate_api::envoy::{self, ChargeMode};
use tidegate_core::time::Micros;
use tidegate_response::HeaderSettings;
use tidegate_rules::decode::FieldMap;

use super::listen::{ListenSetting, ListenSpec};
use super::section::{read_choice, read_parsed};
use super::value;

/// Default address of the gRPC API.
const DEFAULT_GRPC: ListenSpec = ListenSpec::loopback(8082);

/// Default lifetime of a connection: long enough that reconnecting costs nothing measurable, short
/// enough that clients soon discover new nodes.
const DEFAULT_MAX_AGE: Micros = Micros::from_secs(600);

/// One layer of the gRPC API's settings.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialGrpcSettings {
    /// gRPC API address, for Envoy; port 0 picks a free port, `off` disables it [default:
    /// 127.0.0.1:8082]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_GRPC", hide_env_values = true)]
    pub grpc: Option<ListenSpec>,

    /// Charge all descriptors of a call or none, or each independently as Envoy's reference server
    /// does [default: together]
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        env = "TIDEGATE_GRPC_CHARGE",
        hide_env_values = true
    )]
    pub(crate) grpc_charge: Option<GrpcCharge>,

    /// Headers that Envoy adds to its responses: none, Retry-After on refusals, or all [default:
    /// retry-after]
    #[arg(
        long,
        value_name = "WHICH",
        value_enum,
        env = "TIDEGATE_GRPC_HEADERS",
        hide_env_values = true
    )]
    pub(crate) grpc_headers: Option<GrpcHeaders>,

    /// Maximum age of a gRPC connection, ±10 % [default: 10m]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::parse_duration,
        env = "TIDEGATE_GRPC_MAX_AGE",
        hide_env_values = true
    )]
    pub(crate) grpc_max_age: Option<Micros>,
}

/// How descriptors of one call are charged. The variants have plain comments, because clap would
/// print doc comments in the help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum GrpcCharge {
    // If one descriptor is refused, none is charged.
    #[default]
    Together,
    // Each descriptor is charged regardless of the others.
    Independent,
}

/// Which headers Envoy adds to its responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum GrpcHeaders {
    // No headers.
    None,
    // Retry-After on refusals.
    #[default]
    RetryAfter,
    // The headers of `--header-style`, on all responses.
    All,
}

impl PartialGrpcSettings {
    /// Reads the gRPC settings from a document's `server:` section.
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        Self {
            grpc: fields.take("grpc").and_then(|field| read_parsed(&field)),
            grpc_charge: fields.take("grpc_charge").and_then(|field| read_choice(&field)),
            grpc_headers: fields.take("grpc_headers").and_then(|field| read_choice(&field)),
            grpc_max_age: fields.take("grpc_max_age").and_then(|field| field.duration()),
        }
    }

    /// Fills unset values from `below`.
    pub(super) fn with_fallback(self, below: Self) -> Self {
        Self {
            grpc: self.grpc.or(below.grpc),
            grpc_charge: self.grpc_charge.or(below.grpc_charge),
            grpc_headers: self.grpc_headers.or(below.grpc_headers),
            grpc_max_age: self.grpc_max_age.or(below.grpc_max_age),
        }
    }
}

/// Validated settings of the gRPC API.
#[derive(Debug)]
pub struct GrpcSettings {
    pub(crate) listen: ListenSetting,
    pub(crate) envoy: envoy::Settings,
    pub(crate) max_age: Duration,
}

impl GrpcSettings {
    /// Completes the settings; `headers` are the header settings shared with the other APIs.
    pub(super) fn new(typed: PartialGrpcSettings, headers: HeaderSettings) -> Self {
        let defaults = envoy::Settings::default();
        let envoy = envoy::Settings {
            charge: match typed.grpc_charge.unwrap_or_default() {
                GrpcCharge::Together => ChargeMode::Together,
                GrpcCharge::Independent => ChargeMode::Independent,
            },
            headers: match typed.grpc_headers.unwrap_or_default() {
                GrpcHeaders::None => None,
                GrpcHeaders::RetryAfter => defaults
                    .headers
                    .map(|set| HeaderSettings { retry_jitter: headers.retry_jitter, ..set }),
                GrpcHeaders::All => Some(headers),
            },
        };
        Self {
            listen: ListenSpec::explicit_or_default(typed.grpc, DEFAULT_GRPC),
            envoy,
            max_age: typed.grpc_max_age.unwrap_or(DEFAULT_MAX_AGE).into(),
        }
    }
}
