//! Tasks that do not depend on each other. A pure crate has no threads: its caller passes what runs the tasks.

use alloc::vec::Vec;

/// A task. [`RunTasks`] runs it once.
pub type Task<'t> = &'t mut (dyn FnMut() + Send);

/// Runs each task once, in any order and several at once, and returns when all have ended.
pub type RunTasks = fn(&mut [Task<'_>]);

/// Runs one task after another.
pub fn run_serially(tasks: &mut [Task<'_>]) {
    tasks.iter_mut().for_each(|task| task());
}

/// Applies `function` to each item, as a task of its own. The results are in the order of the items.
///
/// # Panics
/// If `run` does not run a task, or runs one twice.
pub fn map_tasks<T: Send, R: Send>(
    run: RunTasks,
    items: Vec<T>,
    function: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let function = &function;
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let with_result = items.into_iter().map(Some).zip(&mut results);
    let mut tasks: Vec<_> = with_result
        .map(|(mut item, result)| {
            move || *result = Some(function(item.take().expect("a task runs once")))
        })
        .collect();
    let mut tasks: Vec<Task<'_>> = tasks.iter_mut().map(|task| task as Task<'_>).collect();
    run(&mut tasks);
    results.into_iter().map(|result| result.expect("each task runs")).collect()
}

#[cfg(test)]
mod tests {
    use super::{map_tasks, run_serially};
    use alloc::vec::Vec;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let backwards =
            |tasks: &mut [super::Task<'_>]| tasks.iter_mut().rev().for_each(|run| run());
        for run in [run_serially, backwards] {
            let doubled = map_tasks(run, Vec::from([1, 2, 3]), |n: u32| n * 2);
            assert_eq!(doubled, [2, 4, 6]);
        }
    }
}
