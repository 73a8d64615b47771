//! Listens for new versions on a dedicated PostgreSQL connection, and reconnects when it breaks.

use std::time::Duration;

use sqlx::Executor as _;
use sqlx::postgres::{PgConnectOptions, PgListener};
use tokio::time::timeout;

use super::change_notifier::ChangeNotifier;
use super::postgres::{CONNECT_TIMEOUT, pool};

/// The channel on which new version numbers are announced.
pub(super) const CHANNEL: &str = "tidegate_rules";

/// How often an idle connection is probed; nothing else would detect that it is dead.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// First and maximum delay before reconnecting.
const RECONNECT_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(1));

/// Forwards notifications to `notifier` until the task is dropped; reconnects as needed.
pub(super) async fn run_listener(options: PgConnectOptions, notifier: ChangeNotifier) {
    let (first, last) = RECONNECT_BACKOFF;
    let mut pause = first;
    loop {
        if let Ok(listener) = connect_listener(&options).await {
            // The poll interval covers notifications sent while disconnected.
            pause = first;
            forward_notifications(listener, &notifier).await;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(last);
    }
}

async fn connect_listener(options: &PgConnectOptions) -> Result<PgListener, sqlx::Error> {
    // A new pool for each attempt: a dead connection may occupy its slot for a long time.
    let mut listener = PgListener::connect_with(&pool(options, 1)).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

/// Forwards notifications until the connection breaks.
async fn forward_notifications(mut listener: PgListener, notifier: &ChangeNotifier) {
    loop {
        match timeout(KEEPALIVE_INTERVAL, listener.try_recv()).await {
            Ok(Ok(Some(_))) => notifier.notify(),
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => {
                let answer = timeout(CONNECT_TIMEOUT, (&mut listener).execute("SELECT 1")).await;
                if !matches!(answer, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}
