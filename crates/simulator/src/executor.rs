//! A single-threaded executor: tasks run in the order in which they were woken, and only the
//! simulation moves time.
//!
//! Every task belongs to a machine. Tasks of a paused machine wait; tasks of a killed one vanish.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// What a machine runs.
pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts tasks, also from within tasks.
#[derive(Clone, Default)]
pub(crate) struct Spawner(Arc<Mutex<Vec<(usize, TaskFuture)>>>);

/// All tasks of a simulation.
#[derive(Default)]
pub(crate) struct Executor {
    tasks: Vec<Option<Task>>,
    ready: Arc<Mutex<VecDeque<usize>>>,
    spawned: Spawner,
    paused: Vec<usize>,
    /// Ready tasks of paused machines.
    parked: Vec<usize>,
}

struct Task {
    machine: usize,
    future: TaskFuture,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    id: usize,
    is_queued: AtomicBool,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Relaxed) {
            lock(&self.ready).push_back(self.id);
        }
    }
}

impl Spawner {
    pub(crate) fn spawn(&self, machine: usize, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.0).push((machine, Box::pin(task)));
    }
}

impl Executor {
    pub(crate) fn spawner(&self) -> Spawner {
        self.spawned.clone()
    }

    /// Runs the next ready task until it waits. Returns `false` if no task is ready.
    pub(crate) fn run_one(&mut self) -> bool {
        self.adopt_spawned();
        let Some(id) = lock(&self.ready).pop_front() else { return false };
        let Some(task) = self.tasks.get_mut(id).and_then(Option::as_mut) else { return true };
        if self.paused.contains(&task.machine) {
            self.parked.push(id);
            return true;
        }
        task.waker.is_queued.store(false, Relaxed);
        let waker = Waker::from(Arc::clone(&task.waker));
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
            self.tasks[id] = None;
        }
        true
    }

    pub(crate) fn pause(&mut self, machine: usize) {
        self.paused.push(machine);
    }

    pub(crate) fn resume(&mut self, machine: usize) {
        if let Some(at) = self.paused.iter().position(|paused| *paused == machine) {
            self.paused.swap_remove(at);
        }
        // Tasks of machines that are still paused are parked again.
        lock(&self.ready).extend(self.parked.drain(..));
    }

    pub(crate) fn kill(&mut self, machine: usize) {
        self.adopt_spawned();
        self.paused.retain(|paused| *paused != machine);
        for slot in &mut self.tasks {
            // Dropping a task may wake others, which is harmless.
            drop(slot.take_if(|task| task.machine == machine));
        }
        lock(&self.spawned.0).retain(|(owner, _)| *owner != machine);
    }

    fn adopt_spawned(&mut self) {
        let spawned = std::mem::take(&mut *lock(&self.spawned.0));
        for (machine, future) in spawned {
            let (id, ready) = (self.tasks.len(), Arc::clone(&self.ready));
            let waker = Arc::new(TaskWaker { id, is_queued: AtomicBool::new(false), ready });
            waker.wake_by_ref();
            self.tasks.push(Some(Task { machine, future, waker }));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
