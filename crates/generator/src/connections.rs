//! The connections of one thread, and the idle ones among them.

use super::flight::DueRequest;
use curtail_units::Instant;
use slab::Slab;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use tokio::task::AbortHandle;

#[derive(Debug, Default)]
pub(super) struct Connection {
    /// The next request to send.
    assigned: Cell<Option<DueRequest>>,
    waker: RefCell<Option<Waker>>,
    is_idle: Cell<bool>,
    /// The start of the connection attempt; [`None`] once the connection is open.
    opening_since: Cell<Option<Instant>>,
    abort: OnceCell<AbortHandle>,
    key: Cell<usize>,
    is_draining: Cell<bool>,
}

#[derive(Debug, Default)]
pub(super) struct Connections {
    all: Slab<Rc<Connection>>,
    /// Idle connections, the one that was used last at the end.
    idle: Vec<Rc<Connection>>,
    opening: usize,
    /// The number of connections with an assigned request that they have not taken yet.
    assigned: usize,
    draining: usize,
}

impl Connection {
    pub(super) fn abort_handle(&self) -> AbortHandle {
        self.abort.get().cloned().expect("set before the task has run for the first time")
    }

    pub(super) fn set_abort_handle(&self, abort: AbortHandle) {
        // It is set once, when the task starts.
        let _set = self.abort.set(abort);
    }
}

impl Connections {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of connections that take no further requests and wait for their last responses.
    pub(super) const fn draining(&self) -> usize {
        self.draining
    }

    pub(super) fn open(&mut self, now: Instant) -> Rc<Connection> {
        let connection = Rc::new(Connection::default());
        connection.opening_since.set(Some(now));
        connection.key.set(self.all.insert(Rc::clone(&connection)));
        self.opening += 1;
        connection
    }

    pub(super) fn opened(&mut self, connection: &Connection) {
        if connection.opening_since.take().is_some() {
            self.opening -= 1;
        }
    }

    pub(super) fn drain(&mut self, connection: &Connection) {
        self.mark_busy(connection);
        if !connection.is_draining.replace(true) {
            self.draining += 1;
        }
    }

    pub(super) fn closed(&mut self, connection: &Connection) {
        self.opened(connection);
        self.mark_busy(connection);
        if connection.is_draining.take() {
            self.draining -= 1;
        }
        self.all.remove(connection.key.get());
    }

    /// Gives `due` to the idle connection that was used last, if any.
    pub(super) fn assign(&mut self, due: DueRequest) -> Result<(), DueRequest> {
        let Some(connection) = self.idle.pop() else { return Err(due) };
        connection.is_idle.set(false);
        connection.assigned.set(Some(due));
        self.assigned += 1;
        if let Some(waker) = connection.waker.borrow_mut().take() {
            waker.wake();
        }
        Ok(())
    }

    pub(super) fn take_assigned(&mut self, connection: &Connection) -> Option<DueRequest> {
        let due = connection.assigned.take()?;
        self.assigned -= 1;
        Some(due)
    }

    /// The number of connections with an assigned request that they have not taken yet.
    pub(super) const fn assigned(&self) -> usize {
        self.assigned
    }

    /// Marks a connection as idle; an assigned request wakes it.
    pub(super) fn mark_idle(&mut self, connection: &Rc<Connection>, cx: &Context<'_>) {
        *connection.waker.borrow_mut() = Some(cx.waker().clone());
        if !connection.is_idle.replace(true) {
            self.idle.push(Rc::clone(connection));
        }
    }

    pub(super) fn mark_busy(&mut self, connection: &Connection) {
        if connection.is_idle.replace(false) {
            self.idle.retain(|idle| idle.key != connection.key);
        }
    }

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
