//! The pages and logs that a batch asks for, each once, and the records on them.

use std::collections::HashMap;

use smallvec::{SmallVec, smallvec};

use crate::ask::{Ask, Item};
use crate::name::Home;

/// Where the states of a charge are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) main: Place,
    pub(crate) grace: Option<Place>,
    pub(crate) ban: Option<Place>,
}

/// Where a state is in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) page: usize,
    /// Which of all records, each of which has a number of its own.
    pub(crate) record: usize,
    pub(crate) tag: u64,
}

/// The pages and logs of a batch, each once.
#[derive(Debug, Default)]
pub(super) struct Book<'a> {
    pub(super) pages: Vec<Page<'a>>,
    records: usize,
    known: HashMap<&'a [u8], usize>,
}

#[derive(Debug)]
pub(super) struct Page<'a> {
    pub(super) name: &'a [u8],
    /// The number of each record that is asked for.
    records: SmallVec<[(u64, usize); 2]>,
    /// The request that asks for it, and whether others do, or the same one twice for a record.
    by: usize,
    pub(super) shared: bool,
}

impl<'a> Book<'a> {
    /// The places of a request's charges. Records of a page are numbered in the order of their tags.
    pub(super) fn all_places(&mut self, ask: &'a Ask, by: usize) -> SmallVec<[Places; 2]> {
        if let [item] = &ask.items[..] {
            return smallvec![self.places(item, by)];
        }
        let mut sorted: SmallVec<[(usize, &Item); 4]> = ask.items.iter().enumerate().collect();
        sorted.sort_unstable_by_key(|(_, item)| (&item.home.name, item.home.tag));
        let mut placed: SmallVec<[(usize, Places); 4]> =
            sorted.into_iter().map(|(at, item)| (at, self.places(item, by))).collect();
        placed.sort_unstable_by_key(|(at, _)| *at);
        placed.into_iter().map(|(_, places)| places).collect()
    }

    fn places(&mut self, item: &'a Item, by: usize) -> Places {
        Places {
            main: self.place(&item.home, by),
            grace: item.grace.as_ref().map(|(home, _)| self.place(home, by)),
            ban: item.ban.as_ref().map(|(home, _)| self.place(home, by)),
        }
    }

    fn place(&mut self, home: &'a Home, by: usize) -> Place {
        let (name, tag) = (&*home.name, home.tag);
        let page = *self.known.entry(name).or_insert_with(|| {
            self.pages.push(Page { name, records: SmallVec::new(), by, shared: false });
            self.pages.len() - 1
        });
        let Page { records, by: first, shared, .. } = &mut self.pages[page];
        let known = records.iter().find(|(known, _)| *known == tag).map(|(_, record)| *record);
        *shared |= *first != by || known.is_some();
        let record = known.unwrap_or_else(|| {
            records.push((tag, self.records));
            self.records += 1;
            self.records - 1
        });
        Place { page, record, tag }
    }
}
