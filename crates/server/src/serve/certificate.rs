//! Replaces a door's certificate when its files change.

use crate::config::Certificate;
use crate::failure::Failure;
use crate::telemetry::Event;
use crate::watch::Watch;

/// What was last in the files, if they could be read.
type Contents = Option<(Vec<u8>, Vec<u8>)>;

/// Looks after a certificate, for ever.
pub(super) async fn keep(certificate: Certificate) {
    let (mut chain, mut key) = (Watch::new(&certificate.chain), Watch::new(&certificate.key));
    let mut seen = look(&certificate, None).await.0;
    loop {
        tokio::select! {
            () = chain.stirred() => {}
            () = key.stirred() => {}
        }
        let (now, replaced) = look(&certificate, Some(seen)).await;
        seen = now;
        let path = &certificate.chain;
        match replaced {
            Some(Ok(())) => Event::CertificateReplaced { path }.tell(),
            // Half of a pair that is being replaced; what is still wrong then is told then.
            Some(Err(reason)) => Event::CertificateRefused { path, reason: &reason }.tell(),
            None => {}
        }
    }
}

/// Reads the files, on a thread where that holds up no request, and replaces the certificate if they are
/// not as they were.
async fn look(
    certificate: &Certificate,
    seen: Option<Contents>,
) -> (Contents, Option<Result<(), Failure>>) {
    let certificate = certificate.clone();
    let read = tokio::task::spawn_blocking(move || {
        let now = certificate.read().ok();
        let changed = seen.is_some_and(|seen| seen != now);
        (now, changed.then(|| certificate.replace()))
    });
    read.await.unwrap_or_default()
}
