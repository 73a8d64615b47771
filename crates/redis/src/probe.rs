//! The probe: a real charge to a counter that limits no client.

use tidegate_core::key::Fingerprint;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Op, QueueMode, Role};
use tidegate_core::time::Micros;

use crate::key_name::{KeyName, RecordLocation, hash_slot};
use crate::script_request::{ScriptCharge, ScriptRequest};

/// A charge to a counter that no client uses, in a slot that the server owns.
pub(crate) fn probe_request(prefix: &str, on: Option<u16>) -> Result<ScriptRequest, String> {
    let quota = Quota::new(1_000_000, Micros::from_secs(1));
    let policy = Policy::new(Algorithm::TokenBucket, quota).map_err(|error| error.to_string())?;
    let named =
        |number: u32| KeyName::from_slice(format!("{prefix}canary:{{{number}}}").as_bytes());
    let name = match on {
        None => named(0),
        // Every slot occurs among the first few hundred thousand names.
        Some(wanted) => {
            (0..1_000_000).map(named).find(|name| hash_slot(name) == wanted).unwrap_or_default()
        }
    };
    let charge = ScriptCharge {
        fingerprint: Fingerprint::default(),
        location: RecordLocation { name, tag: 0 },
        policy,
        cost: 1,
        role: Role::Shadow,
        grace: None,
        ban: None,
        queue: QueueMode::Hold,
    };
    Ok(ScriptRequest::new(Op::Charge, [charge].into_iter().collect()))
}
