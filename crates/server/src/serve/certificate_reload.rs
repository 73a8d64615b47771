//! Replaces a listener's certificate when its files change.

use crate::config::ListenerCertificate;
use crate::error::CommandError;
use crate::file_watcher::FileWatcher;
use crate::telemetry::ServerEvent;

/// The last content of the files, if they were readable.
type CertificateFiles = Option<(Vec<u8>, Vec<u8>)>;

/// Watches the certificate's files and reloads them on change; never returns.
pub(super) async fn watch_files(certificate: ListenerCertificate) {
    let (mut chain, mut key) =
        (FileWatcher::new(&certificate.chain), FileWatcher::new(&certificate.key));
    let mut seen = reload_if_changed(&certificate, None).await.0;
    loop {
        tokio::select! {
            () = chain.changed() => {}
            () = key.changed() => {}
        }
        let (now, replaced) = reload_if_changed(&certificate, Some(seen)).await;
        seen = now;
        let path = &certificate.chain;
        match replaced {
            Some(Ok(())) => ServerEvent::CertificateReplaced { path }.log(),
            // Possibly only one of the two files has been replaced yet; the second change triggers
            // a retry.
            Some(Err(reason)) => ServerEvent::CertificateRefused { path, reason: &reason }.log(),
            None => {}
        }
    }
}

/// Reads the files on a blocking thread, so that requests are not delayed, and replaces the
/// certificate if they changed.
async fn reload_if_changed(
    certificate: &ListenerCertificate,
    seen: Option<CertificateFiles>,
) -> (CertificateFiles, Option<Result<(), CommandError>>) {
    let certificate = certificate.clone();
    let read = tokio::task::spawn_blocking(move || {
        let now = certificate.read().ok();
        let changed = seen.is_some_and(|seen| seen != now);
        (now, changed.then(|| certificate.reload()))
    });
    read.await.unwrap_or_default()
}
