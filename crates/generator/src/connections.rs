//! The connections of one thread, and which of them have nothing to do.

use super::flight::DueRequest;
use curtail_units::Instant;
use slab::Slab;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use tokio::task::AbortHandle;

/// What the thread and the task of one connection share.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// A request that it is to send next.
    given: Cell<Option<DueRequest>>,
    waker: RefCell<Option<Waker>>,
    is_idle: Cell<bool>,
    /// Since when it is being made; nothing once it is there.
    opening_since: Cell<Option<Instant>>,
    abort: OnceCell<AbortHandle>,
    key: Cell<usize>,
    /// Whether it takes no further requests.
    is_draining: Cell<bool>,
}

/// The connections of one thread.
#[derive(Debug, Default)]
pub(super) struct Connections {
    all: Slab<Rc<Connection>>,
    /// Those that wait for a request; the one that was used last is last.
    idle: Vec<Rc<Connection>>,
    opening: usize,
    /// How many were given a request that they have not taken yet.
    given: usize,
    draining: usize,
}

impl Connection {
    /// What ends its task.
    pub(super) fn abort_handle(&self) -> AbortHandle {
        self.abort.get().cloned().expect("set before the task has run for the first time")
    }

    /// Its task is this one.
    pub(super) fn is_task(&self, abort: AbortHandle) {
        // It is set once, when the task starts.
        let _set = self.abort.set(abort);
    }
}

impl Connections {
    /// How many there are, those that are being made included.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many take no further requests, and are there until their last response.
    pub(super) const fn draining(&self) -> usize {
        self.draining
    }

    /// One more is being made.
    pub(super) fn open(&mut self, now: Instant) -> Rc<Connection> {
        let connection = Rc::new(Connection::default());
        connection.opening_since.set(Some(now));
        connection.key.set(self.all.insert(Rc::clone(&connection)));
        self.opening += 1;
        connection
    }

    /// It is there now.
    pub(super) fn opened(&mut self, connection: &Connection) {
        if connection.opening_since.take().is_some() {
            self.opening -= 1;
        }
    }

    /// It takes no further requests.
    pub(super) fn drain(&mut self, connection: &Connection) {
        self.busy(connection);
        if !connection.is_draining.replace(true) {
            self.draining += 1;
        }
    }

    /// It is there no longer.
    pub(super) fn closed(&mut self, connection: &Connection) {
        self.opened(connection);
        self.busy(connection);
        if connection.is_draining.take() {
            self.draining -= 1;
        }
        self.all.remove(connection.key.get());
    }

    /// Gives `due` to the connection that was used last of those that have nothing to do, if there is any.
    pub(super) fn give(&mut self, due: DueRequest) -> Result<(), DueRequest> {
        let Some(connection) = self.idle.pop() else { return Err(due) };
        connection.is_idle.set(false);
        connection.given.set(Some(due));
        self.given += 1;
        if let Some(waker) = connection.waker.borrow_mut().take() {
            waker.wake();
        }
        Ok(())
    }

    /// The request that it was given.
    pub(super) fn take_given(&mut self, connection: &Connection) -> Option<DueRequest> {
        let due = connection.given.take()?;
        self.given -= 1;
        Some(due)
    }

    /// How many were given a request that they have not taken yet.
    pub(super) const fn given(&self) -> usize {
        self.given
    }

    /// It has nothing to do, and is woken when it has.
    pub(super) fn idle(&mut self, connection: &Rc<Connection>, cx: &Context<'_>) {
        *connection.waker.borrow_mut() = Some(cx.waker().clone());
        if !connection.is_idle.replace(true) {
            self.idle.push(Rc::clone(connection));
        }
    }

    /// It has something to do, without having been given it.
    pub(super) fn busy(&mut self, connection: &Connection) {
        if connection.is_idle.replace(false) {
            self.idle.retain(|idle| idle.key != connection.key);
        }
    }

    /// Those that are being made since before `before`.
    pub(super) fn opening_since(&self, before: Instant) -> Vec<Rc<Connection>> {
        let is_late = |connection: &&Rc<Connection>| {
            connection.opening_since.get().is_some_and(|since| since <= before)
        };
        if self.opening == 0 {
            return Vec::new();
        }
        self.all.iter().map(|(_, connection)| connection).filter(is_late).cloned().collect()
    }
}
