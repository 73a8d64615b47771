//! Building blocks of the benchmark of regions: nodes in three regions, each with a Redis server,
//! 75 ms apart.

pub mod hot_keys;
pub mod latency;
pub mod line_chart;
pub mod moving_demand;
pub mod nodes;
pub mod throughput;

/// The regions; the first one has most demand.
pub const REGIONS: [&str; 3] = ["eu", "us", "ap"];

/// Their shares in percent.
pub const SHARES: [u32; 3] = [50, 30, 20];

/// How the limit of a rule is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionMode {
    /// By the only region: there are no shares.
    OneRegion,
    /// By fixed shares.
    FixedShares,
    /// By shares, and regions borrow what others leave.
    Borrowing,
}

impl RegionMode {
    /// All modes; the others are compared with the first.
    pub const ALL: [Self; 3] = [Self::OneRegion, Self::FixedShares, Self::Borrowing];

    /// Name in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneRegion => "one region",
            Self::FixedShares => "fixed shares",
            Self::Borrowing => "borrowing",
        }
    }

    /// One rule by API key. `borrow` are the terms of borrowing, or nothing for the defaults.
    #[must_use]
    pub fn rules(self, limit: &str, borrow: &str) -> String {
        let [eu, us, ap] = SHARES;
        let borrow = match self {
            Self::Borrowing => format!(", borrow: {{ {borrow} }}"),
            _ => String::new(),
        };
        let regions = match self {
            Self::OneRegion => String::new(),
            _ => format!(", regions: {{ shares: {{ eu: {eu}%, us: {us}%, ap: {ap}% }}{borrow} }}"),
        };
        format!(
            "rules: [{{ id: regions, key_by: api_key, limit: {limit}, consistency: \
             leased{regions} }}]"
        )
    }
}
