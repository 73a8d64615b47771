//! The probe: a real charge, to a counter that limits nobody.

use tidegate_core::key::Fingerprint;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Op, Queue, Role};
use tidegate_core::time::Micros;

use crate::ask::{Ask, Item};
use crate::name::{Home, Name, slot};

/// A charge to a counter of nobody's, on a slot that the server has.
pub(crate) fn canary(prefix: &str, on: Option<u16>) -> Result<Ask, String> {
    let quota = Quota::new(1_000_000, Micros::from_secs(1));
    let policy = Policy::new(Algorithm::TokenBucket, quota).map_err(|error| error.to_string())?;
    let named = |number: u32| Name::from_slice(format!("{prefix}canary:{{{number}}}").as_bytes());
    let name = match on {
        None => named(0),
        // Any slot is found among the first few hundred thousand.
        Some(wanted) => {
            (0..1_000_000).map(named).find(|name| slot(name) == wanted).unwrap_or_default()
        }
    };
    let item = Item {
        fingerprint: Fingerprint::default(),
        home: Home { name, tag: 0 },
        policy,
        cost: 1,
        role: Role::Shadow,
        grace: None,
        ban: None,
        queue: Queue::Hold,
    };
    Ok(Ask::new(Op::Charge, [item].into_iter().collect()))
}
