//! PostgreSQL over TLS: every session is encrypted, whose certificate is believed is said in the address, and a server
//! that cannot be believed is not spoken to.

use tidegate_control::{Kind, Refused, open};
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::postgres::{Cluster, Database};

use crate::common::{Place, edit, put};
use crate::stirred::{listening, quiet, told};

fn certificates(database: &Database) -> &Certificates {
    database.cluster().certificates().expect("it speaks TLS")
}

fn over_tls() -> Database {
    Database::within(Cluster::start_tls().into())
}

/// The address with settings of TLS.
fn address(database: &Database, settings: &str) -> String {
    format!("{}?{settings}", database.url())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_session_is_encrypted_also_the_one_that_listens() {
    let database = over_tls();
    let ca = certificates(&database).ca();
    let url = address(&database, &format!("sslmode=verify-full&sslrootcert={}", ca.display()));
    let place = Place::Postgres(database);
    let (here, there) =
        (open(&url).await.expect("a repository"), open(&url).await.expect("another"));
    listening(&place, 2);
    quiet(there.as_ref()).await;
    here.commit(0, &edit([put(Kind::Setting, "a", "1")])).await.expect("a version");
    told(there.as_ref()).await;
    assert_eq!(there.head().await, Ok(1));
    let sessions = "SELECT bool_and(ssl), count(*) >= 3 FROM pg_stat_ssl
        JOIN pg_stat_activity USING (pid) WHERE application_name = 'tidegate'";
    assert_eq!(place.sql(sessions), "t|t");
    assert!(!here.name().contains("ssl"), "{}", here.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_believed_is_not_spoken_to() {
    let (database, other) = (over_tls(), tempfile::tempdir().expect("a folder"));
    let wrong = Certificates::make(other.path()).ca();
    let right = certificates(&database).ca();
    let full = |ca: &std::path::Path| format!("sslmode=verify-full&sslrootcert={}", ca.display());
    let refused = async |url: String| match open(&url).await {
        Err(Refused::Gone(why)) => why,
        other => panic!("{url}: {other:?}"),
    };
    let why = refused(address(&database, &full(&wrong))).await;
    assert!(why.contains("certificate"), "{why}");
    let why = refused(address(&database, "sslmode=disable")).await;
    assert!(why.contains("pg_hba.conf"), "{why}");
    let plain = Database::fresh();
    let why = refused(address(&plain, &full(&right))).await;
    assert!(why.contains("TLS") || why.contains("SSL"), "{why}");
}
