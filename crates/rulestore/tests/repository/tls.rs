//! PostgreSQL over TLS: every session is encrypted, the URL names the trusted certificates, and
//! connections to untrusted servers fail.

use tidegate_rulestore::{EntryKind, RepositoryError, open};
use tidegate_testkit::certificates::TestCertificates;
use tidegate_testkit::postgres::{PostgresCluster, TestDatabase};

use crate::change_notifications::{wait_for_listeners, wait_for_notification, wait_for_quiet};
use crate::common::{RepositoryFixture, edit, put};

fn certificates(database: &TestDatabase) -> &TestCertificates {
    database.cluster().certificates().expect("it speaks TLS")
}

fn tls_database() -> TestDatabase {
    TestDatabase::create_in(PostgresCluster::start_tls().into())
}

/// The URL with these parameters.
fn url_with_settings(database: &TestDatabase, settings: &str) -> String {
    format!("{}?{settings}", database.url())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_session_uses_tls() {
    let database = tls_database();
    let ca = certificates(&database).ca();
    let url =
        url_with_settings(&database, &format!("sslmode=verify-full&sslrootcert={}", ca.display()));
    let fixture = RepositoryFixture::Postgres(database);
    let (here, there) =
        (open(&url).await.expect("a repository"), open(&url).await.expect("another"));
    wait_for_listeners(&fixture, 2);
    wait_for_quiet(there.as_ref()).await;
    here.commit(0, &edit([put(EntryKind::Setting, "a", "1")])).await.expect("a version");
    wait_for_notification(there.as_ref()).await;
    assert_eq!(there.head().await, Ok(1));
    let sessions = "SELECT bool_and(ssl), count(*) >= 3 FROM pg_stat_ssl
        JOIN pg_stat_activity USING (pid) WHERE application_name = 'tidegate'";
    assert_eq!(fixture.sql(sessions), "t|t");
    assert!(!here.name().contains("ssl"), "{}", here.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_server_is_refused() {
    let (database, other) = (tls_database(), tempfile::tempdir().expect("a folder"));
    let wrong = TestCertificates::generate(other.path()).ca();
    let right = certificates(&database).ca();
    let full = |ca: &std::path::Path| format!("sslmode=verify-full&sslrootcert={}", ca.display());
    let refused = async |url: String| match open(&url).await {
        Err(RepositoryError::Unavailable(why)) => why,
        other => panic!("{url}: {other:?}"),
    };
    let why = refused(url_with_settings(&database, &full(&wrong))).await;
    assert!(why.contains("certificate"), "{why}");
    let why = refused(url_with_settings(&database, "sslmode=disable")).await;
    assert!(why.contains("pg_hba.conf"), "{why}");
    let plain = TestDatabase::create();
    let why = refused(url_with_settings(&plain, &full(&right))).await;
    assert!(why.contains("TLS") || why.contains("SSL"), "{why}");
}
