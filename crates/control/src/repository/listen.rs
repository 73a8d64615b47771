//! Hearing of new versions from PostgreSQL: one line that listens, and is mended when it breaks.

use std::time::Duration;

use sqlx::Executor as _;
use sqlx::postgres::{PgConnectOptions, PgListener};
use tokio::time::timeout;

use super::postgres::{CONNECT, pool};
use super::stir::Bell;

/// The channel on which the number of a new version is told.
pub(super) const CHANNEL: &str = "tidegate_rules";

/// How often an idle line is tried: nobody else would find out that it is dead.
const TRY_LINE: Duration = Duration::from_secs(30);

/// How soon a broken line is mended, at first and at the latest.
const MEND: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Rings the bell whenever a version is told, for ever; a line that breaks is mended.
pub(super) async fn listen(options: PgConnectOptions, bell: Bell) {
    let (first, last) = MEND;
    let mut pause = first;
    loop {
        if let Ok(listener) = line(&options).await {
            // What was told while nobody listened is found by whoever looks after a pause.
            pause = first;
            hear(listener, &bell).await;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(last);
    }
}

async fn line(options: &PgConnectOptions) -> Result<PgListener, sqlx::Error> {
    // A pool of its own each time: a dead line may keep its place in one for long.
    let mut listener = PgListener::connect_with(&pool(options, 1)).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

/// Passes on what is told, until the line breaks.
async fn hear(mut listener: PgListener, bell: &Bell) {
    loop {
        match timeout(TRY_LINE, listener.try_recv()).await {
            Ok(Ok(Some(_))) => bell.ring(),
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => {
                let answer = timeout(CONNECT, (&mut listener).execute("SELECT 1")).await;
                if !matches!(answer, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}
