//! What is dangerous about a server, found before it does harm, with what to change.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};
use tidegate_core::time::{Clock as _, SystemClock};
use tokio::time::Instant;

use crate::address::Topology;
use crate::batch::Batch;
use crate::canary::canary;
use crate::cluster::{Range, slots};
use crate::connect::{Connector, Place, ask, instant};
use crate::name::slot;
use crate::nodes;
use crate::script::{DECIDE, Text};
use crate::store::Options;

/// The oldest version that does what is asked of it (`SET … PXAT`).
const OLDEST: [u32; 2] = [6, 2];

/// How often each thing is measured.
const TIMES: usize = 200;

/// A clock that is further from ours than this makes waits look wrong to people.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// The rights that are needed, as ACL rules.
pub const RIGHTS: &str = "~PREFIX* resetchannels -@all +evalsha +eval +script|load +time +mget +set \
     +setrange +del +hget +hset +hdel +pexpireat +zadd +zrem +zcard +zremrangebyscore +pexpire \
     +ping +info +role +client|setinfo +select +cluster|slots +asking +config|get";

/// What was found out about the servers.
#[derive(Debug, Default)]
pub struct Examination {
    /// Each server that counters are kept on.
    pub servers: Vec<Server>,
    /// What to change, the gravest first.
    pub findings: Vec<Finding>,
}

/// One server.
#[derive(Debug)]
pub struct Server {
    /// Where it is.
    pub place: String,
    /// What it says it is.
    pub version: String,
    /// How much memory it uses, and may use.
    pub memory: String,
    /// What it does when that is full.
    pub eviction: String,
    /// By how many microseconds its clock is ahead of ours.
    pub clock_ahead: i64,
    /// How long it takes to answer at all.
    pub round_trip: Timing,
    /// How long it takes to decide.
    pub decision: Timing,
}

/// How long something takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Half of the times it took less.
    pub p50: Duration,
    /// All but one in a hundred times it took less.
    pub p99: Duration,
}

/// Something to know or to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How grave it is.
    pub weight: Weight,
    /// Which server, if it is one.
    pub server: String,
    /// What was found.
    pub what: String,
    /// What to do.
    pub advice: String,
}

/// How grave something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// It does not work like this.
    Error,
    /// It works, but limits may be wrong.
    Warning,
    /// It is good to know.
    Note,
}

/// Looks at every server that counters are kept on.
pub async fn examine(options: &Options) -> Examination {
    let connector = Connector::new(&options.address, &options.tls);
    let mut examination = Examination::default();
    let places = match places(&connector, &options.address.topology).await {
        Ok(places) => places,
        Err(why) => {
            let server = options.address.to_string();
            examination.findings.push(unreachable(server, &why));
            return examination;
        }
    };
    for (place, slot) in places {
        let name = place.to_string();
        match connector.open(&place).await {
            Err(why) => examination.findings.push(unreachable(name, &why)),
            Ok(connection) => {
                let mut examiner = Examiner { name, connection, options, findings: Vec::new() };
                let server = examiner.examine(slot).await;
                examination.findings.append(&mut examiner.findings);
                examination.servers.extend(server);
            }
        }
    }
    examination.findings.sort_by_key(|finding| finding.weight);
    examination
}

/// The servers, each with a slot of its own where it is one of a cluster.
async fn places(
    connector: &Connector,
    topology: &Topology,
) -> Result<Vec<(Place, Option<u16>)>, String> {
    let seeds = match Place::of(topology) {
        Ok(place) => return Ok(vec![(place, None)]),
        Err(seeds) => seeds,
    };
    let mut why = "no server is named".to_owned();
    for seed in seeds {
        match slots(connector, seed).await {
            Ok(ranges) => return Ok(primaries(ranges)),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Each primary once, with a slot of its own.
fn primaries(ranges: Vec<Range>) -> Vec<(Place, Option<u16>)> {
    let mut places: Vec<(Place, Option<u16>)> = Vec::new();
    for range in ranges {
        let place = Place::Server(range.primary);
        if !places.iter().any(|(known, _)| *known == place) {
            places.push((place, Some(range.first)));
        }
    }
    places
}

fn unreachable(server: String, why: &str) -> Finding {
    let advice = if why.contains("NOAUTH") || why.contains("WRONGPASS") || why.contains("AUTH") {
        "give the password: --store-password-file FILE (and --store-user NAME)"
    } else if why.contains("CertificateRequired") {
        "give it a certificate of ours: --store-cert-file FILE and --store-key-file FILE"
    } else if why.contains("certificate") || why.contains("tls") || why.contains("TLS") {
        "give the authority that signed its certificate: --store-ca-file FILE"
    } else if why.contains("reset by peer") {
        "if it speaks TLS, write rediss://"
    } else if why.contains("timed out") {
        "see that nothing is in the way; a server without TLS does not answer rediss://"
    } else if why.contains("cluster support disabled") {
        "it is no cluster: write --store redis://HOST:PORT"
    } else {
        "start it, or correct --store; until it answers, rules follow their on_fail"
    };
    Finding {
        weight: Weight::Error,
        server,
        what: format!("cannot be used: {why}"),
        advice: advice.to_owned(),
    }
}

/// Looks at one server.
struct Examiner<'a> {
    name: String,
    connection: MultiplexedConnection,
    options: &'a Options,
    findings: Vec<Finding>,
}

impl Examiner<'_> {
    async fn examine(&mut self, slot: Option<u16>) -> Option<Server> {
        let info = match self.text(cmd("INFO").arg("everything")).await {
            Ok(info) => info,
            Err(why) => {
                self.found(Weight::Note, &format!("INFO cannot be read ({why})"), "allow +info");
                String::new()
            }
        };
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        let version = self.version(&field("redis_version"), &field("valkey_version"));
        if field("role") == "slave" {
            let primary = format!("{}:{}", field("master_host"), field("master_port"));
            self.found(
                Weight::Error,
                "it is a replica: it takes no writes",
                &format!("use its primary, redis://{primary}, or redis+sentinel://"),
            );
        }
        if field("redis_mode") == "cluster" && slot.is_none() {
            self.found(
                Weight::Error,
                "it is one server of a cluster",
                &format!("write --store redis+cluster://{}", self.name),
            );
        }
        let eviction = self.eviction(&field("maxmemory_policy"), &field("maxmemory")).await;
        if field("maxmemory") == "0" {
            self.found(
                Weight::Note,
                "it has no memory limit of its own",
                "set maxmemory, so that it refuses writes before the machine runs out",
            );
        }
        let clock_ahead = self.clock_ahead().await.unwrap_or_default();
        if clock_ahead.unsigned_abs() > u64::try_from(CLOCK_TOLERANCE.as_micros()).unwrap_or(0) {
            self.found(
                Weight::Warning,
                &format!("its clock is {:+.1} s from ours", clock_ahead as f64 / 1e6),
                "run NTP on both; limits are exact on its clock, but reset times look wrong",
            );
        }
        self.heartbeat().await;
        let round_trip = self.time(&cmd("PING")).await.unwrap_or_default();
        let decision = self.decision(slot).await?;
        if decision.p99 > self.options.deadline {
            self.found(
                Weight::Warning,
                &format!(
                    "one decision in a hundred takes longer than {} µs, the deadline is {:?}",
                    decision.p99.as_micros(),
                    self.options.deadline
                ),
                "bring it closer, or raise --store-deadline",
            );
        }
        let memory = match (field("used_memory_human"), field("maxmemory_human")) {
            (used, most) if most.is_empty() || most == "0B" => format!("{used}, no limit"),
            (used, most) => format!("{used} of {most}"),
        };
        let place = self.name.clone();
        Some(Server { place, version, memory, eviction, clock_ahead, round_trip, decision })
    }

    fn version(&mut self, redis: &str, valkey: &str) -> String {
        let (name, version) = if valkey.is_empty() { ("Redis", redis) } else { ("Valkey", valkey) };
        let mut numbers = redis.split('.').map(|part| part.parse().unwrap_or(0));
        let known = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
        if !redis.is_empty() && known < OLDEST {
            self.found(
                Weight::Error,
                &format!("{name} {version} is too old"),
                "use Redis 6.2 or newer, or Valkey",
            );
        }
        format!("{name} {version}")
    }

    async fn eviction(&mut self, told: &str, maxmemory: &str) -> String {
        let mut policy = told.to_owned();
        if policy.is_empty() {
            match ask(&mut self.connection, cmd("CONFIG").arg("GET").arg("maxmemory-policy")).await
            {
                Ok(Value::Array(pair)) => {
                    if let Some(Value::BulkString(value)) = pair.get(1) {
                        policy = String::from_utf8_lossy(value).into_owned();
                    }
                }
                _ => self.found(
                    Weight::Note,
                    "its eviction policy cannot be read",
                    "make sure that it is noeviction",
                ),
            }
        }
        if !policy.is_empty() && policy != "noeviction" {
            let weight = if maxmemory == "0" { Weight::Note } else { Weight::Warning };
            self.found(
                weight,
                &format!(
                    "its eviction policy is {policy}: full, it forgets counters and lifts limits"
                ),
                "CONFIG SET maxmemory-policy noeviction, and use an instance of its own",
            );
        }
        policy
    }

    async fn clock_ahead(&mut self) -> Option<i64> {
        let ours = SystemClock::new();
        let asked = ours.now();
        let theirs = instant(&ask(&mut self.connection, &cmd("TIME")).await.ok()?)?;
        let middle = (asked.as_micros() + ours.now().as_micros()) / 2;
        i64::try_from(theirs.as_micros()).ok()?.checked_sub_unsigned(middle)
    }

    /// Whether nodes can tell each other that they live; a share of a limit depends on it.
    async fn heartbeat(&mut self) {
        let command = nodes::command(&self.options.prefix, "examiner", false);
        match ask(&mut self.connection, &command).await {
            // Another server of the cluster has that key.
            Err(why) if why.contains("MOVED") || why.contains("READONLY") => {}
            Err(why) => self.denied(&why, "nodes cannot count each other"),
            Ok(_) => {}
        }
    }

    /// How long the real script takes to charge a counter that limits nobody.
    async fn decision(&mut self, on: Option<u16>) -> Option<Timing> {
        let ask_of = canary(&self.options.prefix, on).ok()?;
        debug_assert!(
            on.is_none_or(|on| ask_of.items.iter().all(|item| slot(&item.home.name) == on))
        );
        let (asks, script) = ([Arc::new(ask_of)], Text::new(DECIDE));
        let batch = Batch::new(&asks);
        if let Err(why) = ask(&mut self.connection, &batch.command(&script, true, None)).await {
            self.denied(&why, "it does not run the script");
            return None;
        }
        match self.time(&batch.command(&script, false, None)).await {
            Ok(timing) => Some(timing),
            Err(why) => {
                self.denied(&why, "it does not run the script by its name");
                None
            }
        }
    }

    fn denied(&mut self, why: &str, what: &str) {
        let advice = match why {
            _ if why.contains("NOPERM") || why.contains("permissions") => {
                let rights = RIGHTS.replace("PREFIX", &self.options.prefix);
                format!("give its user the rights: ACL SETUSER NAME on >PASSWORD {rights}")
            }
            _ if why.contains("READONLY") => return,
            _ if why.contains("MOVED") => format!("write --store redis+cluster://{}", self.name),
            _ if why.contains("OOM") => "it is full: raise maxmemory".to_owned(),
            _ => "see what it says, and its log".to_owned(),
        };
        self.found(Weight::Error, &format!("{what}: {why}"), &advice);
    }

    async fn time(&mut self, command: &Cmd) -> Result<Timing, String> {
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let asked = Instant::now();
            ask(&mut self.connection, command).await?;
            times.push(asked.elapsed());
        }
        times.sort();
        Ok(Timing { p50: times[TIMES / 2], p99: times[TIMES * 99 / 100] })
    }

    async fn text(&mut self, command: &Cmd) -> Result<String, String> {
        match ask(&mut self.connection, command).await? {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Value::VerbatimString { text, .. } => Ok(text),
            _ => Err("a strange answer".to_owned()),
        }
    }

    fn found(&mut self, weight: Weight, what: &str, advice: &str) {
        let (server, what) = (self.name.clone(), what.to_owned());
        self.findings.push(Finding { weight, server, what, advice: advice.to_owned() });
    }
}
