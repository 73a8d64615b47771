//! A repository in a database. What it does is in the files beside: `read`, `commit`, `log`.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate_core::time::Timestamp;
use tokio::task::JoinSet;

use super::database::Database;
use super::stir::Bell;
use super::{Refused, Repository, Signal, commit, log, nodes, read, sqlite};
use crate::book::Book;
use crate::edit::{Change, Edit, Signed};
use crate::node::Node;
use crate::violation::{Batch, Page, ViolationQuery};

/// A repository in a database.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) name: String,
    pub(super) database: Database,
    pub(super) bell: Bell,
    /// Ended with the repository.
    pub(super) _tasks: JoinSet<()>,
}

impl Sql {
    /// How long to wait for the bell. In PostgreSQL it is heard everywhere and this is the safety
    /// net; in SQLite only by those who share this value, and this is how others come to know.
    const fn pause(&self) -> Duration {
        match self.database {
            Database::Sqlite { .. } => Duration::from_millis(250),
            Database::Postgres(_) => Duration::from_millis(500),
        }
    }
}

impl Repository for Sql {
    fn name(&self) -> &str {
        &self.name
    }

    fn head(&self) -> BoxFuture<'_, Result<u64, Refused>> {
        Box::pin(read::head(&self.database))
    }

    fn book(&self) -> BoxFuture<'_, Result<Book, Refused>> {
        Box::pin(read::book(&self.database))
    }

    fn changes(&self, since: u64, until: u64) -> BoxFuture<'_, Result<Vec<Change>, Refused>> {
        Box::pin(read::changes(&self.database, since, until))
    }

    fn history(&self, before: u64, most: u32) -> BoxFuture<'_, Result<Vec<Signed>, Refused>> {
        Box::pin(read::history(&self.database, before, most))
    }

    fn commit<'a>(&'a self, on: u64, edit: &'a Edit) -> BoxFuture<'a, Result<u64, Refused>> {
        Box::pin(async move {
            let version = commit::commit(&self.database, on, edit).await?;
            if version != on {
                self.bell.ring();
            }
            Ok(version)
        })
    }

    fn stirred(&self) -> BoxFuture<'_, Signal> {
        Box::pin(self.bell.wait(self.pause()))
    }

    fn record<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<(), Refused>> {
        Box::pin(log::record(&self.database, batch))
    }

    fn violations<'a>(&'a self, query: &'a ViolationQuery) -> BoxFuture<'a, Result<Page, Refused>> {
        Box::pin(log::violations(&self.database, query))
    }

    fn prune(&self, before: Timestamp, most: u64) -> BoxFuture<'_, Result<u64, Refused>> {
        Box::pin(log::prune(&self.database, before, most))
    }

    fn check_in<'a>(
        &'a self,
        node: &'a Node,
        forget: Timestamp,
    ) -> BoxFuture<'a, Result<(), Refused>> {
        Box::pin(nodes::check_in(&self.database, node, forget))
    }

    fn leave<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Refused>> {
        Box::pin(nodes::leave(&self.database, name))
    }

    fn nodes(&self) -> BoxFuture<'_, Result<Vec<Node>, Refused>> {
        Box::pin(nodes::all(&self.database))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Refused>> {
        Box::pin(sqlite::close(&self.database))
    }
}
