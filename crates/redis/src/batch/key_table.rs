//! The distinct pages and logs of a batch, and the records on them.

use std::collections::HashMap;

use smallvec::{SmallVec, smallvec};

use crate::key_name::RecordLocation;
use crate::script_request::{ScriptCharge, ScriptRequest};

/// The records of a charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeIndexes {
    pub(crate) main: RecordIndex,
    pub(crate) grace: Option<RecordIndex>,
    pub(crate) ban: Option<RecordIndex>,
}

/// The position of a record in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordIndex {
    pub(crate) page: usize,
    /// Number of the record, unique in the batch.
    pub(crate) record: usize,
    pub(crate) tag: u64,
}

/// The distinct pages and logs of a batch.
#[derive(Debug, Default)]
pub(super) struct KeyTable<'a> {
    pub(super) pages: Vec<KeyPage<'a>>,
    record_count: usize,
    known: HashMap<&'a [u8], usize>,
}

#[derive(Debug)]
pub(super) struct KeyPage<'a> {
    pub(super) name: &'a [u8],
    /// Tag and number of each record in use.
    records: SmallVec<[(u64, usize); 2]>,
    /// The first request that uses the page.
    first_request: usize,
    /// Whether another request uses the page too, or one request uses a record twice.
    pub(super) shared: bool,
}

impl<'a> KeyTable<'a> {
    /// Indexes the charges of a request. The records of a page are numbered in the order of their
    /// tags.
    pub(super) fn index_request(
        &mut self,
        request: &'a ScriptRequest,
        request_number: usize,
    ) -> SmallVec<[ChargeIndexes; 2]> {
        if let [charge] = &request.items[..] {
            return smallvec![self.index_charge(charge, request_number)];
        }
        let mut sorted: SmallVec<[(usize, &ScriptCharge); 4]> =
            request.items.iter().enumerate().collect();
        sorted.sort_unstable_by_key(|(_, charge)| (&charge.location.name, charge.location.tag));
        let mut indexed: SmallVec<[(usize, ChargeIndexes); 4]> = sorted
            .into_iter()
            .map(|(at, charge)| (at, self.index_charge(charge, request_number)))
            .collect();
        indexed.sort_unstable_by_key(|(at, _)| *at);
        indexed.into_iter().map(|(_, indexes)| indexes).collect()
    }

    fn index_charge(&mut self, charge: &'a ScriptCharge, request_number: usize) -> ChargeIndexes {
        ChargeIndexes {
            main: self.index_record(&charge.location, request_number),
            grace: charge
                .grace
                .as_ref()
                .map(|(location, _)| self.index_record(location, request_number)),
            ban: charge
                .ban
                .as_ref()
                .map(|(location, _)| self.index_record(location, request_number)),
        }
    }

    fn index_record(&mut self, location: &'a RecordLocation, request_number: usize) -> RecordIndex {
        let (name, tag) = (&*location.name, location.tag);
        let page = *self.known.entry(name).or_insert_with(|| {
            self.pages.push(KeyPage {
                name,
                records: SmallVec::new(),
                first_request: request_number,
                shared: false,
            });
            self.pages.len() - 1
        });
        let KeyPage { records, first_request: first, shared, .. } = &mut self.pages[page];
        let known = records.iter().find(|(known, _)| *known == tag).map(|(_, record)| *record);
        *shared |= *first != request_number || known.is_some();
        let record = known.unwrap_or_else(|| {
            records.push((tag, self.record_count));
            self.record_count += 1;
            self.record_count - 1
        });
        RecordIndex { page, record, tag }
    }
}
