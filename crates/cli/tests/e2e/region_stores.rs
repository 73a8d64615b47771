//! Stores of other regions of each kind: with TLS and an ACL user, behind Sentinel, and a cluster.
//! All regions have the same document, which lists the stores of all of them.

use serde_json::{Value, json};
use tidegate_redis::REQUIRED_ACL;
use tidegate_testkit::redis::{
    ClientCertificatePolicy, RedisCluster, RedisServer as Redis, SentinelGroup, TestCertificates,
};

use crate::regions::{await_borrowed, await_lent, await_state};
use crate::support::{HttpTestClient, ServerProcess, TestFolder, wait_for};

const RULES: &str = "rules:
  - id: global
    key_by: global
    limit: 200/s burst 400
    consistency: leased
    regions: { shares: { eu: 50%, us: 50% }, borrow: {} }
";

/// Region `eu` with a plain server, and the document of both regions.
struct LenderFixture {
    eu: Redis,
    folder: TestFolder,
}

impl LenderFixture {
    /// `us` is the entry of the other region in `region_stores`.
    fn start(us: &str) -> Self {
        let (eu, folder) = (Redis::start(), TestFolder::new());
        let stores = format!("{{ eu: \"{}\", us: {us} }}", eu.url());
        folder.write("rules.yaml", format!("server: {{ region_stores: {stores} }}\n{RULES}"));
        Self { eu, folder }
    }

    fn start_node(&self, region: &str, store: &str, args: &[&str]) -> ServerProcess {
        let common = ["--region", region, "--store", store, "--store-deadline", "2s"];
        let args = [&common[..], &["--admin", "127.0.0.1:0"], args].concat();
        ServerProcess::with_config(&self.folder.path("rules.yaml"), &args)
    }

    /// Starts a node in each region, and lets that of `eu` borrow from `us`.
    fn borrow_from(&self, us_store: &str, us_args: &[&str]) -> [ServerProcess; 2] {
        let us = self.start_node("us", us_store, us_args);
        let eu = self.start_node("eu", &self.eu.url(), &[]);
        await_state(&us, "usable");
        let status = await_state(&eu, "usable");
        let lenders = status["regions"]["lenders"].as_array().unwrap();
        assert_eq!(lenders.len(), 1, "the own region is no lender: {lenders:?}");
        await_borrowed(&mut eu.client(), &json!({}));
        await_lent(&us, "eu");
        [eu, us]
    }
}

/// A user with no more than the documented rights.
fn create_user(server: &Redis) {
    let rights = REQUIRED_ACL.replace("PREFIX", "tg:");
    let mut words = vec!["ACL", "SETUSER", "tidegate", "on", ">region-password"];
    // Redis knows this command only since 7.2, and does not grant a right that it does not know.
    words.extend(rights.split_whitespace().filter(|right| *right != "+client|setinfo"));
    assert_eq!(server.command(&words).text(), "OK");
}

fn tls_entry(url: &str, certificates: &TestCertificates, ca: bool) -> String {
    let ca_file = if ca { format!("ca_file: {:?}, ", certificates.ca()) } else { String::new() };
    format!(
        "{{ url: \"{url}\", user: tidegate, password_file: us.password, {ca_file}cert_file: {:?}, \
         key_file: {:?} }}",
        certificates.client(),
        certificates.client_key()
    )
}

#[test]
fn region_with_tls_and_restricted_user_lends() {
    let us = Redis::start_tls(ClientCertificatePolicy::Required);
    create_user(&us);
    let certificates = us.certificates().unwrap();
    let regions = LenderFixture::start(&tls_entry(&us.url(), certificates, true));
    let password = regions.folder.write("us.password", "region-password\n");
    let files = [certificates.ca(), certificates.client(), certificates.client_key(), password];
    let [ca, cert, key, password] = files.each_ref().map(|path| path.to_str().unwrap());
    let mut own = vec!["--store-user", "tidegate", "--store-password-file", password];
    own.extend(["--store-ca-file", ca, "--store-cert-file", cert, "--store-key-file", key]);
    let nodes = regions.borrow_from(&us.url(), &own);
    nodes.into_iter().for_each(ServerProcess::stop);
}

#[test]
fn region_with_unknown_certificate_authority_is_unreachable() {
    let us = Redis::start_tls(ClientCertificatePolicy::Required);
    let regions = LenderFixture::start(&tls_entry(&us.url(), us.certificates().unwrap(), false));
    regions.folder.write("us.password", "region-password\n");
    let eu = regions.start_node("eu", &regions.eu.url(), &[]);
    let status = await_state(&eu, "unreachable");
    let reason = status["regions"]["lenders"][0]["reason"].to_string().to_lowercase();
    assert!(reason.contains("certificate") || reason.contains("issuer"), "{reason}");
    eu.stop();
}

fn granted(node: &ServerProcess) -> Value {
    let status = HttpTestClient::connect(&node.admin_address()).get("/v1/status").body;
    status["regions"]["rules"]["global"]["granted"].clone()
}

#[test]
fn region_behind_sentinel_lends_after_failover() {
    let sentinels = SentinelGroup::start();
    let hosts: Vec<String> =
        sentinels.sentinels().iter().map(|each| each.address().to_string()).collect();
    let url = format!("redis+sentinel://{}/{}", hosts.join(","), sentinels.master_name());
    let regions = LenderFixture::start(&format!("\"{url}\""));
    let [eu, us] = regions.borrow_from(&url, &[]);
    let old = sentinels.kill_primary();
    let borrowed_before = granted(&eu);
    sentinels.await_failover(old);
    let (mut client, facts) = (eu.client(), json!({}));
    wait_for("units of the new primary", || {
        (0..200).for_each(|_| _ = client.check(&facts));
        (granted(&eu).as_u64() > borrowed_before.as_u64()).then_some(())
    });
    await_state(&eu, "usable");
    [eu, us].into_iter().for_each(ServerProcess::stop);
}

#[test]
fn region_with_cluster_lends() {
    let cluster = RedisCluster::start();
    let hosts: Vec<String> =
        cluster.nodes()[..3].iter().map(|node| node.address().to_string()).collect();
    let url = format!("redis+cluster://{}", hosts.join(","));
    let regions = LenderFixture::start(&format!("\"{url}\""));
    let nodes = regions.borrow_from(&url, &[]);
    nodes.into_iter().for_each(ServerProcess::stop);
}
