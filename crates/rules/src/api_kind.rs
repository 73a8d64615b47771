//! By which door a request came: told with its facts, heard by whoever counts decisions, and no rule's business.

/// Where a request was asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ApiKind {
    /// In the same process.
    #[default]
    InProcess,
    /// It was to be passed on.
    Gateway,
    /// In JSON.
    Http,
    /// By a proxy that holds it.
    ForwardAuth,
    /// By Envoy.
    Grpc,
    /// By a Redis client.
    Resp,
}

impl ApiKind {
    /// Every door.
    pub const ALL: [Self; 6] =
        [Self::Gateway, Self::Http, Self::ForwardAuth, Self::Grpc, Self::Resp, Self::InProcess];

    /// The name in what is told of decisions.
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
