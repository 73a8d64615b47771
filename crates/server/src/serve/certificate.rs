//! Replaces a door's certificate when its files change.

use crate::config::Certificate;
use crate::telemetry::Event;
use crate::watch::Watch;

/// Looks after a certificate, for ever.
pub(super) async fn keep(certificate: Certificate) {
    let (mut chain, mut key) = (Watch::new(&certificate.chain), Watch::new(&certificate.key));
    let read = || {
        let files = [&certificate.chain, &certificate.key];
        files.map(|path| std::fs::read(path).unwrap_or_default())
    };
    let mut seen = read();
    loop {
        tokio::select! {
            () = chain.stirred() => {}
            () = key.stirred() => {}
        }
        let now = read();
        if now == seen {
            continue;
        }
        seen = now;
        let path = &certificate.chain;
        match certificate.replace() {
            Ok(()) => Event::CertificateReplaced { path }.tell(),
            // Half of a pair that is being replaced; what is still wrong then is told then.
            Err(reason) => Event::CertificateRefused { path, reason: &reason }.tell(),
        }
    }
}
