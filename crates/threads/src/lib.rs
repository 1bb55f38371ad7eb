//! Independent tasks on all processors.
//!
//! The threads live as long as the call, and have the priority of the caller: a query of low priority stays one.

use curtail_units::Task;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Runs tasks on as many threads as there are processors; a [`curtail_units::RunTasks`].
///
/// # Panics
/// If a task panics, with its panic.
pub fn run_on_all_processors(tasks: &mut [Task<'_>]) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(tasks.len());
    let waiting = Mutex::new(tasks.iter_mut());
    // The lock is not held while a task runs.
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(task) = next() {
            task();
        }
    };
    thread::scope(|scope| {
        // Where the system allows no further thread, there are fewer.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads).map_while(spawn).collect();
        work();
        for other in others {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::run_on_all_processors;
    use curtail_units::map_tasks;
    use std::panic::catch_unwind;
    use std::sync::Barrier;

    #[test]
    fn results_are_in_the_order_of_the_tasks() {
        let squares = map_tasks(run_on_all_processors, (0..1_000).collect(), |n: u64| n * n);
        assert_eq!(squares, (0..1_000).map(|n| n * n).collect::<Vec<_>>());
        assert!(map_tasks(run_on_all_processors, Vec::new(), |n: u64| n).is_empty());
    }

    #[test]
    fn as_many_tasks_run_at_once_as_there_are_processors() {
        let processors = std::thread::available_parallelism().expect("known").get();
        // Each task waits for the others.
        let all = Barrier::new(processors);
        let run = |_| all.wait().is_leader();
        let leaders = map_tasks(run_on_all_processors, (0..processors).collect(), run);
        assert_eq!(leaders.iter().filter(|is_leader| **is_leader).count(), 1);
    }

    #[test]
    fn a_panic_of_a_task_is_the_panic_of_the_caller() {
        let panics = || {
            map_tasks(run_on_all_processors, (0..100).collect(), |n: u64| {
                assert!(n != 77, "task 77");
                n
            })
        };
        let panic = catch_unwind(panics).expect_err("a task panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"task 77"));
    }
}
