//! Following what others change: the latest book comes into force here, overrides run out, and what is in force is told.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::time::{Micros, Timestamp};

use super::{News, Office};
use crate::book::Book;
use crate::compile::{Files, next_expiry};
use crate::node::Roster;

/// The longest that nobody looks whether an override has run out.
const LONGEST_LOOK: Duration = Duration::from_secs(3_600);

/// When it is tried again to take one out that could not be.
const EXPIRE_AGAIN: Micros = Micros::from_secs(1);

/// What is known of attempts to follow.
#[derive(Debug, Default)]
pub(super) struct Following {
    lost: bool,
    /// The latest version that could not come into force.
    faulty: Option<u64>,
}

impl Office {
    /// Brings this node up to date.
    pub async fn follow(&self) {
        let mut following = self.following.lock().await;
        let latest = match self.latest().await {
            Ok(latest) => latest,
            Err(why) => {
                if !std::mem::replace(&mut following.lost, true) {
                    self.desk.hear(&News::Lost { why: &why });
                }
                return;
            }
        };
        if std::mem::take(&mut following.lost) {
            self.desk.hear(&News::Back);
        }
        let version = latest.version();
        if version == self.book.load().version() || following.faulty == Some(version) {
            return;
        }
        match self.put_into_force(&latest).await {
            Ok(()) => {
                following.faulty = None;
                self.time_propagation(version).await;
            }
            Err(why) => {
                following.faulty = Some(version);
                self.desk.hear(&News::Faulty { version, why: &why });
            }
        }
    }

    /// Notes how long a version that is in force took from when it was written, by two wall clocks.
    async fn time_propagation(&self, version: u64) {
        let in_force = self.now();
        // Where that cannot be asked, it is not known.
        let Ok(history) = self.repository.history(version + 1, 1).await else { return };
        if let Some(signed) = history.first().filter(|signed| signed.version == version) {
            self.propagation.add(in_force.since(signed.at).get());
        }
    }

    /// Follows whatever changes, says so to other nodes, and lets overrides run out, until it is dropped.
    pub async fn keep(&self) {
        let (mut said, mut roster) = (None, Roster::default());
        loop {
            if self.check_in(&mut said).await {
                self.report_nodes(&mut roster).await;
            }
            let left = Duration::from(self.expiry().since(self.now()));
            tokio::select! {
                _ = self.repository.stirred() => self.follow().await,
                () = tokio::time::sleep(left.min(LONGEST_LOOK)) => self.expire().await,
            }
        }
    }

    /// Reports nodes that joined or left since the last look.
    async fn report_nodes(&self, roster: &mut Roster) {
        let Ok(nodes) = self.repository.nodes().await else { return };
        for change in roster.update(&nodes, self.node(), self.now()) {
            let name = change.name.as_str();
            self.desk.hear(&match change.left {
                None => News::NodeJoined { name },
                Some(silent) => News::NodeLeft { name, silent },
            });
        }
    }

    fn expiry(&self) -> Timestamp {
        Timestamp::from_micros(self.expiry.load(Ordering::Relaxed))
    }

    /// Compiles the book in force again if an override has run out since.
    async fn expire(&self) {
        let _one = self.following.lock().await;
        let now = self.now();
        // It was valid with more overrides, so only the store can be in the way.
        if self.expiry() <= now && self.put_into_force(&self.book()).await.is_err() {
            self.expiry.store(now.plus(EXPIRE_AGAIN).as_micros(), Ordering::Relaxed);
        }
    }

    async fn put_into_force(&self, book: &Arc<Book>) -> Result<(), String> {
        let now = self.now();
        let rules = self.compile_at(Arc::clone(book), Files::All, now).await.map_err(|flaws| {
            flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })?;
        self.desk.install(rules).await?;
        self.book.store(Arc::clone(book));
        self.expiry.store(expiry(book, now), Ordering::Relaxed);
        self.desk.hear(&News::InForce { version: book.version() });
        if let Some(copy) = &self.copy
            && let Err(why) = copy.write(book).await
        {
            self.desk.hear(&News::CopyFailed { why: &why });
        }
        Ok(())
    }
}

/// When the next override runs out that has not at an instant; the end of time when none does.
pub(super) fn expiry(book: &Book, now: Timestamp) -> u64 {
    next_expiry(book, now).map_or(u64::MAX, Timestamp::as_micros)
}
