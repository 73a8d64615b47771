//! The marker of a store: to which region it belongs, and with which secret that region hashes
//! keys. A node borrows only from a store with the marker that it expects. Under another key the
//! lender's share would exist twice.

use tidegate_core::key::Secret;

/// The marker that the nodes of a region write into their store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreMarker {
    region: usize,
    secret_check: u64,
}

impl StoreMarker {
    pub(crate) fn new(region: usize, secret: Secret) -> Self {
        Self { region, secret_check: secret.check_value() }
    }
}

/// Whether a node with this secret may borrow from a region whose store has this marker.
pub(crate) fn is_lender_usable(region: usize, secret: Secret, marker: Option<StoreMarker>) -> bool {
    marker == Some(StoreMarker::new(region, secret))
}
