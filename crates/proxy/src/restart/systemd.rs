//! Notifications to systemd (`sd_notify(3)`), for services of `Type=notify`.

use sd_notify::NotifyState;

/// This process serves, and is the main one of its service: after a restart, the earlier one was.
pub(crate) fn notify_ready() {
    notify(&[NotifyState::Ready, NotifyState::MainPid(std::process::id())]);
}

/// The service stops.
pub(crate) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Does nothing without systemd.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd cannot be notified");
    }
}
