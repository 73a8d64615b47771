//! Snapshots: the table as a file, so that a restart refills nobody.
//!
//! Layout, little-endian: magic, check value of the key secret, number of scales and the scales,
//! number of entries and the entries, CRC-32 of all that. A file that is cut, damaged or made under
//! another secret is refused whole; the time that has passed since counts as refill by itself,
//! because states carry their instants. Slots that were held lapse with their leases. When and where files are written, the server decides.

use std::collections::HashMap;
use std::fmt;

use tidegate_core::algorithm::fixed_window::Count;
use tidegate_core::algorithm::sliding_window_counter::Pair;
use tidegate_core::algorithm::sliding_window_log::{Entry, Log};
use tidegate_core::algorithm::token_bucket::Level;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::key::{Fingerprint, Secret};
use tidegate_core::penalty::Record;
use tidegate_core::scale::{Scale, ScaleId};
use tidegate_core::time::{Clock, Micros, Timestamp};

use crate::shard::is_fresh;
use crate::side::log_bytes;
use crate::store::MemoryStore;

const MAGIC: &[u8; 8] = b"TGSNAP02";

/// Why a snapshot was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// It is not a snapshot of this version.
    Foreign,
    /// It was made under another key secret, so its keys would name nobody.
    OtherSecret,
    /// It is cut or damaged.
    Corrupt,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "it is not a snapshot that this version of tidegate wrote",
            Self::OtherSecret => "it was written under another key secret",
            Self::Corrupt => "it is cut short or damaged",
        })
    }
}

impl std::error::Error for SnapshotError {}

/// What came out of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Keys put back.
    pub keys: usize,
    /// Keys left out because they are equal to fresh by now, known already, or have no room.
    pub left_out: usize,
}

impl<C: Clock> MemoryStore<C> {
    /// The table as bytes. Keys that are equal to fresh are left out.
    #[must_use]
    pub fn snapshot(&self, secret: Secret) -> Vec<u8> {
        let now = self.clock().now();
        let (mut scales, mut entries, mut count) = (Scales::default(), Writer::default(), 0);
        self.each(|key, state| {
            if !is_fresh(Some(state), now) {
                count += 1;
                entries.entry(key, state, scales.place(state.scale));
            }
        });
        let mut file = Writer::default();
        file.0.extend_from_slice(MAGIC);
        file.word(secret.check_value());
        file.word(scales.order.len() as u64);
        scales.order.iter().for_each(|scale| file.scale(*scale));
        file.word(count);
        file.0.append(&mut entries.0);
        let crc = crc32fast::hash(&file.0);
        file.0.extend_from_slice(&crc.to_le_bytes());
        file.0
    }

    /// Puts back what [`snapshot`](Self::snapshot) wrote.
    ///
    /// # Errors
    /// When the bytes are not a whole snapshot made under this secret; the table is then unchanged.
    pub fn restore_snapshot(
        &self,
        bytes: &[u8],
        secret: Secret,
    ) -> Result<Restored, SnapshotError> {
        let entries = read(bytes, secret)?;
        let (mut restored, now) = (Restored { keys: 0, left_out: 0 }, self.clock().now());
        for (key, state) in entries {
            let set_aside = match &state.tally {
                Tally::Log(log) => log_bytes(log.entries().len() as u64),
                _ => 0,
            };
            if !is_fresh(Some(&state), now) && self.restore(key, state, set_aside) {
                restored.keys += 1;
            } else {
                restored.left_out += 1;
            }
        }
        Ok(restored)
    }
}

fn read(bytes: &[u8], secret: Secret) -> Result<Vec<(Fingerprint, State)>, SnapshotError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::Foreign)?;
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or(SnapshotError::Corrupt)?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Err(SnapshotError::Corrupt);
    }
    let mut reader = Reader(&rest[..rest.len() - crc.len()]);
    let check = reader.word().ok_or(SnapshotError::Corrupt)?;
    if check != secret.check_value() {
        return Err(SnapshotError::OtherSecret);
    }
    reader.entries().ok_or(SnapshotError::Corrupt)
}

/// The scales of a file, in order of first use.
#[derive(Default)]
struct Scales {
    places: HashMap<ScaleId, u64>,
    order: Vec<Scale>,
}

impl Scales {
    fn place(&mut self, id: ScaleId) -> u64 {
        *self.places.entry(id).or_insert_with(|| {
            self.order.push(id.resolve());
            self.order.len() as u64 - 1
        })
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn scale(&mut self, scale: Scale) {
        let words = match scale {
            Scale::Bucket { per_micro, per_request } => [0, per_micro, per_request],
            Scale::Fixed { window } => [1, window.get(), 0],
            Scale::Counter { window } => [2, window.get(), 0],
            Scale::Log { window } => [3, window.get(), 0],
            Scale::Ban { forget } => [4, forget.get(), 0],
            Scale::Slots { lease } => [5, lease.get(), 0],
        };
        words.into_iter().for_each(|word| self.word(word));
    }

    fn entry(&mut self, key: Fingerprint, state: &State, scale: u64) {
        [key.hi, key.lo, scale].into_iter().for_each(|word| self.word(word));
        match &state.tally {
            Tally::Bucket(level) => self.words(&[level.used, level.at.as_micros()]),
            Tally::Fixed(count) => self.words(&[count.window, count.count]),
            Tally::Counter(pair) => self.words(&[pair.window, pair.current, pair.previous]),
            Tally::Ban(record) => self.words(&[
                u64::from(record.strikes),
                u64::from(record.bans),
                record.since.as_micros(),
                record.until.as_micros(),
            ]),
            Tally::Log(log) => {
                self.word(log.entries().len() as u64);
                log.entries().for_each(|entry| self.words(&[entry.at.as_micros(), entry.cost]));
            }
        }
    }

    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.word(*word));
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn instant(&mut self) -> Option<Timestamp> {
        self.word().map(Timestamp::from_micros)
    }

    fn entries(&mut self) -> Option<Vec<(Fingerprint, State)>> {
        let scales = self.word()?;
        let scales: Vec<Scale> = (0..scales).map(|_| self.scale()).collect::<Option<_>>()?;
        let count = self.word()?;
        let entries = (0..count).map(|_| self.entry(&scales)).collect::<Option<_>>()?;
        self.0.is_empty().then_some(entries)
    }

    fn scale(&mut self) -> Option<Scale> {
        let [kind, a, b] = [self.word()?, self.word()?, self.word()?];
        let span = Micros::new(a);
        Some(match kind {
            0 => Scale::Bucket { per_micro: a, per_request: b },
            1 => Scale::Fixed { window: span },
            2 => Scale::Counter { window: span },
            3 => Scale::Log { window: span },
            4 => Scale::Ban { forget: span },
            5 => Scale::Slots { lease: span },
            _ => return None,
        })
    }

    fn entry(&mut self, scales: &[Scale]) -> Option<(Fingerprint, State)> {
        let key = Fingerprint { hi: self.word()?, lo: self.word()? };
        let scale = *scales.get(usize::try_from(self.word()?).ok()?)?;
        let tally = match scale {
            Scale::Bucket { .. } => {
                Tally::Bucket(Level { used: self.word()?, at: self.instant()? })
            }
            Scale::Fixed { .. } => {
                Tally::Fixed(Count { window: self.word()?, count: self.word()? })
            }
            Scale::Counter { .. } => Tally::Counter(Pair {
                window: self.word()?,
                current: self.word()?,
                previous: self.word()?,
            }),
            Scale::Ban { .. } => Tally::Ban(Record {
                strikes: u32::try_from(self.word()?).ok()?,
                bans: u8::try_from(self.word()?).ok()?,
                since: self.instant()?,
                until: self.instant()?,
            }),
            Scale::Log { .. } | Scale::Slots { .. } => {
                let count = self.word()?;
                let entries = (0..count)
                    .map(|_| Some(Entry { at: self.instant()?, cost: self.word()? }))
                    .collect::<Option<Vec<_>>>()?;
                Tally::Log(Log::from_entries(entries).into())
            }
        };
        Some((key, State { scale: scale.intern(), tally }))
    }
}
