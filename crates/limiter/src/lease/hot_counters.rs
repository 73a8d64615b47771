//! Finds the counters that get many requests, in fixed memory.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tidegate_core::key::Fingerprint;
use tidegate_core::time::{Micros, Timestamp};

/// Counts requests in this many cells, a power of two. Counters that share a cell are found hot
/// together; that costs a call to the store, but no exactness.
const CELLS: usize = 1 << 16;

/// Bytes of all cells.
pub(crate) const HOT_TABLE_BYTES: usize = CELLS * size_of::<AtomicU32>();

/// The requests of each counter in the current lease, roughly: in the upper half of a cell the
/// number of the lease since the clock's start, in the lower half the count.
#[derive(Debug)]
pub(super) struct HotCounters(Box<[AtomicU32]>);

impl HotCounters {
    pub(super) fn new() -> Self {
        Self((0..CELLS).map(|_| AtomicU32::new(0)).collect())
    }

    /// Counts a request, and returns how many there were in the current lease.
    pub(super) fn count(&self, key: Fingerprint, ttl: Micros, now: Timestamp) -> u32 {
        let index = usize::try_from(key.lo & (CELLS as u64 - 1)).unwrap_or(0);
        let lease = (now.as_micros() / ttl.get().max(1)) & 0xffff;
        let lease = u32::try_from(lease).unwrap_or(0) << 16;
        // Two threads may count one request for both; the count need not be exact.
        let before = self.0[index].load(Relaxed);
        let count = if before & 0xffff_0000 == lease { (before & 0xffff).min(0xfffe) } else { 0 };
        self.0[index].store(lease | (count + 1), Relaxed);
        count + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Micros = Micros::new(10);

    fn key(lo: u64) -> Fingerprint {
        Fingerprint { hi: 7, lo }
    }

    #[test]
    fn requests_of_one_lease_are_counted() {
        for start in [0_u64, 90, 655_350, 1_700_000_000_000_000] {
            let hot = HotCounters::new();
            let count =
                |after| hot.count(key(u64::MAX - 1), LEASE, Timestamp::from_micros(start + after));
            assert_eq!([count(0), count(4), count(9)], [1, 2, 3], "{start}");
            assert_eq!([count(10), count(19)], [1, 2], "{start}: the next lease");
            assert_eq!(count(30), 1, "{start}");
        }
    }

    #[test]
    fn counters_have_cells_of_their_own() {
        let (hot, now) = (HotCounters::new(), Timestamp::from_micros(50));
        for lo in [0, 1, 2, 0xffff, 0x1234_5678_0000_0005] {
            assert_eq!([1, 2].map(|_| hot.count(key(lo), LEASE, now)), [1, 2], "{lo:x}");
        }
        assert_eq!(hot.count(key(0x5_0001), LEASE, now), 3, "it shares the second cell");
    }
}
