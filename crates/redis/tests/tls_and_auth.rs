//! How a server is reached: over TLS, with a password, as an ACL user with no more rights than are
//! needed, over a socket, in a database, under a prefix; and what is said when it does not let us in.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::fs;

use common::{PATIENCE, Stand, charge, name_of, options, policy};
use tidegate_core::decision::Verdict;
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::Algorithm;
use tidegate_core::store::{Charge, Op, Store as _};
use tidegate_core::time::Micros;
use tidegate_redis::{Options, RedisStore, Tls, examine};
use tidegate_testkit::process::eventually;
use tidegate_testkit::quotas::SIX;
use tidegate_testkit::redis::{Certificates, Client, ClientCertificate, Reply, Server};

const WINDOW: Micros = Micros::from_secs(86_400);

/// What a user must be allowed: `+` each of these and `~tg:*`.
const RIGHTS: [&str; 17] = [
    "eval",
    "evalsha",
    // By `decide.lua`.
    "time",
    "mget",
    "set",
    "setrange",
    "del",
    "hget",
    "hset",
    "hdel",
    "pexpireat",
    // By `nodes.lua`.
    "zremrangebyscore",
    "zadd",
    "pexpire",
    "zrem",
    "zcard",
    // Not needed: it spares the first decision the way of the text.
    "script|load",
];

/// Everything that the scripts do: all algorithms, warnings, bans, all operations, long logs.
async fn everything(store: &RedisStore) -> Result<(), String> {
    let grace = policy(Algorithm::SlidingWindowLog, 2, WINDOW);
    let ban = BanPolicy::new(2, WINDOW, WINDOW, 1, WINDOW);
    for (key, algorithm) in SIX.into_iter().enumerate() {
        let (key, policy) = (key as u64, policy(algorithm, 100, WINDOW));
        let one = charge(key, &policy);
        let strict = Charge { grace: Some(&grace), ban: Some(&ban), ..charge(100 + key, &policy) };
        let mut readings = [Default::default(); 2];
        for op in [Op::Charge, Op::Peek, Op::Force] {
            told(store.apply(op, &[one, strict], &mut readings).await)?;
        }
        for _ in 0..8 {
            let dear = Charge { cost: 90, ..strict };
            told(store.apply(Op::Charge, &[dear], &mut readings[..1]).await)?;
        }
        if algorithm == Algorithm::SlidingWindowLog {
            // Until a chunk is full, and is given back.
            let mut times = Vec::new();
            for _ in 0..70 {
                told(store.apply(Op::Charge, &[one], &mut readings[..1]).await)?;
                times.push(readings[0].now);
            }
            for charged_at in times.into_iter().rev() {
                told(store.apply(Op::Refund { charged_at }, &[one], &mut readings[..1]).await)?;
            }
        }
        let charged_at = readings[0].now;
        told(store.apply(Op::Refund { charged_at }, &[one, strict], &mut readings).await)?;
        told(store.apply(Op::Reset, &[one, strict], &mut readings).await)?;
    }
    told(store.now().await)?;
    Ok(())
}

fn told<T>(result: Result<T, tidegate_core::store::StoreError>) -> Result<(), String> {
    result.map(drop).map_err(|error| error.reason)
}

/// What the store says of why it is not let in.
fn reason(options: &Options) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::start(options);
        let ready = store.ready(PATIENCE);
        tokio::pin!(ready);
        loop {
            tokio::select! {
                _ = &mut ready => panic!("it was let in"),
                () = tokio::task::yield_now() => {}
            }
            if let Some(why) = store.lost() {
                return why;
            }
        }
    })
}

fn passes(stand: &Stand) {
    let policy = policy(Algorithm::TokenBucket, 5, WINDOW);
    assert_eq!(stand.apply_one(Op::Charge, charge(1, &policy)).verdict, Verdict::Allow);
}

fn read(certificates: &Certificates) -> Tls {
    let file = |path| fs::read(path).expect("a file");
    Tls {
        authorities: Some(file(certificates.ca())),
        identity: Some((file(certificates.client()), file(certificates.client_key()))),
    }
}

#[test]
fn tls_with_an_authority_and_a_certificate_of_ours() {
    for client in [ClientCertificate::Required, ClientCertificate::Ignored] {
        let server = Server::start_tls(client);
        let tls = read(server.certificates().expect("certificates"));
        let stand = Stand::with(&Options { tls: tls.clone(), ..options(&server.url()) });
        passes(&stand);
        let nameless = Options { tls: Tls { identity: None, ..tls }, ..options(&server.url()) };
        match client {
            ClientCertificate::Ignored => passes(&Stand::with(&nameless)),
            _ => {
                let why = reason(&nameless);
                println!("{why}");
                assert!(why.to_lowercase().contains("certificate"), "{why}");
            }
        }
    }
}

#[test]
fn a_server_that_nobody_we_trust_vouches_for_is_not_spoken_to() {
    let (server, other) = (
        Server::start_tls(ClientCertificate::Ignored),
        Server::start_tls(ClientCertificate::Ignored),
    );
    let strange = read(other.certificates().expect("certificates"));
    for tls in [strange, Tls::default()] {
        let why = reason(&Options { tls, ..options(&server.url()) });
        println!("{why}");
        assert!(why.contains(&server.port().to_string()), "which server: {why}");
        assert!(why.contains("certificate"), "what is wrong: {why}");
    }
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
}

#[test]
fn plain_to_a_tls_server_and_tls_to_a_plain_one_are_told() {
    let (secure, plain) = (Server::start_tls(ClientCertificate::Ignored), Server::start());
    for (server, url) in [
        (&secure, secure.url().replace("rediss:", "redis:")),
        (&plain, plain.url().replace("redis:", "rediss:")),
    ] {
        let why = reason(&options(&url));
        println!("{why}");
        assert!(why.contains(&server.port().to_string()), "which server: {why}");
    }
}

#[test]
fn a_password() {
    let server = Server::start();
    server.command(&["CONFIG", "SET", "requirepass", "s3cr@t/x"]);
    let url = |credentials: &str| server.url().replace("://", &format!("://{credentials}"));
    passes(&Stand::on(&url(":s3cr%40t%2Fx@")));
    passes(&Stand::on(&url("default:s3cr%40t%2Fx@")));
    for (credentials, what) in
        [("", "NOAUTH"), (":wr0ng@", "WRONGPASS"), ("bob:s3cr%40t%2Fx@", "WRONGPASS")]
    {
        let why = reason(&options(&url(credentials)));
        println!("{why}");
        assert!(why.contains(what) || why.to_lowercase().contains("password"), "{why}");
        assert!(!why.contains("s3cr") && !why.contains("wr0ng"), "{why}");
    }
}

/// What the doctor says to change where a server cannot be used.
#[test]
fn what_to_write_instead_is_said() {
    let (secure, plain) = (Server::start_tls(ClientCertificate::Required), Server::start());
    let tls = read(secure.certificates().expect("certificates"));
    let nameless = Tls { identity: None, ..tls.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    for (url, tls, advice) in [
        (secure.url(), nameless, "--store-cert-file"),
        (secure.url(), Tls::default(), "--store-ca-file"),
        (secure.url().replace("rediss:", "redis:"), tls.clone(), "rediss://"),
        (plain.url().replace("redis:", "rediss:"), tls.clone(), "rediss://"),
        (plain.url().replace("redis:", "redis+cluster:"), tls, "it is no cluster"),
    ] {
        let found = runtime.block_on(examine(&Options { tls, ..options(&url) }));
        let [finding] = &found.findings[..] else { panic!("{url}: {found:?}") };
        assert!(finding.advice.contains(advice), "{url}: {finding:?}");
    }
}

/// A server with a user who has some rights, and how he reaches it.
fn with_user(server: &Server, name: &str, rights: &[&str]) -> String {
    let mut words = vec!["ACL", "SETUSER", name, "reset", "on", ">pw", "~tg:*", "-@all"];
    let rights: Vec<String> = rights.iter().map(|right| format!("+{right}")).collect();
    words.extend(rights.iter().map(String::as_str));
    assert_eq!(server.command(&words), Reply::Simple("OK".into()));
    server.url().replace("://", &format!("://{name}:pw@"))
}

/// What a user was not allowed.
fn denials(server: &Server, name: &str) -> Vec<String> {
    let log = server.command(&["ACL", "LOG"]);
    let fields = |entry: &Reply| {
        let words: Vec<String> = entry
            .items()
            .iter()
            .map(|word| match word {
                Reply::Array(_) | Reply::Nil => String::new(),
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
    // Who we are is told to servers that want to know (`client|setinfo`); refused, nothing is lost.
    let ours = denied.filter(|(user, object)| user == name && !object.starts_with("client"));
    ours.map(|(_, object)| object).collect()
}

fn run(url: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::start(&options(url));
        let ready = tokio::time::timeout(PATIENCE, async {
            while !store.ready(std::time::Duration::from_millis(20)).await {
                if let Some(why) = store.lost() {
                    return Err(why);
                }
            }
            Ok(())
        });
        ready.await.expect("an end")?;
        everything(&store).await?;
        // It says that it is there, and that it leaves.
        tokio::task::yield_now().await;
        store.leave().await;
        Ok(())
    })
}

#[test]
fn a_user_needs_these_rights_and_no_others() {
    let server = Server::start();
    assert_eq!(run(&with_user(&server, "enough", &RIGHTS)), Ok(()));
    assert_eq!(denials(&server, "enough"), [""; 0]);
    for (i, missing) in RIGHTS.iter().enumerate().take(RIGHTS.len() - 1) {
        let name = format!("user{i}");
        let rights: Vec<&str> = RIGHTS.into_iter().filter(|right| right != missing).collect();
        let done = run(&with_user(&server, &name, &rights));
        let denied = denials(&server, &name);
        println!("without {missing}: {done:?}, {denied:?}");
        assert!(denied.iter().any(|denied| denied == missing), "{missing} is not needed");
    }
}

#[test]
fn a_user_for_other_keys_is_told() {
    let server = Server::start();
    let url = with_user(&server, "tidegate", &RIGHTS);
    let why = reason(&Options { prefix: "other:".to_owned(), ..options(&url) });
    println!("{why}");
    assert!(why.to_lowercase().contains("noperm"), "{why}");
    assert!(why.contains("keys"), "{why}");
}

#[test]
fn a_socket_a_database_and_a_prefix() {
    let server = Server::start();
    let url = format!("unix://{}?db=3", server.socket().display());
    let stand = Stand::with(&Options { prefix: "limits:".to_owned(), ..options(&url) });
    passes(&stand);
    let policy = policy(Algorithm::TokenBucket, 5, WINDOW);
    let name = name_of("law", charge(1, &policy).key.fingerprint);
    let name = name.replacen("tg:", "limits:", 1);
    let mut client = Client::connect_unix(&server.socket()).expect("a connection");
    let mut ask = |words: &[&str]| client.command(words).expect("an answer").text();
    assert_eq!(ask(&["DBSIZE"]), "0", "nothing is in database 0");
    assert_eq!(ask(&["SELECT", "3"]), "OK");
    assert_eq!(ask(&["EXISTS", &name]), "1");
    drop(stand);

    let stand = Stand::on(&format!("{}/5", server.url()));
    passes(&stand);
    assert_eq!(ask(&["SELECT", "5"]), "OK");
    assert_eq!(ask(&["EXISTS", &name.replacen("limits:", "tg:", 1)]), "1");
    let why = reason(&options(&format!("{}/99", server.url())));
    println!("{why}");
    assert!(why.to_lowercase().contains("database") || why.contains("DB index"), "{why}");
}

/// Who comes and goes is known by the others.
#[test]
fn a_user_with_these_rights_is_counted_among_the_nodes() {
    let server = Server::start();
    let url = with_user(&server, "tidegate", &RIGHTS);
    let (one, two) = (Stand::on(&url), Stand::on(&url));
    let policy = policy(Algorithm::TokenBucket, 5, WINDOW);
    let seen = |stand: &Stand| {
        stand.apply_one(Op::Peek, charge(1, &policy));
        stand.store.nodes()
    };
    eventually("both are counted", || seen(&two) == 2 && seen(&one) == 2);
    two.runtime.block_on(two.store.leave());
    drop(two);
    eventually("one is gone", || seen(&one) == 1);
}
