//! Checks the servers for problems before they cause harm, and says what to change.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};
use tidegate_core::time::{Clock as _, SystemClock};
use tokio::time::Instant;

use crate::address::RedisTopology;
use crate::batch::ScriptBatch;
use crate::cluster::{SlotRange, fetch_slots};
use crate::connector::{ConnectionTarget, RedisConnector, parse_time, send_command};
use crate::heartbeat;
use crate::key_name::hash_slot;
use crate::lua_script::{DECIDE_SCRIPT, LuaScript};
use crate::probe::probe_request;
use crate::store::RedisOptions;

/// The oldest version that supports all commands in use (`SET … PXAT`).
const MIN_VERSION: [u32; 2] = [6, 2];

/// Number of samples per latency measurement, if they take no longer than this. A server in
/// another region gets fewer.
const SAMPLES: usize = 200;
const SAMPLING_TIME: Duration = Duration::from_secs(2);
const MIN_SAMPLES: usize = 10;

/// A larger clock difference makes reset times look wrong to clients.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// The required ACL rights.
pub const REQUIRED_ACL: &str = "~PREFIX* resetchannels -@all +evalsha +eval +script|load \
     +time +mget +set +setrange +del +hget +hset +hdel +pexpireat +zadd +zrem +zcard \
     +zremrangebyscore +pexpire +ping +info +role +client|setinfo +select +cluster|slots +asking +config|get";

/// The result of checking the servers.
#[derive(Debug, Default)]
pub struct StoreDiagnosis {
    /// The servers that hold counters.
    pub servers: Vec<RedisServerReport>,
    /// What to change, most severe first.
    pub findings: Vec<StoreFinding>,
}

/// One server.
#[derive(Debug)]
pub struct RedisServerReport {
    /// Its address.
    pub address: String,
    /// Product and version.
    pub version: String,
    /// Used memory and the limit.
    pub memory: String,
    /// The eviction policy.
    pub eviction: String,
    /// How far its clock is ahead of ours, in microseconds.
    pub clock_ahead: i64,
    /// Latency of a PING.
    pub round_trip: LatencySummary,
    /// Latency of a decision.
    pub decision: LatencySummary,
}

/// Percentiles of a latency.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencySummary {
    /// Median.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
}

/// Something to know or to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFinding {
    /// How severe it is.
    pub severity: FindingSeverity,
    /// The server, or the store's address if no server was reached.
    pub server: String,
    /// What was found.
    pub what: String,
    /// What to do.
    pub advice: String,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingSeverity {
    /// The store does not work like this.
    Error,
    /// The store works, but limits may be wrong.
    Warning,
    /// For information.
    Note,
}

/// Checks every server that holds counters.
pub async fn diagnose(options: &RedisOptions) -> StoreDiagnosis {
    let connector = RedisConnector::new(&options.address, &options.tls);
    let mut diagnosis = StoreDiagnosis::default();
    let targets = match connection_targets(&connector, &options.address.topology).await {
        Ok(targets) => targets,
        Err(why) => {
            let server = options.address.to_string();
            diagnosis.findings.push(unreachable_finding(server, &why));
            return diagnosis;
        }
    };
    for (target, slot) in targets {
        let name = target.to_string();
        match connector.open(&target).await {
            Err(why) => diagnosis.findings.push(unreachable_finding(name, &why)),
            Ok(connection) => {
                let mut examiner =
                    ServerExaminer { name, connection, options, findings: Vec::new() };
                let server = examiner.run_checks(slot).await;
                diagnosis.findings.append(&mut examiner.findings);
                diagnosis.servers.extend(server);
            }
        }
    }
    diagnosis.findings.sort_by_key(|finding| finding.severity);
    diagnosis
}

/// The servers to check; for cluster nodes, each with a slot that it owns.
async fn connection_targets(
    connector: &RedisConnector,
    topology: &RedisTopology,
) -> Result<Vec<(ConnectionTarget, Option<u16>)>, String> {
    let seeds = match ConnectionTarget::from_topology(topology) {
        Ok(target) => return Ok(vec![(target, None)]),
        Err(seeds) => seeds,
    };
    let mut why = "no cluster node is given".to_owned();
    for seed in seeds {
        match fetch_slots(connector, seed).await {
            Ok(ranges) => return Ok(primaries(ranges)),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Each primary once, with a slot that it owns.
fn primaries(ranges: Vec<SlotRange>) -> Vec<(ConnectionTarget, Option<u16>)> {
    let mut targets: Vec<(ConnectionTarget, Option<u16>)> = Vec::new();
    for range in ranges {
        let target = ConnectionTarget::Server(range.primary);
        if !targets.iter().any(|(known, _)| *known == target) {
            targets.push((target, Some(range.first)));
        }
    }
    targets
}

fn unreachable_finding(server: String, why: &str) -> StoreFinding {
    let advice = if why.contains("NOAUTH") || why.contains("WRONGPASS") || why.contains("AUTH") {
        "pass the password with --store-password-file FILE (and --store-user NAME)"
    } else if why.contains("CertificateRequired") {
        "pass a client certificate with --store-cert-file FILE and --store-key-file FILE"
    } else if why.contains("certificate") || why.contains("tls") || why.contains("TLS") {
        "pass the CA that signed its certificate with --store-ca-file FILE"
    } else if why.contains("reset by peer") {
        "if it uses TLS, write rediss://"
    } else if why.contains("timed out") {
        "check the network and firewalls; a server without TLS does not answer rediss://"
    } else if why.contains("cluster support disabled") {
        "not a cluster: write --store redis://HOST:PORT"
    } else {
        "start the server or correct --store; until it answers, rules follow their on_fail"
    };
    StoreFinding {
        severity: FindingSeverity::Error,
        server,
        what: format!("cannot be used: {why}"),
        advice: advice.to_owned(),
    }
}

/// Checks one server.
struct ServerExaminer<'a> {
    name: String,
    connection: MultiplexedConnection,
    options: &'a RedisOptions,
    findings: Vec<StoreFinding>,
}

impl ServerExaminer<'_> {
    async fn run_checks(&mut self, slot: Option<u16>) -> Option<RedisServerReport> {
        let info = match self.query_text(cmd("INFO").arg("everything")).await {
            Ok(info) => info,
            Err(why) => {
                self.add_finding(
                    FindingSeverity::Note,
                    &format!("cannot read INFO ({why})"),
                    "grant the ACL right +info",
                );
                String::new()
            }
        };
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        let version = self.check_version(&field("redis_version"), &field("valkey_version"));
        if field("role") == "slave" {
            let primary = format!("{}:{}", field("master_host"), field("master_port"));
            self.add_finding(
                FindingSeverity::Error,
                "it is a replica and rejects writes",
                &format!("use its primary, redis://{primary}, or redis+sentinel://"),
            );
        }
        if field("redis_mode") == "cluster" && slot.is_none() {
            self.add_finding(
                FindingSeverity::Error,
                "it is a node of a cluster",
                &format!("write --store redis+cluster://{}", self.name),
            );
        }
        let eviction = self.check_eviction(&field("maxmemory_policy"), &field("maxmemory")).await;
        if field("maxmemory") == "0" {
            self.add_finding(
                FindingSeverity::Note,
                "maxmemory is not set",
                "set maxmemory, so that it rejects writes before the machine runs out of memory",
            );
        }
        let clock_ahead = self.clock_ahead().await.unwrap_or_default();
        if clock_ahead.unsigned_abs() > u64::try_from(CLOCK_TOLERANCE.as_micros()).unwrap_or(0) {
            self.add_finding(
                FindingSeverity::Warning,
                &format!("its clock differs from ours by {:+.1} s", clock_ahead as f64 / 1e6),
                "run NTP on both; limits stay exact, but clients see wrong reset times",
            );
        }
        self.check_heartbeat().await;
        let round_trip = self.measure_command(&cmd("PING")).await.unwrap_or_default();
        let decision = self.measure_decision(slot).await?;
        if decision.p99 > self.options.deadline {
            self.add_finding(
                FindingSeverity::Warning,
                &format!(
                    "p99 decision time is {} µs, above the deadline of {:?}",
                    decision.p99.as_micros(),
                    self.options.deadline
                ),
                "move the server closer, or raise --store-deadline",
            );
        }
        let memory = match (field("used_memory_human"), field("maxmemory_human")) {
            (used, limit) if limit.is_empty() || limit == "0B" => format!("{used}, no limit"),
            (used, limit) => format!("{used} of {limit}"),
        };
        let address = self.name.clone();
        Some(RedisServerReport {
            address,
            version,
            memory,
            eviction,
            clock_ahead,
            round_trip,
            decision,
        })
    }

    fn check_version(&mut self, redis: &str, valkey: &str) -> String {
        let (name, version) = if valkey.is_empty() { ("Redis", redis) } else { ("Valkey", valkey) };
        let mut numbers = redis.split('.').map(|part| part.parse().unwrap_or(0));
        let known = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
        if !redis.is_empty() && known < MIN_VERSION {
            self.add_finding(
                FindingSeverity::Error,
                &format!("{name} {version} is too old"),
                "use Redis 6.2 or newer, or Valkey",
            );
        }
        format!("{name} {version}")
    }

    async fn check_eviction(&mut self, reported: &str, maxmemory: &str) -> String {
        let mut policy = reported.to_owned();
        if policy.is_empty() {
            match send_command(
                &mut self.connection,
                cmd("CONFIG").arg("GET").arg("maxmemory-policy"),
            )
            .await
            {
                Ok(Value::Array(pair)) => {
                    if let Some(Value::BulkString(value)) = pair.get(1) {
                        policy = String::from_utf8_lossy(value).into_owned();
                    }
                }
                _ => self.add_finding(
                    FindingSeverity::Note,
                    "cannot read its eviction policy",
                    "make sure that maxmemory-policy is noeviction",
                ),
            }
        }
        if !policy.is_empty() && policy != "noeviction" {
            let severity =
                if maxmemory == "0" { FindingSeverity::Note } else { FindingSeverity::Warning };
            self.add_finding(
                severity,
                &format!(
                    "its eviction policy is {policy}: when its memory is full, \
                     it evicts counters, which lifts limits"
                ),
                "CONFIG SET maxmemory-policy noeviction, and use a dedicated instance",
            );
        }
        policy
    }

    async fn clock_ahead(&mut self) -> Option<i64> {
        let ours = SystemClock::new();
        let sent_at = ours.now();
        let theirs = parse_time(&send_command(&mut self.connection, &cmd("TIME")).await.ok()?)?;
        let middle = (sent_at.as_micros() + ours.now().as_micros()) / 2;
        i64::try_from(theirs.as_micros()).ok()?.checked_sub_unsigned(middle)
    }

    /// Checks that nodes can record heartbeats; node shares of a limit depend on them.
    async fn check_heartbeat(&mut self) {
        let command = heartbeat::heartbeat_command(&self.options.prefix, "examiner", false);
        match send_command(&mut self.connection, &command).await {
            // Another server of the cluster owns that key.
            Err(why) if why.contains("MOVED") || why.contains("READONLY") => {}
            Err(why) => self.add_denied_finding(&why, "nodes cannot record heartbeats"),
            Ok(_) => {}
        }
    }

    /// Measures the real script on a counter that limits no client.
    async fn measure_decision(&mut self, on: Option<u16>) -> Option<LatencySummary> {
        let request = probe_request(&self.options.prefix, on).ok()?;
        debug_assert!(on.is_none_or(|on| {
            request.items.iter().all(|item| hash_slot(&item.location.name) == on)
        }));
        let (requests, script) = ([Arc::new(request)], LuaScript::new(DECIDE_SCRIPT));
        let batch = ScriptBatch::new(&requests);
        if let Err(why) =
            send_command(&mut self.connection, &batch.command(&script, true, None)).await
        {
            self.add_denied_finding(&why, "it rejects the script");
            return None;
        }
        match self.measure_command(&batch.command(&script, false, None)).await {
            Ok(timing) => Some(timing),
            Err(why) => {
                self.add_denied_finding(&why, "it rejects the script by hash (EVALSHA)");
                None
            }
        }
    }

    fn add_denied_finding(&mut self, why: &str, what: &str) {
        let advice = match why {
            _ if why.contains("NOPERM") || why.contains("permissions") => {
                let rights = REQUIRED_ACL.replace("PREFIX", &self.options.prefix);
                format!("grant its user these rights: ACL SETUSER NAME on >PASSWORD {rights}")
            }
            _ if why.contains("READONLY") => return,
            _ if why.contains("MOVED") => format!("write --store redis+cluster://{}", self.name),
            _ if why.contains("OOM") => "its memory is full: raise maxmemory".to_owned(),
            _ => "check this message and the server's log".to_owned(),
        };
        self.add_finding(FindingSeverity::Error, &format!("{what}: {why}"), &advice);
    }

    async fn measure_command(&mut self, command: &Cmd) -> Result<LatencySummary, String> {
        let (started, mut times) = (Instant::now(), Vec::with_capacity(SAMPLES));
        let enough = |taken: usize| taken >= MIN_SAMPLES && started.elapsed() > SAMPLING_TIME;
        while times.len() < SAMPLES && !enough(times.len()) {
            let sent_at = Instant::now();
            send_command(&mut self.connection, command).await?;
            times.push(sent_at.elapsed());
        }
        times.sort();
        Ok(LatencySummary { p50: times[times.len() / 2], p99: times[times.len() * 99 / 100] })
    }

    async fn query_text(&mut self, command: &Cmd) -> Result<String, String> {
        match send_command(&mut self.connection, command).await? {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Value::VerbatimString { text, .. } => Ok(text),
            _ => Err("unexpected reply type".to_owned()),
        }
    }

    fn add_finding(&mut self, severity: FindingSeverity, what: &str, advice: &str) {
        let (server, what) = (self.name.clone(), what.to_owned());
        self.findings.push(StoreFinding { severity, server, what, advice: advice.to_owned() });
    }
}
