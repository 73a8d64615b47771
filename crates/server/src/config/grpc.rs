//! The gRPC door's settings, as typed and checked.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate_core::time::Micros;
use tidegate_edge::envoy::{self, ChargeMode};
use tidegate_edge::respond::HeaderSettings;
use tidegate_rules::decode::Fields;

use super::listen::{DoorAt, Listen};
use super::section::{choice, parsed};
use super::value;

/// The gRPC listener unless it is said otherwise.
const DEFAULT_GRPC: Listen = Listen::loopback(8082);

/// How long a connection is kept unless it is said otherwise: long enough to cost nothing, short enough that
/// new nodes are found.
const DEFAULT_MAX_AGE: Micros = Micros::from_secs(600);

/// What was typed about the gRPC listener in one place.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GrpcLayer {
    /// Where the gRPC listener is, for Envoy; port 0 takes a free one, `off` closes it
    /// [default: 127.0.0.1:8082]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_GRPC", hide_env_values = true)]
    pub(crate) grpc: Option<Listen>,

    /// Whether the descriptors of a call are charged all or none, or each by itself as Envoy's reference
    /// server does [default: together]
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        env = "TIDEGATE_GRPC_CHARGE",
        hide_env_values = true
    )]
    pub(crate) grpc_charge: Option<Charge>,

    /// Which headers Envoy is asked to add for its client: none, Retry-After on refusals, or all
    /// [default: retry-after]
    #[arg(
        long,
        value_name = "WHICH",
        value_enum,
        env = "TIDEGATE_GRPC_HEADERS",
        hide_env_values = true
    )]
    pub(crate) grpc_headers: Option<Headers>,

    /// How long a connection to the gRPC listener is kept, give or take a tenth [default: 10m]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::duration,
        env = "TIDEGATE_GRPC_MAX_AGE",
        hide_env_values = true
    )]
    pub(crate) grpc_max_age: Option<Micros>,
}

/// What a refusal of one descriptor means to the others. Plain comments: help stays short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Charge {
    // None is charged
    #[default]
    Together,
    // Nothing
    Independent,
}

/// Which headers Envoy is asked to add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Headers {
    // Not one
    None,
    // How long to wait, on refusals
    #[default]
    RetryAfter,
    // Those that --header-style says, on all answers
    All,
}

impl GrpcLayer {
    /// Reads the settings of a document's `server:` section.
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            grpc: fields.take("grpc").and_then(|field| parsed(&field)),
            grpc_charge: fields.take("grpc_charge").and_then(|field| choice(&field)),
            grpc_headers: fields.take("grpc_headers").and_then(|field| choice(&field)),
            grpc_max_age: fields.take("grpc_max_age").and_then(|field| field.duration()),
        }
    }

    /// This layer, and the one below for what it does not say.
    pub(super) fn over(self, below: Self) -> Self {
        Self {
            grpc: self.grpc.or(below.grpc),
            grpc_charge: self.grpc_charge.or(below.grpc_charge),
            grpc_headers: self.grpc_headers.or(below.grpc_headers),
            grpc_max_age: self.grpc_max_age.or(below.grpc_max_age),
        }
    }
}

/// The gRPC listener's settings, checked.
#[derive(Debug)]
pub(crate) struct GrpcSettings {
    pub(crate) at: DoorAt,
    pub(crate) envoy: envoy::Settings,
    pub(crate) max_age: Duration,
}

impl GrpcSettings {
    /// What was typed, with the headers that other doors write.
    pub(super) fn new(typed: GrpcLayer, headers: HeaderSettings) -> Self {
        let usual = envoy::Settings::default();
        let envoy = envoy::Settings {
            charge: match typed.grpc_charge.unwrap_or_default() {
                Charge::Together => ChargeMode::Together,
                Charge::Independent => ChargeMode::Independent,
            },
            headers: match typed.grpc_headers.unwrap_or_default() {
                Headers::None => None,
                Headers::RetryAfter => usual
                    .headers
                    .map(|usual| HeaderSettings { retry_jitter: headers.retry_jitter, ..usual }),
                Headers::All => Some(headers),
            },
        };
        Self {
            at: Listen::or_default(typed.grpc, DEFAULT_GRPC),
            envoy,
            max_age: typed.grpc_max_age.unwrap_or(DEFAULT_MAX_AGE).into(),
        }
    }
}
