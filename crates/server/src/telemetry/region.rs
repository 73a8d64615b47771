//! Log lines about other regions and their stores.

use tidegate_limiter::BorrowReport;
use tracing::{debug, error, info, warn};

use crate::regions::{MarkerProblem, RegionNotice};

/// What happened to a region store.
pub(crate) enum RegionEvent<'a> {
    Lost { region: &'a str, why: &'a str },
    Recovered { region: &'a str },
    Usable { region: &'a str },
    MarkerDiffers { region: &'a str, problem: &'a MarkerProblem },
    OwnStoreTaken { region: &'a str, found: &'a str },
    OwnStoreMarked { region: &'a str },
    RuleNotice { notice: &'a RegionNotice },
    UnitsBorrowed { region: &'a str, report: &'a BorrowReport, took_us: u64 },
}

impl RegionEvent<'_> {
    /// Writes the log line.
    pub(crate) fn log(self) {
        match self {
            Self::Lost { region, why } => warn!(
                %region, %why,
                "the store of another region does not answer; nothing is borrowed from it until it does"
            ),
            Self::Recovered { region } => {
                info!(%region, "the store of another region answers again");
            }
            Self::Usable { region } => {
                info!(%region, "the store of another region is checked; rules with `borrow` may use it");
            }
            Self::MarkerDiffers { region, problem: MarkerProblem::Missing } => info!(
                %region, advice = %MarkerProblem::Missing.advice(),
                "nothing is borrowed from another region yet: {}", MarkerProblem::Missing
            ),
            Self::MarkerDiffers { region, problem } => error!(
                %region, advice = %problem.advice(),
                "nothing is borrowed from another region: {problem}"
            ),
            Self::OwnStoreTaken { region, found } => error!(
                %region, marker = %found,
                "--store is marked as the store of another region; nothing is borrowed. Correct \
                 --store or --region; if the region was renamed, delete the marker, the key \
                 PREFIXregion"
            ),
            Self::OwnStoreMarked { region } => {
                info!(%region, "--store is marked as the store of this region");
            }
            Self::RuleNotice { notice: RegionNotice { what, advice } } => {
                warn!(%advice, "regions: {what}");
            }
            Self::UnitsBorrowed { region, report, took_us } => {
                let BorrowReport { asked, answered, granted, returned } = *report;
                debug!(%region, asked, answered, granted, returned, took_us, "units borrowed");
            }
        }
    }
}
