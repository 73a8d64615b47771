//! One run: moves true time from event to event, and checks every decision.

mod checks;
mod demand;
mod edit;
mod full_use;
mod injection;
mod markers;
mod membership;
mod moving_regions;
mod reports;
mod skewed_fleet;
mod summary;

use tidegate_limiter::SeededBug;

use self::edit::EditInProgress;
pub use self::moving_regions::{RegionsUse, run_moving_regions};
pub use self::skewed_fleet::{FleetUse, run_skewed_fleet};
pub use self::summary::{RunOptions, RunSummary, run_seed};
use crate::checker::{Checker, StoreSpec};
use crate::clock::MachineClock;
use crate::executor::{Executor, Spawner};
use crate::link::StoreMessage;
use crate::node::{Node, Reports};
use crate::random::Random;
use crate::rule_spec::RuleSpec;
use crate::scenario::Scenario;
use crate::store_server::{StoreAnswer, StoreServer};
use crate::world::{Event, World};

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
    /// Units of other regions that were spent.
    borrowed: u64,
    /// How long a decision took at most.
    slowest_decision: u64,
    violation: Option<String>,
}

const START: u64 = 1_700_000_000_000_000;
const CHECK_EVERY: u64 = 100_000;
const HEARTBEAT_EVERY: u64 = 200_000;

impl Simulation {
    fn new(scenario: Scenario, options: RunOptions) -> Result<Self, String> {
        let world = World::new(options.keeps_trace);
        let mut random = scenario.random.clone();
        let start = START + random.below(10_000_000);
        let clock = |(store, ppm): (usize, &i64)| {
            let start = start.saturating_add_signed(scenario.clock_offset(store));
            StoreSpec { clock: MachineClock::new(world.time.clone(), start, *ppm), ppm: *ppm }
        };
        let stores: Vec<StoreSpec> = scenario.store_ppm.iter().enumerate().map(clock).collect();
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
            borrowed: 0,
            slowest_decision: 0,
            violation: None,
            scenario,
        };
        for _ in 0..simulation.scenario.nodes {
            let node = simulation.start_node(simulation.fleet.len())?;
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
                self.nodes[node].links[store].deliver(&call, connection, answer);
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
        let link = self.nodes[message.node].links[message.store].clone();
        if !link.carries(message.connection) && !message.survives_cut {
            return;
        }
        let is_repeated = message.is_repeated;
        let server = &mut self.servers[message.store];
        let is_loan = self.nodes[message.node].home() != message.store;
        server.forgets_grants = is_loan && self.bug == Some(SeededBug::LoanNotCharged);
        let answer = Box::new(server.process(*message, &self.world));
        if is_repeated || link.loses_answers() {
            return;
        }
        if link.repeats() {
            let again = Event::Answer(answer.clone());
            self.world.schedule(link.answer_arrives_at(), again);
        }
        self.world.schedule(link.answer_arrives_at(), Event::Answer(answer));
    }

    fn store_calls(&self) -> u64 {
        self.nodes.iter().map(Node::store_calls).sum()
    }

    /// Calls to stores of other regions.
    fn cross_region_calls(&self) -> u64 {
        self.nodes.iter().map(Node::cross_region_calls).sum()
    }
}
