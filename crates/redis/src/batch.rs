//! Several requests as one call of the script: its keys and arguments, and where each state is.

mod book;
mod policies;
mod writer;

use std::sync::Arc;

use redis::Cmd;
use smallvec::SmallVec;
use tidegate_core::time::Timestamp;

use crate::ask::Ask;
use crate::script::Text;
use book::{Book, Page};
use writer::Writer;

pub(crate) use book::{Place, Places};

/// Several requests as one call of the script.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pages: Vec<Page<'a>>,
    policies: Vec<u8>,
    requests: Vec<u8>,
    shapes: Vec<u8>,
    /// Where the states of each request are.
    pub(crate) places: Vec<SmallVec<[Places; 2]>>,
}

impl<'a> Batch<'a> {
    /// Several requests, in this order.
    pub(crate) fn new(asks: &'a [Arc<Ask>]) -> Self {
        let mut book = Book::default();
        let places: Vec<SmallVec<[Places; 2]>> =
            asks.iter().enumerate().map(|(by, ask)| book.all_places(ask, by)).collect();
        let mut writer =
            Writer { requests: Vec::with_capacity(18 * asks.len()), ..Writer::default() };
        for (ask, places) in asks.iter().zip(&places) {
            writer.request(ask, places, &book);
        }
        let Writer { requests, policies, shapes } = writer;
        let (policies, shapes) = (policies.bytes, shapes.bytes);
        Self { pages: book.pages, policies, requests, shapes, places }
    }

    /// The call, by the script's name or with its text.
    pub(crate) fn command(&self, script: &Text, whole: bool, now: Option<Timestamp>) -> Cmd {
        let mut command = Cmd::new();
        if whole {
            command.arg("EVAL").arg(&script.text);
        } else {
            command.arg("EVALSHA").arg(&script.sha);
        }
        command.arg(self.pages.len());
        for page in &self.pages {
            command.arg(page.name);
        }
        command.arg(&self.policies).arg(&self.requests).arg(&self.shapes);
        if let Some(now) = now {
            command.arg(now.as_micros());
        }
        command
    }
}
