//! The gateway's settings: where it listens and what is behind it.

use clap::Args;
use tidegate_rules::decode::Fields;

use super::section::parsed;
use super::value::{Listen, UpstreamAt};
use super::DoorAt;
use crate::failure::Failure;

/// The gateway unless it is said otherwise.
const DEFAULT_GATEWAY: Listen = Listen::loopback(8080);

/// What was typed about the gateway in one place.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GatewayLayer {
    /// The API that the gateway is in front of, such as http://127.0.0.1:3000
    #[arg(long, value_name = "URL", env = "TIDEGATE_UPSTREAM", hide_env_values = true)]
    pub(crate) upstream: Option<UpstreamAt>,

    /// Where the gateway listens [default: 127.0.0.1:8080 if there is an upstream]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_GATEWAY", hide_env_values = true)]
    pub(crate) gateway: Option<Listen>,
}

impl GatewayLayer {
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            upstream: fields.take("upstream").and_then(|field| parsed(&field)),
            gateway: fields.take("gateway").and_then(|field| parsed(&field)),
        }
    }

    pub(super) fn over(self, below: Self) -> Self {
        Self {
            upstream: self.upstream.or(below.upstream),
            gateway: self.gateway.or(below.gateway),
        }
    }
}

/// The gateway's settings, checked.
#[derive(Debug)]
pub(crate) struct GatewaySettings {
    pub(crate) at: DoorAt,
    pub(crate) upstream: UpstreamAt,
}

impl GatewaySettings {
    /// Checks what was typed; none if there is to be no gateway.
    ///
    /// # Errors
    /// When a gateway is asked for that has nothing behind it.
    pub(super) fn check(typed: GatewayLayer) -> Result<Option<Self>, Failure> {
        match (typed.upstream, typed.gateway) {
            (_, Some(Listen::Off)) | (None, None) => Ok(None),
            (None, Some(Listen::At(_))) => Err(Failure::Usage(
                "--gateway needs to know what it is in front of\n  \
                 write: --upstream http://127.0.0.1:3000"
                    .to_owned(),
            )),
            (Some(upstream), at) => {
                let at = at.map_or(DoorAt::Default(DEFAULT_GATEWAY), DoorAt::Asked);
                Ok(Some(Self { at, upstream }))
            }
        }
    }
}
