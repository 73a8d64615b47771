//! Snapshots: the table as a file, so that a restart does not refill the counters.
//!
//! Layout, little-endian: magic, check value of the key secret, number of scales and the scales,
//! number of entries and the entries, CRC-32 of everything before it. A file that is truncated,
//! damaged or made with another secret is rejected as a whole. Counters refill for the time between
//! snapshot and restore, because states carry timestamps. Held slots expire with their hold time.
//! The server decides when and where snapshots are written.

use std::collections::HashMap;
use std::fmt;

use tidegate_core::algorithm::fixed_window::WindowCount;
use tidegate_core::algorithm::sliding_window_counter::WindowPair;
use tidegate_core::algorithm::sliding_window_log::{Entry, WindowLog};
use tidegate_core::algorithm::token_bucket::BucketLevel;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::key::{Fingerprint, Secret};
use tidegate_core::penalty::BanRecord;
use tidegate_core::scale::{Scale, ScaleId};
use tidegate_core::time::{Clock, Micros, Timestamp};

use crate::shard::is_expired;
use crate::spill::log_bytes;
use crate::store::MemoryStore;

const MAGIC: &[u8; 8] = b"TGSNAP02";

/// Why a snapshot could not be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// The file is not a snapshot, or has another format version.
    UnknownFormat,
    /// The file was made with another key secret, so none of its keys would match.
    SecretMismatch,
    /// The file is truncated or damaged.
    Corrupt,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownFormat => "it is not a snapshot that this version of tidegate wrote",
            Self::SecretMismatch => "it was written under another key secret",
            Self::Corrupt => "it is cut short or damaged",
        })
    }
}

impl std::error::Error for SnapshotError {}

/// The result of restoring a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreSummary {
    /// Keys restored.
    pub keys: usize,
    /// Keys left out because they have expired, already exist, or do not fit into memory.
    pub skipped: usize,
}

impl<C: Clock> MemoryStore<C> {
    /// Returns the table as bytes, without expired keys.
    #[must_use]
    pub fn snapshot(&self, secret: Secret) -> Vec<u8> {
        let now = self.clock().now();
        let (mut scales, mut entries, mut count) =
            (ScaleTable::default(), SnapshotWriter::default(), 0);
        self.for_each_state(|key, state| {
            if !is_expired(Some(state), now) {
                count += 1;
                entries.write_entry(key, state, scales.index_of(state.scale));
            }
        });
        let mut file = SnapshotWriter::default();
        file.0.extend_from_slice(MAGIC);
        file.write_word(secret.check_value());
        file.write_word(scales.order.len() as u64);
        scales.order.iter().for_each(|scale| file.write_scale(*scale));
        file.write_word(count);
        file.0.append(&mut entries.0);
        let crc = crc32fast::hash(&file.0);
        file.0.extend_from_slice(&crc.to_le_bytes());
        file.0
    }

    /// Restores what [`snapshot`](Self::snapshot) returned.
    ///
    /// # Errors
    /// If the bytes are not a complete snapshot made with this secret. The table is then unchanged.
    pub fn restore_snapshot(
        &self,
        bytes: &[u8],
        secret: Secret,
    ) -> Result<RestoreSummary, SnapshotError> {
        let entries = decode_snapshot(bytes, secret)?;
        let (mut restored, now) = (RestoreSummary { keys: 0, skipped: 0 }, self.clock().now());
        for (key, state) in entries {
            let reserve = match &state.tally {
                Tally::Log(log) => log_bytes(log.entries().len() as u64),
                _ => 0,
            };
            if !is_expired(Some(&state), now) && self.restore(key, state, reserve) {
                restored.keys += 1;
            } else {
                restored.skipped += 1;
            }
        }
        Ok(restored)
    }
}

fn decode_snapshot(
    bytes: &[u8],
    secret: Secret,
) -> Result<Vec<(Fingerprint, State)>, SnapshotError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::UnknownFormat)?;
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or(SnapshotError::Corrupt)?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return Err(SnapshotError::Corrupt);
    }
    let mut reader = SnapshotReader(&rest[..rest.len() - crc.len()]);
    let check = reader.read_word().ok_or(SnapshotError::Corrupt)?;
    if check != secret.check_value() {
        return Err(SnapshotError::SecretMismatch);
    }
    reader.read_entries().ok_or(SnapshotError::Corrupt)
}

/// The scales in a file, in order of first use.
#[derive(Default)]
struct ScaleTable {
    indices: HashMap<ScaleId, u64>,
    order: Vec<Scale>,
}

impl ScaleTable {
    fn index_of(&mut self, id: ScaleId) -> u64 {
        *self.indices.entry(id).or_insert_with(|| {
            self.order.push(id.resolve());
            self.order.len() as u64 - 1
        })
    }
}

#[derive(Default)]
struct SnapshotWriter(Vec<u8>);

impl SnapshotWriter {
    fn write_word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn write_scale(&mut self, scale: Scale) {
        let words = match scale {
            Scale::Bucket { per_micro, per_request } => [0, per_micro, per_request],
            Scale::Fixed { window } => [1, window.get(), 0],
            Scale::Counter { window } => [2, window.get(), 0],
            Scale::Log { window } => [3, window.get(), 0],
            Scale::Ban { forget } => [4, forget.get(), 0],
            Scale::Slots { hold } => [5, hold.get(), 0],
        };
        words.into_iter().for_each(|word| self.write_word(word));
    }

    fn write_entry(&mut self, key: Fingerprint, state: &State, scale: u64) {
        [key.hi, key.lo, scale].into_iter().for_each(|word| self.write_word(word));
        match &state.tally {
            Tally::Bucket(level) => self.write_words(&[level.used, level.at.as_micros()]),
            Tally::Fixed(count) => self.write_words(&[count.window, count.count]),
            Tally::Counter(pair) => self.write_words(&[pair.window, pair.current, pair.previous]),
            Tally::Ban(record) => self.write_words(&[
                u64::from(record.strikes),
                u64::from(record.bans),
                record.since.as_micros(),
                record.until.as_micros(),
            ]),
            Tally::Log(log) => {
                self.write_word(log.entries().len() as u64);
                log.entries()
                    .for_each(|entry| self.write_words(&[entry.at.as_micros(), entry.cost]));
            }
        }
    }

    fn write_words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.write_word(*word));
    }
}

struct SnapshotReader<'a>(&'a [u8]);

impl SnapshotReader<'_> {
    fn read_word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn read_timestamp(&mut self) -> Option<Timestamp> {
        self.read_word().map(Timestamp::from_micros)
    }

    fn read_entries(&mut self) -> Option<Vec<(Fingerprint, State)>> {
        let scales = self.read_word()?;
        let scales: Vec<Scale> = (0..scales).map(|_| self.read_scale()).collect::<Option<_>>()?;
        let count = self.read_word()?;
        let entries = (0..count).map(|_| self.read_entry(&scales)).collect::<Option<_>>()?;
        self.0.is_empty().then_some(entries)
    }

    fn read_scale(&mut self) -> Option<Scale> {
        let [kind, a, b] = [self.read_word()?, self.read_word()?, self.read_word()?];
        let span = Micros::new(a);
        Some(match kind {
            0 => Scale::Bucket { per_micro: a, per_request: b },
            1 => Scale::Fixed { window: span },
            2 => Scale::Counter { window: span },
            3 => Scale::Log { window: span },
            4 => Scale::Ban { forget: span },
            5 => Scale::Slots { hold: span },
            _ => return None,
        })
    }

    fn read_entry(&mut self, scales: &[Scale]) -> Option<(Fingerprint, State)> {
        let key = Fingerprint { hi: self.read_word()?, lo: self.read_word()? };
        let scale = *scales.get(usize::try_from(self.read_word()?).ok()?)?;
        let tally = match scale {
            Scale::Bucket { .. } => {
                Tally::Bucket(BucketLevel { used: self.read_word()?, at: self.read_timestamp()? })
            }
            Scale::Fixed { .. } => {
                Tally::Fixed(WindowCount { window: self.read_word()?, count: self.read_word()? })
            }
            Scale::Counter { .. } => Tally::Counter(WindowPair {
                window: self.read_word()?,
                current: self.read_word()?,
                previous: self.read_word()?,
            }),
            Scale::Ban { .. } => Tally::Ban(BanRecord {
                strikes: u32::try_from(self.read_word()?).ok()?,
                bans: u8::try_from(self.read_word()?).ok()?,
                since: self.read_timestamp()?,
                until: self.read_timestamp()?,
            }),
            Scale::Log { .. } | Scale::Slots { .. } => {
                let count = self.read_word()?;
                let entries = (0..count)
                    .map(|_| Some(Entry { at: self.read_timestamp()?, cost: self.read_word()? }))
                    .collect::<Option<Vec<_>>>()?;
                Tally::Log(WindowLog::from_entries(entries).into())
            }
        };
        Some((key, State { scale: scale.intern(), tally }))
    }
}
