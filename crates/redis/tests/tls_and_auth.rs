//! Connections to a server: over TLS, with a password, as an ACL user with minimal rights, over a
//! Unix socket, in a database, with a prefix; and the reported reason when the server refuses.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::fs;

use common::{RedisFixture, TEST_TIMEOUT, charge, options, page_name, policy};
use tidegate_core::decision::Verdict;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::Algorithm;
use tidegate_core::store::{Charge, Op, Store as _};
use tidegate_core::time::Micros;
use tidegate_redis::{
    RedisOptions, RedisStore, RedisTlsConfig, RegionLoan, RegionMarker, diagnose,
};
use tidegate_testkit::process::eventually;
use tidegate_testkit::quotas::RATE_ALGORITHMS;
use tidegate_testkit::redis::{
    ClientCertificatePolicy, RedisClient, RedisReply, RedisServer, TestCertificates,
};

const WINDOW: Micros = Micros::from_secs(86_400);

/// The commands that a user needs: `+` each of these, and `~tg:*`.
const REQUIRED_COMMANDS: [&str; 17] = [
    "eval",
    "evalsha",
    // For `decide.lua`.
    "time",
    "mget",
    "set",
    "setrange",
    "del",
    "hget",
    "hset",
    "hdel",
    "pexpireat",
    // For `nodes.lua`.
    "zremrangebyscore",
    "zadd",
    "pexpire",
    "zrem",
    "zcard",
    // Optional: saves sending the script's text with the first decision.
    "script|load",
];

/// Runs every path of the scripts: all algorithms, warnings, bans, all operations, long logs.
async fn run_every_operation(store: &RedisStore) -> Result<(), String> {
    let grace = policy(Algorithm::SlidingWindowLog, 2, WINDOW);
    let ban = BanPolicy::new(2, WINDOW, WINDOW, 1, WINDOW);
    for (key, algorithm) in RATE_ALGORITHMS.into_iter().enumerate() {
        let (key, policy) = (key as u64, policy(algorithm, 100, WINDOW));
        let one = charge(key, &policy);
        let strict = Charge { grace: Some(&grace), ban: Some(&ban), ..charge(100 + key, &policy) };
        let mut readings = [Default::default(); 2];
        for op in [Op::Charge, Op::Peek, Op::Force] {
            to_reason(store.apply(op, &[one, strict], &mut readings).await)?;
        }
        for _ in 0..8 {
            let expensive = Charge { cost: 90, ..strict };
            to_reason(store.apply(Op::Charge, &[expensive], &mut readings[..1]).await)?;
        }
        if algorithm == Algorithm::SlidingWindowLog {
            // Fill more than a chunk, then refund all of it.
            let mut times = Vec::new();
            for _ in 0..70 {
                to_reason(store.apply(Op::Charge, &[one], &mut readings[..1]).await)?;
                times.push(readings[0].now);
            }
            for charged_at in times.into_iter().rev() {
                to_reason(
                    store.apply(Op::Refund { charged_at }, &[one], &mut readings[..1]).await,
                )?;
            }
        }
        let charged_at = readings[0].now;
        to_reason(store.apply(Op::Refund { charged_at }, &[one, strict], &mut readings).await)?;
        to_reason(store.apply(Op::Reset, &[one, strict], &mut readings).await)?;
    }
    to_reason(store.now().await)?;
    let marker = RegionMarker { region: "eu".to_owned(), secret_check: 1 };
    store.write_region_marker(&marker).await?;
    store.read_region_marker().await?;
    let loan = RegionLoan { granted: 3, ..RegionLoan::none("r", "us") };
    store.add_region_loans(&[loan]).await?;
    Ok(())
}

fn to_reason<T>(result: Result<T, tidegate_core::store::StoreError>) -> Result<(), String> {
    result.map(drop).map_err(|error| error.reason)
}

/// The reason that the store reports when the server refuses it.
fn unavailable_reason(options: &RedisOptions) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::start(options);
        let ready = store.wait_ready(TEST_TIMEOUT);
        tokio::pin!(ready);
        loop {
            tokio::select! {
                _ = &mut ready => panic!("the server accepted the connection"),
                () = tokio::task::yield_now() => {}
            }
            if let Some(why) = store.unavailable_reason() {
                return why;
            }
        }
    })
}

fn assert_admitted(fixture: &RedisFixture) {
    let policy = policy(Algorithm::TokenBucket, 5, WINDOW);
    assert_eq!(fixture.apply_one(Op::Charge, charge(1, &policy)).verdict, Verdict::Allow);
}

fn tls_config(certificates: &TestCertificates) -> RedisTlsConfig {
    let file = |path| fs::read(path).expect("a file");
    RedisTlsConfig {
        ca_certificates: Some(file(certificates.ca())),
        identity: Some((file(certificates.client()), file(certificates.client_key()))),
    }
}

#[test]
fn tls_with_client_certificate_connects() {
    for client in [ClientCertificatePolicy::Required, ClientCertificatePolicy::Ignored] {
        let server = RedisServer::start_tls(client);
        let tls = tls_config(server.certificates().expect("certificates"));
        let fixture = RedisFixture::with_options(&RedisOptions {
            tls: tls.clone(),
            ..options(&server.url())
        });
        assert_admitted(&fixture);
        let without_certificate = RedisOptions {
            tls: RedisTlsConfig { identity: None, ..tls },
            ..options(&server.url())
        };
        match client {
            ClientCertificatePolicy::Ignored => {
                assert_admitted(&RedisFixture::with_options(&without_certificate));
            }
            _ => {
                let why = unavailable_reason(&without_certificate);
                println!("{why}");
                assert!(why.to_lowercase().contains("certificate"), "{why}");
            }
        }
    }
}

#[test]
fn untrusted_server_certificate_is_rejected() {
    let (server, other) = (
        RedisServer::start_tls(ClientCertificatePolicy::Ignored),
        RedisServer::start_tls(ClientCertificatePolicy::Ignored),
    );
    let foreign = tls_config(other.certificates().expect("certificates"));
    for tls in [foreign, RedisTlsConfig::default()] {
        let why = unavailable_reason(&RedisOptions { tls, ..options(&server.url()) });
        println!("{why}");
        assert!(why.contains(&server.port().to_string()), "names the server: {why}");
        assert!(why.contains("certificate"), "names the problem: {why}");
    }
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
}

#[test]
fn tls_mismatch_names_the_server() {
    let (secure, plain) =
        (RedisServer::start_tls(ClientCertificatePolicy::Ignored), RedisServer::start());
    for (server, url) in [
        (&secure, secure.url().replace("rediss:", "redis:")),
        (&plain, plain.url().replace("redis:", "rediss:")),
    ] {
        let why = unavailable_reason(&options(&url));
        println!("{why}");
        assert!(why.contains(&server.port().to_string()), "names the server: {why}");
    }
}

#[test]
fn password_authenticates_and_stays_hidden() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "requirepass", "s3cr@t/x"]);
    let url = |credentials: &str| server.url().replace("://", &format!("://{credentials}"));
    assert_admitted(&RedisFixture::connect(&url(":s3cr%40t%2Fx@")));
    assert_admitted(&RedisFixture::connect(&url("default:s3cr%40t%2Fx@")));
    for (credentials, what) in
        [("", "NOAUTH"), (":wr0ng@", "WRONGPASS"), ("bob:s3cr%40t%2Fx@", "WRONGPASS")]
    {
        let why = unavailable_reason(&options(&url(credentials)));
        println!("{why}");
        assert!(why.contains(what) || why.to_lowercase().contains("password"), "{why}");
        assert!(!why.contains("s3cr") && !why.contains("wr0ng"), "{why}");
    }
}

/// The doctor's advice for servers that cannot be used.
#[test]
fn doctor_advises_on_unusable_server() {
    let (secure, plain) =
        (RedisServer::start_tls(ClientCertificatePolicy::Required), RedisServer::start());
    let tls = tls_config(secure.certificates().expect("certificates"));
    let without_certificate = RedisTlsConfig { identity: None, ..tls.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    for (url, tls, advice) in [
        (secure.url(), without_certificate, "--store-cert-file"),
        (secure.url(), RedisTlsConfig::default(), "--store-ca-file"),
        (secure.url().replace("rediss:", "redis:"), tls.clone(), "rediss://"),
        (plain.url().replace("redis:", "rediss:"), tls.clone(), "rediss://"),
        (plain.url().replace("redis:", "redis+cluster:"), tls, "not a cluster"),
    ] {
        let found = runtime.block_on(diagnose(&RedisOptions { tls, ..options(&url) }));
        let [finding] = &found.findings[..] else { panic!("{url}: {found:?}") };
        assert!(finding.advice.contains(advice), "{url}: {finding:?}");
    }
}

/// Creates an ACL user with these rights, and returns the URL with its credentials.
fn create_acl_user(server: &RedisServer, name: &str, rights: &[&str]) -> String {
    let mut words = vec!["ACL", "SETUSER", name, "reset", "on", ">pw", "~tg:*", "-@all"];
    let rights: Vec<String> = rights.iter().map(|right| format!("+{right}")).collect();
    words.extend(rights.iter().map(String::as_str));
    assert_eq!(server.command(&words), RedisReply::Simple("OK".into()));
    server.url().replace("://", &format!("://{name}:pw@"))
}

/// The commands and keys that the server denied a user.
fn acl_denials(server: &RedisServer, name: &str) -> Vec<String> {
    let log = server.command(&["ACL", "LOG"]);
    let fields = |entry: &RedisReply| {
        let words: Vec<String> = entry
            .items()
            .iter()
            .map(|word| match word {
                RedisReply::Array(_) | RedisReply::Nil => String::new(),
                word => word.text(),
            })
            .collect();
        let field = |name: &str| {
            let at = words.iter().position(|word| word == name).expect("a field");
            words[at + 1].clone()
        };
        (field("username"), field("object"))
    };
    let denied = log.items().iter().map(fields);
    // Clients may announce their name with `client|setinfo`; a denial of that is harmless.
    let ours = denied.filter(|(user, object)| user == name && !object.starts_with("client"));
    ours.map(|(_, object)| object).collect()
}

fn run_with_store(url: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::start(&options(url));
        let ready = tokio::time::timeout(TEST_TIMEOUT, async {
            while !store.wait_ready(std::time::Duration::from_millis(20)).await {
                if let Some(why) = store.unavailable_reason() {
                    return Err(why);
                }
            }
            Ok(())
        });
        ready.await.expect("an end")?;
        run_every_operation(&store).await?;
        // Runs the heartbeat and the announcement of leaving.
        tokio::task::yield_now().await;
        store.leave().await;
        Ok(())
    })
}

#[test]
fn acl_user_needs_exactly_required_commands() {
    let server = RedisServer::start();
    assert_eq!(run_with_store(&create_acl_user(&server, "enough", &REQUIRED_COMMANDS)), Ok(()));
    assert_eq!(acl_denials(&server, "enough"), [""; 0]);
    for (i, missing) in REQUIRED_COMMANDS.iter().enumerate().take(REQUIRED_COMMANDS.len() - 1) {
        let name = format!("user{i}");
        let rights: Vec<&str> =
            REQUIRED_COMMANDS.into_iter().filter(|right| right != missing).collect();
        let done = run_with_store(&create_acl_user(&server, &name, &rights));
        let denied = acl_denials(&server, &name);
        println!("without {missing}: {done:?}, {denied:?}");
        assert!(denied.iter().any(|denied| denied == missing), "{missing} is not needed");
    }
}

#[test]
fn acl_user_for_other_prefix_is_reported() {
    let server = RedisServer::start();
    let url = create_acl_user(&server, "tidegate", &REQUIRED_COMMANDS);
    let why = unavailable_reason(&RedisOptions { prefix: "other:".to_owned(), ..options(&url) });
    println!("{why}");
    assert!(why.to_lowercase().contains("noperm"), "{why}");
    assert!(why.contains("keys"), "{why}");
}

#[test]
fn unix_socket_database_and_prefix_are_used() {
    let server = RedisServer::start();
    let url = format!("unix://{}?db=3", server.socket().display());
    let fixture =
        RedisFixture::with_options(&RedisOptions { prefix: "limits:".to_owned(), ..options(&url) });
    assert_admitted(&fixture);
    let policy = policy(Algorithm::TokenBucket, 5, WINDOW);
    let name = page_name("law", charge(1, &policy).key.fingerprint);
    let name = name.replacen("tg:", "limits:", 1);
    let mut client = RedisClient::connect_unix(&server.socket()).expect("a connection");
    let mut run = |words: &[&str]| client.command(words).expect("an answer").text();
    assert_eq!(run(&["DBSIZE"]), "0", "database 0 is empty");
    assert_eq!(run(&["SELECT", "3"]), "OK");
    assert_eq!(run(&["EXISTS", &name]), "1");
    drop(fixture);

    let fixture = RedisFixture::connect(&format!("{}/5", server.url()));
    assert_admitted(&fixture);
    assert_eq!(run(&["SELECT", "5"]), "OK");
    assert_eq!(run(&["EXISTS", &name.replacen("limits:", "tg:", 1)]), "1");
    let why = unavailable_reason(&options(&format!("{}/99", server.url())));
    println!("{why}");
    assert!(why.to_lowercase().contains("database") || why.contains("DB index"), "{why}");
}

/// Other nodes see a node join and leave.
#[test]
fn acl_user_is_counted_as_node() {
    let server = RedisServer::start();
    let url = create_acl_user(&server, "tidegate", &REQUIRED_COMMANDS);
    let (one, two) = (RedisFixture::connect(&url), RedisFixture::connect(&url));
    let policy = policy(Algorithm::TokenBucket, 5, WINDOW);
    let seen = |fixture: &RedisFixture| {
        fixture.apply_one(Op::Peek, charge(1, &policy));
        fixture.store.node_count()
    };
    eventually("both are counted", || seen(&two) == 2 && seen(&one) == 2);
    two.runtime.block_on(two.store.leave());
    drop(two);
    eventually("one has left", || seen(&one) == 1);
}
