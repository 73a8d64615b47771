//! From what the script answers to readings: the same history run again by core, from what the keys
//! held, at the instant that the server's clock showed.
//!
//! The script decides and writes; waits and what is left are worked out here, by the very functions
//! that decide on embedded memory. Both must agree on who was admitted, and that is checked.

use redis::Value;
use smallvec::SmallVec;
use tidegate_core::algorithm::fixed_window::Count;
use tidegate_core::algorithm::sliding_window_counter::Pair;
use tidegate_core::algorithm::sliding_window_log::{Entry, Log};
use tidegate_core::algorithm::token_bucket::Level;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::batch::{self, Cells, Part};
use tidegate_core::decision::Reading;
use tidegate_core::key::Key;
use tidegate_core::penalty::Record;
use tidegate_core::policy::{Meter, Policy};
use tidegate_core::scale::Scale;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Micros, Timestamp};

use crate::ask::{Ask, Item};
use crate::batch::{Place, Places};

/// The readings of one request.
pub(crate) type Told = SmallVec<[Reading; 2]>;

/// What the script answered.
#[derive(Debug)]
pub(crate) struct Replay {
    now: Timestamp,
    answers: Vec<u8>,
    digests: std::vec::IntoIter<Value>,
    pages: Vec<Value>,
    records: Vec<Held>,
    next: usize,
}

/// What a record held, read when it is first looked at: how depends on whose it is.
#[derive(Clone, Debug)]
enum Held {
    Unread,
    Read(Option<State>),
}

/// The bytes of a record: a tag and a state.
const RECORD_BYTES: usize = 43;

impl Replay {
    /// Takes an answer apart; nothing if it is not one of the script's.
    pub(crate) fn of(answer: Value) -> Option<Self> {
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
            next: 0,
        })
    }

    /// What is held of a record, and the bytes of it.
    fn record(&mut self, place: Place) -> (&mut Held, Option<&[u8]>) {
        if self.records.len() <= place.record {
            self.records.resize(place.record + 1, Held::Unread);
        }
        let state = match self.pages.get(place.page) {
            Some(Value::BulkString(page)) => state_on(page, place.tag),
            _ => None,
        };
        (&mut self.records[place.record], state)
    }

    /// The readings of the next request of the batch; nothing if the script says otherwise.
    pub(crate) fn next(&mut self, ask: &Ask, places: &[Places]) -> Option<Told> {
        let looks = matches!(ask.op, Op::Charge | Op::Peek);
        let charged = |item: &Item| match ask.op {
            // The script has taken it out or moved it already, and told what is left.
            Op::Refund { .. } | Op::Renew { .. } if keeps_log(&item.policy) => 0,
            _ => item.cost,
        };
        let mut charges: SmallVec<[Charge<'_>; 2]> = SmallVec::new();
        let mut logs: SmallVec<[[Option<State>; 2]; 2]> = SmallVec::new();
        for item in &ask.items {
            let digested = |policy: &Policy| keeps_log(policy) && ask.op != Op::Reset;
            let main = if digested(&item.policy) { Some(self.log(&item.policy)?) } else { None };
            let grace = match &item.grace {
                Some((_, policy)) if looks && digested(policy) => Some(self.log(policy)?),
                _ => None,
            };
            logs.push([main.flatten(), grace.flatten()]);
            charges.push(Charge {
                key: Key::alone("", item.fingerprint),
                policy: &item.policy,
                cost: charged(item),
                role: item.role,
                grace: item.grace.as_ref().map(|(_, policy)| policy),
                ban: item.ban.as_ref().map(|(_, policy)| policy),
                queue: item.queue,
            });
        }
        let mut told = Told::from_elem(Reading::default(), charges.len());
        let mut cells = Cellar { replay: self, charges: &charges, places, logs: &mut logs };
        batch::apply(ask.op, &charges, cells.replay.now, &mut cells, &mut told);
        let admitted = ask.op != Op::Charge || !told.iter().any(|told| told.verdict.refuses());
        let answer = self.answers.get(self.next)?;
        self.next += 1;
        (*answer == if admitted { b'1' } else { b'0' }).then_some(told)
    }

    /// A log that answers as the digested one does.
    fn log(&mut self, policy: &Policy) -> Option<Option<State>> {
        let mut number = || match self.digests.next()? {
            Value::Int(number) => u64::try_from(number).ok(),
            _ => None,
        };
        let (total, at, freed, newest) = (number()?, number()?, number()?, number()?);
        let (oldest, first) = (number()?, number()?);
        let entry = |at, cost| Entry { at: Timestamp::from_micros(at), cost };
        // The oldest is among those up to the one that makes room, if one does.
        let up_to = freed.max(first);
        let entries = [
            entry(oldest, first),
            entry(at, up_to - first),
            entry(newest, total.checked_sub(up_to)?),
        ];
        let log = Log::from_entries(entries.into_iter().filter(|entry| entry.cost > 0));
        let tally = Tally::Log(Box::new(log));
        Some((total > 0).then_some(State { scale: policy.scale(), tally }))
    }
}

/// The states of one request.
struct Cellar<'a, 'b> {
    replay: &'a mut Replay,
    charges: &'a [Charge<'b>],
    places: &'a [Places],
    logs: &'a mut [[Option<State>; 2]],
}

impl Cellar<'_, '_> {
    fn state(&mut self, i: usize, part: Part) -> &mut Option<State> {
        let charge = &self.charges[i];
        let place = match part {
            Part::Main if keeps_log(charge.policy) => return &mut self.logs[i][0],
            Part::Grace if charge.grace.is_none_or(keeps_log) => return &mut self.logs[i][1],
            Part::Main => Some(self.places[i].main),
            Part::Grace => self.places[i].grace,
            Part::Ban => self.places[i].ban,
        };
        let Some(place) = place else {
            // A part that the charge does not have: a place where nothing is kept.
            self.logs[i][1] = None;
            return &mut self.logs[i][1];
        };
        let (held, bytes) = self.replay.record(place);
        if let Held::Unread = held {
            *held = Held::Read(bytes.and_then(|bytes| read(charge, part, bytes)));
        }
        match held {
            Held::Read(state) => state,
            Held::Unread => unreachable!("it was just read"),
        }
    }
}

impl Cells for Cellar<'_, '_> {
    fn look<R>(&mut self, charge: usize, part: Part, see: impl FnOnce(Option<&State>) -> R) -> R {
        see(self.state(charge, part).as_ref())
    }

    fn edit<R>(
        &mut self,
        charge: usize,
        part: Part,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        change(self.state(charge, part))
    }
}

/// Whether a policy's states are logs, of which a digest is told.
const fn keeps_log(policy: &Policy) -> bool {
    policy.log_entries().is_some()
}

/// A state as the script writes it.
fn read(charge: &Charge<'_>, part: Part, bytes: &[u8]) -> Option<State> {
    let at = Timestamp::from_micros;
    let policy = match part {
        Part::Ban => {
            let [counts, since, until, forget] = numbers(bytes)?;
            let forget = Micros::new(forget);
            let strikes = u32::try_from(counts & 0xff_ffff).ok()?;
            let bans = u8::try_from(counts >> 24).ok()?;
            let record = Record { strikes, bans, since: at(since), until: at(until) };
            let scale = Scale::Ban { forget }.intern();
            return Some(State { scale, tally: Tally::Ban(record) });
        }
        Part::Main => charge.policy,
        Part::Grace => charge.grace?,
    };
    match policy.meter() {
        Meter::Bucket { units, .. } => {
            let [used, since, per_micro, per_request] = numbers(bytes)?;
            let own = per_micro == units.per_micro && per_request == units.per_request;
            let scale = if own {
                policy.scale()
            } else {
                Scale::Bucket { per_micro, per_request }.intern()
            };
            let level = Level { used, at: at(since) };
            Some(State { scale, tally: Tally::Bucket(level) })
        }
        Meter::Fixed => {
            let [window, count, ..] = numbers(bytes)?;
            Some(State { scale: policy.scale(), tally: Tally::Fixed(Count { window, count }) })
        }
        Meter::Counter(_) => {
            let [window, current, previous, _] = numbers(bytes)?;
            let pair = Pair { window, current, previous };
            Some(State { scale: policy.scale(), tally: Tally::Counter(pair) })
        }
        Meter::Log | Meter::Slots => None,
    }
}

/// The state of a tag on a page; nothing if it is none of ours.
fn state_on(page: &[u8], tag: u64) -> Option<&[u8]> {
    if !page.len().is_multiple_of(RECORD_BYTES) {
        return None;
    }
    let tag = tag.to_be_bytes();
    page.chunks_exact(RECORD_BYTES).find_map(|record| record.strip_prefix(&tag))
}

/// The four numbers of a state, without the fifth, or nothing if it is something else. The last two are
/// written first.
fn numbers(bytes: &[u8]) -> Option<[u64; 4]> {
    let bytes: &[u8; 35] = bytes.try_into().ok()?;
    let (numbers, _) = bytes.as_chunks::<7>();
    let wide = |number: &[u8; 7]| number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let [third, fourth, first, second, _] = numbers else { return None };
    Some([first, second, third, fourth].map(wide))
}
