//! Turns the script's reply into readings: core replays the batch from the previous page contents,
//! at the time of the server's clock.
//!
//! The script only decides and writes. Retry times and remaining quota are computed here, by the
//! same functions that decide on the embedded store. Script and replay must agree on which requests
//! were admitted and on what was granted; this is checked.

use redis::Value;
use smallvec::SmallVec;
use tidegate_core::algorithm::fixed_window::WindowCount;
use tidegate_core::algorithm::sliding_window_counter::WindowPair;
use tidegate_core::algorithm::sliding_window_log::{Entry, WindowLog};
use tidegate_core::algorithm::token_bucket::BucketLevel;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::batch::{self, Cells, StateKind};
use tidegate_core::decision::Reading;
use tidegate_core::key::Key;
use tidegate_core::penalty::BanRecord;
use tidegate_core::policy::{Meter, Policy};
use tidegate_core::scale::Scale;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Micros, Timestamp};

use crate::batch::{ChargeIndexes, RecordIndex};
use crate::script_request::{ScriptCharge, ScriptRequest};

/// The readings of one request.
pub(crate) type RequestReadings = SmallVec<[Reading; 2]>;

/// The reply of the script.
#[derive(Debug)]
pub(crate) struct Replay {
    now: Timestamp,
    answers: Vec<u8>,
    digests: std::vec::IntoIter<Value>,
    pages: Vec<Value>,
    records: Vec<RecordState>,
    next_request: usize,
}

/// The previous content of a record. Decoded on first use, because the format depends on the
/// policy.
#[derive(Clone, Debug)]
enum RecordState {
    Undecoded,
    Decoded(Option<State>),
}

/// Size of a record: a tag and a state.
const RECORD_BYTES: usize = 43;

impl Replay {
    /// Parses a reply; `None` if the script did not produce it.
    pub(crate) fn parse(answer: Value) -> Option<Self> {
        let Value::Array(parts) = answer else { return None };
        let [
            Value::Int(now),
            Value::BulkString(answers),
            Value::Array(digests),
            Value::Array(pages),
        ] = <[Value; 4]>::try_from(parts).ok()?
        else {
            return None;
        };
        Some(Self {
            now: Timestamp::from_micros(u64::try_from(now).ok()?),
            answers,
            digests: digests.into_iter(),
            pages,
            records: Vec::new(),
            next_request: 0,
        })
    }

    /// The decoded state of a record and its bytes.
    fn record(&mut self, index: RecordIndex) -> (&mut RecordState, Option<&[u8]>) {
        if self.records.len() <= index.record {
            self.records.resize(index.record + 1, RecordState::Undecoded);
        }
        let state = match self.pages.get(index.page) {
            Some(Value::BulkString(page)) => find_state(page, index.tag),
            _ => None,
        };
        (&mut self.records[index.record], state)
    }

    /// The readings of the next request of the batch; `None` if the script's verdict or what it
    /// granted differs.
    pub(crate) fn next_readings(
        &mut self,
        request: &ScriptRequest,
        indexes: &[ChargeIndexes],
    ) -> Option<RequestReadings> {
        let reads_grace = matches!(request.op, Op::Charge | Op::Peek);
        let charged = |item: &ScriptCharge| match request.op {
            // The script has already removed or moved the entry, and its digest describes the rest.
            Op::Refund { .. } | Op::Renew { .. } if keeps_log(&item.policy) => 0,
            _ => item.cost,
        };
        let mut charges: SmallVec<[Charge<'_>; 2]> = SmallVec::new();
        let mut logs: SmallVec<[[Option<State>; 2]; 2]> = SmallVec::new();
        let mut granted: SmallVec<[u64; 2]> = SmallVec::new();
        for item in &request.items {
            let digested = |policy: &Policy| keeps_log(policy) && request.op != Op::Reset;
            let main =
                if digested(&item.policy) { Some(self.decode_log(&item.policy)?) } else { None };
            let grace = match &item.grace {
                Some((_, policy)) if reads_grace && digested(policy) => {
                    Some(self.decode_log(policy)?)
                }
                _ => None,
            };
            logs.push([main.flatten(), grace.flatten()]);
            if let Op::Grant(_) = request.op {
                granted.push(self.next_digest_number()?);
            }
            charges.push(Charge {
                key: Key::without_namespace("", item.fingerprint),
                policy: &item.policy,
                cost: charged(item),
                role: item.role,
                grace: item.grace.as_ref().map(|(_, policy)| policy),
                ban: item.ban.as_ref().map(|(_, policy)| policy),
                queue: item.queue,
                lent: false,
            });
        }
        let mut readings = RequestReadings::from_elem(Reading::default(), charges.len());
        let mut cells = ReplayCells { replay: self, charges: &charges, indexes, logs: &mut logs };
        batch::apply(request.op, &charges, cells.replay.now, &mut cells, &mut readings);
        let admitted =
            request.op != Op::Charge || !readings.iter().any(|reading| reading.verdict.refuses());
        let differs = |(granted, reading): (&u64, &Reading)| *granted != reading.granted.into();
        if granted.iter().zip(&readings).any(differs) {
            return None;
        }
        let answer = self.answers.get(self.next_request)?;
        self.next_request += 1;
        (*answer == if admitted { b'1' } else { b'0' }).then_some(readings)
    }

    /// A log that gives the same answers as the one that the digest describes.
    fn decode_log(&mut self, policy: &Policy) -> Option<Option<State>> {
        let mut number = || self.next_digest_number();
        let (total, at, freed, newest) = (number()?, number()?, number()?, number()?);
        let (oldest, first) = (number()?, number()?);
        let entry = |at, cost| Entry { at: Timestamp::from_micros(at), cost };
        // If a record makes room, the oldest is among those up to it.
        let up_to = freed.max(first);
        let entries = [
            entry(oldest, first),
            entry(at, up_to - first),
            entry(newest, total.checked_sub(up_to)?),
        ];
        let log = WindowLog::from_entries(entries.into_iter().filter(|entry| entry.cost > 0));
        let tally = Tally::Log(Box::new(log));
        Some((total > 0).then_some(State { scale: policy.scale(), tally }))
    }

    fn next_digest_number(&mut self) -> Option<u64> {
        match self.digests.next()? {
            Value::Int(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }
}

/// The states of one request.
struct ReplayCells<'a, 'b> {
    replay: &'a mut Replay,
    charges: &'a [Charge<'b>],
    indexes: &'a [ChargeIndexes],
    logs: &'a mut [[Option<State>; 2]],
}

impl ReplayCells<'_, '_> {
    fn state(&mut self, i: usize, part: StateKind) -> &mut Option<State> {
        let charge = &self.charges[i];
        let index = match part {
            StateKind::Main if keeps_log(charge.policy) => return &mut self.logs[i][0],
            StateKind::Grace if charge.grace.is_none_or(keeps_log) => return &mut self.logs[i][1],
            StateKind::Main => Some(self.indexes[i].main),
            StateKind::Grace => self.indexes[i].grace,
            StateKind::Ban => self.indexes[i].ban,
        };
        let Some(index) = index else {
            // A state that the charge does not have: use an empty slot.
            self.logs[i][1] = None;
            return &mut self.logs[i][1];
        };
        let (held, bytes) = self.replay.record(index);
        if let RecordState::Undecoded = held {
            *held = RecordState::Decoded(bytes.and_then(|bytes| decode_state(charge, part, bytes)));
        }
        match held {
            RecordState::Decoded(state) => state,
            RecordState::Undecoded => unreachable!("just decoded"),
        }
    }
}

impl Cells for ReplayCells<'_, '_> {
    fn read<R>(
        &mut self,
        charge: usize,
        part: StateKind,
        see: impl FnOnce(Option<&State>) -> R,
    ) -> R {
        see(self.state(charge, part).as_ref())
    }

    fn edit<R>(
        &mut self,
        charge: usize,
        part: StateKind,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        change(self.state(charge, part))
    }
}

/// Whether a policy's states are logs, for which the script returns a digest.
const fn keeps_log(policy: &Policy) -> bool {
    policy.max_log_entries().is_some()
}

/// Decodes a state that the script wrote.
fn decode_state(charge: &Charge<'_>, part: StateKind, bytes: &[u8]) -> Option<State> {
    let at = Timestamp::from_micros;
    let policy = match part {
        StateKind::Ban => {
            let [counts, since, until, forget] = decode_numbers(bytes)?;
            let forget = Micros::new(forget);
            let strikes = u32::try_from(counts & 0xff_ffff).ok()?;
            let bans = u8::try_from(counts >> 24).ok()?;
            let record = BanRecord { strikes, bans, since: at(since), until: at(until) };
            let scale = Scale::Ban { forget }.intern();
            return Some(State { scale, tally: Tally::Ban(record) });
        }
        StateKind::Main => charge.policy,
        StateKind::Grace => charge.grace?,
    };
    match policy.meter() {
        Meter::Bucket { units, .. } => {
            let [used, since, per_micro, per_request] = decode_numbers(bytes)?;
            let own = per_micro == units.per_micro && per_request == units.per_request;
            let scale = if own {
                policy.scale()
            } else {
                Scale::Bucket { per_micro, per_request }.intern()
            };
            let level = BucketLevel { used, at: at(since) };
            Some(State { scale, tally: Tally::Bucket(level) })
        }
        Meter::Fixed => {
            let [window, count, ..] = decode_numbers(bytes)?;
            Some(State {
                scale: policy.scale(),
                tally: Tally::Fixed(WindowCount { window, count }),
            })
        }
        Meter::Counter(_) => {
            let [window, current, previous, _] = decode_numbers(bytes)?;
            let pair = WindowPair { window, current, previous };
            Some(State { scale: policy.scale(), tally: Tally::Counter(pair) })
        }
        Meter::Log | Meter::Slots => None,
    }
}

/// The state with a tag on a page; `None` if there is none or the script did not write the page.
fn find_state(page: &[u8], tag: u64) -> Option<&[u8]> {
    if !page.len().is_multiple_of(RECORD_BYTES) {
        return None;
    }
    let tag = tag.to_be_bytes();
    page.chunks_exact(RECORD_BYTES).find_map(|record| record.strip_prefix(&tag))
}

/// The four numbers of a state, without its expiry; `None` if malformed. The last two are stored
/// first.
fn decode_numbers(bytes: &[u8]) -> Option<[u64; 4]> {
    let bytes: &[u8; 35] = bytes.try_into().ok()?;
    let (numbers, _) = bytes.as_chunks::<7>();
    let wide = |number: &[u8; 7]| number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let [third, fourth, first, second, _] = numbers else { return None };
    Some([first, second, third, fourth].map(wide))
}
