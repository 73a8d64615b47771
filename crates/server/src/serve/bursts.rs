//! Bursts in the log: one line a second at most, with the number of those that are not told.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::{Sight, Top};

use crate::telemetry::Event;

/// How often it is looked whether there were any.
const LOOK: Duration = Duration::from_secs(1);

/// Logs bursts until it is dropped. Logs hash identities.
pub(super) async fn tell(top: Arc<Top>) {
    let mut last = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let new = top.bursts(last, Sight::Hashed);
        if let Some(burst) = new.last() {
            let others = burst.number - last - 1;
            last = burst.number;
            Event::Burst { burst, others }.tell();
        }
    }
}
