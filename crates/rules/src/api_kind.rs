//! The API through which a request arrived. Carried with the facts and used as a label in metrics;
//! rules cannot match on it.

/// The API that asked for a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ApiKind {
    /// A call within the same process.
    #[default]
    InProcess,
    /// The gateway, which forwards admitted requests.
    Gateway,
    /// The JSON API over HTTP.
    Http,
    /// The forward-auth endpoint for reverse proxies.
    ForwardAuth,
    /// Envoy's rate limit service over gRPC.
    Grpc,
    /// The Redis protocol.
    Resp,
}

impl ApiKind {
    /// All APIs.
    pub const ALL: [Self; 6] =
        [Self::Gateway, Self::Http, Self::ForwardAuth, Self::Grpc, Self::Resp, Self::InProcess];

    /// The label value in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InProcess => "in_process",
            Self::Gateway => "gateway",
            Self::Http => "http",
            Self::ForwardAuth => "forward_auth",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
        }
    }
}
