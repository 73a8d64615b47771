//! One run: moves true time from event to event, and checks every decision.

use std::collections::BTreeMap;
use std::fmt;

use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Algorithm;
use tidegate_limiter::SeededBug;

use crate::checker::{Checker, RequestSpan, StoreSpec};
use crate::clock::{MAX_DRIFT_PPM, MachineClock};
use crate::executor::{Executor, Spawner};
use crate::fault::FaultKind;
use crate::link::{LostFlush, NodeLink, StoreMessage};
use crate::node::{Node, NodeParts, Report, Reports, Request, SWEEP_EVERY};
use crate::random::Random;
use crate::rule_spec::{RuleSpec, compile_rules};
use crate::scenario::{RECOVERY, Scenario};
use crate::sim_store::SimStore;
use crate::store_server::{StoreAnswer, StoreServer};
use crate::world::{Event, World};

/// How a run is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// The bug to switch on.
    pub bug: Option<SeededBug>,
    /// Whether the events are kept as text.
    pub keeps_trace: bool,
}

/// What a run amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Requests decided.
    pub decided: u64,
    /// Requests admitted.
    pub admitted: u64,
    /// Calls to the store.
    pub store_calls: u64,
    /// Units that nodes spent of leases.
    pub leased_units: u64,
    /// Units that nodes admitted on asynchronous rules.
    pub async_units: u64,
    /// Events in the trace.
    pub events: u64,
    /// A hash of the trace: equal for equal runs.
    pub digest: u64,
    /// What was wrong, if anything.
    pub violation: Option<String>,
    /// The trace, if it was kept.
    pub trace: Vec<String>,
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decided, admitted, store_calls, leased_units, async_units, .. } = self;
        write!(
            f,
            "{decided} requests decided, {admitted} admitted, {leased_units} units spent of \
             leases, {async_units} admitted asynchronously, {store_calls} store calls"
        )
    }
}

/// Runs one seed.
#[must_use]
pub fn run_seed(seed: u64, options: RunOptions) -> RunSummary {
    let scenario = Scenario::draw(seed);
    match Simulation::new(scenario, options) {
        Ok(mut simulation) => simulation.run(),
        Err(error) => RunSummary {
            decided: 0,
            admitted: 0,
            store_calls: 0,
            leased_units: 0,
            async_units: 0,
            events: 0,
            digest: 0,
            violation: Some(error),
            trace: Vec::new(),
        },
    }
}

/// What became of the demand of a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetUse {
    /// How much of the limit was used.
    pub used_percent: f64,
    /// How many requests were refused.
    pub refused: u64,
    /// Calls to the store in a second by each node.
    pub calls_per_second: f64,
}

/// Runs eight nodes with skewed demand of this much of a limit of 1000/s, after the burst of 2000
/// is used up, without faults.
///
/// # Errors
/// If a bound was exceeded.
pub fn run_skewed_fleet(percent_of_limit: u64) -> Result<FleetUse, String> {
    const WARM_UP: u64 = 5_000_000;
    const MEASURED: u64 = 20_000_000;
    let scenario = Scenario::skewed(percent_of_limit, WARM_UP + MEASURED);
    let mut simulation = Simulation::new(scenario, RunOptions::default())?;
    simulation.run_until(WARM_UP);
    let (admitted, refused) = (simulation.admitted, simulation.refused);
    let calls_before = simulation.store_calls();
    simulation.run_until(WARM_UP + MEASURED);
    simulation.check_now(true)?;
    let seconds = MEASURED / 1_000_000;
    let (admitted, refused) = (simulation.admitted - admitted, simulation.refused - refused);
    let calls = simulation.store_calls() - calls_before;
    let fleet = FleetUse {
        used_percent: ratio(admitted * 100, 1_000 * seconds),
        refused,
        calls_per_second: ratio(calls, 8 * seconds),
    };
    simulation.violation.map_or(Ok(fleet), Err)
}

#[expect(clippy::cast_precision_loss, reason = "only for a report")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}

struct Simulation {
    world: World,
    executor: Executor,
    spawner: Spawner,
    reports: Reports,
    scenario: Scenario,
    bug: Option<SeededBug>,
    random: Random,
    servers: Vec<StoreServer>,
    /// Until when each store's process stands still.
    stopped_until: Vec<u64>,
    /// All nodes that ever were.
    nodes: Vec<Node>,
    /// For each place in the fleet, the node that holds it.
    fleet: Vec<usize>,
    version: usize,
    edit: Option<EditInProgress>,
    checker: Checker,
    decided: u64,
    admitted: u64,
    refused: u64,
    violation: Option<String>,
}

struct EditInProgress {
    version: usize,
    /// One for each store.
    disturbances: Vec<usize>,
    /// Nodes that do not have the rules yet.
    missing: Vec<usize>,
}

const START: u64 = 1_700_000_000_000_000;
const CHECK_EVERY: u64 = 100_000;
const HEARTBEAT_EVERY: u64 = 200_000;

impl Simulation {
    fn new(scenario: Scenario, options: RunOptions) -> Result<Self, String> {
        let world = World::new(options.keeps_trace);
        let mut random = scenario.random.clone();
        let start = START + random.below(10_000_000);
        let clock = |ppm: &i64| StoreSpec {
            clock: MachineClock::new(world.time.clone(), start, *ppm),
            ppm: *ppm,
        };
        let stores: Vec<StoreSpec> = scenario.store_ppm.iter().map(clock).collect();
        let checker = Checker::new(&scenario, &stores);
        let async_rules = scenario.rule_ids(RuleSpec::is_async);
        let server = |(id, store): (usize, StoreSpec)| {
            StoreServer::new(id, store.clock, async_rules.clone())
        };
        let executor = Executor::default();
        let mut simulation = Self {
            spawner: executor.spawner(),
            world,
            executor,
            reports: Reports::default(),
            bug: options.bug,
            random,
            stopped_until: vec![0; stores.len()],
            servers: stores.into_iter().enumerate().map(server).collect(),
            nodes: Vec::new(),
            fleet: Vec::new(),
            version: 0,
            edit: None,
            checker,
            decided: 0,
            admitted: 0,
            refused: 0,
            violation: None,
            scenario,
        };
        for _ in 0..simulation.scenario.nodes {
            let node = simulation.start_node()?;
            simulation.fleet.push(node);
        }
        simulation.schedule_all();
        Ok(simulation)
    }

    fn schedule_all(&mut self) {
        for (index, fault) in self.scenario.faults.iter().enumerate() {
            self.world.schedule(fault.at, Event::Fault(index));
        }
        for stream in 0..self.scenario.streams.len() {
            self.world.schedule(0, Event::Arrival { stream });
        }
        self.world.schedule(0, Event::Heartbeat);
        self.world.schedule(CHECK_EVERY, Event::Check);
        let scenario = &self.scenario;
        self.world.trace.record(0, || format!("{scenario:#?}"));
    }

    fn run(&mut self) -> RunSummary {
        let end = self.scenario.end();
        self.run_until(end);
        if self.violation.is_none() {
            let result = self.check_end();
            self.violation = result.err();
        }
        self.summary()
    }

    fn run_until(&mut self, end: u64) {
        loop {
            while self.executor.run_one() {
                self.process_reports();
            }
            if self.violation.is_some() {
                return;
            }
            let Some(event) = self.world.next_event(end) else { return };
            let result = self.handle(event);
            self.violation = result.err();
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Wake(waker) => waker.wake(),
            Event::Message(message) => self.deliver(message),
            Event::Answer(answer) => {
                let StoreAnswer { node, store, connection, call, answer } = *answer;
                self.nodes[node].store.links[store].deliver(&call, connection, answer);
            }
            Event::Arrival { stream } => self.arrive(stream),
            Event::Fault(index) => return self.inject(self.scenario.faults[index].kind),
            Event::Heartbeat => {
                self.send_heartbeats();
                self.world.schedule(self.world.now() + HEARTBEAT_EVERY, Event::Heartbeat);
            }
            Event::Check => {
                self.world.schedule(self.world.now() + CHECK_EVERY, Event::Check);
                return self.check_now(false);
            }
        }
        Ok(())
    }

    /// A store's machine runs a request, unless it was lost with its connection.
    fn deliver(&mut self, message: Box<StoreMessage>) {
        let stopped_until = self.stopped_until[message.store];
        if self.world.now() < stopped_until {
            return self.world.schedule(stopped_until, Event::Message(message));
        }
        let link = self.nodes[message.node].store.links[message.store].clone();
        if !link.carries(message.connection) && !message.survives_cut {
            return;
        }
        let is_repeated = message.is_repeated;
        let answer = Box::new(self.servers[message.store].process(*message, &self.world));
        if is_repeated {
            return;
        }
        if link.repeats() {
            let again = Event::Answer(answer.clone());
            self.world.schedule(link.answer_arrives_at(), again);
        }
        self.world.schedule(link.answer_arrives_at(), Event::Answer(answer));
    }

    fn arrive(&mut self, index: usize) {
        let (now, stream) = (self.world.now(), self.scenario.streams[index]);
        let is_recovery = now > self.scenario.faults_end;
        // Sufficient demand: two and a half times the limit, in requests of cost 1.
        let gap = match (is_recovery && self.scenario.measured > 0, index) {
            (true, 0) => 400_000 / self.main_rule().rate().max(1),
            _ => stream.gap,
        };
        let next = now + self.random.between(gap / 2, gap * 3 / 2).max(1);
        self.world.schedule(next, Event::Arrival { stream: index });
        let cost = if is_recovery { 1 } else { self.random.between(1, stream.max_cost) };
        let refunds = !is_recovery && self.random.percent(self.scenario.refund_percent);
        let latest = self.scenario.latest_refund();
        self.decided += 1;
        let request = Request {
            number: self.decided,
            client: stream.client,
            is_for_all_rules: !is_recovery && self.random.percent(stream.all_rules_percent),
            cost: u32::try_from(cost).unwrap_or(1),
            refund_after: refunds.then(|| self.random.below(latest)),
        };
        let place = self.place_for(now);
        self.nodes[self.fleet[place]].handle(request);
    }

    /// One node gets eight times as many requests as each other one, in turn.
    fn place_for(&mut self, now: u64) -> usize {
        let places = self.fleet.len() as u64;
        // Units that a node holds when its demand moves away may be lost, so full use is measured
        // while it does not move.
        let is_recovery = now > self.scenario.faults_end;
        let busiest = if is_recovery { 0 } else { now / self.scenario.busiest_for % places };
        let drawn = self.random.below(places + 7);
        usize::try_from(if drawn < places { drawn } else { busiest }).unwrap_or(0)
    }

    fn main_rule(&self) -> &RuleSpec {
        &self.rules_of(self.version)[0]
    }

    fn rules_of(&self, version: usize) -> &[RuleSpec] {
        match version.checked_sub(1) {
            None => &self.scenario.rules,
            Some(edit) => &self.scenario.edits[edit],
        }
    }

    fn start_node(&mut self) -> Result<usize, String> {
        let (id, ppm) = (self.nodes.len(), self.random.signed(MAX_DRIFT_PPM));
        let links = (0..self.servers.len()).map(|store| {
            let random = self.random.fork();
            NodeLink::new((id, store), &self.world, random, self.scenario.timing)
        });
        let store = SimStore::new(links.collect());
        let time = &self.world.time;
        let wall =
            self.servers[0].clock.at(0).0.as_micros() + time.now() + self.random.below(50_000);
        let booted = 1_000_000 + self.random.below(1_000_000_000);
        let parts = NodeParts {
            id,
            store,
            clock: MachineClock::new(time.clone(), wall, ppm),
            lease_clock: MachineClock::new(time.clone(), booted, ppm),
            rules: compile_rules(self.rules_of(self.version))?,
            bug: self.bug,
        };
        let node = Node::start(parts, &self.world, &self.spawner, &self.reports);
        node.set_node_count(u32::try_from(self.scenario.nodes).unwrap_or(1));
        self.nodes.push(node);
        Ok(id)
    }

    /// Nodes that reach the store with the list of nodes learn how many others do.
    fn send_heartbeats(&mut self) {
        let now = self.world.now();
        if now < self.stopped_until[0] || self.scenario.rules[0].is_local {
            return;
        }
        let nodes = self.fleet.iter().map(|id| &self.nodes[*id]);
        let up = nodes.filter(|node| node.store.links[0].is_up());
        let count = u32::try_from(up.clone().count()).unwrap_or(1);
        up.for_each(|node| node.set_node_count(count));
        self.compare_parts();
    }

    /// While nodes do not agree on how many they are, their parts may exceed the limit together.
    fn compare_parts(&mut self) {
        let now = self.world.now();
        for bound in self.checker.bounds.values_mut().filter(|bound| bound.spec.is_async()) {
            let counts = self.fleet.iter().map(|id| self.nodes[*id].node_count());
            let parts: u64 = counts.map(|count| bound.spec.part(count)).sum();
            bound.set_part_excess(parts.saturating_sub(bound.spec.limit()), now);
        }
    }

    fn inject(&mut self, kind: FaultKind) -> Result<(), String> {
        self.world.trace.record(1, || format!("fault: {kind:?}"));
        let now = self.world.now();
        match kind {
            FaultKind::Cut { node, store } => self.link(node, store).cut(true),
            FaultKind::Stall { node, store, until } => self.link(node, store).stall_until(until),
            FaultKind::SlowNetwork { node, store, extra } => {
                self.link(node, store).set_extra_delay(extra);
            }
            FaultKind::Heal { node, store } => self.link(node, store).reconnect(),
            FaultKind::StoreStops { store, until } => self.stopped_until[store] = until,
            FaultKind::StoreLosesState { store } => {
                self.servers[store].lose_state();
                self.checker.bounds_at(store).for_each(|bound| bound.lose_state(now));
            }
            FaultKind::Replicate { store } => self.servers[store].replicate(),
            FaultKind::FailOver { store } => {
                self.servers[store].fail_over();
                self.checker.bounds_at(store).for_each(|bound| bound.lose_state(now));
            }
            FaultKind::StoreClockSteps { store, micros } => {
                self.servers[store].clock.step(micros);
                self.checker.bounds_at(store).for_each(|bound| bound.step(micros, now));
            }
            FaultKind::Kill { node } => return self.replace_node(node),
            FaultKind::Pause { node } => self.executor.pause(self.fleet[node]),
            FaultKind::Resume { node } => self.executor.resume(self.fleet[node]),
            FaultKind::Edit(index) => self.begin_edit(index + 1),
        }
        Ok(())
    }

    fn link(&self, place: usize, store: usize) -> &NodeLink {
        &self.nodes[self.fleet[place]].store.links[store]
    }

    fn replace_node(&mut self, place: usize) -> Result<(), String> {
        let old = self.fleet[place];
        self.executor.kill(old);
        self.nodes[old].store.links.iter().for_each(|link| link.cut(true));
        let (open, now) = (self.nodes[old].async_stats().units_open, self.world.now());
        for bound in self.checker.bounds.values_mut().filter(|bound| bound.spec.is_async()) {
            bound.lose_units(open, now);
        }
        let new = self.start_node()?;
        self.fleet[place] = new;
        self.compare_parts();
        if let Some(edit) = &mut self.edit {
            edit.missing.retain(|node| *node != old);
        }
        self.finish_edit();
        Ok(())
    }

    /// The nodes receive new rules within 200 ms.
    fn begin_edit(&mut self, version: usize) {
        let (rules, now) = (self.rules_of(version).to_vec(), self.world.now());
        let main = rules[0];
        let bounds = self.checker.bounds_of(main.id);
        let disturbances = bounds.map(|bound| bound.begin_edit(main, now)).collect();
        self.compare_parts();
        self.checker.consider_leases(&rules);
        self.version = version;
        self.edit = Some(EditInProgress { version, disturbances, missing: self.fleet.clone() });
        for node in &self.fleet {
            let after = self.random.below(200_000);
            self.nodes[*node].install(after, version, rules.clone());
        }
    }

    fn finish_edit(&mut self) {
        let Some(edit) = self.edit.take_if(|edit| edit.missing.is_empty()) else { return };
        let (now, main) = (self.world.now(), self.rules_of(edit.version)[0]);
        for (bound, disturbance) in self.checker.bounds_of(main.id).zip(edit.disturbances) {
            bound.finish_edit(disturbance, main, now);
        }
        self.compare_parts();
        let next = edit.version;
        let at = now + 600_000;
        if next < self.scenario.edits.len() && at < self.scenario.faults_end - 300_000 {
            let index = self.scenario.faults.len();
            let kind = FaultKind::Edit(next);
            self.scenario.faults.push(crate::fault::Fault { at, kind });
            self.world.schedule(at, Event::Fault(index));
        }
    }

    fn process_reports(&mut self) {
        self.note_lost_flushes();
        for report in self.reports.take() {
            let result = self.process_report(report);
            if let Err(violation) = result {
                self.violation.get_or_insert(violation);
            }
        }
    }

    /// What the store may never count adds to the bound once.
    fn note_lost_flushes(&mut self) {
        let now = self.world.now();
        for node in &self.nodes {
            let lost =
                node.store.links.iter().flat_map(|it| std::mem::take(&mut it.log().lost_flushes));
            for LostFlush { rule, store, units } in lost {
                let bound = self.checker.bounds_of(&rule).nth(store);
                bound.into_iter().for_each(|bound| bound.lose_units(units, now));
            }
        }
    }

    fn process_report(&mut self, report: Report) -> Result<(), String> {
        let now = self.world.now();
        let (trace, code) = (&self.world.trace, code_of(&report));
        trace.record(code, || format!("{report:?}"));
        match report {
            Report::Decided { node, request, received_at, admitted: true, charges, .. } => {
                self.admitted += 1;
                let span = RequestSpan { received_at, decided_at: now };
                self.checker.admit(node, span, &request, charges, &mut self.servers)
            }
            Report::Decided { .. } => {
                self.refused += 1;
                Ok(())
            }
            Report::Refunds { request } => {
                self.checker.refund(now, request);
                Ok(())
            }
            Report::Installed { node, version } => {
                if let Some(edit) = self.edit.as_mut().filter(|edit| edit.version == version) {
                    edit.missing.retain(|missing| *missing != node);
                }
                self.finish_edit();
                Ok(())
            }
        }
    }

    fn check_now(&mut self, is_end: bool) -> Result<(), String> {
        let mut wrong = self.servers.iter().filter_map(|it| it.ledger.wrong_refund.as_ref());
        if let Some(wrong) = wrong.next() {
            return Err(wrong.clone());
        }
        self.checker.check_bounds(self.world.now(), is_end)?;
        for node in &self.nodes {
            let flushed = node.flushed_units();
            let admitted = node.async_stats().units_admitted;
            if flushed > admitted {
                return Err(format!(
                    "node {} flushes {flushed} units, but has admitted {admitted}: some are sent \
                     again",
                    node.id
                ));
            }
            let Some(stats) = node.limiter.lease_stats() else { continue };
            let used = stats.units_spent + stats.units_held + stats.units_returned;
            if used + stats.units_expired > stats.units_granted {
                return Err(format!("node {} spends more than it was granted: {stats:?}", node.id));
            }
        }
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), String> {
        self.check_use()?;
        self.stop_demand();
        self.check_now(true)?;
        let mut unknown: BTreeMap<Fingerprint, u64> = BTreeMap::new();
        for node in &self.nodes {
            for link in node.store.links.iter() {
                for (fingerprint, cost) in &link.log().unknown {
                    *unknown.entry(*fingerprint).or_default() += cost;
                }
            }
        }
        let leased = self.scenario.rule_ids(|rule| rule.lease.is_some() || rule.is_shadow);
        let mut rules = self.scenario.rule_ids(|_| true);
        rules.retain(|rule| !leased.contains(rule));
        if self.scenario.rules[0].is_local || self.nodes.len() > self.fleet.len() {
            // Settlement writes usage once more, and a killed node forgets what it charged.
            return Ok(());
        }
        self.checker.check_all_or_none(&self.servers, &unknown, &rules)
    }

    /// Lets what is under way end, without new requests.
    fn stop_demand(&mut self) {
        let end = self.world.now() + 2_000_000;
        for stream in &mut self.scenario.streams {
            stream.gap = 100_000_000;
        }
        self.scenario.measured = 0;
        self.run_until(end);
    }

    /// The fleet uses 98 % of what the lending policy of the first rule allows.
    fn check_use(&self) -> Result<(), String> {
        let measured = self.scenario.measured;
        if measured == 0 {
            return Ok(());
        }
        let from = self.scenario.faults_end + RECOVERY;
        let used = self.checker.main_admitted(from, from + measured);
        let rule = self.main_rule();
        let (requests, window) = (rule.requests, rule.window_ms * 1_000);
        let ttl = rule.lease.filter(|lease| !lease.is_plus_ttl).map_or(0, |it| it.ttl_ms * 1_000);
        // While the store is short, a node learns up to half a lease late that a window has room.
        // An asynchronous node learns it with its next flush, and the store counts what it admits
        // as of the flush after that.
        let lag = match rule.flush_ms {
            Some(flush_ms) => 2 * (1_000 * flush_ms + SWEEP_EVERY),
            None => rule.ttl_micros() / 2,
        };
        let allowed = match rule.algorithm {
            Algorithm::FixedWindow if rule.is_async() => requests * measured / (window + lag),
            Algorithm::SlidingWindowLog if lag == 0 => requests * (measured / window),
            Algorithm::SlidingWindowLog => requests * measured / (window + ttl + lag),
            // The weighted count of the previous window is rounded up: one request a window.
            Algorithm::SlidingWindowCounter => {
                (requests * window / (window + ttl) - 1) * (measured / window) * window
                    / (window + lag)
            }
            _ => requests * measured / window,
        };
        let slack = 2 + 2 * self.fleet.len() as u64;
        // A node with about as many requests as make a counter worth leasing wastes some units.
        let requests_in_ttl = 5 * rule.rate() * ttl / 1_000_000 / (self.fleet.len() as u64 + 7) / 2;
        let percent = if (3..=16).contains(&requests_in_ttl) { 93 } else { 98 };
        let is_window = !rule.algorithm.is_bucket();
        let percent = if rule.is_async() && is_window { 90 } else { percent };
        if (used + slack) * 100 < allowed * percent {
            return Err(format!(
                "rule {}: {used} used of {allowed} within {measured} µs of sufficient demand",
                rule.id
            ));
        }
        Ok(())
    }

    fn store_calls(&self) -> u64 {
        self.nodes.iter().map(Node::store_calls).sum()
    }

    fn summary(&self) -> RunSummary {
        let (events, digest) = self.world.trace.digest();
        let spent = |node: &Node| node.limiter.lease_stats().map_or(0, |stats| stats.units_spent);
        RunSummary {
            decided: self.decided,
            admitted: self.admitted,
            store_calls: self.store_calls(),
            leased_units: self.nodes.iter().map(spent).sum(),
            async_units: self.nodes.iter().map(|node| node.async_stats().units_admitted).sum(),
            events,
            digest,
            violation: self.violation.clone(),
            trace: self.world.trace.lines(),
        }
    }
}

fn code_of(report: &Report) -> u64 {
    match report {
        Report::Decided { node, request, admitted, by, .. } => {
            let by = by.name().len() as u64;
            (*node as u64) << 48 | request.number << 8 | u64::from(*admitted) << 4 | by
        }
        Report::Refunds { request } => 1 << 60 | request,
        Report::Installed { node, version } => 2 << 60 | (*node as u64) << 8 | *version as u64,
    }
}
